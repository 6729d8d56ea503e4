#include "engine/ops/optimizer/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/optimizer/optimizer_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlockElements = 32768;

double sum_of_squares_range(const double* x, int64_t count) {
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
void sum_squares(ThreadPool& pool, const SumOfSquaresParams& p) {
  thread_local std::vector<double> caller_partial;  // of the calling thread
  std::vector<double>& partial = caller_partial;
  partial.assign(static_cast<size_t>((p.count + kBlockElements - 1) / kBlockElements), 0.0);
  const T* x = static_cast<const T*>(p.x);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    partial[static_cast<size_t>(begin / kBlockElements)] =
        sum_of_squares_range(x + begin, end - begin);
  });
  double total = 0;
  for (const double block : partial) total += block;
  *p.out = total;
}

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -std::expm1(static_cast<double>(step) * std::log(beta)) : 1.0;
}

template <class T>
void adamw(ThreadPool& pool, const AdamWParams& p) {
  T* param = static_cast<T*>(p.param);
  const T* grad = static_cast<const T*>(p.grad);
  T* m = static_cast<T*>(p.m);
  T* v = static_cast<T*>(p.v);
  BFloat16* param_bf16 = static_cast<BFloat16*>(p.param_bf16);
  const double m_correction = 1 / bias_correction(p.beta1, p.step);
  const double v_correction = 1 / bias_correction(p.beta2, p.step);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<T> d;
    const auto grad_scale = hn::Set(d, static_cast<T>(p.grad_scale));
    const auto beta1 = hn::Set(d, static_cast<T>(p.beta1));
    const auto beta2 = hn::Set(d, static_cast<T>(p.beta2));
    const auto rest1 = hn::Set(d, static_cast<T>(1 - p.beta1));
    const auto rest2 = hn::Set(d, static_cast<T>(1 - p.beta2));
    // sqrt(v c) + e in one: the correction of v goes under the root.
    const auto correction2 = hn::Set(d, static_cast<T>(v_correction));
    const auto epsilon = hn::Set(d, static_cast<T>(p.epsilon));
    const auto rate = hn::Set(d, static_cast<T>(p.learning_rate * m_correction));
    const auto keep = hn::Set(d, static_cast<T>(1 - p.learning_rate * p.weight_decay));
    const auto update = [&](auto g, auto& momentum, auto& variance, auto& value) {
      g = hn::Mul(g, grad_scale);
      momentum = hn::MulAdd(momentum, beta1, hn::Mul(g, rest1));
      variance = hn::MulAdd(variance, beta2, hn::Mul(hn::Mul(g, g), rest2));
      const auto denominator = hn::Add(hn::Sqrt(hn::Mul(variance, correction2)), epsilon);
      value = hn::NegMulAdd(rate, hn::Div(momentum, denominator), hn::Mul(value, keep));
    };
    int64_t i = begin;
    for (; i + lanes(d) <= end; i += lanes(d)) {
      auto momentum = hn::LoadU(d, m + i), variance = hn::LoadU(d, v + i);
      auto value = hn::LoadU(d, param + i);
      update(hn::LoadU(d, grad + i), momentum, variance, value);
      hn::StoreU(momentum, d, m + i);
      hn::StoreU(variance, d, v + i);
      hn::StoreU(value, d, param + i);
    }
    if (i < end) {
      const int64_t rest = end - i;
      auto momentum = load_n(d, m + i, rest), variance = load_n(d, v + i, rest);
      auto value = load_n(d, param + i, rest);
      update(load_n(d, grad + i, rest), momentum, variance, value);
      store_n(momentum, d, m + i, rest);
      store_n(variance, d, v + i, rest);
      store_n(value, d, param + i, rest);
    }
    if (param_bf16)
      for (int64_t j = begin; j < end; ++j)
        param_bf16[j] = BFloat16::from_float(static_cast<float>(param[j]));
  });
}

int32_t sum_of_squares_simd(ThreadPool& pool, const SumOfSquaresParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { sum_squares<decltype(zero)>(pool, p); });
}

int32_t adamw_simd(ThreadPool& pool, const AdamWParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { adamw<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

HWY_EXPORT(sum_of_squares_simd);
HWY_EXPORT(adamw_simd);

void sum_of_squares_cpu(ThreadPool& pool, const SumOfSquaresParams& p) {
  HWY_DYNAMIC_DISPATCH(sum_of_squares_simd)(pool, p);
}

void adamw_cpu(ThreadPool& pool, const AdamWParams& p) {
  HWY_DYNAMIC_DISPATCH(adamw_simd)(pool, p);
}

void clipped_adamw_cpu(ThreadPool& pool, const ClippedAdamWParams& p) {
  UpdateRecord& record = *p.record;
  double squares = 0;
  sum_of_squares_cpu(pool, {p.dtype, p.count, p.grad, &squares});
  const auto value = [&](const void* at) {
    return p.dtype == DType::f64 ? *static_cast<const double*>(at)
                                 : static_cast<double>(*static_cast<const float*>(at));
  };
  record.loss = value(p.loss);
  record.nll = value(p.nll);
  record.norm = std::sqrt(squares);
  const int64_t update = record.updates + 1;
  record.learning_rate = p.rates->rates[update - p.rates->first];
  record.applied = std::isfinite(record.loss) && std::isfinite(record.norm);
  if (!record.applied) return;
  record.updates = update;
  const bool clipped = p.max_norm > 0 && record.norm > p.max_norm;
  adamw_cpu(pool, {p.dtype, p.count, record.learning_rate, p.beta1, p.beta2, p.epsilon,
                   p.weight_decay, clipped ? p.max_norm / record.norm : 1.0, update, p.param,
                   p.grad, p.m, p.v, p.param_bf16});
}

}  // namespace trafo
#endif
