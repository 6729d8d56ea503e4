#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/core/strided_layout.h"
#include "engine/ops/pointwise/pointwise.h"

namespace trafo {

void pointwise_forward_cpu(ThreadPool& pool, const PointwiseForwardParams& p);
void pointwise_backward_cpu(ThreadPool& pool, const PointwiseBackwardParams& p);

namespace {

using Layout = StridedLayout<3>;  // a, b, mask

constexpr int64_t kPiece = 512;  // elements that are computed at a time
constexpr int64_t kGrain = 8;    // pieces a block

// Elements begin .. begin + count - 1 of operand k, side by side: where they are, or in `buffer`.
template <class T>
const T* read(const Layout& layout, int k, const T* x, int64_t begin, int64_t count, T* buffer) {
  if (!x) return nullptr;
  if (layout.dense(k)) return x + begin;
  const int last = layout.rank - 1;
  int64_t index[kMaxRank], at = 0, rest = begin;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % layout.shape[d];
    rest /= layout.shape[d];
    at += index[d] * layout.strides[k][d];
  }
  const int64_t step = layout.step(k);
  for (int64_t i = 0; i < count;) {
    const int64_t run = std::min(count - i, layout.width() - index[last]);
    for (int64_t j = 0; j < run; ++j) buffer[i + j] = x[at + j * step];
    i += run;
    at += run * step;
    index[last] += run;
    for (int d = last; d > 0 && index[d] == layout.shape[d]; --d) {  // the odometer
      at += layout.strides[k][d - 1] - layout.shape[d] * layout.strides[k][d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
  return buffer;
}

// fn(first element, count, a, b, mask) for pieces that cover everything.
template <class T, class Params, class Fn>
void for_each_piece(ThreadPool& pool, const Params& p, Fn&& fn) {
  const Layout layout =
      strided_layout<3>(p.rank, p.shape, {p.strides[0], p.strides[1], p.strides[2]});
  const int64_t pieces = (layout.count + kPiece - 1) / kPiece;
  parallel_for_range(pool, pieces, kGrain, [&](int64_t first, int64_t past) {
    T a[kPiece], b[kPiece];
    int32_t mask[kPiece];
    for (int64_t piece = first; piece < past; ++piece) {
      const int64_t begin = piece * kPiece, count = std::min(kPiece, layout.count - begin);
      fn(begin, count, read(layout, 0, static_cast<const T*>(p.a), begin, count, a),
         read(layout, 1, static_cast<const T*>(p.b), begin, count, b),
         read(layout, 2, p.mask, begin, count, mask));
    }
  });
}

constexpr double kTwoOverSqrtPi = 1.12837916709551257390;

template <class T>
void compute(const PointwiseForwardParams& p, int64_t count, const T* a, const T* b,
             const int32_t* mask, T* y) {
  const T first = static_cast<T>(p.first);
  const auto map = [&](auto f) {
    for (int64_t i = 0; i < count; ++i) y[i] = f(i);
  };
  if (p.kind == PointwiseKind::where) return map([&](int64_t i) { return mask[i] ? a[i] : b[i]; });
  if (p.kind == PointwiseKind::masked_fill)
    return map([&](int64_t i) { return mask[i] ? first : a[i]; });
  if constexpr (std::is_floating_point_v<T>) {
    const T second = static_cast<T>(p.second);
    switch (p.kind) {
      case PointwiseKind::abs:
        return map([&](int64_t i) { return std::abs(a[i]); });
      case PointwiseKind::sin:
        return map([&](int64_t i) { return sin_of(a[i]); });
      case PointwiseKind::cos:
        return map([&](int64_t i) { return cos_of(a[i]); });
      case PointwiseKind::erf:
        return map([&](int64_t i) { return erf_of(a[i]); });
      case PointwiseKind::power:
        if (p.first == 2) return map([&](int64_t i) { return a[i] * a[i]; });
        return map([&](int64_t i) { return pow_of(a[i], first); });
      case PointwiseKind::clamp:
        return map([&](int64_t i) { return a[i] < first ? first : a[i] > second ? second : a[i]; });
      case PointwiseKind::maximum:
        return map([&](int64_t i) { return a[i] > b[i] || std::isnan(a[i]) ? a[i] : b[i]; });
      case PointwiseKind::minimum:
        return map([&](int64_t i) { return a[i] < b[i] || std::isnan(a[i]) ? a[i] : b[i]; });
      default:
        return map([&](int64_t i) { return pow_of(a[i], b[i]); });
    }
  }
}

template <class T>
void forward(ThreadPool& pool, const PointwiseForwardParams& p) {
  for_each_piece<T>(pool, p,
                    [&](int64_t begin, int64_t count, const T* a, const T* b, const int32_t* mask) {
                      if (is_comparison(p.kind)) {
                        int32_t* out = static_cast<int32_t*>(p.out) + begin;
                        for (int64_t i = 0; i < count; ++i) out[i] = holds(p.kind, a[i], b[i]);
                      } else {
                        compute(p, count, a, b, mask, static_cast<T*>(p.out) + begin);
                      }
                    });
}

// da and db are null where they are not wanted.
template <class T>
void gradient(const PointwiseBackwardParams& p, int64_t count, const T* a, const T* b,
              const int32_t* mask, const T* g, T* da, T* db) {
  const T first = static_cast<T>(p.first), second = static_cast<T>(p.second);
  const auto map = [&](T* to, auto f) {
    if (to)
      for (int64_t i = 0; i < count; ++i) to[i] = f(i);
  };
  switch (p.kind) {
    case PointwiseKind::abs:
      return map(da, [&](int64_t i) {
        return a[i] > 0 ? g[i] : a[i] < 0 ? -g[i] : a[i] == 0 ? T{0} : a[i];
      });
    case PointwiseKind::sin:
      return map(da, [&](int64_t i) { return g[i] * cos_of(a[i]); });
    case PointwiseKind::cos:
      return map(da, [&](int64_t i) { return -g[i] * sin_of(a[i]); });
    case PointwiseKind::erf:
      return map(da, [&](int64_t i) {
        return g[i] * (static_cast<T>(kTwoOverSqrtPi) * exp_of(-a[i] * a[i]));
      });
    case PointwiseKind::power:
      if (p.first == 0) return map(da, [&](int64_t) { return T{0}; });
      if (p.first == 2) return map(da, [&](int64_t i) { return g[i] * (2 * a[i]); });
      return map(da, [&](int64_t i) { return g[i] * (first * pow_of(a[i], first - 1)); });
    case PointwiseKind::clamp:
      return map(da, [&](int64_t i) { return a[i] >= first && a[i] <= second ? g[i] : T{0}; });
    case PointwiseKind::maximum:
    case PointwiseKind::minimum: {
      const T sign = p.kind == PointwiseKind::maximum ? T{1} : T{-1};
      map(da, [&](int64_t i) {
        return sign * a[i] < sign * b[i] ? T{0} : a[i] == b[i] ? g[i] / 2 : g[i];
      });
      return map(db, [&](int64_t i) {
        return sign * b[i] < sign * a[i] ? T{0} : a[i] == b[i] ? g[i] / 2 : g[i];
      });
    }
    case PointwiseKind::pow:
      map(da, [&](int64_t i) { return b[i] == 0 ? T{0} : g[i] * (b[i] * pow_of(a[i], b[i] - 1)); });
      return map(db, [&](int64_t i) {
        return a[i] == 0 && b[i] >= 0 ? T{0} : g[i] * (pow_of(a[i], b[i]) * log_of(a[i]));
      });
    case PointwiseKind::where:
      map(da, [&](int64_t i) { return mask[i] ? g[i] : T{0}; });
      return map(db, [&](int64_t i) { return mask[i] ? T{0} : g[i]; });
    default:  // masked_fill
      return map(da, [&](int64_t i) { return mask[i] ? T{0} : g[i]; });
  }
}

template <class T>
void backward(ThreadPool& pool, const PointwiseBackwardParams& p) {
  for_each_piece<T>(
      pool, p, [&](int64_t begin, int64_t count, const T* a, const T* b, const int32_t* mask) {
        const auto at = [begin](void* to) { return to ? static_cast<T*>(to) + begin : nullptr; };
        gradient(p, count, a, b, mask, static_cast<const T*>(p.dout) + begin, at(p.da), at(p.db));
      });
}

}  // namespace

void pointwise_forward_cpu(ThreadPool& pool, const PointwiseForwardParams& p) {
  if (p.dtype == DType::f32) return forward<float>(pool, p);
  if (p.dtype == DType::f64) return forward<double>(pool, p);
  if (p.dtype == DType::i32) return forward<int32_t>(pool, p);
  fail(ErrorCode::dtype_mismatch, "pointwise", "the CPU computes with float32 and float64");
}

void pointwise_backward_cpu(ThreadPool& pool, const PointwiseBackwardParams& p) {
  if (p.dtype == DType::f32) return backward<float>(pool, p);
  if (p.dtype == DType::f64) return backward<double>(pool, p);
  fail(ErrorCode::dtype_mismatch, "pointwise", "the CPU computes with float32 and float64");
}

}  // namespace trafo
