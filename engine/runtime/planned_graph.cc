#include "engine/runtime/planned_graph.h"

namespace trafo {

void PlannedGraph::launch(Context& context, FunctionRef<void()> issue) {
  Arena arena(context.backend().arena_memory(), plan);
  const ArenaScope scope(context.backend(), arena);
  issue();
  ++runs;
}

void PlannedGraph::replay(Context& context, const char* origin, FunctionRef<void()> issue) {
  if (!graph) capture(context, origin, issue);
  const PhaseRange phase(context, "graph replay", true);
  context.backend().stream_device()->launch_graph(graph);
  ++runs;
}

void PlannedGraph::release(StreamDevice& stream) noexcept {
  stream.release_graph(graph);
  graph = nullptr;
  runs = 0;
}

void PlannedGraph::capture(Context& context, const char* origin, FunctionRef<void()> issue) {
  const PhaseRange phase(context, "graph capture", false);
  const Profiler::NoDeviceTimes no_device_times(context.profiler());
  StreamDevice& stream = *context.backend().stream_device();
  char reason[256] = "a kernel could not be recorded";
  Arena arena(context.backend().arena_memory(), plan);
  stream.begin_capture();
  try {
    const ArenaScope scope(context.backend(), arena);
    issue();
  } catch (...) {
    stream.release_graph(stream.end_capture(reason, sizeof reason));
    throw;
  }
  graph = stream.end_capture(reason, sizeof reason);
  require(graph != nullptr, ErrorCode::unsupported, origin,
          "the step could not be recorded as a graph (", reason, "); turn graphs off");
}

}  // namespace trafo
