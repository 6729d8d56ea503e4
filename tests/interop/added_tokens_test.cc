// Tokens that are added to models and their vocabularies.
#include "engine/models/added_tokens.h"

#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kHostText = "der Hund sieht einen Baum.";

Tokenizer byte_level() {
  const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
  TokenizerTrainOptions options;
  options.kind = "byte-bpe";
  options.vocab_size = 280;
  options.hard_vocab_limit = false;
  return Tokenizer::train(std::span<const std::string>(lines), options);
}

Tokenizer words() {
  return load_vocab_txt(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nder\nhund\nsie\n##ht\nein\n##en\nbaum\n.\n", "vocab.txt",
      {{"tokenizer_config.json",
        R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})"}});
}

class AddedTokensTest : public InteropTest {
 protected:
  std::vector<float> row_of(const Model& model, const std::string& name, int32_t row) {
    const ParameterStore& parameters = model.parameters();
    const ParamId id = parameters.find(name);
    const auto count = static_cast<size_t>(element_count(parameters.shape(id)));
    const size_t columns = count / static_cast<size_t>(parameters.shape(id)[0]);
    std::vector<float> values(count);
    parameters.get_value(*context_, id, values.data(), count * sizeof(float));
    const auto first = values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * columns);
    return {first, first + static_cast<ptrdiff_t>(columns)};
  }
  // The mean of these rows.
  std::vector<float> mean_of(const Model& model, const std::string& name,
                             const std::vector<int32_t>& rows) {
    std::vector<double> sum;
    for (const int32_t row : rows) {
      const std::vector<float> values = row_of(model, name, row);
      sum.resize(values.size());
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(values[c]);
    }
    std::vector<float> mean;
    for (const double value : sum)
      mean.push_back(static_cast<float>(value / static_cast<double>(rows.size())));
    return mean;
  }
  void refused_tokens(const Tokenizer& vocabulary, const std::vector<std::string>& tokens,
                      const char* text, std::string_view like = {},
                      ErrorCode code = ErrorCode::invalid_argument) {
    ModelConfig config = config_of(Architecture::decoder_lm, true);
    config.vocabulary = vocabulary.vocab_size();
    const auto model = model_of(config);
    expect_error(code, text,
                 [&] { add_tokens(*context_, *model, vocabulary, tokens, false, like); });
  }
};

TEST_F(AddedTokensTest, RowsBeginAsTheMeanOfTheSubwordsOfTheText) {
  ModelConfig tied = config_of(Architecture::encoder_decoder, true);
  ModelConfig untied = config_of(Architecture::decoder_lm, true);
  untied.tied_embeddings = false;
  const std::vector<std::string> tokens = {"Hund", "Steine", "zz"};
  for (const ModelConfig& config : {tied, untied}) {
    const auto model = model_of(config);
    const auto [more, vocabulary] = add_tokens(*context_, *model, tokenizer(), tokens, false);
    const int32_t old = tokenizer().vocab_size();
    ASSERT_EQ(vocabulary.vocab_size(), old + 3);
    ASSERT_EQ(more->config().vocabulary, old + 3);
    EXPECT_EQ(more->origin().vocabulary, vocabulary_checksum(vocabulary));
    std::vector<std::string> grown;
    for (size_t i = 0; i < more->parameters().count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const std::string& name = more->parameters().name(id);
      const Shape& shape = model->parameters().shape(model->parameters().find(name));
      for (int32_t row = 0; row < shape[0]; ++row)
        ASSERT_EQ(row_of(*more, name, row), row_of(*model, name, row)) << name << " " << row;
      if (more->parameters().shape(id) == shape) continue;
      grown.push_back(name);
      for (int32_t k = 0; k < 3; ++k)
        EXPECT_EQ(row_of(*more, name, old + k),
                  mean_of(*model, name, tokenizer().encode(tokens[static_cast<size_t>(k)])))
            << name << " " << k;
    }
    const std::vector<std::string> wanted =
        config.tied_embeddings
            ? std::vector<std::string>{"embedding.weight", "output.bias"}
            : std::vector<std::string>{"embedding.weight", "output.weight", "output.bias"};
    std::ranges::sort(grown);
    std::vector<std::string> sorted = wanted;
    std::ranges::sort(sorted);
    EXPECT_EQ(grown, sorted);

    const auto [similar, ignored] =
        add_tokens(*context_, *model, tokenizer(), tokens, true, "</s>");
    for (const std::string& name : grown)
      EXPECT_EQ(row_of(*similar, name, old + 1), row_of(*model, name, tokenizer().eos_id()));
  }
}

TEST_F(AddedTokensTest, WhatIsFrozenStaysFrozen) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  model->parameters().set_trainable(*context_, "embedding.*", false);
  const auto [more, vocabulary] =
      add_tokens(*context_, *model, tokenizer(), std::vector<std::string>{"Hund"}, false);
  const ParamId id = more->parameters().find("embedding.weight");
  EXPECT_FALSE(more->parameters().trainable(id));
  EXPECT_EQ(row_of(*more, "embedding.weight", tokenizer().vocab_size()),
            mean_of(*model, "embedding.weight", tokenizer().encode("Hund")));
}

TEST_F(AddedTokensTest, EveryKindFindsThemInTexts) {
  for (const Tokenizer& vocabulary : {tokenizer(), byte_level(), words()}) {
    const int32_t first = vocabulary.vocab_size();
    const std::vector<std::string> names = {"<tok>", "hundsieht"};
    const Tokenizer plain = vocabulary.with_tokens(names, false);
    EXPECT_EQ(plain.encode(kHostText), vocabulary.encode(kHostText)) << plain.kind();
    EXPECT_EQ(plain.token(first), "<tok>");
    for (int32_t k = 0; k < 2; ++k) {
      const std::string text = concat("der ", names[static_cast<size_t>(k)], " sieht");
      const std::vector<int32_t> ids = plain.encode(text);
      EXPECT_EQ(std::ranges::count(ids, first + k), 1) << plain.kind() << ": " << text;
      EXPECT_TRUE(contains(plain.decode(ids), names[static_cast<size_t>(k)])) << plain.decode(ids);
    }
    const Tokenizer special = vocabulary.with_tokens(std::vector<std::string>{"xx_Latn"}, true);
    EXPECT_EQ(special.encode("der xx_Latn"), vocabulary.encode("der xx_Latn")) << special.kind();
    const std::vector<int32_t> parsed = special.parsing_special().encode("der xx_Latn");
    EXPECT_EQ(parsed.back(), first) << special.kind();
    const std::vector<std::string> languages = special.languages();
    EXPECT_TRUE(std::ranges::find(languages, "xx_Latn") != languages.end()) << special.kind();
    // A second time, after those of the first.
    EXPECT_EQ(special.with_tokens(names, false).token(first + 1), "<tok>") << special.kind();
  }
}

TEST_F(AddedTokensTest, OtherTokensAreRefusedByName) {
  refused_tokens(tokenizer(), {}, "tokens has none");
  refused_tokens(tokenizer(), {"neu", ""}, "'' has 0 bytes");
  refused_tokens(tokenizer(), {"neu", "neu"}, "'neu' twice");
  refused_tokens(tokenizer(), {"</s>"}, "'</s>' is a token of the vocabulary already");
  refused_tokens(byte_level(), {"H"}, "'H' is a token of the vocabulary already");
  refused_tokens(tokenizer(), {"zwei Worte"}, "white space");
  refused_tokens(tokenizer(), {"\xff"}, "UTF-8");
  refused_tokens(tokenizer(), {"neu"}, "'eng_Latn' is no token", "eng_Latn");
  TokenizerTrainOptions options;
  options.kind = "byte";
  options.vocab_size = 259;
  refused_tokens(Tokenizer::train(std::span<const std::string>(), options), {"neu"},
                 "a byte vocabulary takes no more tokens", {}, ErrorCode::unsupported);
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  const std::vector<std::string> tokens = {"neu"};
  expect_error(ErrorCode::invalid_argument, "do not belong together",
               [&] { add_tokens(*context_, *model, byte_level(), tokens, false); });
  add_adapter(*context_, *model, {2, 4.0, {}}, 1);
  expect_error(ErrorCode::invalid_argument, "adapter",
               [&] { add_tokens(*context_, *model, tokenizer(), tokens, false); });
}

TEST_F(AddedTokensTest, AnExportHasThem) {
  for (const Tokenizer& vocabulary : {byte_level(), words()}) {
    ModelConfig config = llama_config(1, true);
    config.vocabulary = vocabulary.vocab_size();
    const auto model = model_of(config);
    const auto [more, grown] =
        add_tokens(*context_, *model, vocabulary, std::vector<std::string>{"<tok>"}, false);
    const std::string name(vocabulary.kind());
    export_model(*context_, *more, grown, ExportFormat::hf_llama, path(name));
    const ImportedModel imported = import_model(*context_, path(name));
    ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
    EXPECT_EQ(imported.tokenizer->encode("der<tok>hund"), grown.encode("der<tok>hund"));
    EXPECT_EQ(weight_bytes(*context_, *imported.model), weight_bytes(*context_, *more));
  }
}

}  // namespace
}  // namespace trafo
