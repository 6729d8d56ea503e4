// The values of a matrix in codes (quant/base_codes.h). The roundings are written out, so that no
// option of the compiler changes a bit.
#pragma once

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo::cuda {

template <int N>
struct CodeTable {
  float at[N];
};

template <int N>
constexpr CodeTable<N> code_table(const std::array<float, N>& from) {
  CodeTable<N> table{};
  for (int i = 0; i < N; ++i) table.at[i] = from[static_cast<size_t>(i)];
  return table;
}

__device__ __forceinline__ float half_value(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// A matrix [.., columns].
struct Coded {
  const uint8_t* bytes;
  base_codes::Places places;
  int64_t columns;
  int64_t row_bytes, groups;  // of int4

  __device__ __forceinline__ const uint8_t* scales() const { return bytes + places.scales; }
  __device__ __forceinline__ const float* nested() const {
    return reinterpret_cast<const float*>(bytes + places.nested);
  }
  __device__ __forceinline__ float offset() const {
    return __ldg(reinterpret_cast<const float*>(bytes + places.offset));
  }
};

inline Coded coded_of(BasePrecision precision, const void* bytes, int64_t rows, int64_t columns) {
  return {static_cast<const uint8_t*>(bytes), base_codes::places_of(precision, rows, columns),
          columns, base_codes::ceil_div(columns, 2),
          base_codes::ceil_div(columns, base_codes::kGroup)};
}

// Of nf4: the absmax of a block. `dynamic`: the value of its code.
__device__ __forceinline__ float absmax_of(float dynamic, float nested, float offset) {
  return __fadd_rn(__fmul_rn(dynamic, nested), offset);
}

// The scale of the element in row r and column c. `dynamic`: kDynamicCode.
template <BasePrecision kPrecision>
__device__ __forceinline__ float scale_at(const Coded& m, int64_t r, int64_t c,
                                          const float* dynamic) {
  if constexpr (kPrecision == BasePrecision::nf4) {
    const int64_t block = (r * m.columns + c) / base_codes::kBlock;
    return absmax_of(dynamic[m.scales()[block]],
                     __ldg(m.nested() + block / base_codes::kNestedBlock), m.offset());
  } else if constexpr (kPrecision == BasePrecision::int8) {
    return __ldg(reinterpret_cast<const float*>(m.scales()) + r);
  } else {
    const auto* scales = reinterpret_cast<const unsigned short*>(m.scales());
    return half_value(__ldg(scales + r * m.groups + c / base_codes::kGroup));
  }
}

// Element i of a word of codes.
template <BasePrecision kPrecision, class Word>
__device__ __forceinline__ float code_in(Word word, int i, const float* normal_float) {
  constexpr int kInt4Zero = 8;
  if constexpr (kPrecision == BasePrecision::nf4)  // the high bits of a byte come first
    return normal_float[(word >> (4 * (i ^ 1))) & 15];
  else if constexpr (kPrecision == BasePrecision::int8)
    return static_cast<float>(static_cast<int8_t>(word >> (8 * i)));
  else
    return static_cast<float>(static_cast<int>((word >> (4 * i)) & 15) - kInt4Zero);
}

template <BasePrecision kPrecision>
__device__ __forceinline__ int64_t code_byte(const Coded& m, int64_t r, int64_t c) {
  if constexpr (kPrecision == BasePrecision::nf4) return (r * m.columns + c) / 2;
  if constexpr (kPrecision == BasePrecision::int8) return r * m.columns + c;
  return r * m.row_bytes + c / 2;
}

}  // namespace trafo::cuda
