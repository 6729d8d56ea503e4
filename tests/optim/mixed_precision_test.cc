// bfloat16 parameters with float32 masters and gradients. The CPU only stores bfloat16, which is
// enough for all but the kernels.
#include <gtest/gtest.h>

#include "engine/core/numeric/philox.h"
#include "engine/nn/parameter_store.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/optim/adamw/adamw.h"

namespace trafo {
namespace {

class MixedPrecision : public ::testing::Test {
 protected:
  void declare(ParameterStore& store) {
    first_ = store.declare("first", {3, 5}, Init::normal(1));
    second_ = store.declare("second", {7}, Init::ones());
  }
  std::vector<float> floats(const Tensor& x) {
    return context_->values<float>(x.dtype() == DType::f32 ? x
                                                           : ops::cast(*context_, x, DType::f32));
  }
  static std::vector<float> rounded(std::vector<float> values) {
    for (float& v : values) v = BFloat16::from_float(v).to_float();
    return values;
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
  ParamId first_ = kNoParam, second_ = kNoParam;
};

TEST_F(MixedPrecision, ValuesAreTheMasterRounded) {
  ParameterStore mixed, plain;
  declare(mixed);
  declare(plain);
  mixed.allocate(*context_, DType::bf16, 9);
  plain.allocate(*context_, DType::f32, 9);
  EXPECT_FALSE(plain.has_master());
  ASSERT_TRUE(mixed.has_master());
  EXPECT_EQ(mixed.dtype(), DType::bf16);
  EXPECT_EQ(floats(mixed.master()), floats(plain.flat()));
  EXPECT_EQ(floats(mixed.flat()), rounded(floats(plain.flat())));
  EXPECT_NE(floats(mixed.flat()), floats(plain.flat()));
  EXPECT_EQ(mixed.flat_grad().dtype(), DType::f32);

  const std::vector<float> values{1.001f, 2.003f, 3.005f, 4.007f, 5.009f, 6.011f, 7.013f};
  mixed.set_value(*context_, second_, values.data(), values.size() * sizeof(float));
  EXPECT_EQ(floats(mixed.value(second_)), rounded(values));
  EXPECT_EQ(floats(mixed.flat()), rounded(floats(mixed.master())));
}

TEST_F(MixedPrecision, GradientsOfParametersAreSummedInFloat32) {
  ParameterStore store;
  declare(store);
  store.allocate(*context_, DType::bf16, 9);
  const Tensor x = store.value(second_).detach();
  Tensor p = x;
  set_requires_grad(p, true);
  bind_grad(p, context_->zeros({7}, DType::f32));
  // 1 + 2^-10 has no bfloat16; two such gradients, one of which needs a separate buffer.
  const std::vector<float> factor(7, 1 + 0x1p-10f);
  const Tensor f = context_->from_values<float>(factor, {7});
  const Tensor wide = ops::cast(*context_, p, DType::f32);
  context_->backward(ops::sum(*context_, ops::multiply(*context_, wide, f)));
  EXPECT_EQ(floats(grad_of(p)), factor);
  context_->backward(
      ops::sum(*context_, ops::multiply(*context_, ops::cast(*context_, p, DType::f32), f)));
  EXPECT_EQ(floats(grad_of(p))[3], 2 * factor[3]);
}

TEST_F(MixedPrecision, GradientsInAnotherDtypeAreConverted) {
  Tensor p = ops::cast(*context_, context_->zeros({4}, DType::f32), DType::bf16);
  set_requires_grad(p, true);
  const Tensor workspace = context_->zeros({4}, DType::f32);
  bind_grad(p, workspace);
  Tensor y = context_->zeros({4}, DType::bf16);
  const auto record = [&] {
    Tensor out = context_->zeros({1}, DType::f32);
    context_->record("op", {p, p, p}, {&out}, {}, [&](Backward& b) {
      EXPECT_TRUE(b.unit_grad_output());
      EXPECT_EQ(b.grad_dtype(0), DType::f32);
      const auto write = [&](const GradTarget& target, double value) {
        const std::vector<double> values(4, value);
        const Tensor source = context_->from_doubles(values, {4}, target.buffer.dtype());
        EXPECT_FALSE(target.accumulate && target.buffer.dtype() == DType::bf16);
        if (target.accumulate) return b.add(0, source);
        context_->backend().copy(target.buffer.raw(), source.raw(), source.bytes());
      };
      const GradTarget kernel = b.target(0);  // what a bfloat16 kernel writes
      EXPECT_EQ(kernel.buffer.dtype(), DType::bf16);
      write(kernel, 2);
      write(b.target(1, DType::f32), 0x1p-10);
      b.add(2, context_->from_doubles(std::vector<double>(4, 1), {4}, DType::bf16));
    });
    return out;
  };
  context_->backward(record());
  EXPECT_EQ(floats(workspace), std::vector<float>(4, 3 + 0x1p-10f));
}

TEST_F(MixedPrecision, AnUpstreamGradientIsKnownToBeOneOnlyWhereItIs) {
  Tensor p = context_->zeros({1}, DType::f32);
  set_requires_grad(p, true);
  bool unit = false;
  const auto record = [&] {
    Tensor out = context_->zeros({1}, DType::f32);
    context_->record("op", {p}, {&out}, {}, [&](Backward& b) { unit = b.unit_grad_output(); });
    return out;
  };
  context_->backward(record());
  EXPECT_TRUE(unit);
  context_->backward(record(), context_->scalar(1, {1}, DType::f32));
  EXPECT_FALSE(unit);
  const Tensor out = record();
  context_->backward(ops::add(*context_, out, out));
  EXPECT_FALSE(unit);
}

TEST_F(MixedPrecision, AdamWWritesTheRoundedCopy) {
  constexpr int64_t kCount = 70001;
  PhiloxStream random(3, 0);
  std::vector<float> start(kCount), gradient(kCount);
  for (float& v : start) v = static_cast<float>(random.uniform(-1, 1));
  for (float& v : gradient) v = static_cast<float>(random.uniform(-1, 1));
  const Tensor p = context_->from_values<float>(start, {kCount});
  const Tensor q = context_->from_values<float>(start, {kCount});
  const Tensor g = context_->from_values<float>(gradient, {kCount});
  const Tensor copy = context_->zeros({kCount}, DType::bf16);
  AdamW mixed(*context_, {p, g, copy}), plain(*context_, {q, g});
  for (int i = 0; i < 2; ++i) {
    mixed.step(1e-2);
    plain.step(1e-2);
  }
  EXPECT_EQ(floats(p), floats(q));
  EXPECT_EQ(floats(copy), rounded(floats(p)));
  EXPECT_THROW(AdamW(*context_, {p, g, context_->zeros({kCount}, DType::f32)}), Error);
  EXPECT_THROW(AdamW(*context_, {p, g, context_->zeros({3}, DType::bf16)}), Error);
}

TEST_F(MixedPrecision, TheLossCanBeScaled) {
  const std::vector<float> logits{1, 2, 3, 3, 1, 0};
  Tensor x = context_->from_values<float>(logits, {2, 3});
  set_requires_grad(x, true);
  const Tensor labels = context_->from_values<int32_t>(std::vector<int32_t>{1, 2}, {2});
  ops::CrossEntropyOptions options;
  const auto plain = ops::cross_entropy(*context_, x, labels, options);
  context_->backward(plain.loss);
  const auto gradient = floats(grad_of(x));
  zero_grad(x);
  options.scale = 0.25;
  const auto scaled = ops::cross_entropy(*context_, x, labels, options);
  context_->backward(scaled.loss);
  EXPECT_FLOAT_EQ(static_cast<float>(context_->item(scaled.loss)),
                  static_cast<float>(context_->item(plain.loss) / 4));
  EXPECT_FLOAT_EQ(static_cast<float>(context_->item(scaled.nll)),
                  static_cast<float>(context_->item(plain.nll) / 4));
  const auto quarter = floats(grad_of(x));
  for (size_t i = 0; i < quarter.size(); ++i) EXPECT_NEAR(quarter[i], gradient[i] / 4, 1e-8);
  options.reduction = Reduction::none;
  EXPECT_THROW(ops::cross_entropy(*context_, x, labels, options), Error);
}

}  // namespace
}  // namespace trafo
