// Directories of M2M100 and NLLB-200: positions, vocabularies with languages, refusals.
#include "engine/decode/translator.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/models/added_tokens.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kSentence = "der Hund sieht einen Baum.";

// NllbTokenizer has BPE.
const Tokenizer& fallback_tokenizer() {
  static const Tokenizer trained = [] {
    TokenizerTrainOptions options;
    options.vocab_size = 60;
    options.hard_vocab_limit = false;
    options.model = TokenizerModel::bpe;
    const std::vector<std::string> lines(4,
                                         "die Katze sieht ein Licht, der Hund sieht einen Baum.");
    return Tokenizer::train(std::span<const std::string>(lines), options);
  }();
  return trained;
}

// The subwords of a vocabulary in the order of NllbTokenizer, and languages after them.
Tokenizer with_language_tokens(const Tokenizer& vocabulary,
                               const std::vector<std::string>& languages) {
  const interop::SpmModel ours = interop::parse_spm(vocabulary.serialized());
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
  const Tokenizer nllb_ = with_language_tokens(fallback_tokenizer(), {"deu_Latn", "eng_Latn"});
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
  const FileJson options =
      FileJson::parse(read_text_file(directory_ / "tokenizer_config.json", 1 << 20));
  EXPECT_EQ(options["additional_special_tokens"], FileJson(nllb_.languages()));
}

TEST_F(M2m100ImportTest, ALanguageIsAdded) {
  const std::vector<std::string> codes = {"zul_Latn"};
  const auto [more, vocabulary] = add_tokens(*context_, *model_, nllb_, codes, true, "eng_Latn");
  export_model(*context_, *more, vocabulary, ExportFormat::hf_m2m100, path("more"));
  const ImportedModel result = imported(path("more"));
  ASSERT_TRUE(result.tokenizer.has_value());
  std::vector<std::string> languages = nllb_.languages();
  languages.push_back("zul_Latn");
  EXPECT_EQ(result.tokenizer->languages(), languages);
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *more));
  std::vector<int32_t> ids = nllb_.encode(kSentence);
  ids.insert(ids.begin(), nllb_.vocab_size());
  EXPECT_EQ(result.tokenizer->with_languages("zul_Latn", "eng_Latn").encode(kSentence), ids);
  EXPECT_EQ(result.model->tokens()->special, nllb_.special_tokens());
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
TEST_F(M2m100ImportTest, OneMatrixUnderAnotherName) {
  expect_same_weights_with_other_names(directory_);
}

TEST_F(M2m100ImportTest, WithoutATokenizerTheStartIsTheClasses) {
  fs::remove(directory_ / "tokenizer.json");
  edit_config(directory_, [](FileJson& json) { json.erase("decoder_start_token_id"); });
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_EQ(result.model->tokens()->special.start(), 2);
}

TEST_F(M2m100ImportTest, EmbeddingsAreScaledByDefault) {
  edit_config(directory_, [](FileJson& json) { json.erase("scale_embedding"); });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
  edit_config(directory_, [](FileJson& json) { json["scale_embedding"] = false; });
  EXPECT_NE(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
}

// The class forces a first token that its directory names; here the caller chooses the language.
TEST_F(M2m100ImportTest, TheForcedLanguageIsSaid) {
  edit_json(directory_ / "generation_config.json",
            [&](FileJson& json) { json["forced_bos_token_id"] = nllb_.id("deu_Latn"); });
  EXPECT_TRUE(contains(imported(directory_).note, "'deu_Latn'")) << imported(directory_).note;
  fs::remove(directory_ / "generation_config.json");
  EXPECT_EQ(imported(directory_).note, "");
  edit_config(directory_, [](FileJson& json) { json["forced_bos_token_id"] = 5; });
  EXPECT_TRUE(contains(imported(directory_).note, "forced_bos_token_id is 5"));
}

// M2M100Tokenizer: vocab.json has another order than the SentencePiece model, lacks a subword, has
// one that the model cannot make, and the class adds the languages.
TEST_F(M2m100ImportTest, AVocabularyOfTwoFiles) {
  const std::string spm = fallback_tokenizer().serialized();
  const SentencePieceModel model(spm, "spm");
  std::vector<std::string> names = {"<s>", "<pad>", "</s>", "<unk>"};
  for (int32_t id = model.vocab_size() - 1; id >= 0; --id)
    if (model.type(id) == SubwordType::normal && model.token(id) != "L")
      names.push_back(model.token(id));
  names.emplace_back("\u03a9\u03a9");
  FileJson list;
  for (size_t id = 0; id < names.size(); ++id) list[names[id]] = id;
  const std::string ids = list.dump(), options = R"({"language_codes": "wmt21"})";
  MarianParts parts;
  parts.tokens = static_cast<int32_t>(names.size()) + 8;
  parts.start = 2;
  parts.ends = {2};
  parts.files = {ids, spm, spm, options};
  parts.languages = "en ha is ja cs ru zh de";
  const Tokenizer wmt = Tokenizer::from_bytes(serialize_marian(parts));
  ModelConfig config = model_->config();
  config.vocabulary = wmt.vocab_size();
  model_ = model_of(config);
  const fs::path directory = path("wmt21");
  write(wmt, directory);
  EXPECT_EQ(read_text_file(directory / "vocab.json", 1 << 20), ids);
  EXPECT_EQ(read_text_file(directory / "sentencepiece.bpe.model", 1 << 20), spm);
  EXPECT_EQ(read_text_file(directory / "tokenizer_config.json", 1 << 20), options);
  EXPECT_FALSE(fs::exists(directory / "source.spm") || fs::exists(directory / "target.spm"));

  const ImportedModel result = imported(directory);
  EXPECT_EQ(result.note, "");
  const Tokenizer& found = *result.tokenizer;
  EXPECT_EQ(found.serialized(), wmt.serialized());
  EXPECT_EQ(found.special_tokens(), (SpecialTokens{2, 2, 1, 3}));
  for (const char* text :
       {kSentence, "aLa", "der \u03a9\u03a9", ">>de<< Hund", "__en__ Hund", "</s>"}) {
    std::vector<int32_t> expected;
    for (const std::string& piece : model.encode_as_text(text)) {
      const auto place = std::find(names.begin(), names.end(), piece);
      expected.push_back(place == names.end() ? 3 : static_cast<int32_t>(place - names.begin()));
    }
    EXPECT_EQ(found.encode(text), expected) << text;
    EXPECT_EQ(found.for_targets().encode(text), expected) << text;
  }
  EXPECT_NE(found.decode(found.encode("aLa")), "aLa");
  const Tokenizer chosen = found.with_languages("en", "de");
  EXPECT_EQ(chosen.encode(kSentence).front(), static_cast<int32_t>(names.size()));
  const std::vector<int32_t> target = chosen.for_targets().encode(kSentence);
  EXPECT_EQ(target.front(), static_cast<int32_t>(names.size()) + 7);
  EXPECT_EQ(chosen.decode(target), kSentence);

  export_model(*context_, *model_, wmt, ExportFormat::onnx, path("onnx"));
  EXPECT_TRUE(fs::exists(path("onnx") / "sentencepiece.bpe.model"));
  EXPECT_TRUE(contains(read_text_file(path("onnx") / "config.json", 1 << 20), "\"m2m_100\""));
  const Error error = error_of(
      [&] { export_model(*context_, *model_, wmt, ExportFormat::hf_pegasus, path("pegasus")); });
  EXPECT_TRUE(mentions(error, "a marian vocabulary with")) << error.what();

  const auto changed = [&](const char* file, const std::function<void(FileJson&)>& change,
                           ErrorCode code, const char* text) {
    const std::string before = read_text_file(directory / file, 1 << 20);
    edit_json(directory / file, change);
    refused_import(directory, code, text);
    write_file_atomically(directory / file, before);
  };
  changed(
      "vocab.json", [&](FileJson& json) { json.erase(names[6]); }, ErrorCode::corrupt_file,
      "has no subword with the id 6");
  changed(
      "vocab.json",
      [](FileJson& json) {
        json["<pad>"] = 0;
        json["<s>"] = 1;
      },
      ErrorCode::unsupported, "is not that of <pad>");
  changed(
      "vocab.json", [&](FileJson& json) { json["more"] = names.size(); }, ErrorCode::corrupt_file,
      "vocab_size is");
  changed(
      "tokenizer_config.json", [](FileJson& json) { json["language_codes"] = "other"; },
      ErrorCode::unsupported, "language_codes");
  changed(
      "tokenizer_config.json",
      [](FileJson& json) {
        json["sp_model_kwargs"] = {{"alpha", 1}};
      },
      ErrorCode::unsupported, "sp_model_kwargs");
  write_file_atomically(directory / "sentencepiece.bpe.model", "x");
  refused_import(directory, ErrorCode::corrupt_file, "sentencepiece.bpe.model");
}

TEST_F(M2m100ImportTest, AVocabularyThatTheClassCannotHave) {
  ModelConfig config = model_->config();
  config.vocabulary = tokenizer().vocab_size();
  model_ = model_of(config);
  const Error error = error_of([&] { write(tokenizer(), path("other")); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "<pad> is not token 1")) << error.what();
  EXPECT_FALSE(fs::exists(path("other")));
  // NllbTokenizer would read unigrams as BPE.
  const Tokenizer unigram = with_language_tokens(tokenizer(), {"deu_Latn"});
  config.vocabulary = unigram.vocab_size();
  model_ = model_of(config);
  EXPECT_TRUE(mentions(error_of([&] { write(unigram, path("other")); }), "unigrams"));
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
