// Translation of token sequences with a trained model: greedy search, beam search or sampling.
//
// The model is only read. Any number of threads may translate with one model at the same time, each
// with its own Context on the model's device. Nothing is recorded for autodiff.
#pragma once

#include <span>
#include <vector>

#include "engine/decode/beam_search.h"
#include "engine/decode/options.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"

namespace trafo {

// The largest number of source tokens, eos counted. In a decoder_lm the source has the positions
// that a translation of max_length tokens leaves, and half of them at least.
int64_t longest_source(const ModelSpec& spec, int64_t max_length = DecodeOptions{}.max_length);

// INVALID_ARGUMENT, naming it: an option that is out of range. UNSUPPORTED: an alignment of a
// decoder_lm.
void check_options(const ModelSpec& spec, const DecodeOptions& options);

// Packs a copy of the weights, as large as the model, into the layout of the CPU GEMM for few rows.
// Decoding one sentence is up to twice as fast with it, and the bits of a translation do not depend
// on the batch. Null on an accelerator and for a model that is not float32. int8 weights are laid
// out when they are loaded; there is no copy of them. `base`: of the model whose weights this one
// shares; only the others are copied.
std::shared_ptr<const PackedWeights> pack_for_decoding(
    Context& context, const Model& model, std::shared_ptr<const PackedWeights> base = nullptr);

// Translates each source. The results are in the order of the sources. Each has one to n_best
// hypotheses, best first; with sampling it has n_best samples in the order of their numbers. A
// source ends with eos, as in training, unless end_source is off. An empty source, or eos alone,
// has an empty translation.
//
// The prompt of an encoder_decoder is bos. The prompt of a decoder_lm is the source, which is
// prefilled in one pass. Sentences of similar length share a batch and leave it when they are
// finished. The other sentences of a batch change a score by rounding at most; with `weights` they
// do not change a bit.
//
// INVALID_ARGUMENT: options out of range, a source that is too long (see longest_source) or does
// not end with eos, or a prefix that has an end or leaves no position for another token; the
// message has its number, counted from 1. NON_FINITE: the logits of a sentence are NaN or infinite.
// CANCELLED. With options.alignment, also the errors of align().
std::vector<std::vector<Hypothesis>> translate_tokens(Context& context, const Model& model,
                                                      std::span<const std::vector<int32_t>> sources,
                                                      const DecodeOptions& options = {});

}  // namespace trafo
