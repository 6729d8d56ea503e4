// CUDA kernel of dequantize. A thread writes 8 neighbours of a row.
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/quantized_linear/coded_values.cuh"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;  // of a thread

__constant__ const CodeTable<16> kNormalFloatTable = code_table<16>(base_codes::kNormalFloat);
__constant__ const CodeTable<256> kDynamicTable = code_table<256>(base_codes::kDynamicCode);

template <BasePrecision kPrecision>
__device__ __forceinline__ float value_at(const Coded& m, int64_t r, int64_t c,
                                          const float* normal_float) {
  const auto byte = static_cast<uint32_t>(m.bytes[code_byte<kPrecision>(m, r, c)]);
  int in_byte = 0;
  if constexpr (kPrecision == BasePrecision::nf4)
    in_byte = static_cast<int>((r * m.columns + c) % 2);
  if constexpr (kPrecision == BasePrecision::int4) in_byte = static_cast<int>(c % 2);
  return __fmul_rn(code_in<kPrecision>(byte, in_byte, normal_float),
                   scale_at<kPrecision>(m, r, c, kDynamicTable.at));
}

// kWhole: sizes and the first column are multiples of 8, so that a thread has one row, one scale
// and one word of codes.
template <BasePrecision kPrecision, class T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ Coded m, const __grid_constant__ MatrixTile part,
                      T* values) {
  __shared__ float normal_float[16];
  if (threadIdx.x < 16) normal_float[threadIdx.x] = kNormalFloatTable.at[threadIdx.x];
  __syncthreads();
  const int64_t count = part.rows * part.columns;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kValues;
  if (first >= count) return;
  if constexpr (kWhole) {
    using Word = std::conditional_t<kPrecision == BasePrecision::int8, uint64_t, uint32_t>;
    const int64_t r = part.row + first / part.columns, c = part.column + first % part.columns;
    const Word word =
        __ldg(reinterpret_cast<const std::conditional_t<kPrecision == BasePrecision::int8,
                                                        unsigned long long, uint32_t>*>(
            m.bytes + code_byte<kPrecision>(m, r, c)));
    const float scale = scale_at<kPrecision>(m, r, c, kDynamicTable.at);
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
      values[i] = from_float<T>(value_at<kPrecision>(m, part.row + i / part.columns,
                                                     part.column + i % part.columns, normal_float));
  }
}

template <BasePrecision kPrecision, class T>
int32_t dequantize(DeviceState& device, const DequantizeParams& p) {
  const MatrixTile& part = p.part;
  const int64_t count = part.rows * part.columns;
  if (count == 0) return kSuccess;
  const Coded m = coded_of(p.precision, p.bytes, p.rows, p.columns);
  const auto blocks =
      static_cast<unsigned>(base_codes::ceil_div(count, int64_t{kThreads} * kValues));
  const bool whole = p.columns % kValues == 0 && part.column % kValues == 0 &&
                     part.columns % kValues == 0 && aligned16(p.values) && aligned16(p.bytes);
  auto* const values = static_cast<T*>(p.values);
  if (whole)
    dequantize_kernel<kPrecision, T, true><<<blocks, kThreads, 0, device.stream>>>(m, part, values);
  else
    dequantize_kernel<kPrecision, T, false>
        <<<blocks, kThreads, 0, device.stream>>>(m, part, values);
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
