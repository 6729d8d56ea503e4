// Directories of BART: post-norm models with learned positions, byte-level BPE with a token in
// front of texts.
#include "engine/decode/translator.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kBartText = "der Hund sieht den Stein";
constexpr int32_t kBartBegin = 1, kBartStart = 2;

// As facebook/bart-base has it, with other ids.
Tokenizer bart_vocabulary(const FileJson& generation) {
  static const std::string trained = [] {
    const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
    TokenizerTrainOptions options;
    options.kind = "byte-bpe";
    options.vocab_size = 290;
    options.hard_vocab_limit = false;
    return Tokenizer::train(std::span<const std::string>(lines), options).serialized();
  }();
  FileJson file = FileJson::parse(trained);
  file["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", {"</s>", 2}},
                            {"cls", {"<s>", kBartBegin}},
                            {"trim_offsets", true},
                            {"add_prefix_space", false}};
  return Tokenizer::from_bytes(file.dump(), "tokenizer.json",
                               {{"generation_config.json", generation.dump()}});
}

FileJson bart_generation() {
  return {{"bos_token_id", kBartBegin},
          {"decoder_start_token_id", kBartStart},
          {"eos_token_id", 2},
          {"forced_bos_token_id", kBartBegin},
          {"pad_token_id", 3}};
}

class BartImportTest : public ImportTest {
 protected:
  void SetUp() override {
    ModelConfig config = config_of(Architecture::encoder_decoder, false);
    config.vocabulary = bart_.vocab_size();
    config.learned_positions = true;
    config.embedding_scale = 1;
    model_ = model_of(config);
    write(bart_, directory_);
  }
  double write(const Tokenizer& vocabulary, const fs::path& directory) {
    return export_model(*context_, *model_, vocabulary, ExportFormat::hf_bart, directory);
  }
  const Tokenizer bart_ = bart_vocabulary(bart_generation());
  const fs::path directory_ = path("bart");
};

using BartIds = std::vector<int32_t>;

TEST_F(BartImportTest, ComesBackWithItsVocabulary) {
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  EXPECT_EQ(result.model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->serialized(), bart_.serialized());
  EXPECT_EQ(result.tokenizer->companions().size(), 1);
  EXPECT_EQ(result.model->tokens()->special.start(), kBartStart);
  EXPECT_EQ(read_text_file(directory_ / "generation_config.json", 1 << 20),
            bart_generation().dump());
  const FileJson written = FileJson::parse(read_text_file(directory_ / "config.json", 1 << 20));
  EXPECT_EQ(written["architectures"][0], "BartForConditionalGeneration");
  EXPECT_EQ(written["bos_token_id"], kBartBegin);
  EXPECT_EQ(written["decoder_start_token_id"], kBartStart);
  EXPECT_EQ(written["normalize_before"], false);
  EXPECT_EQ(written["scale_embedding"], false);
  const auto reader = SafetensorsReader::open(directory_ / "model.safetensors");
  EXPECT_NE(reader.find("model.encoder.layernorm_embedding.weight"), nullptr);
  EXPECT_EQ(reader.find("model.encoder.layer_norm.weight"), nullptr);
}

TEST_F(BartImportTest, TextsBeginWithAToken) {
  const Tokenizer found = *imported(directory_).tokenizer;
  EXPECT_EQ(found.language(), kBartBegin);
  const BartIds ids = found.encode(kBartText);
  EXPECT_EQ(ids.front(), kBartBegin);
  EXPECT_EQ(found.for_targets().encode(kBartText), ids);
  EXPECT_EQ(found.parsing_special().encode(kBartText), ids);
  EXPECT_EQ(found.for_targets().encode(""), BartIds{kBartBegin});
  EXPECT_EQ(found.decode(ids), kBartText);
  BartIds sampled;
  ShuffleRng random(1, 2);
  found.sampler()->sample(kBartText, 0.5, random, sampled);
  EXPECT_EQ(sampled.front(), kBartBegin);
  // The vocabulary of a decoder-lm has its frame from the model.
  FileJson generation = bart_generation();
  generation.erase("decoder_start_token_id");
  const Tokenizer other = bart_vocabulary(generation);
  EXPECT_EQ(other.language(), -1);
  EXPECT_EQ(other.bos_id(), kBartBegin);
  EXPECT_EQ(BartIds(ids.begin() + 1, ids.end()), other.encode(kBartText));

  const std::vector<std::string_view> lines = {kBartText};
  TranslateOptions options;
  options.decode.max_length = 6;
  const std::vector<Translation> translated =
      Translator(*context_, *model_, found).translate(lines, options);
  EXPECT_EQ(translated[0].hypotheses.front().tokens.front(), kBartBegin);
}

// Without generation_config.json, transformers takes config.json.
TEST_F(BartImportTest, ConfigurationWithoutAGenerationFile) {
  fs::remove(directory_ / "generation_config.json");
  edit_config(directory_, [](FileJson& json) { json["forced_bos_token_id"] = kBartBegin; });
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  EXPECT_EQ(result.tokenizer->encode(kBartText), bart_.encode(kBartText));
  EXPECT_EQ(result.tokenizer->special_tokens().start(), kBartStart);
  write(*result.tokenizer, path("again"));
  const FileJson again =
      FileJson::parse(read_text_file(path("again") / "generation_config.json", 1 << 20));
  EXPECT_EQ(again["forced_bos_token_id"], kBartBegin);
  EXPECT_EQ(imported(path("again")).note, "");
  edit_config(directory_, [](FileJson& json) { json.erase("forced_bos_token_id"); });
  EXPECT_TRUE(contains(imported(directory_).note, "does not force")) << imported(directory_).note;
}

TEST_F(BartImportTest, OneMatrixUnderAnotherName) {
  expect_same_weights_with_other_names(directory_);
}

// As of bart-large-cnn.
TEST_F(BartImportTest, AMaskWithoutARow) {
  const int32_t rows = bart_.vocab_size();
  edit_json(directory_ / "tokenizer.json", [&](FileJson& json) {
    json["model"]["vocab"]["<mask>"] = rows;
    json["added_tokens"].push_back({{"id", rows},
                                    {"content", "<mask>"},
                                    {"single_word", false},
                                    {"lstrip", true},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  });
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_TRUE(contains(result.note, concat("vocab_size is ", rows, ", the tokenizer has ", rows + 1,
                                           " tokens with <mask>")))
      << result.note;
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  EXPECT_EQ(result.model->tokens()->special.start(), kBartStart);
  edit_json(directory_ / "tokenizer.json", [&](FileJson& json) {
    json["model"]["vocab"].erase("<mask>");
    json["model"]["vocab"]["other"] = rows;
    json["added_tokens"].back()["content"] = "other";
  });
  refused_import(directory_, ErrorCode::corrupt_file, "the tokenizer has");
}

// The class has a default.
TEST_F(BartImportTest, AStartThatTheConfigurationDoesNotName) {
  edit_config(directory_, [](FileJson& json) { json.erase("decoder_start_token_id"); });
  EXPECT_EQ(imported(directory_).model->tokens()->special.start(), 2);
  fs::remove(directory_ / "tokenizer.json");
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_EQ(result.model->tokens()->special.start(), 2);
}

TEST_F(BartImportTest, KeysThatChangeTheFunctionAreRefused) {
  const auto changed = [&](const char* file, const char* key, FileJson value, ErrorCode code) {
    const std::string before = read_text_file(directory_ / file, 1 << 20);
    edit_json(directory_ / file, [&](FileJson& json) { json[key] = std::move(value); });
    refused_import(directory_, code, key);
    write_file_atomically(directory_ / file, before);
  };
  changed("config.json", "normalize_before", true, ErrorCode::unsupported);
  changed("config.json", "normalize_embedding", false, ErrorCode::unsupported);
  changed("config.json", "decoder_start_token_id", 3, ErrorCode::unsupported);
  changed("generation_config.json", "decoder_start_token_id", nullptr, ErrorCode::unsupported);
  changed("generation_config.json", "forced_bos_token_id", 5, ErrorCode::unsupported);
  changed("tokenizer.json", "post_processor", nullptr, ErrorCode::unsupported);
  fs::remove(directory_ / "tokenizer.json");
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_TRUE(contains(result.note, "the prefix that you choose")) << result.note;
}

// A language that a caller chose is not the token that the file puts in front of texts.
TEST_F(BartImportTest, AChosenLanguageIsNotTheBegin) {
  FileJson generation = bart_generation();
  generation.erase("pad_token_id");
  const auto with_language = [&] {
    std::string file = bart_.serialized();
    for (size_t at = 0; (at = file.find("<pad>", at)) != std::string::npos;)
      file.replace(at, 5, "de_DE");
    return Tokenizer::from_bytes(file, "tokenizer.json",
                                 {{"generation_config.json", generation.dump()}})
        .with_languages("de_DE", "de_DE");
  };
  const Tokenizer chosen = with_language();
  ASSERT_NE(chosen.language(), kBartBegin);
  write(chosen, path("chosen"));
  const FileJson written = FileJson::parse(read_text_file(path("chosen") / "config.json", 1 << 20));
  EXPECT_EQ(written["bos_token_id"], kBartBegin);
  generation.erase("decoder_start_token_id");
  const Error error = error_of([&] { write(with_language(), path("other")); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "a token in front of texts")) << error.what();
}

TEST_F(BartImportTest, OtherVocabulariesAndFormatsAreRefused) {
  FileJson generation = bart_generation();
  generation.erase("decoder_start_token_id");
  const Error error = error_of([&] { write(bart_vocabulary(generation), path("other")); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "a token in front of texts")) << error.what();
  EXPECT_FALSE(fs::exists(path("other")));
  EXPECT_TRUE(mentions(error_of([&] {
                         export_model(*context_, *model_, bart_, ExportFormat::hf_marian,
                                      path("other"));
                       }),
                       "a byte-bpe vocabulary"));
  ModelConfig pre = model_->config();
  pre.pre_norm = true;
  model_ = model_of(pre);
  // hf-mbart has such models, but no byte-level BPE.
  const Error pre_norm = error_of([&] { write(bart_, path("other")); });
  EXPECT_TRUE(mentions(pre_norm, "BART cannot express pre-norm layers")) << pre_norm.what();
  EXPECT_FALSE(mentions(pre_norm, "; use ")) << pre_norm.what();
}

}  // namespace
}  // namespace trafo
