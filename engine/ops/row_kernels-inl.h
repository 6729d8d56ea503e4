// Loops over the columns of rows, compiled once a target; see engine/backend/cpu/simd.h for how a
// kernel file includes this.
#if defined(TRAFO_OPS_ROW_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_OPS_ROW_KERNELS_INL_H_
#undef TRAFO_OPS_ROW_KERNELS_INL_H_
#else
#define TRAFO_OPS_ROW_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cpu/philox-inl.h"
#include "engine/backend/cpu/simd-inl.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/row_blocks.h"

// The body of a column loop appears several times (main part, tail), yet must not become a call.
#ifndef TRAFO_INLINE_LAMBDA
#define TRAFO_INLINE_LAMBDA __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using VectorOf = hn::Vec<hn::ScalableTag<T>>;

// Rows that a kernel takes side by side: as many as leave registers for the rest.
inline constexpr int kRowsTogether = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// A whole vector of columns.
template <class T>
struct WholeColumns {
  static constexpr bool whole = true;
  int64_t at;
  HWY_INLINE VectorOf<T> load(const T* p) const { return hn::LoadU(hn::ScalableTag<T>(), p + at); }
  HWY_INLINE void store(VectorOf<T> v, T* p) const { hn::StoreU(v, hn::ScalableTag<T>(), p + at); }
  HWY_INLINE VectorOf<T> keep(VectorOf<T> v) const { return v; }
};

// The last columns of a row, fewer than a vector: loads give zeros after them, keep() makes zeros
// there.
template <class T>
struct LastColumns {
  static constexpr bool whole = false;
  int64_t at, count;
  HWY_INLINE VectorOf<T> load(const T* p) const {
    return load_n(hn::ScalableTag<T>(), p + at, count);
  }
  HWY_INLINE void store(VectorOf<T> v, T* p) const {
    store_n(v, hn::ScalableTag<T>(), p + at, count);
  }
  HWY_INLINE VectorOf<T> keep(VectorOf<T> v) const {
    return hn::IfThenElseZero(hn::FirstN(hn::ScalableTag<T>(), static_cast<size_t>(count)), v);
  }
};

// body(columns, k) from left to right; k alternates between 0 and 1 (compile-time), for sums in two
// registers.
template <class T, class Body>
HWY_INLINE void for_columns(int64_t width, Body&& body) {
  constexpr int64_t n = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr std::integral_constant<int, 0> even{};
  constexpr std::integral_constant<int, 1> odd{};
  int64_t i = 0;
  for (; i + 2 * n <= width; i += 2 * n) {
    body(WholeColumns<T>{i}, even);
    body(WholeColumns<T>{i + n}, odd);
  }
  if (i + n <= width) {
    body(WholeColumns<T>{i}, even);
    i += n;
  }
  if (i < width) body(LastColumns<T>{i, width - i}, odd);
}

// The same for bodies too large to appear four times.
template <class T, class Body>
HWY_INLINE void for_columns_once(int64_t width, Body&& body) {
  constexpr int64_t n = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  for (; i + n <= width; i += n) body(WholeColumns<T>{i});
  if (i < width) body(LastColumns<T>{i, width - i});
}

// p (+)= v.
template <class T, class Columns>
HWY_INLINE void put(const Columns& columns, VectorOf<T> v, T* p, bool accumulate) {
  columns.store(accumulate ? hn::Add(columns.load(p), v) : v, p);
}

// out[c] (+)= sum over blocks of partials[block * stride + c], in the order of blocks; zeros
// without blocks.
template <class T>
void sum_partials(ThreadPool& pool, const T* partials, int64_t blocks, int64_t stride,
                  int64_t width, T* out, bool accumulate) {
  parallel_for_range(pool, width, 1024, [&](int64_t begin, int64_t end) {
    const T* from = partials + begin;
    for_columns_once<T>(end - begin, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
      auto total = hn::Zero(hn::ScalableTag<T>());
      for (int64_t block = 0; block < blocks; ++block)
        total = hn::Add(total, columns.load(from + block * stride));
      put<T>(columns, total, out + begin, accumulate);
    });
  });
}

// Dropout factors of rows in rising order. Drawn for several rows at a time, so that narrow rows
// are cheap too; all ones without dropout. One at a time on a thread.
template <class T>
class RowFactors {
 public:
  RowFactors(const Dropout& dropout, int64_t width, int64_t end_row)
      : dropout_(dropout), width_(width), end_row_(end_row), active_(dropout.active()) {
    thread_local Scratch scratch;
    rows_at_once_ = active_ ? std::max<int64_t>(kRowsTogether, kElements / width) : kRowsTogether;
    factors_ = scratch.get<T>(rows_at_once_ * width);
    if (!active_) std::fill_n(factors_, rows_at_once_ * width, T{1});
  }

  // Factors of rows [row, row + count) one after another; count <= kRowsTogether.
  const T* rows(int64_t row, int64_t count) {
    if (!active_) return factors_;
    if (row < begin_ || row + count > end_) {
      begin_ = row;
      end_ = std::min(row + rows_at_once_, end_row_);
      dropout_factors<T>(dropout_, begin_ * width_, (end_ - begin_) * width_, factors_);
    }
    return factors_ + (row - begin_) * width_;
  }

 private:
  static constexpr int64_t kElements = 4 * kPhiloxChunk;
  const Dropout dropout_;
  const int64_t width_, end_row_;
  const bool active_;
  int64_t rows_at_once_ = 0;
  int64_t begin_ = 0, end_ = 0;  // rows that factors_ holds
  T* factors_ = nullptr;
};

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
