// What a model is: everything that decides the shapes of its parameters and the function it
// computes.
#pragma once

#include <cstdint>
#include <string>

#include "engine/models/architecture.h"
#include "engine/ops/activation/activation.h"

namespace trafo {

// What a decoder_lm may have of Llama (Touvron et al., arXiv 2302.13971). An encoder_decoder has
// the first of each. Values are part of the C ABI: never renumber, only append.
enum class Norm : int32_t {
  layer = 0,  // layer norm
  rms = 1,    // RMS norm, without a bias
};
enum class Positions : int32_t {
  standard = 0,  // sinusoidal (encoder_decoder) or learned (decoder_lm), added to the embeddings
  rotary = 1,    // queries and keys are turned (RoFormer)
};
enum class FeedForward : int32_t {
  plain = 0,   // activation(x U) D
  swiglu = 1,  // (silu(x G) * x U) D; `activation` is silu
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
  Norm norm = Norm::layer;
  Positions positions = Positions::standard;
  FeedForward ffn = FeedForward::plain;
  bool biases = true;       // of the products; RMS norm goes without
  int64_t kv_heads = 0;     // heads of keys and values, which heads / kv_heads queries share, with
                            // rotary positions; 0: as many as `heads`
  double rope_theta = 1e4;  // of rotary positions
  bool output_bias = true;  // of the output projection, where `biases` is set; GPT-2 has none
  bool depth_scaled_init = false;  // initial weights of layer l are divided by the root of l

  // False: one sequence holds source and target.
  bool has_encoder() const { return info_of(architecture).has_encoder; }
  bool has_output_bias() const { return biases && output_bias; }
  int64_t head_dim() const { return width / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  // Columns of keys, and as many of values.
  int64_t kv_width() const { return key_heads() * head_dim(); }
  // Columns of the packed projection of queries, keys and values.
  int64_t qkv_width() const { return width + 2 * kv_width(); }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const ModelConfig& config);

// Text form for checkpoints: a JSON object with every field. Unknown fields are CORRUPT_FILE, and
// so are missing ones but those that came after the first files: these are then the default.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const std::string& text);

}  // namespace trafo
