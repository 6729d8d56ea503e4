// The Llama form of the decoder for tests: RMS norm, rotary positions, SwiGLU, no biases.
#pragma once

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

}  // namespace trafo::testing
