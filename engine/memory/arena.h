// Serves the allocations of a step from one block of memory, at the offsets of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/status.h"
#include "engine/memory/arena_plan.h"

namespace trafo {

// For one step whose allocations match the plan exactly; a different size is an INTERNAL error.
// `base` points to plan.bytes bytes. Block and plan must outlive the arena.
class Arena {
 public:
  Arena(void* base, const ArenaPlan& plan) : base_(static_cast<std::byte*>(base)), plan_(&plan) {}
  virtual ~Arena() = default;

  // Null if the arena cannot serve the allocation; it then comes from the heap.
  virtual void* take(size_t bytes) {
    const auto& places = plan_->places;
    require(next_ < places.size() && places[next_].bytes == bytes, ErrorCode::internal,
            "memory plan", "allocation ", next_, " of the step asks for ", bytes,
            " bytes, which is not what was planned");
    return base_ + places[next_++].offset;
  }
  // `pointer` came from take().
  virtual void released([[maybe_unused]] void* pointer) noexcept {}

 protected:
  Arena() = default;

  std::byte* base_ = nullptr;
  const ArenaPlan* plan_ = nullptr;
  size_t next_ = 0;  // number of the next allocation
};

// For steps of many sizes that share one allocation sequence: the plan of the largest serves them
// all. An allocation is served if it is no larger than the planned one and if everything that the
// plan had freed by then has been freed, so that no two live tensors overlap. If a step allocates
// in a different order, the rest of its allocations come from the heap. Results do not change.
class FittingArena final : public Arena {
 public:
  // Starts a step. INTERNAL error while a tensor of the last one is alive.
  void begin(void* base, const ArenaPlan& plan);
  void* take(size_t bytes) override;
  void released(void* pointer) noexcept override;

  size_t living() const { return taken_ - freed_; }  // allocations that are in use
  int64_t refused() const { return refused_; }       // allocations not served, of all steps

 private:
  size_t taken_ = 0, freed_ = 0;
  size_t planned_frees_ = 0;  // how many of plan_->frees have happened, in their order
  bool follows_plan_ = true;  // the step has had the planned allocation sequence so far
  int64_t refused_ = 0;
  std::vector<uint8_t> is_freed_;                     // of each allocation
  std::vector<std::pair<size_t, size_t>> at_offset_;  // sorted offsets -> the allocation there
};

}  // namespace trafo
