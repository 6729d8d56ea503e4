// DPO: the loss and its gradients, what a run learns, that it resumes with the same bits, and what
// is refused.
#include "engine/objective/dpo/dpo.h"

#include <cmath>

#include "engine/data/batch_packer.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/train/plan/memory_plan.h"
#include "tests/support/errors.h"
#include "tests/train/gradient_check.h"
#include "tests/train/preference_support.h"
#include "tests/train/step/accelerator.h"

namespace trafo {
namespace {

using namespace testing;

const AdapterConfig kAdapter{.rank = 3, .alpha = 6};

// Without dropout, which the reference does not have.
ModelConfig config_of(Architecture architecture) {
  return tiny_config(architecture, 0);
}

// Adds an adapter that changes what the model computes.
void add_moved_adapter(Context& context, Model& model) {
  add_adapter(context, model, kAdapter, 4);
  ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (!parameters.name(id).ends_with("lora_B")) continue;
    const auto count = static_cast<size_t>(element_count(parameters.shape(id)));
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = 0.2 * std::sin(static_cast<double>(i) + id);
    if (parameters.master().dtype() == DType::f64) {
      parameters.set_value(context, id, values.data(), count * sizeof(double));
    } else {
      const std::vector<float> rounded(values.begin(), values.end());
      parameters.set_value(context, id, rounded.data(), count * sizeof(float));
    }
  }
}

// A model and its reference, made anew.
struct DpoProcess {
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;
  std::vector<TrainEvent> logs;

  // `reference`: empty: an adapter is trained instead of the whole model.
  DpoProcess(TrainingData data, const TrainOptions& options, const ModelConfig& config,
             const std::filesystem::path& reference,
             const std::optional<std::filesystem::path>& directory = std::nullopt, int threads = 1)
      : context(make_context({DeviceKind::cpu, 0}, threads)),
        model(make_model(*context, config, 5)) {
    if (reference.empty())
      add_adapter(*context, *model, kAdapter, 4);
    else
      data.frozen = load_frozen_model(*context, *model, reference, FrozenRole::reference);
    run = std::make_unique<TrainingRun>(*context, *model, std::move(data), options, directory);
  }
  void train(int64_t updates) {
    const auto remember = [this](const TrainEvent& event) {
      if (event.kind == TrainEventKind::log) logs.push_back(event);
      return 0;
    };
    run->run(remember, nullptr, updates);
  }
};

class DpoTest : public ::testing::TestWithParam<Architecture> {
 protected:
  DpoTest() : config_(config_of(GetParam())) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    reference_ = folder_ / "reference.safetensors";
    save_model(reference_, *context, *make_model(*context, config_, 5));
  }

  // Three updates of two batches each, and then the same two again.
  std::vector<StepResult> steps(Context& context) const {
    const auto model = make_model(context, config_, 5);
    const TrainOptions options = dpo_options();
    Trainer trainer(context, *model, options, {},
                    make_objective(options, frozen_model(context, make_model(context, config_, 6),
                                                         FrozenRole::reference)));
    const auto data = preference_batches(GetParam(), 4);
    std::vector<StepResult> all;
    for (const size_t first : {0, 2, 0, 0, 2})
      all.push_back(trainer.step(std::span(data).subspan(first, 2)));
    EXPECT_EQ(trainer.unplanned_allocations(), 0);
    return all;
  }

  ModelConfig config_;
  TemporaryDirectory folder_;
  std::filesystem::path reference_;
  TrainingData data_ = preference_data(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Architectures, DpoTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

// The gradient of every parameter by differences, with a reference and with an adapter, and the
// same bits whatever is recomputed.
TEST_P(DpoTest, GradientsInFloat64) {
  for (const bool adapted : {false, true}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, config_, 5, DType::f64);
    if (adapted) add_moved_adapter(*context, *model);
    ParameterStore& parameters = model->parameters();
    const Dpo objective(
        {0.5, 0.1}, adapted ? nullptr
                            : frozen_model(*context, make_model(*context, config_, 6, DType::f64),
                                           FrozenRole::reference));
    const StepSums sums(*context, DType::f64, objective.metrics().size());
    const Batch batch =
        upload(*context, preference_batches(GetParam(), 1)[0], spec_of(config_), DType::f64);
    const auto loss = [&](Recompute recompute = Recompute::none, bool fused = true) {
      context->set_fused_kernels(fused);
      accumulate_gradients(*context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
      return context->item(sums.loss());
    };
    const double at_rest = loss();
    EXPECT_NEAR(loss(Recompute::none, false), at_rest, 1e-10);
    EXPECT_GT(expect_gradients(*context, parameters, loss), 1e-3);
  }
}

TEST_P(DpoTest, WithoutItsAdapterAModelIsItsReference) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Batch batch =
      upload(*context, preference_batches(GetParam(), 1)[0], spec_of(config_), DType::f32);
  const auto model = make_model(*context, config_, 5);
  const auto values = [&](const Dpo& dpo) {
    const NoGrad no_grad(*context);  // a tape would hold the parameters
    const ObjectiveOutput output = dpo.loss(*context, *model, batch, {});
    std::vector<double> all{context->item(output.loss), context->item(output.nll)};
    for (const Tensor& metric : output.metrics) all.push_back(context->item(metric));
    return all;
  };
  const Dpo alone({0.5, 0}, nullptr);
  const Dpo with_copy(
      {0.5, 0}, frozen_model(*context, make_model(*context, config_, 5), FrozenRole::reference));
  add_moved_adapter(*context, *model);
  EXPECT_EQ(values(alone), values(with_copy));
  EXPECT_NE(values(alone)[2], 0);
  remove_adapter(*context, *model);
  const std::vector<double> equal = values(with_copy);
  EXPECT_NEAR(equal[0], std::log(2) * static_cast<double>(batch.sentences / 2), 1e-4);
  for (size_t i = 2; i < equal.size(); ++i) EXPECT_EQ(equal[i], 0) << i;
}

// The same pairs in one batch and in four give one update.
TEST_P(DpoTest, AnUpdateDoesNotDependOnItsMicroBatches) {
  const auto corpus = preference_corpus(GetParam(), 8, 3);
  const auto packed = [&](int64_t pairs) {
    std::vector<PackedBatchHost> batches;
    for (int64_t first = 0; first < 8; first += pairs) {
      BatchPacker packer(batches.emplace_back(), corpus->options().form, kTokens.bos);
      for (int64_t i = first; i < first + pairs; ++i)
        packer.add_answers(corpus->source(i), corpus->target(i), corpus->rejected(i), i);
    }
    return batches;
  };
  std::vector<StepResult> results;
  std::vector<std::vector<float>> weights;
  for (const int64_t pairs : {8, 2}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, config_, 5);
    const TrainOptions options = dpo_options();
    Trainer trainer(*context, *model, options, {},
                    make_objective(options, frozen_model(*context, make_model(*context, config_, 6),
                                                         FrozenRole::reference)));
    results.push_back(trainer.step(packed(pairs)));
    weights.push_back(context->values<float>(model->parameters().flat_grad()));
  }
  EXPECT_EQ(results[0].units, 8);
  EXPECT_EQ(results[1].units, 8);
  EXPECT_NEAR(results[0].loss, results[1].loss, 1e-6);
  EXPECT_NEAR(results[0].nll, results[1].nll, 1e-5);
  EXPECT_NEAR(results[0].grad_norm, results[1].grad_norm, 1e-5);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(results[0].metrics[i], results[1].metrics[i], 1e-6);
  for (size_t i = 0; i < weights[0].size(); ++i) EXPECT_NEAR(weights[0][i], weights[1][i], 1e-6);
}

// Batches are padded there, steps are graphs, and the scale of the loss is in the batch's memory.
TEST_P(DpoTest, AnAcceleratorComputesTheSame) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  const auto device = stand_in();
  const auto expected = steps(*cpu), actual = steps(*device);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].units, expected[i].units);
    EXPECT_NEAR(actual[i].loss, expected[i].loss, 1e-5) << i;
    EXPECT_NEAR(actual[i].nll, expected[i].nll, 1e-5) << i;
    EXPECT_NEAR(actual[i].grad_norm, expected[i].grad_norm, 1e-5) << i;
    for (size_t m = 0; m < 4; ++m)
      EXPECT_NEAR(actual[i].metrics[m], expected[i].metrics[m], 1e-5) << i << " " << m;
  }
}

TEST_P(DpoTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const bool adapted : {false, true}) {
    DpoProcess one(data_, dpo_options(), config_, adapted ? "" : reference_);
    DpoProcess three(data_, dpo_options(), config_, adapted ? "" : reference_, std::nullopt, 3);
    one.train(8);
    three.train(8);
    EXPECT_EQ(weight_bytes(*one.context, *one.model), weight_bytes(*three.context, *three.model));
  }
}

TEST_P(DpoTest, ARunLearnsWhichAnswersArePreferred) {
  for (const bool adapted : {false, true}) {
    TrainOptions options = dpo_options();
    options.learning_rate = adapted ? 3e-2 : 1e-2;  // few weights, beside random ones
    DpoProcess process(data_, options, config_, adapted ? "" : reference_);
    const auto before = process.run->validate();
    ASSERT_TRUE(before);
    EXPECT_EQ(before->values[0], 0);  // equal rewards
    EXPECT_EQ(before->values[1], 0);
    process.train(adapted ? 240 : 60);
    const auto after = process.run->validate();
    ASSERT_TRUE(after);
    EXPECT_GT(after->values[0], 0.8) << adapted;  // of pairs that it has not seen
    EXPECT_GT(after->values[1], 0.1) << adapted;
    // The log says so of the pairs that it was trained on.
    const auto names = Dpo({}, nullptr).metrics();
    ASSERT_FALSE(process.logs.empty());
    for (const TrainEvent& event : process.logs) {
      ASSERT_EQ(event.objective_metrics.size(), names.size());
      for (size_t i = 0; i < names.size(); ++i)
        EXPECT_EQ(event.objective_metrics[i].first, names[i]);
      const auto& values = event.objective_metrics;
      EXPECT_NEAR(values[2].second, values[0].second - values[1].second, 1e-5);
    }
    EXPECT_GT(process.logs.back().objective_metrics[3].second, 0.8);
    EXPECT_LT(process.logs.back().loss, process.logs.front().loss);
    EXPECT_LT(process.logs.front().loss, 0.8);  // per pair, not per label
  }
}

TEST_P(DpoTest, ACrossEntropyOfPreferencesIsOfTheChosenAnswers) {
  DpoProcess process(data_, dpo_options(), config_, reference_);
  const auto& pairs = dynamic_cast<const TokenizedCorpus&>(*data_.valid);
  std::vector<int32_t> source, target;
  std::vector<int64_t> source_ends{0}, target_ends{0};
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const auto append = [](std::span<const int32_t> text, auto& ids, auto& ends) {
      ids.insert(ids.end(), text.begin(), text.end() - 1);  // </s> comes again
      ends.push_back(static_cast<int64_t>(ids.size()));
    };
    append(pairs.source(i), source, source_ends);
    append(pairs.target(i), target, target_ends);
  }
  const TokenizedCorpus chosen(source, source_ends, target, target_ends, kVocabulary, kTokens.eos,
                               pairs.options());
  EXPECT_EQ(process.run->validate()->values[2],
            mean_cross_entropy(*process.context, *process.model, chosen, kTokens));
}

TEST_P(DpoTest, AResumedRunHasTheSameBits) {
  for (const bool adapted : {false, true}) {
    const std::filesystem::path reference = adapted ? "" : reference_;
    DpoProcess uncut(data_, dpo_options(), config_, reference);
    uncut.train(14);
    const TemporaryDirectory directory;
    std::vector<TrainEvent> logs;
    for (const int64_t updates : {6, 5, 3}) {
      DpoProcess process(data_, dpo_options(), config_, reference, directory.path());
      process.train(updates);
      process.run->save();
      logs.insert(logs.end(), process.logs.begin(), process.logs.end());
      if (updates > 3) continue;
      EXPECT_EQ(weight_bytes(*process.context, *process.model),
                weight_bytes(*uncut.context, *uncut.model));
      EXPECT_EQ(timeless(process.run->state()), timeless(uncut.run->state()));
    }
    ASSERT_EQ(logs.size(), uncut.logs.size());
    for (size_t i = 0; i < logs.size(); ++i) {
      EXPECT_EQ(logs[i].loss, uncut.logs[i].loss);
      EXPECT_EQ(logs[i].objective_metrics, uncut.logs[i].objective_metrics);
    }
  }
}

TEST_P(DpoTest, ARunResumesWithItsReferenceAndItsOptionsOnly) {
  const TemporaryDirectory directory;
  {
    DpoProcess process(data_, dpo_options(), config_, reference_, directory.path());
    process.train(5);
    process.run->save();
  }
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto other = folder_ / "other.safetensors";
  save_model(other, *context, *make_model(*context, config_, 6));
  const auto refused = [&](const std::string& text, const TrainOptions& options,
                           const std::filesystem::path& reference) {
    expect_error(ErrorCode::invalid_argument, text,
                 [&] { DpoProcess(data_, options, config_, reference, directory.path()); });
  };
  refused("cannot be continued with another reference: the checksum of its weights was",
          dpo_options(), other);
  TrainOptions options = dpo_options();
  options.dpo_beta = 0.1;
  refused("dpo_beta was 0.5 and is 0.1 now", options, reference_);
  options = dpo_options();
  options.dpo_label_smoothing = 0.1;
  refused("dpo_label_smoothing was 0.0 and is 0.1 now", options, reference_);
}

TEST_P(DpoTest, MistakesAreNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto refused = [&](const std::string& text, const TrainingData& data,
                           const TrainOptions& options) {
    expect_error(ErrorCode::invalid_argument, text, [&] {
      const auto model = make_model(*context, config_, 5);
      TrainingRun(*context, *model, data, options);
    });
  };
  refused("there is no reference to compare the model with", data_, dpo_options());
  TrainOptions options = quick_options();
  options.batch_tokens = 80;
  refused("objective is cross-entropy, and the training corpus is of preference pairs", data_,
          options);
  TrainingData data = copy_data(GetParam());
  refused("objective is dpo, and the training corpus has no preference pairs", data, dpo_options());
  data.train = data_.train;
  refused("objective is dpo, and the validation corpus has no preference pairs", data,
          dpo_options());
  data = data_;
  data.frozen = frozen_model(*context, make_model(*context, config_, 6), FrozenRole::teacher);
  refused("the model has a teacher, and the objective dpo has none", data, dpo_options());
  data = copy_data(GetParam());
  data.frozen = frozen_model(*context, make_model(*context, config_, 6), FrozenRole::reference);
  refused("the model has a reference, and the objective cross-entropy has none", data,
          quick_options());
  options = quick_options();
  options.valid_metrics = {"ce-mean-words", "reward-margin"};
  refused("valid_metrics has reward-margin, which the objective cross-entropy does not compute",
          copy_data(GetParam()), options);
  const auto model = make_model(*context, config_, 5);
  const Batch batch =
      upload(*context, copy_batches(GetParam(), 1)[0], spec_of(config_), DType::f32);
  expect_error(ErrorCode::invalid_argument, "the batch has no preference pairs",
               [&] { Dpo({}, nullptr).loss(*context, *model, batch, {}); });
}

TEST_P(DpoTest, ThePlanCountsTheReference) {
  const auto plan = [&](const ModelConfig* reference) {
    return plan_training({DeviceKind::cpu, 0}, config_, DType::f32, dpo_options(),
                         BatchSizes{4, GetParam() == Architecture::decoder_lm ? 0 : 20, 20},
                         {.teacher = reference});
  };
  EXPECT_EQ(plan(nullptr).teacher, 0);
  EXPECT_GT(plan(&config_).teacher, 0);
  EXPECT_GT(plan(&config_).total, plan(nullptr).total);
  ModelConfig other = config_;
  other.vocabulary += 1;
  expect_error(ErrorCode::invalid_argument, "the reference has the architecture",
               [&] { plan(&other); });
}

}  // namespace
}  // namespace trafo
