// Packing for the matrix product: panels of A and B in the order in which the micro-kernels read
// them. Compiled once a target.
#if defined(TRAFO_CPU_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_GEMM_PACK_INL_H_
#undef TRAFO_CPU_GEMM_PACK_INL_H_
#else
#define TRAFO_CPU_GEMM_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/backend/cpu/gemm_kernel-inl.h"
#include "engine/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// One 128-bit block from each of the rows row[0], row[step], row[2 * step], ...
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* const* row, int64_t step, int64_t k) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, row[0] + k);
  } else {
    const hn::Half<D> half;
    const int64_t blocks = lanes(half) * static_cast<int64_t>(sizeof(T)) / 16;
    return hn::Combine(d, load_blocks(half, row + blocks * step, step, k),
                       load_blocks(half, row, step, k));
  }
}

// Transposes within each 128-bit block: v[r] holds row r of every block before, column r after.
template <class D>
HWY_INLINE void transpose_in_blocks(D d, hn::Vec<D>* v) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::RepartitionToWide<D> wide;
    const auto t0 = hn::BitCast(wide, hn::InterleaveLower(d, v[0], v[1]));
    const auto t1 = hn::BitCast(wide, hn::InterleaveLower(d, v[2], v[3]));
    const auto t2 = hn::BitCast(wide, hn::InterleaveUpper(d, v[0], v[1]));
    const auto t3 = hn::BitCast(wide, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(wide, t0, t1));
    v[1] = hn::BitCast(d, hn::InterleaveUpper(wide, t0, t1));
    v[2] = hn::BitCast(d, hn::InterleaveLower(wide, t2, t3));
    v[3] = hn::BitCast(d, hn::InterleaveUpper(wide, t2, t3));
  } else {
    const auto t = v[0];
    v[0] = hn::InterleaveLower(d, t, v[1]);
    v[1] = hn::InterleaveUpper(d, t, v[1]);
  }
}

// to[k * to_stride + r] = from[r * from_stride + k] for r < rows <= one vector. When `pad`, whole
// vectors are written and the lanes behind `rows` repeat the last row.
template <class T>
void pack_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t depth, T* to,
                     int64_t to_stride, bool pad) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kBlock = 16 / sizeof(T);
  const T* row[hn::MaxLanes(d)];
  for (int64_t r = 0; r < lanes(d); ++r) row[r] = from + std::min(r, rows - 1) * from_stride;
  const bool whole = pad || rows == lanes(d);
  int64_t k = 0;
  for (; k + kBlock <= depth; k += kBlock) {
    hn::Vec<decltype(d)> v[kBlock];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kBlock; ++r) v[r] = load_blocks(d, row + r, kBlock, k);
    transpose_in_blocks(d, v);
    T* out = to + k * to_stride;
    if (whole) {
#pragma GCC unroll 4
      for (int64_t r = 0; r < kBlock; ++r) hn::StoreU(v[r], d, out + r * to_stride);
    } else {
#pragma GCC unroll 4
      for (int64_t r = 0; r < kBlock; ++r) store_n(v[r], d, out + r * to_stride, rows);
    }
  }
  const int64_t width = pad ? lanes(d) : rows;
  for (; k < depth; ++k)
    for (int64_t r = 0; r < width; ++r) to[k * to_stride + r] = row[r][k];
}

// Copies `depth` rows of `cols` elements. When `pad`, rows are filled with zeros up to `to_stride`.
template <class T>
void pack_rows(const T* from, int64_t from_stride, int64_t cols, int64_t depth, T* to,
               int64_t to_stride, bool pad) {
  const hn::ScalableTag<T> d;
  const int64_t width = pad ? to_stride : cols;
  for (int64_t k = 0; k < depth; ++k) {
    const T* in = from + k * from_stride;
    T* out = to + k * to_stride;
    for (int64_t j = 0; j < width; j += lanes(d)) {
      const int64_t left = cols - j;
      if (left >= lanes(d))
        hn::StoreU(hn::LoadU(d, in + j), d, out + j);
      else if (pad)
        hn::StoreU(load_n(d, in + j, std::max<int64_t>(left, 0)), d, out + j);
      else
        store_n(load_n(d, in + j, left), d, out + j, left);
    }
  }
}

// A panel of B, [depth][kPanelCols]; `from` is its first element: B(k, j) = from[k * stride + j],
// or, transposed, from[j * stride + k].
template <class T>
void pack_b_panel(const T* from, int64_t stride, bool transposed, int64_t cols, int64_t depth,
                  T* to) {
  constexpr int64_t kCols = kPanelCols<T>;
  if (!transposed) return pack_rows(from, stride, cols, depth, to, kCols, true);
  const hn::ScalableTag<T> d;
  for (int64_t j = 0; j < kCols; j += lanes(d)) {
    // A vector of nothing but padding repeats the panel's last column: any finite or not finite
    // value will do, since these columns are never stored, but memory that was never written will
    // not.
    const int64_t first = std::min(j, cols - 1);
    pack_transposed(from + first * stride, stride,
                    std::min(lanes(d), std::max<int64_t>(cols - j, 1)), depth, to + j, kCols, true);
  }
}

// A panel of A, [depth][kPanelRows]: A(i, k) = from[i * stride + k], or, transposed, from[k *
// stride + i]. Rows behind `rows` stay unwritten: the kernels for fewer rows do not read them.
template <class T>
void pack_a_panel(const T* from, int64_t stride, bool transposed, int64_t rows, int64_t depth,
                  T* to) {
  if (transposed) return pack_rows(from, stride, rows, depth, to, kPanelRows, false);
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < rows; i += lanes(d))
    pack_transposed(from + i * stride, stride, std::min(lanes(d), rows - i), depth, to + i,
                    kPanelRows, false);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
