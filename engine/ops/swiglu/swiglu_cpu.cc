// CPU kernels of the gates of SwiGLU and GEGLU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/swiglu/swiglu_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/activation/activation-inl.h"
#include "engine/ops/row_kernels-inl.h"

#include "engine/ops/swiglu/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Once for each type, not in every loop: the error function is long.
template <class D, class V>
HWY_NOINLINE V exact_gelu(D d, V x) {
  return activate<Activation::gelu_erf>(d, x);
}
template <class D, class V>
HWY_NOINLINE V exact_gelu_gradient(D d, V x, V dy) {
  return activation_gradient<Activation::gelu_erf>(d, x, dy);
}

template <Activation kind, class D, class V>
HWY_INLINE V gate_of(D d, V x) {
  if constexpr (kind == Activation::gelu_erf)
    return exact_gelu(d, x);
  else
    return activate<kind>(d, x);
}
template <Activation kind, class D, class V>
HWY_INLINE V gate_gradient(D d, V x, V dy) {
  if constexpr (kind == Activation::gelu_erf)
    return exact_gelu_gradient(d, x, dy);
  else
    return activation_gradient<kind>(d, x, dy);
}

template <Activation kind, class T>
void forward(ThreadPool& pool, const SwigluForwardParams& p) {
  const hn::ScalableTag<T> d;
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = static_cast<const T*>(p.x) + 2 * row * p.width;
      const T* up = gate + p.width;
      T* y = static_cast<T*>(p.y) + row * p.width;
      for_columns<T>(p.width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        columns.store(hn::Mul(gate_of<kind>(d, columns.load(gate)), columns.load(up)), y);
      });
    }
  });
}

template <Activation kind, class T>
void backward(ThreadPool& pool, const SwigluBackwardParams& p) {
  const hn::ScalableTag<T> d;
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = static_cast<const T*>(p.x) + 2 * row * p.width;
      const T* up = gate + p.width;
      const T* dy = static_cast<const T*>(p.dy) + row * p.width;
      T* dgate = static_cast<T*>(p.dx) + 2 * row * p.width;
      T* dup = dgate + p.width;
      for_columns<T>(p.width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto a = columns.load(gate), g = columns.load(dy);
        const auto gup = hn::Mul(g, columns.load(up));
        if constexpr (kind == Activation::silu) {
          // silu(a) = a s, silu'(a) = s (1 + a (1 - s))
          const auto s = fast_sigmoid_pair(d, a);
          const auto slope = hn::MulAdd(hn::Mul(a, s.complement), s.value, s.value);
          put<T>(columns, hn::Mul(gup, slope), dgate, p.accumulate);
          put<T>(columns, hn::Mul(g, hn::Mul(a, s.value)), dup, p.accumulate);
        } else {
          put<T>(columns, gate_gradient<kind>(d, a, gup), dgate, p.accumulate);
          put<T>(columns, hn::Mul(g, gate_of<kind>(d, a)), dup, p.accumulate);
        }
      });
    }
  });
}

// run(zero of the compute type, std::integral_constant of the activation)
template <class Run>
void with_gate(DType dtype, Activation activation, const Run& run) {
  using std::integral_constant;
  with_compute_type(dtype, [&](auto zero) {
    if (activation == Activation::silu)
      run(zero, integral_constant<Activation, Activation::silu>{});
    else if (activation == Activation::gelu)
      run(zero, integral_constant<Activation, Activation::gelu>{});
    else
      run(zero, integral_constant<Activation, Activation::gelu_erf>{});
  });
}

void swiglu_forward_simd(ThreadPool& pool, const SwigluForwardParams& p) {
  with_gate(p.dtype, p.activation,
            [&](auto zero, auto kind) { forward<kind(), decltype(zero)>(pool, p); });
}

void swiglu_backward_simd(ThreadPool& pool, const SwigluBackwardParams& p) {
  with_gate(p.dtype, p.activation,
            [&](auto zero, auto kind) { backward<kind(), decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(swiglu_forward, SwigluForwardParams)
TRAFO_CPU_KERNEL(swiglu_backward, SwigluBackwardParams)

}  // namespace trafo
#endif
