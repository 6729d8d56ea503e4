// Model files: what does not fit is refused by name, and nothing is loaded by half.
#include "engine/models/model_io.h"
#include "engine/memory/host_buffer.h"
#include "tests/support/errors.h"

#include <functional>

#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class ModelFileTest : public ::testing::Test {
 protected:
  // The tensors of the model's file after `change`, in a file with `metadata`.
  std::vector<std::byte> file(const std::function<void(std::vector<TensorEntry>&)>& change,
                              const SafetensorsMetadata& metadata) {
    auto entries = workspace_entries(*context_, model_->parameters(), model_->parameters().flat(),
                                     "", storage_);
    change(entries);
    return safetensors_to_memory(entries, metadata);
  }
  SafetensorsMetadata metadata(const ModelConfig& config) const {
    return {{kModelConfigKey, to_json(config)}};
  }
  void refused(const std::vector<std::byte>& bytes, ErrorCode code, const char* text) {
    const auto reader = SafetensorsReader::from_memory(bytes, "m.safetensors");
    const Error error = error_of([&] { load_model(*context_, reader); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_TRUE(mentions(error, "m.safetensors")) << error.what();
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model_ = make_model(*context_, tiny_config(), 5);
  HostBuffer storage_;
};

TEST_F(ModelFileTest, WhatDoesNotFitIsNamed) {
  const auto nothing = [](std::vector<TensorEntry>&) {};
  const auto config = metadata(tiny_config());
  refused(file(nothing, {}), ErrorCode::corrupt_file, "has no 'model_config'");
  refused(file(nothing, {{kModelConfigKey, "{}"}}), ErrorCode::corrupt_file, "model configuration");
  refused(file([](auto& entries) { entries.pop_back(); }, config), ErrorCode::corrupt_file,
          "lacks the tensor");
  refused(file([](auto& entries) { entries.clear(); }, config), ErrorCode::corrupt_file,
          "holds no tensors");
  refused(file([](auto& entries) { entries.back().name = "surplus"; }, config),
          ErrorCode::corrupt_file, "lacks the tensor");
  refused(file(
              [](auto& entries) {
                entries.push_back(entries.back());
                entries.back().name = "surplus";
              },
              config),
          ErrorCode::corrupt_file, "has the tensor surplus");
  refused(file(
              [](auto& entries) {
                auto& shape = entries.front().shape;
                ASSERT_EQ(shape.size(), 2u);
                std::swap(shape[0], shape[1]);
              },
              config),
          ErrorCode::corrupt_file, "has the shape");
  ModelConfig wider = tiny_config();
  wider.ffn_width = 31;
  refused(file(nothing, metadata(wider)), ErrorCode::corrupt_file, "has the shape");
  ModelConfig deeper = tiny_config();
  deeper.decoder_layers = 2;
  refused(file(nothing, metadata(deeper)), ErrorCode::corrupt_file, "lacks the tensor decoder.1.");
  deeper.decoder_layers = 1000;
  refused(file(nothing, metadata(deeper)), ErrorCode::corrupt_file,
          " tensors, its configuration has 1001 layers");
  auto adapted = config;
  adapted[kAdapterKey] = to_json(AdapterConfig{2, 4, {"query"}});
  refused(file(nothing, adapted), ErrorCode::corrupt_file,
          "lacks the tensor encoder.0.attention.qkv.lora_A");
  adapted[kAdapterKey] = to_json(AdapterConfig{2, 4, {"gate"}});
  refused(file(nothing, adapted), ErrorCode::corrupt_file, "targets has 'gate'");
}

TEST_F(ModelFileTest, AFeedForwardClaimsTwoMatricesAndAGatedOneThree) {
  model_ = make_model(*context_, tiny_config(Architecture::decoder_lm), 5);
  ModelConfig wide = model_->config();
  wide.ffn_width += 16;
  refused(file([](auto&) {}, metadata(wide)), ErrorCode::corrupt_file,
          "decoder.0.ffn.up.weight has the shape [32, 16], the model needs [48, 16]");
  ModelConfig gated = model_->config();
  gated.ffn = FeedForward::swiglu;
  gated.activation = Activation::silu;
  refused(file([](auto&) {}, metadata(gated)), ErrorCode::corrupt_file,
          "lacks the tensor decoder.0.ffn.gate_up.weight");
}

TEST_F(ModelFileTest, AClaimBeyondTheFileAllocatesNothing) {
  ModelConfig huge = tiny_config();
  huge.width = 1 << 10;
  huge.vocabulary = 1 << 16;
  huge.max_positions = 2;
  context_->backend().reset_peak_memory();
  const auto before = context_->backend().memory_stats().peak_bytes;
  refused(file([](auto&) {}, metadata(huge)), ErrorCode::corrupt_file,
          "the model needs [65536, 1024]");
  huge.width = 1 << 22;
  huge.ffn_width = 1 << 24;
  huge.decoder_layers = huge.encoder_layers = 12;
  refused(file([](auto&) {}, metadata(huge)), ErrorCode::corrupt_file, "addresses");
  ModelConfig long_one = tiny_config();
  long_one.max_positions = 1 << 24;
  refused(file([](auto&) {}, metadata(long_one)), ErrorCode::corrupt_file, "max_positions");
  EXPECT_LT(context_->backend().memory_stats().peak_bytes - before, 1 << 20);
}

TEST_F(ModelFileTest, LoadingIntoAModelIsAllOrNothing) {
  const TemporaryDirectory directory;
  save_model(directory / "m", *context_, *model_);
  const auto other = make_model(*context_, tiny_config(), 6);
  const auto before = weight_bytes(*context_, *other);
  EXPECT_NE(before, weight_bytes(*context_, *model_));

  std::string damaged = slurp(directory / "m");
  damaged.back() = static_cast<char>(damaged.back() ^ 4);
  spill(directory / "damaged", damaged);
  const Error error = error_of(
      [&] { load_weights(*context_, SafetensorsReader::open(directory / "damaged"), *other); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
  EXPECT_EQ(weight_bytes(*context_, *other), before);
  const Error other_error = error_of(
      [&] { load_pretrained(*context_, SafetensorsReader::open(directory / "damaged"), *other); });
  EXPECT_EQ(other_error.code(), ErrorCode::corrupt_file);
  EXPECT_EQ(weight_bytes(*context_, *other), before);

  ModelConfig config = tiny_config();
  config.heads = 4;
  config.tied_embeddings = false;
  const auto foreign = make_model(*context_, config, 6);
  const Error difference = error_of(
      [&] { load_weights(*context_, SafetensorsReader::open(directory / "m"), *foreign); });
  EXPECT_EQ(difference.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(difference, "heads is 2 in the checkpoint, 4 here")) << difference.what();
  EXPECT_TRUE(mentions(difference, "tied_embeddings")) << difference.what();

  load_weights(*context_, SafetensorsReader::open(directory / "m"), *other);
  EXPECT_EQ(weight_bytes(*context_, *other), weight_bytes(*context_, *model_));
}

TEST_F(ModelFileTest, DoublePrecisionModelsAndUnwritablePlaces) {
  const TemporaryDirectory directory;
  const auto precise = make_model(*context_, tiny_config(Architecture::decoder_lm), 5, DType::f64);
  save_model(directory / "d", *context_, *precise);
  const auto loaded = load_model(*context_, directory / "d");
  EXPECT_EQ(loaded->parameters().dtype(), DType::f64);
  EXPECT_EQ(weight_bytes(*context_, *loaded), weight_bytes(*context_, *precise));
  EXPECT_EQ(error_of([&] { save_model(directory / "no/such/m", *context_, *model_); }).code(),
            ErrorCode::io);
  EXPECT_EQ(error_of([&] { load_model(*context_, directory / "absent"); }).code(),
            ErrorCode::not_found);
}

}  // namespace
}  // namespace trafo
