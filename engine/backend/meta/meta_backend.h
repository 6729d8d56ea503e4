// A device that only notes what a step allocates: steps run on it in host time, without the device
// and without its memory. From the note comes the plan of the arena that the step then runs in.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/memory/arena_plan.h"

namespace trafo {

class MetaBackend : public Backend {
 public:
  // What has been allocated and released since the last call.
  virtual AllocationTrace take_trace() = 0;
};

// Stands for `device`: the CPU, or an accelerator with a StreamDevice but no graphs. Kernels,
// products and fills do nothing; what is read back is zero or what was copied there. Statistics
// count as the device's own allocator does. `kernels`: how many there are.
std::shared_ptr<MetaBackend> make_meta_backend(Device device, int kernels);

}  // namespace trafo
