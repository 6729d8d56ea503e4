// Objectives that a Trainer is given: several forward passes, another normaliser, another model.
#include "engine/ops/binary/binary.h"
#include "tests/support/errors.h"
#include "tests/train/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// A mean over sentences instead of labels.
class PerSentence final : public LabelSmoothedCrossEntropy {
 public:
  PerSentence() : LabelSmoothedCrossEntropy(0.1) {}
  double units(double, int64_t sentences) const override { return static_cast<double>(sentences); }
};

// The loss of several forward passes, without dropout.
class Passes final : public Objective {
 public:
  explicit Passes(int count) : count_(count) {}
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch, const DropoutPass&,
                       double scale) const override {
    ops::CrossEntropyOptions options;
    options.weights = batch.target_weights;
    options.reduction = Reduction::sum;
    options.scale = scale;
    options.labels_validated = batch.indices_validated;
    ObjectiveOutput sum;
    for (int i = 0; i < count_; ++i) {
      const auto next =
          ops::cross_entropy(context, model.logits(context, batch), batch.target_out, options);
      sum = i == 0 ? ObjectiveOutput{next.loss, next.nll}
                   : ObjectiveOutput{ops::add(context, sum.loss, next.loss),
                                     ops::add(context, sum.nll, next.nll)};
    }
    return sum;
  }

 private:
  int count_;
};

// Has a second model.
class WithAnother final : public LabelSmoothedCrossEntropy {
 public:
  explicit WithAnother(std::unique_ptr<Model> other)
      : LabelSmoothedCrossEntropy(0.1), other_(std::move(other)) {}
  const Model* other_model() const override { return other_.get(); }

 private:
  std::unique_ptr<Model> other_;
};

class TrainerObjective : public ::testing::TestWithParam<TestDevice> {
 protected:
  // The results of three updates of two batches each.
  std::vector<StepResult> results(std::unique_ptr<Objective> objective) const {
    const auto context = GetParam().make();
    const auto model = make_model(*context, tiny_config(), 5);
    TrainOptions options = quick_options();
    options.clip_norm = 0;
    Trainer trainer(*context, *model, options, {}, std::move(objective));
    const auto data = copy_batches(Architecture::encoder_decoder, 6);
    std::vector<StepResult> all;
    for (size_t i = 0; i < data.size(); i += 2)
      all.push_back(trainer.step(std::span(data).subspan(i, 2)));
    EXPECT_EQ(trainer.unplanned_allocations(), 0);
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Devices, TrainerObjective,
    ::testing::Values(TestDevice{"Cpu",
                                 [] {
                                   return make_context({DeviceKind::cpu, 0}, 1);
                                 }},
                      TestDevice{"StandIn", &stand_in}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(TrainerObjective, TheUpdateIsDividedByItsUnits) {
  const StepResult labels = results(nullptr)[0];
  const StepResult sentences = results(std::make_unique<PerSentence>())[0];
  EXPECT_EQ(labels.units, labels.labels);
  EXPECT_EQ(sentences.labels, labels.labels);
  EXPECT_EQ(sentences.units, static_cast<double>(sentences.sentences));
  const double factor = labels.labels / sentences.units;
  EXPECT_GT(factor, 1.5);
  EXPECT_NEAR(sentences.loss, factor * labels.loss, 1e-5 * sentences.loss);
  EXPECT_NEAR(sentences.nll, factor * labels.nll, 1e-5 * sentences.nll);
  EXPECT_NEAR(sentences.grad_norm, factor * labels.grad_norm, 1e-4 * sentences.grad_norm);
}

TEST_P(TrainerObjective, MayRunTheModelTwice) {
  const StepResult once = results(std::make_unique<Passes>(1))[0];
  const StepResult twice = results(std::make_unique<Passes>(2))[0];
  EXPECT_NEAR(twice.loss, 2 * once.loss, 1e-5 * twice.loss);
  EXPECT_NEAR(twice.nll, 2 * once.nll, 1e-5 * twice.nll);
  EXPECT_NEAR(twice.grad_norm, 2 * once.grad_norm, 1e-4 * twice.grad_norm);
}

TEST_P(TrainerObjective, BatchesMustFitTheOtherModel) {
  const auto context = GetParam().make();
  const auto with = [&](Architecture architecture) {
    return std::make_unique<WithAnother>(make_model(*context, tiny_config(architecture), 6));
  };
  EXPECT_EQ(results(with(Architecture::encoder_decoder)).size(), 3u);
  expect_error(ErrorCode::invalid_argument, "reads the source in target_in",
               [&] { results(with(Architecture::decoder_lm)); });
}

// AdamW does not see the scale of the loss, so all updates go the same way.
TEST_P(TrainerObjective, LaterUpdatesFollowTheMean) {
  const auto labels = results(nullptr), sentences = results(std::make_unique<PerSentence>());
  for (size_t i = 0; i < labels.size(); ++i) {
    const double factor = sentences[i].labels / sentences[i].units;
    EXPECT_NEAR(sentences[i].nll, factor * labels[i].nll, 2e-2 * sentences[i].nll) << i;
  }
}

}  // namespace
}  // namespace trafo
