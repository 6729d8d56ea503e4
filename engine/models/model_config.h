// What a model is: everything that decides the shapes of its parameters and the function it
// computes.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/activation/activation.h"

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class Architecture : int32_t {
  encoder_decoder = 0,  // Vaswani et al., arXiv 1706.03762
  decoder_lm = 1,       // source <eos> target <eos> in one stream, causal, learned positions
};

struct ModelConfig {
  Architecture architecture = Architecture::encoder_decoder;
  int64_t vocabulary = 0;
  int64_t encoder_layers = 6;  // not used by decoder_lm
  int64_t decoder_layers = 6;
  int64_t width = 512;
  int64_t ffn_width = 2048;
  int64_t heads = 8;
  int64_t max_positions = 1024;  // longest sequence either side may have, in tokens
  Activation activation = Activation::relu;
  bool pre_norm = true;
  bool tied_embeddings =
      true;  // source, target and output share one matrix; otherwise three (decoder_lm: two)
  double dropout = 0.1;          // on embeddings and on the output of every block
  double attention_dropout = 0;  // on attention probabilities
  double ffn_dropout = 0;        // after the activation
  double norm_epsilon = 1e-5;

  int64_t head_dim() const { return width / heads; }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const ModelConfig& config);

// Text form for checkpoints: a JSON object with every field; unknown or missing fields are
// CORRUPT_FILE.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const std::string& text);

}  // namespace trafo
