// Steps that the host does not wait for: on a stand-in device against the CPU, and the same tests
// on a GPU with TRAFO_TEST_DEVICE=cuda, there with recorded graphs.
#include <cmath>
#include <limits>

#include "engine/io/byte_sink.h"
#include "engine/memory/cached_blocks.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/device_step_memory.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/step/recompute_case.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TEST(BucketPadding, AddsFewTokensAndSentencesForThem) {
  for (const int64_t tokens : {1, 15, 16, 17, 100, 1000, 4095, 4096, 4097, 25600, 100001}) {
    for (const int64_t longest : {1, 7, 32, 33, 128, 129, 1000}) {
      BatchBucket exact;
      exact.sentences = (tokens + longest - 1) / longest;
      exact.source_tokens = exact.target_tokens = tokens;
      exact.longest_source = exact.longest_target = std::min(longest, tokens);
      const BatchBucket padded = padded_bucket(exact);
      EXPECT_GE(padded.target_tokens, tokens);
      EXPECT_LE(padded.target_tokens, tokens + std::max<int64_t>(15, tokens / 16));
      EXPECT_GE(padded.longest_target, exact.longest_target);
      // Every padding token belongs to a sentence that is not too long.
      EXPECT_GE((padded.sentences - exact.sentences) * padded.longest_target,
                padded.target_tokens - tokens);
      EXPECT_LE(padded.sentences, exact.sentences + exact.sentences / 4 + 16);
      EXPECT_EQ(padded_bucket(padded).target_tokens, padded.target_tokens);
      EXPECT_EQ(dropout_key_stride(padded.longest_target),
                dropout_key_stride(exact.longest_target));
    }
  }
}

class DeviceStepTest : public ::testing::TestWithParam<std::tuple<TestDevice, Architecture>> {
 protected:
  void SetUp() override {
    context_ = std::get<0>(GetParam()).make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  Architecture architecture() const { return std::get<1>(GetParam()); }
  bool on_gpu() const { return context_->graphs(); }
  ModelConfig config() const { return tiny_config(architecture(), 0.2); }

  std::vector<PackedBatchHost> batches(size_t count) const {
    return copy_batches(architecture(), count);
  }

  std::unique_ptr<Context> context_;
};

std::vector<std::tuple<TestDevice, Architecture>> instances() {
  std::vector<std::tuple<TestDevice, Architecture>> all;
  for (const TestDevice& device :
       {TestDevice{"StandIn", &stand_in}, TestDevice{"Cuda", &cuda_context}})
    for (const Architecture architecture :
         {Architecture::encoder_decoder, Architecture::decoder_lm})
      all.emplace_back(device, architecture);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceStepTest, ::testing::ValuesIn(instances()),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) +
                                  (std::get<1>(instance.param) == Architecture::decoder_lm
                                       ? "DecoderLm"
                                       : "EncoderDecoder");
                         });

// An update that is padded, planned and decided on the device equals the CPU's update with the
// batch as it is, with the same elements dropped.
TEST_P(DeviceStepTest, EqualsTheCpu) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  const auto there = make_model(*context_, config(), 5);
  const auto here = make_model(*cpu, config(), 5);
  Trainer a(*context_, *there, quick_options()), b(*cpu, *here, quick_options());
  auto data = batches(12);
  data[1].target_weights.assign(data[1].target_out.size(), 0.5f);
  data[1].target_weights[0] = 0;
  data[2].target_out[0] = ops::CrossEntropyOptions{}.ignore_label;
  for (size_t i = 0; i + 3 <= data.size(); i += 3) {
    for (const size_t count : {1, 2}) {
      const auto micro = std::span(data).subspan(i + count - 1, count);
      const StepResult x = a.step(micro), y = b.step(micro);
      EXPECT_NEAR(x.loss, y.loss, 1e-5 * y.loss);
      EXPECT_NEAR(x.nll, y.nll, 1e-5 * y.nll);
      EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-4 * y.grad_norm);
      EXPECT_EQ(x.labels, y.labels);
      EXPECT_EQ(x.learning_rate, y.learning_rate);
      EXPECT_EQ(x.update, y.update);
      EXPECT_EQ(x.sentences, y.sentences);
      EXPECT_EQ(x.target_tokens, y.target_tokens);
      EXPECT_EQ(x.source_tokens, y.source_tokens);
    }
  }
}

TEST_P(DeviceStepTest, UpdatesInFlightAreTheSameBits) {
  const auto once = make_model(*context_, config(), 5), ahead = make_model(*context_, config(), 5);
  Trainer a(*context_, *once, quick_options()), b(*context_, *ahead, quick_options());
  ASSERT_TRUE(b.works_ahead());
  const auto data = batches(9);
  std::vector<StepResult> expected;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < data.size(); ++i) {
      const auto micro = std::span(data).subspan(i, i % 3 == 2 ? 1 : 1 + i % 2);
      expected.push_back(a.step(micro));
      b.submit(micro);
    }
    for (size_t i = 0; i < data.size(); ++i) {
      const StepResult got = b.await();
      EXPECT_EQ(got.loss, expected[i].loss);
      EXPECT_EQ(got.grad_norm, expected[i].grad_norm);
      EXPECT_EQ(got.update, expected[i].update);
      EXPECT_EQ(got.target_tokens, expected[i].target_tokens);
    }
    expected.clear();
  }
  EXPECT_EQ(weight_bytes(*context_, *once), weight_bytes(*context_, *ahead));
  EXPECT_EQ(a.state(), b.state());
  EXPECT_THROW(b.await(), Error);
}

// Moments in 8 bits: several updates in flight, and a trainer that continues in the middle.
TEST_P(DeviceStepTest, EightBitStatesAreTheSameBitsAheadAndContinued) {
  TrainOptions options = quick_options();
  options.optimizer_states = OptimizerStates::eight_bit;
  const auto once = make_model(*context_, config(), 5), ahead = make_model(*context_, config(), 5);
  Trainer a(*context_, *once, options), b(*context_, *ahead, options);
  const auto data = batches(6);
  for (const PackedBatchHost& batch : data) b.submit({&batch, 1});
  while (b.in_flight() > 0) b.await();
  const auto steps = [&](Trainer& trainer, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) trainer.step({&data[i], 1});
  };
  steps(a, 0, 3);
  MemorySink file;
  a.optimizer_file().write(file);
  Trainer continued(*context_, *once, options);
  continued.restore(SafetensorsReader::from_memory(file.bytes(), "a file"), a.state());
  steps(continued, 3, data.size());
  EXPECT_EQ(weight_bytes(*context_, *once), weight_bytes(*context_, *ahead));
}

// More sets of skipped layers than have a bucket at a time.
TEST_P(DeviceStepTest, SkipsTheLayersThatTheCpuSkips) {
  ModelConfig deep = config();
  deep.encoder_layers = deep.decoder_layers = architecture() == Architecture::decoder_lm ? 8 : 4;
  TrainOptions options = quick_options();
  options.layer_drop = 0.5;
  options.learning_rate = 1e-6;
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  const auto there = make_model(*context_, deep, 5), here = make_model(*cpu, deep, 5);
  Trainer a(*context_, *there, options), b(*cpu, *here, options);
  const auto data = batches(4);
  for (int round = 0; round < 100; ++round)
    for (const PackedBatchHost& batch : data) {
      const StepResult x = a.step({&batch, 1}), y = b.step({&batch, 1});
      ASSERT_NEAR(x.loss, y.loss, 1e-4 * y.loss);
      ASSERT_NEAR(x.grad_norm, y.grad_norm, 1e-3 * y.grad_norm);
    }
}

TEST_P(DeviceStepTest, GraphsGiveTheSameBits) {
  if (!on_gpu()) GTEST_SKIP() << "the stand-in device has no graphs";
  const auto eager_context = cuda_context();
  eager_context->set_graphs(false);
  for (const auto& [dtype, layer_drop] :
       {std::pair{DType::f32, 0.0}, std::pair{DType::bf16, 0.0}, std::pair{DType::bf16, 0.4}}) {
    TrainOptions options = quick_options();
    options.layer_drop = layer_drop;
    const auto recorded = make_model(*context_, config(), 5, dtype);
    const auto eager = make_model(*eager_context, config(), 5, dtype);
    Trainer a(*context_, *recorded, options), b(*eager_context, *eager, options);
    const auto data = batches(6);
    for (int round = 0; round < (layer_drop > 0 ? 20 : 4); ++round) {
      for (size_t i = 0; i < data.size(); i += 2) {
        const auto micro = std::span(data).subspan(i, 2);
        EXPECT_EQ(a.step(micro).loss, b.step(micro).loss);
      }
    }
    EXPECT_EQ(weight_bytes(*context_, *recorded), weight_bytes(*eager_context, *eager));
  }
}

TEST_P(DeviceStepTest, MemoryIsThePlannedArenaAndStaysTheSame) {
  const auto model = make_model(*context_, config(), 5);
  Trainer trainer(*context_, *model, quick_options());
  const auto data = batches(6);
  for (const PackedBatchHost& batch : data) trainer.step({&batch, 1});
  Backend& backend = context_->backend();
  EXPECT_GT(backend.arena_bytes(), 0u);
  const MemoryStats before = backend.memory_stats();
  backend.reset_peak_memory();
  for (int round = 0; round < 3; ++round)
    for (const PackedBatchHost& batch : data) trainer.step({&batch, 1});
  const MemoryStats after = backend.memory_stats();
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(after.peak_bytes, before.allocated_bytes) << "a step took memory beside its arena";
}

TEST_P(DeviceStepTest, ThePlanIsWhatTrainingTakes) {
  int64_t optimizer_in_float32 = 0;
  for (const auto& [recompute, states] : {std::pair{Recompute::none, OptimizerStates::float32},
                                          std::pair{Recompute::full, OptimizerStates::float32},
                                          std::pair{Recompute::none, OptimizerStates::eight_bit}}) {
    const auto context = std::get<0>(GetParam()).make();
    const ModelConfig model_config = config();
    TrainOptions options = quick_options();
    options.recompute = recompute;
    options.optimizer_states = states;
    options.gradient_accumulation = 2;
    const auto model = make_model(*context, model_config, 5);
    Trainer trainer(*context, *model, options);
    PackedBatchHost batch;  // three sentences of 5, 6 and 6 tokens a side
    batch.target_cu_seqlens = {0, 5, 11, 17};
    batch.target_positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
    batch.target_in.assign(17, 4);
    batch.target_out = batch.target_in;
    const bool lm = architecture() == Architecture::decoder_lm;
    if (!lm) {
      batch.source_cu_seqlens = batch.target_cu_seqlens;
      batch.source_positions = batch.target_positions;
      batch.source_ids = batch.target_in;
    }
    const std::vector<PackedBatchHost> micro{batch, batch};
    trainer.step(micro);
    const MemoryPlan plan =
        plan_training(context->device(), model_config, DType::f32, options, {3, lm ? 0 : 17, 17});
    const auto arena = static_cast<int64_t>(context->backend().arena_bytes());
    EXPECT_EQ(plan.activations, arena);
    // The stand-in's arena is rounded by the CPU's allocator.
    const auto held =
        on_gpu() ? arena : static_cast<int64_t>(CachedBlocks::rounded(plan.activations));
    EXPECT_EQ(plan.total - plan.activations, context->backend().memory_stats().peak_bytes - held);
    EXPECT_GE(plan.total, plan.weights + plan.gradients + plan.optimizer + plan.activations);
    EXPECT_EQ(plan.optimizer, trainer.optimizer_bytes());
    if (states == OptimizerStates::float32)
      optimizer_in_float32 = plan.optimizer;
    else
      EXPECT_LT(plan.optimizer, 0.3 * static_cast<double>(optimizer_in_float32));
    EXPECT_LE(plan.total,
              plan.weights + plan.gradients + plan.optimizer + plan.activations + 65536);
  }
}

TEST_P(DeviceStepTest, ATrainerGivesItsMemoryBackAndAnotherGoesOn) {
  const auto one = make_model(*context_, config(), 5), two = make_model(*context_, config(), 5);
  const auto data = batches(6);
  Backend& backend = context_->backend();
  const auto steps = [&](Trainer& trainer) {
    std::vector<double> losses;
    for (const PackedBatchHost& batch : data) losses.push_back(trainer.step({&batch, 1}).loss);
    return losses;
  };
  Trainer stays(*context_, *two, quick_options());
  {
    Trainer goes(*context_, *one, quick_options());
    for (int round = 0; round < 2; ++round) EXPECT_EQ(steps(goes), steps(stays));
    EXPECT_GT(backend.arena_bytes(), 0u);
  }
  EXPECT_EQ(backend.arena_bytes(), 0u);

  std::vector<double> last;
  for (int round = 0; round < 2; ++round) last = steps(stays);
  EXPECT_GT(backend.arena_bytes(), 0u);
  const auto eager = std::get<0>(GetParam()).make();
  eager->set_graphs(false);
  const auto reference = make_model(*eager, config(), 5);
  Trainer trainer(*eager, *reference, quick_options());
  std::vector<double> losses;
  for (int round = 0; round < 4; ++round) losses = steps(trainer);
  EXPECT_EQ(last, losses);
  EXPECT_EQ(weight_bytes(*context_, *two), weight_bytes(*eager, *reference));
}

TEST_P(DeviceStepTest, ReferenceOpsTrainToo) {
  const auto fused = make_model(*context_, config(), 5),
             reference = make_model(*context_, config(), 5);
  Trainer a(*context_, *fused, quick_options()), b(*context_, *reference, quick_options());
  for (const PackedBatchHost& batch : batches(3)) {
    context_->set_fused_kernels(true);
    const StepResult x = a.step({&batch, 1});
    context_->set_fused_kernels(false);
    EXPECT_FALSE(b.works_ahead());
    const StepResult y = b.step({&batch, 1});
    EXPECT_NEAR(x.loss, y.loss, 1e-4 * x.loss);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-3 * x.grad_norm);
  }
}

TEST_P(DeviceStepTest, RecomputingSavesMemoryAndChangesNoBit) {
  ModelConfig large = config();
  large.encoder_layers = large.decoder_layers = 4;
  expect_recompute_saves_memory(std::get<0>(GetParam()).make, large, batches(3));
}

TEST_P(DeviceStepTest, NonFiniteUpdatesAreSkippedWhileOthersAreInFlight) {
  const auto model = make_model(*context_, config(), 5);
  TrainOptions options = quick_options();
  options.max_non_finite_steps = 3;
  Trainer trainer(*context_, *model, options);
  const auto data = batches(2);
  const auto good = weight_bytes(*context_, *model);
  ParameterStore& parameters = model->parameters();
  const ParamId bias = parameters.find("output.bias");
  ASSERT_NE(bias, kNoParam);
  std::vector<float> poison(static_cast<size_t>(kVocabulary),
                            std::numeric_limits<float>::quiet_NaN());
  parameters.set_value(*context_, bias, poison.data(), poison.size() * sizeof(float));
  const auto bad = weight_bytes(*context_, *model);
  trainer.submit({&data[0], 1});
  trainer.submit({&data[1], 1});
  for (int i = 1; i <= 2; ++i) {
    const StepResult result = trainer.await();
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.update, 0);
    EXPECT_EQ(trainer.state().skipped_in_a_row, i);
  }
  EXPECT_EQ(weight_bytes(*context_, *model), bad) << "a skipped update changed the weights";
  try {
    trainer.step({&data[0], 1});
    ADD_FAILURE() << "the third bad update in a row must end the training";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::non_finite);
  }
  const std::vector<float> zeros(static_cast<size_t>(kVocabulary), 0.0f);
  parameters.set_value(*context_, bias, zeros.data(), zeros.size() * sizeof(float));
  EXPECT_EQ(weight_bytes(*context_, *model), good);
  const StepResult result = trainer.step({&data[0], 1});
  EXPECT_FALSE(result.skipped);
  EXPECT_EQ(result.update, 1);
  EXPECT_EQ(result.learning_rate, trainer.learning_rate(1));
}

TEST_P(DeviceStepTest, ABadBatchHarmsNoneOfThoseInFlight) {
  const auto one = make_model(*context_, config(), 5), two = make_model(*context_, config(), 5);
  Trainer a(*context_, *one, quick_options()), b(*context_, *two, quick_options());
  auto data = batches(3);
  PackedBatchHost broken = data[1];
  broken.target_in[0] = kVocabulary;
  a.submit({&data[0], 1});
  EXPECT_THROW(a.submit({&broken, 1}), Error);
  const std::vector<PackedBatchHost> half{data[1], broken};
  EXPECT_THROW(a.submit(half), Error);
  a.submit({&data[2], 1});
  b.step({&data[0], 1});
  b.step({&data[2], 1});
  a.await();
  a.await();
  EXPECT_EQ(weight_bytes(*context_, *one), weight_bytes(*context_, *two));
  EXPECT_EQ(a.state(), b.state());
}

// A run looks at results late; how late must not matter.
TEST_P(DeviceStepTest, ARunThatLooksLateIsTheSameRun) {
  const TrainingData data = copy_data(architecture());
  std::vector<std::byte> weights;
  std::string state;
  for (const int64_t every : {1, 4, 100}) {
    const auto context = std::get<0>(GetParam()).make();
    const auto model = make_model(*context, config(), 5);
    TrainOptions options = quick_options();
    options.after_updates = 30;
    options.gradient_accumulation = 2;
    options.log_freq = {every, PeriodUnit::updates};
    options.valid_freq = {0, PeriodUnit::updates};
    options.valid_metrics = {"ce-mean-words"};
    TemporaryDirectory directory;
    TrainingRun run(*context, *model, data, options, directory.path());
    std::vector<int64_t> shown;
    run.run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::log) shown.push_back(event.update);
      return 0;
    });
    EXPECT_EQ(run.state().trainer.update, 30);
    EXPECT_EQ(shown.size(), static_cast<size_t>(30 / every));
    RunState end = run.state();
    end.log = {};
    if (weights.empty()) {
      weights = weight_bytes(*context, *model);
      state = timeless(end);
    }
    EXPECT_EQ(weight_bytes(*context, *model), weights) << every;
    EXPECT_EQ(timeless(end), state) << every;

    // Stopped in the middle and continued by another process: the same again.
    const auto cut_context = std::get<0>(GetParam()).make();
    const auto cut = make_model(*cut_context, config(), 5);
    TemporaryDirectory cut_directory;
    {
      TrainingRun first(*cut_context, *cut, data, options, cut_directory.path());
      first.run({}, nullptr, 13);
      first.save();
    }
    const auto next_context = std::get<0>(GetParam()).make();
    const auto next = make_model(*next_context, config(), 6);
    TrainingRun second(*next_context, *next, data, options, cut_directory.path());
    EXPECT_EQ(second.state().trainer.update, 13);
    second.run();
    EXPECT_EQ(weight_bytes(*next_context, *next), weights) << every;
  }
}

// An epoch ends while updates are in flight; a callback that throws there must not harm them.
TEST_P(DeviceStepTest, ACallbackMayThrowWhileUpdatesAreInFlight) {
  const TrainingData data = copy_data(architecture());
  TrainOptions options = quick_options();
  options.after_updates = 40;
  options.log_freq = options.save_freq = options.valid_freq = {100, PeriodUnit::updates};
  std::vector<std::byte> weights;
  for (const bool throwing : {false, true}) {
    const auto context = std::get<0>(GetParam()).make();
    const auto model = make_model(*context, config(), 5);
    TemporaryDirectory directory;
    TrainingRun run(*context, *model, data, options, directory.path());
    const TrainCallback callback = [&](const TrainEvent& event) -> int {
      if (throwing && event.kind == TrainEventKind::epoch)
        throw std::runtime_error("from the callback");
      return 0;
    };
    int thrown = 0;
    for (bool done = false; !done && thrown < 40;) {
      try {
        done = run.run(callback).reason == StopReason::limit;
      } catch (const std::runtime_error&) {
        ++thrown;
        run.save();
        EXPECT_EQ(slurp(directory / "latest"), concat(run.state().trainer.update, "\n"));
      }
    }
    EXPECT_EQ(run.state().trainer.update, 40);
    if (throwing) {
      EXPECT_GE(thrown, 2);
      EXPECT_EQ(weight_bytes(*context, *model), weights);
    }
    weights = weight_bytes(*context, *model);
  }
}

}  // namespace
}  // namespace trafo
