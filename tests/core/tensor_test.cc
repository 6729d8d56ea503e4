#include "engine/core/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

constexpr Device kCpu{DeviceKind::cpu, 0};

std::shared_ptr<Storage> floats(int64_t count) {
  return std::make_shared<Storage>(nullptr, kCpu, nullptr, static_cast<size_t>(count) * 4);
}

Tensor view(int64_t capacity, Shape shape, Strides strides, int64_t offset) {
  return Tensor(floats(capacity), DType::f32, shape, strides, offset);
}

TEST(Tensor, ContiguityIgnoresDimensionsOfOne) {
  EXPECT_TRUE(view(6, {2, 3}, {3, 1}, 0).is_contiguous());
  EXPECT_TRUE(view(6, {2, 1, 3}, {3, 99, 1}, 0).is_contiguous());
  EXPECT_TRUE(view(6, {0, 3}, {7, 5}, 0).is_contiguous());
  EXPECT_TRUE(view(1, {}, {}, 0).is_contiguous());
  EXPECT_FALSE(view(6, {3, 2}, {1, 3}, 0).is_contiguous());
  EXPECT_FALSE(view(8, {2, 3}, {4, 1}, 0).is_contiguous());
}

TEST(Tensor, ViewsStayInsideTheirStorage) {
  EXPECT_NO_THROW(view(6, {2, 2}, {3, 1}, 1));
  EXPECT_EQ(code_of([] { view(6, {2, 3}, {3, 1}, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { view(6, {2, 3}, {4, 1}, 0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { view(6, {1}, {1}, -1); }), ErrorCode::invalid_argument);
  EXPECT_NO_THROW(view(6, {6}, {-1}, 5));  // backwards, to the first element
  EXPECT_EQ(code_of([] { view(6, {6}, {-1}, 4); }), ErrorCode::invalid_argument);
  EXPECT_NO_THROW(view(1, {1000}, {0}, 0));  // a repeated element
}

TEST(Tensor, SizesThatOverflowAreErrors) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(code_of([] { view(6, {huge, 4}, {1, 1}, 0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { view(6, {3}, {huge}, 0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { view(6, {-1}, {1}, 0); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([] { view(6, {2, 3}, {1}, 0); }), ErrorCode::shape_mismatch);
}

TEST(Tensor, ReshapedNeedsTheSameCountAndDenseElements) {
  const Tensor x = view(6, {2, 3}, {3, 1}, 0);
  EXPECT_EQ(x.reshaped({3, 2}).strides(), (Strides{2, 1}));
  EXPECT_EQ(code_of([&] { x.reshaped({4}); }), ErrorCode::shape_mismatch);
  const Tensor strided = view(6, {3, 2}, {1, 3}, 0);
  EXPECT_EQ(code_of([&] { strided.reshaped({6}); }), ErrorCode::invalid_argument);
}

TEST(Tensor, ViewsShareStorageAndDropHistory) {
  const auto context = make_context(kCpu, 1);
  const float values[] = {1, 2, 3, 4};
  Tensor x = context->from_values<float>(values, {4});
  EXPECT_FALSE(x.is_shared());
  set_requires_grad(x, true);
  const Tensor y = x.as_strided({2}, {2}, 1);
  EXPECT_TRUE(x.is_shared());
  EXPECT_EQ(y.data<float>()[0], 2);
  EXPECT_EQ(y.variable(), nullptr);
  EXPECT_EQ(x.detach().variable(), nullptr);
  y.data<float>()[0] = 7;
  EXPECT_EQ(x.data<float>()[1], 7);
  const Tensor same = x;
  EXPECT_TRUE(same_tensor(same, x));
  EXPECT_FALSE(same_tensor(x.detach(), x));
  EXPECT_EQ(code_of([&] { (void)x.data<double>(); }), ErrorCode::dtype_mismatch);
}

TEST(Tensor, HostCopiesCheckSizes) {
  const auto context = make_context(kCpu, 1);
  const float values[] = {1, 2, 3};
  EXPECT_EQ(code_of([&] { context->from_host(values, 12, {4}, DType::f32); }),
            ErrorCode::shape_mismatch);
  const Tensor x = context->from_values<float>(values, {3});
  float out[3];
  EXPECT_EQ(code_of([&] { context->to_host(x, out, 8); }), ErrorCode::shape_mismatch);
  context->to_host(x, out, 12);
  EXPECT_EQ(out[2], 3);
  EXPECT_EQ(code_of([&] { context->item(x); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(context->item(context->scalar(1.5, {}, DType::bf16)), 1.5);
}

}  // namespace
}  // namespace trafo
