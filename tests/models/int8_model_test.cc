// Models with int8 weights: quantized at load, stored, and what is refused.
#include "engine/memory/host_buffer.h"
#include "engine/models/int8_weights.h"

#include <functional>

#include "engine/models/model_io.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/quant/int8_matrix.h"
#include "engine/train/checkpoint/average.h"
#include "tests/decode/decode_models.h"
#include "tests/models/llama_models.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_support.h"

namespace trafo::testing {
namespace {

std::vector<std::byte> file_of(Context& context, const Model& model) {
  MemorySink sink;
  write_model(sink, context, model);
  return sink.take();
}

std::unique_ptr<Model> load(Context& context, const std::vector<std::byte>& bytes,
                            bool int8_weights) {
  return load_model(
      context, SafetensorsReader::from_memory(bytes, "m.safetensors", ElementTypes::ours_and_codes),
      {}, int8_weights);
}

// random_model leaves norms and biases at ones and zeros.
std::unique_ptr<Model> trained_like(Context& context, const ModelConfig& config, uint64_t seed) {
  auto model = random_model(context, config, seed, DType::f32);
  const ParameterStore& parameters = model->parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (parameters.shape(id).rank() != 1) continue;
    PhiloxStream random(seed, static_cast<uint64_t>(id));
    std::vector<double> values(static_cast<size_t>(element_count(parameters.shape(id))));
    for (double& v : values)
      v = (parameters.name(id).ends_with("norm.weight") ? 1 : 0) + random.normal() * 0.1;
    set_values(context, *model, id, values);
  }
  return model;
}

std::vector<float> floats_of(Context& context, const Model& model, ParamId id) {
  return context.values<float>(model.parameters().value(id));
}

std::vector<float> as_bfloat16(std::vector<float> values) {
  for (float& value : values) value = BFloat16::from_float(value).to_float();
  return values;
}

struct Int8Form {
  const char* name;
  ModelConfig config;
};

std::vector<Int8Form> int8_forms() {
  std::vector<Int8Form> all;
  all.push_back({"tied encoder-decoder", decode_config(Architecture::encoder_decoder, 37)});
  all.push_back({"untied encoder-decoder", all.back().config});
  all.back().config.tied_embeddings = false;
  all.push_back({"gpt2", decode_config(Architecture::decoder_lm, 37)});
  all.back().config.activation = Activation::gelu;
  all.push_back({"llama", llama_of(decode_config(Architecture::decoder_lm, 37), 1, false)});
  all.push_back({"qwen3", qwen3_of(decode_config(Architecture::decoder_lm, 37), 1)});
  return all;
}

std::vector<SentencePair> pairs(uint64_t seed) {
  const auto sources = random_sentences(12, 9, 37, seed),
             targets = random_sentences(12, 9, 37, seed + 1);
  std::vector<SentencePair> result;
  for (size_t i = 0; i < sources.size(); ++i) result.push_back({sources[i], targets[i]});
  return result;
}

std::vector<double> log_probabilities(Context& context, const Model& model) {
  ScoreOptions options;
  options.tokens.eos = kEos;
  std::vector<double> values;
  for (const PairScore& score : score(context, model, pairs(3), options))
    values.push_back(score.log_probability / static_cast<double>(score.tokens));
  return values;
}

TEST(Int8Model, MatricesAreInt8AndTheRestIsRoundedToBfloat16) {
  const auto context = cpu_context();
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto floats = trained_like(*context, form.config, 5);
    const auto model = load(*context, file_of(*context, *floats), true);
    const ParameterStore& parameters = model->parameters();
    EXPECT_TRUE(parameters.has_int8());
    EXPECT_FALSE(parameters.any_trainable());
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
      const std::string& name = parameters.name(id);
      const bool matrix = parameters.shape(id).rank() == 2 && name != "positions.weight";
      EXPECT_EQ(parameters.is_int8(id), matrix) << name;
      if (!matrix) {
        const std::vector<float> exact = floats_of(*context, *floats, id);
        EXPECT_NE(floats_of(*context, *model, id), exact) << name;
        EXPECT_EQ(floats_of(*context, *model, id), as_bfloat16(exact)) << name;
        continue;
      }
      expect_error(ErrorCode::unsupported, name, [&] { parameters.value(id); });
      // No float copy is kept: an element takes a byte, apart from scales and padding to 16 rows.
      const Int8Matrix& codes = *parameters.weight(id).int8;
      EXPECT_LE(codes.bytes(), static_cast<size_t>((codes.rows() + 15) * (codes.columns() + 12)));
    }
    EXPECT_EQ(parameters.parameter_count(), floats->parameters().parameter_count());
  }
}

// Measured: the mean difference is 0.015 to 0.025 nats a token. The bound is four times that.
TEST(Int8Model, TakesNoFloatWeights) {
  const auto context = cpu_context();
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto file = file_of(*context, *trained_like(*context, form.config, 4));
    const auto other = file_of(*context, *trained_like(*context, form.config, 5));
    const auto model = load(*context, file, true);
    const auto before = file_of(*context, *model);
    EXPECT_THROW(
        load_pretrained(*context, SafetensorsReader::from_memory(other, "m.safetensors"), *model),
        Error);
    EXPECT_EQ(file_of(*context, *model), before);
  }
}

TEST(Int8Model, ScoresLikeTheFloatModel) {
  const auto context = cpu_context();
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto floats = random_model(*context, form.config, 5, DType::f32);
    const auto model = load(*context, file_of(*context, *floats), true);
    const auto exact = log_probabilities(*context, *floats);
    const auto rounded = log_probabilities(*context, *model);
    double difference = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      difference += std::abs(exact[i] - rounded[i]) / static_cast<double>(exact.size());
    EXPECT_LT(difference, 0.1);
    EXPECT_GT(difference, 0) << "int8 weights were not used";
  }
}

TEST(Int8Model, AStoredModelIsTheOneThatWasQuantizedAtLoad) {
  const auto context = cpu_context();
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto floats = trained_like(*context, form.config, 5);
    const auto bytes = file_of(*context, *floats);
    const auto quantized = load(*context, bytes, true);
    const auto stored = file_of(*context, *quantized);
    EXPECT_LT(stored.size(), bytes.size());
    const auto reader =
        SafetensorsReader::from_memory(stored, "m.safetensors", ElementTypes::ours_and_codes);
    for (const TensorInfo& info : reader.tensors())
      EXPECT_TRUE(info.foreign == "I8" || info.dtype == DType::bf16) << info.name;
    // int8_weights makes no difference to such a file.
    for (const bool wanted : {false, true}) {
      const auto again = load(*context, stored, wanted);
      EXPECT_EQ(file_of(*context, *again), stored);
      EXPECT_EQ(log_probabilities(*context, *again), log_probabilities(*context, *quantized));
    }
  }
}

TEST(Int8Model, TranslationsDependNeitherOnTheBatchNorOnThreads) {
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto context = cpu_context(), three = cpu_context(3);
    const auto floats = random_model(*context, form.config, 6, DType::f32);
    const auto bytes = file_of(*context, *floats);
    const auto model = load(*context, bytes, true), other = load(*three, bytes, true);
    const auto sources = random_sentences(9, 8, 37, 4);
    DecodeOptions options;
    options.max_length_extra = 4;
    const auto together = translate_tokens(*context, *model, sources, options);
    const auto elsewhere = translate_tokens(*three, *other, sources, options);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto alone = translate_tokens(*context, *model, {&sources[i], 1}, options);
      EXPECT_EQ(alone[0][0].tokens, together[i][0].tokens);
      EXPECT_EQ(elsewhere[i][0].tokens, together[i][0].tokens);
      EXPECT_EQ(elsewhere[i][0].log_probability, together[i][0].log_probability);
    }
  }
}

TEST(Int8Model, AShortlistTakesRowsOfTheOutput) {
  const auto context = cpu_context();
  const NoGrad no_grad(*context);
  for (const Int8Form& form : int8_forms()) {
    SCOPED_TRACE(form.name);
    const auto floats = random_model(*context, form.config, 7, DType::f32);
    const auto model = load(*context, file_of(*context, *floats), true);
    const std::vector<int32_t> source = {5, 6, 7, kEos};
    const std::vector<int32_t>* only = &source;
    const std::vector<std::vector<int32_t>> prompt = {
        spec_of(form.config).encoder ? std::vector<int32_t>{1} : source};
    const std::vector<int32_t> tokens = {2, 5, 9, 30, 36};
    std::vector<float> logits[2];
    for (const bool restricted : {false, true}) {
      const Batch batch = pack_sources(*context, spec_of(form.config), {&only, 1});
      DecodeState state = model->start_decoding(*context, batch, 16);
      if (restricted) restrict_output(*context, state, tokens);
      logits[restricted] = context->values<float>(model->prefill(*context, state, prompt));
    }
    ASSERT_EQ(logits[1].size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      EXPECT_EQ(logits[1][i], logits[0][static_cast<size_t>(tokens[i])]);
  }
}

class Int8File : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto floats = trained_like(*context_, decode_config(Architecture::encoder_decoder), 5);
    float_file_ = file_of(*context_, *floats);
    model_ = load(*context_, float_file_, true);
    file_ = copy_model(*context_, *model_, model_->parameters().master(), {});
  }
  TensorEntry& entry(const std::string& name) {
    return *std::find_if(file_.entries.begin(), file_.entries.end(),
                         [&](const TensorEntry& entry) { return entry.name == name; });
  }
  void erase(const std::string& name) {
    std::erase_if(file_.entries, [&](const TensorEntry& entry) { return entry.name == name; });
  }
  template <class T>
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    file_.entries.push_back(
        {name, dtype, std::move(shape), storage_.emplace_back(bytes.begin(), bytes.end())});
  }
  // Checks the error of loading a file with these tensors.
  void refused(ErrorCode code, const char* text, const std::string& quantization = "int8") {
    SafetensorsMetadata metadata = {{kModelConfigKey, to_json(model_->config())}};
    if (!quantization.empty()) metadata[kQuantizationKey] = quantization;
    const auto bytes = safetensors_to_memory(file_.entries, metadata);
    const Error error = error_of([&] { load(*context_, bytes, false); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_TRUE(mentions(error, "m.safetensors")) << error.what();
  }

  static constexpr const char* kName = "encoder.1.ffn.up.weight";
  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  std::vector<std::byte> float_file_;
  TensorFile file_;
  std::vector<std::vector<std::byte>> storage_;
};

TEST_F(Int8File, TensorsThatAreMissingOrSurplusAreNamed) {
  const auto all = file_.entries;
  erase(kName);
  refused(ErrorCode::corrupt_file, "lacks the tensor encoder.1.ffn.up.weight");
  file_.entries = all;
  erase(kScalesName);
  refused(ErrorCode::corrupt_file, "lacks the tensor scales");
  file_.entries = all;
  erase(kVectorsName);
  refused(ErrorCode::corrupt_file, "lacks the tensor vectors");
  for (const char* name : {"encoder.norm.weight.scale", "encoder.1.ffn.up.weight.scale",
                           "encoder.norm.weight", "something"}) {
    file_.entries = all;
    add<float>(name, DType::f32, {1}, std::vector<float>{1});
    refused(ErrorCode::corrupt_file, concat("has the tensor ", name).c_str());
  }
}

TEST_F(Int8File, PartsInAnotherTypeOrShapeAreNamed) {
  const auto all = file_.entries;
  const std::vector<std::byte> wide(entry(kName).data.size() * 4);
  entry(kName).foreign.clear();
  entry(kName).data = wide;
  refused(ErrorCode::corrupt_file, "encoder.1.ffn.up.weight is float32, the model needs int8");
  file_.entries = all;
  std::swap(entry(kName).shape[0], entry(kName).shape[1]);
  refused(ErrorCode::corrupt_file, "encoder.1.ffn.up.weight has the shape");
  for (const std::string name : {kScalesName, kVectorsName}) {
    file_.entries = all;
    const std::vector<float> values(static_cast<size_t>(entry(name).shape[0]), 1.0f);
    entry(name).dtype = DType::f32;
    entry(name).data = std::as_bytes(std::span(values));
    refused(ErrorCode::corrupt_file, (name + " is float32, the model needs bfloat16").c_str());
    file_.entries = all;
    --entry(name).shape[0];
    entry(name).data = entry(name).data.subspan(2);
    refused(ErrorCode::corrupt_file, (name + " has the shape").c_str());
  }
}

TEST_F(Int8File, CodesAndScalesThatCannotBeAreNamed) {
  std::vector<std::byte> codes(entry(kName).data.begin(), entry(kName).data.end());
  codes[20] = std::byte{0x80};
  const auto all = file_.entries;
  entry(kName).data = codes;
  refused(ErrorCode::corrupt_file, "encoder.1.ffn.up.weight: row 1 has the code -128");
  file_.entries = all;
  // Scales lie in the order of the names of their matrices.
  int64_t row = 3;
  for (const TensorEntry& other : all)
    if (other.foreign == "I8" && other.name < kName) row += other.shape[0];
  std::vector<BFloat16> scales(static_cast<size_t>(entry(kScalesName).shape[0]),
                               BFloat16::from_float(1));
  scales[static_cast<size_t>(row)] = BFloat16::from_float(-2);
  entry(kScalesName).data = std::as_bytes(std::span(scales));
  refused(ErrorCode::corrupt_file, "encoder.1.ffn.up.weight: row 3 has the scale -2");
}

// A tensor for each norm and bias, and scales for each matrix.
TEST_F(Int8File, TheFormOfEarlierBuildsIsRefused) {
  erase(kScalesName);
  erase(kVectorsName);
  const auto exact = SafetensorsReader::from_memory(float_file_, "f");
  const ParameterStore& parameters = model_->parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    const std::string& name = parameters.name(id);
    std::vector<float> values;
    if (parameters.is_int8(id)) {
      const auto scales = parameters.weight(id).int8->scales();
      values.assign(scales.begin(), scales.end());
      add<float>(name + ".scale", DType::f32, {parameters.shape(id)[0]}, values);
    } else {
      values.resize(exact.at(name).bytes / sizeof(float));
      exact.read(name, std::as_writable_bytes(std::span(values)));
      add<float>(name, DType::f32, exact.at(name).shape, values);
    }
  }
  refused(ErrorCode::corrupt_file, "quantize the float model again");
  refused(ErrorCode::corrupt_file, "quantize the float model again", "mixed");
}

TEST_F(Int8File, ABiasThatIsNoLongerBfloat16IsNotRoundedWhenItIsSaved) {
  const ParamId id = model_->parameters().find("encoder.1.ffn.up.bias");
  std::vector<double> values(static_cast<size_t>(model_->parameters().value(id).numel()), 1.0);
  values[2] = 1 + 0x1p-12;
  set_values(*context_, *model_, id, values);
  expect_error(ErrorCode::invalid_argument, "vectors has the value 1.00024",
               [&] { file_of(*context_, *model_); });
}

TEST_F(Int8File, ABiasThatBfloat16CannotHoldIsNamed) {
  const auto floats = load(*context_, float_file_, false);
  const ParamId id = floats->parameters().find("encoder.1.ffn.up.bias");
  std::vector<double> values(static_cast<size_t>(floats->parameters().value(id).numel()), 1.0);
  values[2] = 3.4e38;
  set_values(*context_, *floats, id, values);
  expect_error(ErrorCode::invalid_argument, "encoder.1.ffn.up.bias has the value 3.4e+38",
               [&] { load(*context_, file_of(*context_, *floats), true); });
}

TEST_F(Int8File, TheMetadataSaysWhatTheFileIs) {
  refused(ErrorCode::corrupt_file, "the metadata has no 'quantization'", "");
  refused(ErrorCode::unsupported, "has the quantization 'int4'", "int4");
  file_.entries.clear();
  refused(ErrorCode::corrupt_file, "0 tensors, its configuration has");
}

TEST_F(Int8File, EveryFlippedByteIsFound) {
  auto bytes = file_of(*context_, *model_);
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_NE(code_of([&] { load(*context_, bytes, false); }), ErrorCode::ok) << "byte " << at;
    bytes[at] ^= std::byte{0x10};
  }
  bytes.pop_back();
  EXPECT_EQ(code_of([&] { load(*context_, bytes, false); }), ErrorCode::corrupt_file);
}

TEST_F(Int8File, WeightsThatAreNotFiniteAreNotQuantized) {
  const auto floats = load(*context_, float_file_, false);
  const ParamId id = floats->parameters().find(kName);
  std::vector<double> values(static_cast<size_t>(floats->parameters().value(id).numel()), 1.0);
  values[17] = std::numeric_limits<double>::quiet_NaN();
  set_values(*context_, *floats, id, values);
  expect_error(ErrorCode::invalid_argument,
               "encoder.1.ffn.up.weight: row 1 has a value that is not finite",
               [&] { load(*context_, file_of(*context_, *floats), true); });
}

TEST_F(Int8File, NothingTrainsOrAveragesIt) {
  const char* trained = "a model with int8 weights is not trained";
  expect_error(ErrorCode::unsupported, trained,
               [&] { Trainer(*context_, *model_, TrainOptions{}); });
  expect_error(ErrorCode::unsupported, trained,
               [&] { model_->parameters().set_trainable(*context_, "*", true); });
  const auto pair = pairs(1).front();
  const SentencePair* only = &pair;
  expect_error(ErrorCode::unsupported, "no training loss", [&] {
    LabelSmoothedCrossEntropy(0.1).loss(*context_, *model_,
                                        pack_pairs(*context_, model_->spec(), {}, {&only, 1}), {});
  });
  TemporaryDirectory folder;
  const auto path = folder.path() / "m.safetensors";
  save_model(path, *context_, *model_);
  expect_error(ErrorCode::unsupported, "int8 weights: average float models", [&] {
    average_models(std::vector<std::filesystem::path>{path, path}, folder.path() / "mean");
  });
  expect_error(ErrorCode::unsupported, "'I8'", [&] { open_model(path); });
  expect_error(ErrorCode::unsupported, "is int8", [&] {
    load_weights(*context_, SafetensorsReader::from_memory(float_file_, "f"), *model_);
  });
}

TEST_F(Int8File, OtherPrecisionsAreRefused) {
  const auto doubles = random_model(*context_, decode_config(Architecture::decoder_lm), 5);
  expect_error(ErrorCode::unsupported, "float32 on the CPU",
               [&] { load(*context_, file_of(*context_, *doubles), true); });
  const auto bytes = file_of(*context_, *model_);
  const auto reader =
      SafetensorsReader::from_memory(bytes, "m.safetensors", ElementTypes::ours_and_codes);
  expect_error(ErrorCode::unsupported, "no float64 model",
               [&] { load_model(*context_, reader, DType::f64); });
}

}  // namespace
}  // namespace trafo::testing
