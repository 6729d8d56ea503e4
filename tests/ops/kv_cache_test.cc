#include "engine/ops/kv_cache/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

std::vector<int32_t> counting(int64_t count, int32_t first) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

Tensor ints(const Context& context, const std::vector<int32_t>& values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

struct Window {
  int64_t tokens, width, column, columns;  // of the new tokens
  int64_t cache_rows, cache_width, cache_column;
};

// Every slot of the cache is compared: those that no token goes to keep what they had.
void expect_append(Context& context, const Window& w, const std::vector<int32_t>& slots) {
  const auto x = counting(w.tokens * w.width, 1000000);
  auto expected = counting(w.cache_rows * w.cache_width, 0);
  const Tensor cache = context.from_values<int32_t>(expected, {w.cache_rows, w.cache_width});
  ops::kv_cache_append(context, context.from_values<int32_t>(x, {w.tokens, w.width}), w.column,
                       w.columns, ints(context, slots), cache, w.cache_column);
  for (int64_t t = 0; t < w.tokens; ++t)
    std::copy_n(x.begin() + t * w.width + w.column, w.columns,
                expected.begin() + slots[static_cast<size_t>(t)] * w.cache_width + w.cache_column);
  EXPECT_EQ(context.values<int32_t>(cache), expected)
      << w.tokens << " tokens, " << w.columns << " columns";
}

void expect_steps_and_prompts(Context& context) {
  // Three rows of capacity 5 with 2, 0 and 4 tokens get one more each: a decode step.
  expect_append(context, {3, 9, 3, 6, 15, 12, 6}, {2, 5, 14});
  // Two prompts of 3 and 5 tokens into empty rows of capacity 8: a prefill.
  expect_append(context, {8, 24, 8, 16, 16, 16, 0}, {0, 1, 2, 8, 9, 10, 11, 12});
  // Words of every width; a row that is longer than a block of threads copies at once.
  for (const int64_t columns : {1, 3, 4, 8, 64, 1024, 5000})
    expect_append(context, {2, columns + 4, 4, columns, 6, columns + 8, 8}, {5, 1});
  // More than one block of work.
  std::vector<int32_t> slots = counting(300, 0);
  std::reverse(slots.begin(), slots.end());
  expect_append(context, {300, 640, 128, 512, 300, 1024, 256}, slots);
  expect_append(context, {0, 4, 0, 4, 3, 4, 0}, {});
  expect_append(context, {2, 4, 0, 0, 3, 4, 0}, {0, 1});
}

TEST(KvCacheAppend, StepsAndPrompts) {
  for (const int threads : {1, 3}) {
    auto context = make_context(Device{}, threads);
    expect_steps_and_prompts(*context);
  }
}

using KvCacheAppendCuda = testing::CudaTest;

TEST_F(KvCacheAppendCuda, StepsAndPrompts) {
  expect_steps_and_prompts(*context_);
}

TEST_F(KvCacheAppendCuda, SlotsOutsideOfTheCacheAreLeftOut) {
  const Tensor cache = context_->from_values<int32_t>(counting(6, 0), {3, 2});
  ops::kv_cache_append(*context_, context_->from_values<int32_t>(counting(6, 100), {3, 2}), 0, 2,
                       ints(*context_, {-1, 1, 3}), cache, 0);
  EXPECT_EQ(context_->values<int32_t>(cache), (std::vector<int32_t>{0, 1, 102, 103, 4, 5}));
}

TEST(KvCacheAppend, AnyDtypeAndRowsThatAreApart) {
  auto context = make_context(Device{}, 2);
  const std::vector<double> wide = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor f64 = context->from_values<double>(wide, {2, 4});
  Tensor cache = context->zeros({2, 3}, DType::f64);
  ops::kv_cache_append(*context, ops::slice(*context, f64, 1, 1, 3), 0, 2, ints(*context, {1, 0}),
                       cache, 1);
  EXPECT_EQ(context->values<double>(cache), (std::vector<double>{0, 6, 7, 0, 2, 3}));

  const std::vector<BFloat16> narrow = {BFloat16::from_float(0.5f), BFloat16::from_float(-2)};
  cache = context->zeros({3, 1}, DType::bf16);
  ops::kv_cache_append(*context, context->from_values<BFloat16>(narrow, {2, 1}), 0, 1,
                       ints(*context, {2, 0}), cache, 0);
  const auto halves = context->values<BFloat16>(cache);
  EXPECT_EQ(halves[0].to_float(), -2);
  EXPECT_EQ(halves[1].to_float(), 0);
  EXPECT_EQ(halves[2].to_float(), 0.5f);
}

TEST(KvCacheAppend, RefusesWhatItCannotDo) {
  auto context = make_context(Device{}, 1);
  Tensor x = context->zeros({2, 6}, DType::f32);
  const Tensor cache = context->zeros({4, 4}, DType::f32);
  const Tensor slots = ints(*context, {0, 3});
  const auto append = [&](const Tensor& from, int64_t column, int64_t columns, const Tensor& to,
                          const Tensor& at, int64_t cache_column) {
    return code_of(
        [&] { ops::kv_cache_append(*context, from, column, columns, at, to, cache_column); });
  };
  EXPECT_EQ(append(x, 2, 4, cache, slots, 0), ErrorCode::ok);
  EXPECT_EQ(append(x, 2, 4, cache, ints(*context, {0, 4}), 0), ErrorCode::invalid_argument);
  EXPECT_EQ(append(x, 2, 4, cache, ints(*context, {-1, 0}), 0), ErrorCode::invalid_argument);
  EXPECT_EQ(append(x, 3, 4, cache, slots, 0), ErrorCode::shape_mismatch);
  EXPECT_EQ(append(x, -1, 4, cache, slots, 0), ErrorCode::shape_mismatch);
  EXPECT_EQ(append(x, 2, 4, cache, slots, 1), ErrorCode::shape_mismatch);
  EXPECT_EQ(append(x, 2, 4, cache, ints(*context, {0}), 0), ErrorCode::shape_mismatch);
  EXPECT_EQ(
      append(ops::transpose(*context, x, 0, 1), 0, 2, cache, ints(*context, {0, 1, 2, 3, 0, 1}), 0),
      ErrorCode::shape_mismatch);
  EXPECT_EQ(append(x, 2, 4, cache, context->zeros({2}, DType::f32), 0), ErrorCode::dtype_mismatch);
  EXPECT_EQ(append(x, 2, 4, context->zeros({4, 4}, DType::f64), slots, 0),
            ErrorCode::dtype_mismatch);
  set_requires_grad(x, true);
  EXPECT_EQ(append(x, 2, 4, cache, slots, 0), ErrorCode::unsupported);
  const NoGrad no_grad(*context);
  EXPECT_EQ(append(x, 2, 4, cache, slots, 0), ErrorCode::ok);
}

}  // namespace
}  // namespace trafo
