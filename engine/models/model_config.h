// Options of a model, as users give them and files keep them. The engine computes by the
// specification that spec_of() makes from them (models/spec.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/models/architecture.h"

namespace trafo {

// Norm, positions, ffn and biases of a decoder_lm may be those of Llama (Touvron et al., arXiv
// 2302.13971); an encoder_decoder has the first value of each.
struct ModelConfig {
  // options: begin ModelConfig (scripts/generate_options.py)
  // clang-format off
  Architecture architecture = Architecture::encoder_decoder;  // Kind of model.
  Activation activation = Activation::relu;  // Activation of the feed-forward layers.
  int64_t vocabulary = 0;  // Tokens of the vocabulary. It must be set.
  int64_t encoder_layers = 6;  // Layers of the encoder. A decoder-lm has none and ignores it.
  int64_t decoder_layers = 6;  // Layers of the decoder.
  int64_t width = 512;  // Width of the residual stream: an even multiple of heads.
  int64_t ffn_width = 2048;  // Width inside the feed-forward layers.
  int64_t heads = 8;  // Attention heads.
  int64_t max_positions = 1024;  // Longest sequence that either side may have, in tokens.
  bool pre_norm = true;  // Whether the norm precedes each block instead of following it.
  // Whether source, target and output share one embedding matrix. Otherwise there are three, two
  // in a decoder-lm.
  bool tied_embeddings = true;
  double dropout = 0.1;  // Dropout of the embeddings and of the output of every block.
  double attention_dropout = 0;  // Dropout of attention probabilities.
  double ffn_dropout = 0;  // Dropout after the activation of the feed-forward layers.
  double norm_epsilon = 1e-5;  // Epsilon of the norms.
  Norm norm = Norm::layer;  // Norm of a decoder-lm; an encoder-decoder has layer norm.
  Positions positions = Positions::standard;  // Positions of a decoder-lm.
  FeedForward ffn = FeedForward::plain;  // Feed-forward blocks of a decoder-lm.
  // Whether all linear layers have biases. A model with RMS norm may have qkv_biases,
  // attention_output_bias and ffn_biases instead.
  bool biases = true;
  // Heads of keys and values (grouped-query attention), with rotary positions. 0: as many as
  // heads.
  int64_t kv_heads = 0;
  double rope_theta = 10000;  // Base of the angles of rotary positions.
  // Whether the initial weights of layer l are divided by the root of l (Zhang et al., arXiv
  // 1908.11365). Deep models begin better.
  bool depth_scaled_init = false;
  // Whether the output layer has a bias, in a model with biases. GPT-2 has none.
  bool output_bias = true;
  // Width of an attention head. A model whose heads were pruned has it, and one with rotary
  // positions may. 0: width / heads.
  int64_t head_width = 0;
  // Whether queries, keys and values have biases in a model that has no others (biases is 0), as
  // in Qwen2.
  bool qkv_biases = false;
  // Whether the output of an attention has a bias in a model without biases.
  bool attention_output_bias = false;
  bool ffn_biases = false;  // Whether the feed-forward layers have biases in a model without biases.
  // The angles of rotary positions are divided by it, all of them or, with
  // rope_original_positions, the slow ones.
  double rope_factor = 1;
  // Positions that a model was trained with before rope_factor (Llama 3.1): the factor divides
  // the angles of pairs that turn fewer than rope_low_turns times in them. It divides the angles
  // of pairs of more turns less and less. 0: rope_factor divides all angles.
  int64_t rope_original_positions = 0;
  // Turns in rope_original_positions positions up to which rope_factor divides an angle whole.
  double rope_low_turns = 1;
  // Turns in rope_original_positions positions from which on rope_factor does not change an
  // angle; above rope_low_turns.
  double rope_high_turns = 4;
  // Width inside the feed-forward layers of the encoder, where pruning left it another one than
  // the decoder has. 0: ffn_width.
  int64_t encoder_ffn_width = 0;
  // Attention heads of the encoder, where pruning left it another number than the decoder has.
  // With head_width. 0: heads.
  int64_t encoder_heads = 0;
  // Which layers of the decoder share their parameters: a number from 1 to decoder_layers for
  // each layer, and layers with the same number share. For up to 32 layers.
  std::vector<int64_t> decoder_tied_layers{};
  // The same for the layers of the encoder and encoder_layers.
  std::vector<int64_t> encoder_tied_layers{};
  // clang-format on
  // options: end

  // Matrices NAME of linear layers that are the product of two factors, NAME.u [rows, rank] and
  // NAME.v [rank, columns], and their ranks. Files show them by these tensors; to_json() leaves
  // them out.
  std::map<std::string, int64_t> factor_ranks{};

  // The same sizes, each layer with parameters of its own.
  ModelConfig untied() const {
    ModelConfig config = *this;
    config.encoder_tied_layers = config.decoder_tied_layers = {};
    return config;
  }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const ModelConfig& config);

// Text form for checkpoints: a JSON object with every field. Unknown fields are CORRUPT_FILE, and
// so are missing ones but those that came after the first files: these are then the default.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const std::string& text);

}  // namespace trafo
