// Unstructured pruning in training: the schedule, and that pruned weights stay zero.
#include <cmath>
#include <limits>

#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/prune_schedule.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions pruning_options(double sparsity, int64_t start, int64_t end, int64_t every) {
  TrainOptions options = quick_options();
  options.prune_sparsity = sparsity;
  options.prune_start = start;
  options.prune_end = end;
  options.prune_every = every;
  return options;
}

std::vector<double> doubles_of(const Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return context.values<double>(tensor.detach());
  const auto values = context.values<float>(tensor.detach());
  return {values.begin(), values.end()};
}

// Zeros of each parameter, in a tensor that is laid out like the master.
std::vector<int64_t> zeros_of(const Context& context, const Model& model, const Tensor& workspace) {
  const std::vector<double> values = doubles_of(context, workspace);
  const ParameterStore& parameters = model.parameters();
  std::vector<int64_t> zeros;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const auto begin = values.begin() + parameters.offset(id);
    zeros.push_back(std::count(begin, begin + element_count(parameters.shape(id)), 0.0));
  }
  return zeros;
}

// That the linear layers have this sparsity, and that nothing else has been pruned.
void expect_sparsity(const Context& context, const Model& model, const Tensor& workspace,
                     double sparsity, const std::string& what) {
  const std::vector<int64_t> zeros = zeros_of(context, model, workspace);
  const ParameterStore& parameters = model.parameters();
  int64_t pruned = 0;
  for (size_t i = 0; i < zeros.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::string& name = parameters.name(id);
    const bool linear = name.starts_with("encoder.") || name.starts_with("decoder.");
    const bool matrix = parameters.shape(id).rank() == 2;
    EXPECT_EQ(parameters.prunable(id), linear && matrix) << name;
    if (parameters.prunable(id)) {
      const auto count = static_cast<double>(element_count(parameters.shape(id)));
      EXPECT_EQ(zeros[i], std::llround(sparsity * count)) << name << ", " << what;
      ++pruned;
    } else if (matrix) {
      EXPECT_EQ(zeros[i], 0) << name << ", " << what;
    }
  }
  EXPECT_GE(pruned, 4);
}

TEST(PruneSchedule, IsCubicFromStartToEnd) {
  const TrainOptions options = pruning_options(0.8, 10, 110, 30);
  std::vector<int64_t> updates;
  for (int64_t update = 1; update < 300; ++update)
    if (prunes_before(options, update)) updates.push_back(update);
  EXPECT_EQ(updates, (std::vector<int64_t>{10, 40, 70, 100, 110}));
  EXPECT_EQ(scheduled_sparsity(options, 10), 0);
  EXPECT_NEAR(scheduled_sparsity(options, 60), 0.8 * (1 - 0.125), 1e-15);
  EXPECT_NEAR(scheduled_sparsity(options, 35), 0.8 * (1 - 27.0 / 64), 1e-15);
  EXPECT_EQ(scheduled_sparsity(options, 110), 0.8);
}

TEST(PruneSchedule, WithoutAnEndItIsOnce) {
  const TrainOptions options = pruning_options(0.8, 10, 0, 30);
  for (int64_t update = 1; update < 300; ++update)
    EXPECT_EQ(prunes_before(options, update), update == 10);
  EXPECT_EQ(scheduled_sparsity(options, 10), 0.8);
  EXPECT_FALSE(prunes_before(pruning_options(0, 10, 20, 1), 10));
}

struct PruningForm {
  const char* name;
  std::unique_ptr<Context> (*make)();
  DType dtype = DType::f32;
  OptimizerStates states = OptimizerStates::float32;
  int64_t quantize_bits = 0;
};

std::unique_ptr<Context> pruning_on_cpu() {
  return make_context({DeviceKind::cpu, 0}, 2);
}

class PruningTest : public ::testing::TestWithParam<PruningForm> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
    model_ = make_model(*context_, tiny_config(), 5, GetParam().dtype);
  }
  TrainOptions with_form(TrainOptions options) const {
    options.optimizer_states = GetParam().states;
    options.quantize_bits = GetParam().quantize_bits;
    options.ema_alpha = 0.1;
    options.weight_decay = 0.05;
    return options;
  }
  const Tensor& weights() const { return model_->parameters().master(); }

  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  std::vector<PackedBatchHost> data_ = copy_batches(Architecture::encoder_decoder, 12);
};

INSTANTIATE_TEST_SUITE_P(
    Devices, PruningTest,
    ::testing::Values(
        PruningForm{"Cpu", pruning_on_cpu}, PruningForm{"CpuDouble", pruning_on_cpu, DType::f64},
        PruningForm{"CpuEightBit", pruning_on_cpu, DType::f32, OptimizerStates::eight_bit},
        PruningForm{"CpuBits8", pruning_on_cpu, DType::f32, OptimizerStates::float32, 8},
        PruningForm{"StandIn", stand_in}, PruningForm{"Cuda", cuda_context},
        PruningForm{"CudaBfloat16", cuda_context, DType::bf16},
        PruningForm{"CudaEightBit", cuda_context, DType::bf16, OptimizerStates::eight_bit}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(PruningTest, TheSparsityFollowsTheScheduleAndZerosStay) {
  const TrainOptions options = with_form(pruning_options(0.8, 3, 9, 2));
  Trainer trainer(*context_, *model_, options);
  std::vector<double> before;
  for (size_t u = 1; u <= data_.size(); ++u) {
    EXPECT_FALSE(trainer.step(std::span(data_).subspan(u - 1, 1)).skipped);
    const auto update = static_cast<int64_t>(u);
    const int64_t last = update < 3 ? 0 : update >= 9 ? 9 : update % 2 == 1 ? update : update - 1;
    const double sparsity = last == 0 ? 0 : scheduled_sparsity(options, last);
    const std::string what = concat("update ", update);
    expect_sparsity(*context_, *model_, weights(), sparsity, what);
    expect_sparsity(*context_, *model_, trainer.ema_weights(), sparsity, what + ", EMA");
    const std::vector<double> values = doubles_of(*context_, weights());
    int64_t moved = 0;
    for (size_t i = 0; i < before.size(); ++i) moved += before[i] != values[i] ? 1 : 0;
    EXPECT_TRUE(before.empty() || moved > std::ssize(values) / 10) << what;
    before = values;
  }
  // The weights that the model computes with.
  const std::vector<int64_t> exact = zeros_of(*context_, *model_, weights());
  for (size_t i = 0; i < exact.size(); ++i) {
    const Tensor value = model_->parameters().value(static_cast<ParamId>(i)).detach();
    if (value.dtype() == DType::bf16) continue;
    const std::vector<double> used = doubles_of(*context_, value);
    EXPECT_GE(std::count(used.begin(), used.end(), 0.0), exact[i]);
  }
}

// An accelerator has updates in flight when one of them is skipped: the schedule counts those that
// are applied.
TEST_P(PruningTest, ASkippedUpdateDoesNotMoveTheSchedule) {
  const TrainOptions options = with_form(pruning_options(0.8, 4, 0, 1));
  Trainer trainer(*context_, *model_, options);
  trainer.step(std::span(data_).subspan(0, 1));
  // A weight that is no number, in the output bias.
  const ParamId id = model_->parameters().find("output.bias");
  ASSERT_NE(id, kNoParam);
  const size_t bytes = static_cast<size_t>(element_count(model_->parameters().shape(id))) *
                       dtype_size(weights().dtype());
  std::vector<std::byte> good(bytes), spoilt(bytes, std::byte{0xff});
  model_->parameters().get_value(*context_, id, good.data(), bytes);
  model_->parameters().set_value(*context_, id, spoilt.data(), bytes);
  const auto run = [&](size_t first, size_t count) {
    size_t skipped = 0;
    for (size_t i = 0; i < count; ++i) {
      trainer.submit(std::span(data_).subspan(first + i, 1));
      if (!trainer.works_ahead()) skipped += trainer.await().skipped ? 1 : 0;
    }
    while (trainer.in_flight() > 0) skipped += trainer.await().skipped ? 1 : 0;
    return skipped;
  };
  EXPECT_EQ(run(1, 3), 3u);
  model_->parameters().set_value(*context_, id, good.data(), bytes);
  expect_sparsity(*context_, *model_, weights(), 0, "after the skipped updates");
  EXPECT_EQ(run(4, 2), 0u);
  EXPECT_EQ(trainer.state().update, 3);
  expect_sparsity(*context_, *model_, weights(), 0, "update 3");
  EXPECT_EQ(run(6, 4), 0u);
  expect_sparsity(*context_, *model_, weights(), 0.8, "update 7");
}

TEST_P(PruningTest, InFlightOrNotTheBitsAreTheSame) {
  const TrainOptions options = with_form(pruning_options(0.7, 2, 8, 3));
  const auto other = make_model(*context_, tiny_config(), 5, GetParam().dtype);
  Trainer one(*context_, *model_, options), ahead(*context_, *other, options);
  for (size_t i = 0; i < data_.size(); ++i) {
    one.step(std::span(data_).subspan(i, 1));
    ahead.submit(std::span(data_).subspan(i, 1));
    if (!ahead.works_ahead() || ahead.in_flight() == Trainer::kMaxInFlight) ahead.await();
  }
  while (ahead.in_flight() > 0) ahead.await();
  EXPECT_EQ(weight_bytes(*context_, *model_), weight_bytes(*context_, *other));
}

// The gradient's norm, which clips it, covers the remaining weights.
TEST_P(PruningTest, PrunedWeightsHaveNoGradient) {
  const TrainOptions options = with_form(pruning_options(0.9, 1, 0, 1));
  const auto other = make_model(*context_, tiny_config(), 5, GetParam().dtype);
  Trainer pruned(*context_, *model_, options);
  TrainOptions dense = options;
  dense.prune_sparsity = 0;
  Trainer free(*context_, *other, dense);
  // From the same pruned weights.
  const StepResult first = pruned.step(std::span(data_).subspan(0, 1));
  const auto& parameters = other->parameters();
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    std::vector<std::byte> bytes(static_cast<size_t>(element_count(parameters.shape(id))) *
                                 dtype_size(weights().dtype()));
    model_->parameters().get_value(*context_, id, bytes.data(), bytes.size());
    other->parameters().set_value(*context_, id, bytes.data(), bytes.size());
  }
  const StepResult with = pruned.step(std::span(data_).subspan(1, 1));
  const StepResult without = free.step(std::span(data_).subspan(1, 1));
  EXPECT_GT(first.grad_norm, 0);
  EXPECT_GT(without.grad_norm, 1.05 * with.grad_norm);
}

TEST_P(PruningTest, KeepZerosKeepsThemAndPrunesNothing) {
  TrainOptions options = with_form(quick_options());
  ParameterStore& parameters = model_->parameters();
  // A pattern that no score would choose.
  const ParamId id = parameters.find("encoder.0.ffn.up.weight");
  const auto set = [&]<class T>(T) {
    std::vector<T> values(static_cast<size_t>(element_count(parameters.shape(id))));
    parameters.get_value(*context_, id, values.data(), values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); i += 4) values[i] = values[i + 1] = 0;
    parameters.set_value(*context_, id, values.data(), values.size() * sizeof(T));
  };
  GetParam().dtype == DType::f64 ? set(double{}) : set(float{});
  options.keep_zeros = true;
  Trainer trainer(*context_, *model_, options);
  for (const PackedBatchHost& batch : data_) trainer.step({&batch, 1});
  const auto values = doubles_of(*context_, weights());
  const auto zeros = zeros_of(*context_, *model_, weights());
  for (size_t i = 0; i < zeros.size(); ++i) {
    if (!parameters.prunable(static_cast<ParamId>(i))) continue;
    const bool sparse = static_cast<ParamId>(i) == id;
    EXPECT_EQ(zeros[i], sparse ? element_count(parameters.shape(id)) / 2 : 0);
  }
  for (int64_t i = 0; i < element_count(parameters.shape(id)); ++i)
    EXPECT_EQ(values[static_cast<size_t>(parameters.offset(id) + i)] == 0, i % 4 < 2);
}

TEST(PruningOptions, WhatCannotBeIsNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  const auto refused = [&](const TrainOptions& options, const char* text) {
    expect_error(ErrorCode::invalid_argument, text, [&] { Trainer(*context, *model, options); });
  };
  for (const double sparsity : {1.0, -0.1, 80.0, std::numeric_limits<double>::quiet_NaN()})
    refused(pruning_options(sparsity, 1, 0, 1), "prune_sparsity");
  refused(pruning_options(0.5, 0, 0, 1), "prune_start");
  refused(pruning_options(0.5, 10, 9, 1), "prune_end must be 0 (where pruning starts) or at least");
  refused(pruning_options(0.5, 1, 0, 0), "prune_every");
  model->parameters().set_trainable(*context, "encoder.*", false);
  model->parameters().set_trainable(*context, "decoder.*", false);
  refused(pruning_options(0.5, 1, 0, 1), "prune_sparsity: every linear layer is frozen");
  TrainOptions keep = quick_options();
  keep.keep_zeros = true;
  refused(keep, "keep_zeros: every linear layer is frozen");
}

TEST(PruningOptions, FrozenLayersAreNotPruned) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  ParameterStore& parameters = model->parameters();
  parameters.set_trainable(*context, "encoder.*", false);
  Trainer trainer(*context, *model, pruning_options(0.5, 1, 0, 1));
  trainer.step(copy_batches(Architecture::encoder_decoder, 1));
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.prunable(id)) continue;
    const auto values = context->values<float>(parameters.value(id).detach());
    const auto zeros = std::count(values.begin(), values.end(), 0.0f);
    EXPECT_EQ(zeros, parameters.trainable(id) ? std::ssize(values) / 2 : 0) << parameters.name(id);
  }
}

TEST(PruningOptions, ThePlanIsWhatTheRunTakes) {
  TrainOptions options = pruning_options(0.5, 2, 40, 3);
  options.log_freq = options.save_freq = options.valid_freq = {0, PeriodUnit::updates};
  Process process(copy_data(Architecture::encoder_decoder, 200), options, std::nullopt, 1);
  process.run->run({}, nullptr, 60);
  EXPECT_EQ(process.context->backend().memory_stats().peak_bytes, process.run->plan().memory.total);
  Process plain(copy_data(Architecture::encoder_decoder, 200), quick_options(), std::nullopt, 1);
  EXPECT_GT(process.run->plan().memory.optimizer, plain.run->plan().memory.optimizer);
}

// Early stopping does not count validations before the end of the schedule, and the best checkpoint
// is not from before it.
TEST(PruningOptions, DenserModelsDoNotCompete) {
  const TemporaryDirectory directory;
  TrainOptions options = pruning_options(0.9, 2, 20, 6);
  options.valid_freq = {3, PeriodUnit::updates};
  options.early_stopping = 1;
  options.after_updates = 30;
  Process process(copy_data(), options, directory.path());
  std::vector<int64_t> improved;
  process.run->run([&](const TrainEvent& event) {
    if (event.kind == TrainEventKind::validated) {
      EXPECT_TRUE(event.update >= 20 || !event.metrics[0].improved) << event.update;
      EXPECT_TRUE(event.update >= 20 || event.stalled == 0);
      if (event.metrics[0].improved) improved.push_back(event.update);
    }
    return 0;
  });
  ASSERT_FALSE(improved.empty());
  EXPECT_EQ(improved[0], 21);
  EXPECT_GE(process.run->state().best[0].second->update, 21);
}

TEST(PruningOptions, ARunKeepsItsSchedule) {
  const TemporaryDirectory directory;
  TrainOptions options = pruning_options(0.8, 2, 12, 2);
  options.after_updates = 6;
  Process(copy_data(), options, directory.path()).run->run();
  for (auto change : {+[](TrainOptions& o) { o.prune_sparsity = 0.7; },
                      +[](TrainOptions& o) { o.prune_end = 20; },
                      +[](TrainOptions& o) { o.keep_zeros = true; }}) {
    TrainOptions changed = options;
    change(changed);
    EXPECT_EQ(code_of([&] { Process(copy_data(), changed, directory.path()); }),
              ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace trafo
