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
// 2302.13971), those of an encoder_decoder with relative_buckets those of T5 (Raffel et al., arXiv
// 1910.10683). Other encoder_decoders have the first value of each.
struct ModelConfig {
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

#include "engine/models/generated/model_config.inc"
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const ModelConfig& config);

// Text form for checkpoints: a JSON object with every field. Unknown and missing fields are
// CORRUPT_FILE.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const std::string& text);

}  // namespace trafo
