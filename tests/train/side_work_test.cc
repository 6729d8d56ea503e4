// Work on the second stream of an accelerator: how long its memory is held, and that nothing uses
// its results too early. The stand-in device runs everything at once and notes what it saw.
#include "engine/runtime/side_work.h"

#include <optional>

#include "engine/ops/binary/binary.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/view/view.h"
#include "tests/train/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class SideWorkTest : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, uint64_t seed) {
    PhiloxStream stream(seed, 0);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = static_cast<float>(stream.next_u32() % 1000) / 500 - 1;
    return context_.from_values<float>(values, shape);
  }

  std::shared_ptr<StreamAccelerator> device_ = std::make_shared<StreamAccelerator>();
  Context context_{device_};
};

TEST_F(SideWorkTest, TensorsAreHeldUntilTheWorkIsAwaited) {
  SideWork work(*device_, 1);
  EXPECT_EQ(SideWork::of(context_), &work);
  std::vector<Tensor> read, written;
  for (size_t i = 0; i < SideWork::kMost + 2; ++i) {
    read.push_back(context_.empty({4}, DType::f32));
    written.push_back(context_.empty({4}, DType::f32));
    bool issued = false;
    const int64_t number = work.run({read[i], Tensor{}}, {written[i]}, [&] {
      issued = true;
      EXPECT_TRUE(device_->on_side);
    });
    EXPECT_EQ(number, static_cast<int64_t>(i));
    EXPECT_TRUE(issued);
    EXPECT_FALSE(device_->on_side);
  }
  // The two oldest made room.
  const auto held = [](const Tensor& tensor) { return tensor.is_shared(); };
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(held(read[i]), i >= 2) << i;
    EXPECT_EQ(held(written[i]), i >= 2) << i;
    EXPECT_EQ(work.writes(written[i]), i >= 2) << i;
    EXPECT_FALSE(work.writes(read[i])) << i;
  }
  const size_t last = read.size() - 1;
  for (int again = 0; again < 2; ++again) {
    work.wait(static_cast<int64_t>(last) - 1);
    EXPECT_FALSE(held(read[last - 1]));
    EXPECT_TRUE(held(read[last]));
    EXPECT_EQ(device_->side_gemms.size(), 1u);
  }
  work.wait_all();
  EXPECT_FALSE(held(read[last]));
  EXPECT_TRUE(device_->side_gemms.empty());
}

TEST_F(SideWorkTest, AnErrorLeavesTheSecondStream) {
  {
    SideWork work(*device_, 1);
    EXPECT_THROW(work.run({}, {}, [] { fail(ErrorCode::internal, "test", "no"); }), Error);
    EXPECT_FALSE(device_->on_side);
  }
  EXPECT_EQ(SideWork::of(context_), nullptr);
}

TEST_F(SideWorkTest, ADeviceWithoutASecondStreamHasNone) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  SideWork work(cpu->backend(), 1);
  EXPECT_EQ(SideWork::of(*cpu), nullptr);
  work.wait_all();
}

// Decided by the size of the step alone, so that the dry run and the step agree.
TEST_F(SideWorkTest, ALargeStepHasNone) {
  {
    SideWork work(*device_, SideWork::kMostProducts * 1.01);
    EXPECT_EQ(SideWork::of(context_), nullptr);
    work.wait_all();
  }
  SideWork work(*device_, SideWork::kMostProducts);
  EXPECT_EQ(SideWork::of(context_), &work);
}

// A parameter that two products and an addition share: its gradient is written beside and then
// added to in the main order, which waits.
TEST_F(SideWorkTest, AGradientIsCompleteBeforeTheMainOrderAddsToIt) {
  const Tensor x = random({6, 8}, 1);
  Tensor weight = random({8, 8}, 2);
  set_requires_grad(weight, true);
  std::vector<std::vector<float>> gradients;
  for (const bool beside : {false, true}) {
    const Tensor gradient = context_.zeros({8, 8}, DType::f32);
    bind_grad(weight, gradient);
    std::optional<SideWork> work;
    if (beside) work.emplace(*device_, 1);
    int early = 0, additions = 0;
    device_->on_launch = [&](OpKernel kernel, const void* params) {
      if (kernel != OpKernel::copy_strided ||
          static_cast<const CopyStridedParams*>(params)->dst != gradient.raw())
        return;
      ++additions;
      early += !device_->side_gemms.empty();
    };
    // Backward: both products first, then the addition.
    const Tensor sum = ops::add(context_, weight, weight);
    const Tensor y = ops::linear(context_, ops::linear(context_, x, weight), sum);
    const Tensor z = ops::linear(context_, y, weight);
    context_.backward(z, random({6, 8}, 3));
    device_->on_launch = nullptr;
    if (work) work->wait_all();
    EXPECT_EQ(additions, 2);
    EXPECT_EQ(early, 0);
    gradients.push_back(context_.values<float>(gradient));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_GT(device_->most_pending, 0u);
  EXPECT_EQ(device_->overlaps, 0);
}

// Every step of a model: nothing that pending work reads or writes is given away.
class SideWorkOfSteps : public ::testing::TestWithParam<Architecture> {};

INSTANTIATE_TEST_SUITE_P(Architectures, SideWorkOfSteps,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

TEST_P(SideWorkOfSteps, MemoryOfPendingWorkIsNotGivenAway) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto device = std::make_shared<StreamAccelerator>();
    Context context(device);
    context.set_graphs(false);
    ModelConfig config = tiny_config(GetParam(), 0.2);
    config.encoder_layers = config.decoder_layers = 3;
    const auto model = make_model(context, config, 5);
    TrainOptions options = quick_options();
    options.recompute = recompute;
    Trainer trainer(context, *model, options);
    const auto data = copy_batches(GetParam(), 4);
    for (size_t i = 0; i < data.size(); i += 2) trainer.step(std::span(data).subspan(i, 2));
    EXPECT_EQ(device->most_pending, SideWork::kMost);
    EXPECT_TRUE(device->side_gemms.empty()) << "a step ends before its work";
    EXPECT_EQ(device->overlaps, 0);
  }
}

}  // namespace
}  // namespace trafo
