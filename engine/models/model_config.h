// Configuration of a model: everything that decides the shapes of its parameters and the function
// it computes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/models/architecture.h"
#include "engine/nn/parts.h"
#include "engine/ops/activation/activation.h"

namespace trafo {

// Which layers of a stack share their parameters. Numbers count from 0.
struct LayerSharing {
  std::vector<int64_t> owners;  // of each layer: the first one with the same parameters
  std::vector<int64_t> sets;    // of each layer: which set of parameters it uses
  int64_t set_count = 0;        // distinct layers
};
// The layers that are their own owners, ascending.
std::vector<int64_t> distinct_layers(const LayerSharing& sharing);

// Norm, positions, ffn and biases of a decoder_lm may be those of Llama (Touvron et al., arXiv
// 2302.13971); an encoder_decoder has the first value of each.
struct ModelConfig {
  // Matrices NAME of linear layers that are the product of two factors, NAME.u [rows, rank] and
  // NAME.v [rank, columns], and their ranks. Files show them by these tensors; to_json() leaves
  // them out.
  std::map<std::string, int64_t> factor_ranks{};

  // False: one sequence holds source and target.
  bool has_encoder() const { return info_of(architecture).has_encoder; }
  bool has_output_bias() const { return biases && output_bias; }
  bool has_qkv_biases() const { return biases || qkv_biases; }
  bool has_attention_output_bias() const { return biases || attention_output_bias; }
  bool has_ffn_biases() const { return biases || ffn_biases; }
  int64_t head_dim() const { return head_width > 0 ? head_width : width / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  // Columns of keys, and as many of values.
  int64_t kv_width() const { return key_heads() * head_dim(); }
  // Columns of queries, and of what the heads of an attention give.
  int64_t attention_width() const { return heads * head_dim(); }
  // Columns of the packed projection of queries, keys and values.
  int64_t qkv_width() const { return attention_width() + 2 * kv_width(); }
  LayerSharing encoder_sharing() const;
  LayerSharing decoder_sharing() const;
  // Of one of the two stacks.
  LayerSharing sharing(Stack stack) const {
    return stack == Stack::encoder ? encoder_sharing() : decoder_sharing();
  }
  // The same sizes, each layer with parameters of its own.
  ModelConfig untied() const {
    ModelConfig config = *this;
    config.encoder_tied_layers = config.decoder_tied_layers = {};
    return config;
  }
  // The same with the heads and the feed-forward width of the encoder's layers.
  ModelConfig encoder_side() const {
    ModelConfig side = *this;
    if (encoder_heads > 0) side.heads = encoder_heads;
    if (encoder_ffn_width > 0) side.ffn_width = encoder_ffn_width;
    side.encoder_heads = side.encoder_ffn_width = 0;
    return side;
  }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

#include "engine/models/generated/model_config.inc"
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const ModelConfig& config);

// Text form for checkpoints: a JSON object with every field. Unknown and missing fields are
// CORRUPT_FILE.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const std::string& text);

}  // namespace trafo
