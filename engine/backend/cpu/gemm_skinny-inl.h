// Products with few rows (decoding): B is read once, in place, because packing it would cost more
// than the product. Compiled once a target.
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

// Most rows for which dot products along the rows of a transposed B beat packing it.
inline constexpr int kDotRows = 4;

// Columns a block of work: some 2^18 multiplications, where reading an element of B costs as much
// as eight, in whole panels.
inline int64_t skinny_block_cols(int64_t m, int64_t n, int64_t k, int64_t panel) {
  const int64_t cols = (int64_t{1} << 18) / std::max<int64_t>(1, k * (m + 8));
  return std::min(n, std::max<int64_t>(1, cols / panel) * panel);
}

// C[rows, cols], cols <= 4, from rows of A and rows of B (B transposed): sums along k of whole
// vectors.
template <class T, int kRows, int kCols>
void dot_kernel(const GemmParams& p, int64_t j) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b) + j * p.ldb;
  V acc[kRows][kCols];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) acc[r][c] = hn::Zero(d);
  }
  const auto step = [&](auto load) {
    V bv[kCols];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) bv[c] = load(b + c * p.ldb);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V av = load(a + r * p.lda);
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) acc[r][c] = hn::MulAdd(av, bv[c], acc[r][c]);
    }
  };
  int64_t k = 0;
  for (; k + lanes(d) <= p.k; k += lanes(d))
    step([&](const T* row) { return hn::LoadU(d, row + k); });
  if (k < p.k) step([&](const T* row) { return load_n(d, row + k, p.k - k); });

  const T* bias = static_cast<const T*>(p.bias);
  for (int r = 0; r < kRows; ++r) {
    T* to = static_cast<T*>(p.c) + r * p.ldc + j;
    for (int c = 0; c < kCols; ++c) {
      T value = reduce_sum(d, acc[r][c]);
      if (p.accumulate) value += to[c];
      if (bias != nullptr) value += bias[j + c];
      to[c] = value;
    }
  }
}

template <class T, int kRows>
void dot_columns(const GemmParams& p, int64_t begin, int64_t end) {
  int64_t j = begin;
  for (; j + 4 <= end; j += 4) dot_kernel<T, kRows, 4>(p, j);
  for (; j < end; ++j) dot_kernel<T, kRows, 1>(p, j);
}

template <class T>
void gemm_dot(ThreadPool& pool, const GemmParams& p) {
  static constexpr decltype(&dot_columns<T, 1>) columns[kDotRows] = {
      dot_columns<T, 1>, dot_columns<T, 2>, dot_columns<T, 3>, dot_columns<T, 4>};
  parallel_for_range(pool, p.n, skinny_block_cols(p.m, p.n, p.k, 4),
                     [&](int64_t begin, int64_t end) { columns[p.m - 1](p, begin, end); });
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

// True when it was such a product and is done.
template <class T>
bool gemm_skinny(ThreadPool& pool, const GemmParams& p) {
  if (p.trans_a) return false;
  if (p.trans_b && p.m <= kDotRows) {
    gemm_dot<T>(pool, p);
    return true;
  }
  if (!p.trans_b && p.m <= kPanelRows) {
    gemm_in_place<T>(pool, p);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
