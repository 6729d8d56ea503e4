// The definition of FP8 scales, values and products, for tests and dry runs of training.
#include <algorithm>
#include <bit>
#include <cmath>
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
  uint32_t largest = p.v ? 0 : magnitude_bits(1.0f);
  for (int64_t i = 0; p.v && i < p.count; ++i)
    largest = std::max(largest, magnitude_bits(fp8_operand(p.v, p.dtype, i)));
  // Rounded up: the bound must hold.
  const double bound = static_cast<double>(std::bit_cast<float>(largest)) * std::abs(p.factor);
  float rounded = static_cast<float>(bound);
  if (static_cast<double>(rounded) < bound) rounded = std::nextafter(rounded, HUGE_VALF);
  const Fp8ScaleBits bits = fp8_scale_bits(magnitude_bits(rounded), p.format);
  p.scale[0] = std::bit_cast<float>(bits.inverse);
  p.scale[1] = std::bit_cast<float>(bits.scale);
}

void fp8_quantize_cpu(ThreadPool& pool, const Fp8QuantizeParams& p) {
  require_fp8_dtype(p.dtype);
  auto* values = static_cast<uint8_t*>(p.values);
  auto* transposed = static_cast<uint8_t*>(p.transposed);
  parallel_for_range(pool, p.rows * p.columns, kFp8Grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t bits = float_to_fp8(fp8_operand(p.x, p.dtype, i) * p.scale[1], p.format);
      if (values) values[i] = bits;
      if (transposed) transposed[i % p.columns * p.rows + i / p.columns] = bits;
    }
  });
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
  gemm_cpu(pool, q);
}

}  // namespace trafo
