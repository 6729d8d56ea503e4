#include <algorithm>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/tree_sum/tree_sum.h"

namespace trafo {

void tree_sum_cpu(ThreadPool& pool, const TreeSumParams& params);

namespace {

constexpr int64_t kTreeBlock = 4096;  // elements: the stack stays in the cache

// x = the elements of a term.
template <class T>
void load_term(const TreeTerm& term, int64_t begin, int64_t count, T* x) {
  if (term.kind == TermKind::bfloat16) {
    const BFloat16* from = static_cast<const BFloat16*>(term.x) + begin;
    for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(from[i].to_float());
    return;
  }
  const T* from = static_cast<const T*>(term.x) + begin;
  if (term.kind == TermKind::plain)
    std::copy_n(from, count, x);
  else
    for (int64_t i = 0; i < count; ++i)
      x[i] = static_cast<T>(BFloat16::from_float(static_cast<float>(from[i])).to_float());
}

template <class T>
void sum_tree(ThreadPool& pool, const TreeSumParams& p) {
  parallel_for_range(pool, p.count, kTreeBlock, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    std::vector<T> stack(static_cast<size_t>((p.depth + 1) * kTreeBlock));
    T* next = stack.data();  // above the topmost sum
    for (int32_t t = 0; t < p.term_count; ++t) {
      load_term(p.terms[t], begin, count, next);
      next += kTreeBlock;
      for (int32_t a = 0; a < p.terms[t].additions; ++a) {
        next -= kTreeBlock;
        T* left = next - kTreeBlock;
        for (int64_t i = 0; i < count; ++i) left[i] += next[i];
      }
    }
    std::copy_n(stack.data(), count, static_cast<T*>(p.out) + begin);
  });
}

}  // namespace

void tree_sum_cpu(ThreadPool& pool, const TreeSumParams& p) {
  if (p.dtype == DType::f64)
    sum_tree<double>(pool, p);
  else
    sum_tree<float>(pool, p);
}

}  // namespace trafo
