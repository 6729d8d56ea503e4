// Training with each optimizer: it learns, its states are files of a checkpoint, and a run keeps
// the optimizer that it has begun with.
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

TrainOptions options_of(OptimizerKind kind) {
  TrainOptions options = quick_options();
  options.optimizer = kind;
  return options;
}

std::vector<std::byte> optimizer_file(const Trainer& trainer) {
  MemorySink sink;
  trainer.optimizer_file().write(sink);
  return sink.take();
}

// The mean losses of the first and of the last of eight epochs. Muon's matrices move as far as
// AdamW's with the same rate, SGD's need a larger one.
std::pair<double, double> losses_of(Context& context, OptimizerKind kind) {
  const auto data = copy_batches(Architecture::encoder_decoder, 20);
  TrainOptions options = options_of(kind);
  options.schedule = ScheduleKind::constant;
  options.warmup = 0;
  options.learning_rate = kind == OptimizerKind::sgd ? 0.05 : 0.005;
  const auto model = make_model(context, tiny_config(Architecture::encoder_decoder, 0), 5);
  Trainer trainer(context, *model, options);
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    last = 0;
    for (size_t i = 0; i < data.size(); ++i)
      last += trainer.step(std::span(data).subspan(i, 1)).nll / static_cast<double>(data.size());
    if (epoch == 0) first = last;
  }
  return {first, last};
}

TEST(Optimizers, EachLearns) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  for (const OptimizerKind kind : kOptimizerKinds) {
    const auto [first, last] = losses_of(*context, kind);
    EXPECT_LT(last, 0.9 * first) << enum_name(kind);
  }
}

// With recorded graphs. Muon multiplies bfloat16 matrices there.
TEST(Optimizers, EachLearnsOnCudaAsOnTheCpu) {
  const auto gpu = cuda_context();
  if (!gpu) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  for (const OptimizerKind kind : kOptimizerKinds) {
    const auto there = losses_of(*gpu, kind), here = losses_of(*cpu, kind);
    EXPECT_EQ(losses_of(*gpu, kind), there) << enum_name(kind);
    EXPECT_NEAR(there.first, here.first, 0.02 * here.first) << enum_name(kind);
    EXPECT_NEAR(there.second, here.second, 0.1 * here.second) << enum_name(kind);
  }
}

TEST(Optimizers, FilesHoldTheStatesByName) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto data = copy_batches(Architecture::encoder_decoder, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  const std::string name = model->parameters().name(0);
  TrainOptions options = options_of(OptimizerKind::sgd);
  {
    Trainer trainer(*context, *model, options);
    trainer.step(data);
    const std::vector<std::byte> file = optimizer_file(trainer);
    const auto reader = SafetensorsReader::from_memory(file, "a file");
    EXPECT_EQ(reader.tensors().size(), model->parameters().count());
    EXPECT_NE(reader.find("momentum_buffer." + name), nullptr);
  }
  {
    options.momentum = 0;
    Trainer trainer(*context, *model, options);
    const std::vector<std::byte> file = optimizer_file(trainer);
    const auto reader = SafetensorsReader::from_memory(file, "a file");
    EXPECT_EQ(reader.tensors().size(), 0u);
    EXPECT_EQ(trainer.optimizer_bytes(), 0);
  }
  Trainer trainer(*context, *model, options_of(OptimizerKind::muon));
  const std::vector<std::byte> file = optimizer_file(trainer);
  const auto reader = SafetensorsReader::from_memory(file, "a file");
  EXPECT_NE(reader.find("muon_momentum." + name), nullptr);
  EXPECT_NE(reader.find("muon_exp_avg_sq." + name), nullptr);
}

TEST(Optimizers, AFileOfAnotherIsRefusedByNameAndNothingChanges) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto data = copy_batches(Architecture::encoder_decoder, 1);
  for (const OptimizerKind mine : kOptimizerKinds)
    for (const OptimizerKind others : kOptimizerKinds) {
      if (mine == others) continue;
      const auto model = make_model(*context, tiny_config(), 5);
      Trainer trainer(*context, *model, options_of(mine));
      trainer.step(data);
      Trainer other(*context, *model, options_of(others));
      const std::vector<std::byte> file = optimizer_file(other), before = optimizer_file(trainer);
      const auto reader = SafetensorsReader::from_memory(file, "a file");
      expect_error(ErrorCode::invalid_argument, concat(", ", enum_name(mine), " keeps "),
                   [&] { trainer.restore(reader, other.state()); });
      EXPECT_EQ(optimizer_file(trainer), before);
      EXPECT_EQ(trainer.state().update, 1);
    }
}

TEST(Optimizers, AFileWithStatesIsRefusedByAnOptimizerWithoutAny) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, tiny_config(), 5);
  TrainOptions without = options_of(OptimizerKind::sgd);
  without.momentum = 0;
  Trainer trainer(*context, *model, without);
  for (const OptimizerKind others : kOptimizerKinds) {
    Trainer other(*context, *model, options_of(others));
    const std::vector<std::byte> file = optimizer_file(other);
    const auto reader = SafetensorsReader::from_memory(file, "a file");
    expect_error(ErrorCode::invalid_argument, ", sgd keeps no tensors",
                 [&] { trainer.restore(reader, other.state()); });
  }
}

TEST(Optimizers, ARunKeepsItsOptimizer) {
  const TrainingData data = copy_data();
  const TemporaryDirectory directory;
  TrainOptions options = options_of(OptimizerKind::muon);
  options.after_updates = 3;
  Process(data, options, directory.path()).run->run();
  options.optimizer = OptimizerKind::sgd;
  expect_error(ErrorCode::invalid_argument, R"(optimizer was "muon" and is "sgd" now)",
               [&] { Process(data, options, directory.path()); });
  options = options_of(OptimizerKind::muon);
  options.momentum = 0.5;
  expect_error(ErrorCode::invalid_argument, "momentum was 0.95 and is 0.5 now",
               [&] { Process(data, options, directory.path()); });
}

TEST(Optimizers, WhatDoesNotFitTogetherIsRefused) {
  TrainOptions options = options_of(OptimizerKind::muon);
  options.prune_sparsity = 0.5;
  expect_error(ErrorCode::invalid_argument, "prune_sparsity: muon", [&] { validate(options); });
  options.prune_sparsity = 0;
  options.keep_zeros = true;
  expect_error(ErrorCode::invalid_argument, "keep_zeros: muon", [&] { validate(options); });
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::muon}) {
    options = options_of(kind);
    options.optimizer_states = OptimizerStates::eight_bit;
    expect_error(ErrorCode::invalid_argument, "optimizer_states is for the optimizer adamw",
                 [&] { validate(options); });
  }
}

// Embeddings, norms, biases and the output matrix follow AdamW: one step along the same gradient
// gives them the same bits.
TEST(Optimizers, MuonLeavesAllButLinearLayersToAdamW) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto data = copy_batches(Architecture::encoder_decoder, 1);
  const auto trained = [&](OptimizerKind kind) {
    auto model = make_model(*context, tiny_config(Architecture::encoder_decoder, 0), 5);
    Trainer trainer(*context, *model, options_of(kind));
    trainer.step(data);
    return model;
  };
  const auto adamw = trained(OptimizerKind::adamw), muon = trained(OptimizerKind::muon);
  int64_t matrices = 0;
  for (size_t i = 0; i < adamw->parameters().count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const auto a = context->values<float>(adamw->parameters().value(id));
    const auto b = context->values<float>(muon->parameters().value(id));
    const bool linear = adamw->parameters().prunable(id);
    matrices += linear;
    EXPECT_EQ(a == b, !linear) << adamw->parameters().name(id);
  }
  EXPECT_GT(matrices, 0);
}

}  // namespace
}  // namespace trafo
