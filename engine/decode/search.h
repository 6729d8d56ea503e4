// Translation of token sequences with a trained model: greedy search, beam search or sampling.
//
// A Model is only read: any number of threads may translate with one at the same time, each with a
// Context of its own on the model's device. Nothing is recorded for autodiff.
#pragma once

#include <span>
#include <vector>

#include "engine/decode/beam_search.h"
#include "engine/decode/options.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"

namespace trafo {

// Most tokens a source may have, eos counted. decoder_lm: half of the positions, which source and
// translation share.
int64_t longest_source(const ModelConfig& config);

// A copy of the model's weights in the layout that the CPU's products with few rows want, as large
// as the model: decoding one sentence is up to twice as fast with it, and what a sentence is
// decoded with does not change its bits. Null on an accelerator and for a model that is not
// float32.
std::shared_ptr<const PackedWeights> pack_for_decoding(Context& context, const Model& model);

// The translations of each source, in the order of the sources, best first: at most n_best, at
// least one; of sampling, n_best of them in the order of their numbers. Each source ends with eos,
// as training batches have it; the translation of an empty one, or of eos alone, is empty.
//
// encoder_decoder starts with bos. decoder_lm reads the sources of a batch in one pass and
// continues behind their eos. Sentences are decoded together by length; what else is in a batch
// changes a sentence's scores by rounding at most (not even that with `weights`), and sentences
// that are finished leave the batch.
//
// INVALID_ARGUMENT: a source that is too long (see longest_source) or lacks eos, naming its number,
// counted from 1; options out of range. NON_FINITE: the model answers a sentence with NaN or
// infinity. CANCELLED.
std::vector<std::vector<Hypothesis>> translate_tokens(Context& context, const Model& model,
                                                      std::span<const std::vector<int32_t>> sources,
                                                      const DecodeOptions& options = {});

}  // namespace trafo
