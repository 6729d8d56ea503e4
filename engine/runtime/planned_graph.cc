#include "engine/runtime/planned_graph.h"

#include <exception>

namespace trafo {

void PlannedGraph::launch(Context& context, FunctionRef<void()> issue) {
  const PlannedIssue scope(context, *this, false);
  issue();
}

void PlannedGraph::replay(Context& context, const char* origin, FunctionRef<void()> issue) {
  if (!graph) {
    const PlannedIssue scope(context, *this, true);
    issue();
  }
  replay(context, origin);
}

void PlannedGraph::replay(Context& context, const char* origin) {
  require(graph != nullptr, ErrorCode::unsupported, origin,
          "the step could not be recorded as a graph (", refusal, "); turn graphs off");
  const PhaseRange phase(context, "graph replay", true);
  context.backend().stream_device()->launch_graph(graph);
  ++runs;
}

void PlannedGraph::release(StreamDevice& stream) noexcept {
  stream.release_graph(graph);
  graph = nullptr;
  runs = 0;
}

PlannedIssue::PlannedIssue(Context& context, PlannedGraph& work, bool capture)
    : context_(context),
      work_(work),
      captures_(capture),
      exceptions_(std::uncaught_exceptions()),
      arena_(context.backend().arena_memory(), work.plan) {
  if (capture) {
    phase_.emplace(context, "graph capture", false);
    no_device_times_.emplace(context.profiler());
    context.backend().stream_device()->begin_capture();
  }
  in_arena_.emplace(context.backend(), arena_);
}

PlannedIssue::~PlannedIssue() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  in_arena_.reset();
  if (!captures_) {
    if (!failed) ++work_.runs;
    return;
  }
  StreamDevice& stream = *context_.backend().stream_device();
  constexpr std::string_view kUnknown = "a kernel could not be recorded";
  kUnknown.copy(work_.refusal, kUnknown.size());
  work_.refusal[kUnknown.size()] = 0;
  void* const captured = stream.end_capture(work_.refusal, sizeof work_.refusal);
  if (failed)
    stream.release_graph(captured);
  else
    work_.graph = captured;
}

}  // namespace trafo
