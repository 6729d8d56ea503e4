// Tiny models for tests, and the forms in which parameters, their layouts and files differ.
#pragma once

#include <string_view>

#include "engine/models/model_config.h"
#include "tests/models/llama_models.h"

namespace trafo::testing {

inline constexpr int32_t kVocabulary = 24;

inline ModelConfig tiny_config(Architecture architecture = Architecture::encoder_decoder,
                               double dropout = 0.2) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocabulary = kVocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = 32;
  config.dropout = config.attention_dropout = config.ffn_dropout = dropout;
  return config;
}

// The smallest model, for what is done with many of them.
inline ModelConfig smallest_config(int64_t vocabulary) {
  ModelConfig config;
  config.vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = config.ffn_width = 4;
  config.heads = 2;
  config.max_positions = 8;
  return config;
}

// A tiny model of a form: "encdec", "lm", "gpt2", "modernbert" with the head of masked tokens, or
// "llama" or "qwen3", whose query heads share one head of keys and values. Words that change it:
// "post-norm", "untied" (source, target and output have a matrix each) and "shared" (the layers of
// the decoder share their parameters).
inline ModelConfig form_of(std::string_view form, int64_t layers = 2, double dropout = 0.1) {
  const auto has = [&](std::string_view word) { return form.find(word) != std::string_view::npos; };
  const bool encoder =
      !has("lm") && !has("gpt2") && !has("llama") && !has("qwen3") && !has("modernbert");
  ModelConfig config =
      tiny_config(encoder ? Architecture::encoder_decoder : Architecture::decoder_lm, dropout);
  config.encoder_layers = config.decoder_layers = layers;
  config.pre_norm = !has("post-norm");
  if (has("gpt2")) config.activation = Activation::gelu;
  if (has("llama")) config = llama_of(config, 1);
  if (has("qwen3")) config = qwen3_of(config, 1);
  if (has("modernbert")) config = modernbert_of(config, EncoderHead::masked_lm);
  config.tied_embeddings = !has("untied");
  if (has("shared")) config.decoder_tied_layers.assign(static_cast<size_t>(layers), 1);
  return config;
}

}  // namespace trafo::testing
