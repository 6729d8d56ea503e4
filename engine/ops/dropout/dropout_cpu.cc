#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/dropout/dropout_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/philox-inl.h"
#include "engine/backend/cpu/simd-inl.h"

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/dropout/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

constexpr int64_t kDropoutGrain = 1 << 13;  // elements a block
constexpr int64_t kFactors = 1 << 9;        // factors drawn at a time; they stay in the L1 cache

// y (+)= x factor, and exactly 0 where the factor is, whatever x is.
template <class T>
void apply(ThreadPool& pool, const Dropout& dropout, int64_t count, const T* x, T* y,
           bool accumulate) {
  const hn::ScalableTag<T> tag;
  parallel_for_range(pool, count, kDropoutGrain, [&](int64_t begin, int64_t end) {
    HWY_ALIGN T factors[kFactors];
    for (int64_t at = begin; at < end; at += kFactors) {
      const int64_t here = std::min(kFactors, end - at);
      dropout_factors(dropout, at, here, factors);
      for (int64_t i = 0; i < here; i += lanes(tag)) {
        const int64_t rest = std::min(lanes(tag), here - i);
        const bool whole = rest == lanes(tag);
        const auto load = [&](const T* p) {
          return whole ? hn::LoadU(tag, p) : load_n(tag, p, rest);
        };
        const auto factor = load(factors + i);
        auto v =
            hn::IfThenElseZero(hn::Ne(factor, hn::Zero(tag)), hn::Mul(load(x + at + i), factor));
        if (accumulate) v = hn::Add(load(y + at + i), v);
        if (whole)
          hn::StoreU(v, tag, y + at + i);
        else
          store_n(v, tag, y + at + i, rest);
      }
    }
  });
}

void dropout_forward_simd(ThreadPool& pool, const DropoutForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    apply(pool, p.dropout, p.count, static_cast<const T*>(p.x), static_cast<T*>(p.y), false);
  });
}

void dropout_backward_simd(ThreadPool& pool, const DropoutBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    apply(pool, p.dropout, p.count, static_cast<const T*>(p.dy), static_cast<T*>(p.dx),
          p.accumulate);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(dropout_forward, DropoutForwardParams)
TRAFO_CPU_KERNEL(dropout_backward, DropoutBackwardParams)

}  // namespace trafo
#endif
