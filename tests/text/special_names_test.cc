// Special tokens that texts name.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "engine/core/wire_format.h"
#include "engine/text/tokenizer/named_tokens.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"

namespace trafo {
namespace {

using NamedIds = std::vector<int32_t>;

std::string parts_text(const std::vector<NamedTokens::Part>& parts) {
  std::string text;
  for (const NamedTokens::Part& part : parts)
    text += "(" + std::string(part.text) + (part.id < 0 ? "" : "=" + std::to_string(part.id)) + ")";
  return text;
}

TEST(NamedTokens, LongestNameAndTextBetween) {
  const NamedTokens names({{"<a>", 5}, {"<a>b", 6}, {"[X]", 7}, {"\u00e9", 8}, {"", 9}});
  EXPECT_EQ(parts_text(names.split("")), "");
  EXPECT_EQ(parts_text(names.split("plain")), "(plain)");
  EXPECT_EQ(parts_text(names.split("x <a>[X]<a>bc")), "(x )(<a>=5)([X]=7)(<a>b=6)(c)");
  EXPECT_EQ(parts_text(names.split("<a<a> [x]")), "(<a)(<a>=5)( [x])");
  EXPECT_EQ(parts_text(names.split("\u00e8\u00e9")), "(\u00e8)(\u00e9=8)");
  EXPECT_EQ(parts_text(names.split("<a")), "(<a)");
}

TEST(NamedTokens, WhiteSpaceThatATokenTakes) {
  const NamedTokens names({{.name = "<l>", .id = 1, .takes_space_before = true},
                           {.name = "<r>", .id = 2, .takes_space_after = true}});
  EXPECT_EQ(parts_text(names.split("a \u3000<l> b")), "(a)(<l>=1)( b)");
  EXPECT_EQ(parts_text(names.split("a <r>\u00a0\n b <r>")), "(a )(<r>=2)(b )(<r>=2)");
  EXPECT_EQ(parts_text(names.split(" <l>")), "(<l>=1)");
  EXPECT_EQ(parts_text(names.split("<r> ")), "(<r>=2)");
  // As the library, which looks for all names before it takes white space.
  const NamedTokens spaced(
      {{.name = "<r>", .id = 2, .takes_space_after = true}, {.name = " in", .id = 3}});
  EXPECT_EQ(parts_text(spaced.split("<r>  in x")), "(<r>=2)( in=3)( x)");
}

TEST(NamedTokens, ATokenThatStaysInTheTextHidesOthers) {
  const NamedTokens names({{.name = "<s>x", .id = 1, .stays_in_text = true}, {"<s>", 2}});
  EXPECT_EQ(parts_text(names.split("a<s>x<s>")), "(a<s>x)(<s>=2)");
}

Tokenizer vocabulary_with_sep(bool bpe = false) {
  std::vector<std::string> sentences;
  for (int i = 0; i < 60; ++i)
    sentences.push_back(i % 2 == 0 ? "der Hund sieht das Haus" : "die Katze sieht den Hund");
  TokenizerTrainOptions options;
  options.vocab_size = 60;
  options.model = bpe ? TokenizerModel::bpe : TokenizerModel::unigram;
  options.hard_vocab_limit = false;
  options.user_symbols = {"<sep>"};
  return Tokenizer::train(sentences, options);
}

NamedIds operator+(NamedIds a, const NamedIds& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(SpecialNames, AreTextUnlessAskedFor) {
  const Tokenizer plain = vocabulary_with_sep(), parsing = plain.parsing_special();
  EXPECT_FALSE(plain.parses_special());
  EXPECT_TRUE(parsing.parses_special());
  const std::string text = "der Hund</s>";
  const NamedIds ids = plain.encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), plain.eos_id()), 0);
  EXPECT_EQ(parsing.encode(text), plain.encode("der Hund") + NamedIds{plain.eos_id()});
  EXPECT_EQ(parsing.encode("der Hund"), plain.encode("der Hund"));
  EXPECT_EQ(parsing.serialized(), plain.serialized());
  EXPECT_EQ(parsing.decode(parsing.encode(text)), "der Hund");
}

// Only the beginning of a text and a space make the mark of a word.
TEST(SpecialNames, TextAfterATokenHasASpaceOnlyIfItBeginsWithOne) {
  for (const bool bpe : {false, true}) {
    const Tokenizer tokenizer = vocabulary_with_sep(bpe).parsing_special();
    const NamedIds bos{tokenizer.bos_id()};
    EXPECT_EQ(tokenizer.encode("<s> der Hund"), bos + tokenizer.encode("der Hund"));
    const NamedIds apart = tokenizer.encode("<s>der Hund");
    EXPECT_NE(apart, bos + tokenizer.encode("der Hund"));
    std::string text;
    for (const int32_t id : apart) text += tokenizer.token(id);
    EXPECT_EQ(text, "<s>der\u2581Hund");
    const NamedIds both{tokenizer.bos_id(), tokenizer.eos_id()};
    EXPECT_EQ(tokenizer.encode("die <s></s> das"),
              tokenizer.encode("die") + both + tokenizer.encode("das"));
  }
}

// The library reads user-defined tokens with the text around them.
TEST(SpecialNames, UserDefinedTokensAreReadAlike) {
  const Tokenizer plain = vocabulary_with_sep(), parsing = plain.parsing_special();
  const std::string text = "der <sep> Hund<sep>das";
  EXPECT_EQ(parsing.encode(text), plain.encode(text));
  EXPECT_EQ(parsing.encode(text + "</s>"), plain.encode(text) + NamedIds{plain.eos_id()});
}

// A model that keeps spaces, as those of Llama and Mistral do.
TEST(SpecialNames, SpacesOfAModelThatKeepsThem) {
  WireWriter keeps, model;
  keeps.integer(spm_field::kExtraWhitespaces, 0);
  model.append(vocabulary_with_sep().serialized());
  model.bytes(spm_field::kNormalizer, keeps.message());
  const Tokenizer tokenizer = Tokenizer::from_bytes(model.message()).parsing_special();
  const NamedIds bos{tokenizer.bos_id()};
  EXPECT_EQ(tokenizer.encode("<s> Hund"), bos + tokenizer.encode("Hund"));
  std::string text;
  for (const int32_t id : tokenizer.encode("<s>  Hund </s>")) text += tokenizer.token(id);
  EXPECT_EQ(text, "<s>\u2581\u2581Hund\u2581</s>");
}

TEST(SpecialNames, SegmentationsAreDrawnBetweenThem) {
  const Tokenizer tokenizer = vocabulary_with_sep().parsing_special();
  const auto sampler = tokenizer.sampler();
  int different = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    ShuffleRng rng(i, 0);
    NamedIds ids;
    sampler->sample("der Hund</s> die Katze", 0.1, rng, ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.eos_id()), 1);
    EXPECT_EQ(tokenizer.decode(ids), "der Hund die Katze");
    different += ids != tokenizer.encode("der Hund</s> die Katze");
  }
  EXPECT_GT(different, 10);
}

TEST(SpecialNames, AByteVocabularyHasNone) {
  TokenizerTrainOptions options;
  options.kind = "byte";
  const Tokenizer bytes = Tokenizer::train(std::span<const std::string>(), options);
  EXPECT_EQ(bytes.parsing_special().encode("a</s>"), bytes.encode("a</s>"));
}

// The second message lacks the map of the first, which the library still has.
TEST(SpmModel, AnotherNormalizerMessageKeepsTheCharacterMap) {
  const std::string model = vocabulary_with_sep().serialized();
  const SpmSummary once = check_spm_model(model, "model");
  const std::string twice = without_dummy_prefix(model);
  const SpmSummary merged = check_spm_model(twice, "model");
  EXPECT_TRUE(once.dummy_prefix);
  EXPECT_FALSE(merged.dummy_prefix);
  EXPECT_GT(once.normalizer.longest_text(), 0u);
  EXPECT_EQ(merged.normalizer.longest_text(), once.normalizer.longest_text());
}

}  // namespace
}  // namespace trafo
