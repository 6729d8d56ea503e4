// Structured pruning: whole layers, attention heads and feed-forward columns are removed from a
// trained model. The rest is a smaller model of the same architecture, in float32.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/core/cancel.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/models/model.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

// Parts of a model that stay. A decoder-lm ignores the fields of the encoder.
struct PruneOptions {
  // Shares, above 0 and at most 1. A layer keeps at least 8 feed-forward columns, and above that a
  // multiple of 8; and at least one head, or one group of heads that share keys and values.
  double encoder_ffn_share = 1, decoder_ffn_share = 1;
  double encoder_head_share = 1, decoder_head_share = 1;  // also of cross-attention
  int64_t encoder_layers = 0, decoder_layers = 0;         // 0: all
};

// The smaller model, on the same context. `model` does not change.
//
// Layers go first. The layer without which the mean cross-entropy of the calibration data is lowest
// is removed, again and again until the wanted number is left, in the encoder and then in the
// decoder. Every step measures each layer that is left.
//
// Then every layer keeps the heads and columns with the highest scores, the same number in all
// layers of a stack. The score of a head or a column with the output h is
//
//   sum over pairs | sum over the tokens of the pair  h . dL/dh |
//
// (Michel et al., arXiv 1905.10650, equation 2; Molchanov et al., arXiv 1906.10771). It is computed
// from the gradient of the weight W that follows it, because sum over tokens h_j dL/dh_j equals sum
// over rows i of W[i, j] dL/dW[i, j].
//
// INVALID_ARGUMENT names the option, or says that the model has an adapter. UNSUPPORTED: int8
// weights. NON_FINITE: a score is not finite. CANCELLED: the token was set meanwhile.
std::unique_ptr<Model> prune(Context& context, const Model& model,
                             const TokenizedCorpus& calibration, const SpecialTokens& tokens,
                             const PruneOptions& options, const CancelToken* cancel = nullptr);

}  // namespace trafo
