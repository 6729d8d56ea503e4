// Planning of a step's memory: from the lifetime of each allocation to its offset in one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trafo {

// The allocation sequence of a step. The same step always makes the same one.
class AllocationTrace {
 public:
  struct Lifetime {
    size_t bytes;
    int64_t allocated, freed;  // times; every allocation and every release is one tick
  };

  // Returns the number of the allocation, for freed().
  size_t allocated(size_t bytes);
  void freed(size_t allocation);
  // `freed` is INT64_MAX for what has not been freed.
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }

 private:
  std::vector<Lifetime> lifetimes_;
  int64_t time_ = 0;
};

struct ArenaPlan {
  static constexpr size_t kAlignment = 256;

  struct Place {
    size_t offset, bytes;
    size_t frees_before = 0;  // how many of `frees` precede the allocation
  };
  std::vector<Place> places;  // of allocation 0, 1, ...
  std::vector<size_t> frees;  // numbers of allocations in the order they are freed
  size_t bytes = 0;           // of the block
};

// Greedy by size (Pisarchyk & Lee, arXiv 2001.03288): places the largest first, each at the lowest
// offset where it overlaps nothing that is alive at the same time.
ArenaPlan plan_arena(const AllocationTrace& trace);

}  // namespace trafo
