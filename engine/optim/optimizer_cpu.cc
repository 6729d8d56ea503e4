#include "engine/optim/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/optimizer_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/optim/state_code.h"

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

// The constants of an update in every lane.
template <class D>
class Update {
  using V = hn::Vec<D>;

 public:
  Update(D d, const AdamWParams& p)
      : grad_scale_(set(d, p.grad_scale)),
        beta1_(set(d, p.beta1)),
        beta2_(set(d, p.beta2)),
        rest1_(set(d, 1 - p.beta1)),
        rest2_(set(d, 1 - p.beta2)),
        correction2_(set(d, 1 / bias_correction(p.beta2, p.step))),
        epsilon_(set(d, p.epsilon)),
        rate_(set(d, p.learning_rate * (1 / bias_correction(p.beta1, p.step)))),
        keep_(set(d, 1 - p.learning_rate * p.weight_decay)) {}

  HWY_INLINE void operator()(V g, V& momentum, V& variance, V& value) const {
    g = hn::Mul(g, grad_scale_);
    momentum = hn::MulAdd(momentum, beta1_, hn::Mul(g, rest1_));
    variance = hn::MulAdd(variance, beta2_, hn::Mul(hn::Mul(g, g), rest2_));
    const V denominator = hn::Add(hn::Sqrt(hn::Mul(variance, correction2_)), epsilon_);
    value = hn::NegMulAdd(rate_, hn::Div(momentum, denominator), hn::Mul(value, keep_));
  }

 private:
  static V set(D d, double x) { return hn::Set(d, static_cast<hn::TFromD<D>>(x)); }

  V grad_scale_, beta1_, beta2_, rest1_, rest2_;
  V correction2_;  // sqrt(v c) + e in one: the correction of v goes under the root
  V epsilon_, rate_, keep_;
};

template <class T>
void round_parameters(const AdamWParams& p, int64_t begin, int64_t end) {
  const T* param = static_cast<const T*>(p.param);
  BFloat16* rounded = static_cast<BFloat16*>(p.param_bf16);
  if (!rounded) return;
  for (int64_t i = begin; i < end; ++i)
    rounded[i] = BFloat16::from_float(static_cast<float>(param[i]));
}

// The running mean takes in the new parameters.
template <class T>
void smooth_parameters(const AdamWParams& p, int64_t begin, int64_t end) {
  T* mean = static_cast<T*>(p.mean);
  const T* param = static_cast<const T*>(p.param);
  if (!mean) return;
  const hn::ScalableTag<T> d;
  const auto share = hn::Set(d, static_cast<T>(smoothing_share(p.smoothing, p.step)));
  const auto mix = [&](auto old, auto value) {
    return hn::MulAdd(share, hn::Sub(value, old), old);
  };
  int64_t i = begin;
  for (; i + lanes(d) <= end; i += lanes(d))
    hn::StoreU(mix(hn::LoadU(d, mean + i), hn::LoadU(d, param + i)), d, mean + i);
  if (i < end)
    store_n(mix(load_n(d, mean + i, end - i), load_n(d, param + i, end - i)), d, mean + i, end - i);
}

template <class T>
void adamw(ThreadPool& pool, const AdamWParams& p) {
  T* param = static_cast<T*>(p.param);
  const T* grad = static_cast<const T*>(p.grad);
  T* m = static_cast<T*>(p.m);
  T* v = static_cast<T*>(p.v);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<T> d;
    const Update<hn::ScalableTag<T>> update(d, p);
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
    round_parameters<T>(p, begin, end);
    smooth_parameters<T>(p, begin, end);
  });
}

// --- moments in 8 bits; the formulas and their reasons are in state_code.h ---

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::Rebind<uint32_t, FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Words = hn::Vec<WordTag>;

HWY_INLINE Words word(uint32_t x) {
  return hn::Set(WordTag(), x);
}

// Codes of `lanes` elements.
HWY_INLINE Words load_codes(const uint8_t* codes) {
  return hn::PromoteTo(WordTag(), hn::LoadU(ByteTag(), codes));
}
HWY_INLINE void store_codes(Words codes, uint8_t* to) {
  hn::StoreU(hn::DemoteTo(ByteTag(), hn::BitCast(hn::RebindToSigned<WordTag>(), codes)), ByteTag(),
             to);
}

HWY_INLINE Floats decode_first(Words code, Floats scale) {
  using namespace state_code;
  const Words place = hn::And(code, word(kPlaces));
  const Words sign = hn::ShiftLeft<24>(hn::And(code, word(kSignBit)));
  const Words bits = hn::Or(hn::Or(hn::ShiftLeft<kShift>(place), word(kFirstBase)), sign);
  return hn::Mul(scale, hn::BitCast(FloatTag(), hn::IfThenZeroElse(hn::Eq(place, word(0)), bits)));
}

HWY_INLINE Floats decode_second(Words code, Floats scale) {
  using namespace state_code;
  const Words bits = hn::Add(hn::Mul(code, word(kSecondStep)), word(kSecondLeast));
  return hn::Mul(scale, hn::BitCast(FloatTag(), bits));
}

// rounding_offset() of every element, with the random bits of its pair.
HWY_INLINE Words rounding_offset(Words element, uint32_t update) {
  using namespace state_code;
  Words h = hn::Add(hn::ShiftRight<1>(element), word(update * 0x9e3779b9u));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), word(0x85ebca6bu));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<13>(h)), word(0xc2b2ae35u));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  const auto even = hn::Eq(hn::And(element, word(1)), word(0));
  const Words bits = hn::IfThenElse(even, h, hn::ShiftRight<12>(h));
  return hn::Or(hn::And(bits, word(kOffsetMask)), word(kOffsetLeast));
}

// Rounded down to a code; below the first one, it.
HWY_INLINE Words place_of(Words bits) {
  const hn::RebindToSigned<WordTag> d;
  const auto place = hn::ShiftRight<state_code::kShift>(hn::BitCast(d, bits));
  return hn::BitCast(WordTag(), hn::Max(place, hn::Zero(d)));
}

HWY_INLINE Words encode_first(Floats value, Floats inverse, Words offset) {
  using namespace state_code;
  const Words all = hn::BitCast(WordTag(), hn::Mul(value, inverse));
  const Words magnitude = hn::And(all, word(0x7fffffffu));
  const Words place = place_of(hn::Add(magnitude, hn::Sub(offset, word(kFirstBase))));
  return hn::Or(place, hn::And(hn::ShiftRight<24>(all), word(kSignBit)));
}

HWY_INLINE Words encode_second(Floats value, Floats inverse, Words offset) {
  using namespace state_code;
  const Words bits = hn::BitCast(WordTag(), hn::Mul(value, inverse));
  const Words more = hn::Add(bits, hn::ShiftRight<1>(bits));
  return place_of(hn::Add(more, hn::Sub(offset, word(kSecondBase))));
}

// One block of moments: elements [begin, begin + count) of the parameters, 1 <= count <= kBlock.
void adamw_coded_block(const AdamWParams& p, const Update<FloatTag>& update, int64_t begin,
                       int64_t count) {
  using namespace state_code;
  const FloatTag d;
  static_assert(kBlock % static_cast<int64_t>(hn::MaxLanes(FloatTag())) == 0);
  float* param = static_cast<float*>(p.param) + begin;
  const float* grad = static_cast<const float*>(p.grad) + begin;
  uint8_t* m = static_cast<uint8_t*>(p.m) + begin;
  uint8_t* v = static_cast<uint8_t*>(p.v) + begin;
  float& m_scale = p.m_scale[begin / kBlock];
  float& v_scale = p.v_scale[begin / kBlock];

  HWY_ALIGN float momenta[kBlock], variances[kBlock];
  const Floats old_m_scale = hn::Set(d, m_scale), old_v_scale = hn::Set(d, v_scale);
  Floats largest_m = hn::Zero(d), largest_v = hn::Zero(d);
  const auto advance = [&](int64_t i, Floats g, Floats& value) {
    Floats momentum = decode_first(load_codes(m + i), old_m_scale);
    Floats variance = decode_second(load_codes(v + i), old_v_scale);
    update(g, momentum, variance, value);
    largest_m = hn::Max(largest_m, hn::Abs(momentum));
    largest_v = hn::Max(largest_v, variance);
    hn::Store(momentum, d, momenta + i);
    hn::Store(variance, d, variances + i);
  };
  int64_t i = 0;
  for (; i + lanes(d) <= count; i += lanes(d)) {
    Floats value = hn::LoadU(d, param + i);
    advance(i, hn::LoadU(d, grad + i), value);
    hn::StoreU(value, d, param + i);
  }
  if (i < count) {
    Floats value = load_n(d, param + i, count - i);
    advance(i, load_n(d, grad + i, count - i), value);
    store_n(value, d, param + i, count - i);
    i += lanes(d);
  }
  const int64_t coded = i;  // lanes behind the end hold what no element has: codes of zero

  m_scale = scale_of(reduce_max(d, largest_m), kFirstLargest);
  v_scale = scale_of(reduce_max(d, largest_v), kSecondLargest);
  const Floats m_inverse = hn::Set(d, inverse_of(m_scale));
  const Floats v_inverse = hn::Set(d, inverse_of(v_scale));
  for (i = 0; i < coded; i += lanes(d)) {
    const Words element = hn::Iota(WordTag(), static_cast<uint32_t>(begin + i));
    const Words offset = rounding_offset(element, static_cast<uint32_t>(p.step));
    store_codes(encode_first(hn::Load(d, momenta + i), m_inverse, offset), m + i);
    store_codes(encode_second(hn::Load(d, variances + i), v_inverse, offset), v + i);
  }
}

void adamw_coded(ThreadPool& pool, const AdamWParams& p) {
  using state_code::kBlock;
  static_assert(kBlockElements % kBlock == 0);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const Update<FloatTag> update(FloatTag(), p);
    for (int64_t block = begin; block < end; block += kBlock)
      adamw_coded_block(p, update, block, std::min(kBlock, end - block));
    round_parameters<float>(p, begin, end);
    smooth_parameters<float>(p, begin, end);
  });
}

int32_t sum_of_squares_simd(ThreadPool& pool, const SumOfSquaresParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) { sum_squares<decltype(zero)>(pool, p); });
}

int32_t adamw_simd(ThreadPool& pool, const AdamWParams& p) {
  if (p.m_scale) {
    adamw_coded(pool, p);
    return 0;
  }
  return with_compute_type(p.dtype, [&](auto zero) { adamw<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(sum_of_squares, SumOfSquaresParams)
TRAFO_CPU_KERNEL(adamw, AdamWParams)

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
  const bool clipped = p.max_norm > 0 && record.norm > p.max_norm;
  // A square that float32 does not hold would stay in the second moment for ever.
  const double applied_norm = clipped ? p.max_norm : record.norm;
  const bool squares_fit = p.dtype == DType::f64 || applied_norm < 1.8e19;
  record.applied = std::isfinite(record.loss) && std::isfinite(record.norm) && squares_fit;
  if (!record.applied) return;
  record.updates = update;
  adamw_cpu(pool, {p.dtype, p.count, record.learning_rate, p.beta1, p.beta2, p.epsilon,
                   p.weight_decay, clipped ? p.max_norm / record.norm : 1.0, update, p.param,
                   p.grad, p.m, p.v, p.param_bf16, p.m_scale, p.v_scale, p.mean, p.smoothing});
}

}  // namespace trafo
#endif
