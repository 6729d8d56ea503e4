// Steps on the CPU in planned memory: the same bits as without, and nothing taken from the system.
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/models/upload.h"
#include "engine/train/step/host_step_memory.h"
#include "tests/support/memory_meter.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class HostStepTest : public ::testing::TestWithParam<Architecture> {};

INSTANTIATE_TEST_SUITE_P(Models, HostStepTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return std::string(instance.param == Architecture::decoder_lm
                                                  ? "DecoderLm"
                                                  : "EncoderDecoder");
                         });

// A batch that is on the device is computed without the plan.
TEST_P(HostStepTest, IsTheSameBitsAsWithoutAPlan) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 2);
      const ModelConfig config = tiny_config(GetParam());
      const auto planned = make_model(*context, config, 5, dtype),
                 plain = make_model(*context, config, 5, dtype);
      TrainOptions options = quick_options();
      options.recompute = recompute;
      Trainer a(*context, *planned, options), b(*context, *plain, options);
      auto data = copy_batches(GetParam(), 12);
      data[3].target_weights.assign(data[3].target_out.size(), 0.5f);
      for (size_t i = 0; i + 3 <= data.size(); i += 3) {
        const auto micro = std::span(data).subspan(i, 1 + i % 2);
        std::vector<Batch> uploaded;
        for (const PackedBatchHost& batch : micro)
          uploaded.push_back(upload(*context, batch, spec_of(config), dtype));
        EXPECT_EQ(a.step(micro).loss, b.step(uploaded).loss);
      }
      EXPECT_EQ(weight_bytes(*context, *planned), weight_bytes(*context, *plain));
      EXPECT_EQ(a.unplanned_allocations(), 0);
      EXPECT_GT(context->backend().arena_bytes(), 0u);
    }
  }
}

TEST_P(HostStepTest, TakesNothingFromTheSystem) {
  const TrainingData data = copy_data(GetParam(), 200);
  TrainOptions options = quick_options();
  options.gradient_accumulation = 2;
  options.log_freq = options.save_freq = options.valid_freq = {0, PeriodUnit::updates};
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  const auto model = make_model(*context, tiny_config(GetParam()), 5);
  TrainingRun run(*context, *model, data, options);
  const MemoryStats reserved = context->backend().memory_stats();
  EXPECT_EQ(reserved.peak_bytes, run.plan().memory.total);
  run.run({}, nullptr, 100);
  EXPECT_GE(run.state().position.epoch, 2);  // of batches of many sizes
  const MemoryStats before = context->backend().memory_stats();
  const int64_t heap_before = heap_calls();
  run.run({}, nullptr, 100);
  const MemoryStats after = context->backend().memory_stats();
  EXPECT_EQ(after.system_calls, before.system_calls);
  EXPECT_EQ(after.allocated_bytes, run.plan().memory.total);
  EXPECT_EQ(after.peak_bytes, run.plan().memory.total) << "the plan is what training takes";
  const double an_update = static_cast<double>(heap_calls() - heap_before) / 100;
  RecordProperty("heap_calls_an_update", std::to_string(an_update));
  // Handles of tensors and nodes of the tape, of two micro-batches; it grows with the model's
  // layers, not with the batch.
  EXPECT_LT(an_update, 2500);
}

TEST_P(HostStepTest, GivesItsMemoryBack) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(GetParam()), 5);
  const auto data = copy_batches(GetParam(), 6);
  Trainer stays(*context, *model, quick_options());
  {
    const auto other = make_model(*context, tiny_config(GetParam()), 6);
    Trainer goes(*context, *other, quick_options());
    for (const PackedBatchHost& batch : data) {
      goes.step({&batch, 1});
      stays.step({&batch, 1});
    }
    EXPECT_GT(context->backend().arena_bytes(), 0u);
  }
  EXPECT_EQ(context->backend().arena_bytes(), 0u);
  for (const PackedBatchHost& batch : data) stays.step({&batch, 1});
  EXPECT_EQ(stays.state().update, 12);
}

TEST_P(HostStepTest, AFailedStepLeavesTheArenaFree) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(GetParam()), 5);
  Trainer trainer(*context, *model, quick_options());
  const auto data = copy_batches(GetParam(), 2);
  PackedBatchHost broken = data[0];
  broken.target_out.back() = kVocabulary;  // found by the loss, in the middle of the step
  trainer.step({&data[0], 1});
  EXPECT_THROW(trainer.step({&broken, 1}), Error);
  trainer.step({&data[1], 1});
  const auto again = make_model(*context, tiny_config(GetParam()), 5);
  Trainer reference(*context, *again, quick_options());
  reference.step({&data[0], 1});
  reference.step({&data[1], 1});
  EXPECT_EQ(weight_bytes(*context, *model), weight_bytes(*context, *again));
  EXPECT_EQ(trainer.unplanned_allocations(), 0);
}

// ---- a context that multiplies in bfloat16 ----

using namespace testing;

struct PrecisionProcess {
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  PrecisionProcess(DType precision, int threads, const TrainOptions& options,
                   const std::optional<std::filesystem::path>& directory = std::nullopt)
      : context(make_context({DeviceKind::cpu, 0}, threads)) {
    set_matmul_precision(context->backend(), precision, "test");
    model = make_model(*context, tiny_config(), 5);
    run = std::make_unique<TrainingRun>(*context, *model, copy_data(), options, directory);
  }
  std::vector<std::byte> weights() const { return weight_bytes(*context, *model); }
};

class MatmulPrecisionRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_gemm()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  }
  static TrainOptions options(int64_t updates) {
    TrainOptions options = quick_options();
    options.batch_tokens = 150;
    options.after_updates = updates;
    return options;
  }
};

std::vector<std::byte> trained(PrecisionProcess process) {
  EXPECT_EQ(process.run->run().reason, StopReason::limit);
  return process.weights();
}

TEST_F(MatmulPrecisionRun, ThreadsAndRecomputationDoNotChangeABit) {
  const auto one = trained({DType::bf16, 1, options(12)});
  for (const int threads : {2, 3, 4})
    EXPECT_EQ(trained({DType::bf16, threads, options(12)}), one) << threads << " threads";
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    TrainOptions recomputing = options(12);
    recomputing.recompute = recompute;
    EXPECT_EQ(trained({DType::bf16, 2, recomputing}), one);
  }
  EXPECT_NE(trained({DType::f32, 1, options(12)}), one);
}

TEST_F(MatmulPrecisionRun, AResumedRunGoesOnWithTheSameBits) {
  const TemporaryDirectory directory;
  trained({DType::bf16, 1, options(7), directory.path()});
  EXPECT_EQ(trained({DType::bf16, 2, options(14), directory.path()}),
            trained({DType::bf16, 1, options(14)}));
}

TEST_F(MatmulPrecisionRun, LearnsAsFloat32Does) {
  const auto loss_of = [](DType precision) {
    PrecisionProcess process(precision, 2, options(60));
    EXPECT_EQ(process.run->run().reason, StopReason::limit);
    return mean_cross_entropy(*process.context, *process.model, *copy_data().valid, kTokens,
                              nullptr, 0);
  };
  const double single = loss_of(DType::f32), half = loss_of(DType::bf16);
  EXPECT_NEAR(half, single, 0.02 * single);
}

}  // namespace
}  // namespace trafo
