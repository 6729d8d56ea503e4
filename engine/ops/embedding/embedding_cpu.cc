#include "engine/ops/embedding/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/embedding/embedding_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/philox-inl.h"
#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Elements of a block of work: large against handing it out, small enough to share a batch evenly.
constexpr int64_t kBlockElements = 16384;

int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, width));
}

template <class T>
T* factor_scratch(int64_t width) {
  thread_local std::vector<T> scratch;
  if (static_cast<int64_t>(scratch.size()) < width) scratch.resize(static_cast<size_t>(width));
  return scratch.data();
}

template <class T>
void forward(ThreadPool& pool, const EmbeddingForwardParams& p) {
  const T* table = static_cast<const T*>(p.table);
  const T* position_table = static_cast<const T*>(p.position_table);
  T* y = static_cast<T*>(p.y);
  const int64_t width = p.width;
  parallel_for_range(pool, p.tokens, rows_per_block(width), [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(p.scale));
    for (int64_t t = begin; t < end; ++t) {
      const T* row = table + p.ids[t] * width;
      T* out = y + t * width;
      if (position_table)
        map(row, position_table + p.positions[t] * width, out, width,
            [&](auto, auto x, auto position) { return hn::MulAdd(x, scale, position); });
      else
        map(row, out, width, [&](auto, auto x) { return hn::Mul(x, scale); });
    }
    if (p.dropout.active()) {
      const int64_t count = (end - begin) * width;
      T* factors = factor_scratch<T>(count);
      dropout_factors(p.dropout, begin * width, count, factors);
      T* out = y + begin * width;
      map(out, factors, out, count, [](auto, auto x, auto f) { return hn::Mul(x, f); });
    }
  });
}

// Tokens in the order of their index, ties in token order: `first[r] .. first[r + 1]` of `order`
// are the tokens that picked row r.
struct Buckets {
  std::vector<int64_t> first;
  std::vector<int64_t> order;

  void build(const int32_t* indices, int64_t tokens, int64_t rows) {
    first.assign(static_cast<size_t>(rows) + 2, 0);
    for (int64_t t = 0; t < tokens; ++t) ++first[static_cast<size_t>(indices[t]) + 2];
    for (size_t r = 2; r < first.size(); ++r) first[r] += first[r - 1];
    order.resize(static_cast<size_t>(tokens));
    // first[r + 1] runs from the start of row r to its end, which is where it belongs.
    for (int64_t t = 0; t < tokens; ++t)
      order[static_cast<size_t>(first[static_cast<size_t>(indices[t]) + 1]++)] = t;
  }
};

// Every row of `grad` is written by one block, its tokens in order: no two threads meet.
template <class T>
void scatter(ThreadPool& pool, const EmbeddingBackwardParams& p, const int32_t* indices,
             int64_t rows, double scale, bool accumulate, T* grad) {
  thread_local Buckets caller_buckets;  // of the calling thread; the workers only read it
  Buckets& buckets = caller_buckets;
  buckets.build(indices, p.tokens, rows);
  const T* dy = static_cast<const T*>(p.dy);
  const int64_t width = p.width;
  parallel_for_range(pool, rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<T> d;
    const auto factor = hn::Set(d, static_cast<T>(scale));
    const auto add_row = [&](const T* row, T* out, bool overwrite) {
      if (overwrite)
        map(row, out, width, [&](auto, auto g) { return hn::Mul(g, factor); });
      else
        map(row, out, out, width, [&](auto, auto g, auto o) { return hn::MulAdd(g, factor, o); });
    };
    for (int64_t r = begin; r < end; ++r) {
      T* out = grad + r * width;
      const int64_t from = buckets.first[static_cast<size_t>(r)];
      const int64_t to = buckets.first[static_cast<size_t>(r) + 1];
      bool overwrite = !accumulate;
      for (int64_t i = from; i < to; ++i) {
        const int64_t t = buckets.order[static_cast<size_t>(i)];
        const T* row = dy + t * width;
        if (p.dropout.active()) {
          T* masked = factor_scratch<T>(width);
          dropout_factors(p.dropout, t * width, width, masked);
          map(row, masked, masked, width, [](auto, auto g, auto f) { return hn::Mul(g, f); });
          row = masked;
        }
        add_row(row, out, overwrite);
        overwrite = false;
      }
      if (overwrite) std::fill(out, out + width, T{0});
    }
  });
}

template <class T>
void backward(ThreadPool& pool, const EmbeddingBackwardParams& p) {
  if (p.dtable)
    scatter<T>(pool, p, p.ids, p.vocabulary, p.scale, p.accumulate_table,
               static_cast<T*>(p.dtable));
  if (p.dposition_table)
    scatter<T>(pool, p, p.positions, p.max_positions, 1.0, p.accumulate_positions,
               static_cast<T*>(p.dposition_table));
}

int32_t embedding_forward_simd(ThreadPool& pool, const EmbeddingForwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

int32_t embedding_backward_simd(ThreadPool& pool, const EmbeddingBackwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(embedding_forward, EmbeddingForwardParams)
TRAFO_CPU_KERNEL(embedding_backward, EmbeddingBackwardParams)

}  // namespace trafo
#endif
