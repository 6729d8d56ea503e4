// The feed-forward block where GEMMs take epilogues, on the CPU's kernels; and what it refuses.
#include "engine/ops/feed_forward/feed_forward.h"

#include <gtest/gtest.h>

#include "engine/autograd/gradcheck.h"
#include "tests/ops/op_cases.h"
#include "tests/train/accelerator.h"

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
    if (params.epilogue == Epilogue::gelu && params.aux) p.c = params.aux;
    cpu().gemm(p);
    if (params.epilogue == Epilogue::none) return;
    ++epilogues;
    const int64_t count = p.m * p.n;
    if (params.epilogue == Epilogue::dgelu) {
      const ActivationBackwardParams q{p.dtype,    Activation::gelu, false,   count,
                                       params.aux, params.c,         params.c};
      cpu().launch(static_cast<int>(OpKernel::activation_backward), "epilogue", &q);
    } else {
      const Activation kind =
          params.epilogue == Epilogue::relu ? Activation::relu : Activation::gelu;
      const ActivationForwardParams q{p.dtype, kind, count, p.c, params.c};
      cpu().launch(static_cast<int>(OpKernel::activation_forward), "epilogue", &q);
    }
  }
  int epilogues = 0;
};

class FeedForward : public ::testing::Test {
 protected:
  FeedForward() { context_.set_gemm_epilogues(true); }
  std::vector<Tensor> inputs(DType dtype) {  // 5 rows, 6 wide, 9 inside, 4 out
    InputMaker make(context_, dtype, 3);
    return {make.uniform({5, 6}), make.uniform({9, 6}), make.uniform({9}), make.uniform({4, 9})};
  }
  Tensor block(const std::vector<Tensor>& in, Activation kind = Activation::gelu,
               const Dropout& dropout = {}) {
    return ops::feed_forward(context_, in[0], in[1], in[2], in[3], kind, dropout);
  }
  std::vector<std::vector<float>> gradients(Recompute recompute) {
    const RecomputeScope scope(context_, recompute);
    std::vector<Tensor> in = inputs(DType::f32);
    for (Tensor& tensor : in) set_requires_grad(tensor, true);
    const Tensor y = block(in);
    InputMaker make(context_, DType::f32, 9);
    context_.backward(y, make.uniform({5, 4}));
    std::vector<std::vector<float>> values{context_.values<float>(y.detach())};
    for (const Tensor& tensor : in) values.push_back(context_.values<float>(grad_of(tensor)));
    return values;
  }

  std::shared_ptr<EpilogueDevice> device_ = std::make_shared<EpilogueDevice>();
  Context context_{device_};
};

TEST_F(FeedForward, GradientsInProductsAreRight) {
  const GradcheckResult result = gradcheck(
      context_,
      [](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>{
            ops::feed_forward(context, in[0], in[1], in[2], in[3], Activation::gelu, {})};
      },
      inputs(DType::f64));
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_GT(result.checked, 0);
  EXPECT_GT(device_->epilogues, 0);
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
  EXPECT_EQ(gradients(Recompute::none), gradients(Recompute::selective));
}

// What a checkpointed region computes first, and then once more with gradients.
TEST_F(FeedForward, ForwardIsTheSameWithoutGradients) {
  const auto recorded = gradients(Recompute::none);
  const NoGrad no_grad(context_);
  EXPECT_EQ(context_.values<float>(block(inputs(DType::f32))), recorded[0]);
}

TEST_F(FeedForward, OnlyGeluWithoutDropoutIsTakenIntoProducts) {
  for (const bool dropping : {false, true}) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
      std::vector<Tensor> in = inputs(DType::f32);
      for (Tensor& tensor : in) set_requires_grad(tensor, true);
      device_->epilogues = 0;
      const Tensor y = block(in, kind, Dropout{dropping ? 0.25f : 0.0f, 1, 2, 3});
      InputMaker make(context_, DType::f32, 9);
      context_.backward(y, make.uniform({5, 4}));
      EXPECT_EQ(device_->epilogues > 0, kind == Activation::gelu && !dropping) << enum_name(kind);
    }
  }
}

TEST_F(FeedForward, EpiloguesAreAChoice) {
  context_.set_gemm_epilogues(false);
  gradients(Recompute::none);
  EXPECT_EQ(device_->epilogues, 0);
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
