// C [m, n] = A [m, k] B^T for up to 16 rows of A. Floor: the bytes of B.
//
// A block has 16 rows of B, so 16 columns of C. Its warps share k: warp w takes every eighth slab
// of 64 elements, so that all of them read neighbouring memory, and their sums are added in order
// at the end. The rows of B are the rows of an mma, and those of A its columns, of which a
// step uses eight at a time.
//
// The elements of an mma's k are not neighbours: lane 4 g + q reads eight neighbours from 8 q on,
// and takes the first four as its elements of one mma and the others as those of the next one. Both
// operands are read so, 16 bytes at a time, and a sum does not mind the order of its terms.
#include "engine/backend/cuda/device/mma.cuh"
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/small_gemms.h"

namespace trafo::cuda {
namespace {

constexpr int kWarpsOfK = 8, kFewRowsThreads = 32 * kWarpsOfK;
constexpr int kSlab =
    64;  // elements of k that a warp takes at a time, two words of 16 bytes a lane
constexpr int kColumnsOfC = 16;

struct FewRows {
  const bf16 *a, *b, *bias;
  void* c;
  int64_t n, k, lda, ldb, ldc;
  int m;
};

// Read once: it does not stay in the cache of the multiprocessor.
__device__ __forceinline__ uint4 load_streaming(const bf16* at) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(at));
  return words;
}

// sums [16 columns of C, 8 kTiles rows of C]
template <int kTiles>
__device__ __forceinline__ void add_slab(float (&sums)[kTiles][4], const uint4 (&b)[2][2],
                                         const uint4 (&a)[kTiles][2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t first[4] = {b[0][half].x, b[1][half].x, b[0][half].y, b[1][half].y};
    const uint32_t second[4] = {b[0][half].z, b[1][half].z, b[0][half].w, b[1][half].w};
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      mma_bf16(sums[t], first, a[t][half].x, a[t][half].y);
      mma_bf16(sums[t], second, a[t][half].z, a[t][half].w);
    }
  }
}

template <class C, int kTiles>
__global__ void __launch_bounds__(kFewRowsThreads, 2) few_rows_kernel(FewRows p) {
  __shared__ float parts[kWarpsOfK][8 * kTiles][kColumnsOfC + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, q = lane % 4;
  const int64_t column = int64_t{blockIdx.x} * kColumnsOfC;
  const bf16 *rows_of_b[2], *rows_of_a[kTiles];
  bool has_b[2], has_a[kTiles];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    has_b[i] = column + 8 * i + g < p.n;
    rows_of_b[i] = p.b + (has_b[i] ? column + 8 * i + g : 0) * p.ldb + 8 * q;
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    has_a[t] = 8 * t + g < p.m;
    rows_of_a[t] = p.a + (has_a[t] ? 8 * t + g : 0) * p.lda + 8 * q;
  }
  constexpr int kSlabsAhead = 4 / kTiles;  // whose reads are in flight
  float sums[kTiles][4] = {};
  for (int64_t k = kSlab * warp; k < p.k; k += int64_t{kSlab} * kWarpsOfK * kSlabsAhead) {
    uint4 b[kSlabsAhead][2][2], a[kSlabsAhead][kTiles][2];
#pragma unroll
    for (int s = 0; s < kSlabsAhead; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = k + int64_t{kSlab} * kWarpsOfK * s + 32 * half;
        const bool inside = at + 8 * q < p.k;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          b[s][i][half] = inside && has_b[i] ? load_streaming(rows_of_b[i] + at) : uint4{};
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          a[s][t][half] =
              inside && has_a[t] ? *reinterpret_cast<const uint4*>(rows_of_a[t] + at) : uint4{};
      }
#pragma unroll
    for (int s = 0; s < kSlabsAhead; ++s) add_slab<kTiles>(sums, b[s], a[s]);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[warp][8 * t + 2 * q + j % 2][g + 8 * (j / 2)] = sums[t][j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 8 * kTiles * kColumnsOfC; i += kFewRowsThreads) {
    const int row = i / kColumnsOfC, of_block = i % kColumnsOfC;
    if (row >= p.m || column + of_block >= p.n) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsOfK; ++w) sum += parts[w][row][of_block];
    if (p.bias) sum += to_float(p.bias[column + of_block]);
    static_cast<C*>(p.c)[row * p.ldc + column + of_block] = from_float<C>(sum);
  }
}

}  // namespace

int32_t few_rows(DeviceState& device, const GemmParams& p) {
  const FewRows problem{static_cast<const bf16*>(p.a),
                        static_cast<const bf16*>(p.b),
                        static_cast<const bf16*>(p.bias),
                        p.c,
                        p.n,
                        p.k,
                        p.lda,
                        p.ldb,
                        p.ldc,
                        static_cast<int>(p.m)};
  const auto blocks = static_cast<unsigned>((p.n - 1) / kColumnsOfC + 1);
  const auto launch = [&](auto tiles, auto zero) {
    few_rows_kernel<decltype(zero), decltype(tiles)::value>
        <<<blocks, kFewRowsThreads, 0, device.stream>>>(problem);
  };
  const auto with_tiles = [&](auto zero) {
    if (p.m <= 8)
      launch(std::integral_constant<int, 1>{}, zero);
    else
      launch(std::integral_constant<int, 2>{}, zero);
  };
  if (p.c_is_f32)
    with_tiles(float{});
  else
    with_tiles(bf16{});
  return launched(device, "few_rows");
}

}  // namespace trafo::cuda
