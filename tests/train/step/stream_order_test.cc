// The order that host and device must keep between them, on a device whose copies arrive as late as
// they may: results are read after they were waited for, and what is being copied is not written
// to.
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// More than there are places to stage a batch in.
constexpr size_t kMicroBatches = 40;

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::byte> weights;
  int overwritten;
};

// `together` updates are started before the first is collected.
Outcome train(Architecture architecture, bool late, size_t micro_batches, size_t together) {
  const auto device = std::make_shared<StreamAccelerator>();
  device->late = late;
  Context context(device);
  context.set_graphs(false);
  const auto model = make_model(context, tiny_config(architecture, 0.2), 5);
  Outcome outcome;
  {
    Trainer trainer(context, *model, quick_options());
    const auto batches = copy_batches(architecture, micro_batches * together);
    for (size_t i = 0; i < together; ++i)
      trainer.submit(std::span(batches).subspan(i * micro_batches, micro_batches));
    for (size_t i = 0; i < together; ++i) {
      const StepResult result = trainer.await();
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.grad_norm);
    }
  }
  device->synchronize();
  outcome.weights = weight_bytes(context, *model);
  outcome.overwritten = device->overwritten;
  return outcome;
}

class StreamOrder : public ::testing::TestWithParam<Architecture> {};

INSTANTIATE_TEST_SUITE_P(Architectures, StreamOrder,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return std::string(instance.param == Architecture::decoder_lm
                                                  ? "DecoderLm"
                                                  : "EncoderDecoder");
                         });

TEST_P(StreamOrder, ResultsAreReadAfterTheyWereWaitedFor) {
  const Outcome on_time = train(GetParam(), false, 1, 5), late = train(GetParam(), true, 1, 5);
  EXPECT_EQ(late.losses, on_time.losses);
  EXPECT_EQ(late.norms, on_time.norms);
  EXPECT_EQ(late.weights, on_time.weights);
  EXPECT_EQ(late.overwritten, 0);
}

TEST_P(StreamOrder, ABatchThatIsBeingCopiedIsNotWrittenTo) {
  const Outcome on_time = train(GetParam(), false, kMicroBatches, 1);
  const Outcome late = train(GetParam(), true, kMicroBatches, 1);
  EXPECT_EQ(late.overwritten, 0);
  EXPECT_EQ(late.losses, on_time.losses);
  EXPECT_EQ(late.weights, on_time.weights);
}

}  // namespace
}  // namespace trafo
