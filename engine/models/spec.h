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

// What an encoder computes of its hidden states.
struct HeadSpec {
  EncoderHead kind = EncoderHead::none;
  bool pooler = false;  // of a head for texts, or kept for an export
  EncoderClass of_class = EncoderClass::bert;
  Pooling pooling = Pooling::first;  // of the head for texts of ModernBERT
  double dropout = 0;                // of what the classifier reads
  // The transform of ModernBERT's heads, and of a head for masked tokens.
  bool has_transform() const {
    return kind == EncoderHead::masked_lm ||
           (of_class == EncoderClass::modernbert && kind != EncoderHead::none);
  }
};

struct EmbeddingSpec {
  double scale = 1;  // of token embeddings
  PositionTable positions = PositionTable::none;
  bool shared = true;       // source and target have one matrix
  int64_t own_sources = 0;  // tokens of the vocabulary that sources have alone; 0: there is none
  double dropout = 0;
  bool norm = false;        // each stack has a norm of the embeddings with their positions
  int64_t token_types = 0;  // rows of the table of token types; 0: there is none

  bool has_fixed_positions() const {
    return positions == PositionTable::sinusoidal || positions == PositionTable::fairseq;
  }
};

struct OutputSpec {
  bool tied = true;  // the matrix is the target embedding
  bool bias = true;
  double divisor = 1;   // of the last hidden states, and so of the logits
  int64_t rows = 0;     // of the matrix: the vocabulary or labels; 0: there is no output
  double soft_cap = 0;  // of the logits, see ops::soft_cap; 0: none
};

struct ModelSpec {
  Architecture architecture = Architecture::encoder_decoder;
  int64_t vocabulary = 0;                 // of targets, and of sources unless they have their own
  int64_t max_positions = 0;              // of either side, in tokens
  std::optional<StackSpec> encoder = {};  // absent: one sequence holds source and target
  StackSpec decoder = {};
  EmbeddingSpec embedding = {};
  OutputSpec output = {};
  HeadSpec head = {};  // of an encoder

  bool has_encoder() const { return encoder.has_value(); }
  // Token ids of sources are below it, those of targets below `vocabulary`.
  int64_t source_vocabulary() const {
    return embedding.own_sources > 0 ? embedding.own_sources : vocabulary;
  }
  int64_t width() const { return decoder.width; }
  // Of one of the two stacks, which the model has.
  const StackSpec& stack(Stack which) const {
    return which == Stack::encoder ? encoder.value() : decoder;
  }
};

// Of valid options. models/model_config.h validates.
ModelSpec spec_of(const ModelConfig& config);
// UNSUPPORTED: an encoder, which computes hidden states and labels of texts alone.
void require_generation(const ModelSpec& spec, const char* origin);
// The table of an embedding that has_fixed_positions(): [max_positions, width].
Tensor fixed_positions(Context& context, const ModelSpec& spec, DType dtype);

}  // namespace trafo
