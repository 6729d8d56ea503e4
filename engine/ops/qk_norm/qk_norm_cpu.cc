// CPU kernels of the RMS norm of queries and keys.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/qk_norm/qk_norm_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include <algorithm>

#include "engine/ops/rms_norm/rms_norm-inl.h"

#include "engine/ops/qk_norm/qk_norm.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

int64_t normed_columns(const NormedGroups (&groups)[2]) {
  return groups[0].count * groups[0].width + groups[1].count * groups[1].width;
}

template <class T>
void forward(ThreadPool& pool, const QkNormForwardParams& p) {
  const int64_t per_row = p.groups[0].count + p.groups[1].count, normed = normed_columns(p.groups);
  parallel_for_range(pool, p.rows, rows_per_block(p.columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.columns;
      T* y = static_cast<T*>(p.y) + row * p.columns;
      T* all_rstd = p.rstd ? static_cast<T*>(p.rstd) + row * per_row : nullptr;
      for (const NormedGroups& groups : p.groups) {
        const T* gamma = static_cast<const T*>(groups.gamma);
        for (int64_t i = 0; i < groups.count; ++i, x += groups.width, y += groups.width) {
          const T rstd = rms_rstd(x, groups.width, p.epsilon);
          if (all_rstd) *all_rstd++ = rstd;
          normalize(x, gamma, rstd, groups.width, y);
        }
      }
      std::copy_n(x, p.columns - normed, y);
    }
  });
}

// dx, unless it is null, of one group; its part of the gamma's gradient is added to dgamma.
template <class T>
HWY_INLINE void backward_group(const T* x, const T* dy, const T* gamma, T group_rstd, int64_t width,
                               bool accumulate, T* dx, T* dgamma) {
  const hn::ScalableTag<T> d;
  const auto rstd = hn::Set(d, group_rstd);
  auto sum_gx = hn::Zero(d);
  for_columns_once<T>(width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto xhat = hn::Mul(columns.load(x), rstd), gradient = columns.load(dy);
    put<T>(columns, hn::Mul(gradient, xhat), dgamma, true);
    // g rounded as it is below, where most of it may cancel.
    sum_gx = hn::MulAdd(hn::Mul(gradient, columns.load(gamma)), xhat, sum_gx);
  });
  if (!dx) return;
  const auto mean_gx = hn::Set(d, reduce_sum(d, sum_gx) / static_cast<T>(width));
  for_columns_once<T>(width, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto xhat = hn::Mul(columns.load(x), rstd);
    const auto g = hn::Mul(columns.load(dy), columns.load(gamma));
    put<T>(columns, hn::Mul(rstd, hn::NegMulAdd(xhat, mean_gx, g)), dx, accumulate);
  });
}

template <class T>
void backward(ThreadPool& pool, const QkNormBackwardParams& p) {
  const int64_t per_row = p.groups[0].count + p.groups[1].count, normed = normed_columns(p.groups);
  const int64_t width = p.groups[0].width + p.groups[1].width;  // of both gradients together
  const int64_t grain = rows_per_partial(p.rows, p.columns);
  const int64_t blocks = (p.rows + grain - 1) / grain;
  thread_local Scratch scratch;
  // The sums of the blocks, then the sum of the rows since the last flush: few roundings happen at
  // the size of the whole sum.
  T* partials = scratch.get<T>(2 * blocks * width);
  constexpr int64_t kRun = 16;  // rows
  parallel_for_range(pool, p.rows, grain, [&](int64_t begin, int64_t end) {
    T* partial = partials + begin / grain * width;
    T* run = partial + blocks * width;
    std::fill_n(partial, width, T{0});
    std::fill_n(run, width, T{0});
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + row * p.columns;
      const T* dy = static_cast<const T*>(p.dy) + row * p.columns;
      T* dx = p.dx ? static_cast<T*>(p.dx) + row * p.columns : nullptr;
      const T* rstd = static_cast<const T*>(p.rstd) + row * per_row;
      T* dgamma = run;
      for (const NormedGroups& groups : p.groups) {
        const T* gamma = static_cast<const T*>(groups.gamma);
        for (int64_t i = 0; i < groups.count; ++i) {
          backward_group(x, dy, gamma, *rstd++, groups.width, p.accumulate_dx, dx, dgamma);
          x += groups.width;
          dy += groups.width;
          if (dx) dx += groups.width;
        }
        dgamma += groups.width;
      }
      if (dx)
        for_columns<T>(p.columns - normed, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
          put<T>(columns, columns.load(dy), dx, p.accumulate_dx);
        });
      if ((row - begin + 1) % kRun != 0 && row + 1 < end) continue;
      map(partial, run, partial, width, [](auto, auto a, auto b) { return hn::Add(a, b); });
      std::fill_n(run, width, T{0});
    }
  });
  const T* sums = partials;
  for (int i = 0; i < 2; sums += p.groups[i++].width)
    if (p.dgamma[i])
      sum_partials(pool, sums, blocks, width, p.groups[i].width, static_cast<T*>(p.dgamma[i]),
                   p.accumulate_dgamma[i]);
}

void qk_norm_forward_simd(ThreadPool& pool, const QkNormForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void qk_norm_backward_simd(ThreadPool& pool, const QkNormBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(qk_norm_forward, QkNormForwardParams)
TRAFO_CPU_KERNEL(qk_norm_backward, QkNormBackwardParams)

}  // namespace trafo
#endif
