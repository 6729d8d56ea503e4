// Alignment of source and target tokens by the cross-attention of an encoder_decoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/hypothesis.h"
#include "engine/decode/options.h"
#include "engine/decode/packing.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"

namespace trafo {

struct AlignOptions {
  // Decoder layer, counted from 1. 0: the last but one (the only one, if there is one), which
  // agrees best with alignments made by hand (Garg et al., arXiv 1909.02074).
  int64_t layer = 0;
  int64_t batch_tokens = 4096;  // source and target tokens of the pairs of a batch
  SpecialTokens tokens;
  const CancelToken* cancel = nullptr;  // checked before every batch: CANCELLED
};

// Refuses what align() would refuse for any pair. UNSUPPORTED: a decoder_lm. INVALID_ARGUMENT: the
// model does not have the layer.
void check_alignment(const ModelSpec& spec, int64_t layer);

// The alignments of the pairs, in their order: the mean over the heads of the cross-attention
// probabilities of one decoder layer, in a forward pass over each pair (forced decoding). Row t
// belongs to the position that predicts target token t. Source and target have one token at least,
// ids of the vocabulary, and no more tokens than the model has positions; a target that was cut off
// has no eos. The model is only read and nothing is recorded.
//
// Errors of check_alignment. NON_FINITE, naming the pair (counted from 1): a probability is not
// finite. CANCELLED.
std::vector<Alignment> align(Context& context, const Model& model,
                             std::span<const SentencePair> pairs, const AlignOptions& options);

}  // namespace trafo
