// The feed-forward block where GEMMs take epilogues, on the CPU's kernels; and what it refuses.
#include "engine/ops/feed_forward/feed_forward.h"

#include <gtest/gtest.h>

#include "engine/autograd/gradcheck.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "tests/ops/op_cases.h"
#include "tests/train/step/accelerator.h"

namespace trafo::testing {
namespace {

// A CPU whose GEMMs take epilogues.
class EpilogueDevice final : public Accelerator {
 public:
  Device device() const override { return {DeviceKind::cpu, 0}; }
  bool gemm_epilogues(DType) const override { return true; }
  void gemm(const GemmParams& params) override {
    GemmParams p = params;
    p.epilogue = Epilogue::none;
    p.aux = nullptr;
    const bool backward = params.epilogue == Epilogue::drelu || params.epilogue == Epilogue::dgelu;
    if (params.epilogue != Epilogue::none) p.bias = nullptr;
    if (!backward && params.aux) p.c = params.aux;
    cpu().gemm(p);
    if (params.epilogue == Epilogue::none) return;
    ++epilogues;
    const Activation kind = params.epilogue == Epilogue::relu || params.epilogue == Epilogue::drelu
                                ? Activation::relu
                                : Activation::gelu;
    if (backward) {
      BiasActDropoutBackwardParams q{};
      q.dtype = p.dtype;
      q.activation = kind;
      q.dropout = params.dropout;
      q.rows = p.m;
      q.width = p.n;
      q.accumulate_dbias = params.accumulate_column_sums;
      q.x = params.aux;
      q.bias = params.bias;
      q.dy = q.dx = p.c;
      q.dbias = params.column_sums;
      cpu().launch(static_cast<int>(OpKernel::bias_act_dropout_backward), "epilogue", &q);
    } else {
      BiasActDropoutForwardParams q{};
      q.dtype = p.dtype;
      q.activation = kind;
      q.dropout = params.dropout;
      q.rows = p.m;
      q.width = p.n;
      q.x = p.c;
      q.bias = params.bias;
      q.y = params.c;
      cpu().launch(static_cast<int>(OpKernel::bias_act_dropout_forward), "epilogue", &q);
    }
  }
  int epilogues = 0;
};

class FeedForward : public ::testing::Test {
 protected:
  std::vector<Tensor> inputs(DType dtype) {  // 5 rows, 6 wide, 9 inside, 4 out
    InputMaker make(context_, dtype, 3);
    return {make.uniform({5, 6}), make.uniform({9, 6}), make.uniform({9}), make.uniform({4, 9})};
  }
  Tensor block(const std::vector<Tensor>& in, Activation kind = Activation::gelu,
               const Dropout& dropout = {}) {
    return ops::feed_forward(context_, in[0], in[1], in[2], in[3], kind, dropout);
  }
  std::vector<std::vector<float>> gradients(Recompute recompute, Activation kind = Activation::gelu,
                                            const Dropout& dropout = {}) {
    const StepScope scope(context_, &StepContext::recompute, recompute);
    std::vector<Tensor> in = inputs(DType::f32);
    for (Tensor& tensor : in) set_requires_grad(tensor, true);
    const Tensor y = block(in, kind, dropout);
    InputMaker make(context_, DType::f32, 9);
    context_.backward(y, make.uniform({5, 4}));
    std::vector<std::vector<float>> values{context_.values<float>(y.detach())};
    for (const Tensor& tensor : in) values.push_back(context_.values<float>(grad_of(tensor)));
    return values;
  }

  std::shared_ptr<EpilogueDevice> device_ = std::make_shared<EpilogueDevice>();
  Context context_{device_};
};

TEST_F(FeedForward, GradientsInGemmsAreRight) {
  for (const Activation kind : {Activation::relu, Activation::gelu}) {
    for (const float p : {0.0f, 0.25f}) {
      SCOPED_TRACE(enum_name(kind));
      device_->epilogues = 0;
      const GradcheckResult result = gradcheck(
          context_,
          [=](Context& context, const std::vector<Tensor>& in) {
            return std::vector<Tensor>{
                ops::feed_forward(context, in[0], in[1], in[2], in[3], kind, Dropout{p, 1, 2, 3})};
          },
          inputs(DType::f64));
      EXPECT_TRUE(result.ok) << result.message;
      EXPECT_GT(result.checked, 0);
      EXPECT_GT(device_->epilogues, 0);
    }
  }
}

TEST_F(FeedForward, SomeGradientsAreWantedOnly) {
  const auto all = gradients(Recompute::none);
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    std::vector<Tensor> in = inputs(DType::f32);
    set_requires_grad(in[wanted], true);
    InputMaker make(context_, DType::f32, 9);
    context_.backward(block(in), make.uniform({5, 4}));
    EXPECT_EQ(context_.values<float>(grad_of(in[wanted])), all[wanted + 1]) << "input " << wanted;
  }
}

TEST_F(FeedForward, RecomputingChangesNoBit) {
  for (const Activation kind : {Activation::relu, Activation::gelu})
    EXPECT_EQ(gradients(Recompute::none, kind, {0.25f, 1, 2, 3}),
              gradients(Recompute::selective, kind, {0.25f, 1, 2, 3}));
}

// A checkpointed region computes first without gradients, and then with gradients.
TEST_F(FeedForward, ForwardIsTheSameWithoutGradients) {
  const auto recorded = gradients(Recompute::none);
  const NoGrad no_grad(context_);
  EXPECT_EQ(context_.values<float>(block(inputs(DType::f32))), recorded[0]);
}

TEST_F(FeedForward, ReluAndGeluAreEpilogues) {
  for (const bool dropping : {false, true}) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
      std::vector<Tensor> in = inputs(DType::f32);
      for (Tensor& tensor : in) set_requires_grad(tensor, true);
      device_->epilogues = 0;
      const Tensor y = block(in, kind, Dropout{dropping ? 0.25f : 0.0f, 1, 2, 3});
      InputMaker make(context_, DType::f32, 9);
      context_.backward(y, make.uniform({5, 4}));
      EXPECT_EQ(device_->epilogues > 0, kind == Activation::relu || kind == Activation::gelu)
          << enum_name(kind);
    }
  }
}

TEST_F(FeedForward, EpiloguesAreAChoice) {
  for (const Activation kind : {Activation::relu, Activation::gelu}) {
    context_.set_gemm_epilogues(true);
    const auto in_products = gradients(Recompute::none, kind, {0.25f, 1, 2, 3});
    context_.set_gemm_epilogues(false);
    device_->epilogues = 0;
    EXPECT_EQ(gradients(Recompute::none, kind, {0.25f, 1, 2, 3}), in_products) << enum_name(kind);
    EXPECT_EQ(device_->epilogues, 0);
  }
}

TEST_F(FeedForward, RefusesShapesThatDoNotMeet) {
  std::vector<Tensor> in = inputs(DType::f32);
  InputMaker make(context_, DType::f32, 9);
  for (size_t wrong = 0; wrong < 4; ++wrong) {
    std::vector<Tensor> bad = in;
    bad[wrong] = wrong == 2 ? make.uniform({8}) : make.uniform({7, 7});
    try {
      block(bad);
      ADD_FAILURE() << "input " << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
      EXPECT_NE(std::string(error.what()).find("feed_forward"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trafo::testing
