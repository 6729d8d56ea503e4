#include "engine/text/tokenizer/tokenizer.h"

#include "engine/data/corpus.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/wire_format.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

// A few thousand distinct words' worth of text without any file.
std::vector<std::string> sample_sentences(int count = 400) {
  const std::vector<std::string> words{"der",    "Hund", "läuft",  "schnell", "über", "die",
                                       "Straße", "und",  "sieht",  "ein",     "Haus", "im",
                                       "Garten", "zwei", "Frauen", "lachen",  "laut", "heute"};
  std::vector<std::string> sentences;
  uint32_t state = 7;
  for (int i = 0; i < count; ++i) {
    std::string sentence;
    for (int j = 0; j < 4 + i % 5; ++j) {
      state = state * 1664525u + 1013904223u;
      sentence += (j == 0 ? "" : " ") + words[(state >> 16) % words.size()];
    }
    sentences.push_back(sentence + (i % 3 == 0 ? "." : "!"));
  }
  return sentences;
}

Tokenizer train_small(TokenizerModel model = TokenizerModel::unigram, bool byte_fallback = false) {
  TokenizerTrainOptions options;
  options.vocab_size = byte_fallback ? 340 : 80;
  options.model = model;
  options.byte_fallback = byte_fallback;
  options.hard_vocab_limit = false;
  return Tokenizer::train(sample_sentences(), options);
}

// Sums of them are exact, so that segmentations of one score are a tie in every program.
TEST(Tokenizer, ScoresOfAUnigramModelHaveTenBinaryPlaces) {
  const Tokenizer tokenizer = train_small();
  int others = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const float scaled = tokenizer.as_sentencepiece()->score(id) * 1024;
    EXPECT_EQ(scaled, std::nearbyint(scaled)) << tokenizer.token(id);
    others += scaled != 0;
  }
  EXPECT_GT(others, 20);
}

TEST(Tokenizer, RoundTripsTrainedText) {
  for (const auto model : {TokenizerModel::unigram, TokenizerModel::bpe}) {
    const Tokenizer tokenizer = train_small(model);
    EXPECT_LE(tokenizer.vocab_size(), 80);
    for (const std::string& sentence : sample_sentences(50)) {
      const auto ids = tokenizer.encode(sentence);
      EXPECT_FALSE(ids.empty());
      EXPECT_EQ(tokenizer.decode(ids), sentence);
    }
    EXPECT_TRUE(tokenizer.encode("").empty());
    EXPECT_EQ(tokenizer.decode({}), "");
  }
}

TEST(Tokenizer, HasTheHouseIds) {
  const Tokenizer tokenizer = train_small();
  EXPECT_EQ(tokenizer.unk_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), 3);
  EXPECT_EQ(tokenizer.token(2), "</s>");
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    EXPECT_EQ(tokenizer.id(tokenizer.token(id)), id);
  EXPECT_EQ(tokenizer.id("no such subword"), tokenizer.unk_id());
  const std::vector<int32_t> special{1, 2, 3};
  EXPECT_EQ(tokenizer.decode(special), "");
}

TEST(Tokenizer, ByteFallbackLeavesNothingUnknown) {
  const Tokenizer tokenizer = train_small(TokenizerModel::unigram, true);
  const std::string text = "你好 Hund 🙂";
  const auto ids = tokenizer.encode(text);
  for (const int32_t id : ids) EXPECT_NE(id, tokenizer.unk_id());
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Tokenizer, TrainingIsDeterministic) {
  TokenizerTrainOptions options;
  options.vocab_size = 70;
  options.hard_vocab_limit = false;
  options.max_sentences = 200;  // sampling takes part
  const auto sentences = sample_sentences(900);
  const std::string first = Tokenizer::train(sentences, options).serialized();
  EXPECT_EQ(Tokenizer::train(sentences, options).serialized(), first);
  std::string other;
  std::thread([&] { other = Tokenizer::train(sentences, options).serialized(); }).join();
  EXPECT_EQ(other, first);
  options.seed = 2;
  EXPECT_NE(Tokenizer::train(sentences, options).serialized(), first);
}

TEST(Tokenizer, TooLargeVocabularyNamesTheOneThatFits) {
  const std::vector<std::string> tiny{"hello world this", "is a test of it"};
  TokenizerTrainOptions options;
  options.vocab_size = 1000;
  const Error error = error_of([&] { Tokenizer::train(tiny, options); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(contains(error.message(), "at most 20 fit")) << error.message();
  options.vocab_size = 20;
  EXPECT_EQ(Tokenizer::train(tiny, options).vocab_size(), 20);
  options.vocab_size = 1000;
  options.hard_vocab_limit = false;
  EXPECT_EQ(Tokenizer::train(tiny, options).vocab_size(), 20);
  options.vocab_size = 6;
  const Error small = error_of([&] { Tokenizer::train(tiny, options); });
  EXPECT_TRUE(contains(small.message(), "need 17")) << small.message();
}

TEST(Tokenizer, RefusesBadTrainingInput) {
  const TokenizerTrainOptions options;
  auto message = [&](std::vector<std::string> sentences) {
    const Error error = error_of([&] { Tokenizer::train(sentences, options); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  };
  EXPECT_TRUE(contains(message({}), "empty"));
  EXPECT_TRUE(contains(message({"", ""}), "no sentence"));
  EXPECT_TRUE(contains(message({"good", "b\xc3"}), "sentence 2: invalid UTF-8 at byte 2"));
  EXPECT_TRUE(contains(message({std::string("a\0b", 3)}), "NUL"));
  EXPECT_TRUE(contains(message({std::string(5000, ' ')}), "no sentence"));

  auto option_error = [](auto change) {
    TokenizerTrainOptions changed;
    change(changed);
    return error_of([&] { Tokenizer::train(sample_sentences(), changed); }).message();
  };
  EXPECT_TRUE(contains(option_error([](auto& o) { o.vocab_size = 3; }), "vocabulary is 3"));
  EXPECT_TRUE(
      contains(option_error([](auto& o) { o.vocab_size = 1 << 30; }), "vocabulary is 1073741824"));
  EXPECT_TRUE(contains(option_error([](auto& o) { o.character_coverage = 0.5; }), "0.98"));
  EXPECT_TRUE(contains(option_error([](auto& o) { o.max_sentences = 0; }), "max_sentences"));
}

TEST(Tokenizer, TrainingAndLoadingPrintNothing) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const Tokenizer tokenizer = train_small();
  Tokenizer::from_bytes(tokenizer.serialized());
  EXPECT_THROW(Tokenizer::from_bytes("garbage"), Error);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Tokenizer, RefusesBadTextAndIds) {
  const Tokenizer tokenizer = train_small();
  EXPECT_EQ(error_of([&] { tokenizer.encode("\xff"); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { tokenizer.encode(std::string_view("\0", 1)); }).code(),
            ErrorCode::invalid_argument);
  for (const int32_t id : {-1, tokenizer.vocab_size()}) {
    const std::vector<int32_t> ids{4, id};
    EXPECT_TRUE(contains(error_of([&] { tokenizer.decode(ids); }).message(), "token 1 is"));
    EXPECT_THROW(tokenizer.token(id), Error);
    EXPECT_THROW(tokenizer.as_sentencepiece()->score(id), Error);
    EXPECT_THROW(tokenizer.as_sentencepiece()->type(id), Error);
  }
}

TEST(Tokenizer, FilesRoundTrip) {
  const TemporaryDirectory directory;
  const std::filesystem::path& folder = directory.path();
  const Tokenizer tokenizer = train_small();
  std::ofstream(folder / "vocab.spm", std::ios::binary) << tokenizer.serialized();
  const Tokenizer loaded = Tokenizer::load(folder / "vocab.spm");
  EXPECT_EQ(loaded.serialized(), tokenizer.serialized());
  EXPECT_EQ(loaded.encode("der Hund läuft."), tokenizer.encode("der Hund läuft."));

  const auto text = folder / "text.txt";
  std::ofstream out(text);
  for (const auto& sentence : sample_sentences()) out << sentence << "\r\n";
  out.close();
  TokenizerTrainOptions options;
  options.vocab_size = 80;
  options.hard_vocab_limit = false;
  EXPECT_EQ(Tokenizer::train(read_lines(text.string()), options).serialized(),
            Tokenizer::train(sample_sentences(), options).serialized());

  EXPECT_EQ(error_of([&] { Tokenizer::load(folder / "absent.spm"); }).code(), ErrorCode::not_found);
  EXPECT_EQ(Tokenizer::load(folder).serialized(), tokenizer.serialized());
  std::filesystem::create_directories(folder / "inner" / "vocab.spm");
  expect_error(ErrorCode::invalid_argument, "vocab.spm: is a directory",
               [&] { Tokenizer::load(folder / "inner"); });
  std::ofstream(folder / "empty.spm").close();
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder / "empty.spm"); }).code(),
            ErrorCode::corrupt_file);
}

TEST(Tokenizer, TruncatedModelsAreCorruptNeverACrash) {
  const std::string good = train_small().serialized();
  for (size_t size = 0; size < good.size(); size += size < 4000 ? 7 : 2503) {
    try {
      // A cut between two fields can leave a smaller but sound message; then it has to work.
      Tokenizer::from_bytes(std::string_view(good).substr(0, size)).encode("der Hund läuft.");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    }
  }
}

TEST(Tokenizer, FlippedBitsAreCorruptOrHarmless) {
  for (const auto model : {TokenizerModel::unigram, TokenizerModel::bpe}) {
    const std::string good = train_small(model).serialized();
    int refused = 0;
    uint32_t state = 99;
    for (int i = 0; i < 120; ++i) {
      state = state * 1664525u + 1013904223u;
      std::string bad = good;
      // Half of the flips into the subwords at the start, half anywhere (mostly the character map).
      const size_t position = (state >> 3) % (i % 2 == 0 ? size_t{1500} : bad.size());
      bad[position] = static_cast<char>(bad[position] ^ (1 << (state >> 29)));
      try {
        const Tokenizer tokenizer = Tokenizer::from_bytes(bad, "flipped.spm");
        const auto ids = tokenizer.encode("der Hund läuft über die Straße ﬁ ½ ㌀ Å.");
        for (const int32_t id : ids) EXPECT_LT(id, tokenizer.vocab_size());
        tokenizer.decode(ids);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
        EXPECT_TRUE(contains(error.message(), "flipped.spm"));
        ++refused;
      }
    }
    EXPECT_GT(refused, 15);
  }
}

// Models that no trainer makes.
std::string field(uint32_t number, const std::string& bytes) {
  WireWriter message;
  message.bytes(number, bytes);
  return message.message();
}

std::string subword(const std::string& text, int type, float score = 0.0f) {
  WireWriter piece;
  piece.bytes(1, text);
  piece.real(2, score);
  piece.integer(3, type);
  return field(1, piece.message());
}

TEST(Tokenizer, ChecksSubwordsAndRequiredSymbols) {
  const std::string base = subword("<unk>", 2) + subword("</s>", 3);
  auto reason = [&](const std::string& model) {
    const Error error = error_of([&] { Tokenizer::from_bytes(model); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
    return error.message();
  };
  const Tokenizer usable = Tokenizer::from_bytes(base + subword("a", 1));
  EXPECT_EQ(usable.bos_id(), -1);
  EXPECT_EQ(usable.pad_id(), -1);
  EXPECT_EQ(usable.eos_id(), 1);
  EXPECT_TRUE(contains(reason(base + subword("", 1)), "subword 2 is empty"));
  EXPECT_TRUE(contains(reason(base + field(1, "")), "subword 2 is empty"));  // without a text
  EXPECT_TRUE(contains(reason(base + subword(std::string(1025, 'x'), 1)), "1025 bytes"));
  EXPECT_TRUE(contains(reason(base + subword("\xc3", 1)), "not UTF-8"));
  EXPECT_TRUE(contains(reason(base + subword(std::string(1, '\0'), 1)), "NUL"));
  EXPECT_TRUE(contains(reason(base + subword("a", 9)), "known type"));
  EXPECT_TRUE(contains(reason(base + subword("a", 1, std::numeric_limits<float>::infinity())),
                       "not finite"));
  reason(base + subword("a", 1) + subword("a", 1));  // twice the same subword
  EXPECT_TRUE(contains(reason(subword("<unk>", 2) + subword("a", 1)), "end-of-sentence"));
  reason(subword("</s>", 3) + subword("a", 1));  // no unknown subword
  std::string nested = base;
  for (int i = 1; i <= 65; ++i) nested += subword(std::string(static_cast<size_t>(i), 'z'), 4);
  EXPECT_TRUE(contains(reason(nested), "start with each other"));
}

TEST(Tokenizer, TheFirstSubwordMayStartASentence) {
  const std::string model = subword("a", 1) + subword("<unk>", 2) + subword("</s>", 3);
  const Tokenizer without = Tokenizer::from_bytes(model);
  EXPECT_EQ(without.bos_id(), -1);
  EXPECT_FALSE(without.bos_is_subword());
  const Tokenizer tokenizer =
      Tokenizer::from_bytes(model + field(spm_field::kTrainer, field(spm_field::kStart, "a")));
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_TRUE(tokenizer.bos_is_subword());
}

// Runs `work` on a thread with this much stack.
void on_stack_of(size_t bytes, std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  const auto run = [](void* call) -> void* {
    (*static_cast<std::function<void()>*>(call))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// SentencePiece builds its tries by recursion, one level for each byte of a subword. With subwords
// of 8 KiB the stack of a thread with 512 KiB was too small.
TEST(Tokenizer, TheLongestSubwordsFitASmallStack) {
  const std::string longest(limits::kSubwordBytes, 'x'), symbol(limits::kSubwordBytes, 'y');
  const std::string model =
      subword("<unk>", 2) + subword("</s>", 3) + subword(longest, 1) + subword(symbol, 4);
  std::vector<int32_t> ids;
  on_stack_of(512 << 10, [&] { ids = Tokenizer::from_bytes(model).encode(longest + symbol); });
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 1, ids.end()), std::vector<int32_t>{3});
  std::string refused;
  on_stack_of(512 << 10, [&] {
    refused = error_of([&] {
                Tokenizer::from_bytes(model + subword(std::string(8 << 10, 'z'), 1));
              }).message();
  });
  EXPECT_TRUE(contains(refused, "8192 bytes")) << refused;
}

// A character map made by hand: blocks of 256 units.
std::string map_model(const std::vector<std::pair<size_t, uint32_t>>& units,
                      const std::string& texts, size_t blocks = 1) {
  std::vector<uint32_t> trie(256 * blocks, 0);
  for (const auto& [position, value] : units) trie.at(position) = value;
  const auto size = static_cast<uint32_t>(1024 * blocks);
  std::string blob(4 + size, '\0');
  std::memcpy(blob.data(), &size, 4);
  std::memcpy(blob.data() + 4, trie.data(), size);
  return subword("<unk>", 2) + field(3, field(2, blob + texts));
}

TEST(Tokenizer, ChecksTheCharacterMap) {
  auto reason = [](const std::string& model) {
    return error_of([&] { check_spm_model(model, "map.spm"); }).message();
  };
  const std::string texts("x\0", 2);
  // Root children at base 0; label 'a' at unit 0x61 leads with a leaf to base 0x61 ^ (0x61 ^ 0x80)
  // = 0x80.
  const uint32_t leaf_a = 0x61u | 1u << 8 | (0x61u ^ 0x80u) << 10;
  EXPECT_NO_THROW(check_spm_model(map_model({{0x61, leaf_a}, {0x80, 1u << 31}}, texts), "map.spm"));
  // A leaf may point to the last byte of the texts and not past it.
  EXPECT_NO_THROW(check_spm_model(map_model({{0x61, leaf_a}, {0x80, 1}}, texts), "map.spm"));
  for (const uint32_t outside : {2u, 3u, 5u, 0x7fffffffu})
    EXPECT_TRUE(
        contains(reason(map_model({{0x61, leaf_a}, {0x80, outside}}, texts)), "outside its texts"))
        << outside;
  EXPECT_TRUE(
      contains(reason(map_model({{0x61, 0x61u | 0x3000u << 10}}, texts)), "outside itself"));
  EXPECT_TRUE(contains(reason(map_model({{0x61, 0x61u | 0x61u << 10}}, texts)), "cycle"));
  EXPECT_TRUE(contains(reason(map_model({}, "x")), "unterminated"));
}

// The library's prefix search has room for 32 matches along one path. Here "a" to `below` times "a"
// are entries. "b" and "ba" are too, and "baa" leads to the node of "a", so the longest path has
// two entries more.
std::string nested_map(size_t below) {
  std::vector<std::pair<size_t, uint32_t>> units;
  // From the node in one block to the node in another, whose first unit is the value of the entry.
  const auto edge = [&](size_t from, uint32_t letter, size_t to) {
    const size_t position = 256 * from + letter;
    const auto offset = static_cast<uint32_t>(position ^ 256 * to);
    units.emplace_back(position, letter | 1u << 8 | offset << 10);
    units.emplace_back(256 * to, 1u << 31);
  };
  for (size_t k = 0; k < below; ++k) edge(k, 'a', k + 1);
  edge(0, 'b', below + 1);
  edge(below + 1, 'a', below + 2);
  edge(below + 2, 'a', 1);
  return map_model(units, std::string("x\0", 2), below + 3);
}

TEST(Tokenizer, ACharacterMapNestsAtMost32Deep) {
  EXPECT_NO_THROW(check_spm_model(nested_map(30), "map.spm"));
  for (const size_t below : {size_t{31}, size_t{32}, size_t{33}, size_t{100}})
    expect_error(ErrorCode::corrupt_file, "nests too deep",
                 [&] { check_spm_model(nested_map(below), "map.spm"); });
}

// A path from node to node by the letter a, in blocks of 256 units; the last entry alone has a
// text.
std::string path_map(const std::vector<size_t>& nodes) {
  std::vector<std::pair<size_t, uint32_t>> units;
  for (size_t k = 1; k < nodes.size(); ++k) {
    const size_t position = 256 * nodes[k - 1] + 'a';
    const auto offset = static_cast<uint32_t>(position ^ 256 * nodes[k]);
    units.emplace_back(position, 'a' | (k + 1 == nodes.size() ? 1u << 8 : 0u) | offset << 10);
  }
  units.emplace_back(256 * nodes.back(), 1u << 31);
  return map_model(units, std::string("x\0", 2), 1 + *std::max_element(nodes.begin(), nodes.end()));
}

TEST(Tokenizer, OnlyEntriesWithATextNestInACharacterMap) {
  std::vector<size_t> nodes(100);
  std::iota(nodes.begin(), nodes.end(), size_t{0});
  EXPECT_NO_THROW(check_spm_model(path_map(nodes), "map.spm"));
}

TEST(Tokenizer, ACycleBelowTheRootOfACharacterMapIsRefused) {
  for (const std::vector<size_t>& nodes :
       {std::vector<size_t>{0, 1, 1}, {0, 1, 2, 1}, {0, 1, 2, 3, 2}})
    expect_error(ErrorCode::corrupt_file, "its character map has a cycle",
                 [&] { check_spm_model(path_map(nodes), "map.spm"); });
}

// A model whose character map has `texts` for the letter a.
std::string letter_map(const std::string& text, int which = 3) {
  const uint32_t leaf_a = 0x61u | 1u << 8 | (0x61u ^ 0x80u) << 10;
  const std::string model = map_model({{0x61, leaf_a}, {0x80, 1u << 31}}, text + '\0');
  const size_t unknown = subword("<unk>", 2).size();
  std::string normalizer = model.substr(unknown);
  normalizer[0] = static_cast<char>(which << 3 | 2);
  return model.substr(0, unknown) + subword("</s>", 3) + subword("a", 1) + subword("b", 1) +
         normalizer;
}

TEST(Tokenizer, BoundsWhatACharacterMapMakesOfAText) {
  const auto load = [](const std::string& model) { return Tokenizer::from_bytes(model, "m.spm"); };
  expect_error(ErrorCode::corrupt_file, "more than 1024 bytes",
               [&] { load(letter_map(std::string(1025, 'b'))); });
  // Many entries may point into one long text: looking for its end must not take forever either.
  expect_error(ErrorCode::corrupt_file, "more than 1024 bytes",
               [&] { load(letter_map(std::string(1 << 20, 'b'))); });
  const Tokenizer tokenizer = load(letter_map(std::string(1024, 'b')));
  EXPECT_EQ(tokenizer.encode("a").size(), 1025u);           // and the prefix
  EXPECT_NO_THROW(tokenizer.encode(std::string(64, 'a')));  // the limit
  const std::string bomb(100, 'a');
  expect_error(ErrorCode::corrupt_file, "into 102403", [&] { tokenizer.encode(bomb); });
  expect_error(ErrorCode::corrupt_file, "into 102403",
               [&] { tokenizer.as_sentencepiece()->normalize(bomb); });
  EXPECT_NO_THROW(tokenizer.encode(std::string(100, 'b')));
  // The longest growth of Unicode's own normal forms, 3 bytes to 39, passes at any length.
  const Tokenizer usual = train_small();
  std::string phrases;
  for (int i = 0; i < 100'000; ++i) phrases += "\ufdfa";
  EXPECT_NO_THROW(usual.encode(phrases));
}

// A fault that only the library checks is an error with the library's reason.
TEST(Tokenizer, SaysWhyTheLibraryRefusesAModel) {
  expect_error(ErrorCode::corrupt_file, "unk is not defined",
               [] { Tokenizer::from_bytes(subword("</s>", 3) + subword("a", 1), "m.spm"); });
}

TEST(Tokenizer, BoundsWhatADenormalizerMakesOfTokens) {
  const Tokenizer tokenizer = Tokenizer::from_bytes(letter_map(std::string(1024, 'b'), 5));
  const int32_t a = tokenizer.id("a");
  EXPECT_TRUE(tokenizer.decode(std::vector<int32_t>(10, a)).ends_with(std::string(10240, 'b')));
  EXPECT_NO_THROW(tokenizer.decode(std::vector<int32_t>(64, a)));
  for (const size_t count : {size_t{65}, size_t{100'000}})
    expect_error(ErrorCode::corrupt_file, "more than 67108864 bytes",
                 [&] { tokenizer.decode(std::vector<int32_t>(count, a)); });
}

TEST(Tokenizer, BoundsTheSurfaceOfTheUnknownSubword) {
  const auto model = [&](size_t surface) {
    return subword("<unk>", 2) + subword("</s>", 3) + subword("a", 1) +
           field(2, std::string("\xe2\x02") + field(0, std::string(surface, 'x')).substr(1));
  };
  EXPECT_NO_THROW(Tokenizer::from_bytes(model(1024)));
  expect_error(ErrorCode::corrupt_file, "1025 bytes", [&] { Tokenizer::from_bytes(model(1025)); });
}

// The library would encode the samples while it loads the model, whatever that takes.
TEST(Tokenizer, DoesNotRunTheSelfTestOfAModel) {
  const std::string sample = field(1, field(1, std::string(1 << 20, 'q')) + field(2, "wrong"));
  const std::string model = train_small().serialized() + field(4, sample);
  const Tokenizer tokenizer = Tokenizer::from_bytes(model);
  EXPECT_TRUE(tokenizer.serialized() == model);
  EXPECT_EQ(tokenizer.encode("der Hund"), train_small().encode("der Hund"));
}

TEST(Tokenizer, IsSafeToShareBetweenThreads) {
  const Tokenizer tokenizer = train_small();
  const auto sentences = sample_sentences(60);
  std::vector<std::vector<int32_t>> expected;
  for (const auto& sentence : sentences) expected.push_back(tokenizer.encode(sentence));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t, copy = tokenizer] {
      for (size_t i = 0; i < sentences.size(); ++i)
        wrong[t] +=
            copy.encode(sentences[i]) != expected[i] || copy.decode(expected[i]) != sentences[i];
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace trafo
