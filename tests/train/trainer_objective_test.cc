// Objectives that a Trainer is given: several forward passes, another normaliser, another model.
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/ops/binary/binary.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
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

// Reports twice its loss and its nll as metrics, means over sentences.
class WithMetrics final : public LabelSmoothedCrossEntropy {
 public:
  // `computed`: how many of the two loss() returns.
  explicit WithMetrics(size_t computed = 2) : LabelSmoothedCrossEntropy(0.1), computed_(computed) {}
  double units(double, int64_t sentences) const override { return static_cast<double>(sentences); }
  std::span<const char* const> metrics() const override {
    static constexpr const char* kNames[] = {"twice", "likelihood"};
    return kNames;
  }
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale) const override {
    ObjectiveOutput output = LabelSmoothedCrossEntropy::loss(context, model, batch, dropout, scale);
    output.metrics = {ops::add(context, output.loss.detach(), output.loss.detach()), output.nll};
    output.metrics.resize(computed_);
    return output;
  }

 private:
  size_t computed_;
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
  std::vector<StepResult> results(std::unique_ptr<Objective> objective, int64_t lanes = 1) const {
    const auto context = GetParam().make();
    const auto model = make_model(*context, tiny_config(), 5);
    TrainOptions options = quick_options();
    options.clip_norm = 0;
    options.lanes = lanes;
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
  EXPECT_NEAR(sentences.nll, labels.nll, 1e-5 * labels.nll);
  EXPECT_NEAR(sentences.grad_norm, factor * labels.grad_norm, 1e-4 * sentences.grad_norm);
}

// With one batch after the other, and with lanes that are added up.
TEST_P(TrainerObjective, MetricsAreMeansPerUnit) {
  for (const int64_t lanes : {1, 2}) {
    const auto plain = results(std::make_unique<PerSentence>(), lanes);
    const auto measured = results(std::make_unique<WithMetrics>(), lanes);
    for (size_t i = 0; i < plain.size(); ++i) {
      const StepResult& step = measured[i];
      EXPECT_TRUE(plain[i].metrics.empty());
      EXPECT_EQ(step.loss, plain[i].loss);  // metrics change nothing
      EXPECT_EQ(step.nll, plain[i].nll);
      EXPECT_EQ(step.grad_norm, plain[i].grad_norm);
      ASSERT_EQ(step.metrics.size(), 2u);
      EXPECT_EQ(step.metrics[0], 2 * step.loss) << lanes << " lanes, update " << i;
      EXPECT_NEAR(step.metrics[1] * step.units, step.nll * step.labels, 1e-9 * step.labels);
    }
  }
}

TEST_P(TrainerObjective, AMissingMetricIsAnError) {
  expect_error(ErrorCode::internal, "the objective has 2 metrics and has computed 1",
               [&] { results(std::make_unique<WithMetrics>(1)); });
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
  for (size_t i = 0; i < labels.size(); ++i)
    EXPECT_NEAR(sentences[i].nll, labels[i].nll, 2e-2 * labels[i].nll) << i;
}

TEST(Objectives, TheTableSaysWhichLearnFromPreferences) {
  for (size_t i = 0; i < EnumNames<ObjectiveKind>::names.size(); ++i) {
    TrainOptions options;
    options.objective = static_cast<ObjectiveKind>(i);
    EXPECT_EQ(needs_preferences(options.objective),
              make_objective(options, nullptr)->needs_preferences());
  }
  EXPECT_TRUE(preference_objectives(false).starts_with("dpo"));
}

}  // namespace
}  // namespace trafo
