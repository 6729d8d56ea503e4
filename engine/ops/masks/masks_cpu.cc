#include <algorithm>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/masks/masks.h"

namespace trafo {
namespace {

constexpr int64_t kBlock = 1 << 14;  // elements of one block of work

// Calls fn with a zero of the type; bfloat16 is no type the CPU computes with.
template <class F>
void with_type(DType dtype, const char* op, F&& fn) {
  require(dtype == DType::f32 || dtype == DType::f64, ErrorCode::dtype_mismatch, op,
          "float32 and float64 only, got ", dtype_name(dtype));
  if (dtype == DType::f32)
    fn(float{});
  else
    fn(double{});
}

int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, kBlock / std::max<int64_t>(1, width));
}

}  // namespace

void padded_rows_cpu(ThreadPool&, const PaddedRowsParams& p) {
  for (int64_t b = 0; b < p.sequences; ++b) {
    const int64_t begin = p.begin[b], count = p.end[b] - begin;
    for (int64_t i = 0; i < p.length; ++i) {
      const int64_t last = std::max<int64_t>(0, std::min(i, count - 1));
      p.from[b * p.length + i] =
          static_cast<int32_t>(std::max<int64_t>(0, std::min(begin + last, p.rows - 1)));
      if (p.to && i < count) p.to[begin + i] = static_cast<int32_t>(b * p.length + i);
    }
  }
}

void visible_keys_cpu(ThreadPool& pool, const VisibleKeysParams& p) {
  with_type(p.dtype, "visible_keys", [&](auto zero) {
    using T = decltype(zero);
    parallel_for_range(
        pool, p.sequences * p.queries, rows_per_block(p.keys), [&](int64_t first, int64_t last) {
          for (int64_t row = first; row < last; ++row) {
            const int64_t b = row / p.queries, i = row % p.queries;
            const int64_t queries = p.query_begin ? p.query_end[b] - p.query_begin[b] : p.queries;
            const int64_t keys = p.key_begin ? p.key_end[b] - p.key_begin[b] : p.keys;
            const int64_t ahead = p.causal ? 1 : p.window;
            const int64_t below = i >= queries ? 0
                                  : ahead > 0  ? std::min(keys, i + keys - queries + ahead)
                                               : keys;
            const int64_t lowest = p.window > 0 ? i + keys - queries + 1 - p.window : 0;
            T* out = static_cast<T*>(p.out) + row * p.keys;
            for (int64_t j = 0; j < p.keys; ++j)
              out[j] =
                  j >= lowest && j < below && !(p.masked && p.masked[b * p.keys + j]) ? T{1} : T{0};
          }
        });
  });
}

void one_hot_cpu(ThreadPool& pool, const OneHotParams& p) {
  with_type(p.dtype, "one_hot", [&](auto zero) {
    using T = decltype(zero);
    parallel_for_range(pool, p.rows, rows_per_block(p.classes), [&](int64_t first, int64_t last) {
      T* out = static_cast<T*>(p.out);
      std::fill(out + first * p.classes, out + last * p.classes, T{0});
      for (int64_t row = first; row < last; ++row) {
        const int32_t label = p.labels[row];
        if (label >= 0 && label < p.classes && label != p.ignore)
          out[row * p.classes + label] = T{1};
      }
    });
  });
}

}  // namespace trafo
