// GEMM of float32 matrices whose elements are rounded to bfloat16 while they are packed. Products
// are exact, sums and C are float32. Kernels for AMX and AVX512-BF16; gemm_bf16_arm.cc has others.
//
// vdpbf16ps adds a pair of products to a sum: the product of the upper halves first, then that of
// the lower ones, each with one rounding to nearest even, as a fused multiply-add does. Denormal
// operands and sums are zero. Nothing of it depends on MXCSR.
//
// tdpbf16ps adds up to 16 pairs: it sums the products of the lower halves and those of the upper
// ones apart, from zero and in order, each with one rounding, then both sums, and adds that to C.
// Denormals are as above.
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "engine/backend/cpu/gemm_blocks.h"
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/gemm_kernels.h"
#include "engine/core/status.h"
#include "engine/os/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace trafo {
namespace {
namespace avx512_bf16 {

// Two neighbours along K, the first one in the lower half.
using Pair = uint32_t;
using PairTile = Tile<float, Pair>;

constexpr int64_t kLanes = 16;
constexpr int kTileRows = 14;
constexpr int64_t kTileCols = 2 * kLanes;
// Rows of a matrix are often whole pages apart, where the hardware does not prefetch.
constexpr int64_t kPrefetchRows = 8;
// Without a mask, GCC 12 warns of an uninitialised value inside some intrinsics.
constexpr uint8_t kHalf = 0xff;
constexpr uint16_t kAll = 0xffff;

HWY_INLINE __mmask16 first(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

HWY_INLINE __m512 load(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, from);
}

// The 32 elements of two vectors, `low` first.
HWY_INLINE __m512i rounded(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Pairs of the elements of two rows.
HWY_INLINE __m512i interleaved(__m512 even, __m512 odd) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_maskz_permutexvar_epi16(0xffffffff, _mm512_load_si512(kOrder), rounded(even, odd));
}

// v[r] holds row r before, column r after.
HWY_INLINE void transpose(__m512i* v) {
  __m512i t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(kAll, v[i], v[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_maskz_unpacklo_epi64(kHalf, t[i], t[i + 2]);
    u[i + 1] = _mm512_maskz_unpackhi_epi64(kHalf, t[i], t[i + 2]);
    u[i + 2] = _mm512_maskz_unpacklo_epi64(kHalf, t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_maskz_unpackhi_epi64(kHalf, t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even = _mm512_maskz_shuffle_i32x4(kAll, u[c], u[4 + c], 0x88);
    const __m512i odd = _mm512_maskz_shuffle_i32x4(kAll, u[c], u[4 + c], 0xdd);
    const __m512i even2 = _mm512_maskz_shuffle_i32x4(kAll, u[8 + c], u[12 + c], 0x88);
    const __m512i odd2 = _mm512_maskz_shuffle_i32x4(kAll, u[8 + c], u[12 + c], 0xdd);
    v[c] = _mm512_maskz_shuffle_i32x4(kAll, even, even2, 0x88);
    v[4 + c] = _mm512_maskz_shuffle_i32x4(kAll, odd, odd2, 0x88);
    v[8 + c] = _mm512_maskz_shuffle_i32x4(kAll, even, even2, 0xdd);
    v[12 + c] = _mm512_maskz_shuffle_i32x4(kAll, odd, odd2, 0xdd);
  }
}

// to[k / 2 * to_stride + r] = from[r * from_stride + k] and its neighbour, for 16 rows; those from
// `rows` on repeat the last one.
void pack_transposed(const float* from, int64_t from_stride, int64_t rows, int64_t depth, Pair* to,
                     int64_t to_stride) {
  for (int64_t k = 0; k < depth; k += 2 * kLanes) {
    const __mmask16 low = first(depth - k), high = first(depth - k - kLanes);
    __m512i v[16];
    for (int64_t r = 0; r < kLanes; ++r) {
      const float* row = from + std::min(r, rows - 1) * from_stride + k;
      v[r] = rounded(load(row, low), load(row + kLanes, high));
    }
    transpose(v);
    const int64_t groups = std::min(kLanes, (depth - k + 1) / 2);
    Pair* out = to + k / 2 * to_stride;
    for (int64_t g = 0; g < groups; ++g) _mm512_storeu_si512(out + g * to_stride, v[g]);
  }
}

// Pairs of rows 2 g and 2 g + 1 to to[g * to_stride ..], 16 columns.
void pack_row_pairs(const float* from, int64_t from_stride, int64_t cols, int64_t depth, Pair* to,
                    int64_t to_stride) {
  const __mmask16 mask = first(cols);
  int64_t k = 0;
  for (; k + 2 <= depth; k += 2) {
    const float* row = from + k * from_stride;
    const float* ahead = from + std::min(k + kPrefetchRows, depth - 2) * from_stride;
    _mm_prefetch(ahead, _MM_HINT_T0);
    _mm_prefetch(ahead + from_stride, _MM_HINT_T0);
    const __m512i pairs = interleaved(load(row, mask), load(row + from_stride, mask));
    _mm512_storeu_si512(to + k / 2 * to_stride, pairs);
  }
  if (k < depth) {
    const __m512i pairs = interleaved(load(from + k * from_stride, mask), _mm512_setzero_ps());
    _mm512_storeu_si512(to + k / 2 * to_stride, pairs);
  }
}

void store_tile(const PairTile& t, int64_t rows, const float (*sums)[kTileCols]) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < t.cols; j += kLanes) {
      const __mmask16 mask = first(t.cols - j);
      float* to = t.c + r * t.c_stride + j;
      __m512 value = _mm512_load_ps(sums[r] + j);
      if (t.add_c) value = _mm512_add_ps(value, load(to, mask));
      if (t.bias != nullptr) value = _mm512_add_ps(value, load(t.bias + j, mask));
      if (mask == kAll)
        _mm512_storeu_ps(to, value);
      else
        _mm512_mask_storeu_ps(to, mask, value);
    }
}

// Computes kRows rows and writes the first `rows`. Group k of row r is at a[r * row_step + k *
// step].
template <int kRows>
void tile_kernel(const PairTile& t, int64_t rows, int64_t row_step, int64_t step) {
  __m512 acc[kRows][2];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; ++r) {  // C is wanted when K is through
    _mm_prefetch(t.c + r * t.c_stride, _MM_HINT_T0);
    _mm_prefetch(t.c + r * t.c_stride + t.cols - 1, _MM_HINT_T0);
  }
  // Three rows share a pointer: 14 would need as many registers.
  constexpr int kPointers = (kRows + 2) / 3;
  const Pair* a[kPointers];
#pragma GCC unroll 5
  for (int i = 0; i < kPointers; ++i) a[i] = t.a + 3 * i * row_step;
  const Pair* b = t.b;
  for (int64_t k = t.k; k > 0; --k, b += kTileCols) {
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + kLanes));
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const Pair pair = a[r / 3][r % 3 * row_step];
      const auto row = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(pair)));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], row, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], row, b1);
    }
#pragma GCC unroll 5
    for (int i = 0; i < kPointers; ++i) a[i] += step;
  }
  alignas(64) float sums[kRows][kTileCols];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(sums[r], acc[r][0]);
    _mm512_store_ps(sums[r] + kLanes, acc[r][1]);
  }
  store_tile(t, rows, sums);
}

using TileFn = void (*)(const PairTile& tile, int64_t rows, int64_t row_step, int64_t step);

// Few rows are rare: gemm_blocks.h cuts many rows into panels of about as many.
TileFn tile_of(int64_t rows) {
  static constexpr TileFn kTiles[] = {&tile_kernel<4>,  &tile_kernel<8>,  &tile_kernel<10>,
                                      &tile_kernel<11>, &tile_kernel<12>, &tile_kernel<13>,
                                      &tile_kernel<14>};
  return kTiles[rows <= 4 ? 0 : rows <= 8 ? 1 : std::max<int64_t>(2, rows - 8)];
}

// Packing that AMX and AVX512-BF16 share, for gemm_blocks.h.
struct PairPacking {
  using Source = float;
  using Packed = Pair;
  static constexpr int64_t kGroup = 2;
  static constexpr bool kReadsInPlace = false;
  static constexpr int64_t kCols = kTileCols;

  static void pack(const float* from, int64_t from_stride, bool by_width, int64_t width,
                   int64_t depth, Pair* to, int64_t to_stride) {
    for (int64_t i = 0; i < to_stride; i += kLanes) {
      if (by_width) {
        const int64_t row = std::min(i, width - 1);
        pack_transposed(from + row * from_stride, from_stride, width - row, depth, to + i,
                        to_stride);
      } else {
        pack_row_pairs(from + std::min(i, width), from_stride, width - i, depth, to + i, to_stride);
      }
    }
  }

  static void pack_rows_of_a(const float* from, int64_t from_stride, int64_t rows, int64_t depth,
                             Pair* to, int64_t to_stride) {
    for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
      int64_t k = 0;
      for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
        _mm512_storeu_si512(to + k / 2,
                            rounded(_mm512_loadu_ps(from + k), _mm512_loadu_ps(from + k + kLanes)));
      if (k == depth) continue;
      const int64_t left = depth - k;
      const __m512i pairs =
          rounded(load(from + k, first(left)), load(from + k + kLanes, first(left - kLanes)));
      _mm512_mask_storeu_epi32(to + k / 2, first((left + 1) / 2), pairs);
    }
  }
};

// Kernels of gemm_blocks.h.
struct Kernels : PairPacking {
  static constexpr int64_t kRows = kTileRows;
  static constexpr int64_t kStrideA = kLanes;
  static constexpr int64_t kMaxDepth = 384;

  static void run(const PairTile& tile, int64_t rows, bool a_by_columns) {
    const int64_t row_step = a_by_columns ? 1 : tile.a_stride;
    tile_of(rows)(tile, rows, row_step, a_by_columns ? tile.a_stride : 1);
  }
};

}  // namespace avx512_bf16
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES

#ifndef TRAFO_WITHOUT_AMX  // the assembler knows the instructions
HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace trafo {
namespace {
namespace amx {

using avx512_bf16::first;
using avx512_bf16::Pair;
using avx512_bf16::PairTile;

constexpr int64_t kSide = 16;  // of a tile register: rows, and sums or pairs of a row
constexpr int64_t kPanel = 2 * kSide;
static_assert(kPanel == avx512_bf16::kTileCols && kSide == avx512_bf16::kLanes);

// As LDTILECFG reads it: all eight registers whole.
struct alignas(64) TileShapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  constexpr TileShapes() {
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = kSide * sizeof(Pair);
      rows[i] = kSide;
    }
  }
};
static_assert(sizeof(TileShapes) == 64);

// from[k * from_stride + r] and the next k as a pair to to[r * to_stride + k / 2].
void pack_columns(const float* from, int64_t from_stride, int64_t rows, int64_t depth, Pair* to,
                  int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kSide) {
    const __mmask16 mask = first(rows - r);
    for (int64_t k = 0; k < depth; k += 2 * kSide) {
      __m512i v[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        const int64_t even = k + 2 * i;
        const float* row = from + even * from_stride + r;
        const __mmask16 has_even = even < depth ? mask : 0, has_odd = even + 1 < depth ? mask : 0;
        v[i] = avx512_bf16::interleaved(
            has_even ? avx512_bf16::load(row, has_even) : _mm512_setzero_ps(),
            has_odd ? avx512_bf16::load(row + from_stride, has_odd) : _mm512_setzero_ps());
      }
      avx512_bf16::transpose(v);
      const __mmask16 pairs = first((depth - k + 1) / 2);
      for (int64_t i = 0; i < std::min(kSide, rows - r); ++i)
        _mm512_mask_storeu_epi32(to + (r + i) * to_stride + k / 2, pairs, v[i]);
    }
  }
}

// Adds the products of 16 groups to the registers 0 to 3, a quarter of the tile each. kBelow and
// kBeside: the tile has more than 16 rows, more than 16 columns.
template <bool kBelow, bool kBeside>
HWY_INLINE void add_groups(const Pair* a, int64_t a_stride, const Pair* b) {
  constexpr int64_t kPairBytes = sizeof(Pair), kRowOfB = kPanel * kPairBytes;
  _tile_loadd(4, a, a_stride * kPairBytes);
  _tile_loadd(6, b, kRowOfB);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kBeside) {
    _tile_loadd(7, b + kSide, kRowOfB);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kBelow) {
    _tile_loadd(5, a + kSide * a_stride, a_stride * kPairBytes);
    _tile_dpbf16ps(2, 5, 6);
  }
  if constexpr (kBelow && kBeside) _tile_dpbf16ps(3, 5, 7);
}

// GCC does not know that tileloadd reads memory: what was written before must not come after it.
HWY_INLINE void finish_writes() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Rows of A from `rows` on are read, up to the panel's end, and give sums that nobody reads.
template <bool kBelow, bool kBeside>
void tile_kernel(const PairTile& t, int64_t rows) {
  _tile_zero(0);
  if constexpr (kBeside) _tile_zero(1);
  if constexpr (kBelow) _tile_zero(2);
  if constexpr (kBelow && kBeside) _tile_zero(3);
  finish_writes();
  int64_t k = 0;
  for (; k + kSide <= t.k; k += kSide)
    add_groups<kBelow, kBeside>(t.a + k, t.a_stride, t.b + k * kPanel);
  if (k < t.k) {  // with zeros in place of what is missing
    alignas(64) Pair a[kPanel][kSide], b[kSide][kPanel] = {};
    const __mmask16 left = first(t.k - k);
    for (int64_t r = 0; r < rows; ++r)
      _mm512_store_si512(a[r], _mm512_maskz_loadu_epi32(left, t.a + r * t.a_stride + k));
    std::copy(t.b + k * kPanel, t.b + t.k * kPanel, b[0]);
    finish_writes();
    add_groups<kBelow, kBeside>(a[0], kSide, b[0]);
  }
  alignas(64) float sums[kPanel][kPanel];
  constexpr int64_t kRowBytes = kPanel * sizeof(float);
  _tile_stored(0, sums[0], kRowBytes);
  if constexpr (kBeside) _tile_stored(1, sums[0] + kSide, kRowBytes);
  if constexpr (kBelow) _tile_stored(2, sums[kSide], kRowBytes);
  if constexpr (kBelow && kBeside) _tile_stored(3, sums[kSide] + kSide, kRowBytes);
  avx512_bf16::store_tile(t, rows, sums);
}

// Kernels of gemm_blocks.h. A is packed by rows however it is stored: the registers want pairs
// along K side by side.
struct Kernels : avx512_bf16::PairPacking {
  static constexpr int64_t kRows = kPanel;
  static constexpr int64_t kStrideA = kPanel;
  static constexpr int64_t kMaxDepth = 256;

  class Block {
   public:
    Block() {
      static constexpr TileShapes kShapes;
      _tile_loadconfig(&kShapes);
    }
    ~Block() { _tile_release(); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
  };

  static void pack_columns_of_a(const float* from, int64_t from_stride, int64_t rows, int64_t depth,
                                Pair* to, int64_t to_stride) {
    pack_columns(from, from_stride, rows, depth, to, to_stride);
  }

  static void run(const PairTile& tile, int64_t rows, bool /*a_by_columns*/) {
    const bool beside = tile.cols > kSide;
    if (rows > kSide)
      (beside ? tile_kernel<true, true> : tile_kernel<true, false>)(tile, rows);
    else
      (beside ? tile_kernel<false, true> : tile_kernel<false, false>)(tile, rows);
  }
};

}  // namespace amx
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES
#endif
#endif

#if !defined(__aarch64__)
namespace trafo {

#if defined(__x86_64__)
namespace {

bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

bool has_amx_bf16() {
#ifdef TRAFO_WITHOUT_AMX
  return false;
#else
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // of EDX
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0 && os::may_use_amx_tiles();
#endif
}

}  // namespace
#endif

std::span<const Bf16Instructions> bf16_instructions() {
#if defined(__x86_64__)
  static constexpr Bf16Instructions kAll[] = {Bf16Instructions::amx, Bf16Instructions::avx512};
  static const size_t count = !has_avx512_bf16() ? 0 : has_amx_bf16() ? 2 : 1;
  return std::span(kAll).last(count);
#else
  return {};
#endif
}

void gemm_bf16(ThreadPool& pool, const GemmParams& p,
               [[maybe_unused]] Bf16Instructions instructions) {
#if defined(__x86_64__)
  GemmCase c;
  c.m = p.m;
  c.n = p.n;
  c.k = p.k;
  c.trans_a = p.trans_a;
  c.trans_b = p.trans_b;
  c.multiplies_bf16 = true;
  c.panel_rows = avx512_bf16::kTileRows;
  if (gemm_kernel(c) == GemmKernel::blocks_bf16) {
#ifndef TRAFO_WITHOUT_AMX
    if (instructions == Bf16Instructions::amx)
      return GemmDriver<amx::Kernels>(pool, p, nullptr).run();
#endif
    return GemmDriver<avx512_bf16::Kernels>(pool, p, nullptr).run();
  }
#endif
  gemm_f32(pool, p);
}

}  // namespace trafo
#endif
