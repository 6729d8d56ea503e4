// Options of decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/tokenizer/special_tokens.h"

namespace trafo {

class PackedWeights;
class StepGraphs;

// Sampling: translations are drawn instead of searched for. Each token depends only on the model's
// probabilities and on (seed, line, sample, position).
struct DrawOptions {
  bool on = false;
  // options: begin DrawOptions (scripts/generate_options.py)
  // clang-format off
  double temperature = 1;  // Logits are divided by it.
  int64_t top_k = 0;  // Only this many of the most probable tokens. 0: all.
  // Only the fewest tokens that have this share of the probability together (Holtzman et al.,
  // arXiv 1904.09751).
  double top_p = 1;
  uint64_t seed = 1;  // Seed of the draws.
  // Number of the first line, so that a text in several calls is drawn as in one.
  int64_t first_line = 0;
  // clang-format on
  // options: end
};

struct DecodeOptions {
  // options: begin DecodeOptions (scripts/generate_options.py)
  // clang-format off
  int64_t beam = 5;  // Hypotheses kept of each sentence. 1 is greedy search.
  // Hypotheses returned of each sentence, at most beam. With sampling: translations drawn of each
  // sentence.
  int64_t n_best = 1;
  // The score of a hypothesis is log-probability / tokens^length_penalty, its end counted
  // (Marian's --normalize). 0: no normalisation.
  double length_penalty = 1;
  int64_t min_length = 0;  // Tokens before a translation may end; a given beginning is not counted.
  // Source tokens times beam of the sentences that are decoded together.
  int64_t batch_tokens = 4096;
  // The logit of each token that the translation already has is divided by it if it is positive,
  // and multiplied otherwise (Keskar et al., arXiv 1909.05858). 1: no penalty. Where a decoder-lm
  // continues a text (no end_source), tokens of that text count as well.
  double repetition_penalty = 1;
  // No token completes an n-gram of this many tokens that the translation already has. Where a
  // decoder-lm continues a text (no end_source), n-grams of that text count as well. 0: any may
  // repeat.
  int64_t no_repeat_ngram_size = 0;
  // Whether every hypothesis has the log-probability of each of its tokens.
  bool word_scores = false;
  // Whether every hypothesis has an alignment: for each of its tokens, the cross-attention to the
  // source tokens. A decoder-lm has none: UNSUPPORTED.
  bool alignment = false;
  // Decoder layer whose cross-attention, the mean over its heads, is the alignment; counted from
  // 1. 0: the last but one.
  int64_t alignment_layer = 0;
  // clang-format on
  // options: end
  // The longest translation of n source tokens, eos counted on both sides, is min(max_length,
  // max_length_factor * n + max_length_extra) or what the model has positions for, if that is less.
  int64_t max_length = 200;
  double max_length_factor = 2.0;
  int64_t max_length_extra = 10;
  bool allow_unk = false;  // false: unk is never generated; bos and pad never are
  SpecialTokens tokens;
  std::vector<int32_t> more_ends;  // tokens that end a hypothesis as eos does
  bool allow_bos = false;          // bos is a subword of texts as well and may be generated
  bool end_source = true;          // false: a source need not end with eos
  DrawOptions sampling;            // if `on`, replaces the search; beam is not used
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
  // Captured steps of greedy search with this context and model, whose shortlist is empty;
  // borrowed. Null, or with any other search, repetition rules or prefixes: steps are launched
  // kernel by kernel.
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
