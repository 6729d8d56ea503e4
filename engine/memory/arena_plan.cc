#include "engine/memory/arena_plan.h"

#include <algorithm>
#include <numeric>

namespace trafo {

size_t AllocationTrace::allocated(size_t bytes) {
  lifetimes_.push_back({bytes, time_++, INT64_MAX});
  return lifetimes_.size() - 1;
}

void AllocationTrace::freed(size_t allocation) {
  lifetimes_[allocation].freed = time_++;
}

ArenaPlan plan_arena(const AllocationTrace& trace) {
  const auto& lifetimes = trace.lifetimes();
  const auto padded = [](size_t bytes) {
    return (bytes + ArenaPlan::kAlignment - 1) / ArenaPlan::kAlignment * ArenaPlan::kAlignment;
  };
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  ArenaPlan plan;
  plan.places.resize(lifetimes.size());
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    const auto& mine = lifetimes[i];
    const size_t bytes = padded(mine.bytes);
    size_t offset = 0;
    for (const size_t other : placed) {
      const auto& theirs = lifetimes[other];
      if (theirs.freed < mine.allocated || mine.freed < theirs.allocated) continue;
      if (plan.places[other].offset >= offset + bytes) break;
      offset = std::max(offset, plan.places[other].offset + padded(plan.places[other].bytes));
    }
    plan.places[i] = {offset, mine.bytes, 0};
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](size_t at, size_t other) { return at < plan.places[other].offset; });
    placed.insert(after, i);
  }

  for (size_t i = 0; i < lifetimes.size(); ++i)
    if (lifetimes[i].freed != INT64_MAX) plan.frees.push_back(i);
  std::sort(plan.frees.begin(), plan.frees.end(),
            [&](size_t a, size_t b) { return lifetimes[a].freed < lifetimes[b].freed; });
  size_t frees = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    while (frees < plan.frees.size() && lifetimes[plan.frees[frees]].freed < lifetimes[i].allocated)
      ++frees;
    plan.places[i].frees_before = frees;
  }
  return plan;
}

}  // namespace trafo
