// Directories of T5, T5 1.1, mT5 and ByT5: relative position biases, output matrices, vocabularies,
// refusals.
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/nn/relative_positions.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kT5Text = "der Hund sieht einen Baum.";

ModelConfig t5_config() {
  ModelConfig config = t5_of(config_of(Architecture::encoder_decoder, true));
  config.attention_dropout = config.ffn_dropout = config.dropout;  // T5 has one for all
  return config;
}

ModelConfig gated_t5_config() {
  ModelConfig config = gated_t5_of(config_of(Architecture::encoder_decoder, true));
  config.attention_dropout = config.ffn_dropout = config.dropout;
  return config;
}

// T5's special tokens: the decoder starts with <pad>.
Tokenizer t5_vocabulary() {
  static const std::string bytes = [] {
    const interop::SpmModel ours = interop::parse_spm(tokenizer().serialized());
    std::vector<interop::ScoredSubword> subwords = {{"<pad>", 0, SubwordType::control},
                                                    {"</s>", 0, SubwordType::control},
                                                    {"<unk>", 0, SubwordType::unknown}};
    for (const interop::ScoredSubword& subword : ours.subwords)
      if (subword.type == SubwordType::normal) subwords.push_back(subword);
    return interop::serialize_spm(ours, subwords, {.bos = 0, .pad = -1, .eos = {1}}, "test");
  }();
  return Tokenizer::from_bytes(bytes);
}

class T5ImportTest : public ImportTest {
 protected:
  void SetUp() override { write(t5_config(), "t5"); }
  void write(ModelConfig config, const std::string& name) { write(config, t5_, name); }
  void write(ModelConfig config, const Tokenizer& vocabulary, const std::string& name) {
    config.vocabulary = vocabulary.vocab_size();
    model_ = model_of(config);
    directory_ = path(name);
    export_model(*context_, *model_, vocabulary, ExportFormat::hf_t5, directory_);
  }
  FileJson config() const {
    return FileJson::parse(read_text_file(directory_ / "config.json", 1 << 20));
  }
  const Tokenizer t5_ = t5_vocabulary();
  fs::path directory_;
};

TEST_F(T5ImportTest, ComesBackWithItsVocabulary) {
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  EXPECT_EQ(result.model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->encode(kT5Text), t5_.encode(kT5Text));
  EXPECT_EQ(result.tokenizer->special_tokens(), t5_.special_tokens());
  EXPECT_EQ(result.model->tokens()->special.start(), 0);
  const FileJson written = config();
  EXPECT_EQ(written["architectures"][0], "T5ForConditionalGeneration");
  EXPECT_EQ(written["feed_forward_proj"], "relu");
  EXPECT_EQ(written["tie_word_embeddings"], true);
  EXPECT_EQ(written["decoder_start_token_id"], 0);
  EXPECT_EQ(written["pad_token_id"], 0);
}

TEST_F(T5ImportTest, AGatedFormWithAnOutputMatrix) {
  write(gated_t5_config(), "gated");
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
  EXPECT_EQ(config()["feed_forward_proj"], "gated-gelu");
  EXPECT_EQ(config()["tie_word_embeddings"], false);
  // As mT5's directories have it. Without the key, mT5 does not scale and T5 does.
  edit_config(directory_, [](FileJson& json) {
    json["model_type"] = "mt5";
    for (const char* key : {"scale_decoder_outputs", "dense_act_fn", "is_gated_act",
                            "feed_forward_proj", "tie_word_embeddings", "num_decoder_layers"})
      json.erase(key);
  });
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  edit_config(directory_, [](FileJson& json) {
    json["model_type"] = "t5";
    json["feed_forward_proj"] = "gated-gelu";
  });
  refused_import(directory_, ErrorCode::corrupt_file, "lm_head.weight and shared.weight differ");
  edit_config(directory_, [](FileJson& json) { json["scale_decoder_outputs"] = false; });
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
}

// transformers 5 ties the matrices of mT5 and does not scale.
TEST_F(T5ImportTest, ATiedMatrixWithoutScaling) {
  ModelConfig tied = gated_t5_config();
  tied.separate_output = false;
  write(tied, "unscaled");
  const auto wanted = weight_bytes(*context_, *model_);
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  edit_tensors(directory_, [](std::vector<Stored>& tensors) {
    std::erase_if(tensors, [](const Stored& tensor) { return tensor.name == "lm_head.weight"; });
  });
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), wanted);
}

TEST_F(T5ImportTest, OneMatrixUnderOtherNames) {
  const auto wanted = weight_bytes(*context_, *model_);
  std::string before = "shared.weight";
  for (const char* name : {"decoder.embed_tokens.weight", "encoder.embed_tokens.weight",
                           "lm_head.weight", "shared.weight"}) {
    edit_tensors(directory_, [&](std::vector<Stored>& all) { find(all, before).name = name; });
    EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), wanted) << name;
    before = name;
  }
  edit_tensors(directory_, [](std::vector<Stored>& all) {
    Stored copy = find(all, "shared.weight");
    copy.name = "encoder.embed_tokens.weight";
    copy.bytes.front() ^= std::byte{1};
    all.push_back(std::move(copy));
  });
  refused_import(directory_, ErrorCode::corrupt_file, "differ");
}

TEST_F(T5ImportTest, NullDoesNotScaleTheOutput) {
  edit_config(directory_, [](FileJson& json) { json["scale_decoder_outputs"] = false; });
  const ModelConfig unscaled = imported(directory_).model->config();
  edit_config(directory_, [](FileJson& json) { json["scale_decoder_outputs"] = nullptr; });
  EXPECT_EQ(imported(directory_).model->config(), unscaled);
  edit_config(directory_, [](FileJson& json) { json.erase("scale_decoder_outputs"); });
  EXPECT_NE(imported(directory_).model->config(), unscaled);
}

TEST_F(T5ImportTest, KeysThatChangeTheFunctionAreRefused) {
  const auto changed = [&](const char* key, FileJson value, ErrorCode code,
                           const char* said = nullptr) {
    const std::string before = read_text_file(directory_ / "config.json", 1 << 20);
    edit_config(directory_, [&](FileJson& json) { json[key] = std::move(value); });
    refused_import(directory_, code, said ? said : key);
    write_file_atomically(directory_ / "config.json", before);
  };
  using enum ErrorCode;
  changed("is_decoder", true, unsupported);
  changed("is_encoder_decoder", false, unsupported);
  changed("hidden_size", 1, unsupported);
  changed("head_dim", 1, unsupported);
  changed("dense_act_fn", "tanh", unsupported);
  changed("is_gated_act", true, unsupported);  // with relu
  changed("relative_attention_num_buckets", 3, corrupt_file);
  changed("relative_attention_max_distance", 4, corrupt_file);
  changed("decoder_start_token_id", t5_.vocab_size(), corrupt_file);
  changed("decoder_start_token_id", nullptr, corrupt_file);
  changed("n_positions", 1, corrupt_file);
  changed("n_positions", 16'000'000, corrupt_file, "16000000 positions are out of proportion");
  edit_config(directory_, [](FileJson& json) { json["relative_attention_num_buckets"] = 9; });
  refused_import(directory_, ErrorCode::corrupt_file, "relative_attention_bias.weight");
  edit_config(directory_, [](FileJson& json) {
    json["relative_attention_num_buckets"] = 8;
    json.erase("dense_act_fn");
    json["feed_forward_proj"] = "other-relu";
  });
  refused_import(directory_, ErrorCode::corrupt_file, "feed_forward_proj");
  edit_config(directory_, [](FileJson& json) { json["feed_forward_proj"] = "relu"; });
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  const auto generation = [&](const char* key, FileJson value) {
    edit_json(directory_ / "generation_config.json",
              [&](FileJson& json) { json[key] = std::move(value); });
    refused_import(directory_, ErrorCode::unsupported, key);
  };
  generation("decoder_start_token_id", 1);
  edit_json(directory_ / "generation_config.json",
            [](FileJson& json) { json.erase("decoder_start_token_id"); });
  generation("forced_bos_token_id", 3);
}

// T5Tokenizer adds its sentinels to spiece.model, the first one last.
TEST_F(T5ImportTest, TheSentinelsOfASentencePieceModel) {
  fs::remove(directory_ / "tokenizer.json");
  edit_json(directory_ / "tokenizer_config.json", [](FileJson& json) { json["extra_ids"] = 2; });
  const int32_t tokens = t5_.vocab_size();
  EXPECT_EQ(imported(directory_).tokenizer->vocab_size(), tokens);  // no rows for sentinels
  edit_config(directory_, [&](FileJson& json) { json["vocab_size"] = tokens + 3; });
  edit_tensors(directory_, [&](std::vector<Stored>& all) {
    Stored& shared = find(all, "shared.weight");
    shared.bytes.resize(shared.bytes.size() / static_cast<size_t>(tokens) *
                        static_cast<size_t>(tokens + 3));
    shared.shape[0] = tokens + 3;
  });
  const ImportedModel with = imported(directory_);
  EXPECT_EQ(with.tokenizer->vocab_size(), tokens + 2);
  EXPECT_EQ(with.tokenizer->token(tokens), "<extra_id_1>");
  EXPECT_EQ(with.tokenizer->token(tokens + 1), "<extra_id_0>");
  EXPECT_EQ(with.tokenizer->encode(kT5Text), t5_.encode(kT5Text));
  EXPECT_EQ(with.tokenizer->special_tokens(), t5_.special_tokens());
  EXPECT_TRUE(contains(with.note, concat(tokens + 3, " rows, the tokenizer ", tokens + 2)))
      << with.note;
}

TEST_F(T5ImportTest, Bytes) {
  write(gated_t5_config(), byte_vocabulary(true), "bytes");
  EXPECT_EQ(FileJson::parse(
                read_text_file(directory_ / "tokenizer_config.json", 1 << 20))["tokenizer_class"],
            "ByT5Tokenizer");
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.model->config(), model_->config());
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->kind(), ByteTokenizer::kKind);
  EXPECT_EQ(result.tokenizer->special_tokens().start(), 0);
  EXPECT_EQ(result.tokenizer->encode("aé"), (std::vector<int32_t>{100, 198, 172}));
  // Its file says that <pad> starts a translation.
  const Tokenizer again = Tokenizer::from_bytes(result.tokenizer->serialized());
  EXPECT_EQ(again.special_tokens(), result.tokenizer->special_tokens());
  EXPECT_NE(again.special_tokens(), byte_vocabulary(false).special_tokens());
  edit_config(directory_, [](FileJson& json) { json["decoder_start_token_id"] = 5; });
  edit_json(directory_ / "generation_config.json",
            [](FileJson& json) { json["decoder_start_token_id"] = 5; });
  refused_import(directory_, ErrorCode::unsupported, "decoder_start_token_id is 5");
}

TEST_F(T5ImportTest, OtherFormatsHaveNoRelativePositions) {
  for (const ExportFormat format : {ExportFormat::hf_marian, ExportFormat::hf_pegasus,
                                    ExportFormat::ctranslate2, ExportFormat::onnx}) {
    const Error error =
        error_of([&] { export_model(*context_, *model_, t5_, format, path(enum_name(format))); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_TRUE(mentions(error, "use hf-t5")) << error.what();
    EXPECT_FALSE(fs::exists(path(enum_name(format))));
  }
  model_ = model_of(config_of(Architecture::encoder_decoder, true));
  const Error error = error_of(
      [&] { export_model(*context_, *model_, tokenizer(), ExportFormat::hf_t5, path("plain")); });
  EXPECT_TRUE(mentions(error, "T5 cannot express")) << error.what();
  EXPECT_TRUE(mentions(error, "; use hf-pegasus or ctranslate2 or onnx")) << error.what();
  // The formats of this model have no byte vocabulary, and all need a vocabulary.
  ModelConfig of_bytes = model_->config();
  of_bytes.vocabulary = byte_vocabulary(false).vocab_size();
  const auto bytes = model_of(of_bytes);
  const auto hint = [&](const std::optional<Tokenizer>& vocabulary, ExportFormat format) {
    const Error refused =
        error_of([&] { export_model(*context_, *bytes, vocabulary, format, path("plain")); });
    const size_t at = refused.message().find("; use ");
    return at == std::string::npos ? std::string() : refused.message().substr(at);
  };
  EXPECT_EQ(hint(byte_vocabulary(false), ExportFormat::hf_t5), "");
  EXPECT_EQ(hint(std::nullopt, ExportFormat::hf_llama), "");
  ModelConfig pruned = t5_config();
  pruned.vocabulary = t5_.vocab_size();
  pruned.encoder_ffn_width = pruned.ffn_width / 2;
  model_ = model_of(pruned);
  const Error width =
      error_of([&] { export_model(*context_, *model_, t5_, ExportFormat::hf_t5, path("pruned")); });
  EXPECT_TRUE(mentions(width, "another feed-forward width")) << width.what();
}

// Values of T5Attention._relative_position_bucket of transformers 5.23.
TEST(RelativePositions, BucketsAreThoseOfTransformers) {
  const std::vector<int64_t> distances = {-4097, -1000, -999, -129, -128, -127, -91, -64, -63, -46,
                                          -32,   -31,   -23,  -16,  -15,  -11,  -8,  -5,  -3,  -1,
                                          0,     1,     3,    4,    7,    8,    12,  15,  16,  22,
                                          32,    45,    64,   90,   127,  128,  500};
  const auto buckets = [&](bool causal, const RelativeSpec& spec) {
    std::vector<int32_t> found;
    for (const int64_t distance : distances)
      found.push_back(nn::relative_bucket(distance, causal, spec));
    return found;
  };
  EXPECT_EQ(
      buckets(true, {32, 128}),
      (std::vector<int32_t>{31, 31, 31, 31, 31, 31, 29, 26, 26, 24, 21, 21, 18, 16, 15, 11, 8, 5, 3,
                            1,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0}));
  EXPECT_EQ(buckets(false, {32, 128}),
            (std::vector<int32_t>{15, 15, 15, 15, 15, 15, 15, 14, 13, 13, 12, 11, 11,
                                  10, 9,  8,  8,  5,  3,  1,  0,  17, 19, 20, 23, 24,
                                  25, 25, 26, 26, 28, 28, 30, 30, 31, 31, 31}));
  EXPECT_EQ(buckets(false, {33, 1000}),
            (std::vector<int32_t>{15, 15, 15, 12, 12, 12, 12, 11, 11, 10, 10, 10, 9,
                                  9,  9,  8,  8,  5,  3,  1,  0,  17, 19, 20, 23, 24,
                                  24, 25, 25, 25, 26, 26, 27, 28, 28, 28, 30}));
  EXPECT_EQ(buckets(true, {8, 6}),
            (std::vector<int32_t>{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 3,
                                  1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace trafo
