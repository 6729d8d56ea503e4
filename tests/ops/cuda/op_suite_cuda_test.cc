// Runs every op of op_list.def over its cases on a GPU, in float32 and in bfloat16, against float64
// on the CPU. For TRAFO_TEST_DEVICE=cuda. See op_cases.h.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_runs.h"

namespace trafo::testing {
namespace {

// In bfloat16 (8 bits) a value that an op stores on its way is off by 2^-9 of itself, and several
// of those meet in a result. PyTorch's error is the finer measure: tests/parity/op_accuracy.py.
constexpr double kBFloat16Tolerance = 0x1p-5;

class OnCuda : public ::testing::TestWithParam<OpUnderTest> {
 protected:
  void SetUp() override {
    if (!cuda_context()) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }

  // Runs `check` on every case, in a separate context; a case that throws does not hide the rest.
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
};

TEST_P(OnCuda, EqualsFloat64OnTheCpu) {
  for_each_case([](const OpCase& test) {
    const double tolerance = std::max(test.tolerance, test.device_tolerance);
    const CaseRun expected = run_case(test, {.dtype = DType::f64, .values = DType::f32});
    expect_close(run_on_cuda(test, {}), expected, tolerance, "fused");
    expect_close(run_on_cuda(test, {.fused = false}), expected, tolerance, "reference");
    expect_close(run_on_cuda(test, {.strided = true}), expected, tolerance, "strided");
  });
}

TEST_P(OnCuda, BFloat16IsFloat64Rounded) {
  for_each_case([](const OpCase& test) {
    const CaseRun expected = run_case(test, {.dtype = DType::f64, .values = DType::bf16});
    for (const bool fused : {true, false})
      for (const bool strided : {true, false})
        expect_close(run_on_cuda(test, {DType::bf16, fused, strided}), expected,
                     fused ? kBFloat16Tolerance : test.reference_bfloat16_tolerance,
                     concat(fused ? "fused" : "reference", strided ? ", strided" : ""));
  });
}

// Tensors that begin where no vector may be loaded.
TEST_P(OnCuda, TheSameAtAnyAddress) {
  for_each_case([](const OpCase& test) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool fused : {true, false})
        expect_close(run_on_cuda(test, {.dtype = dtype, .fused = fused, .shifted = true}),
                     run_on_cuda(test, {.dtype = dtype, .fused = fused}),
                     dtype == DType::f32 ? test.device_tolerance
                     : fused             ? kBFloat16Tolerance
                                         : test.reference_bfloat16_tolerance,
                     concat(dtype_name(dtype), fused ? ", fused" : ", reference"));
  });
}

TEST_P(OnCuda, BitwiseEqualAgain) {
  for_each_case([](const OpCase& test) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool fused : {true, false})
        expect_bitwise(run_on_cuda(test, {dtype, fused}), run_on_cuda(test, {dtype, fused}),
                       concat(dtype_name(dtype), fused ? ", fused" : ", reference"));
  });
}

TEST_P(OnCuda, AWriteBeforeBackwardIsNoticed) {
  for_each_case([](const OpCase& test) {
    for (const bool fused : {true, false}) {
      const auto context = make_context({DeviceKind::cuda, 0}, 1);
      expect_writes_noticed(*context, test, {.fused = fused});
    }
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
    const CaseRun host = run_case(test, {}), device = run_on_cuda(test, {});
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
