// Training on any text ends with a tokenizer or with an Error, never with the process.
#include "engine/text/tokenizer/sentencepiece/training_text.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/data/train_tokenizer.h"
#include "engine/text/tokenizer/sentencepiece/character_map_entries.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/training_pieces.h"
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

// ---- the normal form and the user's symbols ----

// With byte tokens, so that decoding shows the normal form of each character.
Tokenizer trained_with(const std::vector<std::string>& sentences, TokenizerTrainOptions options) {
  options.vocab_size = 340;
  options.byte_fallback = true;
  options.hard_vocab_limit = false;
  return Tokenizer::train(sentences, options);
}

std::string normal(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.decode(tokenizer.encode(text));
}

TEST(NormalForm, IsThatOfTheRulesThatWereNamed) {
  const std::string text = "Der \uff21\u00c4\x01\u200b\u00bd";  // a wide A, a control character
  const struct {
    Normalization normalization;
    const char* wanted;
  } kForms[] = {
      {Normalization::nmt_nfkc, "Der A\u00c4 1\u20442"},
      {Normalization::nfkc, "Der A\u00c4\x01\u200b1\u20442"},
      {Normalization::nmt_nfkc_cf, "der a\u00e4 1\u20442"},
      {Normalization::nfkc_cf, "der a\u00e4\x01\u200b1\u20442"},
      {Normalization::identity, "Der \uff21\u00c4\x01\u200b\u00bd"},
  };
  for (const auto& form : kForms) {
    TokenizerTrainOptions options;
    options.normalization = form.normalization;
    const Tokenizer tokenizer = trained_with({"Der Hund", "die Katze"}, options);
    EXPECT_EQ(normal(tokenizer, text), form.wanted);
    EXPECT_EQ(normal(Tokenizer::from_bytes(tokenizer.serialized()), text), form.wanted);
  }
}

TEST(NormalForm, KeepsTheNonJoinerOfTextsThatWriteWordsWithIt) {
  const std::string persian = "\u0645\u06cc\u200c\u0631\u0648\u0645",
                    telugu = "\u0c38\u0c3e\u0c2b\u0c4d\u0c1f\u0c4d\u200c\u0c35\u0c47\u0c30\u0c4d";
  for (const std::string& word : {persian, telugu})
    for (const Normalization normalization :
         {Normalization::nmt_nfkc, Normalization::nmt_nfkc_cf}) {
      TokenizerTrainOptions options;
      options.normalization = normalization;
      const Tokenizer tokenizer = trained_with({word + " a", "b " + word, "a b"}, options);
      EXPECT_EQ(normal(tokenizer, word), word);
      EXPECT_EQ(normal(tokenizer, "x\u200b\uff21"),
                normalization == Normalization::nmt_nfkc ? "x A" : "x a");  // the others stay
    }
  // Between other letters it is a trace of a layout.
  const Tokenizer german = trained_with({"auf\u200clage", "ein Hund"}, {});
  EXPECT_EQ(normal(german, persian), "\u0645\u06cc \u0631\u0648\u0645");
  std::vector<std::string> rare(2500, "ein Hund");
  rare.push_back(persian);
  EXPECT_EQ(normal(trained_with(rare, {}), "a\u200cb"), "a b");
}

TEST(NormalForm, AnEntryOfACharacterMapIsTakenOut) {
  const Tokenizer tokenizer = trained_with({"ein Hund"}, {});
  const std::string blob(character_map_of(tokenizer.serialized(), "map"));
  const auto entries_of = [](const std::string& map) {
    std::set<std::string> entries;
    EXPECT_TRUE(visit_entries(map, "map", 1 << 18,
                              [&](std::string_view text) { return entries.emplace(text).second; }));
    return entries;
  };
  std::set<std::string> wanted = entries_of(blob);
  EXPECT_EQ(without_entry(blob, "q", "map"), blob);
  EXPECT_EQ(wanted.erase("\u200c"), 1u);
  EXPECT_EQ(entries_of(without_entry(blob, "\u200c", "map")), wanted);
}

TEST(UserSymbols, AreOneTokenWhereverTheyStand) {
  for (const auto model : {TokenizerModel::unigram, TokenizerModel::bpe}) {
    TokenizerTrainOptions options;
    options.model = model;
    options.user_symbols = {"<x>", "<\"y\",1>", "\uff21"};  // the last is not normalised
    const Tokenizer tokenizer = trained_with({"ein <x>Hund", "<x> <\"y\",1>b <x>", "<x>"}, options);
    for (const std::string& symbol : options.user_symbols) {
      const int32_t id = tokenizer.id(symbol);
      EXPECT_EQ(tokenizer.as_sentencepiece()->type(id), SubwordType::user_defined) << symbol;
      const std::vector<int32_t> ids = tokenizer.encode("ein" + symbol + symbol + "Hund");
      EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 2) << symbol;
    }
    EXPECT_EQ(normal(tokenizer, "<x>Hund\uff22<x>"), "<x>HundB<x>");
  }
  EXPECT_EXIT(std::_Exit([] {
                TokenizerTrainOptions options = options_of(TokenizerModel::unigram);
                options.user_symbols = {"<x>"};
                return train({"<x>", "<x><x>", "<x> <x>"}, options);
              }()),
              ::testing::ExitedWithCode(kTrained), "");
}

TEST(UserSymbols, AreRefusedByName) {
  const auto refused = [](std::vector<std::string> symbols, const char* text) {
    TokenizerTrainOptions options;
    options.user_symbols = std::move(symbols);
    expect_error(ErrorCode::invalid_argument, text, [&] { trained_with({"ein Hund"}, options); });
  };
  refused({"<x>", ""}, "user_symbols has an empty symbol");
  refused({"two words"}, "user_symbols: 'two words' has white space");
  refused({"a\u2581"}, "has white space");
  refused({"</s>"}, "'</s>' is a special token's");
  refused({"<0x41>"}, "is a special token's or a byte's");
  refused({"<x>", "<x>"}, "user_symbols: '<x>' is given twice");
  refused({"\xff"}, "invalid UTF-8");
  refused({std::string(1025, 'x')}, "is over 1 KiB long");
  TokenizerTrainOptions many;
  many.vocab_size = 8;
  many.user_symbols = {"<1>", "<2>", "<3>", "<4>"};
  expect_error(ErrorCode::invalid_argument, "it must lie between 9 and",
               [&] { Tokenizer::train(std::vector<std::string>{"ein Hund"}, many); });
}

// Nothing is read of what cannot be a model.
TEST(TokenizerFile, IsBoundedBeforeItIsRead) {
  expect_error(ErrorCode::invalid_argument, "/dev/zero: is no regular file",
               [] { Tokenizer::load("/dev/zero"); });
  const std::string large = concat(::testing::TempDir(), "trafo-large-", getpid());
  { std::ofstream(large) << 'x'; }
  std::filesystem::resize_file(large, limits::kTokenizerBytes + 1);  // takes no space
  expect_error(ErrorCode::corrupt_file, "it has more than 268435456 bytes",
               [&] { Tokenizer::load(large); });
  std::filesystem::remove(large);
}

TEST(TrainingPieces, OfADocumentTrainWhatItsSentencesDo) {
  std::string document;
  for (int i = 0; document.size() < 30000; ++i)
    document += concat("the quick ", i, " brown foxes jump over a lazy dog ");
  std::vector<std::string> pieces;
  std::string rest = document;
  for (size_t end; rest.size() > limits::kTrainingSentenceBytes; rest.erase(0, end)) {
    end = rest.rfind(' ', limits::kTrainingSentenceBytes);
    pieces.push_back(rest.substr(0, end));
  }
  pieces.push_back(rest);
  const TextCorpus one = make_parallel({"a b"}, {document});
  for (const char* const kind : {"sentencepiece", "byte-bpe"}) {
    TokenizerTrainOptions options;
    options.kind = kind;
    options.vocab_size = 290;
    options.hard_vocab_limit = false;
    EXPECT_EQ(Tokenizer::train(std::vector<std::string>{document}, options).serialized(),
              Tokenizer::train(pieces, options).serialized())
        << kind;
    std::vector<std::string> both = pieces;
    both.insert(both.begin(), "a b");
    const std::string trained = train_tokenizer(one, options).serialized();
    EXPECT_EQ(trained, Tokenizer::train(both, options).serialized()) << kind;
    options.max_sentences = 131 * (static_cast<int64_t>(pieces.size()) - 1);  // of 32 bytes
    EXPECT_NE(trained, train_tokenizer(one, options).serialized()) << kind;
    options.max_sentences = 131 * static_cast<int64_t>(pieces.size());
    EXPECT_EQ(trained, train_tokenizer(one, options).serialized()) << kind;
  }
}

TEST(TrainingPieces, KeepAllCharactersAndFit) {
  constexpr size_t kMost = limits::kTrainingSentenceBytes;
  std::string dense;
  for (int i = 0; i < 4000; ++i) dense += i % 3 == 0 ? "\u4f60" : i % 3 == 1 ? "x" : "\U0001F600";
  for (const std::string& text :
       {std::string(), std::string("a b"), std::string(kMost, 'x'), std::string(kMost + 1, 'x'),
        std::string(3 * kMost, ' '), dense, " " + dense, std::string(kMost, 'x') + " y"}) {
    std::string joined;
    size_t count = 0;
    for_each_training_piece(text, [&](std::string_view piece) {
      EXPECT_LE(piece.size(), kMost);
      EXPECT_TRUE(is_valid_utf8(piece));
      EXPECT_EQ(piece.empty(), text.empty());
      joined += piece;
      ++count;
    });
    EXPECT_EQ(joined, text);
    EXPECT_EQ(count == 1, text.size() <= kMost);
  }
}

}  // namespace
}  // namespace trafo
