// Philox4x32-10 in vectors, compiled once a target: the dropout masks of core/numeric/philox.h,
// many blocks at a time. See simd.h for how a kernel file includes this.
#if defined(TRAFO_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_PHILOX_INL_H_
#undef TRAFO_CPU_PHILOX_INL_H_
#else
#define TRAFO_CPU_PHILOX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/core/numeric/philox.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors that run side by side to hide the latency of the multiplications.
inline constexpr int kPhiloxVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Elements (16 bits each) that one call of philox_chunk draws.
inline constexpr int64_t kPhiloxChunk =
    int64_t{8} * kPhiloxVectors * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint64_t>()));

// bits[e] = the 16 bits of element 8 * first_block + e, for kPhiloxChunk elements.
inline void philox_chunk(const Dropout& dropout, uint64_t first_block,
                         uint16_t* HWY_RESTRICT bits) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::RepartitionToNarrow<decltype(d64)> d32;
  const hn::Repartition<uint16_t, decltype(d64)> d16;
  using V = hn::Vec<decltype(d64)>;
  constexpr int n = kPhiloxVectors;
  constexpr uint64_t lanes64 = hn::MaxLanes(d64);

  // A block a 64-bit lane, each of its words in the low half of a lane; what the high halves hold
  // never matters, for MulEven reads the low ones. Lane l takes block l/2 or, if l is odd, l/2 +
  // lanes/2, so that interleaving pairs of lanes at the end puts the blocks in order.
  const V lane = hn::Iota(d64, 0);
  const V order = hn::Add(hn::ShiftRight<1>(lane),
                          hn::IfThenElseZero(hn::Ne(hn::And(lane, hn::Set(d64, 1)), hn::Zero(d64)),
                                             hn::Set(d64, lanes64 / 2)));
  V word0[n], word1[n], word2[n], word3[n];
  for (int v = 0; v < n; ++v) {
    word0[v] = hn::Add(order, hn::Set(d64, first_block + static_cast<uint64_t>(v) * lanes64));
    word1[v] = hn::ShiftRight<32>(word0[v]);
    word2[v] = hn::Set(d64, dropout.step);
    word3[v] = hn::Set(d64, dropout.id);
  }

  const auto multiplier0 = hn::Set(d32, 0xD2511F53u);
  const auto multiplier1 = hn::Set(d32, 0xCD9E8D57u);
  uint32_t key0 = static_cast<uint32_t>(dropout.seed);
  uint32_t key1 = static_cast<uint32_t>(dropout.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const V k0 = hn::Set(d64, key0);
    const V k1 = hn::Set(d64, key1);
    for (int v = 0; v < n; ++v) {
      const V product0 = hn::MulEven(hn::BitCast(d32, word0[v]), multiplier0);
      const V product1 = hn::MulEven(hn::BitCast(d32, word2[v]), multiplier1);
      word0[v] = hn::Xor(hn::ShiftRight<32>(product1), hn::Xor(word1[v], k0));
      word1[v] = product1;
      word2[v] = hn::Xor(hn::ShiftRight<32>(product0), hn::Xor(word3[v], k1));
      word3[v] = product0;
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }

  for (int v = 0; v < n; ++v) {
    const auto join = [&](V low, V high) {
      return hn::BitCast(
          d64, hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(high)), hn::BitCast(d32, low)));
    };
    const V first_half = join(word0[v], word1[v]);
    const V second_half = join(word2[v], word3[v]);
    uint16_t* out = bits + static_cast<int64_t>(v) * 8 * static_cast<int64_t>(lanes64);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, first_half, second_half)), d16, out);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, first_half, second_half)), d16,
               out + 4 * lanes64);
  }
}

// factors[i] = dropout.scale() where element first + i is kept and 0 where it is dropped, for 0 <=
// i < count: exactly dropout_keeps() of core/numeric/philox.h. Any first >= 0. Whole runs are
// cheap, a call for a few elements costs a chunk.
template <class T>
HWY_NOINLINE void dropout_factors(const Dropout& dropout, int64_t first, int64_t count,
                                  T* HWY_RESTRICT factors) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;  // x86 compares signed integers
  using I = hn::TFromD<decltype(di)>;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  constexpr int64_t step = static_cast<int64_t>(hn::MaxLanes(d));
  const auto threshold = hn::Set(di, static_cast<I>(dropout.threshold()));
  const auto scale = hn::Set(d, static_cast<T>(dropout.scale()));

  HWY_ALIGN uint16_t bits[kPhiloxChunk];
  int64_t skip = first % 8;  // elements of the first block that lie before the run
  uint64_t block = static_cast<uint64_t>(first / 8);
  for (int64_t done = 0; done < count; block += kPhiloxChunk / 8, skip = 0) {
    philox_chunk(dropout, block, bits);
    const int64_t here = std::min(count - done, kPhiloxChunk - skip);
    const uint16_t* from = bits + skip;
    T* to = factors + done;
    const auto factor = [&](int64_t i) {
      const auto wide = [&] {
        const auto half = hn::PromoteTo(d32, hn::LoadU(d16, from + i));
        if constexpr (sizeof(T) == 8)
          return hn::PromoteTo(di, half);
        else
          return half;
      }();
      return hn::IfThenZeroElse(hn::RebindMask(d, hn::Gt(threshold, wide)), scale);
    };
    int64_t i = 0;
    for (; i + step <= here; i += step) hn::StoreU(factor(i), d, to + i);
    for (; i < here; ++i)
      to[i] = from[i] >= dropout.threshold() ? static_cast<T>(dropout.scale()) : T{0};
    done += here;
  }
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
