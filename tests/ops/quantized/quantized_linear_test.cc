// Linear layers with frozen weights in few bits, beside ops::linear with the dequantized weights:
// on the CPU, and on a GPU with TRAFO_TEST_DEVICE=cuda.
#include "engine/ops/quantized_linear/quantized_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/numeric/philox.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

constexpr BasePrecision kFormats[] = {BasePrecision::nf4, BasePrecision::int8, BasePrecision::int4};

struct LinearSizes {
  int64_t tokens, in, out;
};
// The last has several panels on the CPU in both directions.
const LinearSizes kLinearSizes[] = {{1, 8, 8},   {5, 16, 24},  {3, 7, 5},      {17, 65, 33},
                                    {2, 1, 129}, {64, 96, 64}, {9, 1000, 600}, {4, 130, 4099}};

std::vector<double> uniform_values(int64_t count, uint64_t seed) {
  PhiloxStream random(seed, 2);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values)  // exact in bfloat16
    value = static_cast<double>(
        BFloat16::from_float(static_cast<float>(random.uniform(-1, 1))).to_float());
  return values;
}

CodedMatrix coded_matrix(Context& context, BasePrecision precision, int64_t rows, int64_t columns) {
  const std::vector<double> wide = uniform_values(rows * columns, 9);
  const std::vector<float> values(wide.begin(), wide.end());
  CodedMatrix matrix = make_coded_matrix(context, precision, rows, columns);
  std::vector<std::byte> bytes(matrix.bytes.bytes());
  encode_base(precision, values, rows, columns, bytes);
  context.backend().copy_from_host(matrix.bytes.raw(), bytes.data(), bytes.size());
  return matrix;
}

std::vector<double> doubles_of(const Context& context, const Tensor& tensor) {
  std::vector<double> values;
  const auto add = [&](const auto& from) {
    for (const auto value : from) values.push_back(static_cast<double>(value));
  };
  if (tensor.dtype() == DType::f64) add(context.values<double>(tensor));
  if (tensor.dtype() == DType::f32) add(context.values<float>(tensor));
  if (tensor.dtype() == DType::bf16)
    for (const BFloat16 value : context.values<BFloat16>(tensor))
      values.push_back(static_cast<double>(value.to_float()));
  return values;
}

// y, dx and dbias of sum(y * g).
struct LinearResult {
  std::vector<double> y, dx, dbias;
};

template <class Linear>
LinearResult run_linear(Context& context, const LinearSizes& sizes, DType dtype, Linear linear) {
  const auto make = [&](int64_t rows, int64_t columns, uint64_t seed) {
    Tensor tensor = context.from_doubles(uniform_values(rows * columns, seed),
                                         rows == 0 ? Shape{columns} : Shape{rows, columns}, dtype);
    return tensor;
  };
  Tensor x = make(sizes.tokens, sizes.in, 1);
  Tensor bias = context.from_doubles(uniform_values(sizes.out, 2), {sizes.out}, dtype);
  const Tensor g = make(sizes.tokens, sizes.out, 3);
  set_requires_grad(x, true);
  set_requires_grad(bias, true);
  const Tensor y = linear(x, bias);
  context.backward(y, g);
  return {doubles_of(context, y), doubles_of(context, grad_of(x)),
          doubles_of(context, grad_of(bias))};
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::abs(a[i] - b[i]), bound * std::max(1.0, std::abs(b[i]))) << i;
}

void expect_as_dequantized(Context& context, DType dtype, double bound) {
  for (const BasePrecision precision : kFormats) {
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
      expect_near(quantized.y, expected.y, bound);
      expect_near(quantized.dx, expected.dx, bound);
      expect_near(quantized.dbias, expected.dbias, bound);
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
  const Tensor x = context->from_doubles(uniform_values(1024, 1), {1, 1024}, DType::f32);
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
    return context->from_doubles(uniform_values(element_count(shape), 1), shape, dtype);
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
  for (const BasePrecision precision : kFormats) {
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
