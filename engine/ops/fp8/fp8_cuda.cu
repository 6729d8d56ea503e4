// CUDA kernels of FP8 scales and values, and the product on cuBLASLt.
#include "engine/ops/fp8/fp8.h"

#include <algorithm>
#include <cstdint>

#include "engine/backend/cuda/device/fp8.cuh"
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/gemm_plans.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// --- The largest magnitude, in two stages ---

// Running maxima of magnitudes. As bits they are ordered like their values, with infinity and NaN
// at the end. bfloat16: two of them in a word.
template <class T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t word) {
  if constexpr (sizeof(T) == 2)
    return __vmaxu2(a, word & 0x7fff7fffu);
  else
    return max(a, word & 0x7fffffffu);
}

// The largest of the block, in all threads. One barrier.
__device__ __forceinline__ uint32_t block_largest(uint32_t top, uint32_t (&shared)[kThreads / 32]) {
  top = __reduce_max_sync(0xffffffffu, top);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) top = max(top, shared[warp]);
  return top;
}

// Bits of the largest magnitude as a float32, of part `part` of `parts` of v: in thread 0. Parts
// go from the end of v to its beginning: what was written last may still be in the cache, and the
// reader behind this begins at the beginning.
template <class T>
__device__ __forceinline__ uint32_t largest_of_part(const T* v, int64_t count, int part, int parts,
                                                    uint32_t (&shared)[kThreads / 32]) {
  constexpr int W = kPackWidth<T>;
  constexpr int kLoads = 4;
  const int64_t packs = reinterpret_cast<uintptr_t>(v) % 16 == 0 ? count / W : 0;
  const int64_t stride = int64_t{parts} * kThreads;
  const int64_t first = int64_t{part} * kThreads + threadIdx.x;
  const auto* words = reinterpret_cast<const uint4*>(v);
  uint32_t top = 0;
  for (int64_t i = first; i < packs; i += stride * kLoads) {
    uint4 pack[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      pack[u] = i + u * stride < packs ? words[packs - 1 - (i + u * stride)] : uint4{};
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      top = larger<T>(larger<T>(larger<T>(larger<T>(top, pack[u].x), pack[u].y), pack[u].z),
                      pack[u].w);
  }
  if constexpr (sizeof(T) == 2) top = max(top << 16, top & 0xffff0000u);
  for (int64_t i = packs * W + first; i < count; i += stride)
    top = max(top, __float_as_uint(to_float(v[i])) & 0x7fffffffu);
  return block_largest(top, shared);
}

// Blocks that look for the largest of this number of elements.
constexpr int kMostParts = 512;
template <class T>
int parts_of(int64_t count) {
  constexpr int64_t kPart = int64_t{kThreads} * 4 * kPackWidth<T>;
  return static_cast<int>(std::clamp<int64_t>((count + kPart - 1) / kPart, 1, kMostParts));
}

__device__ __forceinline__ void put_scale(const Fp8ScaleBits& bits, float* scale) {
  scale[0] = __uint_as_float(bits.inverse);
  scale[1] = __uint_as_float(bits.scale);
}

// --- The scale of a bound ---

template <class T>
__global__ void __launch_bounds__(kThreads)
    largest_of_parts(const T* v, int64_t count, uint32_t* largest) {
  __shared__ uint32_t shared[kThreads / 32];
  const uint32_t top =
      largest_of_part(v, count, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), shared);
  if (threadIdx.x == 0) largest[blockIdx.x] = top;
}

// One block. The bound is rounded up, so that it holds.
__global__ void __launch_bounds__(kThreads)
    scale_of_largest(const uint32_t* largest, int parts, double factor, Fp8Format format,
                     float* scale) {
  __shared__ uint32_t shared[kThreads / 32];
  uint32_t top = parts == 0 ? __float_as_uint(1.0f) : 0;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kThreads) top = max(top, largest[i]);
  top = block_largest(top, shared);
  if (threadIdx.x != 0) return;
  const float bound = __double2float_ru(static_cast<double>(__uint_as_float(top)) * fabs(factor));
  put_scale(fp8_scale_bits(__float_as_uint(bound) & 0x7fffffffu, format), scale);
}

template <class T>
int32_t fp8_scale(DeviceState& device, const Fp8ScaleParams& p) {
  int parts = 0;
  uint32_t* largest = nullptr;
  if (p.v) {
    parts = parts_of<T>(p.count);
    largest = static_cast<uint32_t*>(device.scratch(static_cast<size_t>(parts) * sizeof(uint32_t)));
    if (!largest) return kOutOfMemory;
    largest_of_parts<<<static_cast<unsigned>(parts), kThreads, 0, device.stream>>>(
        static_cast<const T*>(p.v), p.count, largest);
    const int32_t result = launched(device, "fp8_scale");
    if (result != kSuccess) return result;
  }
  scale_of_largest<<<1, kThreads, 0, device.stream>>>(largest, parts, p.factor, p.format, p.scale);
  return launched(device, "fp8_scale");
}

// --- Values: all matrices of a call in two launches ---

constexpr int kMostItems = 48;  // of a launch: kernels take them as parameters

struct QuantizeArgs {
  Fp8Item items[kMostItems];
  // The first block of each item and the end, for the search of the largest and for the tiles.
  int32_t first_part[kMostItems + 1], first_tile[kMostItems + 1];
  int32_t count;
};
static_assert(sizeof(QuantizeArgs) < 4000);

// The item of a block.
__device__ __forceinline__ int item_of(const int32_t* first, int count, int block) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (block < first[middle])
      high = middle;
    else
      low = middle;
  }
  return low;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    largest_of_items(const __grid_constant__ QuantizeArgs a, uint32_t* largest) {
  __shared__ uint32_t shared[kThreads / 32];
  const int block = static_cast<int>(blockIdx.x), i = item_of(a.first_part, a.count, block);
  const Fp8Item& item = a.items[i];
  const uint32_t top =
      largest_of_part(static_cast<const T*>(item.x), item.rows * item.columns,
                      block - a.first_part[i], a.first_part[i + 1] - a.first_part[i], shared);
  if (threadIdx.x == 0) largest[block] = top;
}

// A tile of kTileRows x kTileColumns of the padded matrix: its rows are read as packs of 8, and its
// columns leave through shared memory in packs of 16 bytes.
constexpr int kTileRows = 128, kTileColumns = 64, kPackColumns = 8;
constexpr int kPitch = kTileRows + 4;  // bytes of a column: the banks of neighbours differ

// Eight elements of a row from `column` on, zeros outside.
template <class T>
__device__ __forceinline__ void load_eight(const Fp8Item& m, bool packs, int64_t row,
                                           int64_t column, float (&v)[kPackColumns]) {
  const T* at = static_cast<const T*>(m.x) + row * m.columns + column;
  const bool inside = row < m.rows && column < m.columns;
  if (inside && packs) {
    constexpr int kStep = kPackWidth<T>;
#pragma unroll
    for (int j = 0; j < kPackColumns; j += kStep) {
      float part[kStep];
      to_floats<T>(load_held<T, kStep>(at + j), part);
#pragma unroll
      for (int i = 0; i < kStep; ++i) v[j + i] = part[i];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPackColumns; ++j)
      v[j] = inside && column + j < m.columns ? to_float(at[j]) : 0.0f;
  }
}

// The bits of what lies outside are zeros even if the scale is NaN.
template <Fp8Format kFormat>
__device__ __forceinline__ uint2 packed_fp8(const Fp8Item& m, int64_t row, int64_t column,
                                            const float (&v)[kPackColumns], float scale) {
  uint2 bytes = fp8_of_8<kFormat>(v, scale);
  if (row >= m.rows) return {0, 0};
  if (column + kPackColumns <= m.columns) return bytes;
  const int64_t left = max(m.columns - column, int64_t{0});
  const uint64_t mask = (uint64_t{1} << (8 * left)) - 1;
  return {bytes.x & static_cast<uint32_t>(mask), bytes.y & static_cast<uint32_t>(mask >> 32)};
}

template <class T, Fp8Format kFormat>
__global__ void __launch_bounds__(kThreads)
    quantize_items(const __grid_constant__ QuantizeArgs a, const uint32_t* largest) {
  constexpr int kPacks = kTileColumns / kPackColumns, kRowsAtOnce = kThreads / kPacks;
  constexpr int kSteps = kTileRows / kRowsAtOnce;
  __shared__ __align__(16) uint8_t turned[kTileColumns * kPitch];
  __shared__ uint32_t shared[kThreads / 32];
  const int item = item_of(a.first_tile, a.count, static_cast<int>(blockIdx.x));
  const Fp8Item& m = a.items[item];
  const int tile = static_cast<int>(blockIdx.x) - a.first_tile[item];
  uint32_t top = 0;
  for (int i = a.first_part[item] + static_cast<int>(threadIdx.x); i < a.first_part[item + 1];
       i += kThreads)
    top = max(top, largest[i]);

  const int64_t rows = padded_fp8(m.rows), columns = padded_fp8(m.columns);
  const int tiles = static_cast<int>((columns + kTileColumns - 1) / kTileColumns);
  const int64_t first_row = int64_t{tile / tiles} * kTileRows;
  const int64_t first_column = int64_t{tile % tiles} * kTileColumns;
  const int column_in_tile = static_cast<int>(threadIdx.x) % kPacks * kPackColumns;
  const int row_in_tile = static_cast<int>(threadIdx.x) / kPacks;
  const int64_t column = first_column + column_in_tile;
  const bool packs = m.columns % kPackColumns == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
  float v[kSteps][kPackColumns];
#pragma unroll
  for (int u = 0; u < kSteps; ++u)
    load_eight<T>(m, packs, first_row + row_in_tile + u * kRowsAtOnce, column, v[u]);

  const Fp8ScaleBits bits = fp8_scale_bits(block_largest(top, shared), kFormat);
  if (tile == 0 && threadIdx.x == 0) put_scale(bits, m.scale);
  const float scale = __uint_as_float(bits.scale);
  auto* values = static_cast<uint8_t*>(m.values);
  auto* transposed = static_cast<uint8_t*>(m.transposed);
#pragma unroll
  for (int u = 0; u < kSteps; ++u) {
    const int64_t row = first_row + row_in_tile + u * kRowsAtOnce;
    const uint2 bytes = packed_fp8<kFormat>(m, row, column, v[u], scale);
    if (values && row < rows && column < columns)
      *reinterpret_cast<uint2*>(values + row * columns + column) = bytes;
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
    if (first_column + c >= columns || first_row + r >= rows) continue;
    const auto* from = reinterpret_cast<const uint32_t*>(turned + c * kPitch + r);
    *reinterpret_cast<uint4*>(transposed + (first_column + c) * rows + first_row + r) =
        uint4{from[0], from[1], from[2], from[3]};
  }
}

template <class T, Fp8Format kFormat>
int32_t quantize_some(DeviceState& device, const QuantizeArgs& args) {
  const int32_t parts = args.first_part[args.count], tiles = args.first_tile[args.count];
  if (tiles == 0) return kSuccess;
  auto* largest =
      static_cast<uint32_t*>(device.scratch(static_cast<size_t>(parts) * sizeof(uint32_t)));
  if (!largest) return kOutOfMemory;
  largest_of_items<T><<<static_cast<unsigned>(parts), kThreads, 0, device.stream>>>(args, largest);
  const int32_t result = launched(device, "fp8_quantize");
  if (result != kSuccess) return result;
  quantize_items<T, kFormat>
      <<<static_cast<unsigned>(tiles), kThreads, 0, device.stream>>>(args, largest);
  return launched(device, "fp8_quantize");
}

template <class T, Fp8Format kFormat>
int32_t quantize(DeviceState& device, const Fp8QuantizeParams& p) {
  QuantizeArgs args{};
  int64_t tiles = 0;
  for (int64_t i = 0; i < p.count; ++i) {
    const Fp8Item& item = p.items[i];
    if (item.rows == 0 || item.columns == 0) continue;
    if (!aligned16(item.values) || !aligned16(item.transposed))
      return unsupported(device, "fp8_quantize: FP8 copies are aligned to 16 bytes");
    tiles += (padded_fp8(item.rows) + kTileRows - 1) / kTileRows *
             ((padded_fp8(item.columns) + kTileColumns - 1) / kTileColumns);
    if (tiles > INT32_MAX) return unsupported(device, "fp8_quantize: too many elements");
    const int32_t at = args.count++;
    args.items[at] = item;
    args.first_part[at + 1] = args.first_part[at] + parts_of<T>(item.rows * item.columns);
    args.first_tile[at + 1] = static_cast<int32_t>(tiles);
    if (args.count < kMostItems) continue;
    const int32_t result = quantize_some<T, kFormat>(device, args);
    if (result != kSuccess) return result;
    args.count = 0;
    tiles = 0;
  }
  return quantize_some<T, kFormat>(device, args);
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
  if (p.dtype != DType::bf16 && (p.dtype != DType::f32 || p.bias))
    return unsupported(device,
                       "fp8_gemm: CUDA multiplies FP8 into bfloat16 or, without bias, float32");
  if (p.m == 0 || p.n == 0) return kSuccess;
  if (p.k == 0 && p.accumulate) return kSuccess;
  if (p.k == 0 || p.n % kFp8Multiple != 0 || p.k % kFp8Multiple != 0)
    return unsupported(device, "fp8_gemm: n and k must be multiples of 16");
  GemmParams q;
  q.dtype = DType::bf16;
  q.c_is_f32 = p.dtype == DType::f32;
  q.accumulate = p.accumulate;
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
