// gemm_bf16.cc for 64-bit ARM: kernels for BFMMLA (FEAT_BF16).
//
// bfmmla adds the product of two rows and two columns, four elements deep, to 2 x 2 sums: first the
// two products of the earlier pair, which it adds to each other, then those of the later pair. It
// rounds every addition to odd. Denormal operands, products and sums are zero. Nothing of it
// depends on FPCR, unless a program sets FPCR.EBF, which is zero at its start.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/gemm_blocks.h"
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/gemm_kernels.h"
#include "engine/os/processor.h"
#include "hwy/base.h"

// Clang had the functions only where every file may use the instruction, before version 16.
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) || !defined(__clang__) || __clang_major__ >= 16
#define TRAFO_ARM_BF16 1
#else
#define TRAFO_ARM_BF16 0
#endif

#if TRAFO_ARM_BF16
#if defined(__clang__)
HWY_PUSH_ATTRIBUTES("bf16")
#else
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+bf16")
#endif
namespace trafo {
namespace {
namespace neon_bf16 {

// Four neighbours along K, the first one in the lowest bits. Two rows of them are an operand.
using Group = uint64_t;
using GroupTile = Tile<float, Group>;

constexpr int64_t kDepth = 4;
constexpr int64_t kLanes = 4;
constexpr int64_t kTileRows = 8;
// 24 registers of sums, 4 of A, and one or two of B.
constexpr int64_t kTileCols = 12;
// Of the kernels of float32, which take few rows.
constexpr int64_t kFloatPanelRows = 14;

// The first `count` floats, and zeros.
HWY_INLINE float32x4_t load(const float* from, int64_t count) {
  if (count >= kLanes) return vld1q_f32(from);
  float values[kLanes] = {};
  if (count > 0) std::memcpy(values, from, static_cast<size_t>(count) * sizeof(float));
  return vld1q_f32(values);
}

HWY_INLINE uint16x8_t rounded(float32x4_t low, float32x4_t high) {
  return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}

HWY_INLINE void store(Group* to, uint16x8_t two) {
  vst1q_u64(to, vreinterpretq_u64_u16(two));
}

// Rows of `from` are along K: to[g * to_stride + r] is group g of row r. Rows from `rows` on repeat
// the last one.
void pack_rows(const float* from, int64_t from_stride, int64_t rows, int64_t depth, Group* to,
               int64_t to_stride) {
  for (int64_t r = 0; r < to_stride; r += 2) {
    const float* row = from + std::min(r, rows - 1) * from_stride;
    const float* next = from + std::min(r + 1, rows - 1) * from_stride;
    Group* out = to + r;
    for (int64_t k = 0; k < depth; k += kDepth, out += to_stride)
      store(out, rounded(load(row + k, depth - k), load(next + k, depth - k)));
  }
}

// Rows of `from` are across K: to[g * to_stride + c] is group g of column c. Columns from `cols` on
// are zero.
void pack_columns(const float* from, int64_t from_stride, int64_t cols, int64_t depth, Group* to,
                  int64_t to_stride) {
  for (int64_t k = 0; k < depth; k += kDepth, to += to_stride)
    for (int64_t c = 0; c < to_stride; c += kLanes) {
      const auto row = [&](int64_t i) {
        return load(from + (k + i) * from_stride + c, k + i < depth ? cols - c : 0);
      };
      // Rows 0 and 2, and 1 and 3, with columns side by side.
      const uint16x8_t even = rounded(row(0), row(2)), odd = rounded(row(1), row(3));
      const uint16x8_t even_pairs = vzip1q_u16(even, vextq_u16(even, even, 4));
      const uint16x8_t odd_pairs = vzip1q_u16(odd, vextq_u16(odd, odd, 4));
      store(to + c, vzip1q_u16(even_pairs, odd_pairs));
      store(to + c + 2, vzip2q_u16(even_pairs, odd_pairs));
    }
}

using TileSums = float[kTileRows][kTileCols];

void store_tile(const GroupTile& t, int64_t rows, const TileSums& sums) {
  for (int64_t r = 0; r < rows; ++r) {
    float* to = t.c + r * t.c_stride;
    for (int64_t j = 0; j < t.cols; ++j) {
      float value = sums[r][j];
      if (t.add_c) value += to[j];
      if (t.bias != nullptr) value += t.bias[j];
      to[j] = value;
    }
  }
}

// Computes 2 * kPairs rows and writes the first `rows`.
template <int kPairs>
void tile_kernel(const GroupTile& t, int64_t rows) {
  constexpr int kColumnPairs = kTileCols / 2;
  float32x4_t acc[kPairs][kColumnPairs];
#pragma GCC unroll 4
  for (int r = 0; r < kPairs; ++r)
#pragma GCC unroll 6
    for (int c = 0; c < kColumnPairs; ++c) acc[r][c] = vdupq_n_f32(0);
  const Group* a = t.a;
  const Group* b = t.b;
  for (int64_t k = t.k; k > 0; --k, a += kTileRows, b += kTileCols) {
    bfloat16x8_t rows_of_a[kPairs];
#pragma GCC unroll 4
    for (int r = 0; r < kPairs; ++r) rows_of_a[r] = vreinterpretq_bf16_u64(vld1q_u64(a + 2 * r));
#pragma GCC unroll 6
    for (int c = 0; c < kColumnPairs; ++c) {
      const bfloat16x8_t columns = vreinterpretq_bf16_u64(vld1q_u64(b + 2 * c));
#pragma GCC unroll 4
      for (int r = 0; r < kPairs; ++r) acc[r][c] = vbfmmlaq_f32(acc[r][c], rows_of_a[r], columns);
    }
  }
  TileSums sums;
#pragma GCC unroll 4
  for (int r = 0; r < kPairs; ++r)
#pragma GCC unroll 6
    for (int c = 0; c < kColumnPairs; ++c) {
      vst1_f32(&sums[2 * r][2 * c], vget_low_f32(acc[r][c]));
      vst1_f32(&sums[2 * r + 1][2 * c], vget_high_f32(acc[r][c]));
    }
  store_tile(t, rows, sums);
}

// Kernels of gemm_blocks.h.
struct Kernels {
  using Source = float;
  using Packed = Group;
  static constexpr int64_t kGroup = kDepth;
  static constexpr bool kReadsInPlace = false;
  static constexpr int64_t kRows = kTileRows;
  static constexpr int64_t kCols = kTileCols;
  static constexpr int64_t kStrideA = kTileRows;
  static constexpr int64_t kMaxDepth = 256;

  static void pack(const float* from, int64_t from_stride, bool by_width, int64_t width,
                   int64_t depth, Group* to, int64_t to_stride) {
    (by_width ? pack_rows : pack_columns)(from, from_stride, width, depth, to, to_stride);
  }

  static void run(const GroupTile& tile, int64_t rows, bool /*a_by_columns*/) {
    using TileFn = void (*)(const GroupTile& tile, int64_t rows);
    static constexpr TileFn kTiles[] = {&tile_kernel<1>, &tile_kernel<2>, &tile_kernel<3>,
                                        &tile_kernel<4>};
    kTiles[(rows - 1) / 2](tile, rows);
  }
};

}  // namespace neon_bf16
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES
#endif

namespace trafo {

std::span<const Bf16Instructions> bf16_instructions() {
  static constexpr Bf16Instructions kArm[] = {Bf16Instructions::arm};
  return std::span(kArm).first(TRAFO_ARM_BF16 && os::has_arm_bfloat16() ? 1 : 0);
}

void gemm_bf16(ThreadPool& pool, const GemmParams& p, Bf16Instructions /*instructions*/) {
#if TRAFO_ARM_BF16
  GemmCase c;
  c.m = p.m;
  c.n = p.n;
  c.k = p.k;
  c.trans_a = p.trans_a;
  c.trans_b = p.trans_b;
  c.multiplies_bf16 = true;
  c.panel_rows = neon_bf16::kFloatPanelRows;
  if (gemm_kernel(c) == GemmKernel::blocks_bf16)
    return GemmDriver<neon_bf16::Kernels>(pool, p, nullptr).run();
#endif
  gemm_f32(pool, p);
}

}  // namespace trafo
#endif
