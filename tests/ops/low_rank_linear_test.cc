// A linear layer with an adapter where GEMMs take a term of low rank, on the CPU's kernels.
#include "engine/ops/low_rank_linear/low_rank_linear.h"

#include <gtest/gtest.h>

#include "engine/autograd/gradcheck.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/term_device.h"

namespace trafo::testing {
namespace {

class LowRankLinear : public ::testing::Test {
 protected:
  // 5 rows, 6 wide, 14 out; queries and values have adapters of rank 3.
  std::vector<Tensor> inputs(DType dtype) {
    InputMaker make(context_, dtype, 3);
    return {make.uniform({5, 6}), make.uniform({6, 6}), make.uniform({9, 3}), make.uniform({14})};
  }
  static Tensor layer(Context& context, const std::vector<Tensor>& in) {
    const auto ranges =
        std::make_shared<const std::vector<ColumnRange>>(std::vector<ColumnRange>{{0, 5}, {10, 4}});
    InputMaker make(context, in[0].dtype(), 17);
    return ops::low_rank_linear(context, in[0], {make.uniform({14, 6}), nullptr}, in[3],
                                {in[1], in[2], 0.5, ranges});
  }
  std::vector<std::vector<float>> gradients(size_t uses = 1) {
    std::vector<Tensor> in = inputs(DType::f32);
    for (Tensor& tensor : in) set_requires_grad(tensor, true);
    InputMaker make(context_, DType::f32, 9);
    std::vector<std::vector<float>> values;
    for (size_t use = 0; use < uses; ++use) {
      const Tensor y = layer(context_, in);
      context_.backward(y, make.uniform({5, 14}));
      values.push_back(context_.values<float>(y.detach()));
    }
    for (const Tensor& tensor : in) values.push_back(context_.values<float>(grad_of(tensor)));
    return values;
  }

  std::shared_ptr<TermDevice> device_ = std::make_shared<TermDevice>(DeviceKind::cpu);
  Context context_{device_};
};

TEST_F(LowRankLinear, GradientsWithTermsAreRight) {
  const GradcheckResult result = gradcheck(
      context_,
      [](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>{layer(context, in)};
      },
      inputs(DType::f64));
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_GT(result.checked, 0);
  EXPECT_GT(device_->terms, 0);
}

TEST_F(LowRankLinear, TermsAreInBothProducts) {
  gradients();
  EXPECT_EQ(device_->terms, 2);
}

TEST_F(LowRankLinear, TermsAreAChoice) {
  for (const size_t uses : {1, 2}) {  // the second one adds to gradients
    context_.set_gemm_epilogues(true);
    const auto in_products = gradients(uses);
    context_.set_gemm_epilogues(false);
    device_->terms = 0;
    const auto apart = gradients(uses);
    EXPECT_EQ(device_->terms, 0);
    ASSERT_EQ(apart.size(), in_products.size());
    for (size_t i = 0; i < apart.size(); ++i)
      for (size_t j = 0; j < apart[i].size(); ++j)
        EXPECT_NEAR(apart[i][j], in_products[i][j], 1e-5) << "tensor " << i << ", element " << j;
  }
}

TEST_F(LowRankLinear, SomeGradientsAreWantedOnly) {
  const auto all = gradients();
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    std::vector<Tensor> in = inputs(DType::f32);
    set_requires_grad(in[wanted], true);
    InputMaker make(context_, DType::f32, 9);
    context_.backward(layer(context_, in), make.uniform({5, 14}));
    EXPECT_EQ(context_.values<float>(grad_of(in[wanted])), all[wanted + 1]) << "input " << wanted;
  }
}

// A checkpointed region computes first without gradients, and then with gradients.
TEST_F(LowRankLinear, ForwardIsTheSameWithoutGradients) {
  const auto recorded = gradients();
  const NoGrad no_grad(context_);
  EXPECT_EQ(context_.values<float>(layer(context_, inputs(DType::f32))), recorded[0]);
}

TEST_F(LowRankLinear, RefusesShapesThatDoNotMeet) {
  for (const bool terms : {true, false}) {
    context_.set_gemm_epilogues(terms);
    InputMaker make(context_, DType::f32, 9);
    for (size_t wrong = 0; wrong < 3; ++wrong) {
      std::vector<Tensor> bad = inputs(DType::f32);
      bad[wrong] = make.uniform({7, 7});
      try {
        layer(context_, bad);
        ADD_FAILURE() << "input " << wrong << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
      }
    }
  }
}

}  // namespace
}  // namespace trafo::testing
