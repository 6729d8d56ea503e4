// Statistics of a row, for layer norm alone and after a residual connection. Compiled once a
// target.
#if defined(TRAFO_OPS_LAYER_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_OPS_LAYER_NORM_INL_H_
#undef TRAFO_OPS_LAYER_NORM_INL_H_
#else
#define TRAFO_OPS_LAYER_NORM_INL_H_
#endif

#include <cmath>

#include "engine/ops/row_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {

// The mean of a row's first elements, a shift that takes the row's mean along: one element may be
// far from it. As many elements on every instruction set: the mean of four is so often two
// deviations from the row's that the variance would cancel. value(columns) gives the row's values.
template <class T, class Value>
HWY_INLINE T row_shift(int64_t width, const Value& value) {
  const hn::ScalableTag<T> d;
  const int64_t count = std::min<int64_t>(width, 16);
  VectorOf<T> first = hn::Zero(d);
  for_columns_once<T>(count, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    first = hn::Add(first, columns.keep(value(columns)));
  });
  return reduce_sum(d, first) / static_cast<T>(count);
}

// Sums over a row of values minus `shift`: without the shift a large mean would cancel the
// variance.
template <class T>
struct ShiftedSums {
  VectorOf<T> sum[2], squares[2];
  VectorOf<T> shift;

  HWY_INLINE explicit ShiftedSums(T by) {
    const hn::ScalableTag<T> d;
    shift = hn::Set(d, by);
    sum[0] = sum[1] = squares[0] = squares[1] = hn::Zero(d);
  }
  template <class Columns, class K>
  HWY_INLINE void add(const Columns& columns, VectorOf<T> x, K k) {
    const auto shifted = columns.keep(hn::Sub(x, shift));
    sum[k] = hn::Add(sum[k], shifted);
    squares[k] = hn::MulAdd(shifted, shifted, squares[k]);
  }
};

template <class T>
struct RowStatistics {
  T shift;  // the mean is shift + shifted_mean; apart they are more exact than their sum
  T shifted_mean;
  T rstd;
  T mean() const { return shift + shifted_mean; }
  // Values that backward and a second computation need; row `row` of arrays that may all be null.
  void store(int64_t row, void* mean_of_row, void* rstd_of_row, void* saved_mean) const {
    if (mean_of_row) {
      static_cast<T*>(mean_of_row)[row] = mean();
      static_cast<T*>(rstd_of_row)[row] = rstd;
    }
    if (saved_mean) {
      static_cast<T*>(saved_mean)[2 * row] = shift;
      static_cast<T*>(saved_mean)[2 * row + 1] = shifted_mean;
    }
  }
};

template <class T>
HWY_INLINE RowStatistics<T> row_statistics(const T* x, int64_t width, T shift,
                                           const ShiftedSums<T>& sums, T epsilon) {
  const hn::ScalableTag<T> d;
  const T count = static_cast<T>(width);
  T mean = reduce_sum(d, hn::Add(sums.sum[0], sums.sum[1])) / count;
  const T square = reduce_sum(d, hn::Add(sums.squares[0], sums.squares[1])) / count;
  T variance = square - mean * mean;
  // The first elements are outliers and the difference lost digits; or both squares overflowed and
  // it is NaN. The mean of large shifted values lost as many digits: both are summed again.
  if (!(variance * 8 >= square)) {
    ShiftedSums<T> rest(0);
    const auto centre = hn::Set(d, mean), offset = hn::Set(d, shift);
    for_columns<T>(width, [&](const auto& columns, auto k) TRAFO_INLINE_LAMBDA {
      rest.add(columns, hn::Sub(hn::Sub(columns.load(x), offset), centre), k);
    });
    // Too large by the square of what the mean lacks, which is less than a rounding.
    variance = reduce_sum(d, hn::Add(rest.squares[0], rest.squares[1])) / count;
    mean += reduce_sum(d, hn::Add(rest.sum[0], rest.sum[1])) / count;
  }
  return {shift, mean, 1 / std::sqrt(variance + epsilon)};
}

template <class T>
HWY_INLINE void normalize_row(const T* x, const T* gamma, const T* beta, int64_t width,
                              const RowStatistics<T>& row, T* y) {
  const hn::ScalableTag<T> d;
  const auto shift = hn::Set(d, row.shift), mean = hn::Set(d, row.shifted_mean);
  const auto rstd = hn::Set(d, row.rstd);
  for_columns<T>(width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
    const auto xhat = hn::Mul(hn::Sub(hn::Sub(columns.load(x), shift), mean), rstd);
    columns.store(hn::MulAdd(xhat, columns.load(gamma), columns.load(beta)), y);
  });
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
