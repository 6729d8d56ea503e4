// Which weights of a matrix become zero.
#include "engine/nn/sparsity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

template <class T>
std::vector<T> without_lowest(std::vector<T> values, int64_t count) {
  std::vector<T> scores(values.size());
  for (size_t i = 0; i < values.size(); ++i) scores[i] = std::abs(values[i]);
  nn::zero_lowest(std::span(values), std::span(scores), count);
  return values;
}

TEST(Sparsity, TheLowestBecomeZeroAndOfEqualOnesTheFirst) {
  using Values = std::vector<float>;
  EXPECT_EQ(without_lowest<float>({3, -1, 2, -4}, 2), (Values{3, 0, 0, -4}));
  EXPECT_EQ(without_lowest<float>({3, -1, 2, -4}, 0), (Values{3, -1, 2, -4}));
  EXPECT_EQ(without_lowest<float>({3, -1, 2, -4}, 4), (Values{0, 0, 0, 0}));
  EXPECT_EQ(without_lowest<float>({2, -2, 2, 2, 1}, 3), (Values{0, 0, 2, 2, 0}));
  EXPECT_EQ(without_lowest<float>({0, 5, 0, 0}, 2), (Values{0, 5, 0, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Values with_nan = without_lowest<float>({nan, 7, 9}, 2);
  EXPECT_TRUE(std::isnan(with_nan[0]));
  EXPECT_EQ(with_nan[1] + with_nan[2], 0);
}

// Against sorting, with many equal values.
TEST(Sparsity, IsThatOfAStableSort) {
  PhiloxStream random(5, 1);
  for (const int64_t count : {1, 13, 500, 999}) {
    std::vector<double> values(1000);
    for (double& value : values) value = static_cast<double>(random.next_u32() % 41) - 20;
    std::vector<size_t> order(values.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs(values[a]) < std::abs(values[b]); });
    std::vector<double> expected = values;
    for (int64_t i = 0; i < count; ++i) expected[order[static_cast<size_t>(i)]] = 0;
    EXPECT_EQ(without_lowest(values, count), expected);
    EXPECT_EQ(without_lowest(expected, count), expected) << "a second time";
  }
}

TEST(Sparsity, AShareIsRoundedToTheNearestNumber) {
  EXPECT_EQ(nn::pruned_count(0.8, 1000), 800);
  EXPECT_EQ(nn::pruned_count(0.29, 100), 29);
  EXPECT_EQ(nn::pruned_count(0.5, 5), 3);
  EXPECT_EQ(nn::pruned_count(0, 5), 0);
}

// The master and the values that the model computes with, in each form of a store.
TEST(Sparsity, OfAParameterTheMasterAndTheValuesAreWritten) {
  for (const auto& [dtype, bits] : {std::pair{DType::f32, 0}, {DType::f64, 0}, {DType::f32, 8}}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    ParameterStore store;
    const ParamId id = store.declare("w.weight", {8, 32}, Init::normal(1));
    store.allow_int8(id);
    store.allocate(*context, dtype, 3);
    store.set_quantize_bits(*context, bits);
    nn::prune_by_magnitude(*context, store, id, 0.75);
    const auto zeros = [&](const Tensor& tensor) {
      int64_t count = 0;
      const Tensor plain = tensor.detach();
      if (dtype == DType::f64)
        for (const double value : context->values<double>(plain)) count += value == 0;
      else
        for (const float value : context->values<float>(plain)) count += value == 0;
      return count;
    };
    EXPECT_EQ(zeros(store.master()), 192);
    EXPECT_GE(zeros(store.value(id)), 192);
  }
}

}  // namespace
}  // namespace trafo
