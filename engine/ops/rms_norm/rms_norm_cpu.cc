// CPU kernels of RMS norm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/rms_norm/rms_norm_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/ops/rms_norm/rms_norm-inl.h"

#include "engine/ops/rms_norm/rms_norm.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T>
void forward(ThreadPool& pool, const RmsNormForwardParams& p) {
  const T* gamma = static_cast<const T*>(p.gamma);
  T* all_rstd = static_cast<T*>(p.rstd);
  parallel_for_range(pool, p.rows, rows_per_block(p.width), [&](int64_t begin, int64_t end) {
    RowFactors<T> factors(p.residual ? p.dropout : Dropout{}, p.width, end);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.width;
      T* y = static_cast<T*>(p.y) + row * p.width;
      if (p.rstd_known) {
        normalize(x, gamma, all_rstd[row], p.width, y);
        continue;
      }
      const T* in = x;
      T rstd;
      if (p.residual) {
        const T* residual = static_cast<const T*>(p.residual) + row * p.width;
        T* sum = static_cast<T*>(p.sum) + row * p.width;
        const T* factor = factors.rows(row, 1);
        SumOfSquares<T> squares;
        for_columns<T>(p.width, [&](const auto& columns, auto k) TRAFO_INLINE_LAMBDA {
          const auto v = hn::MulAdd(columns.load(x), columns.load(factor), columns.load(residual));
          columns.store(v, sum);
          squares.add(v, k);
        });
        in = sum;
        rstd = squares.rstd(p.width, p.epsilon);
      } else {
        rstd = rms_rstd(x, p.width, p.epsilon);
      }
      if (all_rstd) all_rstd[row] = rstd;
      normalize(in, gamma, rstd, p.width, y);
    }
  });
}

// R rows side by side: few roundings of dgamma happen at the size of the block's sum.
template <class T, int R>
HWY_INLINE void backward_rows(const RmsNormBackwardParams& p, int64_t row, const T* factor,
                              T* partial) {
  const hn::ScalableTag<T> d;
  const T* gamma = static_cast<const T*>(p.gamma);
  const T* sum = static_cast<const T*>(p.sum) + row * p.width;
  const T* dy = static_cast<const T*>(p.dy) + row * p.width;
  VectorOf<T> rstd[R], sum_gx[R];
  for (int r = 0; r < R; ++r) {
    rstd[r] = hn::Set(d, static_cast<const T*>(p.rstd)[row + r]);
    sum_gx[r] = hn::Zero(d);
  }
  for_columns_once<T>(p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto weight = columns.load(gamma);
    auto dgamma = hn::Zero(d);
    for (int r = 0; r < R; ++r) {
      const auto xhat = hn::Mul(columns.load(sum + r * p.width), rstd[r]);
      const auto gradient = columns.load(dy + r * p.width);
      dgamma = hn::MulAdd(gradient, xhat, dgamma);
      // g rounded as it is below, where most of it may cancel.
      sum_gx[r] = hn::MulAdd(hn::Mul(gradient, weight), xhat, sum_gx[r]);
    }
    put<T>(columns, dgamma, partial, true);
  });
  if (!p.dx && !p.dresidual) return;
  const T inverse = T{1} / static_cast<T>(p.width);
  VectorOf<T> mean_gx[R];
  for (int r = 0; r < R; ++r) mean_gx[r] = hn::Set(d, reduce_sum(d, sum_gx[r]) * inverse);
  const T* dsum = p.dsum ? static_cast<const T*>(p.dsum) + row * p.width : nullptr;
  T* dx = p.dx ? static_cast<T*>(p.dx) + row * p.width : nullptr;
  T* dresidual = p.dresidual ? static_cast<T*>(p.dresidual) + row * p.width : nullptr;
  for_columns_once<T>(p.width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto weight = columns.load(gamma);
    for (int r = 0; r < R; ++r) {
      const int64_t at = r * p.width;
      const auto xhat = hn::Mul(columns.load(sum + at), rstd[r]);
      const auto g = hn::Mul(columns.load(dy + at), weight);
      auto total = hn::Mul(rstd[r], hn::NegMulAdd(xhat, mean_gx[r], g));
      if (dsum) total = hn::Add(total, columns.load(dsum + at));
      if (dresidual) put<T>(columns, total, dresidual + at, p.accumulate_dresidual);
      if (dx) put<T>(columns, hn::Mul(total, columns.load(factor + at)), dx + at, p.accumulate_dx);
    }
  });
}

template <class T>
void backward(ThreadPool& pool, const RmsNormBackwardParams& p) {
  const int64_t grain = rows_per_partial(p.rows, p.width);
  const int64_t blocks = (p.rows + grain - 1) / grain;
  thread_local Scratch scratch;
  // The sums of the blocks, then the sum of the rows since the last flush: few roundings happen at
  // the size of the whole sum.
  T* partials = scratch.get<T>(2 * blocks * p.width);
  constexpr int64_t kRun = 16 * kRowsTogether;
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    T* partial = partials + begin / grain * p.width;
    T* run = partial + blocks * p.width;
    std::fill_n(partial, p.width, T{0});
    std::fill_n(run, p.width, T{0});
    const auto flush = [&] {
      map(partial, run, partial, p.width, [](auto, auto a, auto b) { return hn::Add(a, b); });
      std::fill_n(run, p.width, T{0});
    };
    RowFactors<T> factors(p.dx ? p.dropout : Dropout{}, p.width, end);
    int64_t row = begin;
    for (; row + kRowsTogether <= end; row += kRowsTogether) {
      backward_rows<T, kRowsTogether>(p, row, factors.rows(row, kRowsTogether), run);
      if ((row - begin + kRowsTogether) % kRun == 0) flush();
    }
    for (; row < end; ++row) backward_rows<T, 1>(p, row, factors.rows(row, 1), run);
    flush();
  });
  if (p.dgamma)
    sum_partials(pool, partials, blocks, p.width, p.width, static_cast<T*>(p.dgamma),
                 p.accumulate_dgamma);
}

void rms_norm_forward_simd(ThreadPool& pool, const RmsNormForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void rms_norm_backward_simd(ThreadPool& pool, const RmsNormBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(rms_norm_forward, RmsNormForwardParams)
TRAFO_CPU_KERNEL(rms_norm_backward, RmsNormBackwardParams)

}  // namespace trafo
#endif
