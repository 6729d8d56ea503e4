// Windows over long texts: each token is learned once, in every form of a corpus.
#include "engine/data/long_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "engine/core/numeric/shuffle.h"
#include "engine/data/batcher.h"
#include "engine/data/text_pairs.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

constexpr int32_t kFront = 2;  // eos, which a text without a source follows
constexpr int32_t kMostTokens = 100, kIds = 10000;

TokenizedCorpusOptions windows_option(int32_t max_length, int32_t stride,
                                      int32_t batch_tokens = 40) {
  TokenizedCorpusOptions options;
  options.form = SequenceForm::decoder_only;
  options.max_length = max_length;
  options.window_stride = stride;
  options.batch_tokens = batch_tokens;
  return options;
}

// Token j of text i is 100 (i + 1) + j.
TextCorpus numbered_texts(const std::vector<int>& lengths) {
  std::vector<std::vector<int32_t>> sources(lengths.size()), texts;
  for (size_t i = 0; i < lengths.size(); ++i)
    for (auto& text = texts.emplace_back(); std::ssize(text) < lengths[i];)
      text.push_back(static_cast<int32_t>(kMostTokens * (i + 1) + text.size()));
  return TextCorpus::of_ids(sources, texts);
}

TokenizedCorpus ids_of(const TextCorpus& text, const TokenizedCorpusOptions& options) {
  VocabularyTokens tokens;
  tokens.special.eos = kFront;
  return {text, PairEncoding(tokens, kIds), options};
}

// One epoch of batches.
std::vector<PackedBatchHost> epoch_of(const PairSource& corpus, const BatcherOptions& order = {}) {
  Batcher batcher(corpus, order);
  std::vector<PackedBatchHost> all;
  do batcher.next(all.emplace_back());
  while (!all.back().last_in_epoch);
  return all;
}

bool same_rows(const PackedBatchHost& a, const PackedBatchHost& b) {
  return a.target_in == b.target_in && a.target_out == b.target_out &&
         a.target_weights == b.target_weights && a.target_cu_seqlens == b.target_cu_seqlens &&
         a.sentence_ids == b.sentence_ids && a.last_in_epoch == b.last_in_epoch &&
         a.epoch_drops == b.epoch_drops;
}

TEST(LongText, CountsWindows) {
  const TokenizedCorpusOptions options = windows_option(8, 3);
  for (const auto& [tokens, windows] : {std::pair{0, 1}, {1, 1}, {8, 1}, {9, 2}, {11, 2}, {12, 3}})
    EXPECT_EQ(windows_of(options, 1, tokens), windows) << tokens;
  EXPECT_EQ(windows_of(windows_option(8, 8), 1, 16), 2);
  EXPECT_EQ(windows_of(windows_option(8, 8), 1, 17), 3);
  EXPECT_EQ(windows_of(options, 2, 30), 1) << "a pair is not cut";
  EXPECT_EQ(windows_of(windows_option(8, 0), 1, 30), 1) << "nothing is cut without a stride";
}

TEST(LongText, RowsOfWindows) {
  const TokenizedCorpus corpus = ids_of(numbered_texts({10}), windows_option(6, 2));
  BatcherOptions order;
  order.shuffle = false;
  std::vector<std::vector<int32_t>> read, learned;
  for (const PackedBatchHost& batch : epoch_of(corpus, order))
    for (size_t i = 0; i + 1 < batch.target_cu_seqlens.size(); ++i) {
      read.emplace_back(batch.target_in.begin() + batch.target_cu_seqlens[i],
                        batch.target_in.begin() + batch.target_cu_seqlens[i + 1]);
      learned.emplace_back();
      for (auto j = static_cast<size_t>(batch.target_cu_seqlens[i]);
           j < static_cast<size_t>(batch.target_cu_seqlens[i + 1]); ++j) {
        EXPECT_EQ(batch.target_positions[j], static_cast<int32_t>(read.back().size()) -
                                                 batch.target_cu_seqlens[i + 1] +
                                                 static_cast<int32_t>(j));
        if (batch.target_weights[j] > 0) learned.back().push_back(batch.target_out[j]);
      }
    }
  const std::vector<std::vector<int32_t>> expected_read = {
      {2, 100, 101, 102, 103, 104}, {101, 102, 103, 104, 105, 106}, {103, 104, 105, 106, 107, 108}};
  const std::vector<std::vector<int32_t>> expected_learned = {
      {100, 101, 102, 103, 104, 105}, {106, 107}, {108, 109}};
  EXPECT_EQ(read, expected_read);
  EXPECT_EQ(learned, expected_learned);
}

TEST(LongText, EachTokenIsLearnedOnceWithItsContext) {
  std::vector<int> lengths;
  for (int length = 1; length < 45; ++length) lengths.push_back(length);
  const TextCorpus text = numbered_texts(lengths);
  for (const int32_t stride : {1, 3, 7, 8}) {
    const TokenizedCorpusOptions options = windows_option(8, stride);
    const TokenizedCorpus corpus = ids_of(text, options);
    int64_t windows = 0;
    for (const int length : lengths) windows += length > 8 ? windows_of(options, 1, length) : 0;
    EXPECT_EQ(corpus.report().cut, 36);
    EXPECT_EQ(corpus.report().windows, windows);
    EXPECT_EQ(corpus.report().dropped_long, 0);
    for (const bool shuffle : {false, true}) {
      BatcherOptions order;
      order.shuffle = shuffle;
      order.sort_window = shuffle ? 20 : 0;
      std::multiset<int32_t> learned;
      int64_t labels = 0, rows = 0;
      for (const PackedBatchHost& batch : epoch_of(corpus, order)) {
        EXPECT_LE(std::ssize(batch.target_in), options.batch_tokens);
        EXPECT_LE(batch.max_target_len, options.max_length);
        labels += batch.label_count;
        for (size_t i = 0; i < batch.sentence_ids.size(); ++i, ++rows) {
          const auto begin = static_cast<size_t>(batch.target_cu_seqlens[i]);
          const auto end = static_cast<size_t>(batch.target_cu_seqlens[i + 1]);
          const auto first = static_cast<int32_t>(kMostTokens * (batch.sentence_ids[i] + 1));
          for (size_t j = begin; j < end; ++j) {
            // The tokens of a text in their order; the one from which it begins is in front alone.
            EXPECT_EQ(batch.target_in[j],
                      batch.target_out[j] == first ? kFront : batch.target_out[j] - 1);
            if (batch.target_weights[j] == 0) continue;
            learned.insert(batch.target_out[j]);
            // As much context as the stride leaves, or all there is.
            const auto before = static_cast<int64_t>(j - begin + 1);
            EXPECT_GE(before, std::min<int64_t>(batch.target_out[j] - first + 1,
                                                options.max_length - stride + 1));
          }
        }
      }
      std::multiset<int32_t> expected;
      for (size_t i = 0; i < lengths.size(); ++i)
        for (int j = 0; j < lengths[i]; ++j)
          expected.insert(static_cast<int32_t>(kMostTokens * (i + 1)) + j);
      EXPECT_EQ(learned, expected) << "stride " << stride;
      EXPECT_EQ(labels, std::ssize(expected));
      EXPECT_EQ(rows, windows + 8);
    }
  }
}

// Without a stride they are dropped, as pairs always are.
TEST(LongText, WithoutAStrideTheyAreDropped) {
  const TokenizedCorpus corpus = ids_of(numbered_texts({5, 9, 30}), windows_option(8, 0));
  EXPECT_EQ(corpus.report().dropped_long, 2);
  EXPECT_EQ(corpus.report().cut, 0);
  EXPECT_EQ(epoch_of(corpus).front().label_count, 5);
  const std::vector<std::vector<int32_t>> sources = {{}, {4, 5}}, targets = {{6}, {7, 8, 9, 10}};
  const TokenizedCorpus mixed = ids_of(TextCorpus::of_ids(sources, targets), windows_option(3, 3));
  EXPECT_EQ(mixed.report().dropped_long, 1) << "a row with a source is a pair";
}

TEST(LongText, WindowsOfATextDoNotStayTogether) {
  std::vector<int> lengths(30, 80);
  const TokenizedCorpus corpus = ids_of(numbered_texts(lengths), windows_option(8, 8, 80));
  size_t most = 0;
  for (const PackedBatchHost& batch : epoch_of(corpus)) {
    std::map<int64_t, size_t> counts;
    for (const int64_t text : batch.sentence_ids) most = std::max(most, ++counts[text]);
  }
  EXPECT_LT(most, 5u) << "of the 10 rows of a batch";
}

TEST(LongText, RefusesWhatCannotBe) {
  for (const auto& [options, name] : {std::pair{windows_option(8, 9), "window_stride"},
                                      {windows_option(8, -1), "window_stride"},
                                      {windows_option(50, 10), "batch_tokens"}})
    EXPECT_TRUE(mentions(error_of([&] { ids_of(numbered_texts({3}), options); }), name));
  TokenizedCorpusOptions pairs = windows_option(8, 8);
  pairs.form = SequenceForm::encoder_decoder;
  EXPECT_TRUE(mentions(error_of([&] { ids_of(numbered_texts({3}), pairs); }), "window_stride"));
}

// Files of lines, of which every third is long.
class LongTextFiles : public ::testing::Test {
 protected:
  static std::string write_lines(const std::filesystem::path& directory) {
    const std::string path = (directory / "text").string();
    ShuffleRng rng(3, 0);
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 700; ++i) {
      for (uint64_t letters = 1 + rng.below(i % 3 == 0 ? 300 : 20); letters > 0; --letters)
        file << static_cast<char>('a' + rng.below(20));
      file << '\n';
    }
    return path;
  }
  static Tokenizer bytes() {
    TokenizerTrainOptions options;
    options.kind = "byte";
    options.vocab_size = 259;
    const std::vector<std::string> lines{"a"};
    return Tokenizer::train(std::span<const std::string>(lines), options);
  }

  TemporaryDirectory directory_;
  std::string path_ = write_lines(directory_.path());
  Tokenizer tokenizer_ = bytes();
  TextCorpus memory_ = load_monolingual(path_);
  TextCorpus disk_ = load_monolingual(path_, {.memory_bytes = 0, .unpack_directory = {}});
};

TEST_F(LongTextFiles, OnDiskTheyGiveTheBatchesOfMemory) {
  const TokenizedCorpusOptions options = windows_option(16, 12, 100);
  const TokenizedCorpus ids(memory_, tokenizer_, options);
  ASSERT_TRUE(disk_.is_large());
  for (const int64_t window : {0, 250})
    for (const int64_t maxi : {0, 3}) {
      BatcherOptions order;
      order.sort_window = window;
      order.maxi_batch = maxi;
      const auto expected = epoch_of(ids, order);
      for (const int threads : {1, 3}) {
        const TextPairs read(disk_, tokenizer_, options, {}, threads);
        auto got = epoch_of(read, order);
        // Found during the epoch, where a corpus in memory knows it beforehand.
        EXPECT_EQ(got.back().epoch_drops.cut, ids.report().cut);
        EXPECT_EQ(got.back().epoch_drops.windows, ids.report().windows);
        got.back().epoch_drops = {};
        EXPECT_TRUE(std::ranges::equal(got, expected, same_rows)) << window << " " << maxi;
      }
    }
  EXPECT_GT(ids.report().cut, 150);
}

TEST_F(LongTextFiles, APositionIsFoundAgain) {
  const TextPairs read(disk_, tokenizer_, windows_option(16, 5, 100), {}, 2);
  BatcherOptions order;
  order.sort_window = 300;
  order.maxi_batch = 20;
  Batcher original(read, order);
  std::vector<BatcherState> states;
  std::vector<PackedBatchHost> all;
  for (int epochs = 0; epochs < 2; epochs += all.back().last_in_epoch ? 1 : 0) {
    states.push_back(original.state());
    original.next(all.emplace_back());
  }
  EXPECT_GT(states.size(), 200u);
  for (size_t i = 0; i < states.size(); i += 13) {
    Batcher other(read, order);
    other.seek(states[i]);
    PackedBatchHost batch;
    for (size_t j = i; j < std::min(all.size(), i + 30); ++j) {
      other.next(batch);
      ASSERT_TRUE(same_rows(batch, all[j])) << "from " << i << ", batch " << j;
    }
  }
}

// Batches of other ranks are only counted.
TEST_F(LongTextFiles, RanksShareAnEpoch) {
  const TokenizedCorpus ids(memory_, tokenizer_, windows_option(16, 12, 100));
  const auto all = epoch_of(ids);
  for (const int64_t rank : {0, 1, 2}) {
    BatcherOptions order;
    order.lanes = 3;
    order.own = {rank, rank + 1};
    const auto own = epoch_of(ids, order);
    ASSERT_EQ(own.size(), all.size());
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].label_count, all[i].label_count);
      EXPECT_EQ(own[i].counts().target_tokens, std::ssize(all[i].target_in));
      if (own[i].elsewhere)
        EXPECT_EQ(own[i].elsewhere->sentences, all[i].sentences());
      else
        EXPECT_TRUE(same_rows(own[i], all[i]));
    }
  }
}

}  // namespace
}  // namespace trafo
