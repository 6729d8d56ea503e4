// CPU kernels of the activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/activation/activation_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/activation/activation-inl.h"
#include "engine/ops/row_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T, Activation kind>
void forward(ThreadPool& pool, const ActivationForwardParams& p) {
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const T* x = static_cast<const T*>(p.x) + begin;
    T* y = static_cast<T*>(p.y) + begin;
    for_columns<T>(end - begin, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
      columns.store(activate<kind>(hn::ScalableTag<T>(), columns.load(x)), y);
    });
  });
}

template <class T, Activation kind>
void backward(ThreadPool& pool, const ActivationBackwardParams& p) {
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const T* x = static_cast<const T*>(p.x) + begin;
    const T* dy = static_cast<const T*>(p.dy) + begin;
    T* dx = static_cast<T*>(p.dx) + begin;
    for_columns<T>(end - begin, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
      const auto gradient =
          activation_gradient<kind>(hn::ScalableTag<T>(), columns.load(x), columns.load(dy));
      put<T>(columns, gradient, dx, p.accumulate);
    });
  });
}

void activation_forward_simd(ThreadPool& pool, const ActivationForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    with_activation(p.activation, [&](auto kind) { forward<decltype(zero), kind()>(pool, p); });
  });
}

void activation_backward_simd(ThreadPool& pool, const ActivationBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    with_activation(p.activation, [&](auto kind) { backward<decltype(zero), kind()>(pool, p); });
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(activation_forward, ActivationForwardParams)
TRAFO_CPU_KERNEL(activation_backward, ActivationBackwardParams)

}  // namespace trafo
#endif
