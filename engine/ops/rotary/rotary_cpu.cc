// CPU kernels of the rotary position embedding.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/rotary/rotary_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/ops/row_kernels-inl.h"

#include "engine/ops/rotary/rotary.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Cosines and then sines of a position's angles times their magnitude, [head_dim].
template <class T>
void angles(int64_t position, const RotaryAngles& of, int64_t head_dim, T* out) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * of.of_pair(i, head_dim);
    out[i] = static_cast<T>(of.magnitude * portable_cos(angle));
    out[half + i] = static_cast<T>(of.magnitude * portable_sin(angle));
  }
}

// The angles of positions from 0 on, kept between calls: sines cost more than the rotation.
template <class T>
class AngleTable {
 public:
  // Null for positions that a table should not reach.
  const T* up_to(int64_t last, const RotaryAngles& of, int64_t head_dim) {
    if (last * head_dim > kMostElements) return nullptr;
    if (of != of_ || head_dim != head_dim_) values_.clear();
    of_ = of;
    head_dim_ = head_dim;
    int64_t known = static_cast<int64_t>(values_.size()) / head_dim;
    if (known <= last) {
      const int64_t wanted = std::max(last + 1, 2 * known);
      values_.resize(static_cast<size_t>(wanted * head_dim));
      for (; known < wanted; ++known)
        angles(known, of, head_dim, values_.data() + known * head_dim);
    }
    return values_.data();
  }

 private:
  static constexpr int64_t kMostElements = int64_t{1} << 20;
  std::vector<T> values_;
  RotaryAngles of_;
  int64_t head_dim_ = 0;
};

// fn(row, cosines of queries, cosines of keys) for all rows; sines follow the cosines.
template <class T, class Params, class Fn>
void for_rows(ThreadPool& pool, const Params& p, const Fn& fn) {
  int64_t last = 0;
  bool negative = false;
  for (int64_t row = 0; row < p.rows; ++row) {
    last = std::max<int64_t>(last, p.positions[row]);
    negative = negative || p.positions[row] < 0;
  }
  thread_local AngleTable<T> table;
  const T* known = negative ? nullptr : table.up_to(last, p.angles, p.head_dim);
  const int64_t width = (p.heads + 2 * p.kv_heads) * p.head_dim;
  parallel_for_range(pool, p.rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    thread_local Scratch scratch;
    T* own = scratch.get<T>(2 * p.head_dim);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = p.positions[row];
      if (!known) angles(position, p.angles, p.head_dim, own);
      const T* of_keys = known ? known + position * p.head_dim : own;
      const auto factor = static_cast<T>(p.angles.query_factor(position));
      T* grown = own + p.head_dim;
      for (int64_t i = 0; factor != 1 && i < p.head_dim; ++i) grown[i] = factor * of_keys[i];
      fn(row, factor == 1 ? of_keys : grown, of_keys);
    }
  });
}

template <class T>
void forward(ThreadPool& pool, const RotaryForwardParams& p) {
  const int64_t half = p.head_dim / 2;
  for_rows<T>(pool, p, [&](int64_t row, const T* of_queries, const T* of_keys) {
    const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
    T* y = static_cast<T*>(p.y) + row * p.y_stride;
    for (int64_t head = 0; head < p.heads + p.kv_heads; ++head, x += p.head_dim, y += p.head_dim) {
      const T* cosine = head < p.heads ? of_queries : of_keys;
      for_columns<T>(half, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto c = columns.load(cosine), s = columns.load(cosine + half);
        const auto a = columns.load(x), b = columns.load(x + half);
        columns.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), y);
        columns.store(hn::MulAdd(a, s, hn::Mul(b, c)), y + half);
      });
    }
    if (x != y) std::copy_n(x, p.kv_heads * p.head_dim, y);
  });
}

template <class T>
void backward(ThreadPool& pool, const RotaryBackwardParams& p) {
  const int64_t half = p.head_dim / 2;
  for_rows<T>(pool, p, [&](int64_t row, const T* of_queries, const T* of_keys) {
    const T* dy = static_cast<const T*>(p.dy) + row * p.dy_stride;
    T* dx = static_cast<T*>(p.dx) + row * p.dx_stride;
    const int64_t rotated = p.heads + p.kv_heads;
    for (int64_t head = 0; head < rotated; ++head, dy += p.head_dim, dx += p.head_dim) {
      const T* cosine = head < p.heads ? of_queries : of_keys;
      for_columns<T>(half, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto c = columns.load(cosine), s = columns.load(cosine + half);
        const auto a = columns.load(dy), b = columns.load(dy + half);
        put<T>(columns, hn::MulAdd(b, s, hn::Mul(a, c)), dx, p.accumulate);
        put<T>(columns, hn::NegMulAdd(a, s, hn::Mul(b, c)), dx + half, p.accumulate);
      });
    }
    for_columns<T>(p.kv_heads * p.head_dim, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
      put<T>(columns, columns.load(dy), dx, p.accumulate);
    });
  });
}

void rotary_forward_simd(ThreadPool& pool, const RotaryForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void rotary_backward_simd(ThreadPool& pool, const RotaryBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(rotary_forward, RotaryForwardParams)
TRAFO_CPU_KERNEL(rotary_backward, RotaryBackwardParams)

}  // namespace trafo
#endif
