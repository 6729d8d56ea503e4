// Weight gradients of several layers in one launch, for compute capability 9.0: C [m, n] = A^T B,
// where A [k, m] and B [k, n] are bf16 and the sums and C float32.
//
// A block owns a tile of C and sums over all of k, so the order of the sums depends on nothing. The
// tensor cores read both operands as they are stored. A producer warp has tiles of 64 k brought by
// TMA; two warpgroups multiply, 64 rows each. In the blocks of the first column tile two more warps
// sum up the columns of A from the same tiles: the gradient of a bias without reading A again.
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/tensor_map.cuh"
#include "engine/backend/cuda/device/wgmma.cuh"
#include "engine/backend/cuda/gemm.h"
#include "engine/backend/cuda/thin_products.h"
#include "engine/backend/cuda/weight_gradients.h"

namespace trafo::cuda {
namespace {

constexpr int kMost = 16;  // GEMMs of a launch
constexpr int kTileRows = 128, kTileDepth = 64;
constexpr int kConsumers = 2 * kWarpgroup, kSumWarps = kTileRows / 64;
constexpr int kProducerWarp = kConsumers / 32, kThreads = (kProducerWarp + 1 + kSumWarps) * 32;
constexpr uint32_t kPanelBytes = kTileDepth * 128;  // 64 columns of an operand

struct Problem {
  CUtensorMap a, b;
  float* c;
  int64_t ldc;
  int m, n, k;
  int column_tiles, first_tile;
  bool accumulate, accumulate_sums;
  float* sums;  // of the columns of A; or null
};
struct Group {
  Problem problems[kMost];
  int count;
};

template <int Columns>
struct Shape {
  static constexpr int kStages = Columns == 256 ? 4 : 6;
  static constexpr uint32_t kRight = kTileRows / 64 * kPanelBytes;  // where B begins in a stage
  static constexpr uint32_t kStageBytes = kRight + Columns / 64 * kPanelBytes;
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr size_t kSharedBytes = kBarriers + kStages * 16;
  static_assert(kSharedBytes <= kHopperSharedMemory);
};

#ifdef TRAFO_HAS_WGMMA
// Sums over k of 64 columns of A, one panel of a stage, by one warp. A lane has 8 columns of every
// fourth k; parts of a stage are added up first.
class PanelSums {
 public:
  __device__ explicit PanelSums(int lane) : piece_(lane % 8), line_(lane / 8) {}
  __device__ __forceinline__ void add(const unsigned char* panel) {
    float part[8] = {};
#pragma unroll
    for (int line = 0; line < kTileDepth; line += 4) {
      const int swizzled = piece_ ^ (line % 8 + line_);
      float x[8];
      to_floats<bf16>(*reinterpret_cast<const uint4*>(panel + (line + line_) * 128 + swizzled * 16),
                      x);
#pragma unroll
      for (int e = 0; e < 8; ++e) part[e] += x[e];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) sum_[e] += part[e];
  }
  // `columns`: how many of the 64 there are, a multiple of 8.
  __device__ void store(float* to, int columns, bool accumulate) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      sum_[e] += __shfl_xor_sync(0xffffffffu, sum_[e], 8);
      sum_[e] += __shfl_xor_sync(0xffffffffu, sum_[e], 16);
    }
    if (line_ > 0 || 8 * piece_ >= columns) return;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float& sum = to[8 * piece_ + e];
      sum = accumulate ? sum + sum_[e] : sum_[e];
    }
  }

 private:
  int piece_, line_;
  float sum_[8] = {};
};
#endif

template <int Columns>
__global__ void __launch_bounds__(kThreads, 1)
    weight_gradients_kernel(const __grid_constant__ Group group) {
#ifdef TRAFO_HAS_WGMMA
  using S = Shape<Columns>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const auto stage_at = [&](int stage) { return base + stage * S::kStageBytes; };
  const auto full = [&](int stage) { return base + S::kBarriers + 16 * stage; };
  const auto empty = [&](int stage) { return full(stage) + 8; };
  const int tile = static_cast<int>(blockIdx.x);
  int number = 0;
  while (number + 1 < group.count && group.problems[number + 1].first_tile <= tile) ++number;
  const Problem& p = group.problems[number];
  const int row0 = (tile - p.first_tile) / p.column_tiles * kTileRows;
  const int column0 = (tile - p.first_tile) % p.column_tiles * Columns;
  const int steps = (p.k + kTileDepth - 1) / kTileDepth;  // zeros follow the last k
  const bool summing = p.sums && column0 == 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      init_barrier(full(stage), 1);
      init_barrier(empty(stage), kConsumers / 32 + (summing ? kSumWarps : 0));
    }
    publish_barriers();
  }
  __syncthreads();

  const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (warp > kProducerWarp) {
    if (!summing) return;
    const int panel = warp - kProducerWarp - 1;
    PanelSums sums(lane);
    for (int step = 0; step < steps; ++step) {
      const int stage = step % S::kStages;
      wait_barrier(full(stage), step / S::kStages % 2);
      sums.add(shared + stage * S::kStageBytes + panel * kPanelBytes);
      __syncwarp();
      if (lane == 0) arrive(empty(stage));
    }
    const int first = row0 + panel * 64;
    sums.store(p.sums + first, p.m - first, p.accumulate_sums);
    return;
  }
  if (warp == kProducerWarp) {
    if (lane > 0) return;
    for (int step = 0; step < steps; ++step) {
      const int stage = step % S::kStages, k = step * kTileDepth;
      wait_barrier(empty(stage), (step / S::kStages + 1) % 2);
      arrive_expecting(full(stage), S::kStageBytes);
#pragma unroll
      for (int column = 0; column < kTileRows; column += 64)
        load_box(stage_at(stage) + column / 64 * kPanelBytes, p.a, full(stage), row0 + column, 0,
                 k);
#pragma unroll
      for (int column = 0; column < Columns; column += 64)
        load_box(stage_at(stage) + S::kRight + column / 64 * kPanelBytes, p.b, full(stage),
                 column0 + column, 0, k);
    }
    return;
  }

  const int warpgroup = warp / (kWarpgroup / 32);
  SumsOf<Columns> c;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % S::kStages;
    wait_barrier(full(stage), step / S::kStages % 2);
    const uint32_t a = describe(stage_at(stage) + warpgroup * kPanelBytes);
    const uint32_t b = describe(stage_at(stage) + S::kRight, kPanelBytes);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k)
      multiply<true, true>(c, a + k * (16 * 128 / 16), b + k * (16 * 128 / 16), step > 0 || k > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > 0 && lane == 0) arrive(empty((step - 1) % S::kStages));
  }
  wgmma_wait<0>();
  pin(c);
  constexpr int kAtOnce = 16;  // old values of C on their way
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + warp * 16 + lane / 4 + 8 * half;
    if (row >= p.m) return;
    float* to = p.c + row * p.ldc + column0 + lane % 4 * 2;
    const int columns = p.n - column0 - lane % 4 * 2;
#pragma unroll
    for (int first = 0; first < Columns / 8; first += kAtOnce) {
      float2 old[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int column = 8 * (first + n);
        old[n] = p.accumulate && column < columns ? *reinterpret_cast<const float2*>(to + column)
                                                  : float2{};
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int column = 8 * (first + n);
        const float(&sum)[4] = c[first + n];
        if (column < columns)
          *reinterpret_cast<float2*>(to + column) = {old[n].x + sum[2 * half],
                                                     old[n].y + sum[2 * half + 1]};
      }
    }
  }
#endif
}

// Numbers the tiles of all problems.
int lay_out(Group& group, int columns) {
  int tiles = 0;
  for (int i = 0; i < group.count; ++i) {
    Problem& p = group.problems[i];
    p.column_tiles = (p.n + columns - 1) / columns;
    p.first_tile = tiles;
    tiles += (p.m + kTileRows - 1) / kTileRows * p.column_tiles;
  }
  return tiles;
}

template <int Columns>
int32_t launch_tiles(DeviceState& device, const Group& group, int tiles) {
  using S = Shape<Columns>;
  const auto kernel = weight_gradients_kernel<Columns>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kSharedBytes));
  if (error != cudaSuccess) return report(device, error, "weight_gradients");
  kernel<<<static_cast<unsigned>(tiles), kThreads, S::kSharedBytes, device.stream>>>(group);
  return launched(device, "weight_gradients");
}

// Wide tiles need less traffic, narrow ones are twice as many. Both sum in the same order.
constexpr int kWideTiles = 48;
int32_t launch_group(DeviceState& device, Group& group) {
  const int tiles = lay_out(group, 256);
  if (tiles >= kWideTiles) return launch_tiles<256>(device, group, tiles);
  return launch_tiles<128>(device, group, lay_out(group, 128));
}

// Whether wide tiles of one GEMM leave at most a tenth of the multiprocessors' time and a tenth of
// the tiles' elements unused.
bool fills_device(const DeviceState& device, const GemmParams& p) {
  const int64_t tiles = (p.m + kTileRows - 1) / kTileRows * ((p.n + 255) / 256);
  const int64_t waves = (tiles + device.multiprocessors - 1) / device.multiprocessors;
  return 10 * p.m * p.n >= 9 * waves * device.multiprocessors * (kTileRows * 256);
}

bool whole_pieces(const void* x, int64_t width, int64_t ld) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && width % 8 == 0 && ld % 8 == 0;
}

bool takes(const DeviceState& device, const GemmParams& p) {
  constexpr int64_t kMostSize = 1 << 30;
  return groups_gemms(device) && p.dtype == DType::bf16 && p.c_is_f32 && p.trans_a && !p.trans_b &&
         !p.bias && p.batch == 1 && p.epilogue == Epilogue::none && p.m > 0 && p.n > 0 && p.k > 0 &&
         p.m < kMostSize && p.n < kMostSize && p.k < kMostSize && whole_pieces(p.a, p.m, p.lda) &&
         whole_pieces(p.b, p.n, p.ldb) && whole_pieces(p.c, p.n, p.ldc);
}

}  // namespace

bool groups_gemms(const DeviceState& device) {
#ifdef TRAFO_CUDA_90A
  return device.compute_major == 9;
#else
  return static_cast<void>(device), false;
#endif
}

bool sums_in_gemm(const DeviceState& device, const GemmParams& params, bool alone) {
  return takes(device, params) && (!alone || fills_device(device, params));
}

int32_t grouped_gemm(DeviceState& device, std::span<const GemmParams> gemms) {
  while (const size_t count = thin_pairs(device, gemms)) {
    const int32_t result = thin_products(device, gemms.first(count));
    if (result != kSuccess) return result;
    gemms = gemms.subspan(count);
  }
  Group group;
  group.count = 0;
  for (const GemmParams& p : gemms) {
    Problem& to = group.problems[group.count];
    int32_t result = kSuccess;
    if (!takes(device, p) || !make_tensor_map(to.a, p.a, p.lda, p.k, 1, p.m, kTileDepth) ||
        !make_tensor_map(to.b, p.b, p.ldb, p.k, 1, p.n, kTileDepth)) {
      if (p.a_sums) return unsupported(device, "sums of A in a GEMM that cuBLASLt computes");
      result = gemm(device, p);
    } else {
      to.c = static_cast<float*>(p.c);
      to.ldc = p.ldc;
      to.m = static_cast<int>(p.m);
      to.n = static_cast<int>(p.n);
      to.k = static_cast<int>(p.k);
      to.accumulate = p.accumulate;
      to.sums = static_cast<float*>(p.a_sums);
      to.accumulate_sums = p.accumulate_a_sums;
      if (++group.count == kMost) {
        result = launch_group(device, group);
        group.count = 0;
      }
    }
    if (result != kSuccess) return result;
  }
  return group.count > 0 ? launch_group(device, group) : kSuccess;
}

}  // namespace trafo::cuda
