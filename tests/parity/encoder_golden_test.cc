// Encoders against transformers' results in tests/golden/parity (made by make_encoder_golden.py):
// loss and every gradient, with token types where the class has some.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/data/batch_packer.h"
#include "engine/models/upload.h"
#include "engine/objective/registry.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr double kEncoderTolerance = 1e-5;
const std::vector<std::vector<int32_t>> kEncoderTexts = {
    {5, 6, 7, 2}, {4, 2}, {9, 8, 7, 6, 12, 11, 2}};

class EncoderGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(TRAFO_GOLDEN_DIR "/encoder-") + GetParam() + ".json");
    ASSERT_TRUE(file.good()) << GetParam();
    golden_ = nlohmann::json::parse(file);
    context_ = make_context({DeviceKind::cpu, 0}, 2);
    model_ = make_model(*context_, model_config_from_json(golden_["model"].dump()), 1);
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
    pack();
  }

  void pack() {
    const EncoderHead head = model_->spec().head.kind;
    PackedBatchHost host;
    BatchPacker packer(host, SequenceForm::labelled, 0);
    for (size_t number = 0; number < kEncoderTexts.size(); ++number) {
      const std::vector<int32_t>& text = kEncoderTexts[number];
      std::vector<int32_t> labels;
      std::vector<uint8_t> learned;
      if (head == EncoderHead::sequence) labels = {std::array{1, 0, 2}[number]};
      for (size_t i = 0; head != EncoderHead::sequence && i < text.size(); ++i) {
        const bool masked = head == EncoderHead::masked_lm;
        labels.push_back(masked ? text[i] : text[i] % 3);
        learned.push_back(masked ? text[i] % 4 == 0 : i > 0);
      }
      packer.add(text, labels, static_cast<int64_t>(number), learned);
      for (size_t i = 0; i < text.size() && model_->spec().embedding.token_types > 0; ++i)
        host.target_types.push_back(i % 2 == 0 ? 0 : 1);
    }
    batch_ = upload(*context_, host, model_->spec(), DType::f32);
  }

  nlohmann::json golden_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  Batch batch_;
};

TEST_P(EncoderGolden, LossAndEveryGradient) {
  ObjectiveOptions options;
  options.objective = model_->spec().head.kind == EncoderHead::masked_lm
                          ? ObjectiveKind::masked_lm
                          : ObjectiveKind::classification;
  const auto objective = make_objective(options, nullptr);
  objective->check(*model_);
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    model_->parameters().zero_grad();
    const Tensor loss = ops::scale(*context_, objective->loss(*context_, *model_, batch_, {}).loss,
                                   1.0 / batch_.label_count);
    context_->backward(loss);
    model_->parameters().complete_grads(*context_);
    EXPECT_NEAR(context_->item(loss), golden_["loss"].get<double>(), kEncoderTolerance);
    const ParameterStore& parameters = model_->parameters();
    for (size_t number = 0; number < parameters.count(); ++number) {
      const auto id = static_cast<ParamId>(number);
      const auto& expected = golden_["gradients"].at(parameters.name(id));
      const auto actual = context_->values<float>(parameters.grad(id));
      ASSERT_EQ(actual.size(), expected.size()) << parameters.name(id);
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i].get<double>(), kEncoderTolerance)
            << parameters.name(id) << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, EncoderGolden,
                         ::testing::Values("bert-sequence", "bert-masked-lm", "roberta-token",
                                           "roberta-masked-lm", "modernbert-sequence",
                                           "modernbert-masked-lm"));

}  // namespace
}  // namespace trafo
