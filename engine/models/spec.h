// The specification of a model: two stacks, embeddings and output. It is derived from the options
// of a model (ModelConfig) in one place, spec_of(), and nothing else derives: modules, decoding,
// compression, memory plans and file formats read it.
#pragma once

#include <optional>

#include "engine/models/model_config.h"
#include "engine/nn/stack_spec.h"
#include "engine/runtime/context.h"

namespace trafo {

// Vectors that are added to the token embeddings, one a position.
enum class PositionTable : uint8_t { none, sinusoidal, fairseq, learned };

struct EmbeddingSpec {
  double scale = 1;  // of token embeddings
  PositionTable positions = PositionTable::none;
  bool shared = true;  // source and target have one matrix
  double dropout = 0;
  bool norm = false;  // each stack has a norm of the embeddings with their positions

  bool has_fixed_positions() const {
    return positions == PositionTable::sinusoidal || positions == PositionTable::fairseq;
  }
};

struct OutputSpec {
  bool tied = true;  // the matrix is the target embedding
  bool bias = true;
  double divisor = 1;  // of the last hidden states, and so of the logits
};

struct ModelSpec {
  Architecture architecture = Architecture::encoder_decoder;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;              // of either side, in tokens
  std::optional<StackSpec> encoder = {};  // absent: one sequence holds source and target
  StackSpec decoder = {};
  EmbeddingSpec embedding = {};
  OutputSpec output = {};

  bool has_encoder() const { return encoder.has_value(); }
  int64_t width() const { return decoder.width; }
  // Of one of the two stacks, which the model has.
  const StackSpec& stack(Stack which) const {
    return which == Stack::encoder ? encoder.value() : decoder;
  }
};

// Of valid options. models/model_config.h validates.
ModelSpec spec_of(const ModelConfig& config);
// The table of an embedding that has_fixed_positions(): [max_positions, width].
Tensor fixed_positions(Context& context, const ModelSpec& spec, DType dtype);

}  // namespace trafo
