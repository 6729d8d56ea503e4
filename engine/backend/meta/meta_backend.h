// The meta device. A dry run of a step on it computes nothing and needs neither the real device nor
// its memory. It records the allocation sequence, from which the arena of the step is planned.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/memory/arena_plan.h"

namespace trafo {

class MetaBackend : public Backend {
 public:
  // The allocations and releases since the last call.
  virtual AllocationTrace take_trace() = 0;
};

// Stands in for `device`: the CPU, or an accelerator with a StreamDevice but without graphs.
// Kernels, GEMMs and fills do nothing. Reading back gives zeros or values that were copied from the
// host. Memory statistics count as the device's own allocator does. `kernels` is the number of
// kernels. `real` is the device itself, if it is there, and must stay: steps do what it prefers, or
// otherwise what takes most memory.
std::shared_ptr<MetaBackend> make_meta_backend(Device device, int kernels,
                                               const Backend* real = nullptr);

}  // namespace trafo
