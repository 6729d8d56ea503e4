// The merges of byte-pair encoding.
#pragma once

#include <cstdint>
#include <vector>

namespace trafo {

class ShuffleRng;

// Immutable once it is filled.
class Merges {
 public:
  // Room for this many merges.
  explicit Merges(size_t count);
  // A later merge goes after all earlier ones. Of two equal pairs the last one counts.
  void add(int32_t left, int32_t right, int32_t result);

  // Merges neighbours until no pair of them has a merge: always the pair that was added first, and
  // of equal pairs the leftmost.
  void apply(std::vector<int32_t>& tokens) const;
  // The same, but leaves out each merge with probability alpha. The two parts may still merge with
  // other neighbours.
  void sample(std::vector<int32_t>& tokens, double alpha, ShuffleRng& rng) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Slot {
    uint64_t pair = 0;
    uint32_t rank = kNoRank;  // kNoRank: the slot is free
    int32_t result = 0;
  };
  size_t slot(uint64_t pair) const;
  const Slot& find(int32_t left, int32_t right) const;
  void apply_short(std::vector<int32_t>& tokens) const;
  // With random numbers if `rng` is not null.
  void apply_long(std::vector<int32_t>& tokens, double alpha, ShuffleRng* rng) const;

  std::vector<Slot> slots_;
  uint32_t next_rank_ = 0;
};

}  // namespace trafo
