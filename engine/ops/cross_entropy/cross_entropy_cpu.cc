#include "engine/ops/cross_entropy/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cross_entropy/cross_entropy_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/fp8.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/ops/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Logits are looked at in pieces that stay in the first-level cache: once for the maximum, once for
// the exponentials.
constexpr int64_t kPiece = 1024;

// The log of the sum of exponentials is base + rest, in the parts of cross_entropy.h.
struct RowSums {
  double base, rest;
  double spread;  // base less the mean of the logits; meaningless unless asked for
};

// Reads the row once: a running maximum, and the sum of exponentials relative to it.
template <class T>
RowSums row_sums(const T* x, int64_t classes, bool want_mean) {
  // From the lowest finite number and not -infinity: exp(-infinity - maximum) is then 0 and not
  // NaN.
  T maximum = std::numeric_limits<T>::lowest();
  double sum_exp = 0, total = 0;
  for (int64_t begin = 0; begin < classes; begin += kPiece) {
    const int64_t count = std::min(kPiece, classes - begin);
    const T piece_maximum = max(x + begin, count);
    if (piece_maximum > maximum) {
      sum_exp *= portable_exp(static_cast<double>(maximum) - static_cast<double>(piece_maximum));
      maximum = piece_maximum;
    }
    const hn::ScalableTag<T> d;
    const auto shift = hn::Set(d, maximum);
    const int64_t whole = count - count % lanes(d);
    T piece = sum_of(x + begin, whole, [&](auto, auto v) { return exp(d, hn::Sub(v, shift)); });
    if (whole < count) {  // lanes past the end do not count
      const auto e = exp(d, hn::Sub(load_n(d, x + begin + whole, count - whole), shift));
      const auto inside = hn::FirstN(d, static_cast<size_t>(count - whole));
      piece += reduce_sum(d, hn::IfThenElseZero(inside, e));
    }
    sum_exp += static_cast<double>(piece);
    if (want_mean) total += static_cast<double>(sum(x + begin, count));
  }
  const double log_sum = portable_log(sum_exp), base = static_cast<double>(maximum);
  const auto width = static_cast<double>(classes);
  // In float64 the log-sum would lose digits beside logits of any size.
  if (std::is_same_v<T, float> && std::abs(base) < kLargeLogit)
    return {base + log_sum, 0, base + log_sum - total / width};
  double spread = 0;
  for (int64_t i = 0; want_mean && i < classes; ++i)
    spread += (base - static_cast<double>(x[i])) / width;
  return {base, log_sum, spread};
}

// dx (+)= g (softmax(x) - e / V) over a row, g (1 - e) less at the label; `out` may be `row`. The
// log-sum is lse + rest.
template <class T>
void row_gradient(const T* row, T* out, int64_t classes, int32_t label, T lse, T rest, double g,
                  double smoothing, bool accumulate) {
  const hn::ScalableTag<T> d;
  const auto gradient = hn::Set(d, static_cast<T>(g));
  const auto log_sum = hn::Set(d, lse), log_rest = hn::Set(d, rest);
  const auto spread = hn::Set(d, static_cast<T>(g * smoothing / static_cast<double>(classes)));
  const auto value = [&](auto x) {
    const auto power = hn::Sub(hn::Sub(x, log_sum), log_rest);
    return hn::MulSub(gradient, exp(d, power), spread);
  };
  if (accumulate)
    map(row, out, out, classes, [&](auto, auto x, auto o) { return hn::Add(o, value(x)); });
  else
    map(row, out, classes, [&](auto, auto x) { return value(x); });
  out[label] -= static_cast<T>(g * (1 - smoothing));
}

// A row of the gradient in FP8, and the zeros after it.
template <class T>
void put_fp8(const CrossEntropyForwardParams& p, int64_t row, T* gradient) {
  std::fill(gradient + p.classes, gradient + p.stride, T{0});
  uint8_t* out = static_cast<uint8_t*>(p.dlogits_fp8) + row * p.stride;
  std::fill(out + p.classes, out + p.stride, uint8_t{0});
  for (int64_t c = 0; c < p.classes; ++c)
    out[c] = float_to_fp8(static_cast<float>(gradient[c]) * p.dlogits_scale[1], Fp8Format::e5m2);
}

template <class T>
void forward(ThreadPool& pool, const CrossEntropyForwardParams& p) {
  const T* logits = static_cast<const T*>(p.logits);
  const T* weights = static_cast<const T*>(p.weights);
  T* loss = static_cast<T*>(p.loss);
  T* nll = static_cast<T*>(p.nll);
  T* lse = static_cast<T*>(p.lse);
  T* lse_rest = static_cast<T*>(p.lse_rest);
  T* dlogits = static_cast<T*>(p.dlogits);
  const double smoothing = p.label_smoothing;
  parallel_for_range(pool, p.rows, rows_per_block(p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* out = dlogits ? dlogits + t * p.stride : nullptr;
      if (p.labels[t] == p.ignore_label) {
        loss[t] = nll[t] = lse[t] = T{0};
        if (lse_rest) lse_rest[t] = T{0};
        if (out) std::fill(out, out + p.classes, T{0});
        if (p.dlogits_fp8) put_fp8(p, t, out);
        continue;
      }
      const T* row = logits + t * p.stride;
      const RowSums sums = row_sums(row, p.classes, smoothing > 0);
      const double weight = weights ? static_cast<double>(weights[t]) : 1.0;
      const double hit = (sums.base - static_cast<double>(row[p.labels[t]])) + sums.rest;
      nll[t] = static_cast<T>(weight * hit);
      loss[t] = smoothing > 0 ? static_cast<T>(weight * ((1 - smoothing) * hit +
                                                         smoothing * (sums.spread + sums.rest)))
                              : nll[t];
      lse[t] = static_cast<T>(sums.base);
      const T rest = static_cast<T>((sums.base - static_cast<double>(lse[t])) + sums.rest);
      if (lse_rest) lse_rest[t] = rest;
      if (out)
        row_gradient(row, out, p.classes, p.labels[t], lse[t], rest, p.dloss * weight, smoothing,
                     false);
      if (p.dlogits_fp8) put_fp8(p, t, out);
    }
  });
}

template <class T>
void backward(ThreadPool& pool, const CrossEntropyBackwardParams& p) {
  const T* logits = static_cast<const T*>(p.logits);
  const T* weights = static_cast<const T*>(p.weights);
  const T* lse = static_cast<const T*>(p.lse);
  const T* lse_rest = static_cast<const T*>(p.lse_rest);
  const T* dloss = static_cast<const T*>(p.dloss);
  T* dlogits = static_cast<T*>(p.dlogits);
  parallel_for_range(pool, p.rows, rows_per_block(p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* out = dlogits + t * p.classes;
      if (p.labels[t] == p.ignore_label) {
        if (!p.accumulate) std::fill(out, out + p.classes, T{0});
        continue;
      }
      const double weight = weights ? static_cast<double>(weights[t]) : 1.0;
      const double g = p.scale * weight * static_cast<double>(dloss[p.per_row ? t : 0]);
      row_gradient(logits + t * p.classes, out, p.classes, p.labels[t], lse[t],
                   lse_rest ? lse_rest[t] : T{0}, g, p.label_smoothing, p.accumulate);
    }
  });
}

int32_t cross_entropy_forward_simd(ThreadPool& pool, const CrossEntropyForwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

int32_t cross_entropy_backward_simd(ThreadPool& pool, const CrossEntropyBackwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(cross_entropy_forward, CrossEntropyForwardParams)
TRAFO_CPU_KERNEL(cross_entropy_backward, CrossEntropyBackwardParams)

}  // namespace trafo
#endif
