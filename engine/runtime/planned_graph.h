// Work on an accelerator whose kernels are the same at every run. Its memory is planned by a dry
// run. The first run launches kernel by kernel: one-time setup inside a kernel or a library must
// not be captured, and work that comes once is not worth a graph. The second run is captured as a
// graph, which is replayed from then on.
#pragma once

#include <cstdint>

#include "engine/core/function_ref.h"
#include "engine/memory/arena_plan.h"
#include "engine/runtime/context.h"

namespace trafo {

struct PlannedGraph {
  ArenaPlan plan;
  bool planned = false;
  int64_t runs = 0;  // since the graph was released
  void* graph = nullptr;

  // `issue` issues the work, whose memory comes from the backend's arena as planned. The arena has
  // room for the plan.
  void launch(Context& context, FunctionRef<void()> issue);
  // Captures what `issue` issues, unless there is a graph, and launches the graph. UNSUPPORTED from
  // `origin`: the work cannot be captured.
  void replay(Context& context, const char* origin, FunctionRef<void()> issue);
  // A graph holds addresses: when memory has moved it is released, and captured again at the second
  // run from here on.
  void release(StreamDevice& stream) noexcept;

 private:
  void capture(Context& context, const char* origin, FunctionRef<void()> issue);
};

}  // namespace trafo
