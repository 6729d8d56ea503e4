// Vector helpers for kernels, compiled once a target; see simd.h for how a kernel file includes
// this.
//
// Everything is a template over Highway's tag `d` (float or double lanes). Vectors are passed by
// value and all helpers are inlined into kernels of the same target.
#if defined(TRAFO_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_SIMD_INL_H_
#undef TRAFO_CPU_SIMD_INL_H_
#else
#define TRAFO_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
constexpr int64_t lanes(D) {
  return static_cast<int64_t>(hn::MaxLanes(D()));
}

// The first `count` lanes (0 <= count <= lanes) from memory, zeros after them. Reads nothing past
// p[count - 1].
template <class D>
HWY_INLINE hn::Vec<D> load_n(D d, const hn::TFromD<D>* p, int64_t count) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  // Narrow targets emulate masked loads by whole ones, which may cross into an unmapped page.
  HWY_ALIGN hn::TFromD<D> lane[hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < count; ++i) lane[i] = p[i];
  return hn::Load(d, lane);
#endif
}

// Writes p[0 .. count - 1] and nothing else.
template <class D>
HWY_INLINE void store_n(hn::Vec<D> v, D d, hn::TFromD<D>* p, int64_t count) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  HWY_ALIGN hn::TFromD<D> lane[hn::MaxLanes(D())];
  hn::Store(v, d, lane);
  for (int64_t i = 0; i < count; ++i) p[i] = lane[i];
#endif
}

template <class D>
HWY_INLINE hn::TFromD<D> reduce_sum(D d, hn::Vec<D> v) {
#if HWY_TARGET == HWY_EMU128  // WebAssembly; Highway's emulation adds one lane after the other
  // In the order of other targets with vectors of this size: the same bits.
  const auto pair = [&](size_t i) {
    if constexpr (hn::MaxLanes(D()) == 4)
      return hn::ExtractLane(v, i) + hn::ExtractLane(v, i + 2);
    else
      return hn::ExtractLane(v, i);
  };
  if constexpr (hn::MaxLanes(D()) > 1) return pair(0) + pair(1);
#endif
  return hn::GetLane(hn::SumOfLanes(d, v));
}

template <class D>
HWY_INLINE hn::TFromD<D> reduce_max(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// e^x within a few units in the last place. Unlike hn::Exp: NaN stays NaN and a large x gives
// infinity.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto bound = hn::Set(d, sizeof(T) == 4 ? static_cast<T>(89) : static_cast<T>(710));
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, hn::Min(x, bound)), x);
}

// Unlike hn::Tanh: NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Tanh(d, x), x);
}

// 1 / (1 + e^-x), without overflow on either side.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, static_cast<hn::TFromD<D>>(1));
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// y[i] = f(d, x[i]) for vectors x[i]; y may be x. f sees zeros in the lanes past the end and its
// result is dropped.
template <class T, class F>
HWY_INLINE void map(const T* x, T* y, int64_t count, F&& f) {
  const hn::ScalableTag<T> d;
  int64_t i = 0;
  for (; i + lanes(d) <= count; i += lanes(d)) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < count) store_n(f(d, load_n(d, x + i, count - i)), d, y + i, count - i);
}

// z[i] = f(d, x[i], y[i]).
template <class T, class F>
HWY_INLINE void map(const T* x, const T* y, T* z, int64_t count, F&& f) {
  const hn::ScalableTag<T> d;
  int64_t i = 0;
  for (; i + lanes(d) <= count; i += lanes(d))
    hn::StoreU(f(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, z + i);
  if (i < count) {
    const int64_t rest = count - i;
    store_n(f(d, load_n(d, x + i, rest), load_n(d, y + i, rest)), d, z + i, rest);
  }
}

// Sum of f(d, x[i]) over vectors. Two accumulators hide the latency of the addition; the order of
// the summands depends on `count` and on the target only. f must give zero for a zero lane.
template <class T, class F>
HWY_INLINE T sum_of(const T* x, int64_t count, F&& f) {
  const hn::ScalableTag<T> d;
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes(d) <= count; i += 2 * lanes(d)) {
    sum0 = hn::Add(sum0, f(d, hn::LoadU(d, x + i)));
    sum1 = hn::Add(sum1, f(d, hn::LoadU(d, x + i + lanes(d))));
  }
  if (i + lanes(d) <= count) {
    sum0 = hn::Add(sum0, f(d, hn::LoadU(d, x + i)));
    i += lanes(d);
  }
  if (i < count) sum1 = hn::Add(sum1, f(d, load_n(d, x + i, count - i)));
  return reduce_sum(d, hn::Add(sum0, sum1));
}

template <class T>
HWY_INLINE T sum(const T* x, int64_t count) {
  return sum_of(x, count, [](auto, auto v) { return v; });
}

template <class T>
HWY_INLINE T dot(const T* x, const T* y, int64_t count) {
  const hn::ScalableTag<T> d;
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes(d) <= count; i += 2 * lanes(d)) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes(d)), hn::LoadU(d, y + i + lanes(d)), sum1);
  }
  if (i + lanes(d) <= count) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    i += lanes(d);
  }
  if (i < count) {
    const int64_t rest = count - i;
    sum1 = hn::MulAdd(load_n(d, x + i, rest), load_n(d, y + i, rest), sum1);
  }
  return reduce_sum(d, hn::Add(sum0, sum1));
}

// Largest element; -infinity when count is 0. With a NaN among them the result is unspecified:
// exp(x - max) of that NaN still is NaN.
template <class T>
HWY_INLINE T max(const T* x, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto max0 = lowest;
  auto max1 = lowest;
  int64_t i = 0;
  for (; i + 2 * lanes(d) <= count; i += 2 * lanes(d)) {
    max0 = hn::Max(max0, hn::LoadU(d, x + i));
    max1 = hn::Max(max1, hn::LoadU(d, x + i + lanes(d)));
  }
  T result = reduce_max(d, hn::Max(max0, max1));
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
