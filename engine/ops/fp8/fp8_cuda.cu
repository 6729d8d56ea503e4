// CUDA kernels of FP8 scales and values, and the product on cuBLASLt.
#include "engine/ops/fp8/fp8.h"

#include <algorithm>
#include <cstdint>

#include "engine/backend/cuda/device/fp8.cuh"
#include "engine/backend/cuda/device/largest.cuh"
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/gemm_plans.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// --- The largest magnitude, in two stages ---

// Bits of the largest magnitude as a float32, of part `part` of `parts` of v: in thread 0. Parts go
// from the end of v to its beginning: the end was written last and may still be in the cache, and
// the next reader begins at the beginning.
template <class T>
__device__ __forceinline__ uint32_t largest_of_part(const T* v, int64_t count, int part, int parts,
                                                    uint32_t (&shared)[kThreads / 32]) {
  constexpr int W = kPackWidth<T>;
  constexpr int kLoads = 4;
  const int64_t packs = reinterpret_cast<uintptr_t>(v) % 16 == 0 ? count / W : 0;
  const int64_t stride = int64_t{parts} * kThreads;
  const int64_t first = int64_t{part} * kThreads + threadIdx.x;
  const auto* words = reinterpret_cast<const uint4*>(v);
  Largest<T> seen;
  for (int64_t i = first; i < packs; i += stride * kLoads) {
    uint4 pack[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      pack[u] = i + u * stride < packs ? words[packs - 1 - (i + u * stride)] : uint4{};
#pragma unroll
    for (int u = 0; u < kLoads; ++u) seen.see(pack[u]);
  }
  for (int64_t i = packs * W + first; i < count; i += stride) seen.see(load_pack<T, 1>(v + i));
  return block_largest<kThreads>(seen.bits(), shared);
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
  top = block_largest<kThreads>(top, shared);
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
  // The first block of each item and the end, for the search of the largest (no block where it is
  // known) and for the tiles.
  int32_t first_part[kMostItems + 1], first_tile[kMostItems + 1];
  Divider tiles_of_row[kMostItems];
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

// A tile of kTileRows x kTileColumns of the padded matrix. A thread has a pack of 8 columns of four
// neighbouring rows, so that their bytes of a column are a word. These words leave through shared
// memory, in packs of 16 rows of a column.
constexpr int kTileRows = 128, kTileColumns = 64, kPackColumns = 8, kRowsOfThread = 4;
constexpr int kPacksOfRow = kTileColumns / kPackColumns, kWordsOfColumn = kTileRows / 4;
static_assert(kPacksOfRow * kWordsOfColumn == kThreads);

// The place of a word in shared memory. No two threads of a warp meet in a bank: those that write
// have packs of every eighth column, of which the upper half is moved by four, and those that read
// have words of neighbouring columns.
constexpr int kTurnedPitch = kWordsOfColumn + 1, kTurnedMove = 4;
constexpr int kTurnedWords = kTileColumns * kTurnedPitch + kTurnedMove;
__device__ __forceinline__ int turned_word(int column, int word) {
  return column * kTurnedPitch + column / 32 * kTurnedMove + word;
}

// Byte j of word u becomes byte u of word j.
__device__ __forceinline__ void turn(uint32_t (&words)[4]) {
  const uint32_t low01 = __byte_perm(words[0], words[1], 0x5140),
                 low23 = __byte_perm(words[2], words[3], 0x5140),
                 high01 = __byte_perm(words[0], words[1], 0x7362),
                 high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

// Eight elements as they are stored.
template <class T>
struct Eight {
  static constexpr int kStep = kPackWidth<T>, kParts = kPackColumns / kStep;
  uint4 parts[kParts];

  __device__ __forceinline__ void load(const T* at) {
#pragma unroll
    for (int k = 0; k < kParts; ++k) parts[k] = load_held<T, kStep>(at + k * kStep);
  }
  // The first `inside` of them, zeros after them.
  __device__ __forceinline__ void load(const T* at, int inside) {
    T elements[kPackColumns];
#pragma unroll
    for (int j = 0; j < kPackColumns; ++j) elements[j] = j < inside ? at[j] : from_float<T>(0.0f);
    memcpy(parts, elements, sizeof parts);
  }
  template <Fp8Format kFormat>
  __device__ __forceinline__ uint2 bytes(float scale) const {
    float v[kPackColumns];
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
      float part[kStep];
      to_floats<T>(parts[k], part);
#pragma unroll
      for (int j = 0; j < kStep; ++j) v[k * kStep + j] = part[j];
    }
    return fp8_of_8<kFormat>(v, scale);
  }
};

// The first `inside` of eight bytes, zeros after them.
__device__ __forceinline__ uint2 first_bytes(uint2 bytes, int inside) {
  const uint64_t mask = inside >= kPackColumns ? ~uint64_t{0} : (uint64_t{1} << (8 * inside)) - 1;
  return {bytes.x & static_cast<uint32_t>(mask), bytes.y & static_cast<uint32_t>(mask >> 32)};
}

// Copies of the tile at [first_row, first_column]. kWhole: it lies inside the matrix, which is read
// in packs. `scale_of` is called by all threads, when their loads are on their way.
template <class T, Fp8Format kFormat, bool kWhole, class ScaleOf>
__device__ __forceinline__ void quantize_tile(const Fp8Item& m, int64_t first_row,
                                              int64_t first_column,
                                              uint32_t (&turned)[kTurnedWords],
                                              const ScaleOf& scale_of) {
  const int64_t rows = padded_fp8(m.rows), columns = padded_fp8(m.columns);
  const int pack = static_cast<int>(threadIdx.x) % kPacksOfRow,
            word = static_cast<int>(threadIdx.x) / kPacksOfRow;
  const int64_t row = first_row + word * kRowsOfThread, column = first_column + pack * kPackColumns;
  const int inside = static_cast<int>(min(max(m.columns - column, int64_t{0}), int64_t{8}));
  const T* at = static_cast<const T*>(m.x) + row * m.columns + column;
  Eight<T> eights[kRowsOfThread];
#pragma unroll
  for (int u = 0; u < kRowsOfThread; ++u) {
    if constexpr (kWhole)
      eights[u].load(at + u * m.columns);
    else
      eights[u].load(at + u * m.columns, row + u < m.rows ? inside : 0);
  }
  const float scale = scale_of();
  auto* const values = static_cast<uint8_t*>(m.values);
  auto* const transposed = static_cast<uint8_t*>(m.transposed);
  // Padded sides are multiples of 16: a pack and four rows lie inside of them or outside.
  const bool stored = values && (kWhole || (row < rows && column < columns));
  uint32_t left[kRowsOfThread], right[kRowsOfThread];  // four columns each
#pragma unroll
  for (int u = 0; u < kRowsOfThread; ++u) {
    uint2 bytes = eights[u].template bytes<kFormat>(scale);
    // Zeros outside even if the scale is NaN.
    if constexpr (!kWhole) bytes = first_bytes(bytes, row + u < m.rows ? inside : 0);
    if (stored) *reinterpret_cast<uint2*>(values + (row + u) * columns + column) = bytes;
    left[u] = bytes.x;
    right[u] = bytes.y;
  }
  if (!transposed) return;
  turn(left);
  turn(right);
  uint32_t* const to = turned + turned_word(pack * kPackColumns, word);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    to[j * kTurnedPitch] = left[j];
    to[(4 + j) * kTurnedPitch] = right[j];
  }
  __syncthreads();
  // Packs of 16 rows, a column for every eight threads.
  constexpr int kPacksOfColumn = kTileRows / 16, kColumnsAtOnce = kThreads / kPacksOfColumn;
  static_assert(kColumnsAtOnce == 32);
  const int c = static_cast<int>(threadIdx.x) / kPacksOfColumn,
            r = static_cast<int>(threadIdx.x) % kPacksOfColumn * 16;
  const uint32_t* from = turned + turned_word(c, r / 4);
  uint8_t* out = transposed + (first_column + c) * rows + first_row + r;
#pragma unroll
  for (int k = 0; k < kTileColumns / kColumnsAtOnce; ++k) {
    if (kWhole || (first_column + c + k * kColumnsAtOnce < columns && first_row + r < rows))
      *reinterpret_cast<uint4*>(out + k * kColumnsAtOnce * rows) =
          uint4{from[0], from[1], from[2], from[3]};
    from += kColumnsAtOnce * kTurnedPitch + kTurnedMove;
  }
}

template <class T, Fp8Format kFormat>
__global__ void __launch_bounds__(kThreads)
    quantize_items(const __grid_constant__ QuantizeArgs a, const uint32_t* largest) {
  __shared__ uint32_t turned[kTurnedWords];
  __shared__ uint32_t shared[kThreads / 32];
  const int item = a.count == 1 ? 0 : item_of(a.first_tile, a.count, static_cast<int>(blockIdx.x));
  const Fp8Item& m = a.items[item];
  const int block = static_cast<int>(blockIdx.x) - a.first_tile[item];
  // One end of x may still be in the cache: its end if it was written in order and not read since,
  // its beginning after largest_of_items.
  const auto tile = static_cast<uint32_t>(
      m.largest ? a.first_tile[item + 1] - a.first_tile[item] - 1 - block : block);
  const Divider& tiles_of_row = a.tiles_of_row[item];
  const uint32_t tile_row = tiles_of_row.quotient(tile),
                 tile_column = tile - tile_row * tiles_of_row.divisor;
  const int64_t first_row = int64_t{tile_row} * kTileRows,
                first_column = int64_t{tile_column} * kTileColumns;
  const auto scale_of = [&] {
    uint32_t top = 0;
    if (m.largest) {
      top = *m.largest;
    } else {
      for (int i = a.first_part[item] + static_cast<int>(threadIdx.x); i < a.first_part[item + 1];
           i += kThreads)
        top = max(top, largest[i]);
      top = block_largest<kThreads>(top, shared);
    }
    const Fp8ScaleBits bits = fp8_scale_bits(top, kFormat);
    if (block == 0 && threadIdx.x == 0) put_scale(bits, m.scale);
    return __uint_as_float(bits.scale);
  };
  const bool packs = m.columns % kPackColumns == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
  if (packs && first_row + kTileRows <= m.rows && first_column + kTileColumns <= m.columns)
    quantize_tile<T, kFormat, true>(m, first_row, first_column, turned, scale_of);
  else
    quantize_tile<T, kFormat, false>(m, first_row, first_column, turned, scale_of);
}

template <class T, Fp8Format kFormat>
int32_t quantize_some(DeviceState& device, const QuantizeArgs& args) {
  const int32_t parts = args.first_part[args.count], tiles = args.first_tile[args.count];
  if (tiles == 0) return kSuccess;
  auto* largest =
      static_cast<uint32_t*>(device.scratch(static_cast<size_t>(parts) * sizeof(uint32_t)));
  if (parts > 0 && !largest) return kOutOfMemory;
  if (parts > 0) {
    largest_of_items<T>
        <<<static_cast<unsigned>(parts), kThreads, 0, device.stream>>>(args, largest);
    const int32_t result = launched(device, "fp8_quantize");
    if (result != kSuccess) return result;
  }
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
    const int64_t tiles_of_row = (padded_fp8(item.columns) + kTileColumns - 1) / kTileColumns;
    tiles += (padded_fp8(item.rows) + kTileRows - 1) / kTileRows * tiles_of_row;
    if (tiles > INT32_MAX) return unsupported(device, "fp8_quantize: too many elements");
    const int32_t at = args.count++;
    args.items[at] = item;
    args.tiles_of_row[at] = Divider::by(static_cast<uint32_t>(tiles_of_row));
    args.first_part[at + 1] =
        args.first_part[at] + (item.largest ? 0 : parts_of<T>(item.rows * item.columns));
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
