// Tensors of more than 2^31 elements on CUDA, where kernels count in 64 bits. Each takes up to
// 55 GiB of device memory, so TRAFO_TEST_LARGE=1 asks for them, beside TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/ops/binary/binary.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

constexpr int64_t kNarrowWidth = 61;
constexpr int64_t kManyRows = (int64_t{1} << 31) / kNarrowWidth + 1000;

// Values that bfloat16 holds exactly, other ones in neighbouring rows and columns.
double row_value(int64_t row) {
  return static_cast<double>(row % 11 + 1) * 0.25;
}
double column_value(int64_t column) {
  return static_cast<double>(column % 13 + 1);
}

class LargeCudaTensors : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const char* large = std::getenv("TRAFO_TEST_LARGE");
    if (!large || std::string(large) != "1") GTEST_SKIP() << "TRAFO_TEST_LARGE is not 1";
  }

  Tensor rows(DType dtype) const {  // [kManyRows, 1]
    std::vector<double> values(static_cast<size_t>(kManyRows));
    for (int64_t r = 0; r < kManyRows; ++r) values[static_cast<size_t>(r)] = row_value(r);
    return context_->from_doubles(values, {kManyRows, 1}, dtype);
  }
  Tensor columns(DType dtype) const {  // [kNarrowWidth]
    std::vector<double> values;
    for (int64_t c = 0; c < kNarrowWidth; ++c) values.push_back(column_value(c));
    return context_->from_doubles(values, {kNarrowWidth}, dtype);
  }

  // Rows of x [kManyRows, kNarrowWidth] at its start, around element 2^31 and at its end.
  template <class Expected>
  void expect_rows(const Tensor& x, double tolerance, Expected&& expected) const {
    const int64_t border = (int64_t{1} << 31) / kNarrowWidth;
    for (const int64_t first : {int64_t{0}, border / 2 - 50, border - 50, kManyRows - 100}) {
      const Tensor part =
          x.as_strided({100, kNarrowWidth}, {kNarrowWidth, 1}, first * kNarrowWidth);
      const std::vector<double> values = download(part);
      for (int64_t i = 0; i < 100; ++i)
        for (int64_t c = 0; c < kNarrowWidth; ++c) {
          const double wanted = expected(first + i, c);
          ASSERT_NEAR(values[static_cast<size_t>(i * kNarrowWidth + c)], wanted, tolerance * wanted)
              << dtype_name(x.dtype()) << ", row " << first + i << ", column " << c;
        }
    }
  }
};

TEST_F(LargeCudaTensors, CopiesAndSums) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    const Tensor column = columns(dtype), row = rows(dtype);
    const Tensor to = context_->empty({kManyRows, kNarrowWidth}, dtype);
    CopyStridedParams params{};
    params.dtype = dtype;
    params.rank = 2;
    params.shape[0] = kManyRows;
    params.shape[1] = kNarrowWidth;
    params.dst_strides[0] = kNarrowWidth;
    params.dst_strides[1] = 1;
    params.dst = const_cast<void*>(static_cast<const void*>(to.raw()));
    params.src = column.raw();
    params.src_strides[1] = 1;
    launch(*context_, OpKernel::copy_strided, "test", params);
    expect_rows(to, 0, [](int64_t, int64_t c) { return column_value(c); });
    params.accumulate = true;
    launch(*context_, OpKernel::copy_strided, "test", params);
    expect_rows(to, 0, [](int64_t, int64_t c) { return 2 * column_value(c); });
    params.src = row.raw();
    params.src_strides[0] = 1;  // neighbours lie below each other: copied in tiles
    params.src_strides[1] = 0;
    launch(*context_, OpKernel::copy_strided, "test", params);
    expect_rows(to, dtype == DType::bf16 ? 0x1p-8 : 0,
                [](int64_t r, int64_t c) { return 2 * column_value(c) + row_value(r); });
    params.accumulate = false;
    launch(*context_, OpKernel::copy_strided, "test", params);
    expect_rows(to, 0, [](int64_t r, int64_t) { return row_value(r); });
  }
}

TEST_F(LargeCudaTensors, ProductsOfElements) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Tensor a = rows(dtype);
    const Tensor b = columns(dtype);
    const double tolerance = dtype == DType::bf16 ? 0x1p-7 : 1e-5;
    const Tensor upstream = ops::multiply(*context_, a, b);
    expect_rows(upstream, tolerance,
                [](int64_t row, int64_t column) { return row_value(row) * column_value(column); });
    set_requires_grad(a, true);
    const Tensor product = ops::multiply(*context_, a, b);
    context_->backward(product, upstream);
    // da[r] = sum over c of a[r] b[c] b[c]
    double squares = 0;
    for (int64_t c = 0; c < kNarrowWidth; ++c) squares += column_value(c) * column_value(c);
    const std::vector<double> da = download(grad_of(a));
    ASSERT_EQ(da.size(), static_cast<size_t>(kManyRows));
    for (int64_t r = 0; r < kManyRows; ++r)
      ASSERT_NEAR(da[static_cast<size_t>(r)], row_value(r) * squares,
                  2 * tolerance * row_value(r) * squares)
          << dtype_name(dtype) << ", row " << r;
  }
}

// A product over nothing is its bias.
TEST_F(LargeCudaTensors, Bias) {
  for (const auto& [dtype, c_dtype] :
       {std::pair{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32}}) {
    const Tensor bias = columns(dtype), out = context_->empty({kManyRows, kNarrowWidth}, c_dtype);
    GemmParams params;
    params.dtype = dtype;
    params.c_is_f32 = dtype == DType::bf16 && c_dtype == DType::f32;
    params.m = kManyRows;
    params.n = params.ldb = params.ldc = kNarrowWidth;
    params.bias = bias.raw();
    params.c = const_cast<void*>(static_cast<const void*>(out.raw()));
    context_->backend().gemm(params);
    expect_rows(out, 0, [](int64_t, int64_t c) { return column_value(c); });
  }
}

}  // namespace
}  // namespace trafo::testing
