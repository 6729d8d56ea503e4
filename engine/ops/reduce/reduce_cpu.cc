#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/reduce/reduce_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/reduce/reduce.h"

#ifndef TRAFO_REDUCE_CPU_SCRATCH
#define TRAFO_REDUCE_CPU_SCRATCH
namespace trafo {
namespace {

constexpr int64_t kRun = 1 << 9;         // elements that are summed in their own precision
constexpr int64_t kChunk = 1 << 12;      // elements of a long row that are summed by one block
constexpr int64_t kGrain = 1 << 14;      // elements a block of short rows
constexpr int64_t kColumnBand = 1 << 9;  // columns a block
constexpr int64_t kRowChunk = 1 << 8;    // rows a block
constexpr int64_t kRowRun = 1 << 4;      // rows that are added up before they meet the block's sum

// Partial results of the calling thread, kept so that a steady state allocates nothing.
template <class T>
T* partial_buffer(int64_t count) {
  thread_local std::vector<T> buffer;
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

}  // namespace
}  // namespace trafo
#endif

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Largest element; NaN if there is one. count > 0.
template <class T>
HWY_INLINE T max_or_nan(const T* x, int64_t count) {
  const hn::ScalableTag<T> d;
  const T largest = max(x, count);
  auto marks = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes(d) <= count; i += lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    marks = hn::Add(marks, hn::IfThenElseZero(hn::IsNaN(v), hn::Set(d, static_cast<T>(1))));
  }
  bool nan = reduce_sum(d, marks) > 0;
  for (; i < count; ++i) nan = nan || x[i] != x[i];
  return nan ? std::numeric_limits<T>::quiet_NaN() : largest;
}

// Sums of a few hundred elements, added in float64: few roundings of one size pile up.
template <class T>
HWY_INLINE double accurate_sum(const T* x, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; i += kRun)
    total += static_cast<double>(sum(x + i, std::min(kRun, count - i)));
  return total;
}

// One contiguous row; a long one in chunks, whose sums are added in float64.
template <class T>
T reduce_row(ThreadPool& pool, ReduceKind kind, const T* x, int64_t size) {
  const bool is_max = kind == ReduceKind::max;
  double result = 0;
  if (size <= kChunk) {
    result = is_max ? static_cast<double>(max_or_nan(x, size)) : accurate_sum(x, size);
  } else {
    const int64_t chunks = (size - 1) / kChunk + 1;
    double* partial = partial_buffer<double>(chunks);
    parallel_for_range(pool, chunks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const T* at = x + chunk * kChunk;
        const int64_t count = std::min(kChunk, size - chunk * kChunk);
        partial[chunk] =
            is_max ? static_cast<double>(max_or_nan(at, count)) : accurate_sum(at, count);
      }
    });
    if (is_max) {
      result = max_or_nan(partial, chunks);
    } else {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) result += partial[chunk];
    }
  }
  if (kind == ReduceKind::mean) result /= static_cast<double>(size);
  return static_cast<T>(result);
}

// out[j] = reduction over rows of x[row * stride + j], `rows` > 0, in ascending order.
template <class T>
HWY_INLINE void reduce_columns(ReduceKind kind, const T* x, int64_t rows, int64_t stride, T* out,
                               int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t step = lanes(d);
  // In runs, so that few roundings happen at the size of the whole sum.
  const auto run = [&](auto combine) {
    int64_t j = 0;
    for (; j + 4 * step <= count; j += 4 * step) {  // a few lines at once: independent additions
      auto v0 = hn::LoadU(d, x + j), v1 = hn::LoadU(d, x + j + step);
      auto v2 = hn::LoadU(d, x + j + 2 * step), v3 = hn::LoadU(d, x + j + 3 * step);
      for (int64_t row = 1; row < rows;) {
        const T* at = x + row * stride + j;
        auto u0 = hn::LoadU(d, at), u1 = hn::LoadU(d, at + step);
        auto u2 = hn::LoadU(d, at + 2 * step), u3 = hn::LoadU(d, at + 3 * step);
        const int64_t end = std::min(rows, row + kRowRun);
        for (++row; row < end; ++row) {
          at += stride;
          u0 = combine(u0, hn::LoadU(d, at));
          u1 = combine(u1, hn::LoadU(d, at + step));
          u2 = combine(u2, hn::LoadU(d, at + 2 * step));
          u3 = combine(u3, hn::LoadU(d, at + 3 * step));
        }
        v0 = combine(v0, u0);
        v1 = combine(v1, u1);
        v2 = combine(v2, u2);
        v3 = combine(v3, u3);
      }
      hn::StoreU(v0, d, out + j);
      hn::StoreU(v1, d, out + j + step);
      hn::StoreU(v2, d, out + j + 2 * step);
      hn::StoreU(v3, d, out + j + 3 * step);
    }
    for (; j < count; j += step) {
      const int64_t rest = std::min(step, count - j);
      auto v = load_n(d, x + j, rest);
      for (int64_t row = 1; row < rows;) {
        auto u = load_n(d, x + row * stride + j, rest);
        const int64_t end = std::min(rows, row + kRowRun);
        for (++row; row < end; ++row) u = combine(u, load_n(d, x + row * stride + j, rest));
        v = combine(v, u);
      }
      store_n(v, d, out + j, rest);
    }
  };
  if (kind == ReduceKind::max)
    run([](auto a, auto b) {  // NaN wins
      return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
    });
  else
    run([](auto a, auto b) { return hn::Add(a, b); });
}

// y[width] = reduction over the rows of x [rows, width]: chunks of rows times bands of columns,
// then over the chunks.
template <class T>
void reduce_rows(ThreadPool& pool, ReduceKind kind, const T* x, int64_t rows, int64_t width, T* y) {
  const int64_t chunks = (rows - 1) / kRowChunk + 1, bands = (width - 1) / kColumnBand + 1;
  T* partial = chunks == 1 ? y : partial_buffer<T>(chunks * width);
  pool.parallel_for(chunks * bands, [&](int64_t block) {
    const int64_t row = block / bands * kRowChunk, column = block % bands * kColumnBand;
    reduce_columns(kind, x + row * width + column, std::min(kRowChunk, rows - row), width,
                   partial + block / bands * width + column, std::min(kColumnBand, width - column));
  });
  if (chunks > 1) reduce_columns(kind, partial, chunks, width, y, width);
  if (kind == ReduceKind::mean) {
    const hn::ScalableTag<T> tag;
    const auto size = hn::Set(tag, static_cast<T>(rows));
    map(y, y, width, [&](auto, auto v) { return hn::Div(v, size); });
  }
}

template <class T>
void forward(ThreadPool& pool, const ReduceForwardParams& p) {
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  if (p.outer == 0 || p.inner == 0) return;
  if (p.size == 0) {
    std::memset(y, 0, static_cast<size_t>(p.outer * p.inner) * sizeof(T));
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / (p.size * p.inner));
  // Many rows: each is reduced by one thread. A few large ones: each by all threads, in the same
  // chunks.
  const bool whole_rows = p.size * p.inner <= 4 * kGrain || p.outer >= 64;
  const auto one = [&](int64_t row) {
    if (p.inner == 1)
      y[row] = reduce_row(pool, p.kind, x + row * p.size, p.size);
    else
      reduce_rows(pool, p.kind, x + row * p.size * p.inner, p.size, p.inner, y + row * p.inner);
  };
  if (whole_rows) {
    parallel_for_range(pool, p.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) one(row);  // parallel_for runs inline in a block
    });
  } else {
    for (int64_t row = 0; row < p.outer; ++row) one(row);
  }
}

// dx[o, s, :] (+)= dy[o, :] factor; for the maximum only where the first occurrence is.
template <class T>
void backward(ThreadPool& pool, const ReduceBackwardParams& p) {
  const T* dy = static_cast<const T*>(p.dy);
  T* dx = static_cast<T*>(p.dx);
  if (p.outer == 0 || p.size == 0 || p.inner == 0) return;
  const hn::ScalableTag<T> d;
  if (p.kind == ReduceKind::max) {
    const T* x = static_cast<const T*>(p.x);
    const T* y = static_cast<const T*>(p.y);
    const int64_t grain = std::max<int64_t>(1, kGrain / (p.size * p.inner));
    parallel_for_range(pool, p.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = x + row * p.size * p.inner;
        T* out = dx + row * p.size * p.inner;
        if (!p.accumulate) std::memset(out, 0, static_cast<size_t>(p.size * p.inner) * sizeof(T));
        for (int64_t j = 0; j < p.inner; ++j) {
          const T largest = y[row * p.inner + j];
          int64_t at = 0;
          while (at + 1 < p.size &&
                 !(in[at * p.inner + j] == largest ||
                   (largest != largest && in[at * p.inner + j] != in[at * p.inner + j])))
            ++at;
          out[at * p.inner + j] += dy[row * p.inner + j];
        }
      }
    });
    return;
  }
  const T scale =
      p.kind == ReduceKind::mean ? static_cast<T>(1.0 / static_cast<double>(p.size)) : T{1};
  const auto factor = hn::Set(d, scale);
  const auto spread = [&](const T* from, T* to, int64_t count, bool same) {
    for (int64_t i = 0; i < count; i += lanes(d)) {
      const int64_t rest = std::min(lanes(d), count - i);
      auto v = hn::Mul(same ? hn::Set(d, from[0]) : load_n(d, from + i, rest), factor);
      if (p.accumulate) v = hn::Add(load_n(d, to + i, rest), v);
      store_n(v, d, to + i, rest);
    }
  };
  if (p.inner == 1) {
    // Rows are cut too: the gradient of a sum over everything is one row.
    const int64_t pieces = (p.size - 1) / kGrain + 1, width = std::min(p.size, kGrain);
    parallel_for_range(pool, p.outer * pieces, std::max<int64_t>(1, kGrain / width),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t item = begin; item < end; ++item) {
                           const int64_t row = item / pieces, at = item % pieces * kGrain;
                           spread(dy + row, dx + row * p.size + at, std::min(kGrain, p.size - at),
                                  true);
                         }
                       });
    return;
  }
  parallel_for_range(pool, p.outer * p.size, std::max<int64_t>(1, kGrain / p.inner),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row)
                         spread(dy + row / p.size * p.inner, dx + row * p.inner, p.inner, false);
                     });
}

template <class T>
void column_sum(ThreadPool& pool, const ColumnSumParams& p) {
  T* out = static_cast<T*>(p.out);
  if (p.width == 0) return;
  if (p.rows == 0) {
    if (!p.accumulate) std::memset(out, 0, static_cast<size_t>(p.width) * sizeof(T));
    return;
  }
  const T* x = static_cast<const T*>(p.x);
  if (!p.accumulate) return reduce_rows(pool, ReduceKind::sum, x, p.rows, p.width, out);
  thread_local std::vector<T> buffer;
  if (static_cast<int64_t>(buffer.size()) < p.width) buffer.resize(static_cast<size_t>(p.width));
  reduce_rows(pool, ReduceKind::sum, x, p.rows, p.width, buffer.data());
  map(out, buffer.data(), out, p.width, [](auto, auto a, auto b) { return hn::Add(a, b); });
}

void reduce_forward_simd(ThreadPool& pool, const ReduceForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void reduce_backward_simd(ThreadPool& pool, const ReduceBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

void column_sum_simd(ThreadPool& pool, const ColumnSumParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { column_sum<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(reduce_forward, ReduceForwardParams)
TRAFO_CPU_KERNEL(reduce_backward, ReduceBackwardParams)
TRAFO_CPU_KERNEL(column_sum, ColumnSumParams)

}  // namespace trafo
#endif
