// MarianMT with separate_vocabs: vocab.json and an embedding for sources, target_vocab.json and
// another embedding for targets. tests/parity/marian_parity.py compares with transformers.
#include "engine/decode/translator.h"
#include "engine/models/added_tokens.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

std::string spm_of(const std::vector<std::string>& lines) {
  TokenizerTrainOptions options;
  options.vocab_size = 60;
  options.hard_vocab_limit = false;
  return Tokenizer::train(std::span<const std::string>(lines), options).serialized();
}

class SeparateVocabsTest : public ImportTest {
 protected:
  void SetUp() override {
    const std::string spms[] = {spm_of({"der hund sieht das haus", "ein haus und ein hund"}),
                                spm_of({"the dog sees the house and a dog", "a house and a tree"})};
    for (const size_t side : {0, 1}) {
      const Tokenizer model = Tokenizer::from_bytes(spms[side]);
      FileJson ids{{"</s>", 0}, {"<unk>", 1}};
      for (int32_t id = 4; id < model.vocab_size(); ++id) ids[model.token(id)] = ids.size();
      ids["<pad>"] = ids.size();
      ids_[side] = ids.dump();
      tokens_[side] = static_cast<int32_t>(ids.size());
    }
    MarianParts parts;
    parts.tokens = tokens_[1];
    parts.source_tokens = tokens_[0];
    parts.start = tokens_[1] - 1;
    parts.ends = {0};
    parts.files = {ids_[0], spms[0], spms[1], options_, ids_[1]};
    vocabulary_ = Tokenizer::from_bytes(serialize_marian(parts));
    config_ = config_of(Architecture::encoder_decoder, false);
    config_.vocabulary = tokens_[1];
    config_.source_vocabulary = tokens_[0];
  }
  // A directory of a random model.
  fs::path written(const std::string& name) {
    model_ = model_of(config_);
    EXPECT_LE(export_model(*context_, *model_, *vocabulary_, ExportFormat::hf_marian, path(name)),
              1e-4);
    return path(name);
  }
  std::vector<PairScore> scores(const Model& model, const Tokenizer& tokenizer) {
    const std::string_view sources[] = {"der hund", "ein haus und"},
                           targets[] = {"the dog", "a house"};
    return Translator(*context_, model, tokenizer).score(sources, targets, {});
  }

  const std::string options_ = R"({"separate_vocabs": true, "source_lang": "de"})";
  std::string ids_[2];
  int32_t tokens_[2] = {};
  std::optional<Tokenizer> vocabulary_;
  ModelConfig config_;
};

TEST_F(SeparateVocabsTest, ADirectoryComesAndGoesAsItIs) {
  for (const bool tied : {true, false}) {
    config_.tied_embeddings = tied;
    const fs::path directory = written(tied ? "tied" : "untied");
    EXPECT_EQ(read_text_file(directory / "vocab.json", 1 << 20), ids_[0]);
    EXPECT_EQ(read_text_file(directory / "target_vocab.json", 1 << 20), ids_[1]);
    EXPECT_EQ(read_text_file(directory / "tokenizer_config.json", 1 << 20), options_);
    const FileJson json = FileJson::parse(read_text_file(directory / "config.json", 1 << 20));
    EXPECT_EQ(json["vocab_size"], tokens_[0]);
    EXPECT_EQ(json["decoder_vocab_size"], tokens_[1]);
    EXPECT_EQ(json["share_encoder_decoder_embeddings"], false);
    EXPECT_EQ(json["tie_word_embeddings"], tied);
    const ImportedModel result = imported(directory);
    EXPECT_EQ(result.note, "");
    EXPECT_EQ(result.model->config(), config_);
    EXPECT_EQ(result.tokenizer->serialized(), vocabulary_->serialized());
    EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
    const auto expected = scores(*model_, *vocabulary_),
               found = scores(*result.model, *result.tokenizer);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(found[i].log_probability, expected[i].log_probability);
  }
}

// As transformers may save a tied output, and only that.
TEST_F(SeparateVocabsTest, TheOutputIsACopyOfTheTargetEmbedding) {
  const fs::path directory = written("copy");
  edit_tensors(directory, [](std::vector<Stored>& all) {
    Stored copy = find(all, "model.decoder.embed_tokens.weight");
    copy.name = "lm_head.weight";
    all.push_back(std::move(copy));
  });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  edit_tensors(directory, [](std::vector<Stored>& all) {
    find(all, "lm_head.weight").bytes.front() ^= std::byte{1};
  });
  refused_import(directory, ErrorCode::corrupt_file, "differ");
  edit_tensors(directory, [](std::vector<Stored>& all) {
    find(all, "lm_head.weight").bytes.front() ^= std::byte{1};
    std::erase_if(all, [](const Stored& tensor) {
      return tensor.name == "model.decoder.embed_tokens.weight";
    });
  });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  edit_tensors(directory, [](std::vector<Stored>& all) {
    find(all, "model.encoder.embed_tokens.weight").name = "model.shared.weight";
  });
  refused_import(directory, ErrorCode::corrupt_file, "model.encoder.embed_tokens.weight");
}

TEST_F(SeparateVocabsTest, RowsWithoutATokenAreLeftOutOnEachSide) {
  const fs::path directory = written("spare");
  const auto add_rows = [&](std::vector<Stored>& all, const std::string& name, int64_t rows) {
    Stored& tensor = find(all, name);
    int64_t& count = tensor.shape[name == "final_logits_bias" ? 1 : 0];
    tensor.bytes.resize(tensor.bytes.size() / static_cast<size_t>(count) *
                        static_cast<size_t>(count + rows));
    count += rows;
  };
  edit_tensors(directory, [&](std::vector<Stored>& all) {
    add_rows(all, "model.encoder.embed_tokens.weight", 3);
  });
  edit_config(directory, [&](FileJson& json) { json["vocab_size"] = tokens_[0] + 3; });
  EXPECT_TRUE(contains(imported(directory).note, concat("have ", tokens_[0] + 3, " rows")));
  edit_tensors(directory, [&](std::vector<Stored>& all) {
    add_rows(all, "model.decoder.embed_tokens.weight", 5);
    add_rows(all, "final_logits_bias", 5);
  });
  edit_config(directory, [&](FileJson& json) { json["decoder_vocab_size"] = tokens_[1] + 5; });
  const ImportedModel result = imported(directory);
  EXPECT_TRUE(contains(result.note, concat("have ", tokens_[1] + 5, " rows"))) << result.note;
  EXPECT_EQ(result.model->config(), config_);
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
}

TEST_F(SeparateVocabsTest, EmbeddingsThatAreNotScaled) {
  const float root = std::sqrt(static_cast<float>(config_.width));
  for (const bool tied : {true, false}) {
    config_.tied_embeddings = tied;
    const fs::path directory = written(tied ? "scale" : "scale-untied");
    const auto expected = scores(*model_, *vocabulary_);
    edit_config(directory, [](FileJson& json) { json["scale_embedding"] = false; });
    edit_tensors(directory, [&](std::vector<Stored>& all) {
      for (const char* name :
           {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}) {
        Stored& tensor = find(all, name);
        auto* values = reinterpret_cast<float*>(tensor.bytes.data());
        for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) values[i] *= root;
      }
      if (!tied) return;
      for (const char* name : {"weight", "bias"}) {
        Stored& norm = find(all, concat("model.decoder.layers.1.final_layer_norm.", name));
        auto* values = reinterpret_cast<float*>(norm.bytes.data());
        for (size_t i = 0; i < norm.bytes.size() / sizeof(float); ++i) values[i] /= root;
      }
    });
    const ImportedModel result = imported(directory);
    const auto found = scores(*result.model, *result.tokenizer);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i].log_probability, expected[i].log_probability, 1e-4);
  }
}

// Two matrices over one vocab.json.
TEST_F(SeparateVocabsTest, OneVocabularyWithAnEmbeddingForEachSide) {
  config_.vocabulary = config_.source_vocabulary = tokenizer().vocab_size();
  model_ = model_of(config_);
  exported(*model_, ExportFormat::hf_marian, "one");
  EXPECT_FALSE(fs::exists(path("one") / "target_vocab.json"));
  const ImportedModel result = imported(path("one"));
  EXPECT_EQ(result.model->config(), config_);
  EXPECT_EQ(result.tokenizer->serialized(), tokenizer().serialized());
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  expect_error(ErrorCode::unsupported, "source_vocabulary", [&] {
    add_tokens(*context_, *model_, tokenizer(), std::vector<std::string>{"<new>"}, true, "");
  });
}

TEST_F(SeparateVocabsTest, DirectoriesThatContradictThemselvesAreRefused) {
  const fs::path directory = written("wrong");
  edit_config(directory, [](FileJson& json) { json["share_encoder_decoder_embeddings"] = true; });
  refused_import(directory, ErrorCode::unsupported, "vocab_size and decoder_vocab_size");
  edit_config(directory, [](FileJson& json) { json["vocab_size"] = json["decoder_vocab_size"]; });
  refused_import(directory, ErrorCode::unsupported,
                 "separate_vocabs is true, and share_encoder_decoder_embeddings");
  edit_config(directory, [&](FileJson& json) {
    json["share_encoder_decoder_embeddings"] = false;
    json["vocab_size"] = tokens_[0];
  });
  EXPECT_EQ(imported(directory).model->config(), config_);
  fs::rename(directory / "target_vocab.json", directory / "away.json");
  refused_import(directory, ErrorCode::not_found, "target_vocab.json");
  edit_json(directory / "tokenizer_config.json",
            [](FileJson& json) { json["separate_vocabs"] = false; });
  refused_import(directory, ErrorCode::unsupported, "separate_vocabs is not true, and vocab_size");
}

TEST_F(SeparateVocabsTest, OtherFormatsAndVocabulariesAreRefused) {
  model_ = model_of(config_);
  for (const ExportFormat format :
       {ExportFormat::ctranslate2, ExportFormat::onnx, ExportFormat::hf_pegasus, ExportFormat::gguf,
        ExportFormat::hf_m2m100, ExportFormat::hf_t5, ExportFormat::hf_bart})
    expect_error(ErrorCode::unsupported, "",
                 [&] { export_model(*context_, *model_, *vocabulary_, format, path("refused")); });
  EXPECT_TRUE(mentions(error_of([&] {
                         export_model(*context_, *model_, *vocabulary_, ExportFormat::ctranslate2,
                                      path("refused"));
                       }),
                       "a vocabulary that sources have alone (source_vocabulary)"));
  ModelConfig other = config_;
  other.source_vocabulary += 1;
  const auto wrong = model_of(other);
  expect_error(ErrorCode::invalid_argument, "tokens of sources, the model",
               [&] { Translator(*context_, *wrong, vocabulary_); });
}

}  // namespace
}  // namespace trafo
