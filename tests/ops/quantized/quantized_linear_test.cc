// Linear layers with frozen weights in few bits, beside ops::linear with the dequantized weights:
// on the CPU, and on a GPU with TRAFO_TEST_DEVICE=cuda.
#include "engine/ops/quantized_linear/quantized_linear.h"

#include <gtest/gtest.h>

#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/quantized/coded_matrices.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

struct LinearSizes {
  int64_t tokens, in, out;
};
// The last has several panels on the CPU in both directions.
const LinearSizes kLinearSizes[] = {{1, 8, 8},   {5, 16, 24},  {3, 7, 5},      {17, 65, 33},
                                    {2, 1, 129}, {64, 96, 64}, {9, 1000, 600}, {4, 130, 4099}};

// y, dx and dbias of sum(y * g).
struct LinearResult {
  std::vector<double> y, dx, dbias;
};

template <class Linear>
LinearResult run_linear(Context& context, const LinearSizes& sizes, DType dtype, Linear linear) {
  const auto make = [&](int64_t rows, int64_t columns, uint64_t seed) {
    Tensor tensor = context.from_doubles(exact_uniform(rows * columns, seed),
                                         rows == 0 ? Shape{columns} : Shape{rows, columns}, dtype);
    return tensor;
  };
  Tensor x = make(sizes.tokens, sizes.in, 1);
  Tensor bias = context.from_doubles(exact_uniform(sizes.out, 2), {sizes.out}, dtype);
  const Tensor g = make(sizes.tokens, sizes.out, 3);
  set_requires_grad(x, true);
  set_requires_grad(bias, true);
  const Tensor y = linear(x, bias);
  context.backward(y, g);
  return {as_doubles(context, y), as_doubles(context, grad_of(x)),
          as_doubles(context, grad_of(bias))};
}

void expect_as_dequantized(Context& context, DType dtype, double bound) {
  for (const BasePrecision precision : kCodedFormats) {
    for (const LinearSizes& sizes : kLinearSizes) {
      SCOPED_TRACE(concat(enum_name(precision), " ", sizes.tokens, " ", sizes.in, " ", sizes.out));
      const CodedMatrix matrix = coded_matrix(context, precision, sizes.out, sizes.in);
      const Tensor values = ops::dequantized(context, matrix, dtype);
      const auto expected =
          run_linear(context, sizes, dtype, [&](const Tensor& x, const Tensor& bias) {
            return ops::linear(context, x, values, bias);
          });
      const auto quantized =
          run_linear(context, sizes, dtype, [&](const Tensor& x, const Tensor& bias) {
            return ops::quantized_linear(context, x, matrix, bias);
          });
      expect_all_near(quantized.y, expected.y, bound);
      expect_all_near(quantized.dx, expected.dx, bound);
      expect_all_near(quantized.dbias, expected.dbias, bound);
    }
  }
}

TEST(QuantizedLinear, EqualsTheOneWithDequantizedWeights) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const bool fused : {true, false}) {
    context->set_fused_kernels(fused);
    expect_as_dequantized(*context, DType::f64, 1e-12);
    expect_as_dequantized(*context, DType::f32, 1e-4);
  }
}

TEST(QuantizedLinear, NeedsNoCopyOfTheValuesOnTheCpu) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const CodedMatrix matrix = coded_matrix(*context, BasePrecision::nf4, 2048, 1024);
  const Tensor x = context->from_doubles(exact_uniform(1024, 1), {1, 1024}, DType::f32);
  context->backend().reset_peak_memory();
  const int64_t before = context->backend().memory_stats().allocated_bytes;
  ops::quantized_linear(*context, x, matrix);
  const int64_t more = context->backend().memory_stats().peak_bytes - before;
  EXPECT_LT(more, 2 * ops::kPanelElements * static_cast<int64_t>(sizeof(float)));
}

TEST(QuantizedLinear, RefusesOtherShapesAndTypes) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const CodedMatrix matrix = coded_matrix(*context, BasePrecision::int4, 6, 10);
  const auto of = [&](const Shape& shape, DType dtype) {
    return context->from_doubles(exact_uniform(element_count(shape), 1), shape, dtype);
  };
  expect_error(ErrorCode::shape_mismatch, "does not end in the 10 columns of weight [6, 10]", [&] {
    ops::quantized_linear(*context, of({2, 6}, DType::f32), matrix);
  });
  expect_error(ErrorCode::shape_mismatch, "bias must be [6]", [&] {
    ops::quantized_linear(*context, of({2, 10}, DType::f32), matrix, of({10}, DType::f32));
  });
  expect_error(ErrorCode::dtype_mismatch, "cast one of them", [&] {
    ops::quantized_linear(*context, of({2, 10}, DType::f32), matrix, of({6}, DType::f64));
  });
}

TEST(QuantizedLinear, AGpuHasTheBitsOfTheCpu) {
  const auto device = cuda_context();
  if (!device) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  for (const BasePrecision precision : kCodedFormats) {
    for (const LinearSizes& sizes : kLinearSizes) {
      SCOPED_TRACE(concat(enum_name(precision), " ", sizes.in, " ", sizes.out));
      const CodedMatrix there = coded_matrix(*device, precision, sizes.out, sizes.in);
      const auto exact = cpu->values<float>(
          ops::dequantized(*cpu, coded_matrix(*cpu, precision, sizes.out, sizes.in), DType::f32));
      EXPECT_EQ(device->values<float>(ops::dequantized(*device, there, DType::f32)), exact);
      const auto halves = device->values<BFloat16>(ops::dequantized(*device, there, DType::bf16));
      for (size_t i = 0; i < exact.size(); ++i)
        ASSERT_EQ(halves[i].bits, BFloat16::from_float(exact[i]).bits) << i;
    }
  }
}

TEST(QuantizedLinear, EqualsTheOneWithDequantizedWeightsOnAGpu) {
  const auto device = cuda_context();
  if (!device) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  expect_as_dequantized(*device, DType::bf16, 2e-2);
  expect_as_dequantized(*device, DType::f32, 1e-4);
}

}  // namespace
}  // namespace trafo::testing
