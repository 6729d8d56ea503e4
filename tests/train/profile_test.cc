// Profiles of training: the phases and ops of steps, on the CPU, on a stand-in device and, with
// TRAFO_TEST_DEVICE=cuda, on a GPU; and that they change nothing.
#include <algorithm>
#include <set>
#include <string>

#include "engine/train/step/trainer.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr Architecture kModel = Architecture::encoder_decoder;

std::set<std::string> names_of(const Trace& trace, TraceKind kind) {
  std::set<std::string> names;
  for (const TraceRange& range : trace.ranges)
    if (range.kind == kind) names.insert(range.name);
  return names;
}

int64_t count_of(const Trace& trace, const std::string& name) {
  return std::count_if(trace.ranges.begin(), trace.ranges.end(),
                       [&](const TraceRange& range) { return range.name == name; });
}

// On both tracks, within what two clocks may differ by.
void expect_nested(const Trace& trace) {
  for (const TraceRange& range : trace.ranges) {
    EXPECT_LE(range.host_begin, range.host_end) << range.name;
    EXPECT_LE(range.device_begin, range.device_end) << range.name;
    if (range.parent < 0) continue;
    const TraceRange& outer = trace.ranges[static_cast<size_t>(range.parent)];
    EXPECT_LE(outer.host_begin, range.host_begin) << range.name;
    EXPECT_LE(range.host_end, outer.host_end) << range.name;
    if (!range.on_device() || !outer.on_device()) continue;
    EXPECT_LE(outer.device_begin, range.device_begin) << range.name;
    EXPECT_LE(range.device_end, outer.device_end) << range.name;
  }
}

std::unique_ptr<Context> cpu() {
  return make_context({DeviceKind::cpu, 0}, 1);
}
class ProfileTest : public ::testing::TestWithParam<TestDevice> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  bool on_device() const { return context_->backend().stream_device() != nullptr; }
  bool on_gpu() const { return on_device() && context_->graphs(); }

  // `profiled`: updates 4 and 5 of 8. Batches of one shape, so that a GPU has recorded them before.
  std::vector<std::byte> train(bool profiled, bool keep_graphs = false) {
    // The stand-in device cannot drop what a device step asks for.
    const auto model =
        make_model(*context_, tiny_config(kModel, on_device() && !on_gpu() ? 0 : 0.2), 5);
    Trainer trainer(*context_, *model, quick_options());
    const auto batches = copy_batches(kModel, 2);
    for (int update = 1; update <= 8; ++update) {
      if (profiled && update == 4) context_->start_profile(keep_graphs);
      trainer.step(std::span(batches).first(update == 5 ? 2 : 1));
      if (profiled && update == 5) trace_ = context_->finish_profile();
    }
    return weight_bytes(*context_, *model);
  }

  std::unique_ptr<Context> context_;
  Trace trace_;
};

INSTANTIATE_TEST_SUITE_P(Devices, ProfileTest,
                         ::testing::Values(TestDevice{"Cpu", &cpu},
                                           TestDevice{"StandIn", &stand_in},
                                           TestDevice{"Cuda", &cuda_context}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(ProfileTest, ChangesNoBit) {
  const auto plain = train(false);
  EXPECT_EQ(train(true), plain);
  EXPECT_EQ(train(true, true), plain);
}

TEST_P(ProfileTest, ShowsPhasesAndEveryOpOfAStepWithItsBackward) {
  train(true);
  expect_nested(trace_);
  EXPECT_EQ(count_of(trace_, "step"), 2);
  EXPECT_EQ(count_of(trace_, "upload"), 3);
  EXPECT_EQ(count_of(trace_, "update"), 2);
  EXPECT_EQ(count_of(trace_, "clipped_update"), 2);
  EXPECT_EQ(count_of(trace_, "wait"), 2);
  const std::set<std::string> phases = names_of(trace_, TraceKind::phase);
  EXPECT_TRUE(phases.contains("forward") && phases.contains("backward"));
  const std::set<std::string> forward = names_of(trace_, TraceKind::forward),
                              backward = names_of(trace_, TraceKind::backward);
  for (const char* op :
       {"embedding", "linear", "attention", "layer_norm", "linear_cross_entropy"}) {
    EXPECT_TRUE(forward.contains(op)) << op;
    EXPECT_TRUE(backward.contains(op)) << op;
  }
  // An op with a backward was seen forward.
  for (const std::string& op : backward) EXPECT_TRUE(forward.contains(op)) << op;
}

TEST_P(ProfileTest, DeviceTimesAreThereAndInOrder) {
  train(true);
  int64_t last = 0;
  for (const TraceRange& range : trace_.ranges) {
    const std::set<std::string> host_only{"wait", "planning"};
    EXPECT_EQ(range.on_device(), on_device() && !host_only.contains(range.name)) << range.name;
    if (!range.on_device()) continue;
    EXPECT_GE(range.device_begin, last) << range.name;  // one stream
    last = range.device_begin;
    // Work is not done before it is issued; clocks are matched to a few microseconds.
    EXPECT_GE(range.device_end, range.host_begin - 1'000'000) << range.name;
    EXPECT_LE(range.device_end, trace_.duration + 1'000'000) << range.name;
  }
}

TEST_P(ProfileTest, AStepThatStaysAGraphIsOneRange) {
  if (!on_gpu()) GTEST_SKIP() << "no graphs here";
  train(true, true);
  expect_nested(trace_);
  EXPECT_GE(count_of(trace_, "graph replay"), 2);
  for (const TraceRange& range : trace_.ranges)
    if (std::string(range.name) == "graph replay") {
      EXPECT_GT(range.device_end, range.device_begin);
    }
}

TEST(ProfileOfARun, ShowsBatchesValidationAndSaves) {
  const TemporaryDirectory directory;
  TrainOptions options = quick_options();
  options.after_updates = 10;
  options.valid_metrics = {"ce-mean-words"};
  const Process plain(copy_data(), options), profiled(copy_data(), options, directory.path());
  plain.run->run();
  profiled.context->start_profile();
  profiled.run->run();
  const Trace trace = profiled.context->finish_profile();
  EXPECT_EQ(profiled.weights(), plain.weights());
  expect_nested(trace);
  EXPECT_EQ(count_of(trace, "batch"), 10);
  EXPECT_EQ(count_of(trace, "step"), 10);
  EXPECT_EQ(count_of(trace, "validation"), 2);
  EXPECT_GE(count_of(trace, "save"), 2);
}

}  // namespace
}  // namespace trafo
