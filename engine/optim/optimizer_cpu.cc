#include "engine/optim/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/optimizer_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/optim/state_code.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlockElements = kSquaresElements;

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
void square_partials(ThreadPool& pool, const SquarePartialsParams& p) {
  const T* x = static_cast<const T*>(p.x);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
    p.out[begin / kBlockElements] = sum_of_squares_range(x + begin, end - begin);
  });
}

template <class T>
void sum_squares(ThreadPool& pool, const SumOfSquaresParams& p) {
  thread_local std::vector<double> caller_partial;  // of the calling thread
  std::vector<double>& partial = caller_partial;
  partial.assign(static_cast<size_t>((p.count + kBlockElements - 1) / kBlockElements), 0.0);
  square_partials<T>(pool, {p.dtype, p.count, p.x, partial.data()});
  double total = 0;
  for (const double block : partial) total += block;
  *p.out = total;
}

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -std::expm1(static_cast<double>(step) * std::log(beta)) : 1.0;
}

// Effect of a group's factors on an update: p = keep p - rate m / (sqrt(v c) + e).
template <class T>
struct GroupRate {
  T rate, keep;

  GroupRate(const AdamWParams& p, const UpdateFactors& factors) {
    const double learning_rate = p.learning_rate * factors.learning_rate;
    rate = static_cast<T>(learning_rate * (1 / bias_correction(p.state.beta1, p.step)));
    keep = static_cast<T>(1 - learning_rate * (p.state.weight_decay * factors.weight_decay));
  }
};

// The constants of an update in every lane, for elements of one group.
template <class D>
class Update {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  Update(D d, const AdamWParams& p, const UpdateFactors& factors = {})
      : grad_scale_(set(d, p.grad_scale)),
        beta1_(set(d, p.state.beta1)),
        beta2_(set(d, p.state.beta2)),
        rest1_(set(d, 1 - p.state.beta1)),
        rest2_(set(d, 1 - p.state.beta2)),
        correction2_(set(d, 1 / bias_correction(p.state.beta2, p.step))),
        epsilon_(set(d, p.state.epsilon)) {
    const GroupRate<T> group(p, factors);
    rate_ = hn::Set(d, group.rate);
    keep_ = hn::Set(d, group.keep);
  }

  HWY_INLINE void operator()(V g, V& momentum, V& variance, V& value) const {
    (*this)(g, momentum, variance, value, rate_, keep_);
  }
  // With the rates of each lane.
  HWY_INLINE void operator()(V g, V& momentum, V& variance, V& value, V rate, V keep) const {
    g = hn::Mul(g, grad_scale_);
    momentum = hn::MulAdd(momentum, beta1_, hn::Mul(g, rest1_));
    variance = hn::MulAdd(variance, beta2_, hn::Mul(hn::Mul(g, g), rest2_));
    const V denominator = hn::Add(hn::Sqrt(hn::Mul(variance, correction2_)), epsilon_);
    value = hn::NegMulAdd(rate, hn::Div(momentum, denominator), hn::Mul(value, keep));
  }

 private:
  static V set(D d, double x) { return hn::Set(d, static_cast<T>(x)); }

  V grad_scale_, beta1_, beta2_, rest1_, rest2_;
  V correction2_;  // sqrt(v c) + e in one: the correction of v goes under the root
  V epsilon_, rate_, keep_;
};

// Calls run(begin, end, factors) for each longest range of elements of one group.
template <class Run>
void for_each_group(const AdamWState& s, int64_t begin, int64_t end, Run run) {
  if (!s.group_of) return run(begin, end, UpdateFactors{});
  while (begin < end) {
    const uint8_t group = s.group_of[begin / kGroupElements];
    int64_t past = begin / kGroupElements + 1;
    while (past * kGroupElements < end && s.group_of[past] == group) ++past;
    past = std::min(past * kGroupElements, end);
    run(begin, past, s.factors[group]);
    begin = past;
  }
}

template <class T>
void round_parameters(const AdamWState& p, int64_t begin, int64_t end) {
  const T* param = static_cast<const T*>(p.param);
  BFloat16* rounded = static_cast<BFloat16*>(p.param_bf16);
  if (!rounded) return;
  for (int64_t i = begin; i < end; ++i)
    rounded[i] = BFloat16::from_float(static_cast<float>(param[i]));
}

template <class T>
void update_ema(const AdamWState& p, int64_t step, int64_t begin, int64_t end) {
  T* ema = static_cast<T*>(p.ema);
  const T* param = static_cast<const T*>(p.param);
  if (!ema) return;
  const hn::ScalableTag<T> d;
  const auto share = hn::Set(d, static_cast<T>(ema_weight(p.ema_alpha, step)));
  const auto mix = [&](auto old, auto value) {
    return hn::MulAdd(share, hn::Sub(value, old), old);
  };
  int64_t i = begin;
  for (; i + lanes(d) <= end; i += lanes(d))
    hn::StoreU(mix(hn::LoadU(d, ema + i), hn::LoadU(d, param + i)), d, ema + i);
  if (i < end)
    store_n(mix(load_n(d, ema + i, end - i), load_n(d, param + i, end - i)), d, ema + i, end - i);
}

// Elements [begin, end), all of one group.
template <class T>
void adamw_range(const AdamWState& p, const Update<hn::ScalableTag<T>>& update, int64_t begin,
                 int64_t end) {
  const hn::ScalableTag<T> d;
  T* param = static_cast<T*>(p.param);
  const T* grad = static_cast<const T*>(p.grad);
  T* m = static_cast<T*>(p.m);
  T* v = static_cast<T*>(p.v);
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
}

template <class T>
void adamw(ThreadPool& pool, const AdamWParams& p) {
  parallel_for_range(pool, p.state.count, kBlockElements, [&](int64_t begin, int64_t end) {
    for_each_group(p.state, begin, end,
                   [&](int64_t first, int64_t past, const UpdateFactors& factors) {
                     const hn::ScalableTag<T> d;
                     const Update<hn::ScalableTag<T>> update(d, p, factors);
                     adamw_range<T>(p.state, update, first, past);
                   });
    round_parameters<T>(p.state, begin, end);
    update_ema<T>(p.state, p.step, begin, end);
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

// The rates of each element of a block of moments.
struct BlockRates {
  HWY_ALIGN float rate[state_code::kBlock], keep[state_code::kBlock];

  BlockRates(const AdamWParams& p, int64_t begin, int64_t count) {
    for_each_group(p.state, begin, begin + count,
                   [&](int64_t first, int64_t past, const UpdateFactors& factors) {
                     const GroupRate<float> group(p, factors);
                     std::fill(rate + (first - begin), rate + (past - begin), group.rate);
                     std::fill(keep + (first - begin), keep + (past - begin), group.keep);
                   });
    std::fill(rate + count, std::end(rate), 0.0f);
    std::fill(keep + count, std::end(keep), 0.0f);
  }
};

// One block of moments: elements [begin, begin + count) of the parameters, 1 <= count <= kBlock.
// apply(i, g, m, v, value) updates the lanes from element begin + i on.
template <class Apply>
void adamw_8bit_block(const AdamWParams& p, int64_t begin, int64_t count, Apply apply) {
  using namespace state_code;
  const FloatTag d;
  static_assert(kBlock % static_cast<int64_t>(hn::MaxLanes(FloatTag())) == 0);
  const AdamWState& s = p.state;
  float* param = static_cast<float*>(s.param) + begin;
  const float* grad = static_cast<const float*>(s.grad) + begin;
  uint8_t* m = static_cast<uint8_t*>(s.m) + begin;
  uint8_t* v = static_cast<uint8_t*>(s.v) + begin;
  float& m_scale = s.m_scale[begin / kBlock];
  float& v_scale = s.v_scale[begin / kBlock];

  HWY_ALIGN float momenta[kBlock], variances[kBlock];
  const Floats old_m_scale = hn::Set(d, m_scale), old_v_scale = hn::Set(d, v_scale);
  Floats largest_m = hn::Zero(d), largest_v = hn::Zero(d);
  const auto advance = [&](int64_t i, Floats g, Floats& value) {
    Floats momentum = decode_first(load_codes(m + i), old_m_scale);
    Floats variance = decode_second(load_codes(v + i), old_v_scale);
    apply(i, g, momentum, variance, value);
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
  const int64_t coded = i;  // lanes past the end get codes of zero

  m_scale = scale_of(reduce_max(d, largest_m), kFirstLargest);
  v_scale = scale_of(reduce_max(d, largest_v), kSecondLargest);
  const Floats m_inverse = hn::Set(d, inverse_of(m_scale));
  const Floats v_inverse = hn::Set(d, inverse_of(v_scale));
  for (i = 0; i < coded; i += lanes(d)) {
    const Words element = hn::Iota(WordTag(), static_cast<uint32_t>(s.first + begin + i));
    const Words offset = rounding_offset(element, static_cast<uint32_t>(p.step));
    store_codes(encode_first(hn::Load(d, momenta + i), m_inverse, offset), m + i);
    store_codes(encode_second(hn::Load(d, variances + i), v_inverse, offset), v + i);
  }
}

void adamw_8bit(ThreadPool& pool, const AdamWParams& p) {
  using state_code::kBlock;
  static_assert(kBlockElements % kBlock == 0);
  const bool grouped = p.state.group_of != nullptr;
  parallel_for_range(pool, p.state.count, kBlockElements, [&](int64_t begin, int64_t end) {
    const Update<FloatTag> update(FloatTag(), p);
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      if (!grouped) {
        adamw_8bit_block(p, block, count, [&](int64_t, Floats g, Floats& m, Floats& v, Floats& x) {
          update(g, m, v, x);
        });
        continue;
      }
      const BlockRates rates(p, block, count);
      adamw_8bit_block(p, block, count, [&](int64_t i, Floats g, Floats& m, Floats& v, Floats& x) {
        const FloatTag d;
        update(g, m, v, x, hn::Load(d, rates.rate + i), hn::Load(d, rates.keep + i));
      });
    }
    round_parameters<float>(p.state, begin, end);
    update_ema<float>(p.state, p.step, begin, end);
  });
}

template <class T, class X>
void zero_pruned(ThreadPool& pool, const ZeroPrunedParams& p) {
  const T* param = static_cast<const T*>(p.param);
  X* x = static_cast<X*>(p.x);
  static_assert(kBlockElements % kGroupElements == 0);
  parallel_for_range(pool, p.count, kBlockElements, [&](int64_t begin, int64_t end) {
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

int32_t adamw_simd(ThreadPool& pool, const AdamWParams& p) {
  if (p.state.m_scale) {
    adamw_8bit(pool, p);
    return 0;
  }
  return with_compute_type(p.state.dtype, [&](auto zero) { adamw<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(sum_of_squares, SumOfSquaresParams)
TRAFO_CPU_KERNEL(square_partials, SquarePartialsParams)
TRAFO_CPU_KERNEL(adamw, AdamWParams)
TRAFO_CPU_KERNEL(zero_pruned, ZeroPrunedParams)

void clipped_adamw_cpu(ThreadPool& pool, const ClippedAdamWParams& p) {
  const AdamWState& s = p.state;
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
  adamw_cpu(pool, {s, record.learning_rate, is_clipped() ? p.max_norm / record.norm : 1.0,
                   record.updates});
}

}  // namespace trafo
#endif
