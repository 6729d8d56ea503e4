// A finished profile: time ranges on the host and on the device, on one clock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/shape.h"

namespace trafo {

enum class TraceKind : uint8_t {
  phase,
  forward,
  backward,
  recompute,  // a forward op that runs inside backward
  update      // a change of parameters
};

// "phase", "forward", "backward", "recompute", "update".
inline const char* trace_kind_name(TraceKind kind) {
  constexpr const char* kNames[] = {"phase", "forward", "backward", "recompute", "update"};
  return kNames[static_cast<size_t>(kind)];
}

// Times are nanoseconds of the host's steady clock since the trace began.
struct TraceRange {
  const char* name = "";  // of static storage duration
  TraceKind kind = TraceKind::phase;
  int64_t parent = -1;  // index of the enclosing range; -1: none
  int64_t host_begin = 0, host_end = 0;
  int64_t device_begin = -1, device_end = -1;  // of the work issued inside; -1: unknown
  int64_t first_input = 0;                     // in Trace::inputs
  int32_t inputs = 0;
  // Which kernel ran, of an op that has several; of static storage duration.
  const char* kernel = "";

  bool on_device() const { return device_end >= 0; }
};

struct TraceInput {
  Shape shape;
  DType dtype = DType::f32;
};

// Ranges are in the order in which they began. On each track any two are disjoint or nested.
struct Trace {
  Device device;
  std::vector<TraceRange> ranges;
  std::vector<TraceInput> inputs;
  int64_t duration = 0;  // ns
  int64_t left_out = 0;  // ranges that did not fit
};

}  // namespace trafo
