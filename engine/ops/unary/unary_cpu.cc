#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/unary/unary_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/unary/unary.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

constexpr int64_t kUnaryGrain = 1 << 14;  // elements a block

// hn::Log leaves zero, negative numbers, infinity and NaN to its caller.
template <class D>
HWY_INLINE hn::Vec<D> log(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto zero = hn::Zero(d);
  const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  auto y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), y);
  return hn::IfThenElse(hn::Or(hn::Eq(x, infinity), hn::IsNaN(x)), x, y);
}

template <class T>
void forward(ThreadPool& pool, const UnaryForwardParams& p) {
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  const hn::ScalableTag<T> tag;
  const auto factor = hn::Set(tag, static_cast<T>(p.factor));
  parallel_for_range(pool, p.count, kUnaryGrain, [&](int64_t begin, int64_t end) {
    const auto apply = [&](auto f) { map(x + begin, y + begin, end - begin, f); };
    switch (p.kind) {
      case UnaryKind::scale:
        return apply([&](auto, auto v) { return hn::Mul(v, factor); });
      case UnaryKind::shift:
        return apply([&](auto, auto v) { return hn::Add(v, factor); });
      case UnaryKind::exp:
        return apply([](auto d, auto v) { return exp(d, v); });
      case UnaryKind::log:
        return apply([](auto d, auto v) { return log(d, v); });
      case UnaryKind::sqrt:
        return apply([](auto, auto v) { return hn::Sqrt(v); });
      case UnaryKind::tanh:
        return apply([](auto d, auto v) { return tanh(d, v); });
      case UnaryKind::sigmoid:
        return apply([](auto d, auto v) { return sigmoid(d, v); });
      case UnaryKind::soft_cap:
        return apply([&](auto d, auto v) { return hn::Mul(factor, tanh(d, hn::Div(v, factor))); });
    }
  });
}

// dx (+)= f(dy, v), v the saved input or output.
template <class T, class F>
HWY_INLINE void gradient(const T* dy, const T* v, T* dx, int64_t count, bool accumulate, F f) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; i += lanes(d)) {
    const int64_t rest = std::min(lanes(d), count - i);
    if (rest == lanes(d)) {
      auto result = f(hn::LoadU(d, dy + i), v ? hn::LoadU(d, v + i) : hn::Zero(d));
      if (accumulate) result = hn::Add(hn::LoadU(d, dx + i), result);
      hn::StoreU(result, d, dx + i);
    } else {
      auto result = f(load_n(d, dy + i, rest), v ? load_n(d, v + i, rest) : hn::Zero(d));
      if (accumulate) result = hn::Add(load_n(d, dx + i, rest), result);
      store_n(result, d, dx + i, rest);
    }
  }
}

template <class T>
void backward(ThreadPool& pool, const UnaryBackwardParams& p) {
  const T* dy = static_cast<const T*>(p.dy);
  const T* x = static_cast<const T*>(p.x);
  const T* y = static_cast<const T*>(p.y);
  T* dx = static_cast<T*>(p.dx);
  const hn::ScalableTag<T> tag;
  const auto factor = hn::Set(tag, static_cast<T>(p.factor));
  const auto one = hn::Set(tag, static_cast<T>(1));
  const auto half = hn::Set(tag, static_cast<T>(0.5));
  parallel_for_range(pool, p.count, kUnaryGrain, [&](int64_t begin, int64_t end) {
    const auto apply = [&](const T* saved, auto f) {
      gradient(dy + begin, saved ? saved + begin : nullptr, dx + begin, end - begin, p.accumulate,
               f);
    };
    const T* none = nullptr;
    switch (p.kind) {
      case UnaryKind::scale:
        return apply(none, [&](auto g, auto) { return hn::Mul(g, factor); });
      case UnaryKind::shift:
        return apply(none, [](auto g, auto) { return g; });
      case UnaryKind::exp:
        return apply(y, [](auto g, auto v) { return hn::Mul(g, v); });
      case UnaryKind::log:
        return apply(x, [](auto g, auto v) { return hn::Div(g, v); });
      case UnaryKind::sqrt:
        return apply(y, [&](auto g, auto v) { return hn::Div(hn::Mul(g, half), v); });
      case UnaryKind::tanh:
        return apply(y, [&](auto g, auto v) { return hn::Mul(g, hn::NegMulAdd(v, v, one)); });
      case UnaryKind::sigmoid:
        return apply(y, [&](auto g, auto v) { return hn::Mul(g, hn::Mul(v, hn::Sub(one, v))); });
      case UnaryKind::soft_cap:
        return apply(y, [&](auto g, auto v) {
          const auto t = hn::Div(v, factor);
          return hn::Mul(g, hn::NegMulAdd(t, t, one));
        });
    }
  });
}

void unary_forward_simd(ThreadPool& pool, const UnaryForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void unary_backward_simd(ThreadPool& pool, const UnaryBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(unary_forward, UnaryForwardParams)
TRAFO_CPU_KERNEL(unary_backward, UnaryBackwardParams)

}  // namespace trafo
#endif
