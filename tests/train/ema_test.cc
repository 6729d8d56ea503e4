// EMA: a mean beside the weights, which is what is measured and kept.
#include <cmath>

#include "engine/models/model_io.h"
#include "engine/train/plan/memory_plan.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions ema_options(double share, OptimizerStates states = OptimizerStates::float32) {
  TrainOptions options = quick_options();
  options.ema_alpha = share;
  options.optimizer_states = states;
  return options;
}

std::vector<double> numbers_of(Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return context.values<double>(tensor.detach());
  const auto values = context.values<float>(tensor.detach());
  return {values.begin(), values.end()};
}

std::unique_ptr<Context> on_cpu() {
  return make_context({DeviceKind::cpu, 0}, 1);
}
struct Where {
  const char* name;
  std::unique_ptr<Context> (*make)();
  DType dtype = DType::f32;
};

class EmaTest : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  std::unique_ptr<Model> new_model() {
    return make_model(*context_, tiny_config(), 5, GetParam().dtype);
  }
  const Tensor& weights(const Model& model) const { return model.parameters().master(); }

  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, EmaTest,
                         ::testing::Values(Where{"Cpu", on_cpu},
                                           Where{"CpuDouble", on_cpu, DType::f64},
                                           Where{"StandIn", stand_in}, Where{"Cuda", cuda_context},
                                           Where{"CudaBfloat16", cuda_context, DType::bf16}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(EmaTest, IsTheMeanOfTheWeightsOfAllUpdates) {
  const auto data = copy_batches(Architecture::encoder_decoder, 12);
  constexpr double kShare = 0.2;
  for (const auto states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    if (states == OptimizerStates::eight_bit && GetParam().dtype == DType::f64) continue;
    const auto model = new_model(), plain = new_model();
    Trainer trainer(*context_, *model, ema_options(kShare, states));
    Trainer without(*context_, *plain, ema_options(0, states));
    EXPECT_TRUE(trainer.ema().defined());
    EXPECT_FALSE(without.ema().defined());
    EXPECT_EQ(trainer.ema_weights().raw(), weights(*model).raw());  // before an update
    std::vector<double> mean;
    for (size_t u = 0; u < data.size(); ++u) {
      trainer.step(std::span(data).subspan(u, 1));
      without.step(std::span(data).subspan(u, 1));
      const auto values = numbers_of(*context_, weights(*model));
      // 1, 9/10, 9/11, ... of it until that is less than the share.
      const double share = std::max(kShare, 9.0 / static_cast<double>(u + 9));
      mean.resize(values.size());
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += share * (values[i] - mean[i]);
    }
    const auto smoothed = numbers_of(*context_, trainer.ema_weights());
    double apart = 0;
    const auto last = numbers_of(*context_, weights(*model));
    for (size_t i = 0; i < mean.size(); ++i) {
      ASSERT_NEAR(smoothed[i], mean[i], 1e-6) << i;
      apart = std::max(apart, std::abs(smoothed[i] - last[i]));
    }
    EXPECT_GT(apart, 1e-3);  // it is not the weights themselves
    EXPECT_EQ(bytes_of(*context_, weights(*model)), bytes_of(*context_, weights(*plain)));
  }
}

TEST_P(EmaTest, TheEarlyShareFallsToTheGivenOne) {
  EXPECT_EQ(ema_weight(1e-4, 1), 1);
  EXPECT_EQ(ema_weight(1e-4, 2), 0.9);
  EXPECT_EQ(ema_weight(1e-4, 10), 0.5);
  EXPECT_GT(ema_weight(1e-4, 80000), 1e-4);
  EXPECT_EQ(ema_weight(1e-4, 90000), 1e-4);
  EXPECT_EQ(ema_weight(0.5, 100), 0.5);
}

TEST_P(EmaTest, SkippedUpdatesLeaveTheMean) {
  const auto data = copy_batches(Architecture::encoder_decoder, 4);
  const auto model = new_model();
  Trainer trainer(*context_, *model, ema_options(0.3));
  for (size_t u = 0; u < 3; ++u) trainer.step(std::span(data).subspan(u, 1));
  const auto before = bytes_of(*context_, trainer.ema_weights());
  const ParamId id = 0;
  std::vector<std::byte> spoilt(static_cast<size_t>(model->parameters().value(id).numel()) *
                                dtype_size(weights(*model).dtype()));
  std::memset(spoilt.data(), 0xff, spoilt.size());  // NaN in every format
  model->parameters().set_value(*context_, id, spoilt.data(), spoilt.size());
  EXPECT_TRUE(trainer.step(std::span(data).subspan(3, 1)).skipped);
  EXPECT_EQ(bytes_of(*context_, trainer.ema_weights()), before);
}

TEST_P(EmaTest, TheModelComputesWithTheMeanForAWhile) {
  const auto data = copy_batches(Architecture::encoder_decoder, 6);
  const auto model = new_model();
  Trainer trainer(*context_, *model, ema_options(0.2));
  {
    const auto before = bytes_of(*context_, model->parameters().flat());
    const EmaWeights nothing_yet(trainer);
    EXPECT_EQ(bytes_of(*context_, model->parameters().flat()), before);
  }
  for (size_t u = 0; u < data.size(); ++u) trainer.step(std::span(data).subspan(u, 1));
  const auto values = bytes_of(*context_, model->parameters().flat());
  const auto master = bytes_of(*context_, weights(*model));
  const auto mean = bytes_of(*context_, trainer.ema_weights());
  {
    const EmaWeights scope(trainer);
    const auto now = bytes_of(*context_, model->parameters().flat());
    EXPECT_NE(now, values);
    if (!model->parameters().has_master()) {
      EXPECT_EQ(now, mean);
    }
  }
  EXPECT_EQ(bytes_of(*context_, model->parameters().flat()), values);
  EXPECT_EQ(bytes_of(*context_, weights(*model)), master);
  EXPECT_EQ(bytes_of(*context_, trainer.ema_weights()), mean);
}

TEST_P(EmaTest, UpdatesInFlightAreTheSameBits) {
  const auto data = copy_batches(Architecture::encoder_decoder, 8);
  const auto one = new_model(), two = new_model();
  Trainer a(*context_, *one, ema_options(0.2)), b(*context_, *two, ema_options(0.2));
  for (size_t u = 0; u < data.size(); ++u) {
    a.step(std::span(data).subspan(u, 1));
    b.submit(std::span(data).subspan(u, 1));
    if (!b.works_ahead()) b.await();
  }
  while (b.in_flight() > 0) b.await();
  EXPECT_EQ(bytes_of(*context_, a.ema_weights()), bytes_of(*context_, b.ema_weights()));
  EXPECT_NE(bytes_of(*context_, a.ema_weights()), bytes_of(*context_, weights(*one)));
}

TEST_P(EmaTest, ThePlanCountsTheMean) {
  const BatchSizes sizes{4, 40, 40};
  const Device device = context_->device();
  const DType dtype = GetParam().dtype;
  const MemoryPlan plain = plan_training(device, tiny_config(), dtype, ema_options(0), sizes);
  const MemoryPlan more = plan_training(device, tiny_config(), dtype, ema_options(0.1), sizes);
  const auto model = new_model();
  const auto bytes = static_cast<int64_t>(weights(*model).bytes());
  EXPECT_EQ(more.optimizer, plain.optimizer + bytes);
  EXPECT_GE(more.total, plain.total + bytes);
}

// --- runs ---

TEST(EmaRun, TheMeanIsMeasuredAndSavedAndTrainingIsAsWithout) {
  const TrainingData data = copy_data();
  TrainOptions options = ema_options(0.1);
  options.after_updates = 21;
  const TemporaryDirectory directory;
  Process smoothed(data, options, directory.path());
  double measured = 0;
  smoothed.run->run([&](const TrainEvent& event) {
    if (event.kind == TrainEventKind::validated && event.update == 21)
      measured = event.metrics.front().value;
    return 0;
  });
  Context& context = *smoothed.context;
  const auto saved = load_model(context, directory / "ckpt/21" / kModelFile);
  const auto raw = load_model(context, directory / "ckpt/21" / kUnsmoothedFile);
  EXPECT_EQ(weight_bytes(context, *raw), smoothed.weights());
  EXPECT_NE(weight_bytes(context, *saved), smoothed.weights());
  EXPECT_EQ(measured, mean_cross_entropy(context, *saved, *data.valid, data.tokens));
  EXPECT_NE(measured, mean_cross_entropy(context, *raw, *data.valid, data.tokens));
  EXPECT_EQ(smoothed.run->validate()->values.front(), measured);

  options.ema_alpha = 0;
  EXPECT_EQ(uncut(data, options, 21).weights, smoothed.weights());
}

TEST(EmaRun, ADamagedOrMissingFileIsNotGoneOnFrom) {
  const TrainingData data = copy_data();
  TrainOptions options = ema_options(0.1);
  options.after_updates = 12;
  const TemporaryDirectory directory;
  Process(data, options, directory.path()).run->run();
  std::filesystem::remove(directory / "ckpt/12" / kUnsmoothedFile);
  options.after_updates = 15;
  Process process(data, options, directory.path());
  EXPECT_TRUE(process.run->resumed());
  EXPECT_LT(process.run->state().trainer.update, 12);  // the checkpoint before
}

TEST(EmaRun, TheShareCannotChangeOnTheWay) {
  const TrainingData data = copy_data();
  TrainOptions options = ema_options(0);
  options.after_updates = 6;
  const TemporaryDirectory directory;
  Process(data, options, directory.path()).run->run();
  options.ema_alpha = 0.1;
  const Error error = error_of([&] { Process(data, options, directory.path()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "ema_alpha was 0.0 and is 0.1 now")) << error.what();
}

TEST(EmaRun, SharesOutOfRangeAreRefused) {
  for (const double share : {-0.1, 1.0, 2.0, static_cast<double>(NAN)}) {
    const Error error = error_of([&] { validate(ema_options(share)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, "ema_alpha must be")) << error.what();
  }
}

}  // namespace
}  // namespace trafo
