// The definition of FP8 scales, values and products, for tests and dry runs of training.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/fp8/fp8.h"

namespace trafo {

void fp8_scale_cpu(ThreadPool& pool, const Fp8ScaleParams& params);
void fp8_quantize_cpu(ThreadPool& pool, const Fp8QuantizeParams& params);
void fp8_gemm_cpu(ThreadPool& pool, const Fp8GemmParams& params);

namespace {

constexpr int64_t kFp8Grain = 1 << 14;  // elements a block

float fp8_operand(const void* x, DType dtype, int64_t i) {
  return dtype == DType::bf16 ? static_cast<const BFloat16*>(x)[i].to_float()
                              : static_cast<const float*>(x)[i];
}

void require_fp8_dtype(DType dtype) {
  require(dtype == DType::f32 || dtype == DType::bf16, ErrorCode::dtype_mismatch, "fp8",
          "FP8 values are made of float32 and bfloat16, not of ", dtype_name(dtype));
}

uint32_t magnitude_bits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

uint32_t largest_magnitude(const void* v, DType dtype, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, magnitude_bits(fp8_operand(v, dtype, i)));
  return largest;
}

void put_scale(uint32_t magnitude, Fp8Format format, float* scale) {
  const Fp8ScaleBits bits = fp8_scale_bits(magnitude, format);
  scale[0] = std::bit_cast<float>(bits.inverse);
  scale[1] = std::bit_cast<float>(bits.scale);
}

std::vector<float> decoded(ThreadPool& pool, const void* bytes, Fp8Format format, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const auto* from = static_cast<const uint8_t*>(bytes);
  parallel_for_range(pool, count, kFp8Grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      values[static_cast<size_t>(i)] = fp8_to_float(from[i], format);
  });
  return values;
}

}  // namespace

void fp8_scale_cpu(ThreadPool&, const Fp8ScaleParams& p) {
  require_fp8_dtype(p.dtype);
  const uint32_t largest = p.v ? largest_magnitude(p.v, p.dtype, p.count) : magnitude_bits(1.0f);
  // Rounded up: the bound must hold.
  const double bound = static_cast<double>(std::bit_cast<float>(largest)) * std::abs(p.factor);
  float rounded = static_cast<float>(bound);
  if (static_cast<double>(rounded) < bound) rounded = std::nextafter(rounded, HUGE_VALF);
  put_scale(magnitude_bits(rounded), p.format, p.scale);
}

void fp8_quantize_cpu(ThreadPool& pool, const Fp8QuantizeParams& p) {
  require_fp8_dtype(p.dtype);
  for (const Fp8Item& m : std::span(p.items, static_cast<size_t>(p.count))) {
    put_scale(m.largest ? *m.largest : largest_magnitude(m.x, p.dtype, m.rows * m.columns),
              p.format, m.scale);
    auto* values = static_cast<uint8_t*>(m.values);
    auto* transposed = static_cast<uint8_t*>(m.transposed);
    const int64_t rows = padded_fp8(m.rows), columns = padded_fp8(m.columns);
    parallel_for_range(pool, rows * columns, kFp8Grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / columns, column = i % columns;
        const bool inside = row < m.rows && column < m.columns;
        const float x = inside ? fp8_operand(m.x, p.dtype, row * m.columns + column) : 0;
        const uint8_t bits = inside ? float_to_fp8(x * m.scale[1], p.format) : uint8_t{0};
        if (values) values[i] = bits;
        if (transposed) transposed[column * rows + row] = bits;
      }
    });
  }
}

void fp8_gemm_cpu(ThreadPool& pool, const Fp8GemmParams& p) {
  require(p.dtype == DType::f32, ErrorCode::dtype_mismatch, "fp8",
          "the CPU multiplies FP8 into float32, not into ", dtype_name(p.dtype));
  if (p.m == 0 || p.n == 0) return;
  std::vector<float> a = decoded(pool, p.a, p.a_format, p.m * p.k);
  const std::vector<float> b = decoded(pool, p.b, p.b_format, p.n * p.k);
  // Both are powers of two: the order of the products does not matter.
  for (float& value : a) value *= p.a_scale[0] * p.b_scale[0];
  GemmParams q;
  q.trans_b = true;
  q.m = p.m;
  q.n = p.n;
  q.k = p.k;
  q.a = a.data();
  q.b = b.data();
  q.lda = q.ldb = std::max<int64_t>(1, p.k);
  q.c = p.c;
  q.ldc = p.n;
  q.bias = p.bias;
  q.accumulate = p.accumulate;
  gemm_cpu(pool, q);
}

}  // namespace trafo
