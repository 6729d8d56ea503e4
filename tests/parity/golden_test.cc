// Our models against PyTorch's results in tests/golden/parity (made by make_golden.py and, with the
// classes of transformers, by make_transformers_golden.py): loss, every gradient, ten AdamW steps.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"
#include "engine/optim/adamw.h"

namespace trafo {
namespace {

constexpr double kTolerance = 1e-5;

using Sentences = std::vector<std::vector<int32_t>>;
const Sentences kSources = {{5, 6, 7, 2}, {4, 2}, {9, 8, 7, 6, 12, 11, 2}};
const Sentences kTargets = {{8, 9, 2}, {10, 11, 12, 4, 2}, {5, 2}};

Tensor ints(Context& context, const std::vector<int32_t>& values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

Batch make_batch(Context& context, Architecture architecture) {
  std::vector<int32_t> source, source_at, target_in, target_out, target_at, source_cu{0},
      target_cu{0};
  std::vector<float> weights;
  const bool lm = architecture == Architecture::decoder_lm;
  for (size_t s = 0; s < kSources.size(); ++s) {
    std::vector<int32_t> stream = lm ? kSources[s] : std::vector<int32_t>{1};
    stream.insert(stream.end(), kTargets[s].begin(), kTargets[s].end());
    for (size_t i = 0; i + 1 < stream.size(); ++i) {
      target_in.push_back(stream[i]);
      target_out.push_back(stream[i + 1]);
      target_at.push_back(static_cast<int32_t>(i));
      weights.push_back(!lm || i + 1 >= kSources[s].size() ? 1.0f : 0.0f);
    }
    target_cu.push_back(static_cast<int32_t>(target_in.size()));
    for (size_t i = 0; i < kSources[s].size(); ++i) {
      source.push_back(kSources[s][i]);
      source_at.push_back(static_cast<int32_t>(i));
    }
    source_cu.push_back(static_cast<int32_t>(source.size()));
  }
  Batch batch;
  batch.sentences = static_cast<int64_t>(kSources.size());
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
    const ModelConfig config = golden_.contains("model")
                                   ? model_config_from_json(golden_["model"].dump())
                                   : plain_config();
    model_ = make_model(*context_, config, 1);
    ParameterStore& parameters = model_->parameters();
    ASSERT_EQ(parameters.count(), golden_["gradients"].size());
    for (size_t number = 0; number < parameters.count(); ++number) {
      const auto id = static_cast<ParamId>(number);
      std::vector<float> values(static_cast<size_t>(parameters.value(id).numel()));
      const bool gamma = parameters.name(id).ends_with("norm.weight");
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((gamma ? 1.0 : 0.0) +
                                       0.3 * std::sin(1.0 + 0.37 * static_cast<double>(i) +
                                                      0.11 * static_cast<double>(number)));
      parameters.set_value(*context_, id, values.data(), values.size() * sizeof(float));
    }
    batch_ = make_batch(*context_, config.architecture);
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
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  Batch batch_;
};

TEST_P(Golden, LossAndEveryGradient) {
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    EXPECT_NEAR(forward_backward(), golden_["loss"].get<double>(), kTolerance);
    const ParameterStore& parameters = model_->parameters();
    for (size_t number = 0; number < parameters.count(); ++number) {
      const auto id = static_cast<ParamId>(number);
      const auto& expected = golden_["gradients"].at(parameters.name(id));
      const auto actual = context_->values<float>(parameters.grad(id));
      ASSERT_EQ(actual.size(), expected.size()) << parameters.name(id);
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i].get<double>(), kTolerance)
            << parameters.name(id) << "[" << i << "], fused " << fused;
    }
  }
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

INSTANTIATE_TEST_SUITE_P(PyTorch, Golden,
                         ::testing::Values("encoder-decoder-pre", "encoder-decoder-post",
                                           "decoder-lm-pre", "qwen3", "qwen3-biases-yarn",
                                           "qwen2-yarn"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trafo
