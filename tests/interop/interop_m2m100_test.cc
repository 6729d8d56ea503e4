// Directories of M2M100 and NLLB-200: positions, vocabularies with languages, refusals.
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kSentence = "der Hund sieht einen Baum.";

// The subwords of tokenizer() in the order of NllbTokenizer, and languages after them.
Tokenizer with_language_tokens(const std::vector<std::string>& languages) {
  const interop::SpmModel ours = interop::parse_spm(tokenizer().serialized());
  std::vector<interop::ScoredSubword> subwords = {{"<s>", 0, SubwordType::control},
                                                  {"<pad>", 0, SubwordType::control},
                                                  {"</s>", 0, SubwordType::control},
                                                  {"<unk>", 0, SubwordType::unknown}};
  for (const interop::ScoredSubword& subword : ours.subwords)
    if (subword.type == SubwordType::normal) subwords.push_back(subword);
  for (const std::string& language : languages)
    subwords.push_back({language, 0, SubwordType::control});
  return Tokenizer::from_bytes(
      interop::serialize_spm(ours, subwords, {.bos = 2, .pad = 1, .eos = {2}}, "test"));
}

class M2m100ImportTest : public ImportTest {
 protected:
  // A directory of NllbTokenizer with a random model.
  void SetUp() override {
    ModelConfig config = config_of(Architecture::encoder_decoder, true);
    config.vocabulary = nllb_.vocab_size();
    config.fairseq_positions = true;
    config.output_bias = false;
    model_ = model_of(config);
    write(nllb_, directory_);
  }
  double write(const Tokenizer& vocabulary, const fs::path& directory) {
    return export_model(*context_, *model_, vocabulary, ExportFormat::hf_m2m100, directory);
  }
  const Tokenizer nllb_ = with_language_tokens({"deu_Latn", "eng_Latn"});
  const fs::path directory_ = path("m2m100");
};

TEST_F(M2m100ImportTest, ComesBackWithItsVocabulary) {
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  EXPECT_EQ(result.model->config(), model_->config());
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->encode(kSentence), nllb_.encode(kSentence));
  EXPECT_EQ(result.tokenizer->special_tokens(), nllb_.special_tokens());
  EXPECT_EQ(result.tokenizer->languages(), nllb_.languages());
  EXPECT_EQ(result.model->tokens()->special.start(), 2);
}

// The class counts positions from 2; its table ends with the frequency 1/10000.
TEST_F(M2m100ImportTest, Positions) {
  const auto table = context_->values<double>(fairseq_positions(*context_, 3, 8, DType::f64));
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 4; ++i) {
      const double angle = (t + 2) * std::pow(10000.0, -i / 3.0);
      EXPECT_NEAR(table[static_cast<size_t>(8 * t + i)], std::sin(angle), 1e-15);
      EXPECT_NEAR(table[static_cast<size_t>(8 * t + 4 + i)], std::cos(angle), 1e-15);
    }
  for (const int64_t width : {2, 5})
    EXPECT_EQ(error_of([&] { fairseq_positions(*context_, 3, width, DType::f32); }).code(),
              ErrorCode::invalid_argument);
  ModelConfig config = model_->config();
  config.architecture = Architecture::decoder_lm;
  config.output_bias = true;
  EXPECT_TRUE(mentions(error_of([&] { validate(config); }), "fairseq_positions"));
}

TEST_F(M2m100ImportTest, KeysThatChangeTheFunctionAreRefused) {
  const auto changed = [&](const char* key, FileJson value, ErrorCode code) {
    const std::string before = read_text_file(directory_ / "config.json", 1 << 20);
    edit_config(directory_, [&](FileJson& json) { json[key] = std::move(value); });
    refused_import(directory_, code, key);
    write_file_atomically(directory_ / "config.json", before);
  };
  changed("pad_token_id", 0, ErrorCode::unsupported);
  changed("decoder_start_token_id", 1, ErrorCode::unsupported);
  changed("encoder_attention_heads", 1, ErrorCode::unsupported);
  changed("tie_word_embeddings", false, ErrorCode::unsupported);
  edit_json(directory_ / "tokenizer_config.json",
            [](FileJson& json) { json["legacy_behaviour"] = true; });
  refused_import(directory_, ErrorCode::unsupported, "legacy_behaviour");
}

// The class scales embeddings unless its configuration says otherwise.
TEST_F(M2m100ImportTest, EmbeddingsAreScaledByDefault) {
  edit_config(directory_, [](FileJson& json) { json.erase("scale_embedding"); });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
  edit_config(directory_, [](FileJson& json) { json["scale_embedding"] = false; });
  EXPECT_NE(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
}

// M2M100Tokenizer: vocab.json has another order than the SentencePiece model, and the class adds
// the languages.
TEST_F(M2m100ImportTest, AVocabularyOfTwoFiles) {
  const std::vector<std::string> languages = {"__en__", "__ha__", "__is__", "__ja__",
                                              "__cs__", "__ru__", "__zh__", "__de__"};
  const Tokenizer wmt = with_language_tokens(languages);
  ModelConfig config = model_->config();
  config.vocabulary = wmt.vocab_size();
  model_ = model_of(config);
  const fs::path directory = path("wmt21");
  write(wmt, directory);
  const auto check = [&](const Tokenizer& expected) {
    const ImportedModel result = imported(directory);
    EXPECT_EQ(result.note, "");
    EXPECT_EQ(result.tokenizer->encode(kSentence), expected.encode(kSentence));
    EXPECT_EQ(result.tokenizer->languages(), languages);
    EXPECT_EQ(result.tokenizer->decode(result.tokenizer->encode(kSentence)), kSentence);
  };
  check(wmt);
  write_file_atomically(directory / "sentencepiece.bpe.model", tokenizer().serialized());
  check(wmt);
  edit_json(directory / "vocab.json", [](FileJson& json) { json.erase("."); });
  refused_import(directory, ErrorCode::unsupported, "it has no '.'");
  edit_json(directory / "tokenizer_config.json",
            [](FileJson& json) { json["language_codes"] = "other"; });
  refused_import(directory, ErrorCode::unsupported, "language_codes");
}

TEST_F(M2m100ImportTest, AVocabularyThatTheClassCannotHave) {
  ModelConfig config = model_->config();
  config.vocabulary = tokenizer().vocab_size();
  model_ = model_of(config);
  const Error error = error_of([&] { write(tokenizer(), path("other")); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "<pad> is not token 1")) << error.what();
  EXPECT_FALSE(fs::exists(path("other")));
}

using LanguageIds = std::vector<int32_t>;

TEST_F(M2m100ImportTest, LanguagesAreInFrontOfTexts) {
  const Tokenizer chosen = nllb_.with_languages("eng_Latn", "deu_Latn");
  const int32_t english = nllb_.id("eng_Latn"), german = nllb_.id("deu_Latn");
  LanguageIds source{english}, target{german};
  for (const int32_t id : nllb_.encode(kSentence)) {
    source.push_back(id);
    target.push_back(id);
  }
  EXPECT_EQ(chosen.encode(kSentence), source);
  EXPECT_EQ(chosen.for_targets().encode(kSentence), target);
  EXPECT_EQ(chosen.parsing_special().for_targets().encode(kSentence), target);
  EXPECT_EQ(chosen.encode(""), LanguageIds());
  EXPECT_EQ(chosen.for_targets().encode(""), LanguageIds{german});
  EXPECT_EQ(chosen.decode(target), kSentence);
  EXPECT_NE(chosen.reading(), nllb_.reading());
  EXPECT_NE(chosen.reading(), nllb_.with_languages("deu_Latn", "eng_Latn").reading());
  EXPECT_EQ(chosen.serialized(), nllb_.serialized());
  const Error error = error_of([&] { nllb_.with_languages("eng_Latn", "xx"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "target_language")) << error.what();
  EXPECT_TRUE(mentions(error, "2 languages: deu_Latn, eng_Latn")) << error.what();
  EXPECT_TRUE(mentions(error_of([] { tokenizer().with_languages("a", "b"); }), "no languages"));
  LanguageIds sampled;
  ShuffleRng random(1, 2);
  chosen.sampler()->sample(kSentence, 0.5, random, sampled);
  EXPECT_EQ(sampled.front(), english);
  EXPECT_EQ(chosen.decode(sampled), kSentence);
}

TEST_F(M2m100ImportTest, TranslationsBeginWithTheTargetLanguage) {
  const Tokenizer chosen = nllb_.with_languages("eng_Latn", "deu_Latn");
  const std::vector<std::string_view> lines = {kSentence, "", "die Katze"};
  TranslateOptions options;
  options.decode.max_length = 8;
  const std::vector<Translation> found =
      Translator(*context_, *model_, chosen).translate(lines, options);
  for (const size_t i : {0, 2}) {
    ASSERT_FALSE(found[i].hypotheses.front().tokens.empty());
    EXPECT_EQ(found[i].hypotheses.front().tokens.front(), nllb_.id("deu_Latn"));
  }
  EXPECT_TRUE(found[1].hypotheses.front().text.empty());
  // The same as ids with the language as a prefix.
  model_->set_tokens(nllb_.tokens());
  LanguageIds row = chosen.encode(kSentence);
  row.push_back(2);
  const std::vector<LanguageIds> prefix = {{nllb_.id("deu_Latn")}};
  const std::vector<Translation> by_ids =
      Translator(*context_, *model_, std::nullopt).translate_ids({row}, options, prefix);
  EXPECT_EQ(by_ids[0].hypotheses.front().tokens, found[0].hypotheses.front().tokens);
}

}  // namespace
}  // namespace trafo
