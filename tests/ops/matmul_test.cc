#include "engine/ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
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

// ---- a context that multiplies in bfloat16 ----

struct PrecisionCase {
  const char* label;
  std::function<std::vector<Tensor>(InputMaker&)> inputs;
  std::function<Tensor(Context&, const std::vector<Tensor>&)> run;
  size_t exact_input = SIZE_MAX;  // whose gradient is no result of a GEMM
};

std::vector<PrecisionCase> precision_cases() {
  const auto matmul_of = [](bool a, bool b) {
    return [=](Context& context, const std::vector<Tensor>& x) {
      return ops::matmul(context, x[0], x[1], {.transpose_a = a, .transpose_b = b});
    };
  };
  return {
      {"linear",
       [](InputMaker& maker) {
         return std::vector{maker.uniform({61, 43}), maker.uniform({50, 43}), maker.uniform({50})};
       },
       [](Context& context, const std::vector<Tensor>& x) {
         return ops::linear(context, x[0], x[1], x[2]);
       },
       2},
      {"matmul",
       [](InputMaker& maker) {
         return std::vector{maker.uniform({3, 40, 31}), maker.uniform({3, 31, 36})};
       },
       matmul_of(false, false)},
      {"matmul of both transposed",
       [](InputMaker& maker) {
         return std::vector{maker.uniform({2, 31, 40}), maker.uniform({2, 36, 31})};
       },
       matmul_of(true, true)},
      {"linear_cross_entropy",
       [](InputMaker& maker) {
         return std::vector{maker.uniform({60, 48}, -3, 3), maker.uniform({70, 48}),
                            maker.uniform({70})};
       },
       [](Context& context, const std::vector<Tensor>& x) {
         std::vector<int32_t> labels(60);
         for (int32_t i = 0; i < 60; ++i) labels[static_cast<size_t>(i)] = i;
         return ops::linear_cross_entropy(context, x[0], x[1], x[2],
                                          context.from_values<int32_t>(labels, {60}))
             .loss;
       }},
  };
}

// The result and the gradients of all inputs.
std::vector<std::vector<double>> results_of(const PrecisionCase& c, DType dtype, DType multiply,
                                            int threads) {
  const auto context = make_context({DeviceKind::cpu, 0}, threads);
  set_matmul_precision(context->backend(), multiply, "test");
  InputMaker maker(*context, dtype, 3);
  std::vector<Tensor> inputs = c.inputs(maker);
  for (Tensor& input : inputs) set_requires_grad(input, true);
  const Tensor result = c.run(*context, inputs);
  const Tensor upstream = maker.uniform(result.shape(), 0.5, 1);
  context->backward(result, upstream);
  inputs.insert(inputs.begin(), result);
  std::vector<std::vector<double>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = i == 0 ? inputs[0] : grad_of(inputs[i]);
    if (dtype == DType::f64) {
      all.push_back(context->values<double>(tensor));
    } else {
      const std::vector<float> values = context->values<float>(tensor);
      all.emplace_back(values.begin(), values.end());
    }
  }
  return all;
}

double relative_error(const std::vector<double>& got, const std::vector<double>& exact) {
  double error = 0, square = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(got[i] - exact[i], 2);
    square += std::pow(exact[i], 2);
  }
  return std::sqrt(error / square);
}

TEST(MatmulPrecision, ForwardAndBackwardMultiplyBfloat16) {
  if (!has_bf16_gemm()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  for (const PrecisionCase& c : precision_cases()) {
    SCOPED_TRACE(c.label);
    const auto exact = results_of(c, DType::f64, DType::f32, 2);
    const auto single = results_of(c, DType::f32, DType::f32, 2);
    const auto half = results_of(c, DType::f32, DType::bf16, 1);
    for (size_t i = 0; i < exact.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_LT(relative_error(single[i], exact[i]), 1e-6);
      const double error = relative_error(half[i], exact[i]);
      if (i > 0 && i - 1 == c.exact_input) {
        EXPECT_LT(error, 1e-6);
        continue;
      }
      // Each operand is off by at most 2^-9 of itself.
      EXPECT_LT(error, 0x1p-7);
      if (exact[i].size() > 1) {
        EXPECT_GT(error, 0x1p-13) << "this was not multiplied in bfloat16";
      }
    }
    for (const int threads : {2, 3, 4})
      EXPECT_EQ(results_of(c, DType::f32, DType::bf16, threads), half) << threads;
  }
}

TEST(MatmulPrecision, ValuesThatAreKeptAreComputedInFloat32) {
  if (!has_bf16_gemm()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  InputMaker maker(*context, DType::f32, 1);
  const Tensor a = maker.uniform({40, 30}), b = maker.uniform({30, 50});
  const auto product = [&] { return context->values<float>(ops::matmul(*context, a, b)); };
  const std::vector<float> single = product();
  set_matmul_precision(context->backend(), DType::bf16, "test");
  const std::vector<float> half = product();
  EXPECT_NE(half, single);
  {
    const ExactGemms exact(context->backend());
    EXPECT_EQ(product(), single);
  }
  EXPECT_EQ(product(), half);
}

}  // namespace
}  // namespace trafo::testing
