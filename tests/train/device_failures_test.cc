// What fails on a device that the host is ahead of.
#include "tests/train/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// A kernel that fails leaves the trainer as it was, with the updates before it under way.
TEST(DeviceFailures, AnUpdateThatCannotStartIsNotUnderWay) {
  const auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  context.set_graphs(false);
  const ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  const auto one = make_model(context, config, 5), two = make_model(context, config, 5);
  Trainer a(context, *one, quick_options()), b(context, *two, quick_options());
  std::vector<PackedBatchHost> data(2);
  const auto corpus = copy_corpus(Architecture::encoder_decoder, 60, 1);
  Batcher batcher(*corpus, {.start_id = kTokens.bos});
  for (PackedBatchHost& batch : data) batcher.next(batch);

  auto kernels = forwarding_kernels(std::make_integer_sequence<int, kOpKernelCount>());
  auto failing = kernels;
  failing[static_cast<size_t>(OpKernel::clipped_adamw)] = [](void*, const void*) -> int32_t {
    return 1;
  };
  a.submit({&data[0], 1});
  device->set_kernels(failing);
  EXPECT_THROW(a.submit({&data[1], 1}), Error);
  device->set_kernels(kernels);
  EXPECT_EQ(a.under_way(), 1u);
  EXPECT_THROW(a.step({&data[1], 1}), Error) << "another update is under way";
  a.submit({&data[1], 1});
  for (const PackedBatchHost& batch : data) {
    const StepResult x = a.collect(), y = b.step({&batch, 1});
    EXPECT_EQ(x.loss, y.loss);
    EXPECT_EQ(x.update, y.update);
  }
  EXPECT_EQ(weight_bytes(context, *one), weight_bytes(context, *two));
  EXPECT_EQ(a.state(), b.state());
}

TEST(DeviceFailures, ALostDeviceEndsTheRun) {
  const auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  context.set_graphs(false);
  const auto model = make_model(context, tiny_config(Architecture::encoder_decoder, 0), 5);
  TrainOptions options = quick_options();
  options.after_updates = 40;
  options.disp_freq = options.save_freq = options.valid_freq = {100, PeriodUnit::updates};
  TrainingRun run(context, *model, copy_data(Architecture::encoder_decoder), options);
  run.run({}, nullptr, 3);
  device->lost = true;
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
