// FP8 as an option of training: who may have it, what it adds to the memory plan, that a run keeps
// it, and, on a GPU with TRAFO_TEST_DEVICE=cuda, that it trains and resumes with the same bits.
#include <cstring>

#include "engine/models/upload.h"
#include "engine/nn/fp8_weights.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions fp8_options(bool fp8 = true) {
  TrainOptions options = quick_options();
  options.fp8 = fp8;
  return options;
}

constexpr int64_t kFp8Vocabulary = 37;  // FP8 GEMMs pad it

ModelConfig fp8_config(Architecture architecture = Architecture::decoder_lm) {
  ModelConfig config = tiny_config(architecture);
  config.vocabulary = kFp8Vocabulary;
  return config;
}

// A model whose linear layers are wide enough for FP8.
ModelConfig wide_fp8_config() {
  ModelConfig config = fp8_config();
  config.width = config.ffn_width = 2048;
  config.heads = 16;
  config.decoder_layers = 2;
  return config;
}

TEST(Fp8Training, IsOffByDefault) {
  EXPECT_FALSE(TrainOptions().fp8);
}

TEST(Fp8Training, TheCpuRefusesIt) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, fp8_config(), 5);
  const Error error = error_of([&] { Trainer(*context, *model, fp8_options()); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "compute capability 8.9 or newer")) << error.what();
}

MemoryPlan fp8_plan(const ModelConfig& config, DType dtype, const TrainOptions& options) {
  return plan_training({DeviceKind::cuda, 0}, config, dtype, options, BatchSizes{4, 0, 20});
}

TEST(Fp8Training, AFloat32ModelRefusesIt) {
  const Error error = error_of([&] { fp8_plan(fp8_config(), DType::f32, fp8_options()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "fp8 is for models in bfloat16")) << error.what();
}

TEST(Fp8Training, AWidthThatDoesNotFitIsRefusedByTheFirstPlan) {
  ModelConfig config = fp8_config();
  config.width = 24;
  config.heads = 2;
  EXPECT_NO_THROW(fp8_plan(config, DType::bf16, fp8_options(false)));
  const Error error = error_of([&] { fp8_plan(config, DType::bf16, fp8_options()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "the width of the model, got 24")) << error.what();
}

TEST(Fp8Training, AnyVocabularyHasAPlan) {
  for (const int64_t vocabulary : {33, 40, 47}) {
    ModelConfig config = fp8_config();
    config.vocabulary = vocabulary;
    EXPECT_NO_THROW(fp8_plan(config, DType::bf16, fp8_options())) << vocabulary;
  }
}

// The copies in FP8: the matrix in both layouts, x, and the gradient of a chunk of logits. The last
// two may lie where the arena of a step had a hole.
TEST(Fp8Training, ThePlanHasItsCopies) {
  ModelConfig config = fp8_config();
  config.vocabulary = 8192;
  config.width = 64;
  const MemoryPlan with = fp8_plan(config, DType::bf16, fp8_options()),
                   without = fp8_plan(config, DType::bf16, fp8_options(false));
  const int64_t copies =
      2 * config.vocabulary * config.width + 20 * config.width + 20 * config.vocabulary;
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.gradients, without.gradients);
  EXPECT_EQ(with.optimizer, without.optimizer);
  EXPECT_GE(with.activations, without.activations + copies / 2);
  EXPECT_LE(with.activations, without.activations + copies + copies / 8);
}

// Copies of the values at the last refresh, of the output projection and of wide linear layers.
TEST(Fp8Weights, AreThoseOfTheLastRefresh) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  const auto model = make_model(*context, fp8_config(), 5);
  ParameterStore& parameters = model->parameters();
  const ParamId output = model->output_projection().weight.parameter;
  const int64_t width = parameters.shape(output)[1];
  Fp8Weights weights(*context, parameters, output, width);
  const auto bytes_of_copies = [&](const ops::Fp8Matrix& m) {
    auto all = bytes_of(*context, m.values);
    for (const Tensor& tensor : {m.transposed, m.scale}) {
      const auto more = bytes_of(*context, tensor);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  const auto expected = [&](ParamId id) {
    return bytes_of_copies(ops::to_fp8(*context, "test", parameters.value(id).detach(),
                                       Fp8Format::e4m3, ops::Fp8Copies::both));
  };
  weights.refresh(*context);
  size_t copies = 0;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const bool linear = parameters.prunable(id) && parameters.shape(id)[0] >= width &&
                        parameters.shape(id)[1] >= width;
    const ops::Fp8Matrix* copy = weights.find(parameters.weight(id));
    EXPECT_EQ(copy != nullptr, linear || id == output) << parameters.name(id);
    if (!copy) continue;
    ++copies;
    EXPECT_EQ(bytes_of_copies(*copy), expected(id)) << parameters.name(id);
  }
  EXPECT_GT(copies, 2u);
  const Weight weight = parameters.weight(output);
  {
    const StepScope scope(*context, &StepContext::fp8_weights, &weights);
    EXPECT_NE(fp8_copy(*context, weight), nullptr);
    EXPECT_EQ(fp8_copy(*context, weight), weights.find(weight));
    const auto other = make_model(*context, fp8_config(), 5);
    EXPECT_EQ(fp8_copy(*context, other->output_projection().weight), nullptr) << "another model";
  }
  EXPECT_EQ(fp8_copy(*context, weight), nullptr);

  const auto before = bytes_of_copies(*weights.find(weight));
  const std::vector<float> doubled(static_cast<size_t>(parameters.value(output).numel()), 0.75f);
  parameters.set_value(*context, output, doubled.data(), doubled.size() * sizeof(float));
  EXPECT_EQ(bytes_of_copies(*weights.find(weight)), before);
  weights.refresh(*context);
  EXPECT_EQ(bytes_of_copies(*weights.find(weight)), expected(output));
  EXPECT_NE(bytes_of_copies(*weights.find(weight)), before);
}

TEST(Fp8Training, ARunKeepsIt) {
  RunIdentity before, now;
  before.options = fixed_options_json(fp8_options(false));
  now.options = fixed_options_json(fp8_options());
  const Error error = error_of([&] { check_identity(before, now, "a run"); });
  EXPECT_TRUE(mentions(error, "fp8 was false and is true now")) << error.what();
}

// --- on a GPU ---

class Fp8TrainingOnCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!context_) return;
    try {
      ops::require_fp8_device(*context_, "test");
    } catch (const Error& error) {
      GTEST_SKIP() << error.message();
    }
  }
  static std::vector<std::byte> weights(Context& context, const Model& model) {
    return bytes_of(context, model.parameters().master());
  }
};

// The mean loss of the last of `rounds` over the batches, and the first loss.
struct Fp8Losses {
  double first = 0, last = 0;
};

Fp8Losses train_rounds(Context& context, const ModelConfig& config, bool fp8, int rounds) {
  const auto data = copy_batches(config.architecture, 16);
  const auto model = make_model(context, config, 5, DType::bf16);
  Trainer trainer(context, *model, fp8_options(fp8));
  Fp8Losses losses;
  for (int round = 0; round < rounds; ++round) {
    losses.last = 0;
    for (const PackedBatchHost& batch : data) {
      const StepResult result = trainer.step({&batch, 1});
      EXPECT_FALSE(result.skipped);
      if (losses.first == 0) losses.first = result.loss;
      losses.last += result.loss / static_cast<double>(data.size());
    }
  }
  return losses;
}

TEST_F(Fp8TrainingOnCuda, LearnsAsBfloat16Does) {
  for (const Architecture architecture :
       {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    const ModelConfig config = fp8_config(architecture);
    const double fp8 = train_rounds(*context_, config, true, 20).last;
    const double bf16 = train_rounds(*context_, config, false, 20).last;
    EXPECT_NEAR(fp8, bf16, 0.03 * bf16);
    EXPECT_NE(fp8, bf16);
  }
}

// In float32 80 rounds lead to 0.32 (encoder-decoder) and 0.55 (decoder-lm) of the first loss.
TEST_F(Fp8TrainingOnCuda, LearnsTheCopies) {
  for (const Architecture architecture :
       {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    ModelConfig config = fp8_config(architecture);
    config.dropout = config.attention_dropout = config.ffn_dropout = 0;
    const Fp8Losses losses = train_rounds(*context_, config, true, 150);
    EXPECT_LT(losses.last, 0.6 * losses.first);
  }
}

TEST_F(Fp8TrainingOnCuda, ResumesWithTheSameBits) {
  const auto run_until = [&](int64_t updates, const std::filesystem::path& directory) {
    const auto context = cuda_context();
    const auto model =
        make_model(*context, fp8_config(Architecture::encoder_decoder), 5, DType::bf16);
    TrainOptions wanted = fp8_options();
    wanted.after_updates = updates;
    const TrainingData data =
        copy_data(Architecture::encoder_decoder, 60, static_cast<int32_t>(kFp8Vocabulary));
    TrainingRun(*context, *model, data, wanted, directory).run();
    return weights(*context, *model);
  };
  const TemporaryDirectory whole, parts;
  const auto expected = run_until(40, whole.path());
  run_until(17, parts.path());
  EXPECT_EQ(run_until(40, parts.path()), expected);
}

// As in bfloat16: a weight that is not finite makes the loss so, and the update is skipped.
TEST_F(Fp8TrainingOnCuda, AnOverflowIsSkipped) {
  const auto data = copy_batches(Architecture::decoder_lm, 4);
  const auto model = make_model(*context_, fp8_config(), 5, DType::bf16);
  Trainer trainer(*context_, *model, fp8_options());
  trainer.step({&data[0], 1});
  ParameterStore& parameters = model->parameters();
  std::vector<std::byte> spoilt(static_cast<size_t>(parameters.value(ParamId{0}).numel()) *
                                dtype_size(parameters.master().dtype()));
  std::memset(spoilt.data(), 0xff, spoilt.size());  // NaN
  parameters.set_value(*context_, ParamId{0}, spoilt.data(), spoilt.size());
  const auto before = weights(*context_, *model);
  EXPECT_TRUE(trainer.step({&data[1], 1}).skipped);
  EXPECT_EQ(weights(*context_, *model), before);
}

// All micro-batches of an update read the same copies of the weights.
TEST_F(Fp8TrainingOnCuda, MicroBatchesAddUp) {
  const auto data = copy_batches(Architecture::decoder_lm, 8);
  ModelConfig config = fp8_config();
  config.dropout = config.attention_dropout = config.ffn_dropout = 0;
  std::vector<std::byte> results[2];
  for (auto& result : results) {
    const auto model = make_model(*context_, config, 5, DType::bf16);
    Trainer trainer(*context_, *model, fp8_options());
    double last = 0;
    for (int round = 0; round < 30; ++round) {
      const StepResult step = trainer.step(data);
      EXPECT_FALSE(step.skipped);
      if (round == 0) last = step.loss;
      if (round == 29) {
        EXPECT_LT(step.loss, last);
      }
    }
    result = weights(*context_, *model);
  }
  EXPECT_EQ(results[0], results[1]);
}

// They learn, and what is computed a second time has the same bits.
TEST_F(Fp8TrainingOnCuda, WideLayersLearnAndRecomputeTheSameBits) {
  const ModelConfig config = wide_fp8_config();
  const auto data = copy_batches(Architecture::decoder_lm, 8);
  std::vector<std::byte> expected;
  double loss_of[2] = {};
  const auto train = [&](bool fp8, Recompute recompute) {
    const auto model = make_model(*context_, config, 5, DType::bf16);
    TrainOptions options = fp8_options(fp8);
    options.learning_rate = 3e-4;
    options.recompute = recompute;
    Trainer trainer(*context_, *model, options);
    double first = 0;
    for (int round = 0; round < 12; ++round) {
      double loss = 0;
      for (const PackedBatchHost& batch : data)
        loss += trainer.step({&batch, 1}).loss / static_cast<double>(data.size());
      if (round == 0) first = loss;
      loss_of[fp8] = loss;
    }
    EXPECT_LT(loss_of[fp8], 0.9 * first);
    return weights(*context_, *model);
  };
  const auto plain = train(false, Recompute::none);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto result = train(true, recompute);
    if (expected.empty()) expected = result;
    EXPECT_EQ(result, expected) << static_cast<int>(recompute);
  }
  EXPECT_NE(plain, expected);
  EXPECT_NEAR(loss_of[true], loss_of[false], 0.05 * loss_of[false]);
}

// Gradients of a model all of whose linear layers are FP8, with the largest magnitudes that the ops
// between them leave and with those that a pass looks for.
TEST_F(Fp8TrainingOnCuda, WhereLargestMagnitudesComeFromChangesNoBit) {
  struct Kind {
    Norm norm;
    FeedForward ffn;
    Activation activation;
    double dropout;
  };
  for (const Kind kind : {Kind{Norm::layer, FeedForward::plain, Activation::gelu, 0},
                          Kind{Norm::layer, FeedForward::plain, Activation::relu, 0.2},
                          Kind{Norm::rms, FeedForward::swiglu, Activation::silu, 0}}) {
    ModelConfig config = fp8_config(Architecture::decoder_lm);
    config.norm = kind.norm;
    config.ffn = kind.ffn;
    config.activation = kind.activation;
    config.biases = config.output_bias = kind.norm == Norm::layer;
    config.dropout = config.attention_dropout = config.ffn_dropout = kind.dropout;
    config.width = 64;
    config.ffn_width = 128;
    config.decoder_layers = 2;
    const auto model = make_model(*context_, config, 5, DType::bf16);
    ParameterStore& parameters = model->parameters();
    Fp8Weights weights(*context_, parameters, model->output_projection().weight.parameter, 1);
    ASSERT_TRUE(weights.has_linear_layers());
    weights.refresh(*context_);
    const StepScope fp8(*context_, &StepContext::fp8_weights, &weights);
    const PackedBatchHost host = copy_batches(Architecture::decoder_lm, 1)[0];
    const Batch batch = upload(*context_, host, spec_of(config), DType::bf16);
    const LabelSmoothedCrossEntropy objective(0.1);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      std::vector<std::byte> gradients[2];
      for (const bool wanted : {false, true}) {
        const TapeScope tape(*context_);
        const StepScope scope(*context_, &StepContext::recompute, recompute);
        ops::Fp8Magnitudes magnitudes(*context_, wanted);
        parameters.zero_grad();
        const auto output = objective.loss(*context_, *model, batch,
                                           training_pass(spec_of(config), fp8_options(), 3));
        context_->backward(output.loss);
        parameters.complete_grads(*context_);
        // Inputs of qkv, up and down, and the gradient of what up wrote.
        EXPECT_EQ(magnitudes.found() >= 4 * config.decoder_layers, wanted) << magnitudes.found();
        gradients[wanted] = bytes_of(*context_, parameters.flat_grad());
      }
      EXPECT_EQ(gradients[0], gradients[1]) << static_cast<int>(recompute);
    }
  }
}

// Between the rounds an update overflows and is skipped. Its leftovers (largest magnitudes of
// infinity, for example) must not reach later updates.
TEST_F(Fp8TrainingOnCuda, GraphsChangeNoBit) {
  const auto data = copy_batches(Architecture::decoder_lm, 6);
  for (const ModelConfig& config : {fp8_config(), wide_fp8_config()}) {
    std::vector<std::byte> result[2];
    for (const bool graphs : {false, true}) {
      const auto context = cuda_context();
      context->set_graphs(graphs);
      const auto model = make_model(*context, config, 5, DType::bf16);
      ParameterStore& parameters = model->parameters();
      Trainer trainer(*context, *model, fp8_options());
      for (int round = 0; round < 3; ++round) {
        for (const PackedBatchHost& batch : data)
          EXPECT_FALSE(trainer.step({&batch, 1}).skipped) << "round " << round;
        std::vector<std::byte> kept(static_cast<size_t>(parameters.value(ParamId{0}).numel()) *
                                    dtype_size(parameters.master().dtype()));
        std::vector<std::byte> spoilt(kept.size());
        parameters.get_value(*context, ParamId{0}, kept.data(), kept.size());
        std::memset(spoilt.data(), 0xff, spoilt.size());  // NaN
        parameters.set_value(*context, ParamId{0}, spoilt.data(), spoilt.size());
        EXPECT_TRUE(trainer.step({&data[0], 1}).skipped);
        parameters.set_value(*context, ParamId{0}, kept.data(), kept.size());
      }
      result[graphs] = weights(*context, *model);
    }
    EXPECT_EQ(result[0], result[1]) << config.width;
  }
}

}  // namespace
}  // namespace trafo
