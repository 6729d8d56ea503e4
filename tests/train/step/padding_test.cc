// Padding tokens are masked twice in the loss, by their label and by their weight. One would do, so
// no result shows whether both are there. This test looks at the kernel's parameters.
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/train/step/trainer.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class PaddingTest : public ::testing::TestWithParam<Architecture> {};

INSTANTIATE_TEST_SUITE_P(Architectures, PaddingTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return std::string(instance.param == Architecture::decoder_lm
                                                  ? "DecoderLm"
                                                  : "EncoderDecoder");
                         });

TEST_P(PaddingTest, HasNeitherLabelNorWeight) {
  const auto device = std::make_shared<StreamAccelerator>();
  Context context(device);
  context.set_graphs(false);
  const auto model = make_model(context, tiny_config(GetParam(), 0), 5);
  Trainer trainer(context, *model, quick_options());
  size_t tokens = 0, losses = 0, padding = 0;
  device->on_launch = [&](OpKernel kernel, const void* params) {
    if (kernel != OpKernel::cross_entropy_forward) return;
    const auto& loss = *static_cast<const CrossEntropyForwardParams*>(params);
    ++losses;
    ASSERT_GE(static_cast<size_t>(loss.rows), tokens) << "all rows at once";
    for (size_t t = tokens; t < static_cast<size_t>(loss.rows); ++t) {
      EXPECT_EQ(loss.labels[t], loss.ignore_label) << t;
      EXPECT_EQ(static_cast<const float*>(loss.weights)[t], 0) << t;
      ++padding;
    }
  };
  auto data = copy_batches(GetParam(), 6);
  for (size_t i = 0; i < data.size(); ++i) {
    // Every other batch says its weights, the rest leave them out where they may.
    if (i % 2) data[i].target_weights.assign(data[i].target_out.size(), 0.5f);
    tokens = data[i].target_out.size();
    trainer.step({&data[i], 1});
  }
  EXPECT_EQ(losses, data.size());
  EXPECT_GT(padding, 0u);
}

}  // namespace
}  // namespace trafo
