// CPU kernels of layer norm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/layer_norm/layer_norm_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/layer_norm/layer_norm-inl.h"

#include "engine/ops/layer_norm/add_norm_backward_params.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T>
void forward(ThreadPool& pool, const LayerNormForwardParams& p) {
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.width;
      const T shift = row_shift<T>(
          p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA { return columns.load(x); });
      ShiftedSums<T> sums(shift);
      for_columns<T>(p.width, [&](const auto& columns, auto k)
                                  TRAFO_INLINE_LAMBDA { sums.add(columns, columns.load(x), k); });
      const auto statistics = row_statistics(x, p.width, shift, sums, static_cast<T>(p.epsilon));
      normalize_row(x, static_cast<const T*>(p.gamma), static_cast<const T*>(p.beta), p.width,
                    statistics, static_cast<T*>(p.y) + row * p.width);
      statistics.store(row, p.mean, p.rstd, p.saved_mean);
    }
  });
}

template <class T>
void apply(ThreadPool& pool, const NormApplyParams& p) {
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* parts = static_cast<const T*>(p.saved_mean) + 2 * row;
      const RowStatistics<T> statistics{parts[0], parts[1], static_cast<const T*>(p.rstd)[row]};
      normalize_row(static_cast<const T*>(p.x) + row * p.width, static_cast<const T*>(p.gamma),
                    static_cast<const T*>(p.beta), p.width, statistics,
                    static_cast<T*>(p.y) + row * p.width);
    }
  });
}

void layer_norm_forward_simd(ThreadPool& pool, const LayerNormForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void norm_apply_simd(ThreadPool& pool, const NormApplyParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { apply<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

void layer_norm_backward_cpu(ThreadPool& pool, const LayerNormBackwardParams& p);
void bias_dropout_residual_backward_cpu(ThreadPool& pool,
                                        const BiasDropoutResidualBackwardParams& p);

TRAFO_CPU_KERNEL(layer_norm_forward, LayerNormForwardParams)
TRAFO_CPU_KERNEL(norm_apply, NormApplyParams)

void layer_norm_backward_cpu(ThreadPool& pool, const LayerNormBackwardParams& p) {
  bias_dropout_residual_backward_cpu(pool, add_norm_backward_params(p));
}

}  // namespace trafo
#endif
