// Work on the second stream of an accelerator: how long its memory is held, and that nothing uses
// its results too early. The stand-in device runs everything at once and notes what it saw.
#include "engine/runtime/side_work.h"

#include <optional>

#include "engine/ops/binary/binary.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/view/view.h"
#include "tests/train/step/accelerator.h"
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
  SideWork work(context_, 1);
  EXPECT_EQ(context_.step().side_work, &work);
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

// A GEMM of 4 x 4 tensors.
struct SmallGemm {
  Tensor a, b, c;
  explicit SmallGemm(const Context& context) {
    for (Tensor* tensor : {&a, &b, &c}) *tensor = context.zeros({4, 4}, DType::f32);
  }
  GemmParams params() const {
    GemmParams p;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 4;
    p.a = a.raw();
    p.b = b.raw();
    p.c = c.raw();
    return p;
  }
};

TEST_F(SideWorkTest, GemmsAreCollectedUntilThereAreEnough) {
  SideWork work(context_, 1);
  std::vector<SmallGemm> small;
  for (size_t i = 0; i < SideWork::kMostGemms; ++i) small.emplace_back(context_);
  int64_t rests = 0;
  for (size_t i = 0; i < small.size(); ++i) {
    const SmallGemm& g = small[i];
    EXPECT_EQ(device_->gemms, 0) << i;
    work.add_gemm(g.params(), {g.a, g.b}, {g.c}, [&] {
      ++rests;
      EXPECT_TRUE(device_->on_side);
      EXPECT_EQ(device_->gemms, static_cast<int64_t>(small.size()));
    });
    for (const Tensor* tensor : {&g.a, &g.b, &g.c}) EXPECT_TRUE(tensor->is_shared());
    EXPECT_TRUE(work.writes(g.c));
    EXPECT_FALSE(work.writes(g.a));
  }
  EXPECT_EQ(device_->gemms, static_cast<int64_t>(small.size()));
  EXPECT_EQ(rests, device_->gemms);
  EXPECT_EQ(device_->side_gemms.size(), 1u);
  EXPECT_TRUE(small[0].a.is_shared()) << "held until the group is awaited";
  work.wait_all();
  for (const SmallGemm& g : small)
    for (const Tensor* tensor : {&g.a, &g.b, &g.c}) EXPECT_FALSE(tensor->is_shared());
}

TEST_F(SideWorkTest, WhatNeedsACollectedGemmIssuesIt) {
  const SmallGemm g(context_), other(context_);
  const auto add = [&](SideWork& work) { work.add_gemm(g.params(), {g.a, g.b}, {g.c}, nullptr); };
  const auto issued_by = [&](const std::function<void(SideWork&)>& what) {
    SideWork work(context_, 1);
    device_->gemms = 0;
    add(work);
    EXPECT_EQ(device_->gemms, 0);
    what(work);
    const int64_t gemms = device_->gemms;
    work.wait_all();
    return gemms;
  };
  EXPECT_EQ(issued_by([](SideWork& work) { work.wait_all(); }), 1);
  EXPECT_EQ(issued_by([&](SideWork&) { SideWork::settle(context_, g.c); }), 1);
  EXPECT_EQ(issued_by([&](SideWork&) { SideWork::settle(context_, g.a); }), 0);
  // Work that writes to the same gradient comes after it.
  EXPECT_EQ(issued_by([&](SideWork& work) {
              work.run({}, {g.c}, [&] { EXPECT_EQ(device_->gemms, 1); });
            }),
            1);
  EXPECT_EQ(issued_by(add), 1);
  EXPECT_EQ(issued_by([&](SideWork& work) { work.run({g.a}, {other.c}, [] {}); }), 0);
}

TEST_F(SideWorkTest, ToSpareMemoryNothingIsCollected) {
  SideWork work(context_, 1, true);
  const SmallGemm first(context_), second(context_);
  int64_t gemms = 0;
  for (const SmallGemm* g : {&first, &second}) {
    work.add_gemm(g->params(), {g->a, g->b}, {g->c}, nullptr);
    EXPECT_EQ(device_->gemms, ++gemms);
  }
  work.wait_all();
}

// A step that fails leaves nothing.
TEST_F(SideWorkTest, ADestroyedOneDropsWhatItCollected) {
  const SmallGemm g(context_);
  {
    SideWork work(context_, 1);
    work.add_gemm(g.params(), {g.a, g.b}, {g.c}, nullptr);
  }
  EXPECT_EQ(device_->gemms, 0);
  EXPECT_FALSE(g.c.is_shared());
}

TEST_F(SideWorkTest, AnErrorLeavesTheSecondStream) {
  {
    SideWork work(context_, 1);
    EXPECT_THROW(work.run({}, {}, [] { fail(ErrorCode::internal, "test", "no"); }), Error);
    EXPECT_FALSE(device_->on_side);
  }
  EXPECT_EQ(context_.step().side_work, nullptr);
}

TEST_F(SideWorkTest, ADeviceWithoutASecondStreamHasNone) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  SideWork work(*cpu, 1);
  EXPECT_EQ(cpu->step().side_work, nullptr);
  work.wait_all();
}

// Decided by the size of the step alone, so that the dry run and the step agree.
TEST_F(SideWorkTest, ALargeStepHasNone) {
  {
    SideWork work(context_, SideWork::kMostProducts * 1.01);
    EXPECT_EQ(context_.step().side_work, nullptr);
    work.wait_all();
  }
  SideWork work(context_, SideWork::kMostProducts);
  EXPECT_EQ(context_.step().side_work, &work);
}

// A parameter that two products and an addition share: its gradient is written beside and then
// added to in the main order, which waits.
TEST_F(SideWorkTest, AGradientIsCompleteBeforeTheMainOrderAddsToIt) {
  const Tensor x = random({6, 8}, 1);
  Tensor weight = random({8, 8}, 2);
  set_requires_grad(weight, true);
  std::vector<std::vector<float>> gradients;
  enum class Products { in_main_order, beside, collected };
  for (const Products products : {Products::in_main_order, Products::beside, Products::collected}) {
    device_->grouping = products == Products::collected;
    const Tensor gradient = context_.zeros({8, 8}, DType::f32);
    bind_grad(weight, gradient);
    std::optional<SideWork> work;
    if (products != Products::in_main_order) work.emplace(context_, 1);
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
  EXPECT_EQ(gradients[0], gradients[2]);
  EXPECT_GT(device_->most_pending, 0u);
  EXPECT_EQ(device_->overlaps, 0);
}

// Gradients of biases from the GEMMs for the weights, where the device sums in them: biases of
// linear layers and of the vocabulary loss in chunks; the second gradients are added to the first.
TEST_F(SideWorkTest, BiasesAreSummedInTheGemms) {
  const Tensor x = random({11, 8}, 1),
               labels = context_.from_values<int32_t>(
                   std::vector<int32_t>{0, 3, 1, 4, 2, 0, 3, 3, 1, 2, 4}, {11});
  Tensor weight = random({6, 8}, 2), bias = random({6}, 3), head = random({5, 6}, 4),
         head_bias = random({5}, 5);
  for (Tensor* parameter : {&weight, &bias, &head, &head_bias}) set_requires_grad(*parameter, true);
  device_->grouping = true;
  std::vector<std::vector<float>> gradients;
  for (const bool in_gemms : {false, true}) {
    device_->summing = true;
    context_.set_bias_sums_in_gemms(in_gemms);
    for (Tensor* parameter : {&weight, &bias, &head, &head_bias})
      bind_grad(*parameter, context_.zeros(parameter->shape(), DType::f32));
    int64_t column_sums = 0;
    device_->on_launch = [&](OpKernel kernel, const void*) {
      column_sums += kernel == OpKernel::column_sum;
    };
    device_->sums_in_gemms = 0;
    for (int step = 0; step < 2; ++step) {
      SideWork work(context_, 1);
      ops::LinearCrossEntropyOptions options;
      options.chunk_bytes = 4 * 5 * sizeof(float);
      options.gradients_at_once = true;
      const Tensor hidden = ops::linear(context_, x, weight, bias);
      context_.backward(
          ops::linear_cross_entropy(context_, hidden, head, head_bias, labels, options).loss);
      work.wait_all();
    }
    device_->on_launch = nullptr;
    constexpr int64_t kSums = 2 * (3 + 1);  // chunks and the layer
    EXPECT_EQ(column_sums, in_gemms ? 0 : kSums);
    EXPECT_EQ(device_->sums_in_gemms, in_gemms ? kSums : 0);
    gradients.emplace_back();
    for (const Tensor& parameter : {weight, bias, head, head_bias})
      for (const float value : context_.values<float>(grad_of(parameter)))
        gradients.back().push_back(value);
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_NEAR(gradients[0][i], gradients[1][i], 1e-6) << i;
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
    std::vector<std::vector<float>> gradients;
    for (const bool grouping : {false, true}) {
      const auto device = std::make_shared<StreamAccelerator>();
      device->grouping = grouping;
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
      gradients.push_back(context.values<float>(model->parameters().flat_grad()));
    }
    EXPECT_EQ(gradients[0], gradients[1]) << "an operand changed before its GEMM was issued";
  }
}

}  // namespace
}  // namespace trafo
