// Helpers of kernels over rows: access to memory that bypasses L1, sums over the threads of a row,
// copies that run ahead, division by a number known on the host, and sums of partial results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/backend/cuda/device/dropout.cuh"
#include "engine/backend/cuda/device/largest.cuh"
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// Data that is read once, in one access that keeps its place among the others. Without a hint to
// L1: with L1::no_allocate the same kernels were 1 to 3 % slower (docs/lab/gpu-kernel-notes.md).
template <class T, int N>
__device__ __forceinline__ Held<T, N> load_once(const T* p) {
  if constexpr (sizeof(T) * N == 16) {
    uint4 bits;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(p));
    return bits;
  } else {
    return load_held<T, N>(p);
  }
}

// A tensor from this size on is streamed, so that its lines are the first to leave L2: it does not
// stay there until the next kernel reads it. H100 and H200 have 50 MB of L2.
inline constexpr int64_t kStreamedBytes = int64_t{64} << 20;

// As load_once, of a tensor that may be streamed.
template <class T, int N>
__device__ __forceinline__ Held<T, N> load_stream(const T* p, bool streamed) {
  if constexpr (sizeof(T) * N == 16) {
    if (streamed) {
      uint4 bits;
      asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                   : "l"(p));
      return bits;
    }
  }
  return load_once<T, N>(p);
}

__device__ __forceinline__ uint32_t bf16_word(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

template <class T, int N>
__device__ __forceinline__ Held<T, N> from_floats(const float (&in)[N]) {
  if constexpr (sizeof(T) * N == 16 && sizeof(T) == 2) {
    return {bf16_word(in[0], in[1]), bf16_word(in[2], in[3]), bf16_word(in[4], in[5]),
            bf16_word(in[6], in[7])};
  } else if constexpr (sizeof(T) * N == 16) {
    return {__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
            __float_as_uint(in[3])};
  } else {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.v[j] = from_float<T>(in[j]);
    return pack;
  }
}

template <class T, int N>
__device__ __forceinline__ void load_floats(const T* p, float (&out)[N]) {
  to_floats<T>(load_held<T, N>(p), out);
}

template <class T, int N>
__device__ __forceinline__ void store_held(T* p, const Held<T, N>& held) {
  *reinterpret_cast<Held<T, N>*>(p) = held;
}
template <class T, int N>
__device__ __forceinline__ void store_floats(T* p, const float (&in)[N]) {
  store_held<T, N>(p, from_floats<T, N>(in));
}

template <class T, int N>
__device__ __forceinline__ void store_stream(T* p, const Held<T, N>& held, bool streamed) {
  if constexpr (sizeof(T) * N == 16) {
    if (streamed) {
      __stcs(reinterpret_cast<uint4*>(p), held);
      return;
    }
  }
  store_held<T, N>(p, held);
}

// Stores `in`, or adds it to what is there.
template <class T, int N>
__device__ __forceinline__ void put_floats(T* p, const float (&in)[N], bool accumulate) {
  float out[N];
  if (accumulate) {
    load_floats<T, N>(p, out);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] += in[j];
    store_floats<T, N>(p, out);
  } else {
    store_floats<T, N>(p, in);
  }
}

// Lanes threads of a row: a part of a warp, or a whole block of several warps.
template <int Lanes>
inline constexpr int kWarpsOfRow = Lanes > 32 ? Lanes / 32 : 1;
template <int Lanes>
inline constexpr int kThreadsOfBlock = Lanes > 32 ? Lanes : 128;

// `shared` [kWarpsOfRow], used by this call only. With more than a warp every thread of the block
// calls it; one barrier inside.
template <class Op, int Lanes>
__device__ __forceinline__ float row_reduce(float x, float* shared) {
  if constexpr (Lanes <= 32) {
    return warp_reduce<Op, Lanes>(x);
  } else {
    constexpr int kWarps = Lanes / 32;
    const int lane = threadIdx.x % 32;
    x = warp_reduce<Op>(x);
    if (lane == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_reduce<Op, kWarps>(shared[lane % kWarps]);
  }
}

// For a block that has fewer warps than Threads / 32: what row_reduce<Add> and row_sum2 read of the
// others is 0. Before the first of them, by every thread.
template <int Threads, class... Pairs>
__device__ __forceinline__ void clear_absent_warps(Pairs*... shared) {
  const int warp = static_cast<int>(threadIdx.x);
  if (warp >= static_cast<int>(blockDim.x) / 32 && warp < Threads / 32) ((shared[warp] = {}), ...);
}

// Both sums over a warp with half the shuffles of two: lanes below 16 end with the first sum, the
// others with the second.
__device__ __forceinline__ float warp_sum_split(float2 x) {
  const bool upper = threadIdx.x % 32 >= 16;
  const float given = __shfl_xor_sync(0xffffffffu, upper ? x.x : x.y, 16);
  return warp_reduce<Add, 16>((upper ? x.y : x.x) + given);
}

// As row_reduce, of two sums. `group`: which row of the block. The barrier is the whole block's.
template <int Lanes>
__device__ __forceinline__ float2 row_sum2(float2 x, float* shared) {
  const int lane = threadIdx.x % 32;
  const float half = warp_sum_split(x);
  if constexpr (Lanes == 32) {
    return {__shfl_sync(0xffffffffu, half, 0), __shfl_sync(0xffffffffu, half, 16)};
  } else {
    constexpr int kWarps = Lanes / 32;
    const int warp = threadIdx.x / 32;
    if (lane % 16 == 0) shared[2 * warp + lane / 16] = half;
    __syncthreads();
    const int first = warp / kWarps * kWarps;  // of this row
    const float2 part = reinterpret_cast<const float2*>(shared)[first + lane % kWarps];
    return {warp_reduce<Add, kWarps>(part.x), warp_reduce<Add, kWarps>(part.y)};
  }
}

// Copies of 16 bytes from global to shared memory that run while the thread goes on.
__device__ __forceinline__ void copy_ahead(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `Newer` groups of this thread are in flight.
template <int Newer>
__device__ __forceinline__ void wait_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Newer) : "memory");
}

// n / d for n < 2^31 and 1 <= d < 2^31 with one multiplication (Granlund & Montgomery, PLDI'94).
struct Divider {
  uint32_t divisor, factor, shift;
  static Divider by(uint32_t d) {
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < d) ++shift;
    const uint64_t factor = (((uint64_t{1} << shift) - d) << 32) / d + 1;
    return {d, static_cast<uint32_t>(factor), shift};
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return (__umulhi(n, factor) + n) >> shift;
  }
  __device__ __forceinline__ uint32_t remainder(uint32_t n) const {
    return n - quotient(n) * divisor;
  }
};

// Bodies of the kernels below that may leave the largest magnitude of what they write: of type
// Written, shown to a Largest<Written>. It goes to `largest`, or nowhere if that is null.
template <class Body>
concept LeavesLargest = requires {
  typename Body::Written;
};

// Element-wise work on [rows, width] in packs of V: each thread loads kPacks of them before it uses
// the first. Body has kPacks, `Loaded`, load(element), `Columns`, columns(column), uses_columns(),
// finish(element, column, loaded, columns, words), and kWords: whether it has dropping() and
// words(element), the Philox block of an element. Work that does not need the loaded data is done
// while that is in flight. If the body is LeavesLargest, finish() has a Largest<Written> after the
// other arguments.
inline constexpr int kFlatThreads = 256;
template <int V, class Body>
__global__ void __launch_bounds__(kFlatThreads)
    flat_kernel(int64_t packs, Divider row_packs, Body body) {
  constexpr int kPacks = Body::kPacks;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kFlatThreads * kPacks);
  typename Body::Loaded loaded[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const uint32_t offset = k * kFlatThreads + threadIdx.x;
    if (first + offset < packs) loaded[k] = body.load((first + offset) * V);
  }
  typename Body::Columns of_columns[kPacks];
  uint32_t columns[kPacks] = {};
  if (body.uses_columns()) {
    const uint32_t column = packs <= 0xffffffffll
                                ? static_cast<uint32_t>(first) % row_packs.divisor
                                : static_cast<uint32_t>(first % row_packs.divisor);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      columns[k] = row_packs.remainder(column + k * kFlatThreads + threadIdx.x) * V;
      of_columns[k] = body.columns(columns[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) of_columns[k] = {};
  }
  uint4 words[kPacks] = {};
  if constexpr (Body::kWords) {
    if (body.dropping()) {
      // All together: they share the keys, and the rounds of one hide the rounds of the next.
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
        words[k] = body.words((first + k * kFlatThreads + threadIdx.x) * V);
    }
  }
  const auto finish_all = [&](auto&... seen) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const uint32_t offset = k * kFlatThreads + threadIdx.x;
      if (first + offset < packs)
        body.finish((first + offset) * V, columns[k], loaded[k], of_columns[k], words[k], seen...);
    }
  };
  if constexpr (LeavesLargest<Body>) {
    Largest<typename Body::Written> seen;
    finish_all(seen);
    if (body.largest) leave_largest<kFlatThreads>(seen, body.largest);
  } else {
    finish_all();
  }
}

// count: elements, a multiple of V; width: of a row, a multiple of V (any number if the body uses
// no columns).
template <int V, class Body>
int32_t launch_flat(DeviceState& device, int64_t count, int64_t width, const Body& body,
                    const char* name) {
  const int64_t packs = count / V;
  if (packs == 0) return kSuccess;
  if (body.uses_columns() && width / V >= (int64_t{1} << 30))
    return unsupported(device, "rows of 2^30 elements or more");
  const Divider row_packs = Divider::by(body.uses_columns() ? static_cast<uint32_t>(width / V) : 1);
  const int64_t blocks = (packs + kFlatThreads * Body::kPacks - 1) / (kFlatThreads * Body::kPacks);
  flat_kernel<V>
      <<<static_cast<unsigned>(blocks), kFlatThreads, 0, device.stream>>>(packs, row_packs, body);
  return launched(device, name);
}

// out[i][column] (+)= sum over parts of partials [parts, sums, width].
static __global__ void __launch_bounds__(kPartThreads)
    sum_partials_kernel(const float* __restrict__ partials, int64_t parts, int sums, int64_t width,
                        ColumnSums to) {
  // No run-time index into the parameter: that would copy it to local memory.
  float* out = blockIdx.y == 0 ? to.out[0] : blockIdx.y == 1 ? to.out[1] : to.out[2];
  const bool accumulate = blockIdx.y == 0   ? to.accumulate[0]
                          : blockIdx.y == 1 ? to.accumulate[1]
                                            : to.accumulate[2];
  if (!out) return;
  const int64_t column =
      static_cast<int64_t>(blockIdx.x) * kPartColumns + threadIdx.x % kPartColumns;
  const bool there = column < width, mine = there && threadIdx.x < kPartColumns;
  const float old = mine && accumulate ? out[column] : 0.0f;
  const float sum =
      reduce_parts<Add>(partials + blockIdx.y * width + column, there, parts, sums * width);
  if (mine) out[column] = accumulate ? old + sum : sum;
}

inline int32_t launch_sum_partials(DeviceState& device, const float* partials, int64_t parts,
                                   int sums, int64_t width, const ColumnSums& to) {
  const dim3 grid(static_cast<unsigned>((width + kPartColumns - 1) / kPartColumns),
                  static_cast<unsigned>(sums));
  sum_partials_kernel<<<grid, kPartThreads, 0, device.stream>>>(partials, parts, sums, width, to);
  return launched(device, "sum of partials");
}

// `partials` are from device.scratch(). They may be added up later (SideStream::begin_partials).
inline int32_t sum_partials(DeviceState& device, const float* partials, int64_t parts, int sums,
                            int64_t width, const ColumnSums& to) {
  PendingPartials& later = device.partials;
  const auto* memory = static_cast<const std::byte*>(later.memory);
  const auto* at = reinterpret_cast<const std::byte*>(partials);
  if (!memory || at < memory || at >= memory + later.bytes)
    return launch_sum_partials(device, partials, parts, sums, width, to);
  later = {later.memory, later.bytes, true, partials, parts, width, sums, to};
  return kSuccess;
}

// Element-wise work on [rows, width] that also sums over the rows. A block has a tile of columns
// (`tile` packs, a power of two up to 32) and a chunk of rows; its threads go down the chunk side
// by side and keep the sums in registers. The next data of a thread is copied ahead into its own
// slots of shared memory, without a barrier. Body has kTensors, source(tensor) (null: zeros),
// `Columns`, columns(column), and finish(row, column, columns, packs, sums), with a Largest after
// them as for flat_kernel.
inline constexpr int kTileThreads = 256, kTileStages = 3;
template <int Sums>
inline constexpr int kTileBlocks = Sums == 1 ? 4 : 2;  // resident on a multiprocessor

template <class T, int V, int Sums, class Body>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<Sums>)
    tile_kernel(int64_t rows, int64_t width, int tile_log2, int64_t tiles, int64_t chunk_rows,
                float* partials, Body body) {
  constexpr int kTensors = Body::kTensors;
  constexpr bool kAhead = sizeof(Held<T, V>) == 16;
  constexpr int kRing = kAhead ? kTileStages * kTensors * 16 : 0,
                kTotals = Sums * V * static_cast<int>(sizeof(float));
  __shared__ __align__(16) unsigned char memory[kTileThreads * (kRing > kTotals ? kRing : kTotals)];
  const int tile = 1 << tile_log2, step = kTileThreads >> tile_log2;
  const int x = threadIdx.x & (tile - 1), y = threadIdx.x >> tile_log2;
  const int64_t chunk = blockIdx.x / tiles, first_column = blockIdx.x % tiles * tile * V;
  const int64_t column = first_column + x * V;
  const int64_t end = min(rows, (chunk + 1) * chunk_rows);
  float sums[Sums][V] = {};
  [[maybe_unused]] Largest<T> seen;
  const auto finish = [&](int64_t row, const typename Body::Columns& columns,
                          const Held<T, V>(&packs)[kTensors]) {
    if constexpr (LeavesLargest<Body>)
      body.finish(row, column, columns, packs, sums, seen);
    else
      body.finish(row, column, columns, packs, sums);
  };
  if (column < width) {
    const typename Body::Columns columns = body.columns(column);
    int64_t row = chunk * chunk_rows + y;
    if constexpr (kAhead) {
      auto* ring = reinterpret_cast<Held<T, V>*>(memory);
      const auto fetch = [&](int64_t of, int stage) {
        if (of < end) {
#pragma unroll
          for (int t = 0; t < kTensors; ++t) {
            if (body.source(t))
              copy_ahead(&ring[(stage * kTensors + t) * kTileThreads + threadIdx.x],
                         body.source(t) + of * width + column);
          }
        }
        end_copy_group();
      };
#pragma unroll
      for (int stage = 0; stage < kTileStages; ++stage) fetch(row + stage * step, stage);
      int stage = 0;
      for (; row < end; row += step) {
        wait_copy_groups<kTileStages - 1>();
        Held<T, V> packs[kTensors];
#pragma unroll
        for (int t = 0; t < kTensors; ++t)
          packs[t] = body.source(t) ? ring[(stage * kTensors + t) * kTileThreads + threadIdx.x]
                                    : Held<T, V>{};
        finish(row, columns, packs);
        // The slots have been read by this thread, the only one that uses them.
        fetch(row + kTileStages * step, stage);
        stage = stage + 1 == kTileStages ? 0 : stage + 1;
      }
      wait_copy_groups<0>();
    } else {
      for (; row < end; row += step) {
        Held<T, V> packs[kTensors];
#pragma unroll
        for (int t = 0; t < kTensors; ++t)
          packs[t] = body.source(t) ? load_held<T, V>(body.source(t) + row * width + column)
                                    : Held<T, V>{};
        finish(row, columns, packs);
      }
    }
  }
  if constexpr (LeavesLargest<Body>) {
    if (body.largest) leave_largest<kTileThreads>(seen, body.largest);
  }
  if (!partials) return;
  __syncthreads();
  auto* totals = reinterpret_cast<float(*)[kTileThreads][V]>(memory);
#pragma unroll
  for (int s = 0; s < Sums; ++s) {
#pragma unroll
    for (int j = 0; j < V; ++j) totals[s][threadIdx.x][j] = sums[s][j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Sums * tile * V; i += kTileThreads) {
    const int s = i / (tile * V), c = i % (tile * V);
    if (first_column + c >= width) continue;
    float sum = 0;
    for (int k = 0; k < step; ++k) sum += totals[s][(k << tile_log2) + c / V][c % V];
    partials[(chunk * Sums + s) * width + first_column + c] = sum;
  }
}

// How tile_kernel divides its work: about one wave of blocks, a thread seeing a few rows.
struct TilePlan {
  int tile_log2 = 5;
  int64_t tiles, chunks, chunk_rows;
  TilePlan(const DeviceState& device, int64_t rows, int64_t packs, int blocks_per_multiprocessor) {
    while (tile_log2 > 0 && (1 << (tile_log2 - 1)) >= packs) --tile_log2;
    const int64_t tile = int64_t{1} << tile_log2, step = kTileThreads / tile;
    tiles = (packs + tile - 1) / tile;
    const int64_t wanted =
        std::max<int64_t>(1, int64_t{blocks_per_multiprocessor} * device.multiprocessors / tiles);
    chunk_rows = std::max(4 * step, (rows + wanted - 1) / wanted);
    chunks = (rows + chunk_rows - 1) / chunk_rows;
  }
};

// `partials` [chunks, Sums, width]; null if no sum is wanted.
template <class T, int V, int Sums, class Body>
int32_t launch_tiles(DeviceState& device, int64_t rows, int64_t width, const TilePlan& plan,
                     const Body& body, const ColumnSums& to, float* partials, const char* name) {
  tile_kernel<T, V, Sums>
      <<<static_cast<unsigned>(plan.tiles * plan.chunks), kTileThreads, 0, device.stream>>>(
          rows, width, plan.tile_log2, plan.tiles, plan.chunk_rows, partials, body);
  const int32_t result = launched(device, name);
  return result == kSuccess && partials
             ? sum_partials(device, partials, plan.chunks, Sums, width, to)
             : result;
}

}  // namespace trafo::cuda
