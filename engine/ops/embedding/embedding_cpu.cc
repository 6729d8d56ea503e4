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
#include "engine/ops/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

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

// Every row of the table has one block, which adds its tokens in order: no two threads meet.
template <class T>
void backward(ThreadPool& pool, const EmbeddingBackwardParams& p) {
  const T* dy = static_cast<const T*>(p.dy);
  T* grad = static_cast<T*>(p.dtable);
  const int64_t width = p.width;
  parallel_for_range(pool, p.entries, rows_per_block(width), [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<T> d;
    const auto factor = hn::Set(d, static_cast<T>(p.scale));
    const auto add_row = [&](const T* row, T* out, bool overwrite) {
      if (overwrite)
        map(row, out, width, [&](auto, auto g) { return hn::Mul(g, factor); });
      else
        map(row, out, out, width, [&](auto, auto g, auto o) { return hn::MulAdd(g, factor, o); });
    };
    int64_t i = std::lower_bound(p.entry, p.entry + p.tokens, begin) - p.entry;
    for (int64_t r = begin; r < end; ++r) {
      T* out = grad + r * width;
      bool overwrite = !p.accumulate;
      for (; i < p.tokens && p.entry[i] == r; ++i) {
        const int64_t t = p.token[i];
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

// A counting sort.
int32_t sort_tokens_simd(ThreadPool&, const SortTokensParams& p) {
  thread_local std::vector<int64_t> next;  // where the next token of an entry goes
  next.assign(static_cast<size_t>(p.entries) + 1, 0);
  for (int64_t t = 0; t < p.tokens; ++t) ++next[static_cast<size_t>(p.indices[t]) + 1];
  for (size_t r = 1; r < next.size(); ++r) next[r] += next[r - 1];
  for (int64_t t = 0; t < p.tokens; ++t) {
    const int64_t at = next[static_cast<size_t>(p.indices[t])]++;
    p.entry[at] = p.indices[t];
    p.token[at] = static_cast<int32_t>(t);
  }
  return 0;
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
TRAFO_CPU_KERNEL(sort_tokens, SortTokensParams)

}  // namespace trafo
#endif
