#include "engine/ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

class MatmulTest : public ::testing::Test {
 protected:
  void expect_error_from(ErrorCode code, const char* origin, const std::function<void()>& fn) {
    try {
      fn();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.origin(), origin) << error.what();
    }
  }
  Context& c() { return *context_; }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
  InputMaker maker_{*context_, DType::f32, 1};
};

TEST_F(MatmulTest, AgreesWithTheDefinitionForStridedOperands) {
  const Tensor wide = maker_.uniform({37, 90});
  const Tensor a = ops::slice(c(), wide, 1, 11, 61);                     // [37, 50], rows 90 apart
  const Tensor b = ops::transpose(c(), maker_.uniform({23, 50}), 0, 1);  // [50, 23], columns dense
  const Tensor scattered = ops::transpose(c(), maker_.uniform({23, 50, 2}), 0, 1);
  const Tensor b2 = scattered.as_strided({50, 23}, {2, 100}, 0);  // neither is dense
  for (const Tensor& right : {b, b2}) {
    const Tensor y = ops::matmul(c(), a, right);
    double worst = 0;
    for (int64_t i = 0; i < 37; ++i)
      for (int64_t j = 0; j < 23; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 50; ++k)
          sum += static_cast<double>(wide.data<float>()[i * 90 + 11 + k]) *
                 static_cast<double>(
                     right.data<float>()[k * right.strides()[0] + j * right.strides()[1]]);
        worst = std::max(worst, std::abs(sum - static_cast<double>(y.data<float>()[i * 23 + j])));
      }
    EXPECT_LT(worst, 1e-5);
  }
}

TEST_F(MatmulTest, LinearReadsAPartOfRowsInPlace) {
  const Tensor x = ops::slice(c(), maker_.uniform({4, 6, 24}), 2, 8, 16);
  const Tensor w = maker_.uniform({5, 8}), bias = maker_.uniform({5});
  c().backend().reset_peak_memory();
  const int64_t before = c().backend().memory_stats().peak_bytes;
  const Tensor y = ops::linear(c(), x, w, bias);
  EXPECT_LT(c().backend().memory_stats().peak_bytes - before, 4 * 6 * 8 * 4 + 1);
  const Tensor copied = ops::linear(c(), ops::contiguous(c(), x), w, bias);
  EXPECT_EQ(y.shape(), (Shape{4, 6, 5}));
  EXPECT_EQ(c().values<float>(y), c().values<float>(copied));
}

TEST_F(MatmulTest, Errors) {
  const Tensor m23 = maker_.uniform({2, 3}), m45 = maker_.uniform({4, 5}), v3 = maker_.uniform({3});
  expect_error_from(ErrorCode::shape_mismatch, "matmul", [&] { ops::matmul(c(), m23, m45); });
  expect_error_from(ErrorCode::shape_mismatch, "matmul", [&] { ops::matmul(c(), m45, v3); });
  expect_error_from(ErrorCode::shape_mismatch, "matmul",
                    [&] { ops::matmul(c(), m23, maker_.uniform({})); });
  expect_error_from(ErrorCode::shape_mismatch, "matmul",
                    [&] { ops::matmul(c(), m23, v3, {.transpose_b = true}); });
  expect_error_from(ErrorCode::shape_mismatch, "matmul", [&] {
    ops::matmul(c(), maker_.uniform({2, 2, 3}), maker_.uniform({3, 3, 2}));
  });
  expect_error_from(ErrorCode::dtype_mismatch, "matmul", [&] {
    ops::matmul(c(), m23, c().zeros({3, 2}, DType::f64));
  });
  expect_error_from(ErrorCode::shape_mismatch, "linear", [&] { ops::linear(c(), m23, m45); });
  expect_error_from(ErrorCode::shape_mismatch, "linear", [&] { ops::linear(c(), m23, v3); });
  expect_error_from(ErrorCode::shape_mismatch, "linear", [&] { ops::linear(c(), m23, m23, v3); });
  expect_error_from(ErrorCode::dtype_mismatch, "linear", [&] {
    ops::linear(c(), c().zeros({2, 3}, DType::bf16), m23);
  });
  expect_error_from(ErrorCode::invalid_argument, "linear", [&] { ops::linear(c(), m23, {}); });
}

}  // namespace
}  // namespace trafo::testing
