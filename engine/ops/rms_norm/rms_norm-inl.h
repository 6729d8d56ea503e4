// RMS norm of a row in its two steps, for the ops that normalise rows or parts of them. Compiled
// once a target.
#if defined(TRAFO_OPS_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_OPS_RMS_NORM_INL_H_
#undef TRAFO_OPS_RMS_NORM_INL_H_
#else
#define TRAFO_OPS_RMS_NORM_INL_H_
#endif

#include <cmath>

#include "engine/ops/row_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {

// The sum of a row's squares in two registers.
template <class T>
struct SumOfSquares {
  VectorOf<T> parts[2];

  HWY_INLINE SumOfSquares() { parts[0] = parts[1] = hn::Zero(hn::ScalableTag<T>()); }
  template <class K>
  HWY_INLINE void add(VectorOf<T> v, K k) {
    parts[k] = hn::MulAdd(v, v, parts[k]);
  }
  HWY_INLINE T rstd(int64_t width, double epsilon) const {
    const T mean =
        reduce_sum(hn::ScalableTag<T>(), hn::Add(parts[0], parts[1])) / static_cast<T>(width);
    return 1 / std::sqrt(mean + static_cast<T>(epsilon));
  }
};

template <class T>
HWY_INLINE T rms_rstd(const T* x, int64_t width, double epsilon) {
  SumOfSquares<T> squares;
  for_columns<T>(width, [&](const auto& columns, auto k)
                            TRAFO_INLINE_LAMBDA { squares.add(columns.load(x), k); });
  return squares.rstd(width, epsilon);
}

// x rstd gamma, rounded twice everywhere: what is computed again must have the same bits.
template <class T>
HWY_INLINE void normalize(const T* x, const T* gamma, T rstd, int64_t width, T* y) {
  const auto factor = hn::Set(hn::ScalableTag<T>(), rstd);
  for_columns<T>(width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
    columns.store(hn::Mul(hn::Mul(columns.load(x), factor), columns.load(gamma)), y);
  });
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
