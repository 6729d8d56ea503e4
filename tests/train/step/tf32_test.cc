// TF32 as an option of training: who may have it, where it is on, and that a run keeps it.
#include "engine/backend/tf32.h"

#include "engine/train/plan/memory_plan.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions tf32_options(bool tf32 = true) {
  TrainOptions options = quick_options();
  options.tf32 = tf32;
  return options;
}

// A process on the stand-in device.
struct DeviceProcess {
  std::shared_ptr<StreamAccelerator> device = std::make_shared<StreamAccelerator>();
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  DeviceProcess(const TrainOptions& options,
                const std::optional<std::filesystem::path>& directory = std::nullopt)
      : context(std::make_unique<Context>(device)) {
    context->set_graphs(false);
    model = make_model(*context, tiny_config(), 5);
    run = std::make_unique<TrainingRun>(*context, *model, copy_data(), options, directory);
  }
};

TEST(Tf32, IsOffByDefault) {
  EXPECT_FALSE(TrainOptions().tf32);
}

TEST(Tf32, TheCpuRefusesIt) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  const Error error = error_of([&] { Trainer(*context, *model, tf32_options()); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "tf32 is for CUDA")) << error.what();
  const Error scope = error_of([&] { Tf32Scope(context->backend(), true); });
  EXPECT_EQ(scope.code(), ErrorCode::unsupported);
  EXPECT_NO_THROW(Tf32Scope(context->backend(), false));
}

TEST(Tf32, ABfloat16ModelRefusesIt) {
  const auto plan = [](DType dtype, const TrainOptions& options) {
    return plan_training({DeviceKind::cuda, 0}, tiny_config(), dtype, options,
                         BatchSizes{4, 20, 20});
  };
  EXPECT_NO_THROW(plan(DType::bf16, tf32_options(false)));
  const Error error = error_of([&] { plan(DType::bf16, tf32_options()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "tf32 is for models in float32")) << error.what();
  // Weights, activations and moments are float32 in any case.
  const MemoryPlan with = plan(DType::f32, tf32_options()),
                   without = plan(DType::f32, tf32_options(false));
  EXPECT_EQ(with.total, without.total);
  EXPECT_EQ(with.weights, without.weights);
}

TEST(Tf32, IsOnInStepsAndValidation) {
  for (const bool tf32 : {false, true}) {
    TrainOptions options = tf32_options(tf32);
    options.after_updates = 8;  // a validation on the way
    DeviceProcess process(options);
    process.run->run();
    EXPECT_GT(process.device->gemms, 0);
    EXPECT_EQ(process.device->gemms_in_tf32, tf32 ? process.device->gemms : 0);
    EXPECT_FALSE(process.device->tf32);
    const int64_t before = process.device->gemms_in_tf32;
    EXPECT_TRUE(process.run->validate().has_value());
    EXPECT_EQ(process.device->gemms_in_tf32 > before, tf32);
    EXPECT_FALSE(process.device->tf32);
  }
}

TEST(Tf32, ARunKeepsIt) {
  for (const bool first : {false, true}) {
    const TemporaryDirectory directory;
    TrainOptions options = tf32_options(first);
    options.after_updates = 6;
    DeviceProcess(options, directory.path()).run->run();
    options.after_updates = 9;
    DeviceProcess resumed(options, directory.path());
    EXPECT_TRUE(resumed.run->resumed());
    EXPECT_EQ(resumed.run->run().state.trainer.update, 9);
    resumed.run.reset();
    options.tf32 = !first;
    const Error error = error_of([&] { DeviceProcess(options, directory.path()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(
        error, first ? "tf32 was true and is false now" : "tf32 was false and is true now"))
        << error.what();
  }
}

}  // namespace
}  // namespace trafo
