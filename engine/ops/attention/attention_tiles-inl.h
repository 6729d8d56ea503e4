// Small matrix products and transposes on tiles that fit the first-level cache: what
// attention_cpu.cc is made of. Compiled once a target; see backend/cpu/simd.h.
#if defined(TRAFO_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_ATTENTION_TILES_INL_H_
#undef TRAFO_ATTENTION_TILES_INL_H_
#else
#define TRAFO_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Rows of C are computed in groups of at most this many; C has room for a whole last group.
constexpr int64_t kTileRows = 8;

constexpr int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// A[rows, depth] by two strides, read a scalar at a time.
template <class T>
struct TileA {
  const T* data;
  int64_t row_stride, depth_stride;
};

// C[0 .. kRows, 0 .. kVectors * lanes) of a product; rows at and after `rows` repeat the last one.
template <int kRows, int kVectors, class T>
HWY_INLINE void multiply_block(int64_t rows, int64_t depth, const TileA<T>& a, const T* b,
                               int64_t b_stride, bool accumulate, T* c, int64_t c_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T* a_row[kRows];
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    a_row[r] = a.data + std::min<int64_t>(r, rows - 1) * a.row_stride;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * lanes(d)) : hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    V column[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) column[v] = hn::LoadU(d, b + k * b_stride + v * lanes(d));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a_row[r][k * a.depth_stride]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, column[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * lanes(d));
}

// C[rows, columns] (+)= A B. `columns` is a multiple of the lanes; C has round_up(rows, kTileRows)
// rows, of which the rows after `rows` receive copies of the last one.
template <class T>
void multiply(int64_t rows, int64_t columns, int64_t depth, const TileA<T>& a, const T* b,
              int64_t b_stride, bool accumulate, T* c, int64_t c_stride) {
  constexpr int64_t step = lanes(hn::ScalableTag<T>());
  constexpr int64_t half = kTileRows / 2;
  for (int64_t j = 0; j < columns;) {
    const bool two = j + 2 * step <= columns;
    const int64_t group = two ? half : kTileRows;
    for (int64_t i = 0; i < rows; i += group) {
      const TileA<T> part{a.data + i * a.row_stride, a.row_stride, a.depth_stride};
      T* out = c + i * c_stride + j;
      if (two)
        multiply_block<half, 2>(rows - i, depth, part, b + j, b_stride, accumulate, out, c_stride);
      else
        multiply_block<kTileRows, 1>(rows - i, depth, part, b + j, b_stride, accumulate, out,
                                     c_stride);
    }
    j += two ? 2 * step : step;
  }
}

// out[c * out_stride + r] = x[r * stride + c], zeros for rows <= r < out_stride.
template <class T>
void transpose_tile(const T* x, int64_t stride, int64_t rows, int64_t columns, T* out,
                    int64_t out_stride) {
  int64_t r = 0;
  if constexpr (std::is_same_v<T, float>) {
    const hn::FixedTag<float, 4> d;
    const hn::Repartition<double, decltype(d)> pairs;
    for (; r + 4 <= rows; r += 4) {
      const T* from = x + r * stride;
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        const auto r0 = hn::LoadU(d, from + c), r1 = hn::LoadU(d, from + stride + c);
        const auto r2 = hn::LoadU(d, from + 2 * stride + c);
        const auto r3 = hn::LoadU(d, from + 3 * stride + c);
        const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
        const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
        const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
        const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
        T* to = out + c * out_stride + r;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + out_stride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d,
                   to + 2 * out_stride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d,
                   to + 3 * out_stride);
      }
      for (; c < columns; ++c)
        for (int64_t i = 0; i < 4; ++i) out[c * out_stride + r + i] = from[i * stride + c];
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) out[c * out_stride + r] = x[r * stride + c];
  if (rows < out_stride)
    for (int64_t c = 0; c < columns; ++c)
      std::fill(out + c * out_stride + rows, out + (c + 1) * out_stride, T{0});
}

// A matrix whose rows may be read in whole vectors: x itself if its width allows, else a copy
// padded with zeros.
template <class T>
struct TileB {
  const T* data;
  int64_t stride;
};

template <class T>
TileB<T> whole_vectors(const T* x, int64_t stride, int64_t rows, int64_t columns, T* scratch) {
  const int64_t padded = round_up(columns, lanes(hn::ScalableTag<T>()));
  if (padded == columns) return {x, stride};
  for (int64_t r = 0; r < rows; ++r) {
    std::copy(x + r * stride, x + r * stride + columns, scratch + r * padded);
    std::fill(scratch + r * padded + columns, scratch + (r + 1) * padded, T{0});
  }
  return {scratch, padded};
}

// target rows (+)= source rows of `width` elements.
template <class T>
void store_rows(const T* source, int64_t source_stride, int64_t rows, int64_t width,
                bool accumulate, T* target, int64_t target_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = source + r * source_stride;
    T* to = target + r * target_stride;
    if (accumulate)
      map(from, to, to, width, [](auto, auto x, auto y) { return hn::Add(x, y); });
    else
      map(from, to, width, [](auto, auto x) { return x; });
  }
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
