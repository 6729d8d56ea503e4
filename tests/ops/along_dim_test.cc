#include "engine/ops/along_dim/along_dim.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

void check_orders(Context& context) {
  const Tensor x = context.from_values<float>(Floats{3, 1, 3, std::nanf(""), -2, 3, 0, 3}, {2, 4});
  EXPECT_EQ(context.values<int32_t>(ops::argmax(context, x, -1)), (Ints{3, 1}));
  EXPECT_EQ(context.values<int32_t>(ops::argmin(context, x, -1)), (Ints{3, 0}));
  EXPECT_EQ(context.values<int32_t>(ops::argmax(context, x, 0)), (Ints{0, 1, 0, 0}));
  EXPECT_EQ(ops::argmax(context, x, 0, true).shape(), (Shape{1, 4}));
  const ops::Largest top = ops::top_k_of(context, x, 3, 1);
  EXPECT_EQ(context.values<int32_t>(top.ids), (Ints{3, 0, 2, 1, 3, 2}));
  const Floats values = context.values<float>(top.values);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(Floats(values.begin() + 1, values.end()), (Floats{3, 3, 3, 3, 0}));
  const Tensor n = context.from_values<int32_t>(Ints{(1 << 24) + 1, 1 << 24, -5}, {3});
  EXPECT_EQ(context.values<int32_t>(ops::argmax(context, n, 0)), (Ints{0}));
  EXPECT_EQ(context.values<int32_t>(ops::cumsum(context, n, 0)),
            (Ints{(1 << 24) + 1, (1 << 25) + 1, (1 << 25) - 4}));
}

// The last element that leads to a place stays, and alone gets the gradient.
void check_duplicates(Context& context) {
  Tensor x = context.from_values<float>(Floats{1, 2, 3}, {3});
  Tensor src = context.from_values<float>(Floats{10, 20, 30, 40}, {4});
  const Tensor index = context.from_values<int32_t>(Ints{2, 0, 2, 0}, {4});
  set_requires_grad(x, true);
  set_requires_grad(src, true);
  const Tensor y = ops::scatter(context, x, 0, index, src);
  EXPECT_EQ(context.values<float>(y), (Floats{40, 2, 30}));
  context.backward(y, context.from_values<float>(Floats{5, 6, 7}, {3}));
  EXPECT_EQ(context.values<float>(grad_of(src)), (Floats{0, 0, 7, 5}));
  EXPECT_EQ(context.values<float>(grad_of(x)), (Floats{0, 6, 0}));
  EXPECT_EQ(context.values<float>(ops::scatter_add(context, x, 0, index, src)),
            (Floats{61, 2, 43}));
}

TEST(AlongDim, Orders) {
  check_orders(*make_context({DeviceKind::cpu, 0}, 1));
}
TEST(AlongDim, Duplicates) {
  check_duplicates(*make_context({DeviceKind::cpu, 0}, 1));
}

class AlongDimOnCuda : public testing::CudaTest {};

TEST_F(AlongDimOnCuda, Orders) {
  check_orders(*context_);
}
TEST_F(AlongDimOnCuda, Duplicates) {
  check_duplicates(*context_);
}
TEST_F(AlongDimOnCuda, AnIndexOutOfRangeGivesNaN) {
  const Tensor x = context_->from_values<float>(Floats{1, 2, 3}, {3});
  const Tensor src = context_->from_values<float>(Floats{10, 20}, {2});
  const Tensor index = context_->from_values<int32_t>(Ints{1, 3}, {2});
  const Floats gathered = context_->values<float>(ops::gather(*context_, x, 0, index));
  EXPECT_EQ(gathered[0], 2);
  EXPECT_TRUE(std::isnan(gathered[1]));
  for (const Tensor& y :
       {ops::scatter_add(*context_, x, 0, index, src), ops::scatter(*context_, x, 0, index, src)}) {
    EXPECT_TRUE(std::isnan(context_->values<float>(y)[0]));
    EXPECT_EQ(context_->values<float>(y)[2], 3);
  }
}

TEST(AlongDim, Errors) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto expect = [&](ErrorCode code, const char* text, auto run) {
    try {
      run(*context);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(error.message().find(text), std::string::npos) << error.what();
    }
  };
  const Tensor x = context->zeros({2, 3}, DType::f32), empty = context->zeros({2, 0}, DType::f32);
  const Tensor index = context->zeros({2, 1}, DType::i32), src = context->zeros({2, 2}, DType::f32);
  const Tensor far = context->from_values<int32_t>(Ints{0, 3}, {2, 1});
  const Tensor negative = context->from_values<int32_t>(Ints{0, -1}, {2, 1});
  expect(ErrorCode::invalid_argument, "element 1 of index is 3",
         [&](Context& c) { ops::gather(c, x, 1, far); });
  expect(ErrorCode::invalid_argument, "is -1", [&](Context& c) { ops::gather(c, x, 1, negative); });
  expect(ErrorCode::invalid_argument, "element 1 of index is 3", [&](Context& c) {
    ops::scatter_add(c, x, 1, far, context->zeros({2, 1}, DType::f32));
  });
  expect(ErrorCode::dtype_mismatch, "index must be int32",
         [&](Context& c) { ops::gather(c, x, 1, x); });
  expect(ErrorCode::shape_mismatch, "must have the rank of x", [&](Context& c) {
    ops::gather(c, x, 1, context->zeros({3, 1}, DType::i32));
  });
  expect(ErrorCode::shape_mismatch, "must have the shape of index",
         [&](Context& c) { ops::scatter(c, x, 1, index, src); });
  expect(ErrorCode::invalid_argument, "dimension 2",
         [&](Context& c) { ops::gather(c, x, 2, index); });
  expect(ErrorCode::invalid_argument, "is empty", [&](Context& c) { ops::argmax(c, empty, 1); });
  expect(ErrorCode::invalid_argument, "k must be 1 to 3",
         [&](Context& c) { ops::top_k_of(c, x, 4, 1); });
}

}  // namespace
}  // namespace trafo
