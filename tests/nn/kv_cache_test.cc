// The KV cache alone: which slot a token goes to, and what growing and reordering keep.
#include "engine/nn/kv_cache.h"

#include <gtest/gtest.h>

#include "tests/decode/decode_models.h"

namespace trafo::testing {
namespace {

constexpr int64_t kLayers = 2, kKvWidth = 2;
constexpr int64_t kColumns = 2 * kKvWidth;  // of a layer

class KvCacheTest : public ::testing::Test {
 protected:
  // Appends counts[r] tokens to each row. The keys and values of layer l of token p of a sequence
  // are 1000 * first_value[r] + 10 * p + l.
  void append(nn::KvCache& cache, const std::vector<int32_t>& counts,
              const std::vector<int32_t>& sequence) {
    cache.begin_append(*context_, counts);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> qkv;
      for (size_t r = 0; r < counts.size(); ++r)
        for (int32_t i = 0; i < counts[r]; ++i) {
          qkv.push_back(-1);  // a column of queries
          qkv.insert(qkv.end(), 2 * kKvWidth, value(sequence[r], cache.lengths()[r] + i, layer));
        }
      const auto tokens = static_cast<int64_t>(qkv.size()) / (2 * kKvWidth + 1);
      cache.append(*context_, layer, context_->from_values<float>(qkv, {tokens, 2 * kKvWidth + 1}),
                   1);
    }
    cache.end_append();
  }
  static float value(int32_t sequence, int32_t position, int64_t layer) {
    return static_cast<float>(1000 * sequence + 10 * position + static_cast<int32_t>(layer));
  }
  // Every row holds the tokens of its sequence, in order.
  void expect_rows(const nn::KvCache& cache, const std::vector<int32_t>& sequence) {
    ASSERT_EQ(cache.rows(), static_cast<int64_t>(sequence.size()));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const Tensor keys_values = cache.keys_values(layer);
      EXPECT_EQ(keys_values.shape(), (Shape{cache.storage().dim(1), kColumns}));
      const auto values = context_->values<float>(keys_values);
      for (size_t r = 0; r < sequence.size(); ++r)
        for (int32_t p = 0; p < cache.lengths()[r]; ++p)
          for (int64_t c = 0; c < kColumns; ++c) {
            const int64_t slot = cache.regions()[r] * cache.capacity() + p;
            ASSERT_EQ(values[static_cast<size_t>(slot * kColumns + c)],
                      value(sequence[r], p, layer))
                << "row " << r << ", position " << p;
          }
    }
  }

  std::unique_ptr<Context> context_ = cpu_context();
};

TEST_F(KvCacheTest, RowsOfDifferentLengthsKeepTheirTokens) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 3, 5);
  EXPECT_EQ(cache.longest(), 0);
  append(cache, {3, 1, 4}, {1, 2, 3});
  EXPECT_TRUE(cache.is_prefill());
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().cu_seqlens),
            (std::vector<int32_t>{0, 3, 4, 8}));
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().positions),
            (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(cache.sequences().longest, 4);
  expect_rows(cache, {1, 2, 3});

  append(cache, {1, 1, 1}, {1, 2, 3});
  EXPECT_FALSE(cache.is_prefill());
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{4, 2, 5}));
  EXPECT_EQ(cache.longest(), 5);
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().positions),
            (std::vector<int32_t>{3, 1, 4}));
  EXPECT_EQ(context_->values<int32_t>(cache.key_begin()), (std::vector<int32_t>{0, 5, 10}));
  EXPECT_EQ(context_->values<int32_t>(cache.key_end()), (std::vector<int32_t>{4, 7, 15}));
  expect_rows(cache, {1, 2, 3});
}

TEST_F(KvCacheTest, GrowingAndReorderingMoveWholeRows) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 3, 4);
  append(cache, {3, 1, 4}, {1, 2, 3});
  cache.grow(*context_, 9);
  EXPECT_EQ(cache.capacity(), 9);
  expect_rows(cache, {1, 2, 3});
  EXPECT_FALSE(cache.reorder(*context_, std::vector<int32_t>{0, 1, 2}));
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{2, 0, 0, 1}));
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{4, 3, 3, 1}));
  expect_rows(cache, {3, 1, 1, 2});
  append(cache, {1, 1, 1, 1}, {3, 1, 1, 2});
  expect_rows(cache, {3, 1, 1, 2});
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{3}));
  expect_rows(cache, {2});
  EXPECT_EQ(cache.longest(), 2);
  cache.grow(*context_, 10);
  expect_rows(cache, {2});
  EXPECT_EQ(cache.bytes(), static_cast<size_t>(10 * kLayers * kColumns) * sizeof(float));
}

TEST_F(KvCacheTest, RowsThatContinueOneEachStayWhereTheyAre) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 4, 6);
  append(cache, {3, 1, 4, 2}, {1, 2, 3, 4});
  const void* before = cache.storage().raw();
  // Row 1 has no past. It gets the region of a row that has left.
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{3, -1, 2}));
  EXPECT_EQ(cache.storage().raw(), before);
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{2, 0, 4}));
  expect_rows(cache, {4, 5, 3});
  append(cache, {1, 1, 1}, {4, 5, 3});
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().positions),
            (std::vector<int32_t>{2, 0, 4}));
  expect_rows(cache, {4, 5, 3});
  // No region is left for the last row.
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{2, 1, 0, -1, -1}));
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{5, 1, 3, 0, 0}));
  append(cache, {1, 1, 1, 1, 1}, {3, 5, 4, 6, 7});
  expect_rows(cache, {3, 5, 4, 6, 7});
}

// Beams that live on and such that end: rows get copies in the regions of rows that have left.
TEST_F(KvCacheTest, CopiesGoToRegionsThatAreFree) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 5, 6);
  append(cache, {3, 1, 4, 2, 1}, {1, 2, 3, 4, 5});
  const void* before = cache.storage().raw();
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{2, 2, 0, 2, -1}));
  EXPECT_EQ(cache.storage().raw(), before);
  // The first row that continues another one keeps its region.
  EXPECT_EQ(cache.regions(), (std::vector<int32_t>{2, 1, 0, 3, 4}));
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{4, 4, 3, 4, 0}));
  expect_rows(cache, {3, 3, 1, 3, 6});
  append(cache, {1, 1, 1, 1, 1}, {3, 3, 1, 3, 6});
  expect_rows(cache, {3, 3, 1, 3, 6});
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{4, 0, 0}));
  EXPECT_EQ(cache.storage().raw(), before);
  expect_rows(cache, {6, 3, 3});
  // Five regions are not enough for six rows.
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{2, 2, 0, -1, 1, 1}));
  EXPECT_NE(cache.storage().raw(), before);
  EXPECT_EQ(cache.regions(), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  expect_rows(cache, {3, 3, 6, 7, 3, 3});
}

TEST_F(KvCacheTest, LivesInAStorageThatIsGiven) {
  const nn::KvCacheOptions options{.layers = kLayers, .kv_width = kKvWidth};
  const Tensor storage = context_->empty({kLayers, 13, kColumns}, DType::f32);
  nn::KvCache cache(*context_, options, 3, 4, storage);
  EXPECT_EQ(cache.storage().raw(), storage.raw());
  append(cache, {3, 1, 4}, {1, 2, 3});
  EXPECT_TRUE(cache.reorder(*context_, std::vector<int32_t>{2, 0}));
  EXPECT_TRUE(cache.move_to(*context_, storage));
  expect_rows(cache, {3, 1});
  cache.grow(*context_, 6);
  EXPECT_NE(cache.storage().raw(), storage.raw());
  EXPECT_TRUE(cache.move_to(*context_, storage));
  EXPECT_EQ(cache.storage().raw(), storage.raw());
  expect_rows(cache, {3, 1});
  const Tensor indices = context_->empty({nn::KvCache::index_count(2)}, DType::i32);
  cache.begin_append(*context_, std::vector<int32_t>{1, 1}, indices);
  EXPECT_EQ(context_->values<int32_t>(indices),
            (std::vector<int32_t>{4, 9, 4, 3, 0, 6, 5, 10, 0, 1, 2}));
  cache.grow(*context_, 7);
  EXPECT_FALSE(cache.move_to(*context_, storage));
  expect_rows(cache, {3, 1});
  EXPECT_EQ(error_text([&] { nn::KvCache(*context_, options, 4, 4, storage); }),
            "SHAPE_MISMATCH: a storage of shape [2, 13, 4] is not for 4 rows of 4 tokens");
}

// Rows of a conversation: some get several tokens, some none, some lose their last ones.
TEST_F(KvCacheTest, RowsGrowByAnyNumberOfTokens) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 3, 9);
  append(cache, {3, 1, 4}, {1, 2, 3});
  append(cache, {0, 4, 1}, {1, 2, 3});
  EXPECT_FALSE(cache.is_prefill());
  EXPECT_EQ(cache.longest_after(), 5);
  // A few tokens after others are sequences of one token.
  EXPECT_EQ(cache.sequences().longest, 1);
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().cu_seqlens),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().positions),
            (std::vector<int32_t>{1, 2, 3, 4, 4}));
  EXPECT_EQ(context_->values<int32_t>(cache.key_begin()), (std::vector<int32_t>{9, 9, 9, 9, 18}));
  EXPECT_EQ(context_->values<int32_t>(cache.key_end()), (std::vector<int32_t>{11, 12, 13, 14, 23}));
  expect_rows(cache, {1, 2, 3});
  cache.truncate(2, 1);
  append(cache, {1, 0, 2}, {1, 2, 3});
  EXPECT_EQ(cache.lengths(), (std::vector<int32_t>{4, 5, 3}));
  expect_rows(cache, {1, 2, 3});
  EXPECT_EQ(error_text([&] { cache.truncate(1, 6); }),
            "INVALID_ARGUMENT: row 1 holds 5 tokens and cannot keep 6");
  EXPECT_EQ(error_text([&] { cache.truncate(3, 0); }),
            "INVALID_ARGUMENT: there is no row 3, there are 3");
}

TEST_F(KvCacheTest, ManyTokensOfARowAreASequence) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 2, 80);
  append(cache, {2, 1}, {1, 2});
  append(cache, {66, 1}, {1, 2});
  EXPECT_EQ(cache.sequences().longest, 66);
  EXPECT_EQ(context_->values<int32_t>(cache.sequences().cu_seqlens),
            (std::vector<int32_t>{0, 66, 67}));
  EXPECT_EQ(context_->values<int32_t>(cache.key_end()), (std::vector<int32_t>{68, 82}));
  expect_rows(cache, {1, 2});
}

TEST_F(KvCacheTest, RefusesWhatItHasNoRoomFor) {
  nn::KvCache cache(*context_, {.layers = kLayers, .kv_width = kKvWidth}, 2, 3);
  append(cache, {3, 2}, {1, 2});
  const std::vector<int32_t> one_each = {1, 1}, none = {0, 0};
  EXPECT_EQ(error_text([&] { cache.begin_append(*context_, one_each); }),
            "INVALID_ARGUMENT: the cache has room for 3 tokens a row; row 0 holds 3 and cannot "
            "take 1 more");
  EXPECT_EQ(error_text([&] { cache.begin_append(*context_, none); }),
            "INVALID_ARGUMENT: no row gets a token");
  EXPECT_EQ(error_text([&] { cache.begin_append(*context_, std::vector<int32_t>{1}); }),
            "SHAPE_MISMATCH: 1 counts of new tokens for 2 rows");
  EXPECT_EQ(error_text([&] { cache.grow(*context_, 2); }),
            "INVALID_ARGUMENT: a capacity of 2 tokens is less than the 3 tokens of the longest "
            "row");
  EXPECT_EQ(error_text([&] {
              cache.reorder(*context_, std::vector<int32_t>{0, 2});
            }),
            "INVALID_ARGUMENT: parent 2 is not one of the 2 rows");
  EXPECT_EQ(error_text([&] {
              nn::KvCache(*context_, {.layers = 1, .kv_width = 0}, int64_t{1} << 20,
                          int64_t{1} << 20);
            }),
            "INVALID_ARGUMENT: 1048576 rows of 1048576 tokens are more than a cache can hold");
}

}  // namespace
}  // namespace trafo::testing
