#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/top_k/top_k_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/portable_math.h"
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

  // Classes come in rising order, so the lower of equal ones come first.
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

// Classes of a block, of which the largest value is kept.
constexpr int64_t kBlock = 128;

// The largest value of each block of x, and of all.
template <class T>
T block_maxima(const T* x, int64_t classes, T* maxima) {
  T high = -std::numeric_limits<T>::infinity();
  for (int64_t begin = 0; begin < classes; begin += kBlock) {
    const T most = max(x + begin, std::min(kBlock, classes - begin));
    *maxima++ = most;
    high = std::max(high, most);
  }
  return high;
}

// No class below this is among the best: the largest value of a block that `count` - 1 others
// reach, if there are that many.
template <class T>
T lower_bound_of_best(const T* maxima, int64_t blocks, int64_t count, std::vector<T>& scratch) {
  if (blocks < count) return -std::numeric_limits<T>::infinity();
  scratch.assign(maxima, maxima + blocks);
  std::nth_element(scratch.begin(), scratch.begin() + (count - 1), scratch.end(),
                   std::greater<T>());
  return scratch[static_cast<size_t>(count - 1)];
}

// Of classes whose value is not below `bar`, in rising order.
template <class T>
void select(const TopKParams& p, const T* x, const T* maxima, T bar, Best<T>& best) {
  const hn::ScalableTag<T> d;
  const auto scan = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      // Until the list is full, what is equal to the bar is let in.
      if (x[j] < bar || (best.size == p.k && x[j] == bar) || is_banned(p, j)) continue;
      best.insert(x[j], static_cast<int32_t>(j));
      if (best.size == p.k) bar = std::max(bar, best.values[p.k - 1]);
    }
  };
  for (int64_t begin = 0; begin < p.classes; begin += kBlock) {
    if (maxima[begin / kBlock] < bar) continue;
    const int64_t end = std::min(p.classes, begin + kBlock);
    int64_t i = begin;
    for (; i + lanes(d) <= end; i += lanes(d))
      if (!hn::AllFalse(d, hn::Ge(hn::LoadU(d, x + i), hn::Set(d, bar)))) scan(i, i + lanes(d));
    scan(i, end);
  }
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
  if (whole < count) {  // the zeros past the end must not count
    const auto tail = shifted_exp(d, load_n(d, x + whole, count - whole));
    total +=
        reduce_sum(d, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - whole)), tail));
  }
  return total;
}

template <class T>
struct RowScratch {
  std::vector<T> maxima, sorted;
};

template <class T>
void top_k_row(const TopKParams& p, int64_t row, RowScratch<T>& scratch) {
  const T* x = static_cast<const T*>(p.logits) + row * p.classes;
  T* values = static_cast<T*>(p.log_probabilities) + row * p.k;
  int32_t* ids = p.ids + row * p.k;
  const T high = block_maxima(x, p.classes, scratch.maxima.data());
  const T log_total = log_of(sum_exp(x, p.classes, high));
  if (!std::isfinite(log_total)) {
    for (int64_t i = 0, id = 0; i < p.k; ++id) {
      if (is_banned(p, id)) continue;
      values[i] = std::numeric_limits<T>::quiet_NaN();
      ids[i++] = static_cast<int32_t>(id);
    }
    return;
  }
  Best<T> best{values, ids, p.k};
  // Banned classes may be in as many of the best blocks.
  const auto blocks = static_cast<int64_t>(scratch.maxima.size());
  const T bar =
      lower_bound_of_best(scratch.maxima.data(), blocks, p.k + p.banned_count, scratch.sorted);
  select(p, x, scratch.maxima.data(), bar, best);
  for (int64_t i = 0; i < p.k; ++i) values[i] = (values[i] - high) - log_total;
}

template <class T>
void top_k_rows(ThreadPool& pool, const TopKParams& p) {
  constexpr int64_t kBlockElements = 16 << 10;
  const int64_t grain = std::max<int64_t>(1, kBlockElements / p.classes);
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    RowScratch<T> scratch;
    scratch.maxima.resize(static_cast<size_t>((p.classes + kBlock - 1) / kBlock));
    for (int64_t row = begin; row < end; ++row) top_k_row<T>(p, row, scratch);
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
