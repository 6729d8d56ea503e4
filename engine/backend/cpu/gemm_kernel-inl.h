// Micro-kernels of GEMM: a small tile of C held in registers while K runs by.
// Compiled once a target.
#if defined(TRAFO_CPU_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_GEMM_KERNEL_INL_H_
#undef TRAFO_CPU_GEMM_KERNEL_INL_H_
#else
#define TRAFO_CPU_GEMM_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "engine/backend/cpu/gemm_blocks.h"
#include "engine/backend/cpu/simd-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Tile: kPanelRows rows by two vectors. 28 of 32 registers accumulate with AVX-512 (and NEON), 12
// of 16 otherwise; the rest holds two vectors of B and one broadcast element of A.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_WASM || \
    HWY_TARGET == HWY_EMU128
inline constexpr int kPanelRows = 6;
#else
inline constexpr int kPanelRows = 14;
#endif
template <class T>
inline constexpr int64_t kPanelCols = 2 * hn::MaxLanes(hn::ScalableTag<T>());

// Elements from one step of K to the next in a packed panel of A: whole vectors, so that packing
// needs no masked stores.
template <class T>
inline constexpr int64_t kPanelStrideA =
    (kPanelRows + hn::MaxLanes(hn::ScalableTag<T>()) - 1) / hn::MaxLanes(hn::ScalableTag<T>()) *
    hn::MaxLanes(hn::ScalableTag<T>());

// Vectors a tile of few rows is wide: enough independent sums to hide the latency of a
// multiply-add, and longer runs of B where B is read in place.
constexpr int wide_vectors(int rows) {
  if (kPanelRows == 14) return rows <= 3 ? 8 : rows <= 6 ? 4 : 2;
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

template <class T>
using TileFn = void (*)(const Tile<T>&);

template <class T, int kVectors, class D, class V>
HWY_INLINE void store_row(const Tile<T>& t, T* row, D d, const V* acc) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = t.cols - v * lanes(d);
    V value = acc[v];
    if (left >= lanes(d)) {
      T* to = row + v * lanes(d);
      if (t.add_c) value = hn::Add(value, hn::LoadU(d, to));
      if (t.bias != nullptr) value = hn::Add(value, hn::LoadU(d, t.bias + v * lanes(d)));
      hn::StoreU(value, d, to);
    } else if (left > 0) {
      T* to = row + v * lanes(d);
      if (t.add_c) value = hn::Add(value, load_n(d, to, left));
      if (t.bias != nullptr) value = hn::Add(value, load_n(d, t.bias + v * lanes(d), left));
      store_n(value, d, to, left);
    }
  }
}

template <class T, int kRows, int kVectors, bool kByColumns>
void tile_kernel(const Tile<T>& t) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V acc[kRows][kVectors];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }

  // C is wanted when K is through; by then it has arrived.
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      hwy::Prefetch(t.c + r * t.c_stride + std::min(v * lanes(d), t.cols - 1));
  }

  // Three rows share a pointer, so that the addresses of 14 rows need five pointers and two
  // offsets, not 14 registers.
  constexpr int kPointers = kByColumns ? 1 : (kRows + 2) / 3;
  const T* a[kPointers];
#pragma GCC unroll 5
  for (int i = 0; i < kPointers; ++i) a[i] = t.a + 3 * i * t.a_stride;
  const int64_t a_stride = t.a_stride;
  const int64_t a_stride2 = 2 * t.a_stride;
  const T* b = t.b;
  for (int64_t k = t.k; k > 0; --k) {
    V bv[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bv[v] = hn::LoadU(d, b + v * lanes(d));
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      V av;
      if constexpr (kByColumns)
        av = hn::Set(d, a[0][r]);
      else
        av = hn::Set(d, a[r / 3][r % 3 == 0 ? 0 : r % 3 == 1 ? a_stride : a_stride2]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
    }
    b += t.b_stride;
#pragma GCC unroll 5
    for (int i = 0; i < kPointers; ++i) a[i] += kByColumns ? a_stride : 1;
  }
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) store_row<T, kVectors>(t, t.c + r * t.c_stride, d, acc[r]);
}

template <class T, bool kWide, bool kByColumns, size_t... kIndex>
constexpr std::array<TileFn<T>, sizeof...(kIndex)> tile_table(std::index_sequence<kIndex...>) {
  return {&tile_kernel < T, kIndex + 1, kWide ? wide_vectors(kIndex + 1) : 2, kByColumns > ...};
}

// The kernel for 1 <= rows <= kPanelRows; `wide` ones span wide_vectors(rows) vectors and read A by
// rows.
template <class T>
TileFn<T> tile_fn(int64_t rows, bool a_by_columns) {
  using Rows = std::make_index_sequence<kPanelRows>;
  static constexpr auto by_rows = tile_table<T, false, false>(Rows());
  static constexpr auto by_columns = tile_table<T, false, true>(Rows());
  return (a_by_columns ? by_columns : by_rows)[static_cast<size_t>(rows - 1)];
}

template <class T>
TileFn<T> wide_tile_fn(int64_t rows) {
  static constexpr auto wide = tile_table<T, true, false>(std::make_index_sequence<kPanelRows>());
  return wide[static_cast<size_t>(rows - 1)];
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
