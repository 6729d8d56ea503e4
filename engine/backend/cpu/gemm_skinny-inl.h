// GEMMs with few rows (decoding): B is read once, in place, because packing it would cost more than
// the GEMM. Compiled once a target.
#if defined(TRAFO_CPU_GEMM_SKINNY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_GEMM_SKINNY_INL_H_
#undef TRAFO_CPU_GEMM_SKINNY_INL_H_
#else
#define TRAFO_CPU_GEMM_SKINNY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/cpu/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Rows and columns of C that one pass along K computes: their sums fill the registers.
inline constexpr int kDotTileRows = kPanelRows == 14 ? 6 : 2;
inline constexpr int kDotTileCols = 4;

// Columns a block of work: some 2^18 multiplications, where reading an element of B costs as much
// as eight, in whole panels.
inline int64_t skinny_block_cols(int64_t m, int64_t n, int64_t k, int64_t panel) {
  const int64_t cols = (int64_t{1} << 18) / std::max<int64_t>(1, k * (m + 8));
  return std::min(n, std::max<int64_t>(1, cols / panel) * panel);
}

// to[0..3] = the sums of four vectors.
template <class D, class V>
HWY_INLINE void store_sums(D d, V a, V b, V c, V e, hn::TFromD<D>* to) {
  if constexpr (sizeof(hn::TFromD<D>) != 4) {
    to[0] = reduce_sum(d, a);
    to[1] = reduce_sum(d, b);
    to[2] = reduce_sum(d, c);
    to[3] = reduce_sum(d, e);
  } else if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    const auto fold = [&](V v) { return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)); };
    store_sums(half, fold(a), fold(b), fold(c), fold(e), to);
  } else {
    const hn::Repartition<double, D> pairs;
    const auto two = [&](V x, V y) {  // x0 + x2, y0 + y2, x1 + x3, y1 + y3
      return hn::BitCast(pairs,
                         hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y)));
    };
    const auto ab = two(a, b), ce = two(c, e);
    hn::StoreU(hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                       hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce))),
               d, to);
  }
}

// C[i .. i + kRows, j .. j + cols) from rows of A and rows of B (B transposed): sums along k of
// whole vectors. Rows of B after the last one repeat it. `fetch_next`: as many rows of B after
// these are there and are fetched from memory meanwhile.
template <class T, int kRows>
void dot_kernel(const GemmParams& p, int64_t i, int64_t j, int64_t cols, bool fetch_next) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T* a = static_cast<const T*>(p.a) + i * p.lda;
  const T* b[kDotTileCols];
#pragma GCC unroll 4
  for (int c = 0; c < kDotTileCols; ++c)
    b[c] = static_cast<const T*>(p.b) + (j + std::min<int64_t>(c, cols - 1)) * p.ldb;
  V acc[kRows][kDotTileCols];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kDotTileCols; ++c) acc[r][c] = hn::Zero(d);
  }
  const auto step = [&](int64_t k, auto load) {
    V bv[kDotTileCols];
#pragma GCC unroll 4
    for (int c = 0; c < kDotTileCols; ++c) bv[c] = load(b[c] + k);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const V av = load(a + r * p.lda + k);
#pragma GCC unroll 4
      for (int c = 0; c < kDotTileCols; ++c) acc[r][c] = hn::MulAdd(av, bv[c], acc[r][c]);
    }
  };
  const T* ahead = static_cast<const T*>(p.b) + (j + kDotTileCols) * p.ldb;
  const auto whole = [&](const T* row) { return hn::LoadU(d, row); };
  int64_t k = 0;
  if (fetch_next) {
    for (; k + lanes(d) <= p.k; k += lanes(d)) {
#pragma GCC unroll 4
      for (int c = 0; c < kDotTileCols; ++c) hwy::Prefetch(ahead + c * p.ldb + k);
      step(k, whole);
    }
  } else {
    for (; k + lanes(d) <= p.k; k += lanes(d)) step(k, whole);
  }
  if (k < p.k) step(k, [&](const T* row) { return load_n(d, row, p.k - k); });

  const T* bias = static_cast<const T*>(p.bias);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    T* to = static_cast<T*>(p.c) + (i + r) * p.ldc + j;
    T sums[kDotTileCols];
    store_sums(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3], sums);
    for (int64_t c = 0; c < cols; ++c)
      to[c] = sums[c] + (p.accumulate ? to[c] : T{0}) + (bias != nullptr ? bias[j + c] : T{0});
  }
}

template <class T, size_t... kIndex>
constexpr auto dot_table(std::index_sequence<kIndex...>) {
  return std::array{&dot_kernel<T, kIndex + 1>...};
}

template <class T>
void gemm_dot(ThreadPool& pool, const GemmParams& p) {
  static constexpr auto kernels = dot_table<T>(std::make_index_sequence<kDotTileRows>());
  const EvenSplit rows(p.m, kDotTileRows);
  parallel_for_range(pool, p.n, skinny_block_cols(p.m, p.n, p.k, kDotTileCols),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t j = begin; j < end; j += kDotTileCols) {
                         const int64_t cols = std::min<int64_t>(kDotTileCols, end - j);
                         for (int64_t part = 0; part < rows.parts(); ++part) {
                           const bool fetch_next = part == 0 && p.n - j - cols >= kDotTileCols;
                           kernels[static_cast<size_t>(rows.size(part) - 1)](p, rows.begin(part), j,
                                                                             cols, fetch_next);
                         }
                       }
                     });
}

// Columns [begin, end) with B as it is stored; only a last narrow piece is packed, for the kernel
// reads whole panels.
template <class T>
void in_place_columns(const GemmParams& p, int64_t begin, int64_t end) {
  const int64_t wide = wide_vectors(static_cast<int>(p.m)) * kPanelCols<T> / 2;
  const T* b = static_cast<const T*>(p.b);
  const T* bias = static_cast<const T*>(p.bias);
  Tile<T> tile{static_cast<const T*>(p.a),
               p.lda,
               nullptr,
               p.ldb,
               p.k,
               nullptr,
               p.ldc,
               0,
               p.accumulate,
               nullptr};
  for (int64_t j = begin; j < end; j += tile.cols) {
    const bool is_wide = end - j >= wide;
    tile.cols = is_wide ? wide : std::min(kPanelCols<T>, end - j);
    tile.b = b + j;
    if (tile.cols < kPanelCols<T>) {
      T* packed = static_cast<T*>(
          gemm_local_scratch(p.k * kPanelCols<T> * static_cast<int64_t>(sizeof(T))));
      pack_rows(b + j, p.ldb, tile.cols, p.k, packed, kPanelCols<T>);
      tile.b = packed;
      tile.b_stride = kPanelCols<T>;
    }
    tile.c = static_cast<T*>(p.c) + j;
    tile.bias = bias == nullptr ? nullptr : bias + j;
    (is_wide ? wide_tile_fn<T>(p.m) : tile_fn<T>(p.m, false))(tile);
  }
}

template <class T>
void gemm_in_place(ThreadPool& pool, const GemmParams& p) {
  const int64_t wide = wide_vectors(static_cast<int>(p.m)) * kPanelCols<T> / 2;
  parallel_for_range(pool, p.n, skinny_block_cols(p.m, p.n, p.k, wide),
                     [&](int64_t begin, int64_t end) { in_place_columns<T>(p, begin, end); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
