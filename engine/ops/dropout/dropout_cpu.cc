#include "engine/backend/cpu/simd.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/dropout/dropout.h"

namespace trafo {

void dropout_forward_cpu(ThreadPool& pool, const DropoutForwardParams& params);
void dropout_backward_cpu(ThreadPool& pool, const DropoutBackwardParams& params);

namespace {

constexpr int64_t kGrain = 1 << 13;  // elements a block

template <class T>
void run(ThreadPool& pool, const Dropout& dropout, int64_t count, const void* source, void* result,
         bool accumulate) {
  const T* x = static_cast<const T*>(source);
  T* y = static_cast<T*>(result);
  const T scale = static_cast<T>(dropout.scale());
  parallel_for_range(pool, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T value = dropout_keeps(dropout, i) ? x[i] * scale : T{0};
      y[i] = accumulate ? y[i] + value : value;
    }
  });
}

}  // namespace

void dropout_forward_cpu(ThreadPool& pool, const DropoutForwardParams& p) {
  with_compute_type(
      p.dtype, [&](auto zero) { run<decltype(zero)>(pool, p.dropout, p.count, p.x, p.y, false); });
}

void dropout_backward_cpu(ThreadPool& pool, const DropoutBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    run<decltype(zero)>(pool, p.dropout, p.count, p.dy, p.dx, p.accumulate);
  });
}

}  // namespace trafo
