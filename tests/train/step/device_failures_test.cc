// Failures on a device that the host is ahead of.
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class DeviceFailures : public ::testing::Test {
 protected:
  void SetUp() override { context_.set_graphs(false); }
  std::unique_ptr<Model> model() {
    return make_model(context_, tiny_config(Architecture::encoder_decoder, 0), 5);
  }
  void break_kernel(OpKernel kernel) {
    broken_ = kernels_;
    broken_[static_cast<size_t>(kernel)] = [](void*, const void*) -> int32_t { return 1; };
    device_->set_kernels(broken_);
  }
  void mend_kernels() { device_->set_kernels(kernels_); }

  const std::array<KernelFn, kOpKernelCount> kernels_ = Accelerator::all_kernels();
  std::array<KernelFn, kOpKernelCount> broken_{};
  std::shared_ptr<StreamAccelerator> device_ = std::make_shared<StreamAccelerator>();
  Context context_{device_};
  const std::vector<PackedBatchHost> data_ = copy_batches(Architecture::encoder_decoder, 2);
};

// A kernel that fails leaves the trainer as it was, with the updates before it in flight.
TEST_F(DeviceFailures, AnUpdateThatCannotStartIsNotInFlight) {
  const auto one = model(), two = model();
  Trainer a(context_, *one, quick_options()), b(context_, *two, quick_options());
  a.submit({&data_[0], 1});
  break_kernel(OpKernel::clipped_update);
  EXPECT_THROW(a.submit({&data_[1], 1}), Error);
  mend_kernels();
  EXPECT_EQ(a.in_flight(), 1u);
  EXPECT_THROW(a.step({&data_[1], 1}), Error) << "another update is in flight";
  a.submit({&data_[1], 1});
  for (const PackedBatchHost& batch : data_) {
    const StepResult x = a.await(), y = b.step({&batch, 1});
    EXPECT_EQ(x.loss, y.loss);
    EXPECT_EQ(x.update, y.update);
  }
  EXPECT_EQ(weight_bytes(context_, *one), weight_bytes(context_, *two));
  EXPECT_EQ(a.state(), b.state());
}

TEST_F(DeviceFailures, AStepThatCannotBeRecordedIsAnErrorAndLeavesTheTrainerAsItWas) {
  const auto one = model(), two = model();
  Trainer a(context_, *one, quick_options()), b(context_, *two, quick_options());
  a.step({&data_[0], 1});
  b.step({&data_[0], 1});
  context_.set_graphs(true);
  try {
    a.step({&data_[0], 1});
    ADD_FAILURE() << "the device has no graphs";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("this device has no graphs"), std::string::npos);
  }
  device_->records = true;
  break_kernel(OpKernel::layer_norm_backward);
  EXPECT_THROW(a.step({&data_[0], 1}), Error);
  EXPECT_EQ(device_->graphs, 0) << "what was recorded of a failed step is not released";
  mend_kernels();
  context_.set_graphs(false);
  EXPECT_EQ(a.step({&data_[1], 1}).loss, b.step({&data_[1], 1}).loss);
  EXPECT_EQ(weight_bytes(context_, *one), weight_bytes(context_, *two));
  EXPECT_EQ(a.state(), b.state());
}

TEST_F(DeviceFailures, RecordedGraphsAreReleased) {
  device_->records = true;
  context_.set_graphs(true);
  const auto one = model();
  {
    Trainer trainer(context_, *one, quick_options());
    trainer.step({&data_[0], 1});
    EXPECT_EQ(device_->graphs, 0) << "a shape that came once is not recorded";
    trainer.step({&data_[0], 1});
    trainer.step({&data_[0], 1});
    EXPECT_EQ(device_->graphs, 1);
  }
  EXPECT_EQ(device_->graphs, 0);
}

// The updates before it end first; the run continues with the bits of one without a failure.
TEST_F(DeviceFailures, ARunWhoseUpdateCannotStartContinues) {
  TrainOptions options = quick_options();
  options.after_updates = 12;
  options.log_first = 0;
  options.log_freq = {100, PeriodUnit::updates};
  const TrainingData data = copy_data(Architecture::encoder_decoder);
  const auto undisturbed = model(), disturbed = model();
  TrainingRun expected(context_, *undisturbed, data, options),
      run(context_, *disturbed, data, options);
  expected.run();
  static int calls;
  static KernelFn update;
  calls = 0;
  update = kernels_[static_cast<size_t>(OpKernel::clipped_update)];
  broken_ = kernels_;
  broken_[static_cast<size_t>(OpKernel::clipped_update)] = [](void* stream,
                                                              const void* arguments) -> int32_t {
    ++calls;
    return calls == 5 || calls == 9 ? 1 : update(stream, arguments);
  };
  device_->set_kernels(broken_);
  EXPECT_THROW(run.run(), Error);
  EXPECT_EQ(run.state().trainer.update, 4);
  EXPECT_THROW(run.run(), Error);
  EXPECT_EQ(run.state().trainer.update, 7);
  EXPECT_EQ(run.run().reason, StopReason::limit);
  EXPECT_EQ(weight_bytes(context_, *disturbed), weight_bytes(context_, *undisturbed));
  EXPECT_EQ(timeless(run.state()), timeless(expected.state()));
}

// The update whose batch failed was never in flight; the one before it is.
TEST_F(DeviceFailures, ARunWhoseBatchFailsContinues) {
  TrainOptions options = quick_options();
  options.after_updates = 12;
  options.log_first = 0;
  options.log_freq = {100, PeriodUnit::updates};
  const TrainingData data = copy_data(Architecture::encoder_decoder);
  const auto undisturbed = model(), disturbed = model();
  TrainingRun expected(context_, *undisturbed, data, options),
      run(context_, *disturbed, data, options);
  const auto batch_of = [&](int64_t index, PackedBatchHost& batch) {
    batch = data_[static_cast<size_t>(index) % data_.size()];
  };
  expected.set_batches(batch_of);
  expected.run();
  bool failed = false;
  run.set_batches([&](int64_t index, PackedBatchHost& batch) {
    if (index == 5 && !std::exchange(failed, true)) throw std::runtime_error("no batch");
    batch_of(index, batch);
  });
  EXPECT_THROW(run.run(), std::runtime_error);
  EXPECT_EQ(run.state().trainer.update, 5);
  EXPECT_EQ(run.run().reason, StopReason::limit);
  EXPECT_EQ(weight_bytes(context_, *disturbed), weight_bytes(context_, *undisturbed));
  EXPECT_EQ(timeless(run.state()), timeless(expected.state()));
}

TEST_F(DeviceFailures, ALostDeviceEndsTheRun) {
  const auto trained = model();
  TrainOptions options = quick_options();
  options.after_updates = 40;
  options.log_freq = options.save_freq = options.valid_freq = {100, PeriodUnit::updates};
  TrainingRun run(context_, *trained, copy_data(Architecture::encoder_decoder), options);
  run.run({}, nullptr, 3);
  device_->lost = true;
  try {
    run.run();
    ADD_FAILURE() << "the device is lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_lost);
  }
  EXPECT_EQ(run.state().trainer.update, 3);
}

}  // namespace
}  // namespace trafo
