#include "engine/ops/distillation/distillation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/distillation/distillation_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/ops/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

constexpr int64_t kSummedPiece = 1024;  // summed in T, the pieces in double

// The sum of f(d, x[i], y[i]); f may give anything in the lanes past the end.
template <class T, class F>
HWY_INLINE T sum_of_both(const T* x, const T* y, int64_t count, F&& f) {
  const hn::ScalableTag<T> d;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes(d) <= count; i += 2 * lanes(d)) {
    sum0 = hn::Add(sum0, f(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i)));
    sum1 = hn::Add(sum1, f(d, hn::LoadU(d, x + i + lanes(d)), hn::LoadU(d, y + i + lanes(d))));
  }
  for (; i < count; i += lanes(d)) {
    const int64_t rest = std::min<int64_t>(lanes(d), count - i);
    const auto value = f(d, load_n(d, x + i, rest), load_n(d, y + i, rest));
    sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(rest)), value));
  }
  return reduce_sum(d, hn::Add(sum0, sum1));
}

// The same over a row, in double from piece to piece.
template <class T, class F>
HWY_INLINE double row_sum(const T* x, const T* y, int64_t classes, F&& f) {
  double total = 0;
  for (int64_t begin = 0; begin < classes; begin += kSummedPiece)
    total += static_cast<double>(
        sum_of_both(x + begin, y + begin, std::min(kSummedPiece, classes - begin), f));
  return total;
}

// log softmax(x / h) = (x - top) / h - log_sum.
template <class T>
struct LogSoftmax {
  T top, inverse, log_sum;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto shifted = hn::Mul(hn::Sub(x, hn::Set(d, top)), hn::Set(d, inverse));
    return hn::Sub(shifted, hn::Set(d, log_sum));
  }
};

template <class T>
LogSoftmax<T> log_softmax(const T* x, int64_t classes, T top, T inverse) {
  LogSoftmax<T> result{top, inverse, 0};
  const double sum =
      row_sum(x, x, classes, [&](auto d, auto v, auto) { return exp(d, result(d, v)); });
  result.log_sum = static_cast<T>(portable_log(sum));
  return result;
}

// The largest logit; not -infinity, so that exp(-infinity - top) is 0 and not NaN.
template <class T>
T top_of(const T* x, int64_t classes) {
  return std::max(max(x, classes), std::numeric_limits<T>::lowest());
}

template <class T>
struct RowStats {
  LogSoftmax<T> plain, soft, teacher;

  RowStats(const T* x, const T* y, int64_t classes, double temperature)
      : plain(log_softmax(x, classes, top_of(x, classes), T{1})),
        soft(plain),
        teacher(log_softmax(y, classes, top_of(y, classes), static_cast<T>(1 / temperature))) {
    if (temperature != 1) soft = log_softmax(x, classes, plain.top, teacher.inverse);
  }
  RowStats(const T* saved, double temperature)
      : plain{saved[0], T{1}, saved[1]},
        soft{saved[0], static_cast<T>(1 / temperature), saved[2]},
        teacher{saved[3], static_cast<T>(1 / temperature), saved[4]} {}
  void save(T* to) const {
    to[0] = plain.top;
    to[1] = plain.log_sum;
    to[2] = soft.log_sum;
    to[3] = teacher.top;
    to[4] = teacher.log_sum;
  }
};

// The largest logit less the mean of all.
template <class T>
double mean_below(const T* x, int64_t classes, T top) {
  const auto width = static_cast<double>(classes);
  if (std::abs(top) < static_cast<T>(kLargeLogit))
    return row_sum(x, x, classes,
                   [&](auto d, auto v, auto) { return hn::Sub(hn::Set(d, top), v); }) /
           width;
  double mean = 0;  // sums of so large logits would overflow
  for (int64_t i = 0; i < classes; ++i)
    mean += (static_cast<double>(top) - static_cast<double>(x[i])) / width;
  return mean;
}

// sum q (log q - log p); a class without q counts for nothing.
template <class T>
double divergence(const T* x, const T* y, int64_t classes, const RowStats<T>& stats) {
  return row_sum(x, y, classes, [&](auto d, auto student, auto teacher) {
    const auto log_q = stats.teacher(d, teacher);
    const auto q = exp(d, log_q);
    const auto term = hn::Mul(q, hn::Sub(log_q, stats.soft(d, student)));
    return hn::IfThenZeroElse(hn::Eq(q, hn::Zero(d)), term);
  });
}

struct Mixture {
  double share, temperature, smoothing;
};

// dx (+)= g ((1 - a) (softmax(x) - e / V) + a h (p - q)) over a row, g (1 - a) (1 - e) less at the
// label; `out` may be `x`.
template <class T>
void row_gradient(const T* x, const T* y, T* out, int64_t classes, int32_t label,
                  const RowStats<T>& stats, double g, const Mixture& mixture, bool accumulate) {
  const hn::ScalableTag<T> d;
  const double of_labels = g * (1 - mixture.share);
  const auto hard = hn::Set(d, static_cast<T>(of_labels));
  const auto soft = hn::Set(d, static_cast<T>(g * mixture.share * mixture.temperature));
  const auto spread =
      hn::Set(d, static_cast<T>(of_labels * mixture.smoothing / static_cast<double>(classes)));
  const bool both = mixture.share < 1;
  const auto value = [&](auto student, auto teacher) {
    const auto apart = hn::Sub(exp(d, stats.soft(d, student)), exp(d, stats.teacher(d, teacher)));
    const auto softened = hn::Mul(soft, apart);
    if (!both) return softened;
    return hn::Add(softened, hn::MulSub(hard, exp(d, stats.plain(d, student)), spread));
  };
  int64_t i = 0;
  for (; i + lanes(d) <= classes; i += lanes(d)) {
    auto v = value(hn::LoadU(d, x + i), hn::LoadU(d, y + i));
    if (accumulate) v = hn::Add(v, hn::LoadU(d, out + i));
    hn::StoreU(v, d, out + i);
  }
  if (i < classes) {
    const int64_t rest = classes - i;
    auto v = value(load_n(d, x + i, rest), load_n(d, y + i, rest));
    if (accumulate) v = hn::Add(v, load_n(d, out + i, rest));
    store_n(v, d, out + i, rest);
  }
  out[label] -= static_cast<T>(of_labels * (1 - mixture.smoothing));
}

template <class T>
void forward(ThreadPool& pool, const DistillationForwardParams& p) {
  const T* logits = static_cast<const T*>(p.logits);
  const T* teacher = static_cast<const T*>(p.teacher);
  const T* weights = static_cast<const T*>(p.weights);
  T* loss = static_cast<T*>(p.loss);
  T* nll = static_cast<T*>(p.nll);
  T* saved = static_cast<T*>(p.stats);
  T* dlogits = static_cast<T*>(p.dlogits);
  const Mixture mixture{p.share, p.temperature, p.label_smoothing};
  parallel_for_range(pool, p.rows, rows_per_block(p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* out = dlogits ? dlogits + t * p.stride : nullptr;
      if (p.labels[t] == p.ignore_label) {
        loss[t] = nll[t] = T{0};
        if (saved) std::fill_n(saved + t * kDistillationStats, kDistillationStats, T{0});
        if (out) std::fill_n(out, p.classes, T{0});
        continue;
      }
      const T* x = logits + t * p.stride;
      const T* y = teacher + t * p.stride;
      const RowStats<T> stats(x, y, p.classes, p.temperature);
      const double weight = weights ? static_cast<double>(weights[t]) : 1.0;
      const auto top = static_cast<double>(stats.plain.top);
      const auto log_sum = static_cast<double>(stats.plain.log_sum);
      const double hit = (top - static_cast<double>(x[p.labels[t]])) + log_sum;
      double mixed = p.share * p.temperature * p.temperature * divergence(x, y, p.classes, stats);
      if (p.share < 1) {
        double hard = (1 - p.label_smoothing) * hit;
        if (p.label_smoothing > 0)
          hard += p.label_smoothing * (mean_below(x, p.classes, stats.plain.top) + log_sum);
        mixed += (1 - p.share) * hard;
      }
      nll[t] = static_cast<T>(weight * hit);
      loss[t] = static_cast<T>(weight * mixed);
      if (saved) stats.save(saved + t * kDistillationStats);
      if (out)
        row_gradient(x, y, out, p.classes, p.labels[t], stats, p.dloss * weight, mixture, false);
    }
  });
}

template <class T>
void backward(ThreadPool& pool, const DistillationBackwardParams& p) {
  const T* logits = static_cast<const T*>(p.logits);
  const T* teacher = static_cast<const T*>(p.teacher);
  const T* weights = static_cast<const T*>(p.weights);
  const T* saved = static_cast<const T*>(p.stats);
  const T* dloss = static_cast<const T*>(p.dloss);
  T* dlogits = static_cast<T*>(p.dlogits);
  const Mixture mixture{p.share, p.temperature, p.label_smoothing};
  parallel_for_range(pool, p.rows, rows_per_block(p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* out = dlogits + t * p.classes;
      if (p.labels[t] == p.ignore_label) {
        if (!p.accumulate) std::fill_n(out, p.classes, T{0});
        continue;
      }
      const double weight = weights ? static_cast<double>(weights[t]) : 1.0;
      const double g = p.scale * weight * static_cast<double>(dloss[p.per_row ? t : 0]);
      row_gradient(logits + t * p.classes, teacher + t * p.classes, out, p.classes, p.labels[t],
                   RowStats<T>(saved + t * kDistillationStats, p.temperature), g, mixture,
                   p.accumulate);
    }
  });
}

int32_t distillation_forward_simd(ThreadPool& pool, const DistillationForwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

int32_t distillation_backward_simd(ThreadPool& pool, const DistillationBackwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(distillation_forward, DistillationForwardParams)
TRAFO_CPU_KERNEL(distillation_backward, DistillationBackwardParams)

}  // namespace trafo
#endif
