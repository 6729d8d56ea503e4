// Our models against PyTorch's results in tests/golden/parity (made by make_golden.py and, with the
// classes of transformers, by make_transformers_golden.py): loss, every gradient, ten AdamW steps;
// loss, gradients and metrics of DPO, ORPO and KTO; updates by Adafactor
// (make_adafactor_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/data/batch_packer.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/objective/dpo/dpo.h"
#include "engine/objective/kto/kto.h"
#include "engine/objective/orpo/orpo.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/schedule.h"

namespace trafo {
namespace {

constexpr double kTolerance = 1e-5;

using Sentences = std::vector<std::vector<int32_t>>;
const Sentences kSources = {{5, 6, 7, 2}, {4, 2}, {9, 8, 7, 6, 12, 11, 2}};
const Sentences kTargets = {{8, 9, 2}, {10, 11, 12, 4, 2}, {5, 2}};
const Sentences kRejected = {{9, 9, 8, 2}, {4, 2}, {6, 5, 2}};
constexpr DpoOptions kDpo{0.5, 0.2};
constexpr size_t kFirstOfReference = 40;  // number of its first parameter

Tensor ints(Context& context, const std::vector<int32_t>& values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

// Of the pairs of sources and targets.
Batch make_batch(Context& context, Architecture architecture, const Sentences& sources,
                 const Sentences& targets) {
  std::vector<int32_t> source, source_at, target_in, target_out, target_at, source_cu{0},
      target_cu{0};
  std::vector<float> weights;
  const bool lm = architecture == Architecture::decoder_lm;
  std::vector<int32_t> sentence_of;
  for (size_t s = 0; s < sources.size(); ++s) {
    std::vector<int32_t> stream = lm ? sources[s] : std::vector<int32_t>{1};
    stream.insert(stream.end(), targets[s].begin(), targets[s].end());
    for (size_t i = 0; i + 1 < stream.size(); ++i) {
      target_in.push_back(stream[i]);
      target_out.push_back(stream[i + 1]);
      target_at.push_back(static_cast<int32_t>(i));
      weights.push_back(!lm || i + 1 >= sources[s].size() ? 1.0f : 0.0f);
      sentence_of.push_back(static_cast<int32_t>(s));
    }
    target_cu.push_back(static_cast<int32_t>(target_in.size()));
    for (size_t i = 0; i < sources[s].size(); ++i) {
      source.push_back(sources[s][i]);
      source_at.push_back(static_cast<int32_t>(i));
    }
    source_cu.push_back(static_cast<int32_t>(source.size()));
  }
  Batch batch;
  batch.sentences = static_cast<int64_t>(sources.size());
  batch.target_sentences = ints(context, sentence_of);
  batch.source_ids = ints(context, source);
  batch.source_positions = ints(context, source_at);
  batch.source_cu_seqlens = ints(context, source_cu);
  batch.target_in = ints(context, target_in);
  batch.target_out = ints(context, target_out);
  batch.target_positions = ints(context, target_at);
  batch.target_cu_seqlens = ints(context, target_cu);
  if (lm)
    batch.target_weights =
        context.from_values<float>(weights, {static_cast<int64_t>(weights.size())});
  for (const float w : weights) batch.label_count += w;
  return batch;
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(TRAFO_GOLDEN_DIR "/") + GetParam() + ".json");
    ASSERT_TRUE(file.good()) << GetParam();
    golden_ = nlohmann::json::parse(file);
    context_ = make_context({DeviceKind::cpu, 0}, 2);
    config_ = golden_.contains("model") ? model_config_from_json(golden_["model"].dump())
                                        : plain_config();
    model_ = model_of(0);
    ASSERT_EQ(model_->parameters().count(), golden_["gradients"].size());
    batch_ = make_batch(*context_, config_.architecture, kSources, kTargets);
  }

  // The number of its first parameter decides the weights.
  std::unique_ptr<Model> model_of(size_t first) {
    auto model = make_model(*context_, config_, 1);
    ParameterStore& parameters = model->parameters();
    for (size_t number = 0; number < parameters.count(); ++number) {
      const auto id = static_cast<ParamId>(number);
      std::vector<float> values(static_cast<size_t>(parameters.value(id).numel()));
      const bool gamma = parameters.name(id).ends_with("norm.weight");
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((gamma ? 1.0 : 0.0) +
                                       0.3 * std::sin(1.0 + 0.37 * static_cast<double>(i) +
                                                      0.11 * static_cast<double>(first + number)));
      parameters.set_value(*context_, id, values.data(), values.size() * sizeof(float));
    }
    return model;
  }

  void expect_gradients(const nlohmann::json& golden, const std::string& how) {
    const ParameterStore& parameters = model_->parameters();
    for (size_t number = 0; number < parameters.count(); ++number) {
      const auto id = static_cast<ParamId>(number);
      const auto& expected = golden["gradients"].at(parameters.name(id));
      const auto actual = context_->values<float>(parameters.grad(id));
      ASSERT_EQ(actual.size(), expected.size()) << parameters.name(id);
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i].get<double>(), kTolerance)
            << parameters.name(id) << "[" << i << "], " << how;
    }
  }

  // Of a file of make_golden.py.
  ModelConfig plain_config() const {
    ModelConfig config;
    config.architecture = golden_["architecture"] == "decoder-lm" ? Architecture::decoder_lm
                                                                  : Architecture::encoder_decoder;
    config.vocabulary = 13;
    config.encoder_layers = config.decoder_layers = 2;
    config.width = 8;
    config.ffn_width = 12;
    config.heads = 2;
    config.max_positions = 16;
    config.pre_norm = golden_["pre_norm"];
    const std::string activation = golden_["activation"];
    config.activation = activation == "relu"   ? Activation::relu
                        : activation == "gelu" ? Activation::gelu
                                               : Activation::silu;
    return config;
  }

  // Mean loss; leaves its gradients in the flat workspace.
  double forward_backward() {
    model_->parameters().zero_grad();
    const Tensor loss = ops::scale(
        *context_, LabelSmoothedCrossEntropy(0.1).loss(*context_, *model_, batch_, {}).loss,
        1.0 / batch_.label_count);
    context_->backward(loss);
    model_->parameters().complete_grads(*context_);
    return context_->item(loss);
  }

  nlohmann::json golden_;
  ModelConfig config_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  Batch batch_;
};

TEST_P(Golden, LossAndEveryGradient) {
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    EXPECT_NEAR(forward_backward(), golden_["loss"].get<double>(), kTolerance);
    expect_gradients(golden_, fused ? "fused" : "reference ops");
  }
}

class GoldenPreferences : public Golden {  // of a model of make_golden.py
 protected:
  std::shared_ptr<const FrozenModel> reference() {
    return frozen_model(*context_, model_of(kFirstOfReference), FrozenRole::reference);
  }
  // The prompts with their chosen and their rejected answers.
  Batch pairs() {
    Sentences sources, answers;
    for (size_t i = 0; i < kSources.size(); ++i)
      for (const Sentences* each : {&kTargets, &kRejected}) {
        sources.push_back(kSources[i]);
        answers.push_back((*each)[i]);
      }
    return make_batch(*context_, config_.architecture, sources, answers);
  }
  // The rows of make_golden.py. Each answer is also given to the prompt of the row after it.
  Batch labelled() {
    const bool lm = config_.architecture == Architecture::decoder_lm;
    PackedBatchHost host;
    BatchPacker packer(host, lm ? SequenceForm::decoder_only : SequenceForm::encoder_decoder, 1);
    packer.add_labelled(kSources[0], kTargets[0], kRejected[1], true, 0);
    packer.add_labelled(kSources[2], kTargets[2], kTargets[0], true, 1);
    packer.add_labelled(kSources[1], kRejected[1], kTargets[2], false, 2);
    EXPECT_EQ(host.label_count, 3 + 2 + 2);
    return upload(*context_, host, spec_of(config_), DType::f32);
  }
  void expect_golden(const std::string& prefix, const Objective& objective, const Batch& batch) {
    std::ifstream file(std::string(TRAFO_GOLDEN_DIR "/") + prefix + GetParam() + ".json");
    ASSERT_TRUE(file.good());
    const auto golden = nlohmann::json::parse(file);
    const double scale = 1 / objective.units(batch.label_count, batch.sentences);
    for (const bool fused : {true, false}) {
      context_->set_fused_kernels(fused);
      model_->parameters().zero_grad();
      const ObjectiveOutput output = objective.loss(*context_, *model_, batch, {}, scale);
      context_->backward(output.loss);
      model_->parameters().complete_grads(*context_);
      EXPECT_NEAR(context_->item(output.loss), golden["loss"].get<double>(), kTolerance);
      expect_gradients(golden, fused ? "fused" : "reference ops");
      ASSERT_EQ(output.metrics.size(), golden["metrics"].size());
      std::vector<double> means;
      for (const Tensor& metric : output.metrics) means.push_back(context_->item(metric));
      objective.report(means);
      for (size_t i = 0; i < means.size(); ++i) {
        const char* const name = objective.metrics()[i];
        EXPECT_NEAR(means[i], golden["metrics"].at(name).get<double>(), kTolerance) << name;
      }
    }
  }
};

TEST_P(GoldenPreferences, Dpo) {
  expect_golden("dpo-", Dpo(kDpo, reference()), pairs());
}

TEST_P(GoldenPreferences, Orpo) {
  expect_golden("orpo-", Orpo({kDpo.beta}), pairs());
}

TEST_P(GoldenPreferences, Kto) {
  expect_golden("kto-", Kto({kDpo.beta, 1.5, 0.75}, reference()), labelled());
}

TEST_P(Golden, TenTrainingSteps) {
  ParameterStore& parameters = model_->parameters();
  AdamWOptions options;
  options.weight_decay = 0.01;
  AdamW optimizer(*context_, {parameters.flat(), parameters.flat_grad()}, options);
  for (const auto& expected : golden_["training_losses"]) {
    EXPECT_NEAR(forward_backward(), expected.get<double>(), kTolerance);
    optimizer.step(1e-2);
  }
}

// 24 updates by transformers' Adafactor in float64: an update divides by the size of a gradient,
// also where that is rounding.
class GoldenAdafactor : public Golden {
 protected:
  void SetUp() override {
    Golden::SetUp();
    auto wide = make_model(*context_, config_, 1, DType::f64);
    for (size_t i = 0; i < wide->parameters().count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const auto narrow = context_->values<float>(model_->parameters().value(id));
      const std::vector<double> values(narrow.begin(), narrow.end());
      wide->parameters().set_value(*context_, id, values.data(), values.size() * sizeof(double));
    }
    model_ = std::move(wide);
    if (batch_.target_weights.defined())
      batch_.target_weights = ops::cast(*context_, batch_.target_weights, DType::f64);
  }
  void expect_updates(const char* form, const OptimizerOptions& options,
                      const ScheduleOptions& schedule) {
    std::ifstream file(std::string(TRAFO_GOLDEN_DIR "/adafactor-") + GetParam() + ".json");
    ASSERT_TRUE(file.good());
    const auto golden = nlohmann::json::parse(file)[form];
    ParameterStore& parameters = model_->parameters();
    std::vector<MatrixPart> matrices;
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const Shape& shape = parameters.shape(id);
      matrices.push_back({parameters.offset(id), shape.rank() > 1 ? shape[0] : 1, shape.back()});
    }
    const auto optimizer =
        make_optimizer(*context_, {parameters.flat(), parameters.flat_grad()}, options, matrices);
    const Schedule rate(schedule);
    int64_t step = 0;
    for (const auto& expected : golden["losses"]) {
      EXPECT_NEAR(forward_backward(), expected.get<double>(), kTolerance) << step;
      optimizer->step(rate(++step));
    }
    EXPECT_EQ(step, 24);
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const auto actual = context_->values<double>(parameters.value(id));
      const auto& expected = golden["parameters"].at(parameters.name(id));
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t j = 0; j < actual.size(); ++j)
        EXPECT_NEAR(actual[j], expected[j].get<double>(), kTolerance)
            << parameters.name(id) << "[" << j << "]";
    }
  }
};

TEST_P(GoldenAdafactor, WithAGivenLearningRate) {
  expect_updates(
      "plain",
      {.weight_decay = 0.01, .optimizer = OptimizerKind::adafactor, .square_epsilon = 1e-20},
      {.kind = ScheduleKind::constant, .learning_rate = 1e-2});
}

TEST_P(GoldenAdafactor, WithRelativeSteps) {
  expect_updates("scaled",
                 {.optimizer = OptimizerKind::adafactor,
                  .decay_rate = -0.7,
                  .clip_threshold = 0.5,
                  .scale_parameter = true,
                  .square_epsilon = 1e-20,
                  .scale_epsilon = 0.25},
                 {.kind = ScheduleKind::relative_step, .learning_rate = 1e-2});
}

std::string file_name(const ::testing::TestParamInfo<const char*>& file) {
  std::string name = file.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Golden,
                         ::testing::Values("encoder-decoder-pre", "encoder-decoder-post",
                                           "decoder-lm-pre", "qwen3", "qwen3-biases-yarn",
                                           "qwen2-yarn", "hunyuan", "smollm3", "granite", "olmo2",
                                           "mistral", "phi3", "qwen3-windows", "gemma3", "gemma2",
                                           "ministral3", "mbart", "bart", "t5", "t5-gated"),
                         file_name);
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenAdafactor,
                         ::testing::Values("encoder-decoder-post", "decoder-lm-pre"), file_name);
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenPreferences,
                         ::testing::Values("encoder-decoder-pre", "encoder-decoder-post",
                                           "decoder-lm-pre"),
                         file_name);

}  // namespace
}  // namespace trafo
