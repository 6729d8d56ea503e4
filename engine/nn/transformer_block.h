// One block of a transformer: self-attention, cross-attention in a decoder that reads an encoder,
// and feed-forward, each with a residual connection and a norm.
//
// Pre-norm normalises what a sublayer reads, post-norm what it and the residual sum to. Either way
// one fused op between two sublayers adds bias, dropout and residual and applies the norm. In a
// pre-norm block the last of these ops applies the norm that the next block begins with. A norm of
// outputs is applied to what the sublayer gives, before dropout and the residual connection. A
// sandwich has that norm and pre-norm's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/nn/attention.h"
#include "engine/nn/dropout_pass.h"
#include "engine/nn/feed_forward.h"
#include "engine/nn/norm.h"

namespace trafo::nn {

// Activations between two sublayers, [T, width].
struct ResidualStream {
  Tensor residual;  // what the next residual connection adds to
  Tensor input;     // what the next sublayer reads; the same tensor unless it is pre-norm
  // Computes `input` from `residual` once more, or null. See Norm::Sum.
  std::function<Tensor(Context&)> recompute_input = nullptr;
};

// Inputs of every block of a forward pass beside the residual stream.
struct BlockInputs {
  PackedSequences sequences;  // of the tokens in the residual stream
  DropoutPass dropout;
  EncoderKeysValues encoder;       // for cross-attention
  const KvCache* cache = nullptr;  // prefill and decode steps; see SelfAttention::forward
  Tensor distance_bias = {};       // of the scores of self-attention, or undefined
  Tensor token_types = {};         // of the embeddings; undefined: all are 0
};

class TransformerBlock {
 public:
  // Declares `prefix`.attention_norm, .cross_norm, .ffn_norm, .attention_output_norm,
  // .ffn_output_norm, .attention, .cross and .ffn, those that the block has. `layer` is the block's
  // number in the stack, from 0; `dropout_layer` its number among all layers of the model that drop
  // out (DropoutPass).
  TransformerBlock(ParameterStore& store, const std::string& prefix, const StackSpec& spec,
                   int64_t layer, uint32_t dropout_layer);

  // A block with the parameters of this one, as another layer.
  TransformerBlock as_layer(int64_t layer, uint32_t dropout_layer) const;

  // The stream in front of this block, if it is the first.
  ResidualStream begin(Context& context, const Tensor& embedded) const;
  // next_norm: what a pre-norm stream is normalised with for its next reader. Not used by
  // post-norm blocks, which end with their own.
  ResidualStream forward(Context& context, ResidualStream stream, const BlockInputs& inputs,
                         const Norm& next_norm) const;

  // Whether layer drop skips the block: the stream passes it unchanged.
  bool skipped(const DropoutPass& pass) const { return pass.skips(dropout_layer_); }
  // The norm that the block's first sublayer reads with.
  const Norm& first_norm() const { return attention_norm_; }

 private:
  // own_norm: of the sublayer's input (pre-norm), sum (post-norm) or output; of a sandwich, the
  // last.
  ResidualStream add(Context& context, PendingBias output, const ResidualStream& stream,
                     const Norm& next_norm, const Norm& own_norm, const Dropout& dropout) const;

  NormPlacement placement_;
  double residual_scale_;
  bool has_cross_attention_;
  double dropout_, attention_dropout_, ffn_dropout_;
  int64_t layer_;
  uint32_t dropout_layer_;
  Norm attention_norm_, cross_norm_, ffn_norm_;
  Norm attention_output_norm_, ffn_output_norm_;  // of a sandwich
  SelfAttention attention_;
  CrossAttention cross_attention_;
  FeedForward feed_forward_;
};

}  // namespace trafo::nn
