// Models made by quantize_model: what is rounded, kept and stored, and what is refused.
#include "engine/compress/quantize.h"

#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/numeric/half.h"
#include "engine/memory/host_buffer.h"
#include "engine/models/int8_weights.h"
#include "engine/models/model_io.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo::testing {
namespace {

constexpr const char* kMatrix = "encoder.1.ffn.up.weight";

std::vector<std::byte> stored(Context& context, const Model& model) {
  MemorySink sink;
  write_model(sink, context, model);
  return sink.take();
}

std::unique_ptr<Model> loaded(Context& context, const std::vector<std::byte>& bytes) {
  return load_model(context, SafetensorsReader::from_memory(bytes, "m.safetensors",
                                                            ElementTypes::ours_and_codes));
}

std::vector<float> floats_of(Context& context, const Model& model, const std::string& name) {
  const ParameterStore& parameters = model.parameters();
  const ParamId id = parameters.find(name);
  std::vector<float> values(static_cast<size_t>(element_count(parameters.shape(id))));
  parameters.get_value(context, id, values.data(), values.size() * sizeof(float));
  return values;
}

class QuantizeModel : public ::testing::Test {
 protected:
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model_ = random_model(
      *context_, decode_config(Architecture::encoder_decoder, kVocabulary), 5, DType::f32);
  std::shared_ptr<const TokenizedCorpus> pairs_ = copy_corpus(Architecture::encoder_decoder, 40, 3);
  QuantizeOptions options_{.start_id = kTokens.bos};
};

TEST_F(QuantizeModel, Int8IsWhatLoadingWithInt8WeightsGives) {
  const auto bytes = stored(*context_, *model_);
  const auto at_load = load_model(
      *context_,
      SafetensorsReader::from_memory(bytes, "m.safetensors", ElementTypes::ours_and_codes), {},
      true);
  EXPECT_EQ(stored(*context_, *quantize_model(*context_, *model_, options_)),
            stored(*context_, *at_load));
  EXPECT_EQ(stored(*context_, *model_), bytes) << "the float model has changed";
}

TEST_F(QuantizeModel, MatricesThatAreKeptHaveTheirValues) {
  options_.keep_float = {"encoder.*", "embedding.weight"};
  for (const int64_t bits : {8, 4}) {
    options_.bits = bits;
    const auto model = quantize_model(*context_, *model_, options_);
    const ParameterStore& parameters = model->parameters();
    int coded = 0;
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const std::string& name = parameters.name(id);
      const bool kept = name.starts_with("encoder.") || name == "embedding.weight";
      if (parameters.is_int8(id)) {
        EXPECT_FALSE(kept) << name;
        EXPECT_EQ(parameters.int4(id) != nullptr, bits == 4) << name;
        EXPECT_GT(parameters.signal_to_noise(id), bits == 8 ? 35 : 12) << name;
        EXPECT_LT(parameters.signal_to_noise(id), bits == 8 ? 60 : 35) << name;
        ++coded;
      } else {
        EXPECT_EQ(floats_of(*context_, *model, name), floats_of(*context_, *model_, name));
        EXPECT_TRUE(std::isnan(parameters.signal_to_noise(id))) << name;
      }
    }
    EXPECT_GT(coded, 0);
    const auto bytes = stored(*context_, *model);
    const auto again = loaded(*context_, bytes);
    EXPECT_EQ(stored(*context_, *again), bytes);
    EXPECT_EQ(floats_of(*context_, *again, kMatrix), floats_of(*context_, *model_, kMatrix));
  }
}

TEST_F(QuantizeModel, AStoredModelTranslatesAsTheOneThatWasStored) {
  options_.bits = 4;
  options_.keep_float = {"decoder.0.*"};
  const auto model = quantize_model(*context_, *model_, options_);
  const auto again = loaded(*context_, stored(*context_, *model));
  const std::vector<std::vector<int32_t>> sources = {{5, 6, 7, kEos}, {9, 4, kEos}};
  DecodeOptions decode;
  decode.max_length_extra = 4;
  const auto expected = translate_tokens(*context_, *model, sources, decode);
  const auto actual = translate_tokens(*context_, *again, sources, decode);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(actual[i][0].tokens, expected[i][0].tokens);
    EXPECT_EQ(actual[i][0].log_probability, expected[i][0].log_probability);
  }
}

// With pairs the ratio is measured on the outputs, in which the int8 inputs have errors too.
TEST_F(QuantizeModel, CalibrationMeasuresTheOutputsOfLayers) {
  const auto without = quantize_model(*context_, *model_, options_);
  options_.calibration = pairs_.get();
  const auto with = quantize_model(*context_, *model_, options_);
  EXPECT_EQ(stored(*context_, *with), stored(*context_, *without));
  const ParamId id = with->parameters().find(kMatrix);
  EXPECT_NE(with->parameters().signal_to_noise(id), without->parameters().signal_to_noise(id));
  EXPECT_NEAR(with->parameters().signal_to_noise(id), without->parameters().signal_to_noise(id),
              10);
}

TEST_F(QuantizeModel, GptqLosesLessOfTheOutputsThanNearest) {
  options_.bits = 4;
  options_.calibration = pairs_.get();
  const auto nearest = quantize_model(*context_, *model_, options_);
  options_.method = QuantizeMethod::gptq;
  const auto gptq = quantize_model(*context_, *model_, options_);
  double gain = 0;
  int count = 0;
  for (size_t i = 0; i < gptq->parameters().count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!gptq->parameters().is_int8(id)) continue;
    gain += gptq->parameters().signal_to_noise(id) - nearest->parameters().signal_to_noise(id);
    ++count;
  }
  EXPECT_GT(gain / count, 0.5) << "dB";
}

TEST_F(QuantizeModel, WhatCannotBeIsNamed) {
  const auto refused = [&](ErrorCode code, const char* text, QuantizeOptions options) {
    expect_error(code, text, [&] { quantize_model(*context_, *model_, options); });
  };
  QuantizeOptions wrong = options_;
  wrong.bits = 5;
  refused(ErrorCode::invalid_argument, "bits must be 8 or 4, got 5", wrong);
  wrong = options_;
  wrong.method = QuantizeMethod::gptq;
  refused(ErrorCode::invalid_argument, "bits must be 4 with GPTQ", wrong);
  wrong.bits = 4;
  refused(ErrorCode::invalid_argument, "GPTQ needs calibration pairs", wrong);
  const auto others = copy_corpus(Architecture::decoder_lm, 5, 1);
  wrong.calibration = others.get();
  refused(ErrorCode::invalid_argument, "prepared for another architecture", wrong);
  wrong = options_;
  wrong.keep_float = {"encoder.*", "nothing.*"};
  refused(ErrorCode::not_found, "matches \"nothing.*\"", wrong);
  wrong.keep_float = {"encoder.norm.weight"};
  refused(ErrorCode::not_found, "matches \"encoder.norm.weight\"", wrong);
  const auto coded = quantize_model(*context_, *model_, options_);
  expect_error(ErrorCode::unsupported, "quantized weights already",
               [&] { quantize_model(*context_, *coded, options_); });
  const auto doubles = random_model(*context_, model_->config(), 5);
  expect_error(ErrorCode::unsupported, "float32 on the CPU",
               [&] { quantize_model(*context_, *doubles, options_); });
  const ParamId id = model_->parameters().find(kMatrix);
  std::vector<double> values(static_cast<size_t>(model_->parameters().value(id).numel()), 1.0);
  values[17] = std::numeric_limits<double>::quiet_NaN();
  set_values(*context_, *model_, id, values);
  refused(ErrorCode::invalid_argument,
          "encoder.1.ffn.up.weight: row 1 has a value that is not finite", options_);
}

class MixedFile : public QuantizeModel {
 protected:
  void SetUp() override {
    options_.bits = 4;
    options_.keep_float = {"decoder.*"};
    coded_ = quantize_model(*context_, *model_, options_);
    file_ = copy_model(*context_, *coded_, coded_->parameters().master(), {});
    entries_ = file_.entries;
  }
  TensorEntry& entry(const std::string& name) {
    return *std::find_if(entries_.begin(), entries_.end(),
                         [&](const TensorEntry& e) { return e.name == name; });
  }
  void refused(const char* text) {
    const auto bytes = safetensors_to_memory(
        entries_, {{kModelConfigKey, to_json(model_->config())}, {kQuantizationKey, "mixed"}});
    expect_error(ErrorCode::corrupt_file, text, [&] { loaded(*context_, bytes); });
  }

  std::unique_ptr<Model> coded_;
  TensorFile file_;
  std::vector<TensorEntry> entries_;
};

TEST_F(MixedFile, DamageIsNamed) {
  const auto whole = entries_;
  TensorEntry& codes = entry(kMatrix);
  std::vector<std::byte> changed(codes.data.begin(), codes.data.end());
  changed[9] = std::byte{0x08};
  codes.data = changed;
  refused("encoder.1.ffn.up.weight: row 1 has the code -8");
  entries_ = whole;
  entry(kMatrix).foreign = "I8";
  refused("encoder.1.ffn.up.weight has the shape");
  entries_ = whole;
  std::erase_if(entries_, [](const auto& e) { return e.name == concat(kMatrix, ".scale"); });
  refused("lacks the tensor encoder.1.ffn.up.weight.scale");
  entries_ = whole;
  entries_.push_back(entry(std::string(kMatrix) + ".scale"));
  entries_.back().name = "decoder.0.ffn.up.weight.scale";
  refused("has the tensor decoder.0.ffn.up.weight.scale");
  entries_ = whole;
  auto bytes = stored(*context_, *coded_);
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_NE(code_of([&] { loaded(*context_, bytes); }), ErrorCode::ok) << "byte " << at;
    bytes[at] ^= std::byte{0x10};
  }
}

}  // namespace
}  // namespace trafo::testing
