// Training with moments in 8 bits: as good as with float32, kept in checkpoints, never mixed up.
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/quant/state_code.h"
#include "engine/train/checkpoint/optimizer_io.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class OptimizerStatesTest : public ::testing::TestWithParam<Architecture> {
 protected:
  static TrainOptions options(OptimizerStates states) {
    TrainOptions options = quick_options();
    options.optimizer_states = states;
    return options;
  }
  std::vector<std::byte> saved(const Trainer& trainer) const {
    MemorySink sink;
    trainer.optimizer_file().write(sink);
    return sink.take();
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
};

INSTANTIATE_TEST_SUITE_P(Architectures, OptimizerStatesTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

// Single runs that differ in the last bit of anything part by tenths of a percent, in either
// direction: what is compared is the mean of many.
// A statistic over 20,000 updates, the same with a sanitizer as without.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(OptimizerStatesTest, TheFinalLossIsThatOfFloat32) {
  const auto data = copy_batches(GetParam(), 8);
  constexpr int64_t kUpdates = 250;
  const auto final_loss = [&](OptimizerStates states) {
    double first = 0, last = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const auto model = make_model(*context_, tiny_config(GetParam(), 0), seed);
      TrainOptions o = options(states);
      o.learning_rate = 1e-3;
      o.warmup = 50;
      o.schedule = ScheduleKind::linear;
      o.schedule_updates = kUpdates;
      Trainer trainer(*context_, *model, o);
      for (int64_t u = 0; u < kUpdates; ++u) {
        const auto i = static_cast<size_t>(u) % data.size();
        const StepResult result = trainer.step(std::span(data).subspan(i, 1));
        if (u < static_cast<int64_t>(data.size())) first += result.loss;
        if (u >= kUpdates - static_cast<int64_t>(data.size())) last += result.loss;
      }
    }
    EXPECT_LT(last, 0.85 * first);
    return last;
  };
  const double wide = final_loss(OptimizerStates::float32);
  EXPECT_NEAR(final_loss(OptimizerStates::eight_bit), wide, 1e-3 * wide);
}
#endif

TEST_P(OptimizerStatesTest, CheckpointsHoldCodesAndScales) {
  const auto data = copy_batches(GetParam(), 6);
  const auto uncut = make_model(*context_, tiny_config(GetParam()), 5);
  const auto other = make_model(*context_, tiny_config(GetParam()), 5);
  Trainer a(*context_, *uncut, options(OptimizerStates::eight_bit));
  for (int i = 0; i < 3; ++i) a.step(std::span(data).subspan(static_cast<size_t>(i), 1));
  const std::vector<std::byte> file = saved(a);
  const auto reader = SafetensorsReader::from_memory(file, "optimizer.safetensors");
  const int64_t blocks = state_code::blocks(uncut->parameters().flat().numel());
  ASSERT_EQ(reader.tensors().size(), 4u);
  for (const char* name : {"exp_avg", "exp_avg_sq"}) {
    EXPECT_EQ(reader.at(name).dtype, DType::i32);
    EXPECT_EQ(reader.at(name).shape, (std::vector<int64_t>{blocks, 64}));
    const std::string scale = std::string(name) + "_scale";
    EXPECT_EQ(reader.at(scale).dtype, DType::f32);
    EXPECT_EQ(reader.at(scale).shape, (std::vector<int64_t>{blocks}));
  }

  Trainer b(*context_, *other, options(OptimizerStates::eight_bit));
  b.restore(reader, a.state());
  EXPECT_EQ(saved(b), file);
  context_->backend().copy_from_host(other->parameters().flat().raw(),
                                     weight_bytes(*context_, *uncut).data(),
                                     uncut->parameters().flat().bytes());
  for (size_t i = 3; i < data.size(); ++i)
    EXPECT_EQ(a.step(std::span(data).subspan(i, 1)).loss,
              b.step(std::span(data).subspan(i, 1)).loss);
  EXPECT_EQ(weight_bytes(*context_, *uncut), weight_bytes(*context_, *other));
  EXPECT_EQ(saved(a), saved(b));
}

TEST_P(OptimizerStatesTest, TheOtherKindIsRefusedAndNothingChanges) {
  const auto data = copy_batches(GetParam(), 2);
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    const bool narrow = states == OptimizerStates::eight_bit;
    Trainer trainer(*context_, *model, options(states));
    Trainer other(*context_, *model,
                  options(narrow ? OptimizerStates::float32 : OptimizerStates::eight_bit));
    trainer.step(data);
    const std::vector<std::byte> file = saved(other), before = saved(trainer);
    const auto reader = SafetensorsReader::from_memory(file, "a file");
    const Error error = error_of([&] { trainer.restore(reader, other.state()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, narrow ? "holds fp32 optimizer states" : "holds 8bit optimizer"))
        << error.what();
    EXPECT_EQ(saved(trainer), before);
    EXPECT_EQ(trainer.state().update, 1);
  }
}

// A moment that is not finite would spoil weights that neither loss nor gradient shows.
TEST_P(OptimizerStatesTest, MomentsThatAreNotFiniteAreRefusedAndNothingChanges) {
  const auto data = copy_batches(GetParam(), 1);
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  Trainer trainer(*context_, *model, options(OptimizerStates::float32));
  trainer.step(data);
  const std::vector<std::byte> good = saved(trainer);
  const auto reader = SafetensorsReader::from_memory(good, "a file");
  for (const TensorInfo& spoilt : {reader.tensors().front(), reader.tensors().back()})
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<std::vector<std::byte>> values;
      std::vector<TensorEntry> entries;
      for (const TensorInfo& info : reader.tensors()) {
        reader.read(info, values.emplace_back(info.bytes));
        if (info.name == spoilt.name)
          std::memcpy(values.back().data() + info.bytes - sizeof value, &value, sizeof value);
        entries.push_back({info.name, info.dtype, info.shape, {}});
      }
      for (size_t i = 0; i < entries.size(); ++i) entries[i].data = values[i];
      const auto file = safetensors_to_memory(entries);
      const Error error = error_of([&] {
        trainer.restore(SafetensorsReader::from_memory(file, "a file"), trainer.state());
      });
      EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
      EXPECT_TRUE(mentions(error, spoilt.name.c_str())) << error.what();
      EXPECT_EQ(saved(trainer), good);
    }
}

TEST_P(OptimizerStatesTest, DamagedFilesAreRefused) {
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  Trainer trainer(*context_, *model, options(OptimizerStates::eight_bit));
  const std::vector<std::byte> before = saved(trainer);
  const int64_t blocks = state_code::blocks(model->parameters().flat().numel());
  const std::vector<std::byte> codes(static_cast<size_t>(256 * blocks));
  std::vector<float> scales(static_cast<size_t>(blocks), 1.0f);
  const auto refused = [&](auto change, const char* text) {
    std::vector<TensorEntry> entries = {
        {"exp_avg", DType::i32, {blocks, 64}, codes},
        {"exp_avg_scale", DType::f32, {blocks}, std::as_bytes(std::span(scales))},
        {"exp_avg_sq", DType::i32, {blocks, 64}, codes},
        {"exp_avg_sq_scale", DType::f32, {blocks}, std::as_bytes(std::span(scales))}};
    change(entries);
    const auto file = safetensors_to_memory(entries);
    const auto reader = SafetensorsReader::from_memory(file, "a file");
    const Error error = error_of([&] { trainer.restore(reader, {}); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_EQ(saved(trainer), before);
  };
  using Entries = std::vector<TensorEntry>;
  refused([](Entries& e) { e.pop_back(); }, "lacks the tensor exp_avg_sq_scale");
  refused(
      [&](Entries& e) {
        e.push_back({"more", DType::f32, {}, std::span(codes).first(4)});
      },
      "the tensor more");
  refused([&](Entries& e) { e[0].shape = {blocks * 64}; }, "exp_avg is int32");
  refused([&](Entries& e) { e[0].dtype = DType::f32; }, "exp_avg is float32");
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    scales.back() = bad;
    refused([](Entries&) {}, "a scale is finite and not negative");
    scales.back() = 1;
  }
  const auto wide = make_model(*context_, tiny_config(GetParam()), 5, DType::f64);
  EXPECT_EQ(
      error_of([&] { Trainer(*context_, *wide, options(OptimizerStates::eight_bit)); }).code(),
      ErrorCode::unsupported);
}

TEST(OptimizerStatesRun, ARunContinuesWithTheStatesItHasBegunWith) {
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.after_updates = 6;
  for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    const TemporaryDirectory directory;
    options.optimizer_states = states;
    Process(data, options, directory.path()).run->run();
    options.optimizer_states =
        states == OptimizerStates::float32 ? OptimizerStates::eight_bit : OptimizerStates::float32;
    const Error error = error_of([&] { Process(data, options, directory.path()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, "optimizer_states was")) << error.what();
  }
}

}  // namespace
}  // namespace trafo
