// Where every tensor of a step lies in one block of memory, decided from when each of them lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trafo {

// The allocations of a step in the order they are made; the same step makes the same ones again.
class AllocationTrace {
 public:
  struct Lifetime {
    size_t bytes;
    int64_t allocated, freed;  // times: every allocation and every release is one
  };

  // -> number of the allocation, for freed()
  size_t allocated(size_t bytes);
  void freed(size_t allocation);
  // What has not freed lives until the end.
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }

 private:
  std::vector<Lifetime> lifetimes_;
  int64_t time_ = 0;
};

struct ArenaPlan {
  static constexpr size_t kAlignment = 256;

  struct Place {
    size_t offset, bytes;
    size_t frees_before = 0;  // how many of `frees` come before it is taken
  };
  std::vector<Place> places;  // of allocation 0, 1, ...
  std::vector<size_t> frees;  // allocations in the order in which they die
  size_t bytes = 0;           // of the block
};

// Greedy by size (Pisarchyk & Lee, arXiv 2001.03288): the largest first, each at the lowest offset
// where nothing that lives at the same time lies.
ArenaPlan plan_arena(const AllocationTrace& trace);

}  // namespace trafo
