// Update rules in vectors, compiled once a target. See simd.h for how a kernel file includes this.
#if defined(TRAFO_UPDATE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_UPDATE_RULES_INL_H_
#undef TRAFO_UPDATE_RULES_INL_H_
#else
#define TRAFO_UPDATE_RULES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/optim/update.h"
#include "engine/quant/state_code.h"

#include "engine/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -std::expm1(static_cast<double>(step) * std::log(beta)) : 1.0;
}

// The constants of AdamW that depend on the factors of a group: p = keep p - rate m / (sqrt(v c) +
// e).
template <class T>
struct GroupRate {
  T rate, keep;

  GroupRate(const UpdateParams& p, const UpdateFactors& factors) {
    const double learning_rate = p.learning_rate * factors.learning_rate;
    rate = static_cast<T>(learning_rate * (1 / bias_correction(p.state.adamw.beta1, p.step)));
    keep = static_cast<T>(1 - learning_rate * (p.state.weight_decay * factors.weight_decay));
  }
};

// AdamW: the constants of an update in every lane, for elements of one group.
template <class D>
class AdamWLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  AdamWLanes(D d, const UpdateParams& p, const UpdateFactors& factors = {})
      : grad_scale_(set(d, p.grad_scale)),
        beta1_(set(d, p.state.adamw.beta1)),
        beta2_(set(d, p.state.adamw.beta2)),
        rest1_(set(d, 1 - p.state.adamw.beta1)),
        rest2_(set(d, 1 - p.state.adamw.beta2)),
        correction2_(set(d, 1 / bias_correction(p.state.adamw.beta2, p.step))),
        epsilon_(set(d, p.state.adamw.epsilon)) {
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
void for_each_group(const UpdateState& s, int64_t begin, int64_t end, Run run) {
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

// SgdRule: the constants in every lane, for elements of one group.
template <class D>
class SgdLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  SgdLanes(D d, const UpdateParams& p, const UpdateFactors& factors)
      : grad_scale_(hn::Set(d, static_cast<T>(p.grad_scale))),
        momentum_(hn::Set(d, static_cast<T>(p.state.sgd.momentum))),
        rate_(hn::Set(d, static_cast<T>(p.learning_rate * factors.learning_rate))),
        decay_(hn::Set(d, static_cast<T>(p.state.weight_decay * factors.weight_decay))),
        nesterov_(p.state.sgd.nesterov) {}

  HWY_INLINE void operator()(V g, V& value) const {
    value = hn::NegMulAdd(rate_, direction(g, value), value);
  }
  HWY_INLINE void operator()(V g, V& velocity, V& value) const {
    const V d = direction(g, value);
    velocity = hn::MulAdd(momentum_, velocity, d);
    value = hn::NegMulAdd(rate_, nesterov_ ? hn::MulAdd(momentum_, velocity, d) : velocity, value);
  }

 private:
  HWY_INLINE V direction(V g, V value) const {
    return hn::MulAdd(decay_, value, hn::Mul(g, grad_scale_));
  }

  V grad_scale_, momentum_, rate_, decay_;
  bool nesterov_;
};

// The momentum of Muon: `out` is what the matrix is updated along.
template <class D>
class MuonLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  MuonLanes(D d, const UpdateParams& p)
      : grad_scale_(hn::Set(d, static_cast<T>(p.grad_scale))),
        momentum_(hn::Set(d, static_cast<T>(p.state.muon.momentum))),
        rest_(hn::Set(d, static_cast<T>(1 - p.state.muon.momentum))),
        nesterov_(p.state.muon.nesterov) {}

  HWY_INLINE void operator()(V g, V& momentum, V& out) const {
    g = hn::Mul(rest_, hn::Mul(g, grad_scale_));
    momentum = hn::MulAdd(momentum_, momentum, g);
    out = nesterov_ ? hn::MulAdd(momentum_, momentum, g) : momentum;
  }

 private:
  V grad_scale_, momentum_, rest_;
  bool nesterov_;
};

// Calls apply(g, values...) with the lanes of elements [begin, end) of `grad` and of each array,
// and stores what it leaves in `values`.
template <class T, class Apply, class... Arrays>
void update_lanes(int64_t begin, int64_t end, const T* grad, const Apply& apply,
                  Arrays*... arrays) {
  const hn::ScalableTag<T> d;
  int64_t i = begin;
  const auto whole = [&](auto... values) {
    apply(hn::LoadU(d, grad + i), values...);
    (hn::StoreU(values, d, arrays + i), ...);
  };
  for (; i + lanes(d) <= end; i += lanes(d)) whole(hn::LoadU(d, arrays + i)...);
  if (i == end) return;
  const int64_t rest = end - i;
  const auto part = [&](auto... values) {
    apply(load_n(d, grad + i, rest), values...);
    (store_n(values, d, arrays + i, rest), ...);
  };
  part(load_n(d, arrays + i, rest)...);
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

  BlockRates(const UpdateParams& p, int64_t begin, int64_t count) {
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
void adamw_8bit_block(const UpdateParams& p, int64_t begin, int64_t count, Apply apply) {
  using namespace state_code;
  const FloatTag d;
  static_assert(kBlock % static_cast<int64_t>(hn::MaxLanes(FloatTag())) == 0);
  const UpdateState& s = p.state;
  float* param = static_cast<float*>(s.param) + begin;
  const float* grad = static_cast<const float*>(s.grad) + begin;
  uint8_t* m = static_cast<uint8_t*>(s.adamw.m) + begin;
  uint8_t* v = static_cast<uint8_t*>(s.adamw.v) + begin;
  float& m_scale = s.adamw.m_scale[begin / kBlock];
  float& v_scale = s.adamw.v_scale[begin / kBlock];

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
  const int64_t coded = i;  // lanes beyond the end get codes of zero

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

// --- the rules; each range of elements is of one group ---

template <class T>
void adamw_range(const UpdateParams& p, const UpdateFactors& factors, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const AdamWLanes<hn::ScalableTag<T>> update(d, p, factors);
  const AdamWRule& rule = p.state.adamw;
  update_lanes(begin, end, static_cast<const T*>(p.state.grad), update, static_cast<T*>(rule.m),
               static_cast<T*>(rule.v), static_cast<T*>(p.state.param));
}

template <class T>
void sgd_range(const UpdateParams& p, const UpdateFactors& factors, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const SgdLanes<hn::ScalableTag<T>> update(d, p, factors);
  const T* grad = static_cast<const T*>(p.state.grad);
  T* velocity = static_cast<T*>(p.state.sgd.velocity);
  T* param = static_cast<T*>(p.state.param);
  if (velocity)
    update_lanes(begin, end, grad, update, velocity, param);
  else
    update_lanes(begin, end, grad, update, param);
}

template <class T>
void muon_range(const UpdateParams& p, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const MuonLanes<hn::ScalableTag<T>> update(d, p);
  T* grad = static_cast<T*>(p.state.grad);
  update_lanes(begin, end, static_cast<const T*>(grad), update, static_cast<T*>(p.state.adamw.m),
               grad);
}

// False for elements of a matrix that Optimizer::finish() changes.
template <class T>
bool update_range(const UpdateParams& p, const UpdateFactors& factors, int64_t begin, int64_t end) {
  if (p.state.rule == UpdateRule::muon && factors.whole_matrix) {
    muon_range<T>(p, begin, end);
    return false;
  }
  if (p.state.rule == UpdateRule::sgd)
    sgd_range<T>(p, factors, begin, end);
  else
    adamw_range<T>(p, factors, begin, end);
  return true;
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
