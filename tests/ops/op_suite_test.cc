// Runs every op of op_list.def over its cases. See op_cases.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/autograd/gradcheck.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

constexpr uint64_t kSeed = 20240617;

// A tensor's contents, wherever it was computed.
struct HostCopy {
  bool defined = false;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;

  HostCopy() = default;
  HostCopy(const Context& context, const Tensor& tensor) {
    if (!tensor.defined()) return;
    defined = true;
    dtype = tensor.dtype();
    shape = tensor.shape();
    bytes.resize(tensor.bytes());
    context.to_host(tensor, bytes.data(), bytes.size());
  }

  template <class T>
  T at(size_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  std::vector<double> doubles() const {
    std::vector<double> out(bytes.size() / dtype_size(dtype));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = dtype == DType::f64    ? at<double>(i)
               : dtype == DType::f32  ? static_cast<double>(at<float>(i))
               : dtype == DType::bf16 ? static_cast<double>(at<BFloat16>(i).to_float())
                                      : at<int32_t>(i);
    return out;
  }
};

struct CaseRun {
  std::vector<HostCopy> outputs;
  std::vector<HostCopy> grads;  // undefined for inputs without one
};

Tensor random_upstream(Context& context, const Tensor& output, uint64_t index) {
  InputMaker maker(context, output.dtype(), 99 + index);
  return maker.uniform(output.shape());
}

// The same elements as a window of a larger tensor. Element by element and on the host: the test
// must not lean on the copy kernel it is testing.
Tensor strided_copy(const Context& context, const Tensor& source) {
  Shape larger = source.shape();
  for (int i = 0; i < larger.rank(); ++i) larger[i] = larger[i] + 3;
  const Strides strides = contiguous_strides(larger);
  const size_t size = dtype_size(source.dtype());
  const HostCopy elements(context, source);
  std::vector<std::byte> window(static_cast<size_t>(element_count(larger)) * size);
  for (int64_t i = 0; i < source.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int d = source.rank() - 1; d >= 0; --d) {
      at += rest % source.dim(d) * strides[d];
      rest /= source.dim(d);
    }
    std::memcpy(window.data() + static_cast<size_t>(at) * size,
                elements.bytes.data() + static_cast<size_t>(i) * size, size);
  }
  return context.from_host(window.data(), window.size(), larger, source.dtype())
      .as_strided(source.shape(), strides, 0);
}

// Forward and backward of one case. `strided`: floating-point inputs are windows of larger tensors.
CaseRun run_case(Context& context, const OpCase& test, DType dtype, bool fused, bool strided) {
  context.set_fused_kernels(fused);
  InputMaker maker(context, dtype, kSeed);
  std::vector<Tensor> inputs = test.inputs(maker);
  for (Tensor& input : inputs) {
    if (!input.defined() || !is_floating(input.dtype())) continue;
    if (strided && input.rank() >= 1) input = strided_copy(context, input);
    set_requires_grad(input, true);
  }
  const std::vector<Tensor> outputs = test.run(context, inputs);
  std::vector<Tensor> upstream;
  for (size_t i = 0; i < outputs.size(); ++i)
    upstream.push_back(requires_grad(outputs[i]) ? random_upstream(context, outputs[i], i)
                                                 : Tensor{});
  context.tape().backward(context, outputs, upstream);
  CaseRun result;
  for (const Tensor& output : outputs) result.outputs.emplace_back(context, output);
  for (const Tensor& input : inputs)
    result.grads.emplace_back(context, input.defined() ? grad_of(input) : Tensor{});
  return result;
}

CaseRun run_case(const OpCase& test, DType dtype, bool fused, int threads, bool strided = false) {
  const auto context = make_context({DeviceKind::cpu, 0}, threads);
  return run_case(*context, test, dtype, fused, strided);
}

// Largest difference relative to the largest element of `expected` (at least 1).
double relative_error(const HostCopy& actual, const HostCopy& expected) {
  const auto a = actual.doubles(), b = expected.doubles();
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
    ASSERT_EQ(actual.outputs[i].shape, expected.outputs[i].shape) << what;
    EXPECT_LE(relative_error(actual.outputs[i], expected.outputs[i]), tolerance)
        << what << ", output " << i;
  }
  for (size_t i = 0; i < actual.grads.size(); ++i) {
    ASSERT_EQ(actual.grads[i].defined, expected.grads[i].defined)
        << what << ": gradient " << i << " is missing on one side";
    if (actual.grads[i].defined) {
      EXPECT_LE(relative_error(actual.grads[i], expected.grads[i]), tolerance)
          << what << ", gradient " << i;
    }
  }
}

bool same_bytes(const HostCopy& a, const HostCopy& b) {
  if (a.defined != b.defined) return false;
  if (!a.defined || a.bytes.empty()) return true;
  return a.shape == b.shape && a.bytes == b.bytes;
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

// The same cases on a GPU, for TRAFO_TEST_DEVICE=cuda.
class OnCuda : public ::testing::TestWithParam<OpUnderTest> {
 protected:
  void SetUp() override {
    if (!cuda_context()) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }

  // Runs `check` on every case, in a context of its own; a case that throws does not hide the rest.
  template <class Check>
  void for_each_case(Check&& check) {
    for (const OpCase& test : GetParam().cases()) {
      SCOPED_TRACE(test.label);
      try {
        check(test);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }

  static CaseRun on_device(const OpCase& test, bool fused, bool strided = false) {
    const auto context = make_context({DeviceKind::cuda, 0}, 1);
    return run_case(*context, test, DType::f32, fused, strided);
  }
};

TEST_P(OnCuda, EqualsFloat64OnTheCpu) {
  for_each_case([](const OpCase& test) {
    const double tolerance = std::max(test.tolerance, test.device_tolerance);
    const CaseRun expected = run_case(test, DType::f64, true, 1);
    expect_close(on_device(test, true), expected, tolerance, "fused");
    expect_close(on_device(test, false), expected, tolerance, "composed");
    expect_close(on_device(test, true, true), expected, tolerance, "strided");
  });
}

TEST_P(OnCuda, BitwiseEqualAgain) {
  for_each_case([](const OpCase& test) {
    for (const bool fused : {true, false})
      expect_bitwise(on_device(test, fused), on_device(test, fused), fused ? "fused" : "composed");
  });
}

// Zeros at the same places: what is dropped is exactly 0 and nothing else is. In ops with a norm
// zeros also come from cancelling, and there a wrong mask is a wrong value.
TEST_P(OnCuda, DropsTheSameElements) {
  const std::string name = GetParam().name;
  if (name != "dropout" && name != "bias_act_dropout" && name != "bias_dropout_residual")
    GTEST_SKIP() << name << " drops nothing";
  for_each_case([](const OpCase& test) {
    if (test.label.starts_with("norm")) return;
    const CaseRun host = run_case(test, DType::f32, true, 1), device = on_device(test, true);
    const auto expect_same_zeros = [](const HostCopy& a, const HostCopy& b) {
      const auto x = a.doubles(), y = b.doubles();
      ASSERT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(x[i] == 0, y[i] == 0) << "element " << i << ": " << x[i] << " and " << y[i];
    };
    for (size_t i = 0; i < host.outputs.size(); ++i)
      expect_same_zeros(device.outputs[i], host.outputs[i]);
    for (size_t i = 0; i < host.grads.size(); ++i)
      if (host.grads[i].defined) expect_same_zeros(device.grads[i], host.grads[i]);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, OnCuda, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trafo::testing
