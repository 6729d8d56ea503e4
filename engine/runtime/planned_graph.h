// Work on an accelerator whose kernels are the same at every run. Its memory is planned by a dry
// run. The first run launches kernel by kernel: one-time setup inside a kernel or a library must
// not be captured, and work that comes once is not worth a graph. The second run is captured as a
// graph, which is replayed from then on.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/core/function_ref.h"
#include "engine/memory/arena.h"
#include "engine/runtime/context.h"

namespace trafo {

struct PlannedGraph {
  ArenaPlan plan;
  bool planned = false;
  int64_t runs = 0;  // since the graph was released
  void* graph = nullptr;
  char refusal[256] = {};  // why the newest work could not be captured

  // `issue` issues the work.
  void launch(Context& context, FunctionRef<void()> issue);
  // Captures what `issue` issues, unless there is a graph, and launches the graph.
  void replay(Context& context, const char* origin, FunctionRef<void()> issue);
  // Launches the graph. UNSUPPORTED from `origin`: the work could not be captured.
  void replay(Context& context, const char* origin);
  // A graph holds addresses: when memory has moved it is released, and captured again at the second
  // run from here on.
  void release(StreamDevice& stream) noexcept;
};

// During its lifetime the host issues the work. Memory comes from the backend's arena as planned;
// the arena has room for the plan. With `capture`, the work is captured and does not run.
class PlannedIssue {
 public:
  PlannedIssue(Context& context, PlannedGraph& work, bool capture);
  // A capture that an exception ends is dropped.
  ~PlannedIssue();
  PlannedIssue(const PlannedIssue&) = delete;
  PlannedIssue& operator=(const PlannedIssue&) = delete;

 private:
  Context& context_;
  PlannedGraph& work_;
  const bool captures_;
  const int exceptions_;
  std::optional<PhaseRange> phase_;
  std::optional<Profiler::NoDeviceTimes> no_device_times_;
  Arena arena_;
  std::optional<ArenaScope> in_arena_;
};

}  // namespace trafo
