// CPU kernels of bias + activation + dropout.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/bias_act_dropout/bias_act_dropout_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/activation/activation-inl.h"
#include "engine/ops/row_kernels-inl.h"

#include "engine/ops/bias_act_dropout/bias_act_dropout.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T, class Columns>
HWY_INLINE VectorOf<T> biased(const Columns& columns, const T* x, const T* bias) {
  return bias ? hn::Add(columns.load(x), columns.load(bias)) : columns.load(x);
}

template <class T, Activation kind>
void forward(ThreadPool& pool, const BiasActDropoutForwardParams& p) {
  const T* bias = static_cast<const T*>(p.bias);
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    RowFactors<T> factors(p.dropout, p.width, end);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.width;
      T* y = static_cast<T*>(p.y) + row * p.width;
      const T* factor = factors.rows(row, 1);
      for_columns<T>(p.width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto v = activate<kind>(hn::ScalableTag<T>(), biased(columns, x, bias));
        columns.store(hn::Mul(v, columns.load(factor)), y);
      });
    }
  });
}

template <class T, Activation kind>
void backward(ThreadPool& pool, const BiasActDropoutBackwardParams& p) {
  const T* bias = static_cast<const T*>(p.bias);
  const int64_t grain = rows_per_partial(p.rows, p.width);
  const int64_t blocks = (p.rows + grain - 1) / grain;
  thread_local Scratch scratch;
  // The sums of the blocks, then the sum of the rows since the last flush: few roundings happen at
  // the size of the whole sum.
  T* partials = scratch.get<T>(2 * blocks * p.width);
  constexpr int64_t kRun = 16;
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    T* dbias = partials + begin / grain * p.width;
    T* run = dbias + blocks * p.width;
    std::fill_n(dbias, p.width, T{0});
    std::fill_n(run, p.width, T{0});
    RowFactors<T> factors(p.dropout, p.width, end);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.width;
      const T* dy = static_cast<const T*>(p.dy) + row * p.width;
      T* dx = p.dx ? static_cast<T*>(p.dx) + row * p.width : nullptr;
      const T* factor = factors.rows(row, 1);
      for_columns<T>(p.width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto gradient =
            activation_gradient<kind>(hn::ScalableTag<T>(), biased(columns, x, bias),
                                      hn::Mul(columns.load(dy), columns.load(factor)));
        if (dx) put<T>(columns, gradient, dx, p.accumulate_dx);
        put<T>(columns, gradient, run, true);
      });
      if ((row - begin) % kRun == kRun - 1 || row + 1 == end) {
        map(dbias, run, dbias, p.width, [](auto, auto a, auto b) { return hn::Add(a, b); });
        std::fill_n(run, p.width, T{0});
      }
    }
  });
  if (p.dbias)
    sum_partials(pool, partials, blocks, p.width, p.width, static_cast<T*>(p.dbias),
                 p.accumulate_dbias);
}

void bias_act_dropout_forward_simd(ThreadPool& pool, const BiasActDropoutForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    with_activation(p.activation, [&](auto kind) { forward<decltype(zero), kind()>(pool, p); });
  });
}

void bias_act_dropout_backward_simd(ThreadPool& pool, const BiasActDropoutBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    with_activation(p.activation, [&](auto kind) { backward<decltype(zero), kind()>(pool, p); });
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(bias_act_dropout_forward, BiasActDropoutForwardParams)
TRAFO_CPU_KERNEL(bias_act_dropout_backward, BiasActDropoutBackwardParams)

}  // namespace trafo
#endif
