// Training under layer drop: skipped layers take no part in a step, and nothing else changes.
#include <cmath>
#include <limits>

#include "engine/models/upload.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

ModelConfig deep_config(Architecture architecture, int64_t layers = 3) {
  ModelConfig config = tiny_config(architecture, 0.2);
  config.encoder_layers = config.decoder_layers = layers;
  return config;
}

TrainOptions drop_options(double p) {
  TrainOptions options = quick_options();
  options.layer_drop = p;
  return options;
}

class LayerDropTest : public ::testing::TestWithParam<Architecture> {
 protected:
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config_ = deep_config(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Models, LayerDropTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return std::string(instance.param == Architecture::decoder_lm
                                                  ? "DecoderLm"
                                                  : "EncoderDecoder");
                         });

TEST_P(LayerDropTest, AStepLeavesTheWeightsOfSkippedLayersAlone) {
  const bool lm = GetParam() == Architecture::decoder_lm;
  const TrainOptions options = drop_options(0.5);
  const auto data = copy_batches(GetParam(), 10);
  int64_t left_alone = 0, moved = 0;
  for (const PackedBatchHost& batch : data) {
    // A separate trainer: with moments of earlier steps, AdamW would move the weights.
    const auto model = make_model(*context_, config_, 5);
    Trainer trainer(*context_, *model, options);
    TrainerState state;
    state.forward_passes = 100 + static_cast<uint64_t>(&batch - data.data());
    trainer.resume_from(state);
    const auto skipped =
        training_pass(spec_of(config_), options, static_cast<uint32_t>(state.forward_passes))
            .skipped;
    std::vector<std::vector<std::byte>> before;
    ParameterStore& parameters = model->parameters();
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
      before.push_back(bytes_of(*context_, parameters.value(id)));
    trainer.step({&batch, 1});
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
      const std::string& name = parameters.name(id);
      const bool encoder = name.starts_with("encoder.");
      const size_t digit = name.find('.') + 1;
      if (!(encoder || name.starts_with("decoder.")) || name[digit] < '0' || name[digit] > '9' ||
          !name.ends_with(".weight"))
        continue;
      const auto layer = static_cast<size_t>(1 + name[digit] - '0' + (encoder || lm ? 0 : 3));
      const bool same =
          bytes_of(*context_, parameters.value(id)) == before[static_cast<size_t>(id)];
      const bool skips = layer < skipped.size() && skipped[layer];
      // An encoder of which no decoder layer reads has no gradient either.
      const bool unread = encoder && skipped.size() == 7 && skipped[4] && skipped[5] && skipped[6];
      EXPECT_EQ(same, skips || unread) << name;
      (same ? left_alone : moved) += 1;
    }
  }
  EXPECT_GT(left_alone, 0);
  EXPECT_GT(moved, 0);
}

// Every set of skipped layers has a separate plan, which its steps fit.
TEST_P(LayerDropTest, IsTheSameBitsWithAndWithoutAPlanUnderEveryRecomputePolicy) {
  std::vector<std::byte> weights;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    TrainOptions options = drop_options(0.3);
    options.recompute = recompute;
    const auto context = make_context({DeviceKind::cpu, 0}, 2);
    const auto planned = make_model(*context, config_, 5), plain = make_model(*context, config_, 5);
    Trainer a(*context, *planned, options), b(*context, *plain, options);
    const auto data = copy_batches(GetParam(), 12);
    for (size_t i = 0; i + 2 <= data.size(); i += 2) {
      const auto micro = std::span(data).subspan(i, 1 + i % 4 / 2);
      std::vector<Batch> uploaded;
      for (const PackedBatchHost& batch : micro)
        uploaded.push_back(upload(*context, batch, spec_of(config_), DType::f32));
      EXPECT_EQ(a.step(micro).loss, b.step(uploaded).loss);
    }
    EXPECT_EQ(weight_bytes(*context, *planned), weight_bytes(*context, *plain));
    EXPECT_EQ(a.unplanned_allocations(), 0);
    if (weights.empty()) weights = weight_bytes(*context, *planned);
    EXPECT_EQ(weight_bytes(*context, *planned), weights);
  }
}

TEST_P(LayerDropTest, APassThatSkipsAllThatIsTrainableTrainsNothing) {
  const auto model = make_model(*context_, config_, 5);
  model->parameters().set_trainable(*context_, "*", false);
  model->parameters().set_trainable(*context_, "decoder.1.*", true);
  const auto before = weight_bytes(*context_, *model);
  Trainer trainer(*context_, *model, drop_options(0.9999));
  for (const PackedBatchHost& batch : copy_batches(GetParam(), 2)) {
    const StepResult result = trainer.step({&batch, 1});
    EXPECT_GT(result.loss, 0);
    EXPECT_EQ(result.grad_norm, 0);
    EXPECT_FALSE(result.skipped);
  }
  EXPECT_EQ(weight_bytes(*context_, *model), before);
}

TEST_P(LayerDropTest, WithoutItARunIsAsItWas) {
  const TrainingData data = copy_data(GetParam());
  const Reference without = uncut(data, quick_options(), 8, 1, config_);
  EXPECT_EQ(uncut(data, drop_options(0), 8, 1, config_).weights, without.weights);
  EXPECT_NE(uncut(data, drop_options(0.3), 8, 1, config_).weights, without.weights);
}

TEST_P(LayerDropTest, ThePlanIsThatOfAPassThatSkipsNothing) {
  const auto plan = [&](double p) {
    const bool lm = GetParam() == Architecture::decoder_lm;
    return plan_training(
               {DeviceKind::cpu, 0}, config_, DType::f32, drop_options(p),
               BatchSizes{.sentences = 4, .source_tokens = lm ? 0 : 32, .target_tokens = 32})
        .total;
  };
  EXPECT_EQ(plan(0.5), plan(0));
  TrainOptions options = drop_options(0.4);
  options.log_freq = options.save_freq = options.valid_freq = {0, PeriodUnit::updates};
  Process process(copy_data(GetParam(), 200), options, std::nullopt, 1, config_);
  process.run->run({}, nullptr, 120);
  EXPECT_EQ(process.context->backend().memory_stats().peak_bytes, process.run->plan().memory.total);
}

TEST(LayerDropOptions, WhatIsNoProbabilityBelowOneIsRefused) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  for (const double p : {1.0, 1.5, -0.1, std::numeric_limits<double>::quiet_NaN()})
    expect_error(ErrorCode::invalid_argument, "layer_drop",
                 [&] { Trainer(*context, *model, drop_options(p)); });
}

TEST(LayerDropOptions, ARunKeepsItsProbability) {
  const TemporaryDirectory directory;
  TrainOptions options = drop_options(0.5);
  options.after_updates = 5;
  Process(copy_data(), options, directory.path()).run->run();
  options.layer_drop = 0.25;
  expect_error(ErrorCode::invalid_argument, "layer_drop was 0.5 and is 0.25 now",
               [&] { Process(copy_data(), options, directory.path()); });
}

// The loss of a copy task falls with layers missing now and then.
TEST(LayerDropOptions, TheLossFalls) {
  TrainOptions options = drop_options(0.2);
  options.learning_rate = 1e-2;
  ModelConfig config = deep_config(Architecture::encoder_decoder, 2);
  config.dropout = config.attention_dropout = config.ffn_dropout = 0;
  Process process(copy_data(), options, std::nullopt, 1, config);
  process.run->run({}, nullptr, 600);
  const NoGrad no_grad(*process.context);
  EXPECT_LT(mean_cross_entropy(*process.context, *process.model,
                               *copy_corpus(Architecture::encoder_decoder, 60, 1), kTokens),
            std::log(kVocabulary) / 2);
}

}  // namespace
}  // namespace trafo
