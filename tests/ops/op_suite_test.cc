// Runs every op of op_list.def over its cases. See op_cases.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/autograd/gradcheck.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

constexpr uint64_t kSeed = 20240617;

struct CaseRun {
  std::vector<Tensor> outputs;
  std::vector<Tensor> grads;  // undefined for inputs without one
};

Tensor random_upstream(Context& context, const Tensor& output, uint64_t index) {
  InputMaker maker(context, output.dtype(), 99 + index);
  return maker.uniform(output.shape());
}

// Forward and backward of one case. `strided`: floating-point inputs are windows of larger tensors.
CaseRun run_case(const OpCase& test, DType dtype, bool fused, int threads, bool strided = false) {
  const auto context = make_context({DeviceKind::cpu, 0}, threads);
  context->set_fused_kernels(fused);
  InputMaker maker(*context, dtype, kSeed);
  std::vector<Tensor> inputs = test.inputs(maker);
  for (Tensor& input : inputs) {
    if (!input.defined() || !is_floating(input.dtype())) continue;
    if (strided && input.rank() >= 1) {
      Shape larger = input.shape();
      for (int i = 0; i < larger.rank(); ++i) larger[i] = larger[i] + 3;
      Tensor window = context->zeros(larger, dtype);
      window = window.as_strided(input.shape(), window.strides(), 0);
      const auto source = input;
      // Element by element: the test must not lean on the copy kernel it is testing.
      const size_t size = dtype_size(dtype);
      std::vector<int64_t> index(static_cast<size_t>(input.rank()), 0);
      for (int64_t i = 0; i < input.numel(); ++i) {
        int64_t rest = i, at = 0;
        for (int d = input.rank() - 1; d >= 0; --d) {
          at += rest % input.dim(d) * window.strides()[d];
          rest /= input.dim(d);
        }
        std::memcpy(static_cast<std::byte*>(window.raw()) + at * static_cast<int64_t>(size),
                    static_cast<const std::byte*>(source.raw()) + i * static_cast<int64_t>(size),
                    size);
      }
      input = window;
    }
    set_requires_grad(input, true);
  }
  CaseRun result;
  result.outputs = test.run(*context, inputs);
  std::vector<Tensor> upstream;
  for (size_t i = 0; i < result.outputs.size(); ++i)
    upstream.push_back(requires_grad(result.outputs[i])
                           ? random_upstream(*context, result.outputs[i], i)
                           : Tensor{});
  context->tape().backward(*context, result.outputs, upstream);
  for (const Tensor& input : inputs)
    result.grads.push_back(input.defined() ? grad_of(input) : Tensor{});
  return result;
}

std::vector<double> as_doubles(const Tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = tensor.dtype() == DType::f64   ? tensor.data<double>()[i]
             : tensor.dtype() == DType::f32 ? static_cast<double>(tensor.data<float>()[i])
             : tensor.dtype() == DType::bf16
                 ? static_cast<double>(tensor.data<BFloat16>()[i].to_float())
                 : tensor.data<int32_t>()[i];
  return out;
}

// Largest difference relative to the largest element of `expected` (at least 1).
double relative_error(const Tensor& actual, const Tensor& expected) {
  const auto a = as_doubles(actual), b = as_doubles(expected);
  double worst = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (!(error <= worst)) worst = error;  // NaN stays
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

void expect_close(const CaseRun& actual, const CaseRun& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    ASSERT_EQ(actual.outputs[i].shape(), expected.outputs[i].shape()) << what;
    EXPECT_LE(relative_error(actual.outputs[i], expected.outputs[i]), tolerance)
        << what << ", output " << i;
  }
  for (size_t i = 0; i < actual.grads.size(); ++i) {
    ASSERT_EQ(actual.grads[i].defined(), expected.grads[i].defined())
        << what << ": gradient " << i << " is missing on one side";
    if (actual.grads[i].defined()) {
      EXPECT_LE(relative_error(actual.grads[i], expected.grads[i]), tolerance)
          << what << ", gradient " << i;
    }
  }
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || a.bytes() == 0) return true;
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

void expect_bitwise(const CaseRun& actual, const CaseRun& expected, const std::string& what) {
  for (size_t i = 0; i < actual.outputs.size(); ++i)
    EXPECT_TRUE(same_bytes(actual.outputs[i], expected.outputs[i])) << what << ", output " << i;
  for (size_t i = 0; i < actual.grads.size(); ++i)
    EXPECT_TRUE(same_bytes(actual.grads[i], expected.grads[i])) << what << ", gradient " << i;
}

class OpSuite : public ::testing::TestWithParam<OpUnderTest> {};

TEST_P(OpSuite, CoversEnoughShapeClasses) {
  EXPECT_GE(GetParam().cases().size(), 8u);
}

TEST_P(OpSuite, GradcheckInFloat64) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    for (const bool fused : {true, false}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      context->set_fused_kernels(fused);
      InputMaker maker(*context, DType::f64, kSeed);
      const GradcheckResult result = gradcheck(*context, test.run, test.inputs(maker));
      EXPECT_TRUE(result.ok) << (fused ? "fused: " : "composed: ") << result.message;
    }
  }
}

TEST_P(OpSuite, FusedEqualsComposed) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    expect_close(run_case(test, DType::f64, true, 1), run_case(test, DType::f64, false, 1), 1e-12,
                 "float64");
    expect_close(run_case(test, DType::f32, true, 1), run_case(test, DType::f32, false, 1),
                 test.tolerance, "float32");
  }
}

TEST_P(OpSuite, StridedViewsGiveTheSame) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    expect_close(run_case(test, DType::f64, true, 1, true), run_case(test, DType::f64, true, 1),
                 1e-12, "strided");
  }
}

TEST_P(OpSuite, BitwiseEqualAgainAndForEveryThreadCount) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    const CaseRun once = run_case(test, DType::f32, true, 1);
    for (const int threads : {1, 2, 3, 7})
      expect_bitwise(run_case(test, DType::f32, true, threads), once, concat(threads, " threads"));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSuite, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trafo::testing
