#include "engine/ops/top_k/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo {
namespace {

// `levels` > 0 makes many classes equal.
template <class T>
std::vector<T> random_logits(int64_t count, uint64_t seed, int levels, double offset) {
  PhiloxStream random(seed, 5);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& v : values) {
    double u = random.uniform(-6, 6);
    if (levels > 0) u = std::floor(u * levels) / levels;
    v = static_cast<T>(u + offset);
  }
  return values;
}

// Computed in long double from the definition, by a full sort.
template <class T>
void expect_top_k(Context& context, const std::vector<T>& logits, int64_t rows, int64_t classes,
                  int64_t k, const std::vector<int32_t>& banned, DType dtype = dtype_of<T>) {
  const std::vector<double> wide(logits.begin(), logits.end());
  const ops::TopK top =
      ops::top_k(context, context.from_doubles(wide, {rows, classes}, dtype), k, banned);
  ASSERT_EQ(top.ids.shape(), (Shape{rows, k}));
  const auto values = context.template values<T>(top.log_probabilities);
  const auto ids = context.values<int32_t>(top.ids);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = logits.data() + row * classes;
    const long double high = *std::max_element(x, x + classes);
    long double total = 0;
    for (int64_t i = 0; i < classes; ++i) total += std::exp(x[i] - high);
    std::vector<int32_t> order;
    for (int32_t i = 0; i < classes; ++i)
      if (std::find(banned.begin(), banned.end(), i) == banned.end()) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [x](int32_t a, int32_t b) { return x[a] > x[b]; });
    for (int64_t i = 0; i < k; ++i) {
      const size_t at = static_cast<size_t>(row * k + i);
      const int32_t id = order[static_cast<size_t>(i)];
      ASSERT_EQ(ids[at], id) << "row " << row << ", place " << i << " of " << classes;
      const long double expected = x[id] - high - std::log(total);
      const double bound = sizeof(T) == 4 ? 3e-6 : 1e-13;
      ASSERT_NEAR(values[at], static_cast<double>(expected),
                  bound * std::max(1.0L, std::abs(expected)));
    }
  }
}

template <class T>
void check_shapes(Context& context, DType dtype = dtype_of<T>) {
  for (const int64_t classes : {1, 2, 7, 16, 33, 64, 257, 8001})
    for (const int64_t k : {int64_t{1}, int64_t{6}, classes})
      for (const int levels : {0, 2}) {
        if (k > classes) continue;
        auto logits = random_logits<T>(3 * classes, static_cast<uint64_t>(classes), levels, 0);
        if (dtype == DType::bf16)
          for (T& x : logits) x = BFloat16::from_float(static_cast<float>(x)).to_float();
        expect_top_k<T>(context, logits, 3, classes, k, {}, dtype);
        if (classes >= 7 && k <= classes - 3)
          expect_top_k<T>(context, logits, 3, classes, k, {3, 0, static_cast<int32_t>(classes - 1)},
                          dtype);
      }
}

TEST(TopK, EqualsASortInFloat32) {
  check_shapes<float>(*make_context(Device{}, 2));
}
TEST(TopK, EqualsASortInFloat64) {
  check_shapes<double>(*make_context(Device{}, 2));
}

class TopKOnCuda : public testing::CudaTest {};

TEST_F(TopKOnCuda, EqualsASort) {
  for (const DType dtype : {DType::f32, DType::bf16}) check_shapes<float>(*context_, dtype);
}

TEST(TopK, LargeOffsetsDoNotOverflow) {
  auto context = make_context(Device{}, 1);
  for (const double offset : {-3e4, 3e4}) {
    const auto logits = random_logits<float>(2 * 100, 9, 64, offset);
    expect_top_k<float>(*context, logits, 2, 100, 5, {1});
  }
}

TEST(TopK, RisingLogitsReplaceTheWholeList) {
  auto context = make_context(Device{}, 1);
  std::vector<double> logits(500);
  std::iota(logits.begin(), logits.end(), -499);
  expect_top_k<double>(*context, logits, 1, 500, 9, {499});
}

TEST(TopK, BannedClassesKeepTheirProbability) {
  auto context = make_context(Device{}, 1);
  const std::vector<double> logits = {5, 1, 1, 1};
  // -1 and 9 name no class; naming one twice is naming it once.
  const ops::TopK top = ops::top_k(*context, context->from_values<double>(logits, {1, 4}), 1,
                                   std::vector<int32_t>{0, -1, 9, 0});
  EXPECT_EQ(context->values<int32_t>(top.ids)[0], 1);
  EXPECT_NEAR(context->values<double>(top.log_probabilities)[0],
              1 - std::log(std::exp(5.0) + 3 * std::exp(1.0)), 1e-12);
}

TEST(TopK, ClassesOfProbabilityZeroComeLast) {
  auto context = make_context(Device{}, 1);
  const float none = -std::numeric_limits<float>::infinity();
  std::vector<float> logits(40, none);
  logits[30] = 2;
  const ops::TopK top = ops::top_k(*context, context->from_values<float>(logits, {1, 40}), 3);
  EXPECT_EQ(context->values<int32_t>(top.ids), (std::vector<int32_t>{30, 0, 1}));
  EXPECT_EQ(context->values<float>(top.log_probabilities), (std::vector<float>{0, none, none}));
}

TEST(TopK, NonFiniteRowsAreNaNAndLeaveOthersAlone) {
  auto context = make_context(Device{}, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity}) {
    for (const size_t at : {0u, 17u, 36u}) {
      auto logits = random_logits<float>(2 * 37, 4, 0, 0);
      logits[at] = bad;
      const ops::TopK top = ops::top_k(*context, context->from_values<float>(logits, {2, 37}), 2,
                                       std::vector<int32_t>{1});
      const auto values = context->values<float>(top.log_probabilities);
      EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
      EXPECT_TRUE(std::isfinite(values[2]) && std::isfinite(values[3]));
      const auto ids = context->values<int32_t>(top.ids);
      EXPECT_EQ(ids[0], 0);
      EXPECT_EQ(ids[1], 2);
    }
  }
}

TEST(TopK, SameBitsOnEveryThreadCountAndForStridedInput) {
  const auto logits = random_logits<float>(50 * 999, 12, 0, 0);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    auto context = make_context(Device{}, threads);
    const Tensor x = context->from_values<float>(logits, {50, 999});
    results.push_back(context->values<float>(ops::top_k(*context, x, 7).log_probabilities));
    const Tensor back = ops::transpose(
        *context, ops::contiguous(*context, ops::transpose(*context, x, 0, 1)), 0, 1);
    ASSERT_FALSE(back.is_contiguous());
    results.push_back(context->values<float>(ops::top_k(*context, back, 7).log_probabilities));
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(TopK, EmptyBatchAndErrors) {
  auto context = make_context(Device{}, 1);
  const auto code = [&](const Tensor& logits, int64_t k, std::vector<int32_t> banned = {}) {
    try {
      const ops::TopK top = ops::top_k(*context, logits, k, banned);
      return top.ids.dim(1) == k ? ErrorCode::ok : ErrorCode::internal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code(context->empty({0, 5}, DType::f32), 2), ErrorCode::ok);
  Tensor x = context->zeros({2, 5}, DType::f32);
  EXPECT_EQ(code(x, 5), ErrorCode::ok);
  EXPECT_EQ(code(x, 6), ErrorCode::invalid_argument);
  EXPECT_EQ(code(x, 5, {4}), ErrorCode::invalid_argument);
  EXPECT_EQ(code(x, 0), ErrorCode::invalid_argument);
  EXPECT_EQ(code(context->zeros({5}, DType::f32), 1), ErrorCode::shape_mismatch);
  EXPECT_EQ(code(context->zeros({2, 5}, DType::bf16), 1), ErrorCode::dtype_mismatch);
  EXPECT_EQ(code(context->zeros({2, 5}, DType::i32), 1), ErrorCode::dtype_mismatch);
  EXPECT_EQ(code(context->zeros({1, 30}, DType::f32), 1, {0, 1, 2, 3, 4, 5, 6, 7, 8}),
            ErrorCode::invalid_argument);
  set_requires_grad(x, true);
  EXPECT_EQ(code(x, 1), ErrorCode::unsupported);
}

}  // namespace
}  // namespace trafo
