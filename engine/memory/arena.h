// Serves the allocations of a step from one block, at the offsets of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/status.h"
#include "engine/memory/arena_plan.h"

namespace trafo {

// `base` has room for plan.bytes; both outlive the arena. One step, which allocates what the plan
// says to the byte: anything else is an INTERNAL error.
class Arena {
 public:
  Arena(void* base, const ArenaPlan& plan) : base_(static_cast<std::byte*>(base)), plan_(&plan) {}
  virtual ~Arena() = default;

  // Null: the allocation has no place here.
  virtual void* take(size_t bytes) {
    const auto& places = plan_->places;
    require(next_ < places.size() && places[next_].bytes == bytes, ErrorCode::internal,
            "memory plan", "allocation ", next_, " of the step asks for ", bytes,
            " bytes, which is not what was planned");
    return base_ + places[next_++].offset;
  }
  // Of what take() has given.
  virtual void released(void*) noexcept {}

 protected:
  Arena() = default;

  std::byte* base_ = nullptr;
  const ArenaPlan* plan_ = nullptr;
  size_t next_ = 0;
};

// For steps of many sizes and one course: a plan serves every step whose allocations are, one by
// one, no larger. Each of them gets its place only while all that the plan wants gone by then is
// gone, so that nothing can overlap, whatever a step does; one that leaves the plan's course goes
// on without it.
class FittingArena final : public Arena {
 public:
  // The next step. Not while something lives in the arena.
  void begin(void* base, const ArenaPlan& plan);
  void* take(size_t bytes) override;
  void released(void* pointer) noexcept override;

  size_t living() const { return taken_ - gone_; }
  int64_t refused() const { return refused_; }  // allocations without a place, of all steps

 private:
  size_t taken_ = 0, gone_ = 0, deaths_ = 0;
  bool follows_plan_ = true;
  int64_t refused_ = 0;
  std::vector<uint8_t> dead_;                         // of each allocation
  std::vector<std::pair<size_t, size_t>> at_offset_;  // offsets in order -> the allocation there
};

}  // namespace trafo
