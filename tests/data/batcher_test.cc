#include "engine/data/batcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"
#include "engine/data/batch_packer.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

constexpr int32_t kBos = 1, kEos = 2, kVocab = 100;

struct Ids {
  std::vector<int32_t> source, target;
  std::vector<int64_t> source_offsets{0}, target_offsets{0};
  void add(const std::vector<int32_t>& s, const std::vector<int32_t>& t) {
    source.insert(source.end(), s.begin(), s.end());
    target.insert(target.end(), t.begin(), t.end());
    source_offsets.push_back(static_cast<int64_t>(source.size()));
    target_offsets.push_back(static_cast<int64_t>(target.size()));
  }
  TokenizedCorpus corpus(const TokenizedCorpusOptions& options) const {
    return {source, source_offsets, target, target_offsets, kVocab, kEos, options};
  }
};

Ids random_ids(int pairs, uint64_t seed = 5) {
  Ids ids;
  ShuffleRng rng(seed, 0);
  for (int i = 0; i < pairs; ++i) {
    std::vector<int32_t> s(1 + rng.below(30)), t(1 + rng.below(30));
    for (auto* side : {&s, &t})
      for (auto& id : *side) id = static_cast<int32_t>(4 + rng.below(kVocab - 4));
    ids.add(s, t);
  }
  return ids;
}

TokenizedCorpusOptions options_of(SequenceForm form, int32_t batch_tokens = 128,
                                  int32_t max_length = 64) {
  TokenizedCorpusOptions options;
  options.form = form;
  options.batch_tokens = batch_tokens;
  options.max_length = max_length;
  return options;
}

bool same(const PackedBatchHost& a, const PackedBatchHost& b) {
  return a.source_ids == b.source_ids && a.source_positions == b.source_positions &&
         a.source_cu_seqlens == b.source_cu_seqlens && a.target_in == b.target_in &&
         a.target_out == b.target_out && a.target_positions == b.target_positions &&
         a.target_cu_seqlens == b.target_cu_seqlens && a.target_weights == b.target_weights &&
         a.sentence_ids == b.sentence_ids && a.max_source_len == b.max_source_len &&
         a.max_target_len == b.max_target_len && a.label_count == b.label_count &&
         a.epoch == b.epoch && a.index == b.index && a.last_in_epoch == b.last_in_epoch;
}

using Tokens = std::vector<int32_t>;

int64_t batches_in_epoch(const PairSource& corpus, const BatcherOptions& options = {}) {
  Batcher batcher(corpus, options);
  PackedBatchHost batch;
  int64_t count = 0;
  for (; !batch.last_in_epoch; ++count) batcher.next(batch);
  return count;
}

TEST(Batcher, PacksTheEncoderDecoderForm) {
  Ids ids;
  ids.add({10, 11}, {20, 21, 22});
  ids.add({12}, {23});
  const TokenizedCorpus corpus = ids.corpus(options_of(SequenceForm::encoder_decoder));
  BatcherOptions options;
  options.shuffle = false;
  options.start_id = kBos;
  Batcher batcher(corpus, options);
  PackedBatchHost batch;
  batcher.next(batch);  // sorted: the shorter target first
  EXPECT_EQ(batch.sentence_ids, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(batch.source_ids, (Tokens{12, 2, 10, 11, 2}));
  EXPECT_EQ(batch.source_positions, (Tokens{0, 1, 0, 1, 2}));
  EXPECT_EQ(batch.source_cu_seqlens, (Tokens{0, 2, 5}));
  EXPECT_EQ(batch.target_in, (Tokens{1, 23, 1, 20, 21, 22}));
  EXPECT_EQ(batch.target_out, (Tokens{23, 2, 20, 21, 22, 2}));
  EXPECT_EQ(batch.target_positions, (Tokens{0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(batch.target_cu_seqlens, (Tokens{0, 2, 6}));
  EXPECT_TRUE(batch.target_weights.empty());
  EXPECT_EQ(batch.max_source_len, 3);
  EXPECT_EQ(batch.max_target_len, 4);
  EXPECT_EQ(batch.label_count, 6);
  EXPECT_TRUE(batch.last_in_epoch);
  EXPECT_EQ(batcher.state(), (BatcherState{1, 1, 0}));
}

TEST(Batcher, PacksTheDecoderOnlyForm) {
  Ids ids;
  ids.add({10, 11}, {20, 21, 22});
  ids.add({12}, {23});
  const TokenizedCorpus corpus = ids.corpus(options_of(SequenceForm::decoder_only));
  BatcherOptions options;
  options.shuffle = false;
  Batcher batcher(corpus, options);
  PackedBatchHost batch;
  batcher.next(batch);
  EXPECT_TRUE(batch.source_ids.empty());
  EXPECT_TRUE(batch.source_cu_seqlens.empty());
  EXPECT_EQ(batch.target_in, (Tokens{12, 2, 23, 10, 11, 2, 20, 21, 22}));
  EXPECT_EQ(batch.target_out, (Tokens{2, 23, 2, 11, 2, 20, 21, 22, 2}));
  EXPECT_EQ(batch.target_weights, (std::vector<float>{0, 1, 1, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(batch.target_positions, (Tokens{0, 1, 2, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.target_cu_seqlens, (Tokens{0, 3, 9}));
  EXPECT_EQ(batch.max_target_len, 6);
  EXPECT_EQ(batch.label_count, 6);
}

// A pair has as many tokens as the decoder reads: its last </s> is no input.
TEST(BatchPacker, ASourceAloneHasNoTarget) {
  PackedBatchHost batch;
  BatchPacker packer(batch, SequenceForm::encoder_decoder, kBos);
  packer.add_source(std::vector<int32_t>{7, 8, kEos});
  packer.add_source(std::vector<int32_t>{9, kEos});
  EXPECT_EQ(batch.source_ids, (Tokens{7, 8, kEos, 9, kEos}));
  EXPECT_EQ(batch.source_cu_seqlens, (Tokens{0, 3, 5}));
  EXPECT_EQ(batch.target_cu_seqlens, (Tokens{0, 0, 0}));
  EXPECT_TRUE(batch.target_in.empty());
}

TEST(BatchPacker, IdsOfRowsAreBelowTheVocabulary) {
  const int32_t source[] = {4, kVocab - 1}, target[] = {kVocab - 1, 5};
  const int32_t two[] = {2}, three[] = {3}, none[] = {0};
  const BatchLimits limits{SequenceForm::encoder_decoder, {.bos = kBos}, kVocab, kVocab, 16};
  const auto pack = [&](const int32_t* ids, const int32_t* lengths) {
    PackedBatchHost batch;
    pack_rows({1, ids, 2, lengths, target, 2, two}, limits, batch);
    return batch.source_ids;
  };
  EXPECT_EQ(pack(source, two), (Tokens{4, kVocab - 1}));
  for (const int32_t id : {-1, kVocab}) {
    const int32_t outside[] = {4, id};
    expect_error(ErrorCode::invalid_argument, concat("has the id ", id),
                 [&] { pack(outside, two); });
  }
  for (const int32_t* lengths : {three, none})
    expect_error(ErrorCode::invalid_argument, "it must have 1 to 2",
                 [&] { pack(source, lengths); });
}

TEST(BatchPacker, TheEmptySourceOfADecoderIsTheEnd) {
  const BatchLimits limits{
      SequenceForm::decoder_only, {.bos = kBos, .eos = kEos}, kVocab, kVocab, 16};
  const int32_t source[] = {7, 0, 0, 0}, target[] = {8, 9, kEos, 5, kEos, 0};
  const int32_t lengths[] = {1, 0}, target_lengths[] = {3, 2};
  PackedBatchHost batch;
  pack_rows({2, source, 2, lengths, target, 3, target_lengths}, limits, batch);
  EXPECT_EQ(batch.target_in, (Tokens{7, 8, 9, kEos, 5}));
  EXPECT_EQ(batch.target_out, (Tokens{8, 9, kEos, 5, kEos}));
  // Without any source there is no matrix of them.
  pack_rows({2, nullptr, 0, nullptr, target, 3, target_lengths}, limits, batch);
  EXPECT_EQ(batch.target_in, (Tokens{kEos, 8, 9, kEos, 5}));
  expect_error(ErrorCode::invalid_argument, "row 0 of the target has 0 ids", [&] {
    const int32_t none[] = {0, 0};
    pack_rows({2, source, 2, lengths, target, 3, none}, limits, batch);
  });
  const BatchLimits encoder{
      SequenceForm::encoder_decoder, {.bos = kBos, .eos = kEos}, kVocab, kVocab, 16};
  expect_error(ErrorCode::invalid_argument, "row 1 of the source has 0 ids", [&] {
    pack_rows({2, source, 2, lengths, target, 3, target_lengths}, encoder, batch);
  });
  expect_error(ErrorCode::invalid_argument, "is NULL", [&] {
    pack_rows({2, nullptr, 0, nullptr, target, 3, target_lengths}, encoder, batch);
  });
}

TEST(Batcher, ADecoderOnlyBatchHoldsItsWholeBudget) {
  Ids ids;
  ids.add({10, 11}, {20, 21, 22});  // 6 tokens
  ids.add({12}, {23});              // 3
  EXPECT_EQ(batches_in_epoch(ids.corpus(options_of(SequenceForm::decoder_only, 9))), 1);
  const TokenizedCorpus two = ids.corpus(options_of(SequenceForm::decoder_only, 8));
  EXPECT_EQ(batches_in_epoch(two), 2);
  const std::vector<BatchExtent> extents = Batcher(two, {}).extents(9);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].sentences, 2);
  EXPECT_EQ(extents[0].source_tokens, 0);
  EXPECT_EQ(extents[0].longest_source, 0);
  EXPECT_EQ(extents[0].target_tokens, 9);
  EXPECT_EQ(extents[0].longest_target, 6);
}

TEST(Batcher, TheFractionOfAnEpochGrowsWithItsBatches) {
  const TokenizedCorpus corpus = random_ids(100).corpus(options_of(SequenceForm::encoder_decoder));
  const int64_t count = batches_in_epoch(corpus);
  ASSERT_GT(count, 10);
  Batcher batcher(corpus, {});
  PackedBatchHost batch;
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_NEAR(batcher.epoch_fraction(), static_cast<double>(i) / static_cast<double>(count),
                1e-12);
    batcher.next(batch);
  }
  BatcherOptions windows;
  windows.sort_window = 25;
  Batcher other(corpus, windows);
  while (other.state().window < 50) other.next(batch);
  EXPECT_EQ(other.state().next_in_window, 0);
  EXPECT_EQ(other.epoch_fraction(), 0.5);
}

TEST(Batcher, EveryEpochHoldsEverySentenceOnceWithinTheBudget) {
  for (const auto form : {SequenceForm::encoder_decoder, SequenceForm::decoder_only}) {
    for (const int64_t window : {int64_t{0}, int64_t{1}, int64_t{50}}) {
      const TokenizedCorpus corpus = random_ids(700).corpus(options_of(form));
      BatcherOptions options;
      options.sort_window = window;
      Batcher batcher(corpus, options);
      std::vector<std::vector<int64_t>> orders;
      PackedBatchHost batch;
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> seen;
        batch.last_in_epoch = false;
        for (int64_t b = 0; !batch.last_in_epoch; ++b) {
          ASSERT_LT(b, 700);
          batcher.next(batch);
          EXPECT_EQ(batch.epoch, epoch);
          EXPECT_EQ(batch.index, b);
          EXPECT_LE(batch.target_in.size(), 128u);
          EXPECT_LE(batch.source_ids.size(), 256u);
          EXPECT_EQ(batch.target_out.size(), batch.target_in.size());
          EXPECT_EQ(batch.target_positions.size(), batch.target_in.size());
          EXPECT_EQ(batch.target_cu_seqlens.back(), static_cast<int32_t>(batch.target_in.size()));
          if (!batch.target_weights.empty()) {
            EXPECT_EQ(
                std::accumulate(batch.target_weights.begin(), batch.target_weights.end(), 0.0),
                static_cast<double>(batch.label_count));
          }
          seen.insert(seen.end(), batch.sentence_ids.begin(), batch.sentence_ids.end());
        }
        orders.push_back(seen);
        std::sort(seen.begin(), seen.end());
        std::vector<int64_t> all(700);
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(seen, all);
      }
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(orders[1], orders[2]);
    }
  }
}

TEST(Batcher, BatchesAreWellFilledAndOfOneLength) {
  const TokenizedCorpus corpus =
      random_ids(5000).corpus(options_of(SequenceForm::encoder_decoder, 512));
  Batcher batcher(corpus, {});
  int64_t tokens = 0, spread = 0;
  const int64_t count = batches_in_epoch(corpus);
  PackedBatchHost batch;
  for (int64_t b = 0; b < count; ++b) {
    batcher.next(batch);
    tokens += static_cast<int64_t>(batch.target_in.size());
    int32_t shortest = batch.max_target_len;
    for (size_t i = 0; i + 1 < batch.target_cu_seqlens.size(); ++i)
      shortest = std::min(shortest, batch.target_cu_seqlens[i + 1] - batch.target_cu_seqlens[i]);
    spread += batch.max_target_len - shortest;
  }
  EXPECT_EQ(tokens, corpus.target_tokens());
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(count * 512), 0.85);
  EXPECT_LT(static_cast<double>(spread) / static_cast<double>(count), 1.5);
}

TEST(Batcher, SeekContinuesExactly) {
  for (const auto form : {SequenceForm::encoder_decoder, SequenceForm::decoder_only}) {
    const TokenizedCorpus corpus = random_ids(300).corpus(options_of(form));
    BatcherOptions options;
    options.seed = 42;
    Batcher original(corpus, options);
    const auto total = static_cast<size_t>(batches_in_epoch(corpus, options)) * 2 + 5;
    std::vector<PackedBatchHost> batches(total);
    std::vector<BatcherState> states;
    for (auto& batch : batches) {
      states.push_back(original.state());
      original.next(batch);
    }
    for (size_t cut = 0; cut < total; cut += 7) {
      BatcherOptions other;  // the state carries its seed
      other.seed = 1234;
      Batcher resumed(corpus, other);
      PrefetchingBatcher prefetching(corpus, other, 3);
      resumed.seek(states[cut]);
      prefetching.seek(states[cut]);
      PackedBatchHost a, b;
      for (size_t i = cut; i < std::min(total, cut + 12); ++i) {
        EXPECT_EQ(prefetching.state(), states[i]);
        resumed.next(a);
        prefetching.next(b);
        EXPECT_TRUE(same(a, batches[i])) << i;
        EXPECT_TRUE(same(b, batches[i])) << i;
      }
    }
  }
}

TEST(Batcher, OrderIsFixedByTheSeed) {
  // Known values: a change of generator, sorting or packing would break the continuation of every
  // saved run.
  const TokenizedCorpus corpus =
      random_ids(40).corpus(options_of(SequenceForm::encoder_decoder, 64));
  Batcher batcher(corpus, {});
  PackedBatchHost batch;
  batcher.next(batch);
  EXPECT_EQ(batch.sentence_ids, (std::vector<int64_t>{24, 0}));
  EXPECT_EQ(corpus.fingerprint(), 16856113532725740090u);
  BatcherOptions second;
  second.seed = 2;
  Batcher other(corpus, second);
  PackedBatchHost other_batch;
  other.next(other_batch);
  EXPECT_NE(batch.sentence_ids, other_batch.sentence_ids);
}

// One pair a batch and no two of a length: the batches of a window come in an order of their ranks.
TEST(Batcher, EveryWindowHasAnOrderOfItsOwn) {
  constexpr int32_t kPairs = 128, kWindow = 16;
  Ids ids;
  for (int32_t i = 0; i < kPairs; ++i)
    ids.add({10}, Tokens(static_cast<size_t>(kPairs + 1 + i), 20));
  const TokenizedCorpus corpus =
      ids.corpus(options_of(SequenceForm::encoder_decoder, 2 * kPairs + 1, 2 * kPairs + 1));
  BatcherOptions options;
  options.sort_window = kWindow;
  Batcher batcher(corpus, options);
  std::set<std::vector<int32_t>> orders;
  for (int window = 0; window < 2 * kPairs / kWindow; ++window) {  // of two epochs
    std::vector<int32_t> lengths, ranks;
    for (int i = 0; i < kWindow; ++i) {
      EXPECT_EQ(batcher.state().window, window * kWindow % kPairs);
      PackedBatchHost batch;
      batcher.next(batch);
      ASSERT_EQ(batch.sentence_ids.size(), 1u);
      lengths.push_back(batch.max_target_len);
    }
    for (const int32_t length : lengths)
      ranks.push_back(static_cast<int32_t>(std::count_if(
          lengths.begin(), lengths.end(), [&](int32_t other) { return other < length; })));
    orders.insert(ranks);
  }
  EXPECT_EQ(orders.size(), static_cast<size_t>(2 * kPairs / kWindow));
}

TEST(Batcher, WithoutShuffleEveryEpochIsTheSame) {
  const TokenizedCorpus corpus = random_ids(200).corpus(options_of(SequenceForm::encoder_decoder));
  BatcherOptions options;
  options.shuffle = false;
  Batcher batcher(corpus, options);
  const int64_t count = batches_in_epoch(corpus, options);
  std::vector<std::vector<int64_t>> first, second;
  PackedBatchHost batch;
  for (int64_t b = 0; b < 2 * count; ++b) {
    batcher.next(batch);
    (b < count ? first : second).push_back(batch.sentence_ids);
  }
  EXPECT_EQ(first, second);
}

TEST(Batcher, RefusesImpossiblePositions) {
  const TokenizedCorpus corpus = random_ids(100).corpus(options_of(SequenceForm::encoder_decoder));
  Batcher batcher(corpus, {});
  PrefetchingBatcher prefetching(corpus, {});
  PackedBatchHost expected, got;
  batcher.next(expected);
  prefetching.next(got);
  for (const BatcherState& bad : {BatcherState{1, -1, 0}, BatcherState{1, 0, -1},
                                  BatcherState{1, 0, 100000}, BatcherState{9, 4, 100000}}) {
    EXPECT_THROW(batcher.seek(bad), Error);
    EXPECT_THROW(prefetching.seek(bad), Error);
  }
  batcher.next(expected);  // both go on as if nothing had been asked
  prefetching.next(got);
  EXPECT_TRUE(same(expected, got));
  EXPECT_EQ(expected.index, 1);
  BatcherOptions negative;
  negative.sort_window = -1;
  EXPECT_THROW(Batcher(corpus, negative), Error);
  EXPECT_THROW(PrefetchingBatcher(corpus, {}, 0), Error);
}

TEST(Batcher, APositionBelowZeroIsRefused) {
  const TokenizedCorpus corpus = random_ids(100).corpus(options_of(SequenceForm::encoder_decoder));
  Batcher batcher(corpus, {});
  for (const int64_t next_in_window : {0, 3}) {
    BatcherState state{1, 0, 3};
    state.window = -1;
    state.next_in_window = next_in_window;
    EXPECT_THROW(batcher.seek(state), Error) << next_in_window;
  }
}

TEST(PrefetchingBatcher, EqualsTheBatcherForEveryDepth) {
  const TokenizedCorpus corpus = random_ids(400).corpus(options_of(SequenceForm::decoder_only));
  for (const size_t depth : {size_t{1}, size_t{2}, size_t{16}}) {
    Batcher plain(corpus, {});
    PrefetchingBatcher prefetching(corpus, {}, depth);
    PackedBatchHost a, b;
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(prefetching.epoch_fraction(), plain.epoch_fraction());
      plain.next(a);
      prefetching.next(b);
      ASSERT_TRUE(same(a, b)) << i;
      ASSERT_EQ(prefetching.state(), plain.state());
    }
  }
}

TEST(PrefetchingBatcher, StopsAtAnyTime) {
  const TokenizedCorpus corpus = random_ids(50).corpus(options_of(SequenceForm::encoder_decoder));
  PackedBatchHost batch;
  for (int reads = 0; reads < 20; ++reads) {
    PrefetchingBatcher batcher(corpus, {}, 2);
    for (int i = 0; i < reads; ++i) batcher.next(batch);
  }
}

TEST(TokenizedCorpus, DropsAndCounts) {
  Ids ids;
  ids.add({10}, {20});
  ids.add({}, {20});
  ids.add({10}, {});
  ids.add(Tokens(9, 10), {20});   // 10 with </s>: fits
  ids.add(Tokens(10, 10), {20});  // 11: too long
  ids.add({10}, Tokens(10, 20));
  const TokenizedCorpus corpus = ids.corpus(options_of(SequenceForm::encoder_decoder, 128, 10));
  EXPECT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.pair(1), 3);
  EXPECT_EQ(corpus.report().lines, 6);
  EXPECT_EQ(corpus.report().pairs, 2);
  EXPECT_EQ(corpus.report().dropped_empty, 2);
  EXPECT_EQ(corpus.report().dropped_long, 2);
  // The budget drops as well: 5 target tokens, 10 source tokens.
  EXPECT_EQ(ids.corpus(options_of(SequenceForm::encoder_decoder, 5, 100)).report().dropped_long, 2);
  // A decoder-only stream of 9 + 1 + 1 + </s> reads 11.
  EXPECT_EQ(ids.corpus(options_of(SequenceForm::decoder_only, 128, 11)).size(), 2);
  EXPECT_EQ(ids.corpus(options_of(SequenceForm::decoder_only, 128, 10)).size(), 1);
}

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(TokenizedCorpus, RefusesBadInput) {
  const auto options = options_of(SequenceForm::encoder_decoder);
  auto message = [&](Ids ids, auto change) {
    change(ids);
    return message_of([&] { ids.corpus(options); });
  };
  Ids good;
  good.add({10, 11}, {20});
  EXPECT_TRUE(
      contains(message(good, [](Ids& i) { i.source[1] = kVocab; }), "source token 1 is 100"));
  EXPECT_TRUE(contains(message(good, [](Ids& i) { i.target[0] = -1; }), "target token 0 is -1"));
  EXPECT_TRUE(contains(message(good, [](Ids& i) { i.source_offsets[1] = 1; }), "source offsets"));
  EXPECT_TRUE(contains(message(good, [](Ids& i) { i.target_offsets.clear(); }), "target offsets"));
  EXPECT_TRUE(contains(message(good,
                               [](Ids& i) {
                                 i.source_offsets = {0, 1, 2};
                               }),
                       "2 source sentences, 1 target"));
  const std::string nothing = message_of([] {
    Ids ids;
    ids.add(Tokens(80, 10), {20});
    ids.add({}, {20});
    ids.corpus(options_of(SequenceForm::encoder_decoder));
  });
  EXPECT_TRUE(contains(nothing, "of 2 lines, 1 have an empty side and 1 are longer")) << nothing;
  EXPECT_TRUE(
      contains(message_of([&] { good.corpus(options_of(SequenceForm::encoder_decoder, 1)); }),
               "batch_tokens"));
  EXPECT_TRUE(
      contains(message_of([&] { good.corpus(options_of(SequenceForm::encoder_decoder, 64, 1)); }),
               "max_length"));
}

TEST(TokenizedCorpus, FingerprintNoticesAnyChange) {
  std::set<uint64_t> prints;
  const auto options = options_of(SequenceForm::encoder_decoder);
  Ids ids;
  ids.add({10, 11}, {20});
  ids.add({12}, {21});
  prints.insert(ids.corpus(options).fingerprint());
  prints.insert(ids.corpus(options_of(SequenceForm::decoder_only)).fingerprint());
  Ids changed = ids;
  changed.target[1] = 22;
  prints.insert(changed.corpus(options).fingerprint());
  Ids moved = ids;
  moved.source_offsets = {0, 1, 3};
  prints.insert(moved.corpus(options).fingerprint());
  EXPECT_EQ(prints.size(), 4u);
  EXPECT_EQ(prints.count(ids.corpus(options).fingerprint()), 1u);
}

// Checkpoints hold them: a run of an earlier release resumes with the same ids only if they stay.
TEST(TokenizedCorpus, FingerprintsAreThoseOfEarlierReleases) {
  Ids ids;
  ids.add({10, 11}, {20});
  ids.add({12}, {21, 22, 23});
  EXPECT_EQ(ids.corpus(options_of(SequenceForm::encoder_decoder)).fingerprint(),
            17438413576547676322u);
  EXPECT_EQ(ids.corpus(options_of(SequenceForm::decoder_only)).fingerprint(), 8388469746950999448u);
}

TEST(TokenizedCorpus, TokenizesTextWithAnyNumberOfThreads) {
  std::vector<std::string> source, target;
  for (int i = 0; i < 700; ++i) {
    source.push_back("satz nummer " + std::to_string(i));
    target.push_back("sentence number " + std::to_string(i));
  }
  source[3] = " ";
  TokenizerTrainOptions train;
  train.vocab_size = 60;
  train.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(source, train);
  const ParallelCorpus text = make_parallel(source, target);
  const auto options = options_of(SequenceForm::encoder_decoder);
  const TokenizedCorpus one(text, tokenizer, options, 1);
  const TokenizedCorpus three(text, tokenizer, options, 3);
  EXPECT_EQ(one.fingerprint(), three.fingerprint());
  EXPECT_EQ(one.size(), 699);
  EXPECT_EQ(one.report().dropped_empty, 1);
  std::vector<int32_t> ids = tokenizer.encode(source[4]);
  ids.push_back(tokenizer.eos_id());
  const auto got = one.source(3);
  EXPECT_EQ(std::vector<int32_t>(got.begin(), got.end()), ids);
}

TEST(ShuffleRng, IsUniformAndKeyed) {
  ShuffleRng rng(1, 0);
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_NE(ShuffleRng(1, 0).next(), ShuffleRng(1, 1).next());
  EXPECT_NE(ShuffleRng(1, 1).next(), ShuffleRng(2, 0).next());
  EXPECT_EQ(ShuffleRng(3, 4).next(), ShuffleRng(3, 4).next());
}

}  // namespace
}  // namespace trafo
