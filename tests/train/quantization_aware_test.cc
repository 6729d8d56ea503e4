// Quantization-aware training: the model computes with rounded weights, the optimizer works on
// exact ones.
#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/compress/quantize.h"
#include "engine/core/argument_error.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/ops/fake_quant_rows/fake_quant_rows.h"
#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"
#include "engine/train/plan/memory_plan.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions aware_options(int64_t bits, double ema = 0) {
  TrainOptions options = quick_options();
  options.quantize_bits = bits;
  options.ema_alpha = ema;
  return options;
}

std::vector<float> as_floats(Context& context, const Tensor& tensor) {
  return context.values<float>(tensor.detach());
}

// The values of a matrix with codes: the values of its file.
std::vector<float> coded_values(Context& context, const ParameterStore& parameters, ParamId id) {
  ThreadPool& pool = *cpu_thread_pool(context.backend());
  if (const auto int4 = parameters.int4(id)) return int4->matrix(pool).values(pool);
  const Weight weight = parameters.weight(id);
  const Int8Matrix& matrix = *weight.int8;
  std::vector<int8_t> codes(static_cast<size_t>(matrix.rows() * matrix.columns()));
  matrix.read_codes(pool, codes);
  std::vector<float> values(codes.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(codes[i]) * matrix.scales()[i / static_cast<size_t>(matrix.columns())];
  return values;
}

class QuantizationAware : public ::testing::TestWithParam<int64_t> {
 protected:
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model_ = make_model(*context_, tiny_config(), 5);
  std::vector<PackedBatchHost> batches_ = copy_batches(Architecture::encoder_decoder, 6);
};

INSTANTIATE_TEST_SUITE_P(Bits, QuantizationAware, ::testing::Values(8, 4),
                         [](const auto& instance) { return std::to_string(instance.param); });

// The model computes with the weights of the file that quantize makes, bit for bit.
TEST_P(QuantizationAware, TrainsWithTheWeightsOfTheQuantizedFile) {
  const auto before = as_floats(*context_, model_->parameters().master());
  Trainer trainer(*context_, *model_, aware_options(GetParam()));
  EXPECT_EQ(as_floats(*context_, model_->parameters().master()), before);
  for (size_t u = 0; u <= batches_.size(); ++u) {
    if (u > 0) trainer.step(std::span(batches_).subspan(u - 1, 1));
    MemorySink sink;
    write_model(sink, *context_, *model_);
    const auto bytes = sink.take();
    const auto exact = load_model(*context_, SafetensorsReader::from_memory(bytes, "m"));
    const auto coded = quantize_model(*context_, *exact, {.bits = GetParam()});
    for (size_t i = 0; i < coded->parameters().count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const auto trained = as_floats(*context_, model_->parameters().value(id));
      const auto master = as_floats(*context_, exact->parameters().value(id));
      if (coded->parameters().is_int8(id)) {
        EXPECT_EQ(trained, coded_values(*context_, coded->parameters(), id))
            << exact->parameters().name(id);
        EXPECT_NE(trained, master);
      } else {
        EXPECT_EQ(trained, master) << exact->parameters().name(id);
      }
    }
  }
  EXPECT_NE(as_floats(*context_, model_->parameters().master()), before);
}

// The same loss as the quantized model has, apart from the order of sums.
TEST_P(QuantizationAware, ComputesWhatTheQuantizedModelComputes) {
  Trainer trainer(*context_, *model_, aware_options(GetParam()));
  const auto batch = upload(*context_, batches_[0], model_->spec(), DType::f32);
  const NoGrad no_grad(*context_);
  const auto aware = as_floats(*context_, model_->logits(*context_, batch));
  MemorySink sink;
  write_model(sink, *context_, *model_);
  const auto bytes = sink.take();
  const auto exact = load_model(*context_, SafetensorsReader::from_memory(bytes, "m"));
  const auto coded = quantize_model(*context_, *exact, {.bits = GetParam()});
  const auto rounded = as_floats(*context_, coded->logits(*context_, batch));
  const auto plain = as_floats(*context_, exact->logits(*context_, batch));
  double error = 0, loss = 0;
  for (size_t i = 0; i < aware.size(); ++i) {
    error += std::pow(static_cast<double>(aware[i]) - static_cast<double>(rounded[i]), 2);
    loss += std::pow(static_cast<double>(plain[i]) - static_cast<double>(rounded[i]), 2);
  }
  // A sum that differs in its last bit may round to another code further on, and int4 weights are
  // rounded to int8 once more.
  EXPECT_LT(error, loss / 20);
  EXPECT_GT(loss, 0);
}

TEST_P(QuantizationAware, TheEmaIsRoundedAfterTheMean) {
  Trainer trainer(*context_, *model_, aware_options(GetParam(), 0.2));
  for (const PackedBatchHost& batch : batches_) trainer.step({&batch, 1});
  ParameterStore& parameters = model_->parameters();
  const auto own = weight_bytes(*context_, *model_);
  {
    const EmaWeights scope(trainer);
    const auto mean = weight_bytes(*context_, *model_);
    EXPECT_NE(mean, own);
    const auto other = make_model(*context_, tiny_config(), 6);
    other->parameters().set_quantize_bits(*context_, GetParam());
    other->parameters().follow(*context_, trainer.ema_weights());
    EXPECT_EQ(weight_bytes(*context_, *other), mean);
  }
  EXPECT_EQ(weight_bytes(*context_, *model_), own);
  EXPECT_EQ(parameters.quantize_bits(), GetParam());
}

TEST_P(QuantizationAware, AnAdapterIsRefusedByTheOption) {
  add_adapter(*context_, *model_, {2, 4.0, {}}, 1);
  try {
    Trainer(*context_, *model_, aware_options(GetParam(), 0));
    ADD_FAILURE() << "trains";
  } catch (const ArgumentError& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.field(), "quantize_bits");
    EXPECT_TRUE(mentions(error, "not for models with an adapter")) << error.what();
  }
}

TEST_P(QuantizationAware, ThePlanCountsTheMasters) {
  const auto plan = [&](int64_t bits) {
    return plan_training({DeviceKind::cpu, 0}, tiny_config(), DType::f32, aware_options(bits),
                         BatchSizes{.sentences = 4, .source_tokens = 32, .target_tokens = 32});
  };
  const MemoryPlan without = plan(0), with = plan(GetParam());
  constexpr int64_t kGranularity = 512;  // of an allocation
  const auto bytes = static_cast<int64_t>(model_->parameters().flat().bytes());
  EXPECT_GE(with.weights - without.weights, bytes);
  EXPECT_LT(with.weights - without.weights, bytes + kGranularity);
  EXPECT_GT(with.activations, without.activations);
  EXPECT_EQ(with.gradients, without.gradients);
}

// Quantization-aware training starts from a float model, and a float run from its result.
TEST_P(QuantizationAware, FollowsAndPrecedesFloatTraining) {
  const auto step = [&](int64_t bits) {
    Trainer trainer(*context_, *model_, aware_options(bits));
    trainer.step({&batches_[0], 1});
    return as_floats(*context_, model_->parameters().master());
  };
  const auto first = step(0);
  EXPECT_FALSE(model_->parameters().has_master());
  EXPECT_NE(step(GetParam()), first);
  EXPECT_TRUE(model_->parameters().has_master());
  const auto last = step(0);
  EXPECT_FALSE(model_->parameters().has_master());
  EXPECT_EQ(as_floats(*context_, model_->parameters().flat()), last);
}

// All weights are rounded in one launch after the update, and each input of a matrix in one.
TEST(QuantizationAwareLaunches, AnUpdateHasOneForAllWeights) {
  const auto accelerator = std::make_shared<Accelerator>();
  Context context(accelerator);
  const auto model = make_model(context, tiny_config(), 5);
  Trainer trainer(context, *model, aware_options(8));
  int64_t matrices = 0;
  for (size_t i = 0; i < model->parameters().count(); ++i)
    matrices += model->parameters().weight(static_cast<ParamId>(i)).quantizes_input;
  std::vector<int64_t> counts;
  accelerator->on_launch = [&](OpKernel kernel, const void* params) {
    if (kernel == OpKernel::fake_quant_rows)
      counts.push_back(static_cast<const FakeQuantRowsParams*>(params)->count);
  };
  const auto batches = copy_batches(Architecture::encoder_decoder, 2);
  trainer.step(batches);  // two batches, one update
  EXPECT_GT(matrices, 10);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), 2 * matrices);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), matrices), 1);
  EXPECT_EQ(static_cast<int64_t>(counts.size()), 2 * matrices + 1);
}

// On a GPU the optimizer rounds what has no codes to bfloat16 itself.
TEST(QuantizationAwareLaunches, AnUpdateLeavesWhatTheMastersSay) {
  const auto context = cuda_context();
  if (!context) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  const auto batches = copy_batches(Architecture::encoder_decoder, 3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t bits : {8, 4}) {
      const auto model = make_model(*context, tiny_config(), 5, dtype);
      Trainer trainer(*context, *model, aware_options(bits));
      const auto first = weight_bytes(*context, *model);
      for (const PackedBatchHost& batch : batches) trainer.step({&batch, 1});
      const auto updated = weight_bytes(*context, *model);
      EXPECT_NE(updated, first);
      model->parameters().follow_master(*context);
      EXPECT_EQ(updated, weight_bytes(*context, *model)) << bits;
    }
}

TEST(QuantizationAwareOptions, WhatCannotBeIsNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  for (const int64_t bits : {1, 5, 7, 16})
    EXPECT_EQ(code_of([&] { Trainer(*context, *model, aware_options(bits)); }),
              ErrorCode::invalid_argument)
        << bits;
  model->parameters().set_trainable(*context, "encoder.0.ffn.up.weight", false);
  expect_error(ErrorCode::invalid_argument, "encoder.0.ffn.up.weight is frozen",
               [&] { Trainer(*context, *model, aware_options(8)); });
  model->parameters().set_trainable(*context, "*", true);
  add_adapter(*context, *model, AdapterConfig{}, 1);
  expect_error(ErrorCode::unsupported, "models with an adapter",
               [&] { Trainer(*context, *model, aware_options(8)); });
}

// Gradients flow through rounded weights and inputs alike: the loss of a copy task falls.
TEST(QuantizationAwareOptions, TheLossFallsAlmostAsInFloat) {
  const auto loss_after = [](int64_t bits) {
    TrainOptions options = aware_options(bits);
    options.learning_rate = 1e-2;
    Process process(copy_data(), options, std::nullopt, 1,
                    tiny_config(Architecture::encoder_decoder, 0.0));
    process.run->run({}, nullptr, 600);
    const NoGrad no_grad(*process.context);
    return mean_cross_entropy(*process.context, *process.model,
                              *copy_corpus(Architecture::encoder_decoder, 60, 1), kTokens);
  };
  const double exact = loss_after(0);
  EXPECT_LT(exact, std::log(kVocabulary) / 2);
  const double eight = loss_after(8), four = loss_after(4);
  EXPECT_LT(eight, exact + 0.1);
  EXPECT_LT(four, exact + 0.5);
}

}  // namespace
}  // namespace trafo
