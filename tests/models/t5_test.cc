// Relative position biases in a model: recomputation, unfused ops, positions that it lacks.
#include <gtest/gtest.h>

#include "engine/models/model.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "tests/models/llama_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

ModelConfig small_t5() {
  ModelConfig config;
  config.vocabulary = 11;
  config.encoder_layers = config.decoder_layers = 2;
  config.width = 8;
  config.ffn_width = 12;
  config.heads = 2;
  config.max_positions = 9;
  config.dropout = config.attention_dropout = 0.1;
  return gated_t5_of(config);
}

Batch batch_of_t5(Context& context, const std::vector<int32_t>& lengths) {
  std::vector<int32_t> ids, positions, bounds{0};
  for (const int32_t length : lengths) {
    for (int32_t i = 0; i < length; ++i) {
      ids.push_back(3 + (5 * i + length) % 8);
      positions.push_back(i);
    }
    bounds.push_back(bounds.back() + length);
  }
  const auto ints = [&](const std::vector<int32_t>& values) {
    return context.from_values<int32_t>(values, {std::ssize(values)});
  };
  Batch batch;
  batch.sentences = std::ssize(lengths);
  batch.source_ids = batch.target_in = batch.target_out = ints(ids);
  batch.source_positions = batch.target_positions = ints(positions);
  batch.source_cu_seqlens = batch.target_cu_seqlens = ints(bounds);
  batch.label_count = static_cast<double>(ids.size());
  return batch;
}

// The loss and all gradients.
std::vector<double> t5_gradients(Context& context, DType dtype, bool dropout) {
  const auto model = make_model(context, small_t5(), 7, dtype);
  const Batch batch = batch_of_t5(context, {4, 9, 1});
  const DropoutPass pass = dropout ? DropoutPass{3, 1, true} : DropoutPass{};
  const ObjectiveOutput output = LabelSmoothedCrossEntropy(0.1).loss(context, *model, batch, pass);
  context.backward(output.loss);
  model->parameters().complete_grads(context);
  std::vector<double> values;
  const auto add = [&](const Tensor& tensor) {
    if (dtype == DType::f64)
      for (const double value : context.values<double>(tensor)) values.push_back(value);
    else
      for (const float value : context.values<float>(tensor)) values.push_back(value);
  };
  for (ParamId id = 0; id < static_cast<ParamId>(model->parameters().count()); ++id)
    add(model->parameters().grad(id));
  return values;
}

TEST(T5Model, RecomputationGivesTheSameBits) {
  for (const bool dropout : {false, true}) {
    std::vector<std::vector<double>> found;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 2);
      const StepScope scope(*context, &StepContext::recompute, recompute);
      found.push_back(t5_gradients(*context, DType::f32, dropout));
    }
    EXPECT_EQ(found[1], found[0]);
    EXPECT_EQ(found[2], found[0]);
  }
}

TEST(T5Model, UnfusedOpsGiveTheSameGradients) {
  const auto fused = make_context({DeviceKind::cpu, 0}, 2),
             unfused = make_context({DeviceKind::cpu, 0}, 2);
  unfused->set_fused_kernels(false);
  const std::vector<double> expected = t5_gradients(*fused, DType::f64, false),
                            found = t5_gradients(*unfused, DType::f64, false);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-10) << i;
}

TEST(T5Model, ASentenceThatIsTooLongIsRefused) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  const auto model = make_model(*context, small_t5(), 7);
  Batch batch = batch_of_t5(*context, {10});
  batch.longest_source = batch.longest_target = 10;
  const Error error = error_of([&] { model->logits(*context, batch); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "has 10 tokens, the model has 9 positions")) << error.what();
}

}  // namespace
}  // namespace trafo::testing
