#include "engine/ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

template <class T>
void expect_defined_mask(int64_t count, const Dropout& dropout) {
  const auto context = make_context({DeviceKind::cpu, 0}, 3);
  Tensor x = context->from_values<T>(std::vector<T>(static_cast<size_t>(count), T{2}), {count});
  set_requires_grad(x, true);
  const Tensor y = ops::dropout(*context, x, dropout);
  context->backward(y, x.detach());
  const T kept = T{2} * static_cast<T>(dropout.scale());
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T expected = dropout_keeps(dropout, i) ? kept : T{0};
    wrong += y.template data<T>()[i] != expected;
    wrong += grad_of(x).template data<T>()[i] != expected;
  }
  EXPECT_EQ(wrong, 0) << count << " elements, p " << dropout.p;
}

TEST(Dropout, MaskIsTheOneOfTheDefinition) {
  for (const int64_t count : {1, 7, 8, 9, 63, 511, 513, 8191, 8193, 20011}) {
    expect_defined_mask<float>(count, {0.1f, 42, 3, 7});
    expect_defined_mask<double>(count, {0.5f, 0x123456789abcdefull, 0xfffffffe, 1});
  }
  expect_defined_mask<float>(1000, {1.0f / 65536, 1, 0, 0});  // the smallest that drops anything
  expect_defined_mask<float>(1000, {65535.0f / 65536, 1, 0, 0});
}

TEST(Dropout, DroppedElementsAreZeroWhateverTheyWere) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Dropout dropout{0.5f, 1, 2, 3};
  std::vector<float> x(100, std::numeric_limits<float>::quiet_NaN());
  const Tensor y = ops::dropout(*context, context->from_values<float>(x, {100}), dropout);
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(std::isnan(y.data<float>()[i]), dropout_keeps(dropout, i)) << i;
}

TEST(Dropout, KeepsTheExpectationAndDependsOnEveryPartOfItsAddress) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  constexpr int64_t count = 200000;
  const Tensor x = context->from_values<float>(std::vector<float>(count, 1.0f), {count});
  const auto run = [&](const Dropout& d) {
    return context->values<float>(ops::dropout(*context, x, d));
  };
  const auto base = run({0.3f, 1, 1, 1});
  double mean = 0;
  for (const float v : base) mean += static_cast<double>(v) / count;
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_EQ(run({0.3f, 1, 1, 1}), base);
  EXPECT_NE(run({0.3f, 2, 1, 1}), base);
  EXPECT_NE(run({0.3f, 1, 2, 1}), base);
  EXPECT_NE(run({0.3f, 1, 1, 2}), base);
}

TEST(Dropout, ProbabilityIsChecked) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor x = context->zeros({4}, DType::f32);
  for (const float p : {-0.1f, 1.0f, 0.999999f, std::nanf("")}) {
    try {
      ops::dropout(*context, x, {p, 0, 0, 0});
      ADD_FAILURE() << p << " went through";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.origin(), "dropout");
    }
  }
  EXPECT_TRUE(same_tensor(ops::dropout(*context, x, {0, 0, 0, 0}), x));
}

}  // namespace
}  // namespace trafo
