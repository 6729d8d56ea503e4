// Directories of mBART-50: embeddings with norms and learned positions, vocabulary, refusals.
#include "engine/formats/hf/directory.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kText = "der Hund sieht einen Baum.";
constexpr const char* kModelFile = "sentencepiece.bpe.model";
// MBart50Tokenizer's, in the order of their ids.
constexpr const char* kCodes[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN",
    "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP",
    "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ",
    "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN",
    "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};

Tokenizer mbart_vocabulary() {
  const interop::SpmModel ours = interop::parse_spm(tokenizer().serialized());
  std::vector<interop::ScoredSubword> subwords = {{"<s>", 0, SubwordType::control},
                                                  {"<pad>", 0, SubwordType::control},
                                                  {"</s>", 0, SubwordType::control},
                                                  {"<unk>", 0, SubwordType::unknown}};
  for (const interop::ScoredSubword& subword : ours.subwords)
    if (subword.type == SubwordType::normal) subwords.push_back(subword);
  for (const char* code : kCodes) subwords.push_back({code, 0, SubwordType::control});
  subwords.push_back({"<mask>", 0, SubwordType::control});
  return Tokenizer::from_bytes(
      interop::serialize_spm(ours, subwords, {.bos = 2, .pad = 1, .eos = {2}}, "test"));
}

class MbartImportTest : public ImportTest {
 protected:
  void SetUp() override {
    model_ = model_of(learned_config());
    write(mbart_, directory_);
  }
  ModelConfig learned_config() const {
    ModelConfig config = config_of(Architecture::encoder_decoder, true);
    config.vocabulary = mbart_.vocab_size();
    config.learned_positions = true;
    return config;
  }
  double write(const Tokenizer& vocabulary, const fs::path& directory) {
    return export_model(*context_, *model_, vocabulary, ExportFormat::hf_mbart, directory);
  }
  FileJson config() const {
    return FileJson::parse(read_text_file(directory_ / "config.json", 1 << 20));
  }
  const Tokenizer mbart_ = mbart_vocabulary();
  const fs::path directory_ = path("mbart");
};

TEST_F(MbartImportTest, ComesBackWithItsVocabulary) {
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  EXPECT_EQ(result.model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->encode(kText), mbart_.encode(kText));
  EXPECT_EQ(result.tokenizer->special_tokens(), mbart_.special_tokens());
  EXPECT_EQ(result.tokenizer->languages(),
            std::vector<std::string>(std::begin(kCodes), std::end(kCodes)));
  EXPECT_EQ(result.tokenizer->token(mbart_.vocab_size() - 1), "<mask>");
  EXPECT_EQ(result.model->tokens()->special.start(), 2);
  const FileJson written = config();
  EXPECT_EQ(written["architectures"][0], "MBartForConditionalGeneration");
  EXPECT_EQ(written["model_type"], "mbart");
  EXPECT_EQ(written["scale_embedding"], true);
  EXPECT_EQ(written["normalize_embedding"], true);
  EXPECT_EQ(written["static_position_embeddings"], false);
  EXPECT_EQ(written["decoder_start_token_id"], 2);
}

// The class has the ids 0 to 3 for <s>, <pad>, </s> and <unk>, whatever the model says, and adds
// the languages.
TEST_F(MbartImportTest, TheSentencePieceModelIsThatOfTheClass) {
  const SentencePieceModel stored(read_text_file(directory_ / kModelFile, 1 << 22), "spm");
  const int32_t size = mbart_.vocab_size() - 1 - static_cast<int32_t>(std::size(kCodes)) - 1;
  ASSERT_EQ(stored.vocab_size(), size);
  const char* first[] = {"<unk>", "<s>", "</s>"};
  for (int32_t id = 0; id < size; ++id)
    EXPECT_EQ(stored.token(id), id < 3 ? first[id] : mbart_.token(id + 1)) << id;
  EXPECT_EQ(stored.type(0), SubwordType::unknown);
  const FileJson options =
      FileJson::parse(read_text_file(directory_ / "tokenizer_config.json", 1 << 20));
  EXPECT_EQ(options["tokenizer_class"], "MBart50Tokenizer");
  EXPECT_EQ(options["pad_token"], "<pad>");
}

TEST_F(MbartImportTest, ATokenizerJson) {
  fs::remove(directory_ / kModelFile);
  interop::write_json(directory_ / "tokenizer.json",
                      *interop::fast_tokenizer(mbart_, {.begin = false, .end = true}));
  const ImportedModel result = imported(directory_);
  ASSERT_TRUE(result.tokenizer.has_value()) << result.note;
  EXPECT_EQ(result.tokenizer->encode(kText), mbart_.encode(kText));
  EXPECT_EQ(result.tokenizer->languages(), mbart_.languages());
  export_model(*context_, *model_, *result.tokenizer, ExportFormat::hf_mbart, path("again"));
  EXPECT_EQ(imported(path("again")).tokenizer->encode(kText), mbart_.encode(kText));
}

TEST_F(MbartImportTest, OneMatrixUnderAnotherName) {
  expect_same_weights_with_other_names(directory_);
}

TEST_F(MbartImportTest, AStartThatTheConfigurationDoesNotName) {
  edit_config(directory_, [](FileJson& json) { json.erase("decoder_start_token_id"); });
  const ImportedModel with = imported(directory_);
  EXPECT_EQ(with.tokenizer->special_tokens().start(), 2);
  EXPECT_TRUE(contains(with.note, "has no decoder_start_token_id: the decoder starts with 2"));
  edit_json(directory_ / "tokenizer_config.json",
            [](FileJson& json) { json["tokenizer_class"] = "MBartTokenizer"; });
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_EQ(result.model->tokens()->special.start(), 2);
  EXPECT_TRUE(contains(result.note, "the decoder starts with 2")) << result.note;
}

// Position i has the row i + 2 of the table; the first two rows are of no position.
TEST_F(MbartImportTest, PositionsBeginInTheThirdRow) {
  const ParameterStore& parameters = model_->parameters();
  const auto reader = SafetensorsReader::open(directory_ / "model.safetensors");
  for (const auto& [name, ours] :
       {std::pair{"model.encoder.embed_positions.weight", "source_positions.weight"},
        {"model.decoder.embed_positions.weight", "positions.weight"}}) {
    const TensorInfo& info = reader.at(name);
    const int64_t width = model_->config().width, rows = model_->config().max_positions;
    EXPECT_EQ(info.shape, (std::vector<int64_t>{rows + 2, width}));
    std::vector<std::byte> bytes(info.bytes);
    reader.read(info, bytes);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    const std::vector<float> table =
        context_->values<float>(parameters.value(parameters.find(ours)));
    EXPECT_TRUE(std::equal(table.begin(), table.end(), values.begin() + 2 * width)) << name;
  }
  EXPECT_NE(parameters.find("source_embedding_norm.bias"), kNoParam);
  const auto before = weight_bytes(*context_, *model_);
  edit_tensors(directory_, [](std::vector<Stored>& tensors) {
    for (Stored& tensor : tensors)
      if (tensor.name.ends_with("embed_positions.weight"))
        std::memset(tensor.bytes.data(), 0x3f, 2 * tensor.bytes.size() / size_t(tensor.shape[0]));
  });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), before);
}

TEST_F(MbartImportTest, EmbeddingsAreScaledIfTheFileSaysSo) {
  edit_config(directory_, [](FileJson& json) { json.erase("scale_embedding"); });
  ImportedModel plain = imported(directory_);
  EXPECT_EQ(plain.model->config().embedding_scale, 1);
  EXPECT_EQ(plain.model->spec().embedding.scale, 1);
  EXPECT_EQ(weight_bytes(*context_, *plain.model), weight_bytes(*context_, *model_));
  model_ = std::move(plain.model);
  fs::remove_all(directory_);
  write(mbart_, directory_);
  EXPECT_EQ(config()["scale_embedding"], false);
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
}

TEST_F(MbartImportTest, KeysThatChangeTheFunctionAreRefused) {
  const auto changed = [&](const char* key, FileJson value, ErrorCode code) {
    const std::string before = read_text_file(directory_ / "config.json", 1 << 20);
    edit_config(directory_, [&](FileJson& json) { json[key] = std::move(value); });
    refused_import(directory_, code, key);
    write_file_atomically(directory_ / "config.json", before);
  };
  changed("normalize_embedding", false, ErrorCode::unsupported);
  changed("normalize_before", false, ErrorCode::unsupported);
  changed("add_final_layer_norm", false, ErrorCode::unsupported);
  changed("static_position_embeddings", true, ErrorCode::unsupported);
  changed("tie_word_embeddings", false, ErrorCode::unsupported);
  changed("activation_function", "tanh", ErrorCode::unsupported);
  changed("encoder_attention_heads", 1, ErrorCode::unsupported);
  changed("decoder_start_token_id", mbart_.vocab_size(), ErrorCode::corrupt_file);
  edit_config(directory_, [](FileJson& json) { json["max_position_embeddings"] = 30; });
  refused_import(directory_, ErrorCode::corrupt_file, "embed_positions.weight");
}

TEST_F(MbartImportTest, AnotherClassOfTokenizerIsSaid) {
  const auto note = [&](const FileJson& name) {
    edit_json(directory_ / "tokenizer_config.json",
              [&](FileJson& json) { json["tokenizer_class"] = name; });
    const ImportedModel result = imported(directory_);
    EXPECT_EQ(result.tokenizer.has_value(), result.note.empty());
    return result.note;
  };
  EXPECT_EQ(note("MBart50TokenizerFast"), "");
  EXPECT_TRUE(contains(note("MBartTokenizer"), "tokenizer_class is 'MBartTokenizer'"));
  // Without a name, transformers takes this class.
  EXPECT_TRUE(contains(note(nullptr), "tokenizer_class is 'MBartTokenizer'"));
  edit_config(directory_, [](FileJson& json) { json["tokenizer_class"] = "MBart50Tokenizer"; });
  EXPECT_EQ(note(nullptr), "");
  edit_json(directory_ / "generation_config.json",
            [&](FileJson& json) { json["forced_bos_token_id"] = mbart_.id("de_DE"); });
  EXPECT_TRUE(contains(imported(directory_).note, "'de_DE'"));
}

TEST_F(MbartImportTest, AVocabularyThatTheClassCannotHave) {
  model_ = model_of([&] {
    ModelConfig config = learned_config();
    config.vocabulary = tokenizer().vocab_size();
    return config;
  }());
  const Error error = error_of([&] { write(tokenizer(), path("other")); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "MBart50Tokenizer")) << error.what();
  EXPECT_FALSE(fs::exists(path("other")));
  write_file_atomically(directory_ / kModelFile, tokenizer().serialized());
  refused_import(directory_, ErrorCode::unsupported, "the ids 0, 1 and 2");
  write_file_atomically(directory_ / kModelFile, "x");
  refused_import(directory_, ErrorCode::corrupt_file, kModelFile);
}

TEST_F(MbartImportTest, OtherFormatsHaveNoNormOfEmbeddings) {
  for (const ExportFormat format :
       {ExportFormat::hf_marian, ExportFormat::hf_pegasus, ExportFormat::hf_m2m100,
        ExportFormat::ctranslate2, ExportFormat::onnx, ExportFormat::gguf}) {
    const Error error = error_of(
        [&] { export_model(*context_, *model_, mbart_, format, path(enum_name(format))); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_TRUE(mentions(error, "use hf-mbart")) << error.what();
    EXPECT_FALSE(fs::exists(path(enum_name(format))));
  }
  ModelConfig other = learned_config();
  other.pre_norm = false;
  model_ = model_of(other);
  const Error error = error_of([&] { write(mbart_, path("post")); });
  EXPECT_TRUE(mentions(error, "post-norm")) << error.what();
  EXPECT_TRUE(mentions(error, "use hf-bart")) << error.what();
  other = learned_config();
  other.learned_positions = false;
  model_ = model_of(other);
  EXPECT_TRUE(mentions(error_of([&] { write(mbart_, path("plain")); }), "sinusoidal positions"));
}

}  // namespace
}  // namespace trafo
