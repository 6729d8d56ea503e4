// Profiles: what is recorded, how it nests, and what becomes of it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/autograd/checkpoint.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/trace_report.h"
#include "tests/train/step/accelerator.h"

namespace trafo {
namespace {

using testing::StreamAccelerator;

std::unique_ptr<Context> cpu() {
  return make_context({DeviceKind::cpu, 0}, 1);
}

Tensor leaf(Context& context, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  Tensor tensor = context.from_values<float>(values, shape);
  set_requires_grad(tensor, true);
  return tensor;
}

// A little network of seven ops.
Tensor work(Context& context, const Tensor& x, const Tensor& weight, const Tensor& gamma) {
  const Tensor h = ops::linear(context, x, weight);
  const Tensor n = ops::layer_norm(context, h, gamma, gamma, 1e-5);
  const Tensor a = ops::activation(context, n, Activation::gelu);
  const Tensor t = ops::contiguous(context, ops::transpose(context, a, 0, 1));
  return ops::mean(context, ops::multiply(context, t, t));
}

Trace profile_of_work(Context& context) {
  Tensor x = leaf(context, {6, 8}), weight = leaf(context, {4, 8}), gamma = leaf(context, {4});
  context.start_profile();
  context.backward(work(context, x, weight, gamma));
  return context.finish_profile();
}

std::multiset<std::string> names_of(const Trace& trace, TraceKind kind) {
  std::multiset<std::string> names;
  for (const TraceRange& range : trace.ranges)
    if (range.kind == kind) names.insert(range.name);
  return names;
}

// Ranges with a begin, an end and everything inside the parent.
void expect_nested(const Trace& trace) {
  for (size_t i = 0; i < trace.ranges.size(); ++i) {
    const TraceRange& range = trace.ranges[i];
    EXPECT_LE(0, range.host_begin);
    EXPECT_LE(range.host_begin, range.host_end);
    EXPECT_LE(range.host_end, trace.duration);
    EXPECT_LE(range.device_begin, range.device_end);
    ASSERT_LT(range.parent, static_cast<int64_t>(i));
    if (range.parent < 0) continue;
    const TraceRange& outer = trace.ranges[static_cast<size_t>(range.parent)];
    EXPECT_LE(outer.host_begin, range.host_begin) << range.name;
    EXPECT_LE(range.host_end, outer.host_end) << range.name;
    if (!range.on_device() || !outer.on_device()) continue;
    EXPECT_LE(outer.device_begin, range.device_begin) << range.name;
    EXPECT_LE(range.device_end, outer.device_end) << range.name;
  }
}

TEST(Profiler, EveryRecordedOpHasItsBackward) {
  const auto context = cpu();
  const Trace trace = profile_of_work(*context);
  const std::multiset<std::string> ops{"linear",     "layer_norm", "activation", "transpose",
                                       "contiguous", "multiply",   "mean"};
  EXPECT_EQ(names_of(trace, TraceKind::forward), ops);
  EXPECT_EQ(names_of(trace, TraceKind::backward), ops);
  expect_nested(trace);
}

TEST(Profiler, RangesKnowTheInputs) {
  const auto context = cpu();
  const Trace trace = profile_of_work(*context);
  for (const TraceRange& range : trace.ranges) {
    if (std::string(range.name) != "linear") continue;
    ASSERT_EQ(range.inputs, 2);  // no bias
    const TraceInput* inputs = &trace.inputs[static_cast<size_t>(range.first_input)];
    EXPECT_EQ(inputs[0].shape, (Shape{6, 8}));
    EXPECT_EQ(inputs[1].shape, (Shape{4, 8}));
    EXPECT_EQ(inputs[0].dtype, DType::f32);
  }
}

TEST(Profiler, IsOffUntilItIsStartedAndAfterItHasEnded) {
  const auto context = cpu();
  EXPECT_EQ(context->profiler(), nullptr);
  EXPECT_THROW(context->finish_profile(), Error);
  EXPECT_FALSE(profile_of_work(*context).ranges.empty());
  EXPECT_EQ(context->profiler(), nullptr);
  EXPECT_FALSE(context->profiling());
  Tensor x = leaf(*context, {2, 8});
  context->start_profile();
  EXPECT_TRUE(context->finish_profile().ranges.empty());
}

TEST(Profiler, ForwardInsideBackwardIsCalledRecompute) {
  const auto context = cpu();
  Tensor x = leaf(*context, {4, 8}), weight = leaf(*context, {4, 8});
  context->start_profile();
  const Tensor y = checkpoint(*context, {x}, [&](Context& c, const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{ops::linear(c, inputs[0], weight)};
  })[0];
  context->backward(ops::sum(*context, y));
  const Trace trace = context->finish_profile();
  EXPECT_EQ(names_of(trace, TraceKind::recompute), (std::multiset<std::string>{"linear"}));
  EXPECT_EQ(names_of(trace, TraceKind::backward),
            (std::multiset<std::string>{"linear", "checkpoint", "sum"}));
  expect_nested(trace);
}

TEST(Profiler, EndsRangesThatAreOpenAndForgetsThem) {
  const auto context = cpu();
  Trace trace;
  {
    context->start_profile();
    const PhaseRange outer(*context, "outer", true);
    {
      const PhaseRange inner(*context, "inner", true);
      trace = context->finish_profile();
      context->start_profile();  // the two ranges belong to the one before
    }
  }
  ASSERT_EQ(trace.ranges.size(), 2u);
  expect_nested(trace);
  EXPECT_TRUE(context->finish_profile().ranges.empty());
}

TEST(Profiler, AnErrorInAnOpClosesItsRange) {
  const auto context = cpu();
  const Tensor a = leaf(*context, {2, 3}), b = leaf(*context, {4, 5});
  context->start_profile();
  EXPECT_THROW(ops::add(*context, a, b), Error);
  { const PhaseRange next(*context, "next", true); }
  const Trace trace = context->finish_profile();
  ASSERT_EQ(trace.ranges.size(), 2u);
  EXPECT_EQ(trace.ranges[1].parent, -1);
}

TEST(Profiler, HoldsOnlySoManyRanges) {
  const auto context = cpu();
  context->start_profile();
  for (size_t i = 0; i < Profiler::kMaxRanges + 3; ++i)
    const PhaseRange phase(*context, "phase", false);
  const Trace trace = context->finish_profile();
  EXPECT_EQ(trace.ranges.size(), Profiler::kMaxRanges);
  EXPECT_EQ(trace.left_out, 3);
  EXPECT_NE(trace_table(trace).find("3 ranges were left out"), std::string::npos);
}

// --- on a device ---

TEST(Profiler, DeviceTimesAreOnTheHostsClockAndReadLate) {
  auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  context.start_profile();
  const int64_t at_start = device->times_read, waits = device->waits;
  Tensor x = leaf(context, {6, 8}), weight = leaf(context, {4, 8}), gamma = leaf(context, {4});
  context.backward(work(context, x, weight, gamma));
  { const PhaseRange host_only(context, "host", false); }
  EXPECT_EQ(device->times_read, at_start) << "marks were read while ops were issued";
  EXPECT_EQ(device->waits, waits);
  const Trace trace = context.finish_profile();
  expect_nested(trace);
  for (const TraceRange& range : trace.ranges) {
    const bool host_only = std::string(range.name) == "host";
    EXPECT_EQ(range.on_device(), !host_only);
    if (host_only) continue;
    // This device is done when the host is: both tracks show one moment, but for the calibration.
    EXPECT_NEAR(static_cast<double>(range.device_begin), static_cast<double>(range.host_begin),
                2e6);
    EXPECT_NEAR(static_cast<double>(range.device_end), static_cast<double>(range.host_end), 2e6);
  }
}

TEST(Profiler, ReadsMarksBetweenRangesWhenThereAreMany) {
  auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  context.start_profile();
  for (int i = 0; i < 20000; ++i) {
    const PhaseRange outer(context, "outer", true);
    const PhaseRange inner(context, "inner", true);
  }
  EXPECT_LT(device->times.size(), 40000u);
  const Trace trace = context.finish_profile();
  ASSERT_EQ(trace.ranges.size(), 40000u);
  expect_nested(trace);
  int64_t last = -1;
  for (const TraceRange& range : trace.ranges) {
    ASSERT_TRUE(range.on_device());
    EXPECT_GE(range.device_end, range.device_begin);
    last = std::max(last, range.device_end);
  }
  EXPECT_LE(last, trace.duration + 2'000'000);
}

TEST(Profiler, RecordedWorkHasNoDeviceTimes) {
  Context context(std::make_shared<StreamAccelerator>());
  context.start_profile(true);
  {
    const PhaseRange phase(context, "outer", true);
    const Profiler::NoDeviceTimes recorded(context.profiler());
    const PhaseRange inner(context, "inner", true);
  }
  const Trace trace = context.finish_profile();
  EXPECT_TRUE(trace.ranges.at(0).on_device());
  EXPECT_FALSE(trace.ranges.at(1).on_device());
}

TEST(Profiler, ALostDeviceIsAnErrorOfTheOpAndOfTheEnd) {
  auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  Tensor x = leaf(context, {6, 8});
  context.start_profile();
  device->lost = true;
  EXPECT_THROW(ops::mean(context, x), Error);
  device->lost = false;
  EXPECT_TRUE(context.profiling());
  context.finish_profile();
}

TEST(Profiler, StepsKeepTheirGraphsOnlyIfAsked) {
  Context context(std::make_shared<StreamAccelerator>());
  EXPECT_TRUE(context.graphs());
  context.start_profile(false);
  EXPECT_FALSE(context.graphs());
  context.start_profile(true);
  EXPECT_TRUE(context.graphs());
  context.set_graphs(false);
  EXPECT_FALSE(context.graphs());
  context.finish_profile();
}

TEST(Profiler, AToolThatLooksOnGetsNamesWithoutAProfile) {
  auto device = std::make_shared<StreamAccelerator>();
  device->watched = true;
  Context context(device);
  Tensor x = leaf(context, {6, 8});
  context.backward(ops::mean(context, x));
  EXPECT_EQ(device->names, (std::vector<std::string>{"mean forward", "mean backward"}));
  EXPECT_EQ(device->open_names, 0);
  EXPECT_TRUE(device->times.empty());
  context.start_profile();
  { const PhaseRange phase(context, "phase", true); }
  EXPECT_EQ(context.finish_profile().ranges.size(), 1u);
  EXPECT_EQ(device->names.back(), "phase phase");
  EXPECT_NE(context.profiler(), nullptr) << "the tool still looks on";
}

// --- what is made of a trace ---

nlohmann::json written(const Trace& trace) {
  MemorySink sink;
  write_chrome_trace(sink, trace);
  const auto& bytes = sink.bytes();
  return nlohmann::json::parse(reinterpret_cast<const char*>(bytes.data()),
                               reinterpret_cast<const char*>(bytes.data()) + bytes.size());
}

TEST(ChromeTrace, HoldsEveryRangeOnItsTracks) {
  Context context(std::make_shared<StreamAccelerator>());
  const Trace trace = profile_of_work(context);
  const nlohmann::json json = written(trace);
  std::map<int, size_t> events;
  std::set<std::string> tracks;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "M") {
      tracks.insert(event.at("args").at("name").get<std::string>());
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    ++events[event.at("tid").get<int>()];
    EXPECT_GE(event.at("dur").get<double>(), 0);
    EXPECT_TRUE(event.at("ts").is_number());
    EXPECT_EQ(event.at("args").at("device"), "cuda:0");
    if (event.at("name") == "linear") {
      EXPECT_EQ(event.at("args").at("inputs"), "float32 [6, 8], float32 [4, 8]");
      EXPECT_EQ(event.at("args").at("input_bytes"), (48 + 32) * 4);
    }
  }
  EXPECT_EQ(events[1], trace.ranges.size());
  EXPECT_EQ(events[2], trace.ranges.size());
  EXPECT_EQ(tracks, (std::set<std::string>{"trafo", "host", "cuda:0"}));
}

TEST(ChromeTrace, OfNothingIsValid) {
  const auto context = cpu();
  context->start_profile();
  EXPECT_EQ(written(context->finish_profile()).at("traceEvents").size(), 2u);
}

TEST(TraceTable, ARangeInsideOneOfItsNameAddsNothingToTheTotal) {
  Trace trace;
  trace.duration = 10'000'000;
  trace.ranges = {{"same", TraceKind::forward, -1, 0, 6'000'000},
                  {"same", TraceKind::forward, 0, 1'000'000, 3'000'000},
                  {"same", TraceKind::forward, -1, 7'000'000, 8'000'000}};
  const std::string table = trace_table(trace);
  EXPECT_NE(table.find("        3        7.000        7.000   70.0 %"), std::string::npos) << table;
}

// A trace with times that are known.
TEST(TraceTable, CountsWhatRunsInsideOnce) {
  Trace trace;
  trace.duration = 10'000'000;
  trace.ranges = {{"step", TraceKind::phase, -1, 0, 8'000'000},
                  {"outer", TraceKind::forward, 0, 0, 6'000'000},
                  {"inner", TraceKind::forward, 1, 1'000'000, 3'000'000},
                  {"inner", TraceKind::backward, 0, 6'000'000, 7'000'000}};
  const std::string table = trace_table(trace);
  EXPECT_EQ(table.find("left out"), std::string::npos) << table;
  const auto row = [&](const std::string& begin) {
    const size_t at = table.find(begin);
    return at == std::string::npos ? "" : table.substr(at, table.find('\n', at) - at);
  };
  const auto expect = [&](const char* name, const char* pass, const char* figures) {
    char start[64];
    std::snprintf(start, sizeof start, "%-28s %-10s", name, pass);
    EXPECT_EQ(row(start), std::string(start) + figures) << table;
  };
  expect("outer", "forward", "        1        6.000        4.000   40.0 %");
  expect("inner", "forward", "        1        2.000        2.000   20.0 %");
  expect("inner", "backward", "        1        1.000        1.000   10.0 %");
  expect("step", "phase", "        1        8.000        1.000   10.0 %");
  EXPECT_LT(table.find("outer"), table.find("inner"));
  EXPECT_LT(table.rfind("inner"), table.find("step")) << table;  // phases come after all ops
}

}  // namespace
}  // namespace trafo
