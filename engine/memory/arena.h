// Serves the allocations of a step from one block, at the offsets of a plan.
#pragma once

#include <cstddef>

#include "engine/core/status.h"
#include "engine/memory/arena_plan.h"

namespace trafo {

// `base` has room for plan.bytes; both outlive the arena. One step.
class Arena {
 public:
  Arena(void* base, const ArenaPlan& plan) : base_(static_cast<std::byte*>(base)), plan_(plan) {}

  void* take(size_t bytes) {
    require(next_ < plan_.places.size() && plan_.places[next_].bytes == bytes, ErrorCode::internal,
            "memory plan", "allocation ", next_, " of the step asks for ", bytes,
            " bytes, which is not what was planned");
    return base_ + plan_.places[next_++].offset;
  }

 private:
  std::byte* base_;
  const ArenaPlan& plan_;
  size_t next_ = 0;
};

}  // namespace trafo
