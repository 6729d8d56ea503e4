// AdamW with moments in 8 bits, in vectors, compiled once a target. The formulas of the codes and
// their reasons are in state_code.h.
#if defined(TRAFO_ADAMW_8BIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_ADAMW_8BIT_INL_H_
#undef TRAFO_ADAMW_8BIT_INL_H_
#else
#define TRAFO_ADAMW_8BIT_INL_H_
#endif

#include <algorithm>
#include <iterator>

#include "engine/quant/state_code.h"

#include "engine/optim/adamw/adamw_lanes-inl.h"
#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

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

  BlockRates(const UpdateParams& p, const AdamWRule& rule, int64_t begin, int64_t count) {
    for_each_group(p.state, begin, begin + count,
                   [&](int64_t first, int64_t past, const UpdateFactors& factors) {
                     const AdamWRates<float> group(
                         rule, group_rates(p.learning_rate, p.state.weight_decay, factors), p.step);
                     std::fill(rate + (first - begin), rate + (past - begin), group.rate);
                     std::fill(keep + (first - begin), keep + (past - begin), group.keep);
                   });
    std::fill(rate + count, std::end(rate), 0.0f);
    std::fill(keep + count, std::end(keep), 0.0f);
  }
};

// One block of moments: elements [begin, begin + count) of the parameters, 1 <= count <= kBlock.
// apply(i, g, m, v, value) updates the lanes from element begin + i on; g is scaled.
template <class Apply>
void adamw_8bit_block(const UpdateParams& p, int64_t begin, int64_t count, Apply apply) {
  using namespace state_code;
  const FloatTag d;
  static_assert(kBlock % static_cast<int64_t>(hn::MaxLanes(FloatTag())) == 0);
  const UpdateState& s = p.state;
  float* param = static_cast<float*>(s.param) + begin;
  const float* grad = static_cast<const float*>(s.grad) + begin;
  uint8_t* m = static_cast<uint8_t*>(s.states[0]) + begin;
  uint8_t* v = static_cast<uint8_t*>(s.states[2]) + begin;
  float& m_scale = static_cast<float*>(s.states[1])[begin / kBlock];
  float& v_scale = static_cast<float*>(s.states[3])[begin / kBlock];

  HWY_ALIGN float momenta[kBlock], variances[kBlock];
  const Floats grad_scale = hn::Set(d, static_cast<float>(p.grad_scale));
  const Floats old_m_scale = hn::Set(d, m_scale), old_v_scale = hn::Set(d, v_scale);
  Floats largest_m = hn::Zero(d), largest_v = hn::Zero(d);
  const auto advance = [&](int64_t i, Floats g, Floats& value) {
    Floats momentum = decode_first(load_codes(m + i), old_m_scale);
    Floats variance = decode_second(load_codes(v + i), old_v_scale);
    apply(i, hn::Mul(g, grad_scale), momentum, variance, value);
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

void adamw_8bit_update(const UpdateParams& p, const AdamWRule& rule, int64_t begin, int64_t end) {
  using state_code::kBlock;
  static_assert(kSquaresElements % kBlock == 0);
  const AdamWLanes update(FloatTag(), rule,
                          group_rates(p.learning_rate, p.state.weight_decay, UpdateFactors{}),
                          p.step);
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t count = std::min(kBlock, end - block);
    if (!p.state.group_of) {
      adamw_8bit_block(p, block, count, [&](int64_t, Floats g, Floats& m, Floats& v, Floats& x) {
        update(g, m, v, x);
      });
      continue;
    }
    const BlockRates rates(p, rule, block, count);
    adamw_8bit_block(p, block, count, [&](int64_t i, Floats g, Floats& m, Floats& v, Floats& x) {
      const FloatTag d;
      update(g, m, v, x, hn::Load(d, rates.rate + i), hn::Load(d, rates.keep + i));
    });
  }
  post_update<float>(p.state, p.step, begin, end);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
