// Runs every op of op_list.def over its cases on the CPU. See op_cases.h.
#include <gtest/gtest.h>

#include "engine/autograd/gradcheck.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_runs.h"

namespace trafo::testing {
namespace {

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
      InputMaker maker(*context, DType::f64, 20240617);
      const GradcheckResult result = gradcheck(*context, test.run, test.inputs(maker));
      EXPECT_TRUE(result.ok) << (fused ? "fused: " : "reference: ") << result.message;
    }
  }
}

TEST_P(OpSuite, FusedEqualsReference) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    for (const DType dtype : {DType::f64, DType::f32})
      expect_close(run_case(test, {.dtype = dtype}),
                   run_case(test, {.dtype = dtype, .fused = false}),
                   dtype == DType::f64 ? 1e-12 : test.tolerance, dtype_name(dtype));
  }
}

TEST_P(OpSuite, StridedViewsGiveTheSame) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    expect_close(run_case(test, {.dtype = DType::f64, .strided = true}),
                 run_case(test, {.dtype = DType::f64}), 1e-12, "strided");
  }
}

// As of the second micro-batch of an update, or of a tensor that several ops read.
TEST_P(OpSuite, GradientsAreAddedToWhatIsThere) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    for (const bool fused : {true, false}) {
      CaseRun once = run_case(test, {.dtype = DType::f64, .fused = fused});
      for (HostCopy& grad : once.grads) grad.scale(2);
      expect_close(run_case(test, {.dtype = DType::f64, .fused = fused, .passes = 2}), once, 1e-12,
                   fused ? "fused" : "reference");
    }
  }
}

TEST_P(OpSuite, BitwiseEqualAgainAndForEveryThreadCount) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    const CaseRun once = run_case(test, {});
    for (const int threads : {1, 2, 3, 7})
      expect_bitwise(run_case(test, {}, threads), once, concat(threads, " threads"));
  }
}

TEST_P(OpSuite, AWriteBeforeBackwardIsNoticed) {
  for (const OpCase& test : GetParam().cases()) {
    SCOPED_TRACE(test.label);
    for (const bool fused : {true, false}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      expect_writes_noticed(*context, test, {.fused = fused});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSuite, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trafo::testing
