// Options of decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

class PackedWeights;
class StepGraphs;

// Sampling: translations are drawn instead of searched for. Each token depends only on the model's
// probabilities and on (seed, line, sample, position).
struct DrawOptions {
  bool on = false;
#include "engine/decode/generated/draw_options.inc"
};

struct DecodeOptions {
#include "engine/decode/generated/decode_options.inc"
  // The longest translation of n source tokens, eos counted on both sides, is min(max_length,
  // max_length_factor * n + max_length_extra) or what the model has positions for, if that is less.
  int64_t max_length = 200;
  double max_length_factor = 2.0;
  int64_t max_length_extra = 10;
  bool allow_unk = false;  // false: unk is never generated; bos and pad never are
  SpecialTokens tokens;
  std::vector<int32_t> more_ends;      // tokens that end a hypothesis as eos does
  bool allow_bos = false;              // bos is a subword of texts as well and may be generated
  std::vector<int32_t> banned_tokens;  // never generated
  std::vector<std::pair<int32_t, double>> logit_bias;  // added to the logits of these tokens
  bool end_source = true;                              // false: a source need not end with eos
  DrawOptions sampling;  // if `on`, replaces the search; beam is not used
  // The first tokens of the translation of each source, without eos; borrowed for the call. Length
  // limits count from their end. Scores and word scores include them, as the model gives them; the
  // rules for repetition do not apply to them. Empty: none.
  std::span<const std::vector<int32_t>> prefixes;
  bool all_hypotheses = false;  // true: all that the search has, not only n_best
  // Returns the tokens that translations may consist of, given the source tokens of a batch; eos is
  // always allowed. Probabilities are over these tokens alone. Empty: the whole vocabulary.
  std::function<std::vector<int32_t>(std::span<const int32_t> sources)> shortlist;
  // The result of pack_for_decoding, as long as the model's weights have not changed. Null:
  // translate_tokens packs them for the call if that is faster.
  std::shared_ptr<const PackedWeights> weights;
  // Captured steps of this context and model; borrowed. Null, or with a beam or a shortlist: steps
  // are launched kernel by kernel.
  StepGraphs* step_graphs = nullptr;
  // Whether an encoder_decoder decodes in a number of rows out of few, of which some may be unused.
  // No value: on an accelerator.
  std::optional<bool> pad_rows;
  const CancelToken* cancel = nullptr;  // checked before every decode step: CANCELLED
  // Decodes batch i if i mod `parts` is `part`, so that several ranks can share them. The sentences
  // of other batches have no hypotheses.
  int64_t part = 0, parts = 1;
};

}  // namespace trafo
