// Packing for GEMM: panels of A and B in the order in which the micro-kernels read
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

// to[k * to_stride + r] = from[r * from_stride + k] for one vector of rows r; those from `rows` on
// repeat the last one.
template <class T>
void pack_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t depth, T* to,
                     int64_t to_stride) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kBlock = 16 / sizeof(T);
  const T* row[hn::MaxLanes(d)];
  for (int64_t r = 0; r < lanes(d); ++r) row[r] = from + std::min(r, rows - 1) * from_stride;
  int64_t k = 0;
  for (; k + kBlock <= depth; k += kBlock) {
    hn::Vec<decltype(d)> v[kBlock];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kBlock; ++r) v[r] = load_blocks(d, row + r, kBlock, k);
    transpose_in_blocks(d, v);
    T* out = to + k * to_stride;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kBlock; ++r) hn::StoreU(v[r], d, out + r * to_stride);
  }
  for (; k < depth; ++k)
    for (int64_t r = 0; r < lanes(d); ++r) to[k * to_stride + r] = row[r][k];
}

// Rows of a matrix are often whole pages apart, where the hardware does not prefetch.
inline constexpr int64_t kPrefetchRows = 8;

// Copies `depth` rows of `cols` elements, filled up with zeros to `to_stride`, a whole number of
// vectors.
template <class T>
void pack_rows(const T* from, int64_t from_stride, int64_t cols, int64_t depth, T* to,
               int64_t to_stride) {
  const hn::ScalableTag<T> d;
  for (int64_t j = 0; j < to_stride; j += lanes(d)) {
    const T* in = from + j;
    T* out = to + j;
    const int64_t left = cols - j;
    if (left >= lanes(d)) {
      for (int64_t k = 0; k < depth; ++k) {
        hwy::Prefetch(in + std::min(k + kPrefetchRows, depth - 1) * from_stride);
        hn::StoreU(hn::LoadU(d, in + k * from_stride), d, out + k * to_stride);
      }
    } else if (left > 0) {
      for (int64_t k = 0; k < depth; ++k) {
        hwy::Prefetch(in + std::min(k + kPrefetchRows, depth - 1) * from_stride);
        hn::StoreU(load_n(d, in + k * from_stride, left), d, out + k * to_stride);
      }
    } else {
      for (int64_t k = 0; k < depth; ++k) hn::StoreU(hn::Zero(d), d, out + k * to_stride);
    }
  }
}

// One panel, to[k * to_stride + i], i < width, of an operand that is stored as from[k * from_stride
// + i] or, `by_width`, as from[i * from_stride + k]. Elements after `width` are written too, with
// values that no result depends on.
template <class T>
void pack_panel(const T* from, int64_t from_stride, bool by_width, int64_t width, int64_t depth,
                T* to, int64_t to_stride) {
  if (!by_width) return pack_rows(from, from_stride, width, depth, to, to_stride);
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < to_stride; i += lanes(d)) {
    const int64_t first = std::min(i, width - 1);
    const int64_t rows = std::min(lanes(d), width - first);
    pack_transposed(from + first * from_stride, from_stride, rows, depth, to + i, to_stride);
  }
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
