#include "engine/optim/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/update_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"
#include "engine/optim/generated/rules_cpu.inc"
#include "engine/optim/update_lanes-inl.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

[[maybe_unused]] double sum_of_squares_range(const double* x, int64_t count) {
  return sum_of(x, count, [](auto, auto v) { return hn::Mul(v, v); });
}

// Widened before squaring: the square of a finite float is always a finite double.
double sum_of_squares_range(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  const auto wide = [&](int64_t at) { return hn::PromoteTo(d, hn::LoadU(narrow, x + at)); };
  for (; i + 4 * lanes(d) <= count; i += 4 * lanes(d)) {
    const auto x0 = wide(i), x1 = wide(i + lanes(d));
    const auto x2 = wide(i + 2 * lanes(d)), x3 = wide(i + 3 * lanes(d));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  double total = reduce_sum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

template <class T>
void square_partials(ThreadPool& pool, const SquarePartialsParams& p) {
  const T* x = static_cast<const T*>(p.x);
  parallel_for_range(pool, p.count, kSquaresElements, [&](int64_t begin, int64_t end) {
    p.out[begin / kSquaresElements] = sum_of_squares_range(x + begin, end - begin);
  });
}

template <class T>
void sum_squares(ThreadPool& pool, const SumOfSquaresParams& p) {
  thread_local std::vector<double> caller_partial;  // of the calling thread
  std::vector<double>& partial = caller_partial;
  partial.assign(static_cast<size_t>((p.count + kSquaresElements - 1) / kSquaresElements), 0.0);
  square_partials<T>(pool, {p.dtype, p.count, p.x, partial.data()});
  double total = 0;
  for (const double block : partial) total += block;
  *p.out = total;
}

template <class T>
void update_elements(ThreadPool& pool, const UpdateParams& p) {
  parallel_for_range(pool, p.state.count, kSquaresElements, [&](int64_t begin, int64_t end) {
    switch (p.state.kind) {
#define TRAFO_OPTIMIZER(name, ...) \
  case OptimizerKind::name:        \
    return name##_update<T>(p, begin, end);
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER
    }
  });
}

template <class T>
void apply_direction(ThreadPool& pool, const ApplyDirectionParams& p) {
  const UpdateState& s = p.state;
  const GroupRates rates =
      group_rates(p.record ? p.record->learning_rate : p.learning_rate, s.weight_decay,
                  s.group_of ? s.factors[s.group_of[0]] : UpdateFactors{});
  const int64_t step = p.record ? p.record->updates : p.step;
  const hn::ScalableTag<T> d;
  const auto scaled = hn::Set(d, static_cast<T>(rates.learning_rate * p.scale));
  const auto keep = hn::Set(d, static_cast<T>(1 - rates.learning_rate * rates.weight_decay));
  parallel_for_range(pool, s.count, kSquaresElements, [&](int64_t begin, int64_t end) {
    const auto apply = [&](auto direction, auto& value) {
      value = hn::NegMulAdd(scaled, direction, hn::Mul(value, keep));
    };
    update_lanes(begin, end, static_cast<const T*>(p.direction), apply, static_cast<T*>(s.param));
    post_update<T>(s, step, begin, end);
  });
}

template <class T, class X>
void zero_pruned(ThreadPool& pool, const ZeroPrunedParams& p) {
  const T* param = static_cast<const T*>(p.param);
  X* x = static_cast<X*>(p.x);
  static_assert(kSquaresElements % kGroupElements == 0);
  parallel_for_range(pool, p.count, kSquaresElements, [&](int64_t begin, int64_t end) {
    for (int64_t cell = begin; cell < end; cell += kGroupElements) {
      if (!p.prunable[cell / kGroupElements]) continue;
      const int64_t past = std::min(cell + kGroupElements, end);
      for (int64_t i = cell; i < past; ++i) x[i] = param[i] == T{0} ? X{0} : x[i];
    }
  });
}

int32_t zero_pruned_simd(ThreadPool& pool, const ZeroPrunedParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (p.codes)
      zero_pruned<T, uint8_t>(pool, p);
    else
      zero_pruned<T, T>(pool, p);
  });
}

int32_t sum_of_squares_simd(ThreadPool& pool, const SumOfSquaresParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { sum_squares<decltype(zero)>(pool, p); });
}

int32_t square_partials_simd(ThreadPool& pool, const SquarePartialsParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { square_partials<decltype(zero)>(pool, p); });
}

int32_t update_simd(ThreadPool& pool, const UpdateParams& p) {
  return with_compute_type(p.state.dtype,
                           [&](auto zero) { update_elements<decltype(zero)>(pool, p); });
}

int32_t apply_direction_simd(ThreadPool& pool, const ApplyDirectionParams& p) {
  if (p.record && !p.record->applied) return 0;
  return with_compute_type(p.state.dtype,
                           [&](auto zero) { apply_direction<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(sum_of_squares, SumOfSquaresParams)
TRAFO_CPU_KERNEL(square_partials, SquarePartialsParams)
TRAFO_CPU_KERNEL(update, UpdateParams)
TRAFO_CPU_KERNEL(apply_direction, ApplyDirectionParams)
TRAFO_CPU_KERNEL(zero_pruned, ZeroPrunedParams)

void clipped_update_cpu(ThreadPool& pool, const ClippedUpdateParams& p) {
  const UpdateState& s = p.state;
  UpdateRecord& record = *p.record;
  const auto is_clipped = [&] { return p.max_norm > 0 && record.norm > p.max_norm; };
  if (!p.continues) {
    double squares = 0;
    if (p.partials)
      for (int64_t i = 0; i < p.partial_count; ++i) squares += p.partials[i];
    else
      sum_of_squares_cpu(pool, {s.dtype, s.count, s.grad, &squares});
    const auto value = [&](const void* at) {
      return s.dtype == DType::f64 ? *static_cast<const double*>(at)
                                   : static_cast<double>(*static_cast<const float*>(at));
    };
    record.loss = value(p.loss);
    record.nll = value(p.nll);
    record.norm = std::sqrt(squares);
    record.learning_rate = p.rates->rates[record.updates + 1 - p.rates->first];
    // float32 second moments would keep an infinite square for ever.
    const double applied_norm = is_clipped() ? p.max_norm : record.norm;
    const bool squares_fit = s.dtype == DType::f64 || applied_norm < 1.8e19;
    record.applied = std::isfinite(record.loss) && std::isfinite(record.norm) && squares_fit;
    if (record.applied) ++record.updates;
  }
  if (!record.applied) return;
  update_cpu(pool, {s, record.learning_rate, is_clipped() ? p.max_norm / record.norm : 1.0,
                    record.updates});
}

}  // namespace trafo
#endif
