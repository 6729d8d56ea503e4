// Training on any text ends with a tokenizer or with an Error, never with the process.
#include "engine/tokenizer/training_text.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

constexpr int kTrained = 0, kRefused = 10, kNoMemory = 11, kOtherError = 12;

int train(const std::vector<std::string>& sentences, const TokenizerTrainOptions& options) {
  try {
    const Tokenizer tokenizer = Tokenizer::train(sentences, options);
    for (const std::string& sentence : sentences) tokenizer.encode(sentence);
    return kTrained;
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument ? kRefused : kOtherError;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

TokenizerTrainOptions options_of(TokenizerModel model) {
  TokenizerTrainOptions options;
  options.model = model;
  options.hard_vocab_limit = false;
  return options;
}

// The library calls exit() for what it does not expect, so each of these runs in a child.
TEST(TrainingTextDeathTest, RefusesTextOfWhichNormalisationLeavesNothing) {
  for (const auto model : {TokenizerModel::unigram, TokenizerModel::bpe})
    for (const char* text : {"\u3000", "\u00a0", "\u200b", "\u2028", "\x7f", "\x01\x1b", "\t", " ",
                             "\ufeff", "\u2581", "\u3000\u2581\u3000\u2581"})
      EXPECT_EXIT(std::_Exit(train({text, text}, options_of(model))),
                  ::testing::ExitedWithCode(kRefused), "");
}

TEST(TrainingTextDeathTest, LeavesOutSentencesWithoutText) {
  for (const auto model : {TokenizerModel::unigram, TokenizerModel::bpe})
    EXPECT_EXIT(
        std::_Exit(train({"\u3000", "ein Hund", "\u200b", "\u00a0", "\x7f"}, options_of(model))),
        ::testing::ExitedWithCode(kTrained), "");
}

TEST(TrainingTextDeathTest, TakesSpecialTokensInTheText) {
  std::string special, wide;
  for (int i = 0; i < 100; ++i) special += "<s>", wide += "\uff1cs\uff1e";
  TokenizerTrainOptions options = options_of(TokenizerModel::unigram);
  options.character_coverage = 0.98;
  for (const std::string& text : {special, wide})
    EXPECT_EXIT(std::_Exit(train({text}, options) > kRefused), ::testing::ExitedWithCode(0), "");
}

// Random texts of few odd characters each. 30 of the first 300 ended the process once.
TEST(TrainingTextDeathTest, RandomOddTextEndsNoProcess) {
  const auto train_random = [] {
    constexpr const char* kOdd[] = {"\u3000", "\u00a0", "\u200b", "\u2028",     "\x7f",   "\x01",
                                    "\t",     " ",      "\x1b",   "\u2581",     "\u2047", "\ufeff",
                                    "\u200e", "\ufffd", "\u0085", "a",          "1",      "\u4e2d",
                                    "\u0301", "\ufdfa", "\n",     "\ufffe",     "<unk>",  "</s>",
                                    "\u00ad", "\u2585", "<",      "\U0010ffff", "\ue000", "\u180e"};
    uint32_t state = 1;
    const auto draw = [&](uint32_t count) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8) % count;
    };
    for (int round = 0; round < 60; ++round) {
      const char* alphabet[3];
      for (const char*& letter : alphabet) letter = kOdd[draw(std::size(kOdd))];
      std::vector<std::string> sentences(1 + draw(3));
      for (std::string& sentence : sentences)
        for (uint32_t length = draw(12); length > 0; --length) sentence += alphabet[draw(3)];
      TokenizerTrainOptions options =
          options_of(draw(2) ? TokenizerModel::bpe : TokenizerModel::unigram);
      options.vocab_size = draw(2) ? 8000 : 5 + static_cast<int32_t>(draw(30));
      options.character_coverage = draw(2) ? 0.98 : 1;
      if (train(sentences, options) > kRefused) std::_Exit(1);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(train_random(), ::testing::ExitedWithCode(0), "");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The library's threads end the process where an allocation of theirs fails.
TEST(TrainingTextDeathTest, NoMemoryIsAnError) {
  std::vector<std::string> sentences;
  uint32_t state = 3;
  for (int line = 0; line < 14000; ++line) {
    std::string sentence;
    for (int i = 0; i < 100; ++i) {
      state = state * 1664525u + 1013904223u;
      sentence += static_cast<char>('!' + (state >> 8) % 94);
    }
    sentences.push_back(sentence);
  }
  const auto train_within = [&](size_t mebibytes) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t space = pages * static_cast<size_t>(getpagesize()) + (mebibytes << 20);
    const rlimit limit{space, space};
    setrlimit(RLIMIT_AS, &limit);
    std::_Exit(train(sentences, options_of(TokenizerModel::unigram)));
  };
  for (const size_t mebibytes : {64, 232, 300, 400, 600})
    EXPECT_EXIT(train_within(mebibytes), ::testing::ExitedWithCode(kNoMemory), "");
}
#endif

TEST(TrainingText, CountsWhatNormalisationLeaves) {
  const std::string_view sentences[] = {"a b", "\u2581 ", "", "x<s>"};
  const TrainingText text = examine_training_text(sentences, CharacterMap());
  ASSERT_EQ(text.sentences.size(), 2u);
  EXPECT_EQ(text.sentences[0], "a b");
  EXPECT_EQ(text.sentences[1], "x<s>");
  EXPECT_TRUE(text.has_special_token);
  EXPECT_GE(text.most_frequent, 3u);  // the escaped space: two prefixes and one in between
  EXPECT_GE(text.bytes, 3u + 5u + 3u + 4u);
}

}  // namespace
}  // namespace trafo
