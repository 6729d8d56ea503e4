// CUDA kernels of FP8 scales and values, and the product on cuBLASLt.
#include "engine/ops/fp8/fp8.h"

#include <algorithm>

#include "engine/backend/cuda/device/fp8.cuh"
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/gemm_plans.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// --- The scale: the largest magnitude, in two stages ---

// Running maxima of magnitudes. As bits they are ordered like their values, with infinity and NaN
// at the end. bfloat16: two of them in a word.
template <class T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t word) {
  if constexpr (sizeof(T) == 2)
    return __vmaxu2(a, word & 0x7fff7fffu);
  else
    return max(a, word & 0x7fffffffu);
}

// One uint32 for a block: the bits of the largest magnitude as a float32.
template <class T>
__global__ void __launch_bounds__(kThreads)
    largest_of_blocks(const T* v, int64_t packs, int64_t count, uint32_t* largest) {
  constexpr int W = kPackWidth<T>;
  constexpr int kLoads = 4;
  __shared__ uint32_t shared[kThreads / 32];
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const auto* words = reinterpret_cast<const uint4*>(v);
  uint32_t top = 0;
  for (int64_t i = first; i < packs; i += stride * kLoads) {
    uint4 pack[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      pack[u] = i + u * stride < packs ? words[i + u * stride] : uint4{};
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      top = larger<T>(larger<T>(larger<T>(larger<T>(top, pack[u].x), pack[u].y), pack[u].z),
                      pack[u].w);
  }
  if constexpr (sizeof(T) == 2) top = max(top << 16, top & 0xffff0000u);
  for (int64_t i = packs * W + first; i < count; i += stride)
    top = max(top, __float_as_uint(to_float(v[i])) & 0x7fffffffu);
  top = __reduce_max_sync(0xffffffffu, top);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) top = max(top, shared[warp]);
  largest[blockIdx.x] = top;
}

// One block. The bound is rounded up, so that it holds.
__global__ void __launch_bounds__(kThreads)
    scale_of_largest(const uint32_t* largest, int blocks, double factor, Fp8Format format,
                     float* scale) {
  __shared__ uint32_t shared[kThreads / 32];
  uint32_t top = blocks == 0 ? __float_as_uint(1.0f) : 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) top = max(top, largest[i]);
  top = __reduce_max_sync(0xffffffffu, top);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) top = max(top, shared[warp]);
  const float bound = __double2float_ru(static_cast<double>(__uint_as_float(top)) * fabs(factor));
  const Fp8ScaleBits bits = fp8_scale_bits(__float_as_uint(bound) & 0x7fffffffu, format);
  scale[0] = __uint_as_float(bits.inverse);
  scale[1] = __uint_as_float(bits.scale);
}

template <class T>
int32_t fp8_scale(DeviceState& device, const Fp8ScaleParams& p) {
  constexpr int64_t kBlockPacks = kThreads * 4;
  const auto* v = static_cast<const T*>(p.v);
  const int64_t packs = aligned16(v) ? p.count / kPackWidth<T> : 0;
  const int64_t work = packs > 0 ? packs : p.count;
  int64_t blocks = 0;
  uint32_t* largest = nullptr;
  if (v) {
    blocks = std::clamp<int64_t>((work + kBlockPacks - 1) / kBlockPacks, 1,
                                 int64_t{8} * std::max(1, device.multiprocessors));
    largest =
        static_cast<uint32_t*>(device.scratch(static_cast<size_t>(blocks) * sizeof(uint32_t)));
    if (!largest) return kOutOfMemory;
    largest_of_blocks<T>
        <<<static_cast<unsigned>(blocks), kThreads, 0, device.stream>>>(v, packs, p.count, largest);
    const int32_t result = launched(device, "fp8_scale");
    if (result != kSuccess) return result;
  }
  scale_of_largest<<<1, kThreads, 0, device.stream>>>(largest, static_cast<int>(blocks), p.factor,
                                                      p.format, p.scale);
  return launched(device, "fp8_scale");
}

// --- Values ---

// A tile of kTileRows x kTileColumns: its rows are read as packs of 8, and its columns leave
// through shared memory in packs of 16 bytes. rows is a multiple of 16 if `transposed` is wanted,
// columns one of 8, and everything is aligned to 16 bytes.
constexpr int kTileRows = 128, kTileColumns = 64, kPackColumns = 8;
constexpr int kPitch = kTileRows + 4;  // bytes of a column: the banks of neighbours differ

template <class T, Fp8Format kFormat>
__global__ void __launch_bounds__(kThreads) quantize_tiles(Fp8QuantizeParams p) {
  constexpr int kPacks = kTileColumns / kPackColumns, kRowsAtOnce = kThreads / kPacks;
  constexpr int kSteps = kTileRows / kRowsAtOnce;
  __shared__ __align__(16) uint8_t turned[kTileColumns * kPitch];
  const float scale = p.scale[1];
  const auto* x = static_cast<const T*>(p.x);
  auto* values = static_cast<uint8_t*>(p.values);
  auto* transposed = static_cast<uint8_t*>(p.transposed);
  const int column_in_tile = static_cast<int>(threadIdx.x) % kPacks * kPackColumns;
  const int row_in_tile = static_cast<int>(threadIdx.x) / kPacks;
  const int64_t first_row = int64_t{blockIdx.y} * kTileRows;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns;
  const int64_t column = first_column + column_in_tile;
  float v[kSteps][kPackColumns];
#pragma unroll
  for (int u = 0; u < kSteps; ++u) {
    const int64_t row = first_row + row_in_tile + u * kRowsAtOnce;
    if (row < p.rows && column < p.columns) {
      constexpr int kStep = kPackWidth<T>;
#pragma unroll
      for (int j = 0; j < kPackColumns; j += kStep) {
        float part[kStep];
        to_floats<T>(load_held<T, kStep>(x + row * p.columns + column + j), part);
#pragma unroll
        for (int i = 0; i < kStep; ++i) v[u][j + i] = part[i];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPackColumns; ++j) v[u][j] = 0;
    }
  }
#pragma unroll
  for (int u = 0; u < kSteps; ++u) {
    const int64_t row = first_row + row_in_tile + u * kRowsAtOnce;
    const uint2 bytes = fp8_of_8<kFormat>(v[u], scale);
    if (values && row < p.rows && column < p.columns)
      *reinterpret_cast<uint2*>(values + row * p.columns + column) = bytes;
    if (transposed) {
      uint8_t* at = turned + column_in_tile * kPitch + row_in_tile + u * kRowsAtOnce;
#pragma unroll
      for (int j = 0; j < kPackColumns; ++j)
        at[j * kPitch] = static_cast<uint8_t>((j < 4 ? bytes.x : bytes.y) >> (j % 4 * 8));
    }
  }
  if (!transposed) return;
  __syncthreads();
  constexpr int kPacksOfColumn = kTileRows / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kPacksOfColumn; i += kThreads) {
    const int c = i / kPacksOfColumn, r = i % kPacksOfColumn * 16;
    if (first_column + c >= p.columns || first_row + r >= p.rows) continue;
    const auto* from = reinterpret_cast<const uint32_t*>(turned + c * kPitch + r);
    *reinterpret_cast<uint4*>(transposed + (first_column + c) * p.rows + first_row + r) =
        uint4{from[0], from[1], from[2], from[3]};
  }
}

// Any size and alignment.
template <class T, Fp8Format kFormat>
__global__ void __launch_bounds__(kThreads) quantize_elements(Fp8QuantizeParams p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.rows * p.columns) return;
  const uint8_t bits = fp8_of<kFormat>(to_float(static_cast<const T*>(p.x)[i]) * p.scale[1]);
  if (p.values) static_cast<uint8_t*>(p.values)[i] = bits;
  if (p.transposed)
    static_cast<uint8_t*>(p.transposed)[i % p.columns * p.rows + i / p.columns] = bits;
}

template <class T, Fp8Format kFormat>
int32_t quantize(DeviceState& device, const Fp8QuantizeParams& p) {
  const bool tiles = p.columns % 16 == 0 && (!p.transposed || p.rows % 16 == 0) && aligned16(p.x) &&
                     aligned16(p.values) && aligned16(p.transposed) &&
                     p.rows <= int64_t{kTileRows} * 65535;
  if (tiles) {
    const dim3 grid(static_cast<unsigned>((p.columns + kTileColumns - 1) / kTileColumns),
                    static_cast<unsigned>((p.rows + kTileRows - 1) / kTileRows));
    quantize_tiles<T, kFormat><<<grid, kThreads, 0, device.stream>>>(p);
  } else {
    const auto blocks = static_cast<unsigned>((p.rows * p.columns - 1) / kThreads + 1);
    quantize_elements<T, kFormat><<<blocks, kThreads, 0, device.stream>>>(p);
  }
  return launched(device, "fp8_quantize");
}

// --- The product ---

int32_t check_card(DeviceState& device) {
  int major = 0, minor = 0;
  cudaError_t error =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index);
  if (error != cudaSuccess) return report(device, error, "cudaDeviceGetAttribute");
  // compute_major is lower than the card's where kernels are chosen as on another card.
  if (std::min(major, device.compute_major) * 10 + minor >= 89) return kSuccess;
  device.error = "FP8 needs a GPU of compute capability 8.9 or newer, this one has " +
                 std::to_string(major) + "." + std::to_string(minor);
  return kUnsupported;
}

}  // namespace
}  // namespace cuda

int32_t fp8_scale_cuda(cuda::DeviceState& device, const Fp8ScaleParams& p) {
  using namespace cuda;
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = fp8_scale<decltype(zero)>(device, p); });
  return known ? result : unsupported(device, "fp8_scale: CUDA has float32 and bfloat16");
}

int32_t fp8_quantize_cuda(cuda::DeviceState& device, const Fp8QuantizeParams& p) {
  using namespace cuda;
  if (p.rows == 0 || p.columns == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    result = p.format == Fp8Format::e4m3 ? quantize<T, Fp8Format::e4m3>(device, p)
                                         : quantize<T, Fp8Format::e5m2>(device, p);
  });
  return known ? result : unsupported(device, "fp8_quantize: CUDA has float32 and bfloat16");
}

int32_t fp8_gemm_cuda(cuda::DeviceState& device, const Fp8GemmParams& p) {
  using namespace cuda;
  const int32_t card = check_card(device);
  if (card != kSuccess) return card;
  if (p.dtype != DType::bf16)
    return unsupported(device, "fp8_gemm: CUDA multiplies FP8 into bfloat16");
  if (p.m == 0 || p.n == 0) return kSuccess;
  if (p.k == 0 || p.n % kFp8Multiple != 0 || p.k % kFp8Multiple != 0)
    return unsupported(device, "fp8_gemm: n and k must be multiples of 16");
  GemmParams q;
  q.dtype = p.dtype;
  q.trans_b = true;
  q.m = p.m;
  q.n = p.n;
  q.k = p.k;
  q.a = p.a;
  q.b = p.b;
  q.lda = q.ldb = p.k;
  q.c = p.c;
  q.ldc = p.n;
  q.bias = p.bias;
  return fp8_gemm(device, q, {p.a_format, p.b_format, p.a_scale, p.b_scale});
}

}  // namespace trafo
