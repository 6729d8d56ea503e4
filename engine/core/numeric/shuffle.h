// Shuffling whose result depends on (seed, epoch) alone, on every platform. A resumed run must see
// the same order, and std::shuffle and its distributions differ between standard libraries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trafo {

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Counter-based: draw i of stream (seed, epoch) depends on nothing else.
class ShuffleRng {
 public:
  ShuffleRng(uint64_t seed, uint64_t epoch)
      : key_(mix_bits(mix_bits(seed + kStep) + (epoch + 1) * kStep)) {}

  uint64_t next() { return mix_bits(key_ + ++counter_ * kStep); }

  // Uniform in [0, bound), bound > 0: multiply and shift, with rejection (Lemire 2019).
  uint64_t below(uint64_t bound) {
    const uint64_t rest = (0 - bound) % bound;
    while (true) {
      const unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<uint64_t>(product) >= rest) return static_cast<uint64_t>(product >> 64);
    }
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  uint64_t key_;
  uint64_t counter_ = 0;
};

// At most `limit` of the numbers 0 to count - 1, in rising order, by reservoir sampling (Vitter
// 1985).
inline std::vector<size_t> sample_indices(size_t count, int64_t limit, uint64_t seed) {
  const auto size = std::min(count, static_cast<size_t>(limit));
  std::vector<size_t> kept(size);
  ShuffleRng rng(seed, 0);
  for (size_t i = 0; i < count; ++i) {
    if (i < size) {
      kept[i] = i;
    } else if (const uint64_t slot = rng.below(i + 1); slot < size) {
      kept[slot] = i;
    }
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace trafo
