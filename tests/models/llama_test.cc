// The Llama form of the decoder: parameters, gradients, steps on every kind of device, files.
#include <cmath>

#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/train/plan/memory_plan.h"
#include "tests/models/llama_models.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/step/recompute_case.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

ModelConfig tiny_llama(int64_t kv_heads = 0, bool tied = true, double dropout = 0.2) {
  return llama_of(tiny_config(Architecture::decoder_lm, dropout), kv_heads, tied);
}

// With everything that Llama's relatives have: wider heads, biases, stretched positions.
ModelConfig related(ModelConfig config) {
  config.head_width = 12;
  config.qkv_biases = config.attention_output_bias = config.ffn_biases = true;
  config.rope_theta = 100;
  config.rope_factor = 4;
  config.rope_original_positions = 30;
  return config;
}

ModelConfig tiny_qwen3(int64_t kv_heads = 1, bool tied = true, double dropout = 0.2) {
  return qwen3_of(tiny_config(Architecture::decoder_lm, dropout), kv_heads, tied);
}

ModelConfig tiny_hunyuan(int64_t kv_heads = 1, bool tied = true, double dropout = 0.2) {
  ModelConfig config = tiny_qwen3(kv_heads, tied, dropout);
  config.qk_norm = QkNorm::head_after_rotary;
  return config;
}

// Norms of outputs, and of whole queries and keys.
ModelConfig tiny_olmo2(double dropout = 0.2) {
  ModelConfig config = tiny_llama(1, false, dropout);
  config.norm_outputs = true;
  config.qk_norm = QkNorm::whole;
  return config;
}

// The factors of Granite, and every second layer without rotary positions as in SmolLM3.
ModelConfig tiny_scaled(double dropout = 0.2) {
  ModelConfig config = tiny_llama(1, true, dropout);
  config.no_rope_interval = 2;
  config.embedding_scale = 3;
  config.attention_scale = 0.5;
  config.residual_scale = 0.25;
  config.logits_divisor = 0.5;
  return config;
}

ModelConfig tiny_mistral(double dropout = 0.2) {
  ModelConfig config = mistral_of(tiny_config(Architecture::decoder_lm, dropout), 3, 1);
  config.decoder_layers = 2;
  return config;
}

ModelConfig tiny_gemma3(double dropout = 0.2) {
  ModelConfig config = gemma3_of(tiny_config(Architecture::decoder_lm, dropout), 3, 1);
  config.decoder_layers = 2;  // one with a window and one without
  return config;
}

ModelConfig tiny_gemma2(double dropout = 0.2) {
  ModelConfig config = gemma2_of(tiny_config(Architecture::decoder_lm, dropout), 3, 1);
  config.decoder_layers = 2;
  return config;
}

// Stretched by YaRN, with constants that are not the usual ones.
ModelConfig stretched(ModelConfig config) {
  config.rope_theta = 100;
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = 4;
  config.rope_original_positions = 16;
  config.rope_low_turns = 0.5;
  config.rope_high_turns = 2;
  config.rope_magnitude = 1.25;
  return config;
}

// Ministral 3: queries that grow with the position.
ModelConfig tiny_ministral3(double dropout = 0.2) {
  ModelConfig config = stretched(tiny_llama(1, true, dropout));
  config.rope_original_positions = 3;
  config.rope_query_growth = 0.5;
  return config;
}

std::vector<PackedBatchHost> batches(size_t count) {
  return copy_batches(Architecture::decoder_lm, count);
}

TEST(Llama, ParametersAndTheirShapes) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_llama(1, false), 5);
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"embedding.weight", {24, 16}},
      {"decoder.0.attention_norm.weight", {16}},
      {"decoder.0.ffn_norm.weight", {16}},
      {"decoder.0.attention.qkv.weight", {32, 16}},  // 2 heads of queries, 1 of keys, 1 of values
      {"decoder.0.attention.output.weight", {16, 16}},
      {"decoder.0.ffn.gate_up.weight", {64, 16}},
      {"decoder.0.ffn.down.weight", {16, 32}},
      {"decoder.norm.weight", {16}},
      {"output.weight", {24, 16}},
  };
  ASSERT_EQ(model->parameters().count(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(model->parameters().name(static_cast<ParamId>(i)), expected[i].first);
    EXPECT_EQ(model->parameters().shape(static_cast<ParamId>(i)), expected[i].second);
  }
}

TEST(Llama, NormsOfQueriesAndKeysAreOfOneHead) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_qwen3(), 5);
  for (const char* name : {"query_norm.weight", "key_norm.weight"}) {
    const ParamId id = model->parameters().find(concat("decoder.0.attention.", name));
    ASSERT_NE(id, kNoParam) << name;
    EXPECT_EQ(context->values<float>(model->parameters().value(id)), std::vector<float>(12, 1));
  }
  // Weights that are larger give the same queries and keys.
  ModelConfig deep = tiny_qwen3(1, true, 0);
  const auto small = make_model(*context, deep, 5), large = make_model(*context, deep, 5);
  const ParamId id = large->parameters().find("decoder.0.attention.qkv.weight");
  const Tensor& qkv = large->parameters().value(id);
  for (int64_t i = 0; i < (24 + 12) * 16; ++i) qkv.data<float>()[i] *= 1000;
  const Batch batch = upload(*context, batches(1)[0], spec_of(deep), DType::f32);
  const NoGrad no_grad(*context);
  const auto expected = context->values<float>(small->logits(*context, batch));
  const auto found = context->values<float>(large->logits(*context, batch));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-2) << i;
}

TEST(Llama, NormsOfOutputsAndOfWholeQueries) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_olmo2(), 5);
  const auto shape = [&](const char* name) {
    const ParamId id = model->parameters().find(name);
    return id == kNoParam ? Shape{} : model->parameters().shape(id);
  };
  EXPECT_EQ(shape("decoder.0.attention.query_norm.weight"), (Shape{16}));
  EXPECT_EQ(shape("decoder.0.attention.key_norm.weight"), (Shape{8}));
  EXPECT_EQ(shape("decoder.norm.weight"), (Shape{16}));
}

TEST(Llama, NormsOfInputsAndOutputs) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_gemma3(), 5);
  for (const char* name :
       {"attention_norm", "ffn_norm", "attention_output_norm", "ffn_output_norm"})
    EXPECT_EQ(
        model->parameters().shape(model->parameters().find(concat("decoder.0.", name, ".weight"))),
        (Shape{16}))
        << name;
  // Weights of a block that are larger give the same outputs.
  const auto large = make_model(*context, tiny_gemma3(0), 5),
             small = make_model(*context, tiny_gemma3(0), 5);
  for (const auto& [scaled, factor] : {std::pair{&large, 1e5f}, {&small, 1e3f}})
    for (const char* name : {"attention.output.weight", "ffn.down.weight"}) {
      ParameterStore& parameters = (*scaled)->parameters();
      const Tensor& values = parameters.value(parameters.find(concat("decoder.1.", name)));
      for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] *= factor;
    }
  const Batch batch = upload(*context, batches(1)[0], spec_of(tiny_gemma3()), DType::f32);
  const NoGrad no_grad(*context);
  const auto expected = context->values<float>(small->logits(*context, batch));
  const auto found = context->values<float>(large->logits(*context, batch));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << i;
}

// With as many layers as tokens lie between them, a window still hides the first token of a long
// text from the last.
TEST(Llama, AWindowHidesWhatLiesFarBefore) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const NoGrad no_grad(*context);
  const auto last_logits = [&](const ModelConfig& config, int32_t first) {
    const auto model = make_model(*context, config, 5);
    const Batch batch = upload(*context, batches(1)[0], spec_of(config), DType::f32);
    batch.target_in.data<int32_t>()[0] = first;
    const auto ends = context->values<int32_t>(batch.target_cu_seqlens);
    const auto all = context->values<float>(model->logits(*context, batch));
    const size_t width = static_cast<size_t>(config.vocabulary), end = static_cast<size_t>(ends[1]);
    EXPECT_GT(end, 6u);  // two layers with a window of 3 see five tokens
    return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>((end - 1) * width),
                              all.begin() + static_cast<std::ptrdiff_t>(end * width));
  };
  EXPECT_EQ(last_logits(tiny_mistral(0), 5), last_logits(tiny_mistral(0), 6));
  ModelConfig whole = tiny_mistral(0);
  whole.full_attention_interval = 2;
  EXPECT_NE(last_logits(whole, 5), last_logits(whole, 6));
}

TEST(Llama, FurtherPartsAreForTheirForms) {
  const auto refused = [](const char* text, const std::function<void(ModelConfig&)>& change,
                          ModelConfig config = tiny_llama(1)) {
    change(config);
    const Error error = error_of([&] { validate(config); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  refused("norm_outputs", [](ModelConfig& c) { c.norm_outputs = true, c.pre_norm = false; });
  refused("embedding_scale", [](ModelConfig& c) { c.embedding_scale = -1; });
  const ModelConfig plain = tiny_config(Architecture::decoder_lm);
  refused(
      "norm_outputs", [](ModelConfig& c) { c.norm_outputs = true; }, plain);
  refused(
      "residual_scale", [](ModelConfig& c) { c.residual_scale = 0.5; }, plain);
  refused(
      "no_rope_interval", [](ModelConfig& c) { c.no_rope_interval = 4; }, plain);
  refused("sandwich_norm goes with",
          [](ModelConfig& c) { c.sandwich_norm = c.norm_outputs = true; });
  refused("sandwich_norm goes with",
          [](ModelConfig& c) { c.sandwich_norm = true, c.pre_norm = false; });
  refused(
      "sandwich_norm goes with", [](ModelConfig& c) { c.sandwich_norm = true; }, plain);
  refused("full_attention_interval comes with sliding_window",
          [](ModelConfig& c) { c.full_attention_interval = 2; });
  refused("rope_local_theta comes with sliding_window",
          [](ModelConfig& c) { c.rope_local_theta = 100; });
  refused(
      "rope_local_theta comes with rotary",
      [](ModelConfig& c) { c.rope_local_theta = 100, c.sliding_window = 2; }, plain);
  refused("activation must be gelu or gelu_erf with the feed-forward geglu",
          [](ModelConfig& c) { c.ffn = FeedForward::geglu; });
  refused(
      "sliding_window is for decoder-lm", [](ModelConfig& c) { c.sliding_window = 2; },
      tiny_config(Architecture::encoder_decoder));
  const ModelConfig two = tiny_config(Architecture::encoder_decoder);
  refused(
      "embedding_scale", [](ModelConfig& c) { c.embedding_scale = 2; }, two);
  refused(
      "attention_scale", [](ModelConfig& c) { c.attention_scale = 2; }, two);
  refused(
      "logits_divisor", [](ModelConfig& c) { c.logits_divisor = 2; }, two);
  refused(
      "attention_soft_cap is for", [](ModelConfig& c) { c.attention_soft_cap = 2; }, two);
  refused(
      "logits_soft_cap is for", [](ModelConfig& c) { c.logits_soft_cap = 2; }, two);
  refused("logits_soft_cap", [](ModelConfig& c) { c.logits_soft_cap = -1; });
}

TEST(Llama, HeadsOfAnotherWidthAndBiases) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, related(tiny_llama(1)), 5);
  const ParameterStore& parameters = model->parameters();
  const auto shape = [&](const std::string& name) {
    const ParamId id = parameters.find("decoder.0." + name);
    return id == kNoParam ? Shape{} : parameters.shape(id);
  };
  EXPECT_EQ(shape("attention.qkv.weight"), (Shape{48, 16}));  // 2 + 1 + 1 heads of 12
  EXPECT_EQ(shape("attention.qkv.bias"), (Shape{48}));
  EXPECT_EQ(shape("attention.output.weight"), (Shape{16, 24}));
  EXPECT_EQ(shape("attention.output.bias"), (Shape{16}));
  EXPECT_EQ(shape("ffn.gate_up.bias"), (Shape{64}));
  EXPECT_EQ(shape("ffn.down.bias"), (Shape{16}));
  EXPECT_EQ(parameters.find("output.bias"), kNoParam);
}

double loss_of(Context& context, const Model& model, const Batch& batch) {
  const NoGrad no_grad(context);
  return context.item(LabelSmoothedCrossEntropy(0.1).loss(context, model, batch, {}).loss);
}

// The logits of scoring and decoding have the cap of the loss, whatever the weights.
TEST(Llama, LogitsHaveTheCapOfTheLoss) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const ModelConfig config = tiny_gemma2(0);
  const auto model = make_model(*context, config, 5);
  const Tensor& embedding = model->parameters().value(model->parameters().find("embedding.weight"));
  for (int64_t i = 0; i < embedding.numel(); ++i) embedding.data<float>()[i] *= 20;
  const Batch batch = upload(*context, batches(1)[0], spec_of(config), DType::f32);
  const NoGrad no_grad(*context);
  const Tensor logits = model->logits(*context, batch);
  double largest = 0;
  for (const float logit : context->values<float>(logits))
    largest = std::max(largest, std::abs(double{logit}));
  EXPECT_GT(largest, 0.8 * config.logits_soft_cap);
  EXPECT_LE(largest, config.logits_soft_cap * (1 + 1e-6));
  const ops::CrossEntropyOptions sum{
      .label_smoothing = 0.1, .weights = batch.target_weights, .reduction = Reduction::sum};
  const double expected =
      context->item(ops::cross_entropy(*context, logits, batch.target_out, sum).loss);
  EXPECT_NEAR(loss_of(*context, *model, batch), expected, 1e-5 * expected);
}

// Every parameter gets the gradient that differences of the loss say, fused and by the reference
// path.
TEST(Llama, GradientsInFloat64) {
  for (const ModelConfig& config :
       {tiny_llama(0, true, 0), tiny_llama(1, false, 0), related(tiny_llama(1, true, 0)),
        tiny_qwen3(1, true, 0), related(tiny_qwen3(0, false, 0)), stretched(tiny_qwen3(1, true, 0)),
        tiny_hunyuan(1, false, 0), tiny_olmo2(0), tiny_scaled(0), tiny_mistral(0), tiny_gemma3(0),
        tiny_gemma2(0), tiny_ministral3(0)}) {
    for (const bool fused : {true, false}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      context->set_fused_kernels(fused);
      const auto model = make_model(*context, config, 5, DType::f64);
      const Batch batch = upload(*context, batches(1)[0], spec_of(config), DType::f64);
      context->backward(LabelSmoothedCrossEntropy(0.1).loss(*context, *model, batch, {}).loss);
      ParameterStore& parameters = model->parameters();
      for (size_t i = 0; i < parameters.count(); ++i) {
        const auto id = static_cast<ParamId>(i);
        double* values = parameters.value(id).data<double>();
        const double* gradients = parameters.grad(id).data<double>();
        for (int64_t at = 0; at < parameters.value(id).numel(); at += 37) {
          constexpr double kStep = 1e-5;
          const double kept = values[at];
          values[at] = kept + kStep;
          const double up = loss_of(*context, *model, batch);
          values[at] = kept - kStep;
          const double down = loss_of(*context, *model, batch);
          values[at] = kept;
          ASSERT_NEAR(gradients[at], (up - down) / (2 * kStep),
                      1e-6 * (1 + std::abs(gradients[at])))
              << parameters.name(id) << "[" << at << "], fused " << fused;
        }
      }
    }
  }
}

struct PassOutcome {
  double loss;
  std::vector<std::byte> gradients;
};
PassOutcome one_pass(Context& context, const ModelConfig& config, Recompute recompute) {
  const StepScope scope(context, &StepContext::recompute, recompute);
  const auto model = make_model(context, config, 5);
  const Batch batch = upload(context, batches(1)[0], spec_of(config), DType::f32);
  const Tensor loss =
      LabelSmoothedCrossEntropy(0.1).loss(context, *model, batch, {7, 3, true}).loss;
  const double value = context.item(loss);
  context.backward(loss);
  return {value, bytes_of(context, model->parameters().flat_grad())};
}

TEST(Llama, RecomputingChangesNoBit) {
  std::vector<ModelConfig> forms(10, tiny_llama(1));
  forms[1].pre_norm = false;
  forms[2] = stretched(tiny_qwen3());
  forms[3] = tiny_hunyuan();
  forms[4] = tiny_olmo2();
  forms[5] = tiny_scaled();
  forms[6] = tiny_mistral();
  forms[7] = tiny_gemma3();
  forms[8] = tiny_gemma2();
  forms[9] = tiny_ministral3();
  for (ModelConfig& config : forms) {
    config.decoder_layers = 3;
    const auto context = make_context({DeviceKind::cpu, 0}, 2);
    const PassOutcome none = one_pass(*context, config, Recompute::none);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      const PassOutcome other = one_pass(*context, config, recompute);
      EXPECT_EQ(other.loss, none.loss);
      EXPECT_TRUE(other.gradients == none.gradients) << static_cast<int>(recompute);
    }
  }
}

TEST(Llama, EveryPartIsAnOptionOfItsOwn) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_config(Architecture::decoder_lm);
  std::vector<ModelConfig> forms(14, config);
  forms[0].positions = Positions::rotary;
  forms[1].ffn = FeedForward::swiglu;
  forms[1].activation = Activation::silu;
  forms[2].biases = false;
  forms[3].biases = false;
  forms[3].norm = Norm::rms;
  forms[4].positions = Positions::rotary;
  forms[4].kv_heads = 1;
  forms[4].pre_norm = false;
  forms[5].qk_norm = QkNorm::head;
  forms[6].qk_norm = QkNorm::head_after_rotary;
  forms[7] = tiny_olmo2();
  forms[8] = tiny_scaled();
  forms[9] = tiny_mistral();
  forms[10] = tiny_gemma3();
  forms[11].sliding_window = 2;  // with learned positions
  forms[12].attention_soft_cap = 0.5;
  forms[13].logits_soft_cap = 2;
  for (const ModelConfig& form : forms) {
    EXPECT_EQ(model_config_from_json(to_json(form)), form);
    const auto model = make_model(*context, form, 5);
    Trainer trainer(*context, *model, quick_options());
    const auto data = batches(2);
    const double first = trainer.step({&data[0], 1}).loss;
    for (int i = 0; i < 30; ++i) trainer.step({&data[0], 1});
    EXPECT_LT(trainer.step({&data[0], 1}).loss, 0.9 * first);
  }
}

TEST(Llama, LearnsToCopy) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_llama(1, true, 0), 5);
  TrainOptions options = quick_options();
  options.label_smoothing = 0;
  Trainer trainer(*context, *model, options);
  const auto data = batches(4);
  const auto epoch = [&] {
    double nll = 0, labels = 0;
    for (const PackedBatchHost& batch : data) {
      const StepResult result = trainer.step({&batch, 1});
      nll += result.nll;
      labels += result.labels;
    }
    return nll / labels;
  };
  const double first = epoch();
  for (int i = 0; i < 120; ++i) epoch();
  EXPECT_LT(epoch(), 0.5 * first);
}

void expect_stopped_run_has_the_same_bits(const ModelConfig& config) {
  const TrainingData data = copy_data(Architecture::decoder_lm);
  TrainOptions options = quick_options();
  const Reference reference = uncut(data, options, 15, 1, config);
  EXPECT_TRUE(uncut(data, options, 15, 3, config).weights == reference.weights) << "3 threads";
  options.after_updates = 15;
  const TemporaryDirectory directory;
  {
    Process process(data, options, directory.path(), 1, config);
    process.run->run({}, nullptr, 7);
  }
  Process process(data, options, directory.path(), 1, config, 99);
  EXPECT_TRUE(process.run->resumed());
  process.run->run();
  EXPECT_TRUE(process.weights() == reference.weights);
  EXPECT_EQ(timeless(process.run->state()), reference.state);
}

TEST(Llama, AStoppedRunEndsWithTheSameBits) {
  expect_stopped_run_has_the_same_bits(tiny_llama(1));
  expect_stopped_run_has_the_same_bits(stretched(tiny_qwen3()));
}

TEST(Llama, PlannedStepsOnTheCpuAreTheSameBits) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 2);
    const ModelConfig config = recompute == Recompute::none ? tiny_llama(1) : tiny_qwen3();
    const auto planned = make_model(*context, config, 5), plain = make_model(*context, config, 5);
    TrainOptions options = quick_options();
    options.recompute = recompute;
    Trainer a(*context, *planned, options), b(*context, *plain, options);
    for (const PackedBatchHost& batch : batches(4)) {
      const Batch uploaded = upload(*context, batch, spec_of(config), DType::f32);
      EXPECT_EQ(a.step({&batch, 1}).loss, b.step(std::span(&uploaded, 1)).loss);
    }
    EXPECT_EQ(weight_bytes(*context, *planned), weight_bytes(*context, *plain));
    EXPECT_EQ(a.unplanned_allocations(), 0);
  }
}

// ---- on a stand-in device, and on a GPU with TRAFO_TEST_DEVICE=cuda ----

class LlamaOnDevice : public ::testing::TestWithParam<TestDevice> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, LlamaOnDevice,
                         ::testing::Values(TestDevice{"StandIn", &stand_in},
                                           TestDevice{"Cuda", &cuda_context}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(LlamaOnDevice, EqualsTheCpu) {
  for (const ModelConfig& config :
       {tiny_llama(0), tiny_llama(1), stretched(tiny_qwen3()), tiny_hunyuan(), tiny_olmo2(),
        tiny_scaled(), tiny_mistral(), tiny_gemma3(), tiny_gemma2(), tiny_ministral3()}) {
    const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
    const auto there = make_model(*context_, config, 5);
    const auto here = make_model(*cpu, config, 5);
    Trainer a(*context_, *there, quick_options()), b(*cpu, *here, quick_options());
    const auto data = batches(9);
    for (size_t i = 0; i + 2 <= data.size(); i += 2) {
      const auto micro = std::span(data).subspan(i, 1 + i % 4 / 2);
      const StepResult x = a.step(micro), y = b.step(micro);
      EXPECT_NEAR(x.loss, y.loss, 1e-5 * y.loss);
      EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-4 * y.grad_norm);
    }
  }
}

TEST_P(LlamaOnDevice, UpdatesInFlightAndCapturedAreTheSameBits) {
  const bool on_gpu = context_->graphs();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && !on_gpu) continue;  // the stand-in computes with the CPU's kernels
    const auto eager = GetParam().make();
    eager->set_graphs(false);
    const auto once = make_model(*eager, tiny_qwen3(), 5, dtype),
               ahead = make_model(*context_, tiny_qwen3(), 5, dtype);
    Trainer a(*eager, *once, quick_options()), b(*context_, *ahead, quick_options());
    const auto data = batches(5);
    for (int round = 0; round < 4; ++round) {
      for (const PackedBatchHost& batch : data) b.submit({&batch, 1});
      for (const PackedBatchHost& batch : data) EXPECT_EQ(b.await().loss, a.step({&batch, 1}).loss);
    }
    EXPECT_EQ(weight_bytes(*eager, *once), weight_bytes(*context_, *ahead));
  }
}

TEST_P(LlamaOnDevice, RecomputingSavesMemoryAndChangesNoBit) {
  ModelConfig large = tiny_llama(1);
  large.decoder_layers = 4;
  expect_recompute_saves_memory(GetParam().make, large, batches(3));
}

TEST_P(LlamaOnDevice, ThePlanIsWhatTrainingTakes) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const ModelConfig config = recompute == Recompute::full ? tiny_llama(1) : tiny_qwen3();
    const auto context = GetParam().make();
    TrainOptions options = quick_options();
    options.recompute = recompute;
    const auto model = make_model(*context, config, 5);
    Trainer trainer(*context, *model, options);
    PackedBatchHost batch;  // three sentences of 5, 6 and 6 tokens
    batch.target_cu_seqlens = {0, 5, 11, 17};
    batch.target_positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
    batch.target_in.assign(17, 4);
    batch.target_out = batch.target_in;
    trainer.step({&batch, 1});
    const MemoryPlan plan =
        plan_training(context->device(), config, DType::f32, options, {3, 0, 17});
    EXPECT_EQ(plan.activations, static_cast<int64_t>(context->backend().arena_bytes()));
  }
}

// ---- configurations and files ----

TEST(Llama, ConfigurationsComeBack) {
  for (const bool tied : {false, true}) {
    ModelConfig config = tiny_llama(1, tied);
    config.rope_theta = 5e5;
    EXPECT_EQ(model_config_from_json(to_json(config)), config);
    EXPECT_EQ(model_config_from_json(to_json(related(config))), related(config));
    const ModelConfig further = stretched(tiny_qwen3(1, tied));
    EXPECT_EQ(model_config_from_json(to_json(further)), further);
    EXPECT_EQ(model_config_from_json(to_json(tiny_ministral3())), tiny_ministral3());
  }
}

// Files from before these settings, and of models without them, are the same.
TEST(Llama, SettingsThatAModelDoesNotHaveAreInNoFile) {
  const std::string text = to_json(tiny_llama(1));
  for (const char* setting : {"qk_norm", "rope_scaling", "rope_magnitude", "rope_query_growth"})
    EXPECT_EQ(text.find(setting), std::string::npos) << setting;
  std::string qwen3 = to_json(tiny_qwen3());
  EXPECT_NE(qwen3.find("\"qk_norm\": \"head\""), std::string::npos) << qwen3;
  EXPECT_EQ(qwen3.find("rope_magnitude"), std::string::npos) << qwen3;
  qwen3.replace(qwen3.find("\"head\""), 6, "\"width\"");
  EXPECT_TRUE(mentions(error_of([&] { model_config_from_json(qwen3); }), "unknown qk_norm width"));
  std::string unknown = text;
  unknown.replace(unknown.find("{") + 1, 0, "\"later\": 1,");
  EXPECT_TRUE(mentions(error_of([&] { model_config_from_json(unknown); }), "this version knows"));
}

TEST(Llama, AnUnknownNormIsRefused) {
  std::string text = to_json(tiny_config(Architecture::decoder_lm));
  const std::string norm = "\"norm\": \"layer\"";
  const size_t at = text.find(norm);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, norm.size(), "\"norm\": \"group\"");
  EXPECT_TRUE(mentions(error_of([&] { model_config_from_json(text); }), "unknown norm group"));
}

TEST(Llama, FormsThatCannotBeAreRefused) {
  const auto refused = [](const char* text, const auto& change) {
    ModelConfig config = tiny_llama();
    change(config);
    const Error error = error_of([&] { validate(config); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  refused("for decoder-lm", [](ModelConfig& c) { c.architecture = Architecture::encoder_decoder; });
  refused("goes without biases", [](ModelConfig& c) { c.biases = true; });
  refused("activation must be silu with the feed-forward swiglu",
          [](ModelConfig& c) { c.activation = Activation::relu; });
  refused("kv_heads must divide the 4 heads, got 3", [](ModelConfig& c) {
    c.heads = 4;
    c.kv_heads = 3;
  });
  refused("kv_heads must be 0 to 2", [](ModelConfig& c) { c.kv_heads = 4; });
  refused("come with rotary positions only", [](ModelConfig& c) {
    c.kv_heads = 1;
    c.positions = Positions::standard;
  });
  refused("heads of an even width", [](ModelConfig& c) { c.heads = 16; });
  refused("encoder_heads is of an encoder, which a decoder",
          [](ModelConfig& c) { c.encoder_heads = 1; });
  refused("encoder_ffn_width is of an encoder, which a decoder",
          [](ModelConfig& c) { c.encoder_ffn_width = 8; });
  refused("heads of an even width", [](ModelConfig& c) { c.head_width = 7; });
  refused("are more than", [](ModelConfig& c) { c.head_width = 1 << 24; });
  refused("for models with biases 0", [](ModelConfig& c) {
    c.norm = Norm::layer;
    c.biases = c.qkv_biases = true;
  });
  refused("rope_factor must be", [](ModelConfig& c) { c.rope_factor = 0.5; });
  refused("rope_factor comes with", [](ModelConfig& c) {
    c.rope_factor = 2;
    c.positions = Positions::standard;
  });
  refused("must be below rope_high_turns", [](ModelConfig& c) { c.rope_low_turns = 4; });
  refused("rope_scaling yarn needs rope_original_positions",
          [](ModelConfig& c) { c.rope_scaling = RopeScaling::yarn; });
  refused("rope_magnitude comes with rope_scaling yarn only",
          [](ModelConfig& c) { c.rope_magnitude = 1.5; });
  refused("rope_query_growth needs rope_original_positions",
          [](ModelConfig& c) { c.rope_query_growth = 0.1; });
  refused("no norms after rotary positions", [](ModelConfig& c) {
    c = tiny_ministral3();
    c.qk_norm = QkNorm::head_after_rotary;
  });
  refused("rope_theta must be above 1 with rope_scaling yarn", [](ModelConfig& c) {
    c = stretched(c);
    c.rope_theta = 1;
  });
  refused("norms of queries and keys", [](ModelConfig& c) {
    c = tiny_config(Architecture::encoder_decoder);
    c.qk_norm = QkNorm::head;
  });
  refused("rope_theta must be above 0", [](ModelConfig& c) { c.rope_theta = 0; });
  refused("norm must be 0 (layer) or 1 (rms)",
          [](ModelConfig& c) { c.norm = static_cast<Norm>(2); });
}

TEST(Llama, ModelFilesComeBack) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_llama(1, false);
  config.max_positions = 1 << 20;  // in no table
  const auto model = make_model(*context, config, 5);
  const TemporaryDirectory directory;
  const auto file = directory.path() / "model.safetensors";
  save_model(file, *context, *model);
  const auto again = load_model(*context, file);
  EXPECT_EQ(again->config(), model->config());
  EXPECT_EQ(weight_bytes(*context, *again), weight_bytes(*context, *model));
}

}  // namespace
}  // namespace trafo
