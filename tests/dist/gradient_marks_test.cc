// Marks of gradients that are complete while a backward pass runs.
#include "engine/train/parallel/gradient_marks.h"
#include "engine/objective/cross_entropy/cross_entropy.h"

#include "engine/models/upload.h"
#include "tests/dist/group_support.h"

namespace trafo {
namespace {

using namespace testing;

// Keeps what a part of the gradient is when its mark is set.
class Witness final : public Communicator {
 public:
  explicit Witness(const Tensor& gradient) : Communicator(0, 2), gradient_(gradient) {}
  const char* transport() const override { return "witness"; }
  void attach(Backend&) override {}
  void exchange(std::span<const SendPiece>, std::span<const ReceivePiece>) override {}
  std::vector<std::string> host_all_gather(std::string_view) override { return {}; }
  void abort(std::string_view) noexcept override {}
  int marks() const override { return 6; }
  void set_mark(int mark) override {
    order.push_back(mark);
    seen[mark] = whole();
  }
  std::vector<float> whole() const {
    const auto* first = static_cast<const float*>(gradient_.raw());
    return {first, first + gradient_.numel()};
  }

  std::vector<int> order;
  std::map<int, std::vector<float>> seen;

 private:
  Tensor gradient_;
};

class GradientMarksTest : public ::testing::TestWithParam<Architecture> {
 protected:
  // A pass over each batch; the parts are what they are at the end when their marks are set.
  void expect_complete(const std::string& frozen, double layer_drop, bool last_part_is_first) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, group_config(GetParam()), 5);
    ParameterStore& parameters = model->parameters();
    if (!frozen.empty()) parameters.set_trainable(*context, frozen, false);
    Witness witness(parameters.flat_grad());
    GradientMarks marks(*context, parameters, witness);
    ASSERT_GT(marks.parts().size(), 1u);
    EXPECT_EQ(marks.parts().front().begin, 0);
    EXPECT_EQ(marks.parts().back().end, parameters.flat_grad().numel());
    TrainOptions options = quick_options();
    options.layer_drop = layer_drop;
    const LabelSmoothedCrossEntropy objective(0.1);
    const StepSums sums(*context, DType::f32);
    bool first = true;
    uint32_t pass = 0;
    for (const PackedBatchHost& batch : copy_batches(GetParam(), 3)) {
      witness.order.clear();
      const StepScope observed(*context, &StepContext::observer, &marks);
      accumulate_gradients(*context, *model,
                           {upload(*context, batch, model->spec(), DType::f32),
                            training_pass(model->spec(), options, pass++), 0.1, first},
                           objective, Recompute::none, sums);
      const std::vector<float> end = witness.whole();
      ASSERT_EQ(witness.order.size(), marks.parts().size());
      if (last_part_is_first) {
        EXPECT_EQ(witness.order.front(), static_cast<int>(marks.parts().size()) - 1);
      }
      bool early = false;
      for (size_t i = 0; i < marks.parts().size(); ++i) {
        const auto& seen = witness.seen.at(static_cast<int>(i));
        const auto [begin, past] = std::pair(marks.parts()[i].begin, marks.parts()[i].end);
        EXPECT_TRUE(std::equal(seen.begin() + begin, seen.begin() + past, end.begin() + begin))
            << "part " << i << " of batch " << pass;
        early = early || seen != end;
      }
      EXPECT_EQ(early, last_part_is_first) << "marks are set while other parts are not complete";
      first = false;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Models, GradientMarksTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "Lm" : "Translation";
                         });

TEST_P(GradientMarksTest, APartIsCompleteWhenItsMarkIsSet) {
  expect_complete("", 0, true);
}

TEST_P(GradientMarksTest, WhatLayersThatAreSkippedLeaveIsCompleteAtTheEnd) {
  expect_complete("", 0.9, false);
}

TEST_P(GradientMarksTest, FrozenParametersHaveNoPart) {
  expect_complete("*embedding*", 0, true);
}

}  // namespace
}  // namespace trafo
