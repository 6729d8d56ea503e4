// The tape: where gradients go, what may be aliased, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/autograd/gradcheck.h"
#include "engine/core/numeric/philox.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/context.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using Values = std::vector<double>;

class Autograd : public ::testing::Test {
 protected:
  Tensor leaf(const Values& values, const Shape& shape) {
    Tensor tensor = context_->from_values<double>(values, shape);
    set_requires_grad(tensor, true);
    return tensor;
  }
  Tensor leaf(const Values& values) { return leaf(values, {static_cast<int64_t>(values.size())}); }
  Tensor constant(const Values& values) {
    return context_->from_values<double>(values, {static_cast<int64_t>(values.size())});
  }
  Values values(const Tensor& tensor) { return context_->values<double>(tensor); }
  Values grad(const Tensor& tensor) { return values(grad_of(tensor)); }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  Context& c() { return *context_; }
};

TEST_F(Autograd, GradientsOfASharedParameterAddUp) {
  const Tensor w = leaf({2, 3}), x = constant({5, 7}), y = constant({11, 13});
  const Tensor loss =
      ops::sum(c(), ops::add(c(), ops::multiply(c(), w, x), ops::multiply(c(), w, y)));
  c().backward(loss);
  EXPECT_EQ(grad(w), (Values{16, 20}));
  c().backward(ops::sum(c(), ops::multiply(c(), w, x)));  // without zero_grad: added
  EXPECT_EQ(grad(w), (Values{21, 27}));
}

TEST_F(Autograd, Diamond) {
  const Tensor x = leaf({3});
  const Tensor y = ops::multiply(c(), x, x);                                        // 9
  const Tensor loss = ops::multiply(c(), ops::scale(c(), y, 2), ops::exp(c(), y));  // 2y e^y
  c().backward(loss);
  const double expected = 6 * (2 * std::exp(9.0) + 18 * std::exp(9.0));
  EXPECT_NEAR(grad(x)[0] / expected, 1, 1e-14);
}

TEST_F(Autograd, OneTensorOnBothSides) {
  const Tensor x = leaf({2, 3});
  const Tensor upstream = constant({5, 7});
  c().backward(ops::add(c(), x, x), upstream);
  EXPECT_EQ(grad(x), (Values{10, 14}));
  EXPECT_EQ(values(upstream), (Values{5, 7}));

  const Tensor inner = ops::shift(c(), leaf({0, 0}), 1);
  const Tensor leaf2 = leaf({2, 3});
  const Tensor z = ops::shift(c(), leaf2, 0);  // the same, not on a leaf
  c().backward(ops::add(c(), ops::add(c(), z, z), inner), upstream);
  EXPECT_EQ(grad(leaf2), (Values{10, 14}));
  EXPECT_EQ(values(upstream), (Values{5, 7}));
}

TEST_F(Autograd, AnUpstreamGradientSharedByAliasesIsNotWrittenTo) {
  const Tensor a = leaf({1, 2, 3, 4}, {4}), b = leaf({5, 6, 7, 8}, {2, 2});
  const Tensor inner_a = ops::scale(c(), a, 1), inner_b = ops::scale(c(), b, 1);
  // The gradients of the sum, of its reshape and of both terms are one buffer at first.
  const Tensor flat = ops::reshape(c(), inner_b, {4});
  const Tensor sum = ops::add(c(), inner_a, flat);
  const Tensor square = ops::reshape(c(), sum, {2, 2});
  const Tensor more = ops::add(c(), square, ops::reshape(c(), ops::scale(c(), inner_a, 3), {2, 2}));
  const Tensor upstream = c().from_values<double>(Values{1, 10, 100, 1000}, {2, 2});
  c().backward(more, upstream);
  EXPECT_EQ(grad(a), (Values{4, 40, 400, 4000}));
  EXPECT_EQ(grad(b), (Values{1, 10, 100, 1000}));
  EXPECT_EQ(values(upstream), (Values{1, 10, 100, 1000}));
}

TEST_F(Autograd, TheGradientOfALeafOwnsItsMemory) {
  const Tensor x = leaf({1, 2});
  Tensor upstream = constant({3, 4});
  c().backward(x, upstream);
  c().backward(ops::add(c(), x, x), upstream);
  upstream.data<double>()[0] = 99;
  EXPECT_EQ(grad(x), (Values{9, 12}));

  // Roots of one walk that are one leaf.
  const Tensor y = leaf({1});
  const Tensor roots[] = {y, y};
  const Tensor seeds[] = {constant({2}), constant({5})};
  c().tape().backward(c(), roots, seeds);
  EXPECT_EQ(grad(y), Values{7});
  EXPECT_EQ(values(seeds[0]), Values{2});
}

TEST_F(Autograd, OneKernelMayWriteTwoGradientsOfOneTensor) {
  // f(p, q) = 2p + 3q, differentiated by one function that fetches both buffers before it writes
  // any.
  const auto f = [this](const Tensor& p, const Tensor& q) {
    Tensor y = c().zeros(p.shape(), DType::f64);
    c().record("f", {p, q}, {&y}, {}, [](Backward& b) {
      const GradTarget first = b.target(0), second = b.target(1);
      const double g = b.grad_output().data<double>()[0];
      double& dp = first.buffer.data<double>()[0];
      double& dq = second.buffer.data<double>()[0];
      dq = (second.accumulate ? dq : 0) + 3 * g;
      dp = (first.accumulate ? dp : 0) + 2 * g;
    });
    return y;
  };
  const Tensor x = leaf({1});
  c().backward(f(x, x));
  EXPECT_EQ(grad(x), Values{5});
  c().backward(f(x, x));
  EXPECT_EQ(grad(x), Values{10});
  const Tensor y = leaf({1});
  const Tensor inner = ops::scale(c(), y, 1);
  c().backward(ops::add(c(), f(inner, inner), inner));
  EXPECT_EQ(grad(y), Values{6});
}

TEST_F(Autograd, NoGradAndDetachCutTheGraph) {
  const Tensor x = leaf({2});
  {
    NoGrad no_grad(c());
    EXPECT_FALSE(requires_grad(ops::multiply(c(), x, x)));
  }
  const Tensor y = ops::multiply(c(), x, x);
  EXPECT_TRUE(requires_grad(y));
  EXPECT_FALSE(requires_grad(ops::exp(c(), y.detach())));
  c().backward(ops::multiply(c(), y, y.detach()));  // y is a constant on one side
  EXPECT_EQ(grad(x), Values{16});
  EXPECT_EQ(c().tape().size(), 0u);
}

TEST_F(Autograd, UnusedOutputsAndBranchesGetNoGradient) {
  const Tensor x = leaf({2}), y = leaf({3});
  const Tensor unused = ops::exp(c(), y);
  c().backward(ops::scale(c(), x, 4));
  EXPECT_EQ(grad(x), Values{4});
  EXPECT_FALSE(grad_of(y).defined());
}

TEST_F(Autograd, BackwardChecksItsUpstreamGradient) {
  const Tensor x = leaf({1, 2});
  EXPECT_EQ(code_of([&] { c().backward(ops::scale(c(), x, 2)); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { c().backward(ops::scale(c(), x, 2), constant({1})); }),
            ErrorCode::shape_mismatch);
  const Tensor strided = c().zeros({4}, DType::f64).as_strided({2}, {2}, 0);
  EXPECT_EQ(code_of([&] { c().backward(ops::scale(c(), x, 2), strided); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { c().backward(constant({1})); }), ErrorCode::invalid_argument);
}

TEST_F(Autograd, AConsumedGraphIsRefused) {
  const Tensor x = leaf({2});
  const Tensor y = ops::multiply(c(), x, x);
  const Tensor z = ops::scale(c(), y, 3);
  c().backward(z);
  EXPECT_EQ(code_of([&] { c().backward(z); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::scale(c(), y, 2); }), ErrorCode::invalid_argument);
  EXPECT_NO_THROW(ops::scale(c(), y.detach(), 2));
  EXPECT_EQ(grad(x), Values{12});
}

TEST_F(Autograd, AnErrorInBackwardConsumesTheGraphAndRestoresTheContext) {
  const Tensor x = leaf({2});
  const Tensor before = ops::scale(c(), x, 2);
  Tensor y = c().zeros({1}, DType::f64);
  c().record("broken", {before}, {&y}, {},
             [](Backward&) { fail(ErrorCode::non_finite, "broken", "as planned"); });
  EXPECT_EQ(code_of([&] { c().backward(y); }), ErrorCode::non_finite);
  EXPECT_TRUE(c().recording());
  EXPECT_EQ(c().tape().size(), 0u);
  EXPECT_EQ(code_of([&] { c().backward(y); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::scale(c(), before, 2); }), ErrorCode::invalid_argument);
}

TEST_F(Autograd, AnOpWithoutBackwardIsUnsupportedWhenRecorded) {
  const Tensor x = leaf({2});
  Tensor y = c().zeros({1}, DType::f64);
  try {
    c().record("argmax", {x}, {&y}, {}, nullptr);
    FAIL() << "recorded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.origin(), "argmax");
  }
  const Tensor fixed = constant({1});
  EXPECT_NO_THROW(c().record("argmax", {fixed}, {&y}, {}, nullptr));
  NoGrad no_grad(c());
  EXPECT_NO_THROW(c().record("argmax", {x}, {&y}, {}, nullptr));
}

TEST_F(Autograd, OnlyFloatingPointTensorsHaveGradients) {
  Tensor tokens = c().zeros({2}, DType::i32);
  EXPECT_EQ(code_of([&] { set_requires_grad(tokens, true); }), ErrorCode::dtype_mismatch);
  const Tensor x = leaf({2});
  c().record("op with an integer output", {x}, {&tokens}, {}, [](Backward&) {});
  EXPECT_FALSE(requires_grad(tokens));
  Tensor y = ops::scale(c(), x, 2);
  EXPECT_EQ(code_of([&] { set_requires_grad(y, true); }), ErrorCode::invalid_argument);
}

TEST_F(Autograd, BoundGradientsLandInTheirBuffer) {
  const Tensor workspace = c().zeros({5}, DType::f64);
  const Tensor x = leaf({2, 3});
  const Tensor buffer = workspace.as_strided({2}, {1}, 2);
  workspace.data<double>()[2] = 77;  // what was there does not count
  bind_grad(x, buffer);
  EXPECT_FALSE(grad_of(x).defined());
  const Tensor upstream = constant({1, 2});
  c().backward(ops::scale(c(), x, 3), upstream);
  EXPECT_EQ(values(workspace), (Values{0, 0, 3, 6, 0}));
  c().backward(ops::shift(c(), x, 1), upstream);
  EXPECT_EQ(values(workspace), (Values{0, 0, 4, 8, 0}));
  zero_grad(x);
  EXPECT_FALSE(grad_of(x).defined());
  c().backward(ops::shift(c(), x, 1), upstream);
  EXPECT_EQ(values(workspace), (Values{0, 0, 1, 2, 0}));
  EXPECT_EQ(grad_of(x).raw(), buffer.raw());

  EXPECT_EQ(code_of([&] { bind_grad(x, workspace); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { bind_grad(constant({1, 2}), buffer); }), ErrorCode::invalid_argument);
}

TEST_F(Autograd, NoIntermediateOutlivesBackward) {
  const Tensor x = leaf(Values(1000, 0.5));
  c().backward(ops::sum(c(), ops::exp(c(), ops::tanh(c(), x))));
  const auto baseline = c().backend().memory_stats().allocated_bytes;
  for (int i = 0; i < 3; ++i) c().backward(ops::sum(c(), ops::exp(c(), ops::tanh(c(), x))));
  EXPECT_EQ(c().backend().memory_stats().allocated_bytes, baseline);
}

// A value that could be computed again keeps the op's inputs, until backward has run.
TEST_F(Autograd, AResultThatIsKeptDoesNotKeepWhatItWasMadeFrom) {
  const StepScope scope(c(), &StepContext::recompute, Recompute::selective);
  const Tensor x = leaf(Values(1000, 0.5), {10, 100});
  const auto bytes = [&] { return c().backend().memory_stats().allocated_bytes; };
  Tensor kept;
  const auto run = [&] {
    kept = {};
    kept = ops::bias_act_dropout(c(), ops::tanh(c(), x), {}, Activation::gelu, {});
    EXPECT_TRUE(kept.variable()->recompute);
    c().backward(ops::sum(c(), kept));
    EXPECT_FALSE(kept.variable()->recompute);
  };
  run();
  const auto with_result = bytes();
  const auto result = static_cast<int64_t>(kept.bytes());
  kept = {};
  EXPECT_LT(with_result - bytes(), 2 * result);
}

TEST_F(Autograd, GradcheckCatchesAWrongBackward) {
  const auto square = [](double factor) {
    return [factor](Context& context, const std::vector<Tensor>& in) {
      Tensor y = context.empty(in[0].shape(), DType::f64);
      const double x = in[0].data<double>()[0];
      y.data<double>()[0] = x * x;
      context.record("square", {in[0]}, {&y}, {}, [factor, x](Backward& b) {
        const GradTarget t = b.target(0);
        double& dx = t.buffer.data<double>()[0];
        dx = (t.accumulate ? dx : 0) + factor * x * b.grad_output().data<double>()[0];
      });
      return std::vector<Tensor>{y};
    };
  };
  const std::vector<Tensor> inputs{constant({1.5})};
  const GradcheckResult right = gradcheck(c(), square(2), inputs);
  EXPECT_TRUE(right.ok) << right.message;
  EXPECT_EQ(right.checked, 1);
  EXPECT_FALSE(gradcheck(c(), square(2.01), inputs).ok);
  EXPECT_FALSE(gradcheck(c(), square(std::nan("")), inputs).ok);
}

TEST_F(Autograd, GradcheckTellsTheWorstErrorAndRestoresTheInputs) {
  // The gradient of x^2 that is 1 % too large.
  const auto square = [](Context& context, const std::vector<Tensor>& in) {
    const int64_t count = in[0].numel();
    Tensor y = context.empty(in[0].shape(), DType::f64);
    std::vector<double> x(in[0].data<double>(), in[0].data<double>() + count);
    for (int64_t i = 0; i < count; ++i) y.data<double>()[i] = x[i] * x[i];
    context.record("square", {in[0]}, {&y}, {}, [x](Backward& b) {
      const GradTarget t = b.target(0);
      for (size_t i = 0; i < x.size(); ++i) {
        double& dx = t.buffer.data<double>()[i];
        dx = (t.accumulate ? dx : 0) + 2.02 * x[i] * b.grad_output().data<double>()[i];
      }
    });
    return std::vector<Tensor>{y};
  };
  const Values values{0.5, 2, 1};
  const Tensor input = constant(values);
  const GradcheckOptions options;
  const GradcheckResult result = gradcheck(c(), square, {input}, options);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.checked, 3);
  PhiloxStream upstream(options.seed, 0);
  double worst = 0;
  for (const double x : values)
    worst = std::max(worst, std::abs(upstream.uniform(-1, 1)) * x * (0.02 - 2 * options.rtol));
  EXPECT_NEAR(result.worst_error, worst, 1e-8);
  EXPECT_EQ(c().values<double>(input), values);
}

}  // namespace
}  // namespace trafo
