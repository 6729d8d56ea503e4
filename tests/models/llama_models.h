// The Llama form of the decoder for tests: RMS norm, rotary positions, SwiGLU, no biases; T5's and
// ModernBERT's.
#pragma once

#include <cmath>

#include "engine/models/model_config.h"

namespace trafo::testing {

// `config`: a tiny decoder-lm.
inline ModelConfig llama_of(ModelConfig config, int64_t kv_heads = 0, bool tied = true) {
  config.architecture = Architecture::decoder_lm;
  config.activation = Activation::silu;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.biases = false;
  config.kv_heads = kv_heads;
  config.tied_embeddings = tied;
  return config;
}

// The same with norms of queries and keys, in heads that are wider than width / heads.
inline ModelConfig qwen3_of(const ModelConfig& config, int64_t kv_heads = 0, bool tied = true,
                            QkNorm norm = QkNorm::head) {
  ModelConfig form = llama_of(config, kv_heads, tied);
  form.qk_norm = norm;
  form.head_width = form.width / form.heads + 4;
  return form;
}

// A window of attention in all layers (Mistral 7B v0.1).
inline ModelConfig mistral_of(const ModelConfig& config, int64_t window, int64_t kv_heads = 0) {
  ModelConfig form = llama_of(config, kv_heads);
  form.sliding_window = window;
  return form;
}

// Gemma 3: a window in all layers but every second one, with other angles in these.
inline ModelConfig gemma3_of(const ModelConfig& config, int64_t window, int64_t kv_heads = 0,
                             bool tied = true) {
  ModelConfig form = qwen3_of(config, kv_heads, tied);
  form.ffn = FeedForward::geglu;
  form.activation = Activation::gelu;
  form.sandwich_norm = true;
  form.embedding_scale = std::sqrt(static_cast<double>(form.width));
  form.attention_scale = 0.3;
  form.rope_theta = 1e6;
  form.rope_factor = 8;
  form.sliding_window = window;
  form.full_attention_interval = 2;
  form.rope_local_theta = 100;
  return form;
}

// Gemma 2: soft caps, and the same angles in all layers. The caps are low enough to tell in a tiny
// model.
inline ModelConfig gemma2_of(const ModelConfig& config, int64_t window, int64_t kv_heads = 0,
                             bool tied = true) {
  ModelConfig form = gemma3_of(config, window, kv_heads, tied);
  form.qk_norm = QkNorm::none;
  form.rope_theta = 1e4;
  form.rope_factor = 1;
  form.rope_local_theta = 0;
  form.attention_soft_cap = 0.5;
  form.logits_soft_cap = 1.5;
  return form;
}

// ModernBERT: a window to both sides in all layers but every second one from the first on.
inline ModelConfig modernbert_of(ModelConfig config, EncoderHead head, int64_t window = 3) {
  config.architecture = Architecture::encoder;
  config.encoder_class = EncoderClass::modernbert;
  config.encoder_head = head;
  config.labels = head == EncoderHead::sequence || head == EncoderHead::token ? 3 : 0;
  config.pre_norm = true;
  config.activation = Activation::gelu_erf;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::geglu;
  config.biases = false;
  config.rope_theta = 160000;
  config.rope_local_theta = 100;
  config.sliding_window = window;
  config.full_attention_interval = 2;
  return config;
}

// `config`: a tiny encoder-decoder.
inline ModelConfig t5_of(ModelConfig config) {
  config.norm = Norm::rms;
  config.biases = config.output_bias = false;
  config.embedding_scale = config.attention_scale = 1;
  config.relative_buckets = 8;
  config.relative_distance = 6;
  config.logits_divisor = std::sqrt(static_cast<double>(config.width));
  return config;
}

// T5 1.1 and mT5: a gated feed-forward, heads that are wider than width / heads, an output matrix.
inline ModelConfig gated_t5_of(const ModelConfig& config) {
  ModelConfig form = t5_of(config);
  form.ffn = FeedForward::geglu;
  form.activation = Activation::gelu;
  form.head_width = form.width / form.heads + 4;
  form.logits_divisor = 1;
  form.separate_output = true;
  return form;
}

}  // namespace trafo::testing
