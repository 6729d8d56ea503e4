#include "engine/decode/lexical_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "engine/core/status.h"

namespace trafo {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;

TEST(LexicalTable, FindsTheTranslationsOfAWordByWordLanguage) {
  // Word w is translated as 10 + w; 20 is at the end of every target.
  Sentences sources, targets;
  for (int32_t a = 4; a < 9; ++a)
    for (int32_t b = 4; b < 9; ++b)
      for (int32_t c = 4; c < 9; ++c) {
        sources.push_back({a, b, c});
        targets.push_back({10 + c, 10 + a, 10 + b, 20});
      }
  const LexicalTable table = LexicalTable::learn(sources, targets, 25, 3);
  for (int32_t word = 4; word < 9; ++word) {
    ASSERT_FALSE(table.of(word).empty());
    EXPECT_LE(table.of(word).size(), 3u);
    EXPECT_EQ(table.of(word)[0].target, 10 + word);
    EXPECT_GT(table.of(word)[0].probability, 0.5f);
  }
  EXPECT_TRUE(table.of(9).empty());
  EXPECT_TRUE(table.of(-1).empty());
  const std::vector<int32_t> words = {5, 4, 5};
  EXPECT_EQ(table.candidates(words, 0, 1), (std::vector<int32_t>{14, 15}));
  EXPECT_EQ(table.candidates(words, 2, 1), (std::vector<int32_t>{0, 1, 14, 15}));
  EXPECT_EQ(table.candidates({}, 1000, 1).size(), 25u);
}

TEST(LexicalTable, TheFirstTokenHasTranslations) {
  const Sentences sources{{0}, {1}, {0, 1}}, targets{{2}, {3}, {2, 3}};
  const LexicalTable table = LexicalTable::learn(sources, targets, 4, 1);
  ASSERT_EQ(table.of(0).size(), 1u);
  EXPECT_EQ(table.of(0)[0].target, 2);
  EXPECT_EQ(table.of(1)[0].target, 3);
}

// A pair of two long lines would take memory and time by the product of their lengths.
TEST(LexicalTable, LongPairsAreLeftOut) {
  std::vector<int32_t> numbers(16 << 10);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto vocabulary = static_cast<int32_t>(numbers.size());
  const std::vector<int32_t> longest(LexicalTable::kLongestSide, 1),
      too_long(LexicalTable::kLongestSide + 1, 1);
  const Sentences sources{numbers, {1, 2}, longest, too_long, {3}},
      targets{numbers, {3, 4}, {5}, {6}, too_long};
  const LexicalTable table = LexicalTable::learn(sources, targets, vocabulary, 100);
  EXPECT_TRUE(table.of(8000).empty());
  EXPECT_EQ(table.size(), 5);  // 1 and 2 with 3 and 4, and 1 with 5
  EXPECT_THROW(LexicalTable::learn(std::span(sources).first(1), std::span(targets).first(1),
                                   vocabulary, 100),
               Error);
}

TEST(LexicalTable, AWordOfEveryTargetIsExplainedByTheEmptyWord) {
  const Sentences sources{{4}, {5}, {6}}, targets{{14, 20}, {15, 20}, {16, 20}};
  const LexicalTable table = LexicalTable::learn(sources, targets, 25, 3);
  for (int32_t word = 4; word < 7; ++word) {
    ASSERT_EQ(table.of(word)[0].target, 10 + word);
    EXPECT_GT(table.of(word)[0].probability, 0.6f);
  }
}

TEST(LexicalTable, TextIsReadBack) {
  const std::vector<std::string> text = {"ein Hund sieht eine Katze", "a dog sees a cat"};
  TokenizerTrainOptions options;
  options.vocab_size = 40;
  options.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(text), options);
  const Sentences source = {tokenizer.encode(text[0])}, target = {tokenizer.encode(text[1])};
  const LexicalTable learnt = LexicalTable::learn(source, target, tokenizer.vocab_size(), 1000);
  std::stringstream file;
  learnt.write(file, tokenizer);
  const LexicalTable read = LexicalTable::read(file, "lex.s2t", tokenizer);
  ASSERT_EQ(read.size(), learnt.size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto a = learnt.of(id), b = read.of(id);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].target, b[i].target);
      EXPECT_EQ(a[i].probability, b[i].probability);
    }
  }
}

// As a pipe, which has one pass.
class Unseekable : public std::stringbuf {
 public:
  using std::stringbuf::stringbuf;

 protected:
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return pos_type(off_type(-1));
  }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return pos_type(off_type(-1)); }
};

TEST(LexicalTable, AStreamThatCannotBeReadTwiceIsRead) {
  const std::vector<std::string> text = {"a b c d"};
  TokenizerTrainOptions options;
  options.vocab_size = 12;
  options.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(text), options);
  Unseekable buffer("a b 0.5\nb a 0.25\n");
  std::istream in(&buffer);
  EXPECT_EQ(LexicalTable::read(in, "lex", tokenizer).size(), 2);
}

TEST(LexicalTable, BadLinesAreNamedAndForeignSubwordsPassedOver) {
  const std::vector<std::string> text = {"a b c d"};
  TokenizerTrainOptions options;
  options.vocab_size = 12;
  options.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(text), options);
  const auto error = [&](const std::string& content) -> std::string {
    std::istringstream in(content);
    try {
      return "size " + std::to_string(LexicalTable::read(in, "lex", tokenizer).size());
    } catch (const Error& e) {
      return e.message();
    }
  };
  EXPECT_EQ(error("a b 0.5\nnowhere a 0.5\nNULL a 0.5\n\nb a 1e-3\r\n"), "size 2");
  EXPECT_EQ(error("a b 0.5\na b\n"), "lex:2 wants TARGET SOURCE PROBABILITY");
  EXPECT_EQ(error("a b many\n"), "lex:1 wants TARGET SOURCE PROBABILITY");
  EXPECT_EQ(error("x y 0.5\n"), "lex: no line has two subwords of the vocabulary");
}

}  // namespace
}  // namespace trafo
