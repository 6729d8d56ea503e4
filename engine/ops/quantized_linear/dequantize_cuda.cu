// CUDA kernel of dequantize. A thread writes 8 neighbours of a row. The roundings are written out,
// so that no option of the compiler changes a bit.
#include <cuda_fp16.h>

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo {
namespace cuda {
namespace {

using base_codes::kBlock;
using base_codes::kGroup;
using base_codes::kNestedBlock;
using base_codes::Places;

constexpr int kThreads = 256;
constexpr int kValues = 8;  // of a thread
constexpr int kInt4Zero = 8;

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

__constant__ const CodeTable<16> kNormalFloatTable = code_table<16>(base_codes::kNormalFloat);
__constant__ const CodeTable<256> kDynamicTable = code_table<256>(base_codes::kDynamicCode);

struct Coded {
  const uint8_t* bytes;
  Places places;
  int64_t columns;
  MatrixTile part;
  int64_t row_bytes, groups;  // of int4

  __device__ __forceinline__ const uint8_t* scales() const { return bytes + places.scales; }
};

// The scale of the element in row r and column c.
template <BasePrecision kPrecision>
__device__ __forceinline__ float scale_at(const Coded& m, int64_t r, int64_t c) {
  if constexpr (kPrecision == BasePrecision::nf4) {
    const int64_t block = (r * m.columns + c) / kBlock;
    const auto* nested = reinterpret_cast<const float*>(m.bytes + m.places.nested);
    const auto* offset = reinterpret_cast<const float*>(m.bytes + m.places.offset);
    return __fadd_rn(
        __fmul_rn(kDynamicTable.at[m.scales()[block]], __ldg(nested + block / kNestedBlock)),
        __ldg(offset));
  } else if constexpr (kPrecision == BasePrecision::int8) {
    return __ldg(reinterpret_cast<const float*>(m.scales()) + r);
  } else {
    const auto* scales = reinterpret_cast<const unsigned short*>(m.scales());
    return __half2float(__ushort_as_half(__ldg(scales + r * m.groups + c / kGroup)));
  }
}

// Element i of a word of codes.
template <BasePrecision kPrecision, class Word>
__device__ __forceinline__ float code_in(Word word, int i, const float* normal_float) {
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

template <BasePrecision kPrecision>
__device__ __forceinline__ float value_at(const Coded& m, int64_t r, int64_t c,
                                          const float* normal_float) {
  const auto byte = static_cast<uint32_t>(m.bytes[code_byte<kPrecision>(m, r, c)]);
  int in_byte = 0;
  if constexpr (kPrecision == BasePrecision::nf4)
    in_byte = static_cast<int>((r * m.columns + c) % 2);
  if constexpr (kPrecision == BasePrecision::int4) in_byte = static_cast<int>(c % 2);
  return __fmul_rn(code_in<kPrecision>(byte, in_byte, normal_float), scale_at<kPrecision>(m, r, c));
}

// kWhole: sizes and the first column are multiples of 8, so that a thread has one row, one scale
// and one word of codes.
template <BasePrecision kPrecision, class T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ Coded m, T* values) {
  __shared__ float normal_float[16];
  if (threadIdx.x < 16) normal_float[threadIdx.x] = kNormalFloatTable.at[threadIdx.x];
  __syncthreads();
  const int64_t count = m.part.rows * m.part.columns;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kValues;
  if (first >= count) return;
  if constexpr (kWhole) {
    using Word = std::conditional_t<kPrecision == BasePrecision::int8, uint64_t, uint32_t>;
    const int64_t r = m.part.row + first / m.part.columns,
                  c = m.part.column + first % m.part.columns;
    const Word word =
        __ldg(reinterpret_cast<const std::conditional_t<kPrecision == BasePrecision::int8,
                                                        unsigned long long, uint32_t>*>(
            m.bytes + code_byte<kPrecision>(m, r, c)));
    const float scale = scale_at<kPrecision>(m, r, c);
    constexpr int V = kPackWidth<T>;
#pragma unroll
    for (int begin = 0; begin < kValues; begin += V) {
      float pack[V];
#pragma unroll
      for (int i = 0; i < V; ++i)
        pack[i] = __fmul_rn(code_in<kPrecision>(word, begin + i, normal_float), scale);
      store_floats<T, V>(values + first + begin, pack);
    }
  } else {
    for (int64_t i = first; i < min(first + kValues, count); ++i)
      values[i] = from_float<T>(value_at<kPrecision>(
          m, m.part.row + i / m.part.columns, m.part.column + i % m.part.columns, normal_float));
  }
}

template <BasePrecision kPrecision, class T>
int32_t dequantize(DeviceState& device, const DequantizeParams& p) {
  const MatrixTile& part = p.part;
  const int64_t count = part.rows * part.columns;
  if (count == 0) return kSuccess;
  const Coded m{static_cast<const uint8_t*>(p.bytes),
                base_codes::places_of(p.precision, p.rows, p.columns),
                p.columns,
                part,
                base_codes::ceil_div(p.columns, 2),
                base_codes::ceil_div(p.columns, kGroup)};
  const auto blocks =
      static_cast<unsigned>(base_codes::ceil_div(count, int64_t{kThreads} * kValues));
  const bool whole = p.columns % kValues == 0 && part.column % kValues == 0 &&
                     part.columns % kValues == 0 && aligned16(p.values) && aligned16(p.bytes);
  auto* const values = static_cast<T*>(p.values);
  if (whole)
    dequantize_kernel<kPrecision, T, true><<<blocks, kThreads, 0, device.stream>>>(m, values);
  else
    dequantize_kernel<kPrecision, T, false><<<blocks, kThreads, 0, device.stream>>>(m, values);
  return launched(device, "dequantize");
}

template <class T>
int32_t dequantize_as(DeviceState& device, const DequantizeParams& p) {
  switch (p.precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4:
      return dequantize<BasePrecision::nf4, T>(device, p);
    case BasePrecision::int8:
      return dequantize<BasePrecision::int8, T>(device, p);
    case BasePrecision::int4:
      return dequantize<BasePrecision::int4, T>(device, p);
  }
  return unsupported(device, "dequantize: the matrix has no codes");
}

}  // namespace
}  // namespace cuda

int32_t dequantize_cuda(cuda::DeviceState& device, const DequantizeParams& p) {
  if (p.to == DType::f32) return cuda::dequantize_as<float>(device, p);
  if (p.to == DType::bf16) return cuda::dequantize_as<cuda::bf16>(device, p);
  return cuda::unsupported(device, "dequantize: float32 and bfloat16 only");
}

}  // namespace trafo
