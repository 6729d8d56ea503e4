// Values that an op has saved for its backward must not change before that runs.
#include <gtest/gtest.h>

#include "engine/autograd/checkpoint.h"
#include "engine/nn/parameter_store.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"
#include "engine/optim/adamw/adamw.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using Values = std::vector<double>;

class SavedValues : public ::testing::Test {
 protected:
  Tensor constant(const Values& values, const Shape& shape) {
    return context_->from_values<double>(values, shape);
  }
  Tensor leaf(const Values& values, const Shape& shape) {
    Tensor tensor = constant(values, shape);
    set_requires_grad(tensor, true);
    return tensor;
  }
  // As trafo_tensor_write.
  void write(const Tensor& tensor, const Values& values) {
    ASSERT_EQ(values.size() * sizeof(double), tensor.bytes());
    context_->backend().copy_from_host(tensor.raw(), values.data(), tensor.bytes());
    tensor.mark_written();
  }
  Values grad(const Tensor& tensor) { return context_->values<double>(grad_of(tensor)); }
  // Backward fails, and the error names op and tensor.
  void expect_refused(const Tensor& loss, const std::string& op, const std::string& name) {
    const Error error = error_of([&] { c().backward(loss); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.origin(), op);
    EXPECT_TRUE(mentions(error, "backward of " + op + " needs " + name + ",")) << error.message();
    EXPECT_EQ(c().tape().size(), 0u);
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  Context& c() { return *context_; }
};

TEST_F(SavedValues, AWriteToAnInputIsRefused) {
  const Tensor w = leaf({1, 2}, {2}), x = constant({3, 4}, {2});
  Tensor loss = ops::sum(c(), ops::multiply(c(), w, x));
  write(x, {30, 40});
  expect_refused(loss, "multiply", "b");
  // The context lives on, and a write before forward does not count.
  loss = ops::sum(c(), ops::multiply(c(), w, x));
  c().backward(loss);
  EXPECT_EQ(grad(w), (Values{30, 40}));
}

TEST_F(SavedValues, EveryHandleOnTheMemoryCounts) {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2}), x = leaf({1, 1}, {1, 2});
  const auto loss = [&] { return ops::sum(c(), ops::linear(c(), x, w)); };
  Tensor last = loss();
  write(w.detach(), {5, 6, 7, 8});
  expect_refused(last, "linear", "weight");
  last = loss();
  write(w.reshaped({4}), {1, 2, 3, 4});
  expect_refused(last, "linear", "weight");
  last = loss();
  write(w.as_strided({2}, {1}, 2), {7, 8});
  expect_refused(last, "linear", "weight");
}

TEST_F(SavedValues, AWriteToAResultIsRefused) {
  const Tensor x = leaf({0, 1}, {2});
  const Tensor y = ops::exp(c(), x);
  write(y.detach(), {7, 7});
  expect_refused(ops::sum(c(), y), "exp", "its result");
}

// A sum needs none of its terms, a product with a constant not the other side.
TEST_F(SavedValues, WhatBackwardDoesNotReadMayChange) {
  const Tensor a = leaf({1, 2}, {2}), factor = constant({3, 4}, {2});
  const Tensor loss =
      ops::sum(c(), ops::scale(c(), ops::add(c(), ops::multiply(c(), a, factor), a), 2));
  write(a, {-1, -2});
  c().backward(loss);
  EXPECT_EQ(grad(a), (Values{8, 10}));

  const Tensor w = leaf({1, 2}, {1, 2}), x = constant({5, 6}, {1, 2});
  const Tensor product = ops::sum(c(), ops::matmul(c(), x, w, {.transpose_b = true}));
  write(w, {7, 8});
  c().backward(product);
  EXPECT_EQ(grad(w), (Values{5, 6}));
}

TEST_F(SavedValues, AnOptimizerStepCounts) {
  const Tensor w = leaf({1, 2}, {2}), x = leaf({3, 4}, {2});
  AdamW optimizer(c(), {w.detach(), c().zeros({2}, DType::f64)});
  const Tensor loss = ops::sum(c(), ops::multiply(c(), x, w));
  optimizer.step(0.1);
  expect_refused(loss, "multiply", "b");
}

TEST_F(SavedValues, ParametersOfAStoreCount) {
  ParameterStore store;
  const ParamId w = store.declare("w", {2}, Init::ones());
  store.allocate(c(), DType::f64, 1);
  const Tensor x = leaf({3, 4}, {2});
  const auto loss = [&] { return ops::sum(c(), ops::multiply(c(), x, store.value(w))); };
  Tensor last = loss();
  const Values values{5, 6};
  store.set_value(c(), w, values.data(), sizeof(double) * values.size());
  expect_refused(last, "multiply", "b");
  last = loss();
  store.follow_master(c());
  expect_refused(last, "multiply", "b");
}

TEST_F(SavedValues, AGradientThatGrowsIsAWrite) {
  const Tensor w = leaf({1, 2}, {2}), x = constant({3, 4}, {2});
  c().backward(ops::sum(c(), ops::multiply(c(), w, x)));
  const Tensor gradient = grad_of(w).detach(), other = leaf({1, 1}, {2});
  // The sum is walked first and adds to the gradient that the product has saved.
  const Tensor product = ops::multiply(c(), other, gradient);
  const Tensor loss = ops::sum(c(), ops::add(c(), product, ops::scale(c(), w, 2)));
  expect_refused(loss, "multiply", "b");
}

TEST_F(SavedValues, AGraphThatBackwardDoesNotReachIsNotChecked) {
  const Tensor w = leaf({1, 2}, {2}), x = constant({3, 4}, {2});
  const Tensor unused = ops::multiply(c(), w, x);
  write(x, {5, 6});
  c().backward(ops::sum(c(), ops::scale(c(), w, 3)));
  EXPECT_EQ(grad(w), (Values{3, 3}));
}

TEST_F(SavedValues, ARegionThatRunsAgainNeedsItsInputsAndParameters) {
  const Tensor w = leaf({1, 2}, {2}), x = leaf({3, 4}, {2});
  const auto loss = [&] {
    const RegionFn region = [&](Context& context, const std::vector<Tensor>& in) {
      return std::vector<Tensor>{ops::exp(context, ops::add(context, in[0], w))};
    };
    return ops::sum(c(), checkpoint(c(), {x}, region)[0]);
  };
  Tensor last = loss();
  write(w, {5, 6});
  expect_refused(last, "checkpoint", "a parameter of the region");
  last = loss();
  write(x, {7, 8});
  expect_refused(last, "checkpoint", "an input of the region");
  last = loss();
  c().backward(last);
  EXPECT_EQ(grad(w).size(), 2u);
}

}  // namespace
}  // namespace trafo
