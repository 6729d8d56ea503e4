// Kernels on CUDA against sums in float64 on the host, in both dtypes and at sizes that the op
// cases do not reach: matrix products, reductions, broadcasts, transposed copies, dropout masks.
// For TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

class CudaKernels : public CudaTest {
 protected:
  // Values the dtype holds exactly.
  Doubles random(DType dtype, int64_t count) {
    Doubles values(static_cast<size_t>(count));
    for (double& value : values) {
      const float drawn = static_cast<float>(random_.uniform(-1, 1));
      value = static_cast<double>(dtype == DType::bf16 ? BFloat16::from_float(drawn).to_float()
                                                       : drawn);
    }
    return values;
  }
  Tensor upload(DType dtype, const Doubles& values, const Shape& shape) const {
    std::vector<float> wide(values.begin(), values.end());
    if (dtype == DType::f32) return context_->from_values<float>(wide, shape);
    std::vector<BFloat16> narrow;
    for (const float value : wide) narrow.push_back(BFloat16::from_float(value));
    return context_->from_values<BFloat16>(narrow, shape);
  }
  // `terms`: how many products or summands of about 1 each element has. `additions`: what adding
  // them up may be off by, element by element, where 4e-7 sqrt(terms) is too little for it; or
  // empty.
  static void expect_near(const Doubles& actual, const Doubles& expected, DType dtype, double terms,
                          const Doubles& additions = {}) {
    ASSERT_EQ(actual.size(), expected.size());
    const double rounding = dtype == DType::bf16 ? 0x1p-8 : 0x1p-23;
    for (size_t i = 0; i < actual.size(); ++i) {
      double sum = 4e-7 * std::sqrt(terms);
      if (!additions.empty()) sum = std::max(sum, additions[i]);
      ASSERT_NEAR(actual[i], expected[i], rounding * std::abs(expected[i]) + sum + 1e-12 * terms)
          << "element " << i;
    }
  }

  PhiloxStream random_{5, 6};
};

struct Product {
  int64_t m, n, k, batch = 1;
  int64_t padding = 0;  // added to every leading dimension
};

// The tensor cores multiply bfloat16 exactly and add kStep products to the float32 sum at once,
// rounding the new sum s towards zero (Fasi, Higham, Mikaitis & Pranesh, PeerJ Comput. Sci. 7:e330,
// 2021): off by up to 2^-23 |s|, by 2^-24 |s| or less on average, always to the same side. Over a
// product this comes to 2^-24 sum_j |s_j| with s_j the sum of the first kStep j products; rounding
// to nearest stays below it too. Values in (-1, 1) make |s_j| grow like sqrt(kStep j) / 3, so the
// whole grows like terms^1.5 and passes 4e-7 sqrt(terms) at some hundred terms. Below kLongSum
// terms that is tight enough and stays the bound.
constexpr int64_t kStep = 16, kLongSum = 1024;

// C before the product, in the dtype C has.
double old_value(size_t i) {
  return static_cast<double>(i % 5) * 0.25;
}

TEST_F(CudaKernels, MatrixProducts) {
  const Product products[] = {{1, 1, 1},          {3, 5, 7},          {17, 1, 33},  {1, 19, 64},
                              {128, 256, 64},     {100, 72, 40, 3},   {5, 3, 9, 4}, {64, 64, 4096},
                              {33, 40, 24, 1, 8}, {33, 40, 23, 2, 3}, {0, 4, 4},    {4, 0, 4},
                              {6, 5, 0},          {257, 129, 511}};
  for (const Product& p : products) {
    for (int bits = 0; bits < 48; ++bits) {
      const bool ta = bits & 1, tb = bits & 2, accumulate = bits & 4, with_bias = bits & 8;
      const bool half = bits >= 16, c_is_f32 = bits >= 32;
      const DType dtype = half ? DType::bf16 : DType::f32;
      const DType c_dtype = half && !c_is_f32 ? DType::bf16 : DType::f32;
      SCOPED_TRACE(concat(p.m, " x ", p.n, " x ", p.k, ", batch ", p.batch, ", padding ", p.padding,
                          ta ? ", a transposed" : "", tb ? ", b transposed" : "",
                          accumulate ? ", accumulated" : "", with_bias ? ", bias" : "", ", ",
                          dtype_name(dtype), " to ", dtype_name(c_dtype)));
      const int64_t a_rows = ta ? p.k : p.m, lda = (ta ? p.m : p.k) + p.padding;
      const int64_t b_rows = tb ? p.n : p.k, ldb = (tb ? p.k : p.n) + p.padding;
      const int64_t ldc = p.n + p.padding;
      const Doubles a = random(dtype, p.batch * a_rows * lda);
      const Doubles b = random(dtype, p.batch * b_rows * ldb);
      const Doubles bias = random(dtype, p.n);
      Doubles c(static_cast<size_t>(p.batch * p.m * ldc));
      for (size_t i = 0; i < c.size(); ++i) c[i] = old_value(i);
      const Tensor device_a = upload(dtype, a, {p.batch, a_rows, lda});
      const Tensor device_b = upload(dtype, b, {p.batch, b_rows, ldb});
      const Tensor device_c = upload(c_dtype, c, {p.batch, p.m, ldc});
      const Tensor device_bias = upload(dtype, bias, {p.n});

      GemmParams params;
      params.dtype = dtype;
      params.trans_a = ta;
      params.trans_b = tb;
      params.accumulate = accumulate;
      params.c_is_f32 = c_is_f32;
      params.m = p.m;
      params.n = p.n;
      params.k = p.k;
      params.a = device_a.raw();
      params.lda = lda;
      params.b = device_b.raw();
      params.ldb = ldb;
      params.c = device_c.raw();
      params.ldc = ldc;
      params.bias = with_bias ? device_bias.raw() : nullptr;
      params.batch = p.batch;
      params.stride_a = a_rows * lda;
      params.stride_b = b_rows * ldb;
      params.stride_c = p.m * ldc;
      ASSERT_NO_THROW(context_->backend().gemm(params));

      const bool long_sums = half && c_is_f32 && p.k >= kLongSum;
      // cuBLASLt's own bias epilogue has kernels that round the product to bfloat16 before the bias
      // is added: one rounding more, of the product, which may be larger than the result.
      const bool rounded_first = half && !c_is_f32 && with_bias && !accumulate;
      Doubles additions(c.size());
      for (int64_t item = 0; item < p.batch; ++item)
        for (int64_t i = 0; i < p.m; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            double sum = 0, sums = 0, squares = 0;
            for (int64_t l = 0; l < p.k; ++l) {
              sum +=
                  a[static_cast<size_t>(item * a_rows * lda + (ta ? l * lda + i : i * lda + l))] *
                  b[static_cast<size_t>(item * b_rows * ldb + (tb ? j * ldb + l : l * ldb + j))];
              if (l % kStep == kStep - 1) sums += std::abs(sum);
              squares += sum * sum;
            }
            const double product = sum;
            if (with_bias) sum += bias[static_cast<size_t>(j)];
            const auto place = static_cast<size_t>((item * p.m + i) * ldc + j);
            c[place] = accumulate ? c[place] + sum : sum;
            // One float32 rounding after every product: independent errors of 2^-24 |s_j| / sqrt(3)
            // each, six deviations of their sum, as a million elements are looked at.
            if (!half) additions[place] = 6 * 0x1p-24 / std::sqrt(3.0) * std::sqrt(squares);
            if (long_sums) additions[place] = 0x1p-24 * sums;
            if (rounded_first) additions[place] = 0x1p-8 * std::abs(product);
          }
      expect_near(download(device_c), c, c_dtype, static_cast<double>(p.k + 2), additions);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaKernels, MatrixProductsAreTheSameAgain) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t m = 64, n = 96, k = 8192;  // invites split-K
    const Tensor a = upload(dtype, random(dtype, m * k), {m, k});
    const Tensor b = upload(dtype, random(dtype, k * n), {k, n});
    Doubles first;
    for (int run = 0; run < 20; ++run) {
      const Tensor c = context_->empty({m, n}, dtype);
      GemmParams params;
      params.dtype = dtype;
      params.m = m;
      params.n = params.ldb = params.ldc = n;
      params.k = params.lda = k;
      params.a = a.raw();
      params.b = b.raw();
      params.c = c.raw();
      context_->backend().gemm(params);
      const Doubles values = download(c);
      if (run == 0) first = values;
      ASSERT_EQ(values, first) << dtype_name(dtype);
    }
  }
}

TEST_F(CudaKernels, ColumnSums) {
  const int64_t shapes[][2] = {{1, 1},     {7, 3},     {16, 512},    {1000, 512}, {4099, 33},
                               {50000, 8}, {3, 70000}, {20000, 264}, {0, 5},      {5, 0}};
  for (const auto& [rows, width] : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(
            concat(rows, " x ", width, " ", dtype_name(dtype), accumulate ? " added" : ""));
        const Doubles x = random(dtype, rows * width);
        Doubles expected(static_cast<size_t>(width), accumulate ? 1.5 : 0.0);
        const Tensor out = upload(DType::f32, Doubles(static_cast<size_t>(width), 1.5), {width});
        const Tensor device_x = upload(dtype, x, {rows, width});
        for (size_t i = 0; i < x.size(); ++i) expected[i % static_cast<size_t>(width)] += x[i];
        launch(*context_, OpKernel::column_sum, "test",
               ColumnSumParams{dtype, accumulate, rows, width, device_x.raw(), out.raw()});
        expect_near(download(out), expected, DType::f32, static_cast<double>(rows + 1));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaKernels, Reductions) {
  const int64_t shapes[][3] = {{1, 1, 1},       {5, 7, 1},      {3, 1024, 1}, {2, 5000, 1},
                               {1, 2000003, 1}, {70000, 12, 1}, {3, 1000, 5}, {2, 9, 40},
                               {1, 4000, 136},  {300, 33, 260}, {4, 0, 3}};
  for (const auto& [outer, size, inner] : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max}) {
        if (size == 0 && kind != ReduceKind::sum) continue;
        SCOPED_TRACE(concat(outer, " x ", size, " x ", inner, " ", dtype_name(dtype), " kind ",
                            static_cast<int>(kind)));
        const Doubles x = random(dtype, outer * size * inner);
        Doubles expected(static_cast<size_t>(outer * inner), kind == ReduceKind::max ? -9.0 : 0.0);
        for (int64_t i = 0; i < outer * size * inner; ++i) {
          const double value = x[static_cast<size_t>(i)];
          double& at = expected[static_cast<size_t>(i / (size * inner) * inner + i % inner)];
          at = kind == ReduceKind::max ? std::max(at, value) : at + value;
        }
        if (kind == ReduceKind::mean)
          for (double& value : expected) value /= static_cast<double>(size);
        const Tensor device_x = upload(dtype, x, {outer, size, inner});
        const Tensor y = context_->empty({outer, inner}, dtype);
        launch(*context_, OpKernel::reduce_forward, "test",
               ReduceForwardParams{dtype, kind, outer, size, inner, device_x.raw(), y.raw()});
        expect_near(download(y), expected, dtype, static_cast<double>(size + 1));

        const Doubles dy = random(dtype, outer * inner);
        Doubles dx(x.size(), 0.5);
        std::vector<bool> taken(expected.size());
        for (int64_t i = 0; i < outer * size * inner; ++i) {
          const auto to = static_cast<size_t>(i / (size * inner) * inner + i % inner);
          if (kind == ReduceKind::max) {
            if (taken[to] || x[static_cast<size_t>(i)] != expected[to]) continue;
            taken[to] = true;
          }
          dx[static_cast<size_t>(i)] +=
              kind == ReduceKind::mean ? dy[to] / static_cast<double>(size) : dy[to];
        }
        const Tensor device_dy = upload(dtype, dy, {outer, inner});
        const Tensor device_dx = upload(dtype, Doubles(x.size(), 0.5), {outer, size, inner});
        launch(*context_, OpKernel::reduce_backward, "test",
               ReduceBackwardParams{dtype, kind, true, outer, size, inner, device_x.raw(), y.raw(),
                                    device_dy.raw(), device_dx.raw()});
        expect_near(download(device_dx), dx, dtype, 2);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaKernels, Broadcasts) {
  struct Case {
    Shape a, b;
  };
  const Case cases[] = {{{300, 512}, {512}},  {{300, 512}, {300, 1}}, {{33, 7}, {7}},
                        {{4, 1, 24}, {5, 1}}, {{1000003}, {1}},       {{2, 3, 40}, {2, 1, 40}}};
  for (const Case& test : cases) {
    for (const BinaryKind kind : {BinaryKind::add, BinaryKind::subtract, BinaryKind::multiply}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(concat(test.a.str(), " and ", test.b.str(), " ", dtype_name(dtype)));
        const Doubles a = random(dtype, element_count(test.a));
        const Doubles b = random(dtype, element_count(test.b));
        BinaryForwardParams p{};
        p.dtype = dtype;
        p.kind = kind;
        p.rank = test.a.rank();
        Shape shape;
        const auto a_strides = contiguous_strides(test.a), b_strides = contiguous_strides(test.b);
        for (int i = 0; i < p.rank; ++i) {
          const int at = i - (p.rank - test.b.rank());
          const int64_t b_size = at < 0 ? 1 : test.b[at];
          p.shape[i] = std::max(test.a[i], b_size);
          p.a_strides[i] = test.a[i] == 1 ? 0 : a_strides[i];
          p.b_strides[i] = b_size == 1 ? 0 : b_strides[at];
          shape.push_back(p.shape[i]);
        }
        Doubles expected(static_cast<size_t>(element_count(shape)));
        for (size_t i = 0; i < expected.size(); ++i) {
          int64_t rest = static_cast<int64_t>(i), at_a = 0, at_b = 0;
          for (int d = p.rank - 1; d >= 0; --d) {
            at_a += rest % p.shape[d] * p.a_strides[d];
            at_b += rest % p.shape[d] * p.b_strides[d];
            rest /= p.shape[d];
          }
          const double x = a[static_cast<size_t>(at_a)], y = b[static_cast<size_t>(at_b)];
          expected[i] = kind == BinaryKind::add        ? x + y
                        : kind == BinaryKind::subtract ? x - y
                                                       : x * y;
        }
        const Tensor device_a = upload(dtype, a, test.a), device_b = upload(dtype, b, test.b);
        const Tensor out = context_->empty(shape, dtype);
        p.a = device_a.raw();
        p.b = device_b.raw();
        p.out = out.raw();
        launch(*context_, OpKernel::binary_forward, "test", p);
        expect_near(download(out), expected, dtype, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaKernels, StridedCopies) {
  struct Case {
    Shape shape;
    int dim0, dim1;
    int64_t cut;  // columns left out at the end
  };
  const Case cases[] = {{{100, 70}, 0, 1, 0},     {{5, 33, 64}, 1, 2, 0}, {{4, 20, 6, 32}, 1, 2, 0},
                        {{3, 130, 65}, 0, 2, 0},  {{50, 48}, 0, 0, 16},   {{50, 48}, 0, 0, 5},
                        {{2, 7, 40, 40}, 1, 3, 8}};
  for (const Case& test : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(concat(test.shape.str(), " ", dtype_name(dtype), accumulate ? " added" : ""));
        const Doubles x = random(dtype, element_count(test.shape));
        Shape shape = test.shape;
        Strides strides = contiguous_strides(test.shape);
        shape[shape.rank() - 1] = shape.back() - test.cut;
        std::swap(shape[test.dim0], shape[test.dim1]);
        std::swap(strides[test.dim0], strides[test.dim1]);
        Doubles expected(static_cast<size_t>(element_count(shape)), accumulate ? 0.5 : 0.0);
        for (size_t i = 0; i < expected.size(); ++i) {
          int64_t rest = static_cast<int64_t>(i), at = 0;
          for (int d = shape.rank() - 1; d >= 0; --d) {
            at += rest % shape[d] * strides[d];
            rest /= shape[d];
          }
          expected[i] += x[static_cast<size_t>(at)];
        }
        const Tensor src = upload(dtype, x, test.shape);
        const Tensor dst = upload(dtype, Doubles(expected.size(), 0.5), shape);
        CopyStridedParams p{};
        p.dtype = dtype;
        p.accumulate = accumulate;
        p.rank = shape.rank();
        for (int i = 0; i < p.rank; ++i) {
          p.shape[i] = shape[i];
          p.src_strides[i] = strides[i];
          p.dst_strides[i] = dst.strides()[i];
        }
        p.src = src.raw();
        p.dst = dst.raw();
        launch(*context_, OpKernel::copy_strided, "test", p);
        expect_near(download(dst), expected, dtype, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaKernels, DropoutMasksAreThoseOfThePhiloxDefinition) {
  for (const int64_t count : {int64_t{1}, int64_t{13}, int64_t{4096}, (int64_t{1} << 18) + 5}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t shift : {0, 1}) {  // 1: unaligned, one element a thread
        const Dropout dropout{0.3f, 0x123456789abcdefull, 17, 4};
        const Tensor x =
            upload(dtype, Doubles(static_cast<size_t>(count + shift), 1.0), {count + shift})
                .as_strided({count}, {1}, shift);
        const Tensor y = context_->empty({count}, dtype);
        launch(*context_, OpKernel::dropout_forward, "test",
               DropoutForwardParams{dtype, dropout, count, x.raw(), y.raw()});
        const Doubles values = download(y);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(values[static_cast<size_t>(i)] != 0, dropout_keeps(dropout, i)) << i;
      }
    }
  }
}

TEST_F(CudaKernels, CastsRoundLikeTheCpu) {
  const Doubles x = random(DType::f32, 100003);
  const Tensor wide = upload(DType::f32, x, {100003});
  const Tensor narrow = ops::cast(*context_, wide, DType::bf16);
  const auto bits = context_->values<BFloat16>(narrow);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(bits[i].bits, BFloat16::from_float(static_cast<float>(x[i])).bits) << x[i];
  const auto back = context_->values<float>(ops::cast(*context_, narrow, DType::f32));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i], bits[i].to_float());
}

// float64 lies on a GPU as it does on the CPU and can be cut out of larger tensors, with and
// without vectors of two.
TEST_F(CudaKernels, CopiesOfFloat64) {
  Doubles values(35 * 18);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i + 3);
  const Tensor x = context_->from_values<double>(values, {35, 18});
  for (const int64_t start : {0, 2, 3})
    for (const int64_t width : {12, 7}) {
      const Tensor part =
          ops::contiguous(*context_, ops::slice(*context_, x, 1, start, start + width));
      const auto copied = context_->values<double>(part);
      for (int64_t i = 0; i < part.numel(); ++i)
        ASSERT_EQ(copied[static_cast<size_t>(i)],
                  values[static_cast<size_t>(i / width * 18 + start + i % width)])
            << start << ", " << width << ", element " << i;
    }
}

// Every launch of a graph reads the source of a captured copy again.
TEST_F(CudaKernels, ACapturedCopyFromTheHostKeepsItsSource) {
  StreamDevice& stream = *context_->backend().stream_device();
  const Tensor target = context_->zeros({3000}, DType::f32);
  const Tensor number = context_->zeros({1}, DType::f32);
  context_->backend().synchronize();
  std::vector<float> source(3000, 7);
  float at_hand = 0.75F;
  stream.begin_capture();
  context_->backend().copy_from_host(target.raw(), source.data(), target.bytes());
  context_->backend().copy_from_host(number.raw(), &at_hand, sizeof at_hand);
  char reason[256] = {};
  void* const graph = stream.end_capture(reason, sizeof reason);
  ASSERT_NE(graph, nullptr) << reason;
  std::fill(source.begin(), source.end(), -1.0F);
  at_hand = -1;
  for (int launch = 0; launch < 2; ++launch) {
    context_->backend().fill_zero(target.raw(), target.bytes());
    stream.launch_graph(graph);
    EXPECT_EQ(context_->values<float>(target), std::vector<float>(3000, 7));
    EXPECT_EQ(context_->values<float>(number), std::vector<float>{0.75F});
  }
  stream.release_graph(graph);
}

// Both end where no vector of elements may be stored.
TEST_F(CudaKernels, CastsAndSumsAtAnyAddress) {
  constexpr int64_t kCount = 1001;
  const auto shifted = [&](DType dtype, const Doubles& values) {
    return upload(dtype, values, {kCount + 1}).as_strided({kCount}, {1}, 1);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Doubles a = random(DType::bf16, kCount + 1), b = random(DType::bf16, kCount + 1);
    const Doubles cast = download(
        ops::cast(*context_, shifted(dtype, a), dtype == DType::f32 ? DType::bf16 : DType::f32));
    const Tensor sum = shifted(dtype, a);
    accumulate_into(*context_, sum, shifted(dtype, b));
    const Doubles sums = download(sum);
    for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
      ASSERT_EQ(cast[i], a[i + 1]) << i;
      ASSERT_NEAR(sums[i], a[i + 1] + b[i + 1], 0x1p-8) << i;
    }
  }
}

}  // namespace
}  // namespace trafo::testing
