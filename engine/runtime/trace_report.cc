#include "engine/runtime/trace_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/core/strings/number_text.h"

namespace trafo {
namespace {

constexpr size_t kChunk = size_t{1} << 16;
constexpr int kHostThread = 1, kDeviceThread = 2;

// Nanoseconds as microseconds, exactly.
std::string microseconds(int64_t time) {
  char text[32];
  const int64_t size = time < 0 ? -time : time;
  std::snprintf(text, sizeof text, "%s%lld.%03lld", time < 0 ? "-" : "",
                static_cast<long long>(size / 1000), static_cast<long long>(size % 1000));
  return text;
}

std::string thread_name(int thread, const std::string& name) {
  return concat(R"({"ph":"M","name":"thread_name","pid":1,"tid":)", thread, R"(,"args":{"name":")",
                name, R"("}})");
}

// Names and dtypes are plain words and need no escaping.
std::string event(const Trace& trace, const TraceRange& range, int thread, int64_t begin,
                  int64_t end) {
  std::string text =
      concat(R"({"ph":"X","pid":1,"tid":)", thread, R"(,"name":")", range.name, R"(","cat":")",
             trace_kind_name(range.kind), R"(","ts":)", microseconds(begin), R"(,"dur":)",
             microseconds(end - begin), R"(,"args":{"pass":")", trace_kind_name(range.kind), '"');
  if (range.kind != TraceKind::phase) {
    int64_t bytes = 0;
    std::string inputs;
    for (int64_t i = range.first_input; i < range.first_input + range.inputs; ++i) {
      const TraceInput& input = trace.inputs[static_cast<size_t>(i)];
      inputs += concat(inputs.empty() ? "" : ", ", dtype_name(input.dtype), ' ', input.shape.str());
      bytes += element_count(input.shape) * static_cast<int64_t>(dtype_size(input.dtype));
    }
    text += concat(R"(,"inputs":")", inputs, R"(","input_bytes":)", bytes, R"(,"device":")",
                   device_name(trace.device), '"');
    if (*range.kernel) text += concat(R"(,"kernel":")", range.kernel, '"');
  }
  return text + "}}";
}

// Totals of one name, kind and kernel.
struct Row {
  std::string_view name, kernel;
  TraceKind kind;
  int64_t calls = 0, total = 0, own = 0;  // ns
};

std::string milliseconds_text(int64_t time) {
  return fixed_text(static_cast<double>(time) / 1e6, 3);
}

std::string row_text(const Row& row, int64_t duration) {
  const std::string name =
      row.kernel.empty() ? std::string(row.name) : concat(row.name, " (", row.kernel, ')');
  const double share =
      100 * static_cast<double>(row.own) / static_cast<double>(std::max<int64_t>(1, duration));
  char text[160];
  std::snprintf(text, sizeof text, "%-28.60s %-10s %8lld %12s %12s %6s %%\n", name.c_str(),
                trace_kind_name(row.kind), static_cast<long long>(row.calls),
                milliseconds_text(row.total).c_str(), milliseconds_text(row.own).c_str(),
                fixed_text(share, 1).c_str());
  return text;
}

std::vector<Row> rows_of(const Trace& trace) {
  const bool on_device = trace.device.kind != DeviceKind::cpu;
  // Ranges that run on the host only are not part of the device's time.
  const auto counts = [&](const TraceRange& range) { return !on_device || range.on_device(); };
  const auto length = [&](const TraceRange& range) {
    return on_device ? range.device_end - range.device_begin : range.host_end - range.host_begin;
  };
  std::vector<int64_t> own(trace.ranges.size(), 0);
  for (size_t i = 0; i < trace.ranges.size(); ++i) {
    const TraceRange& range = trace.ranges[i];
    if (!counts(range)) continue;
    own[i] += length(range);
    if (range.parent >= 0) own[static_cast<size_t>(range.parent)] -= length(range);
  }
  // A range inside one of the same name and kind adds nothing to that name's total.
  const auto repeats = [&](const TraceRange& range) {
    for (int64_t at = range.parent; at >= 0; at = trace.ranges[static_cast<size_t>(at)].parent) {
      const TraceRange& outer = trace.ranges[static_cast<size_t>(at)];
      if (outer.kind == range.kind && std::string_view(outer.name) == range.name) return true;
    }
    return false;
  };
  std::map<std::tuple<TraceKind, std::string_view, std::string_view>, Row> totals;
  for (size_t i = 0; i < trace.ranges.size(); ++i) {
    const TraceRange& range = trace.ranges[i];
    if (!counts(range)) continue;
    Row& row = totals
                   .try_emplace({range.kind, range.name, range.kernel},
                                Row{range.name, range.kernel, range.kind})
                   .first->second;
    ++row.calls;
    row.own += own[i];
    if (!repeats(range)) row.total += length(range);
  }
  std::vector<Row> rows;
  for (const auto& [key, row] : totals) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.own > b.own; });
  return rows;
}

}  // namespace

void write_chrome_trace(ByteSink& sink, const Trace& trace) {
  const std::string device = device_name(trace.device);
  const bool on_device = trace.device.kind != DeviceKind::cpu;
  std::string text = concat(R"({"displayTimeUnit":"ms","otherData":{"device":")", device,
                            R"(","left_out":)", trace.left_out, R"(},"traceEvents":[)", '\n',
                            R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"trafo"}},)",
                            '\n', thread_name(kHostThread, "host"));
  if (on_device) text += ",\n" + thread_name(kDeviceThread, device);
  for (const TraceRange& range : trace.ranges) {
    text += ",\n" + event(trace, range, kHostThread, range.host_begin, range.host_end);
    if (range.on_device())
      text += ",\n" + event(trace, range, kDeviceThread, range.device_begin, range.device_end);
    if (text.size() < kChunk) continue;
    sink.write(text);
    text.clear();
  }
  sink.write(text + "\n]}\n");
}

std::string trace_table(const Trace& trace, size_t most_rows) {
  char line[160];
  std::snprintf(line, sizeof line, "%s ms on %s\n%-28s %-10s %8s %12s %12s %8s\n",
                milliseconds_text(trace.duration).c_str(), device_name(trace.device).c_str(), "op",
                "pass", "calls", "total ms", "own ms", "share");
  std::string text = line;
  const std::vector<Row> rows = rows_of(trace);
  for (const bool phases : {false, true}) {
    size_t shown = 0;
    Row others{"(others)", {}, TraceKind::forward};
    for (const Row& row : rows) {
      if ((row.kind == TraceKind::phase) != phases) continue;
      if (shown++ < most_rows) {
        text += row_text(row, trace.duration);
        continue;
      }
      others.calls += row.calls;
      others.total += row.total;
      others.own += row.own;
    }
    if (others.calls > 0) text += row_text(others, trace.duration);
  }
  if (trace.left_out > 0)
    text += concat(trace.left_out, " ranges were left out: a profile holds ", trace.ranges.size(),
                   "\n");
  return text;
}

}  // namespace trafo
