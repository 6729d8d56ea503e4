// ORPO and KTO: their gradients, what runs learn, that they resume with the same bits, and what is
// refused. tests/parity/golden_test.cc compares their losses with PyTorch's.
#include <cmath>

#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/kto/kto.h"
#include "engine/objective/orpo/orpo.h"
#include "tests/support/errors.h"
#include "tests/train/preference_support.h"
#include "tests/train/step/accelerator.h"

namespace trafo {
namespace {

using namespace testing;

struct ObjectiveCase {
  ObjectiveKind kind;
  Architecture architecture;
};

class PreferenceObjectives : public ::testing::TestWithParam<ObjectiveCase> {
 protected:
  PreferenceObjectives() {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    reference_ = folder_ / "reference.safetensors";
    save_model(reference_, *context, *make_model(*context, config_, 5));
  }
  bool compares() const { return GetParam().kind == ObjectiveKind::kto; }
  std::vector<PackedBatchHost> batches(size_t count) const {
    return preference_batches(GetParam().architecture, count, compares());
  }
  TrainOptions options() const {
    TrainOptions all = preference_options(GetParam().kind);
    all.kto_desirable_weight = 1.5;
    all.kto_undesirable_weight = 0.75;
    return all;
  }
  std::unique_ptr<Objective> objective(Context& context, DType dtype = DType::f32) const {
    return make_objective(options(),
                          compares() ? frozen_model(context, make_model(context, config_, 6, dtype),
                                                    FrozenRole::reference)
                                     : nullptr);
  }
  // With the models of objective() and of a test the other way round, the batch with the largest
  // KL: the right way round it is furthest below 0.
  Batch batch_below_the_reference(Context& context) const {
    const NoGrad no_grad(context);
    const auto model = make_model(context, config_, 6, DType::f64);
    const auto turned = make_objective(
        options(),
        frozen_model(context, make_model(context, config_, 5, DType::f64), FrozenRole::reference));
    Batch lowest;
    double largest = 0;
    for (const PackedBatchHost& each : batches(8)) {
      const Batch batch = upload(context, each, spec_of(config_), DType::f64);
      const double kl = context.item(turned->loss(context, *model, batch, {}).metrics.back());
      if (kl / static_cast<double>(batch.sentences) <= largest) continue;
      largest = kl / static_cast<double>(batch.sentences);
      lowest = batch;
    }
    EXPECT_GT(largest, 0.01);
    return lowest;
  }
  struct Trained {
    std::unique_ptr<Context> context;
    std::unique_ptr<Model> model;
    std::unique_ptr<TrainingRun> run;
    std::vector<TrainEvent> logs;

    void train(int64_t updates) {
      run->run(
          [this](const TrainEvent& event) {
            if (event.kind == TrainEventKind::log) logs.push_back(event);
            return 0;
          },
          nullptr, updates);
    }
  };
  Trained make_run(const TrainOptions& options, int threads = 1,
                   const std::optional<std::filesystem::path>& directory = std::nullopt) const {
    Trained made;
    made.context = make_context({DeviceKind::cpu, 0}, threads);
    made.model = make_model(*made.context, config_, 5);
    TrainingData data = preference_data(GetParam().architecture, compares());
    if (compares())
      data.frozen =
          load_frozen_model(*made.context, *made.model, reference_, FrozenRole::reference);
    made.run = std::make_unique<TrainingRun>(*made.context, *made.model, std::move(data), options,
                                             directory);
    return made;
  }

  ModelConfig config_ = tiny_config(GetParam().architecture, 0);
  TemporaryDirectory folder_;
  std::filesystem::path reference_;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, PreferenceObjectives,
    ::testing::Values(ObjectiveCase{ObjectiveKind::orpo, Architecture::encoder_decoder},
                      ObjectiveCase{ObjectiveKind::orpo, Architecture::decoder_lm},
                      ObjectiveCase{ObjectiveKind::kto, Architecture::encoder_decoder},
                      ObjectiveCase{ObjectiveKind::kto, Architecture::decoder_lm}),
    [](const auto& instance) {
      return std::string(instance.param.kind == ObjectiveKind::kto ? "Kto" : "Orpo") +
             (instance.param.architecture == Architecture::decoder_lm ? "DecoderLm"
                                                                      : "EncoderDecoder");
    });

// Every gradient by differences, and the same bits whatever is recomputed. The KL term of KTO is
// not differentiated, so the batch is one where it is clamped to 0.
TEST_P(PreferenceObjectives, GradientsInFloat64) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config_, 5, DType::f64);
  ParameterStore& parameters = model->parameters();
  const auto trained = objective(*context, DType::f64);
  const StepSums sums(*context, DType::f64, trained->metrics().size());
  const Batch batch = compares() ? batch_below_the_reference(*context)
                                 : upload(*context, batches(1)[0], spec_of(config_), DType::f64);
  const auto loss = [&](Recompute recompute = Recompute::none, bool fused = true) {
    context->set_fused_kernels(fused);
    accumulate_gradients(*context, *model, {batch, {7, 3, true}}, *trained, recompute, sums);
    return context->item(sums.loss());
  };
  const double at_rest = loss();
  const auto gradients = context->values<double>(parameters.flat_grad());
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    loss(recompute);
    EXPECT_EQ(context->values<double>(parameters.flat_grad()), gradients);
  }
  EXPECT_NEAR(loss(Recompute::none, false), at_rest, 1e-10);
  double largest = 0;
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    std::vector<double> values(static_cast<size_t>(element_count(parameters.shape(id))));
    const size_t bytes = values.size() * sizeof(double);
    parameters.get_value(*context, id, values.data(), bytes);
    constexpr double kStep = 1e-6;  // an activation has a kink 5e-6 away
    const size_t i = values.size() / 2;
    const double value = values[i];
    const auto loss_at = [&](double moved) {
      values[i] = moved;
      parameters.set_value(*context, id, values.data(), bytes);
      return loss();
    };
    const double difference = (loss_at(value + kStep) - loss_at(value - kStep)) / (2 * kStep);
    loss_at(value);
    EXPECT_NEAR(gradients[static_cast<size_t>(parameters.offset(id)) + i], difference, 1e-6)
        << parameters.name(id);
    largest = std::max(largest, std::abs(difference));
  }
  EXPECT_GT(largest, 1e-3);
}

TEST_P(PreferenceObjectives, AnAcceleratorComputesTheSame) {
  const auto steps = [&](Context& context) {
    const auto model = make_model(context, config_, 5);
    Trainer trainer(context, *model, options(), {}, objective(context));
    const auto data = batches(4);
    std::vector<StepResult> all;
    for (const size_t first : {0, 2, 0, 0, 2})
      all.push_back(trainer.step(std::span(data).subspan(first, 2)));
    EXPECT_EQ(trainer.unplanned_allocations(), 0);
    return all;
  };
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  const auto device = stand_in();
  const auto expected = steps(*cpu), actual = steps(*device);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].units, expected[i].units);
    EXPECT_EQ(actual[i].labels, expected[i].labels);
    EXPECT_NEAR(actual[i].loss, expected[i].loss, 1e-5) << i;
    EXPECT_NEAR(actual[i].nll, expected[i].nll, 1e-5) << i;
    EXPECT_NEAR(actual[i].grad_norm, expected[i].grad_norm, 1e-5) << i;
    for (size_t m = 0; m < expected[i].metrics.size(); ++m)
      EXPECT_NEAR(actual[i].metrics[m], expected[i].metrics[m], 1e-5) << i << " " << m;
  }
}

TEST_P(PreferenceObjectives, ARunLearnsWhichAnswersArePreferred) {
  Trained trained = make_run(options());
  const auto before = trained.run->validate();
  ASSERT_TRUE(before);
  trained.train(compares() ? 200 : 300);
  const auto after = trained.run->validate();
  ASSERT_TRUE(after);
  // Of answers that it has not seen: to judge one alone is harder than to compare two.
  EXPECT_GT(after->values[0], compares() ? 0.55 : 0.8);
  EXPECT_GT(after->values[0], before->values[0]);
  EXPECT_GT(after->values[1], 0.02);
  EXPECT_GT(after->values[1], before->values[1]);
  ASSERT_FALSE(trained.logs.empty());
  EXPECT_LT(trained.logs.back().loss, trained.logs.front().loss);
  for (const TrainEvent& event : trained.logs) {
    const auto value = [&](std::string_view name) {
      for (const auto& [each, number] : event.objective_metrics)
        if (each == name) return number;
      ADD_FAILURE() << "no " << name;
      return 0.0;
    };
    const double margin = value("chosen-reward") - value("rejected-reward");
    if (!std::isnan(margin)) {
      EXPECT_NEAR(value("reward-margin"), margin, 1e-5);
    }
    if (compares()) {
      EXPECT_GE(value("kl"), 0);
      const double share = value("desirable-share");
      EXPECT_TRUE(share >= 0 && share <= 1);
      EXPECT_EQ(std::isnan(value("chosen-reward")), share == 0);
      EXPECT_EQ(std::isnan(value("rejected-reward")), share == 1);
    }
  }
}

TEST_P(PreferenceObjectives, ThreadsAndResumptionsGiveTheSameBits) {
  Trained one = make_run(options()), three = make_run(options(), 3);
  one.train(9);
  three.train(9);
  EXPECT_EQ(weight_bytes(*one.context, *one.model), weight_bytes(*three.context, *three.model));
  const TemporaryDirectory directory;
  for (const int64_t updates : {5, 4}) {
    Trained part = make_run(options(), 1, directory.path());
    part.train(updates);
    part.run->save();
    if (updates == 5) continue;
    EXPECT_EQ(weight_bytes(*part.context, *part.model), weight_bytes(*one.context, *one.model));
  }
  TrainOptions other = options();
  (compares() ? other.kto_desirable_weight : other.orpo_beta) = 0.3;
  expect_error(ErrorCode::invalid_argument, compares() ? "kto_desirable_weight" : "orpo_beta",
               [&] { make_run(other, 1, directory.path()); });
}

TEST(LabelledAnswers, AreForKto) {
  const TextCorpus answers(make_labelled({"a", "b"}, {"b", "a"}, {true, false}));
  EXPECT_TRUE(answers.labelled());
  const ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  const Tokenizer tokenizer = Tokenizer::train(std::vector<std::string>{"a b c", "b c a"}, [] {
    TokenizerTrainOptions options;
    options.vocab_size = 16;
    options.hard_vocab_limit = false;
    return options;
  }());
  ModelConfig fitting = config;
  fitting.vocabulary = tokenizer.vocab_size();
  for (const ObjectiveKind kind :
       {ObjectiveKind::cross_entropy, ObjectiveKind::dpo, ObjectiveKind::orpo}) {
    TrainOptions options = preference_options(kind);
    options.valid_metrics = {"ce-mean-words"};
    expect_error(ErrorCode::invalid_argument, "labelled answers, which are for kto", [&] {
      prepare_data(&answers, nullptr, PairEncoding(tokenizer), spec_of(fitting), options, 1);
    });
  }
  TrainOptions options = preference_options(ObjectiveKind::kto);
  options.valid_metrics = {"ce-mean-words"};
  const TrainingData data =
      prepare_data(&answers, &answers, PairEncoding(tokenizer), spec_of(fitting), options, 1);
  EXPECT_TRUE(data.train->labelled());
  EXPECT_TRUE(data.train->options().answers_apart);
}

TEST(LabelledAnswers, KtoNeedsAReferenceAndRowsOfItsOwn) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  const auto model = make_model(*context, config, 5);
  expect_error(ErrorCode::invalid_argument, "there is no reference",
               [&] { Kto({}, nullptr).check(*model); });
  const Batch pairs = upload(*context, preference_batches(Architecture::encoder_decoder, 1)[0],
                             spec_of(config), DType::f32);
  expect_error(ErrorCode::invalid_argument, "which answer of a pair is its own",
               [&] { Kto({}, nullptr).loss(*context, *model, pairs, {}); });
  const Batch copies = upload(*context, copy_batches(Architecture::encoder_decoder, 1)[0],
                              spec_of(config), DType::f32);
  expect_error(ErrorCode::invalid_argument, "the batch has no preference pairs",
               [&] { Orpo({}).loss(*context, *model, copies, {}); });
}

}  // namespace
}  // namespace trafo
