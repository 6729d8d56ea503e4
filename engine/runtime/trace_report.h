// Reports of a trace: a file for chrome://tracing and Perfetto, and a table of its ops.
#pragma once

#include <string>

#include "engine/io/byte_sink.h"
#include "engine/runtime/trace.h"

namespace trafo {

// Trace event format: an object with complete ("X") events in microseconds. Thread 1 is the host,
// thread 2 the device.
void write_chrome_trace(ByteSink& sink, const Trace& trace);

// Ops and phases sorted by their own time, without nested ranges; device time where it is known.
// Every line ends in a newline.
std::string trace_table(const Trace& trace, size_t most_rows = 30);

}  // namespace trafo
