// Whether a run fits the memory: what is refused, what is proposed instead, and what is chosen.
#include <sstream>

#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// The word of `text` that follows `before`; empty if that is not there.
std::string word_after(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  std::string word;
  if (at != std::string::npos) std::istringstream(text.substr(at + before.size())) >> word;
  return word;
}

class RunPlanTest : public ::testing::Test {
 protected:
  RunPlanTest() : context_(make_context({DeviceKind::cpu, 0}, 1)) {
    config_.encoder_layers = config_.decoder_layers = 4;
    config_.ffn_width = 64;
    data_.train = copy_corpus(Architecture::encoder_decoder, 400, 1, 600);
    data_.tokens = kTokens;
    options_.batch_tokens = 600;
    model_ = make_model(*context_, config_, 5);
  }
  RunPlan plan(const TrainOptions& options) const {
    BatcherOptions order;
    order.seed = options.seed;
    order.batch_tokens = options.batch_tokens;
    const Batcher batcher(*data_.train, order);
    return plan_run(*context_, *model_, batcher, data_, options, false);
  }
  int64_t total(const TrainOptions& options) const { return plan(options).memory.total; }

  std::unique_ptr<Context> context_;
  ModelConfig config_ = tiny_config();
  TrainingData data_;
  TrainOptions options_ = quick_options();
  std::unique_ptr<Model> model_;
};

TEST_F(RunPlanTest, WhatDoesNotFitIsRefusedWithWhatDoes) {
  const int64_t needed = total(options_);
  TrainOptions full = options_;
  full.recompute = Recompute::full;
  ASSERT_LT(total(full), needed);
  options_.memory_limit = needed;
  { TrainingRun run(*context_, *model_, data_, options_); }
  options_.memory_limit = needed - 1;
  const MemoryStats before = context_->backend().memory_stats();
  std::string message;
  try {
    TrainingRun run(*context_, *model_, data_, options_);
    ADD_FAILURE() << "a byte too few must be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    message = error.message();
  }
  EXPECT_EQ(context_->backend().memory_stats().allocated_bytes, before.allocated_bytes);
  // Its proposal fits.
  const std::string policy = word_after(message, "fit with recompute ");
  ASSERT_TRUE(policy.starts_with("full") || policy.starts_with("selective")) << message;
  TrainOptions recomputing = options_;
  recomputing.recompute = policy.starts_with("full") ? Recompute::full : Recompute::selective;
  EXPECT_LE(plan(recomputing).memory.total, options_.memory_limit);
  TrainOptions smaller = options_;
  smaller.batch_tokens = std::atoll(word_after(message, "or with batch_tokens ").c_str());
  smaller.gradient_accumulation = std::atoll(word_after(message, "gradient_accumulation ").c_str());
  ASSERT_GT(smaller.batch_tokens, 0) << message;
  ASSERT_GT(smaller.gradient_accumulation, 0) << message;
  EXPECT_LT(smaller.batch_tokens, 600);
  EXPECT_GE(smaller.batch_tokens * smaller.gradient_accumulation, 600);
  EXPECT_LE(plan(smaller).memory.total, options_.memory_limit);

  options_.memory_limit = 1000;
  try {
    TrainingRun run(*context_, *model_, data_, options_);
    ADD_FAILURE() << "nothing fits a thousand bytes";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("smaller model"), std::string::npos) << error.message();
  }
}

TEST_F(RunPlanTest, OnAnAcceleratorTheCodeIsItsOwn) {
  Context context(std::make_shared<StreamAccelerator>());
  context.set_graphs(false);
  const auto model = make_model(context, tiny_config(Architecture::encoder_decoder, 0), 5);
  options_.memory_limit = 1000;
  try {
    TrainingRun run(context, *model, data_, options_);
    ADD_FAILURE() << "nothing fits a thousand bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_device_memory);
  }
  options_.memory_limit = int64_t{1} << 30;
  options_.valid_freq = options_.save_freq = {0, PeriodUnit::updates};
  TrainingRun run(context, *model, data_, options_);
  run.run({}, nullptr, 20);
  const auto arena = static_cast<int64_t>(context.backend().arena_bytes());
  EXPECT_EQ(run.plan().memory.activations, arena) << "a batch needed more than was planned";
}

TEST_F(RunPlanTest, TheLargestBatchThatFits) {
  TrainOptions fitting = options_;
  fitting.batch_fit = true;
  fitting.memory_limit = total(options_);
  data_.train = copy_corpus(Architecture::encoder_decoder, 400, 1, 1 << 20);
  const RunPlan chosen = plan(fitting);
  EXPECT_GE(chosen.batch_tokens, 580);
  EXPECT_LE(chosen.memory.total, fitting.memory_limit);
  TrainOptions more = options_;
  more.batch_tokens = chosen.batch_tokens + chosen.batch_tokens / 8;
  EXPECT_GT(total(more), fitting.memory_limit);
  fitting.recompute = Recompute::full;
  EXPECT_GT(plan(fitting).batch_tokens, chosen.batch_tokens);
}

// A corpus that is smaller than the longest validation pair.
TEST_F(RunPlanTest, ALongValidationPairIsNoReasonToRefuse) {
  data_.train = copy_corpus(Architecture::encoder_decoder, 1, 1, 600);
  const std::vector<int32_t> ids(30, 4);
  const std::vector<int64_t> offsets{0, 30};
  data_.valid = std::make_shared<TokenizedCorpus>(
      ids, offsets, ids, offsets, kVocabulary, kTokens.eos,
      TokenizedCorpusOptions{.max_length = 32, .batch_tokens = 600});
  ASSERT_LT(target_tokens(data_), 31);
  options_.batch_fit = true;
  options_.memory_limit = int64_t{1} << 30;
  EXPECT_GE(plan(options_).batch_tokens, 31);
}

TEST_F(RunPlanTest, AContinuedRunKeepsTheBatchItChose) {
  TrainOptions fitting = options_;
  fitting.batch_fit = true;
  fitting.memory_limit = total(options_);
  fitting.save_freq = {0, PeriodUnit::updates};
  data_.train = copy_corpus(Architecture::encoder_decoder, 400, 1, 1 << 20);
  TemporaryDirectory directory;
  int64_t chosen = 0;
  std::vector<std::byte> weights;
  {
    TrainingRun run(*context_, *model_, data_, fitting, directory.path());
    chosen = run.options().batch_tokens;
    EXPECT_EQ(chosen, run.plan().batch_tokens);
    run.run({}, nullptr, 4);
    run.save();
    run.run({}, nullptr, 4);
    weights = weight_bytes(*context_, *model_);
  }
  fitting.memory_limit *= 2;  // room for more does not change it
  const auto again = make_model(*context_, config_, 6);
  TrainingRun run(*context_, *again, data_, fitting, directory.path());
  EXPECT_TRUE(run.resumed());
  EXPECT_EQ(run.options().batch_tokens, chosen);
  run.run({}, nullptr, 4);
  EXPECT_EQ(weight_bytes(*context_, *again), weights);
}

}  // namespace
}  // namespace trafo
