// Tiny random models for the tests of decoding, and the definition of what decoding computes: every
// log-probability from a forward pass over the whole sentence.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/numeric/philox.h"
#include "engine/decode/scorer.h"
#include "engine/decode/search.h"
#include "engine/ops/op_kernel.h"
#include "tests/support/model_forms.h"

namespace trafo::testing {

inline constexpr int32_t kEos = 2;

inline ModelConfig decode_config(Architecture architecture, int64_t vocabulary = 13) {
  ModelConfig config = tiny_config(architecture, 0.3);  // the dropout must not matter
  config.vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 2;
  config.ffn_width = 24;
  config.max_positions = 48;
  return config;
}

inline void set_values(Context& context, Model& model, ParamId id,
                       const std::vector<double>& values) {
  ParameterStore& parameters = model.parameters();
  if (parameters.dtype() == DType::f64) {
    parameters.set_value(context, id, values.data(), values.size() * sizeof(double));
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    parameters.set_value(context, id, narrow.data(), narrow.size() * sizeof(float));
  }
}

// Weights far larger than a fresh model's: predictions depend on every token read, and are neither
// flat nor certain.
inline std::unique_ptr<Model> random_model(Context& context, const ModelConfig& config,
                                           uint64_t seed, DType dtype = DType::f64) {
  auto model = make_model(context, config, seed, dtype);
  for (ParamId id = 0; id < static_cast<ParamId>(model->parameters().count()); ++id) {
    const Shape shape = model->parameters().shape(id);
    if (shape.rank() != 2) continue;
    PhiloxStream random(seed, static_cast<uint64_t>(id));
    std::vector<double> values(static_cast<size_t>(element_count(shape)));
    for (double& v : values) v = random.normal() * 0.45;
    set_values(context, *model, id, values);
  }
  return model;
}

inline void set_output_bias(Context& context, Model& model, int32_t token, double value) {
  const ParamId id = model.parameters().find("output.bias");
  std::vector<double> bias(static_cast<size_t>(model.config().vocabulary), 0);
  bias[static_cast<size_t>(token)] = value;
  set_values(context, model, id, bias);
}

// `count` sentences of 1 to longest tokens and eos.
inline std::vector<std::vector<int32_t>> random_sentences(int count, int longest,
                                                          int64_t vocabulary, uint64_t seed) {
  PhiloxStream random(seed, 3);
  std::vector<std::vector<int32_t>> sentences(static_cast<size_t>(count));
  for (auto& sentence : sentences) {
    const int size = 1 + static_cast<int>(random.next_u32() % static_cast<uint32_t>(longest));
    for (int i = 0; i < size; ++i)
      sentence.push_back(
          4 + static_cast<int32_t>(random.next_u32() % static_cast<uint32_t>(vocabulary - 4)));
    sentence.push_back(kEos);
  }
  return sentences;
}

// log p(token | source, tokens) of every token: the row of `logits` after `tokens`, normalised.
inline std::vector<double> next_log_probabilities(Context& context, const Model& model,
                                                  const std::vector<int32_t>& source,
                                                  const std::vector<int32_t>& tokens) {
  const NoGrad no_grad(context);
  SentencePair pair{source, tokens};
  pair.target.push_back(kEos);
  const SentencePair* only = &pair;
  const Batch batch = pack_pairs(context, model.spec(), {}, {&only, 1});
  const Tensor logits = model.logits(context, batch);
  const size_t classes = static_cast<size_t>(model.config().vocabulary);
  std::vector<double> all;
  if (logits.dtype() == DType::f64) {
    all = context.values<double>(logits);
  } else {
    for (const float v : context.values<float>(logits)) all.push_back(v);
  }
  std::vector<double> row(all.end() - static_cast<int64_t>(classes), all.end());
  double total = 0;
  for (const double v : row) total += std::exp(v);
  for (double& v : row) v -= std::log(total);
  return row;
}

inline std::unique_ptr<Context> cpu_context(int threads = 1) {
  return make_context(Device{}, threads);
}

inline std::string architecture_name(const ::testing::TestParamInfo<Architecture>& info) {
  return info.param == Architecture::decoder_lm ? "DecoderLm" : "EncoderDecoder";
}

template <class F>
std::string error_text(F&& call) {  // "CODE: message", or nothing
  try {
    call();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
  return {};
}

}  // namespace trafo::testing
