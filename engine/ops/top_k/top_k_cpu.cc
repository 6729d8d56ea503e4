#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/top_k/top_k_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/top_k/top_k.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

bool is_banned(const TopKParams& p, int64_t id) {
  for (int32_t i = 0; i < p.banned_count; ++i)
    if (p.banned[i] == id) return true;
  return false;
}

// The best k classes so far, in order; [0, size) is filled.
template <class T>
struct Best {
  T* values;
  int32_t* ids;
  int64_t k;
  int64_t size = 0;

  // A class must beat this to get in. Classes come in rising order, so an equal one stays out.
  T threshold() const { return size < k ? -std::numeric_limits<T>::infinity() : values[k - 1]; }
  void insert(T value, int32_t id) {
    int64_t i = size < k ? size++ : k - 1;
    for (; i > 0 && values[i - 1] < value; --i) {
      values[i] = values[i - 1];
      ids[i] = ids[i - 1];
    }
    values[i] = value;
    ids[i] = id;
  }
};

template <class T>
void select(const TopKParams& p, const T* x, Best<T>& best) {
  const hn::ScalableTag<T> d;
  // Until the list is full every class is let in, whatever its value.
  int64_t i = 0;
  for (; i < p.classes && best.size < p.k; ++i)
    if (!is_banned(p, i)) best.insert(x[i], static_cast<int32_t>(i));
  T bar = best.threshold();
  const auto scan = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      if (x[j] > bar && !is_banned(p, j)) {
        best.insert(x[j], static_cast<int32_t>(j));
        bar = best.threshold();
      }
  };
  // Almost no block holds a class that beats the bar once a few hundred have been seen.
  const int64_t block = 4 * lanes(d);
  for (; i + block <= p.classes; i += block) {
    const auto high =
        hn::Max(hn::Max(hn::LoadU(d, x + i), hn::LoadU(d, x + i + lanes(d))),
                hn::Max(hn::LoadU(d, x + i + 2 * lanes(d)), hn::LoadU(d, x + i + 3 * lanes(d))));
    if (!hn::AllFalse(d, hn::Gt(high, hn::Set(d, bar)))) scan(i, i + block);
  }
  scan(i, p.classes);
}

// Sum of e^(x - high).
template <class T>
T sum_exp(const T* x, int64_t count, T high) {
  const hn::ScalableTag<T> d;
  const auto shifted_exp = [high](auto tag, auto v) {
    return exp(tag, hn::Sub(v, hn::Set(tag, high)));
  };
  const int64_t whole = count / lanes(d) * lanes(d);
  T total = sum_of(x, whole, shifted_exp);
  if (whole < count) {  // the zeros behind the end must not count
    const auto tail = shifted_exp(d, load_n(d, x + whole, count - whole));
    total +=
        reduce_sum(d, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - whole)), tail));
  }
  return total;
}

template <class T>
void top_k_row(const TopKParams& p, int64_t row) {
  const T* x = static_cast<const T*>(p.logits) + row * p.classes;
  T* values = static_cast<T*>(p.log_probabilities) + row * p.k;
  int32_t* ids = p.ids + row * p.k;
  const T high = max(x, p.classes);
  const T log_total = std::log(sum_exp(x, p.classes, high));
  if (!std::isfinite(log_total)) {
    for (int64_t i = 0, id = 0; i < p.k; ++id) {
      if (is_banned(p, id)) continue;
      values[i] = std::numeric_limits<T>::quiet_NaN();
      ids[i++] = static_cast<int32_t>(id);
    }
    return;
  }
  Best<T> best{values, ids, p.k};
  select(p, x, best);
  for (int64_t i = 0; i < p.k; ++i) values[i] = (values[i] - high) - log_total;
}

template <class T>
void top_k_rows(ThreadPool& pool, const TopKParams& p) {
  constexpr int64_t kBlockElements = 16 << 10;
  const int64_t grain = std::max<int64_t>(1, kBlockElements / p.classes);
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) top_k_row<T>(p, row);
  });
}

void top_k_simd(ThreadPool& pool, const TopKParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { top_k_rows<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(top_k, TopKParams)

}  // namespace trafo
#endif
