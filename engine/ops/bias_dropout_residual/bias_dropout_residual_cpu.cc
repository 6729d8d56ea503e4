// CPU kernels of bias_dropout_residual.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/bias_dropout_residual/bias_dropout_residual_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/layer_norm/layer_norm-inl.h"

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// sum = residual + (x + bias) * factor; the bias may be null.
template <class T, class Columns>
HWY_INLINE VectorOf<T> residual_sum(const Columns& columns, const T* x, const T* bias,
                                    const T* residual, const T* factor) {
  const auto v = bias ? hn::Add(columns.load(x), columns.load(bias)) : columns.load(x);
  return hn::MulAdd(v, columns.load(factor), columns.load(residual));
}

template <class T>
void forward(ThreadPool& pool, const BiasDropoutResidualForwardParams& p) {
  const T* bias = static_cast<const T*>(p.bias);
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    RowFactors<T> factors(p.dropout, p.width, end);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.width;
      const T* residual = static_cast<const T*>(p.residual) + row * p.width;
      T* sum = static_cast<T*>(p.sum) + row * p.width;
      const T* factor = factors.rows(row, 1);
      if (!p.gamma) {
        for_columns<T>(p.width, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
          columns.store(residual_sum(columns, x, bias, residual, factor), sum);
        });
        continue;
      }
      const T shift = row_shift<T>(p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
        return residual_sum(columns, x, bias, residual, factor);
      });
      ShiftedSums<T> sums(shift);
      for_columns<T>(p.width, [&](const auto& columns, auto k) TRAFO_INLINE_LAMBDA {
        const auto v = residual_sum(columns, x, bias, residual, factor);
        columns.store(v, sum);
        sums.add(columns, v, k);
      });
      const auto statistics =
          row_statistics<T>(sum, p.width, shift, sums, static_cast<T>(p.epsilon));
      normalize_row(sum, static_cast<const T*>(p.gamma), static_cast<const T*>(p.beta), p.width,
                    statistics, static_cast<T*>(p.normed) + row * p.width);
      statistics.store(row, p.mean, p.rstd, p.saved_mean);
    }
  });
}

// Sums over the rows of one block.
template <class T>
struct Partials {
  T* dgamma;
  T* dbeta;
  T* dbias;
};

// Both means that the gradient of a layer norm needs, times rstd, and the rows' share of dgamma and
// dbeta.
template <class T, int R>
struct NormBackward {
  const T* sum[R];
  const T* dnormed[R];
  VectorOf<T> mean[R], rstd[R];
  VectorOf<T> mean_g[R], mean_gx[R];

  HWY_INLINE NormBackward(const BiasDropoutResidualBackwardParams& p, int64_t row,
                          const Partials<T>& partials) {
    const hn::ScalableTag<T> d;
    VectorOf<T> sum_g[R], sum_gx[R];
    for (int r = 0; r < R; ++r) {
      sum[r] = static_cast<const T*>(p.sum) + (row + r) * p.width;
      dnormed[r] = static_cast<const T*>(p.dnormed) + (row + r) * p.width;
      mean[r] = hn::Set(d, static_cast<const T*>(p.mean)[row + r]);
      rstd[r] = hn::Set(d, static_cast<const T*>(p.rstd)[row + r]);
      sum_g[r] = sum_gx[r] = hn::Zero(d);
    }
    const T* gamma = static_cast<const T*>(p.gamma);
    for_columns_once<T>(p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
      const auto weight = columns.load(gamma);
      // These rows first: one rounding at the size of the block's sum for all of them.
      auto dgamma = hn::Zero(d), dbeta = hn::Zero(d);
      for (int r = 0; r < R; ++r) {
        const auto dy = columns.load(dnormed[r]);
        const auto x = xhat(columns, r);
        const auto g = hn::Mul(dy, weight);
        sum_g[r] = hn::Add(sum_g[r], g);
        sum_gx[r] = hn::MulAdd(g, x, sum_gx[r]);
        dgamma = hn::MulAdd(dy, x, dgamma);
        dbeta = hn::Add(dbeta, dy);
      }
      put<T>(columns, dgamma, partials.dgamma, true);
      put<T>(columns, dbeta, partials.dbeta, true);
    });
    const T inverse = T{1} / static_cast<T>(p.width);
    for (int r = 0; r < R; ++r) {
      mean_g[r] = hn::Set(d, reduce_sum(d, sum_g[r]) * inverse);
      mean_gx[r] = hn::Set(d, reduce_sum(d, sum_gx[r]) * inverse);
    }
  }

  template <class Columns>
  HWY_INLINE VectorOf<T> xhat(const Columns& columns, int r) const {
    return hn::Mul(hn::Sub(columns.load(sum[r]), mean[r]), rstd[r]);
  }

  // Gradient of the sum: rstd (g - mean(g) - xhat mean(g xhat)).
  template <class Columns>
  HWY_INLINE VectorOf<T> gradient(const Columns& columns, VectorOf<T> gamma, int r) const {
    // Rounded like the products that mean_g sums, so that a constant g cancels exactly.
    const auto g = hn::Sub(hn::Mul(columns.load(dnormed[r]), gamma), mean_g[r]);
    return hn::Mul(rstd[r], hn::NegMulAdd(xhat(columns, r), mean_gx[r], g));
  }
};

// Stands in where no gradient comes through the norm.
template <class T>
struct NoNorm {
  template <class Columns>
  HWY_INLINE VectorOf<T> gradient(const Columns&, VectorOf<T>, int) const {
    return hn::Zero(hn::ScalableTag<T>());
  }
};

// Writes dresidual, dx and the share of dbias of R rows. branch: dx or dbias is wanted.
template <class T, int R, bool branch, class Norm>
HWY_INLINE void write_rows(const BiasDropoutResidualBackwardParams& p, int64_t row,
                           const Norm& norm, const T* factor, const Partials<T>& partials) {
  const T* gamma = static_cast<const T*>(p.gamma);
  const T* dsum = p.dsum ? static_cast<const T*>(p.dsum) + row * p.width : nullptr;
  T* dx = p.dx ? static_cast<T*>(p.dx) + row * p.width : nullptr;
  T* dresidual = p.dresidual ? static_cast<T*>(p.dresidual) + row * p.width : nullptr;
  constexpr bool through_norm = !std::is_same_v<Norm, NoNorm<T>>;
  for_columns_once<T>(p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    VectorOf<T> dbias = hn::Zero(hn::ScalableTag<T>());
    VectorOf<T> weight = dbias;
    if constexpr (through_norm) weight = columns.load(gamma);
    for (int r = 0; r < R; ++r) {
      auto total = norm.gradient(columns, weight, r);
      if (dsum) total = hn::Add(total, columns.load(dsum + r * p.width));
      if (dresidual) put<T>(columns, total, dresidual + r * p.width, p.accumulate_dresidual);
      if constexpr (branch) {
        const auto masked = hn::Mul(total, columns.load(factor + r * p.width));
        dbias = hn::Add(dbias, masked);
        if (dx) put<T>(columns, masked, dx + r * p.width, p.accumulate_dx);
      }
    }
    if constexpr (branch) put<T>(columns, dbias, partials.dbias, true);
  });
}

template <class T, int R, bool branch>
HWY_INLINE void backward_rows(const BiasDropoutResidualBackwardParams& p, int64_t row,
                              RowFactors<T>* factors, const Partials<T>& partials) {
  const T* factor = branch ? factors->rows(row, R) : nullptr;
  if (p.dnormed) {
    write_rows<T, R, branch>(p, row, NormBackward<T, R>(p, row, partials), factor, partials);
  } else {
    write_rows<T, R, branch>(p, row, NoNorm<T>(), factor, partials);
  }
}

template <class T, bool branch>
void backward(ThreadPool& pool, const BiasDropoutResidualBackwardParams& p) {
  const int64_t grain = rows_per_partial(p.rows, p.width);
  const int64_t blocks = (p.rows + grain - 1) / grain;
  const int64_t stride = 3 * p.width;
  thread_local Scratch scratch;
  T* all_partials = scratch.get<T>(blocks * stride);
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    T* base = all_partials + begin / grain * stride;
    std::fill_n(base, stride, T{0});
    const Partials<T> partials{base, base + p.width, base + 2 * p.width};
    const auto all_rows = [&](RowFactors<T>* factors) {
      int64_t row = begin;
      for (; row + kRowsTogether <= end; row += kRowsTogether)
        backward_rows<T, kRowsTogether, branch>(p, row, factors, partials);
      for (; row < end; ++row) backward_rows<T, 1, branch>(p, row, factors, partials);
    };
    if constexpr (branch) {
      RowFactors<T> factors(p.dropout, p.width, end);
      all_rows(&factors);
    } else {
      all_rows(nullptr);
    }
  });
  const auto finish = [&](int which, void* out, bool accumulate) {
    if (out)
      sum_partials(pool, all_partials + which * p.width, blocks, stride, p.width,
                   static_cast<T*>(out), accumulate);
  };
  finish(0, p.dgamma, p.accumulate_dgamma);
  finish(1, p.dbeta, p.accumulate_dbeta);
  finish(2, p.dbias, p.accumulate_dbias);
}

void bias_dropout_residual_forward_simd(ThreadPool& pool,
                                        const BiasDropoutResidualForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void bias_dropout_residual_backward_simd(ThreadPool& pool,
                                         const BiasDropoutResidualBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (p.dx || p.dbias)
      backward<T, true>(pool, p);
    else
      backward<T, false>(pool, p);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(bias_dropout_residual_forward, BiasDropoutResidualForwardParams)
TRAFO_CPU_KERNEL(bias_dropout_residual_backward, BiasDropoutResidualBackwardParams)

}  // namespace trafo
#endif
