// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11): a
// counter-based generator. A random number is a function of its counter, so it is the same on every
// device, in every thread and when it is recomputed.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace trafo {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// One dropout of one forward pass. Element i of the tensor uses 16 bits of the block with counter
// (i/8 low, i/8 high, step, id) and key `seed`: half i%8, counted from the low half of word 0. The
// element is kept if these bits are >= threshold().
struct Dropout {
  float p = 0;        // probability of zeroing, 0 <= p < 1; 0 turns dropout off
  uint64_t seed = 0;  // of the run
  uint32_t step = 0;  // number of the forward pass in the run
  uint32_t id = 0;    // which dropout of the model

  uint32_t threshold() const { return static_cast<uint32_t>(std::lround(p * 65536.0)); }
  // The factor of kept elements, exact for the quantised probability.
  double scale() const { return 65536.0 / (65536.0 - threshold()); }
  bool active() const { return threshold() > 0; }
};

// Whether element i is kept. Every kernel must agree with this scalar definition.
inline bool dropout_keeps(const Dropout& dropout, int64_t i) {
  const uint64_t block = static_cast<uint64_t>(i) / 8;
  const PhiloxBlock words = philox4x32(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), dropout.step, dropout.id},
      dropout.seed);
  const uint32_t half = static_cast<uint32_t>(i % 8);
  return ((words[half / 2] >> (16 * (half % 2))) & 0xffffu) >= dropout.threshold();
}

// A stream of numbers for initialisation and tests: uniform in [0,1) with 24 bits, and standard
// normal (Box-Muller).
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox4x32({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                           static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                          seed_);
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }
  double uniform() { return (next_u32() >> 8) * 0x1p-24; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() {
    const double u = (next_u32() + 0.5) * 0x1p-32, v = uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  uint64_t seed_, stream_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace trafo
