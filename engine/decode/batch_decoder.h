// Decodes the sentences of one batch together, step by step. BeamSearch and Sampler choose the
// tokens; this class keeps rows of logits and cache beside the hypotheses that they belong to.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/decode/beam_search.h"
#include "engine/decode/logits_processor.h"
#include "engine/decode/options.h"
#include "engine/decode/packing.h"
#include "engine/decode/sampler.h"
#include "engine/decode/step_graphs.h"
#include "engine/models/model.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/top_k/top_k.h"
#include "engine/ops/unary/unary.h"

namespace trafo {

inline constexpr const char* kSearchOrigin = "translate";
// Capacity of a cache row after its prompt, in tokens, before the cache first grows.
inline constexpr int64_t kFirstCapacity = 32;

// The rows that `live` hypotheses are decoded in on an accelerator: eight sizes for every doubling.
// A library of GEMMs chooses a kernel anew for every number of rows, which takes longer than the
// rows that nobody needs.
inline int64_t padded_rows(int64_t live) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(live)));
  const int64_t step = std::max<int64_t>(8, below / 8);
  return (live + step - 1) / step * step;
}

// A sentence that is being decoded, or one sample of it.
struct Slot {
  int64_t sentence;
  int32_t sample;
  int64_t row;  // row of its first live hypothesis in logits and cache; the others follow
  BeamSearch search;
  int64_t positions;                // largest number of tokens that a row of it holds
  std::span<const int32_t> prefix;  // of the translation
  std::span<const int32_t> text;    // that the translation continues, where rules count its tokens

  // The token of the prefix that comes next; none after the prefix.
  std::optional<int32_t> forced() const {
    const size_t tokens = search.live()[0].tokens.size();
    return tokens < prefix.size() ? std::optional(prefix[tokens]) : std::nullopt;
  }
};

// The tokens that the decoder reads before it chooses the first one.
inline std::vector<int32_t> prompt_of(const ModelSpec& spec, const DecodeOptions& options,
                                      const std::vector<int32_t>& source) {
  return spec.has_encoder() ? std::vector<int32_t>{options.tokens.start()} : source;
}

// Special tokens that are never chosen: a text has none, unless it ends with it.
inline std::vector<int32_t> banned_specials(const DecodeOptions& options, int64_t vocabulary,
                                            std::span<const int32_t> ends) {
  const SpecialTokens& tokens = options.tokens;
  const int32_t bos = options.allow_bos ? -1 : tokens.bos;
  std::vector<int32_t> banned;
  for (const int32_t id : {tokens.pad, bos, options.allow_unk ? -1 : tokens.unk})
    if (id >= 0 && id < vocabulary && std::ranges::find(ends, id) == ends.end() &&
        std::ranges::find(banned, id) == banned.end())
      banned.push_back(id);
  return banned;
}

// The log-probabilities of one step on the host, [rows, k].
struct Scores {
  std::vector<double> values;
  std::vector<int32_t> ids;
};

class BatchDecoder {
 public:
  BatchDecoder(Context& context, const Model& model, const DecodeOptions& options)
      : context_(context),
        model_(model),
        options_(options),
        processor_(options),
        pads_rows_(model.spec().has_encoder() &&
                   options.pad_rows.value_or(context.backend().stream_device() != nullptr)) {
    ends_ = options.more_ends;
    ends_.push_back(options.tokens.eos);
    banned_ = banned_specials(options, model.spec().vocabulary, ends_);
    k_ = std::min(options.beam + static_cast<int64_t>(ends_.size()),
                  model.spec().vocabulary - static_cast<int64_t>(banned_.size()));
    if (options.sampling.on) sampler_.emplace(options.sampling, ends_, banned_);
    if (options.step_graphs && options.beam == 1 && !options.shortlist && pads_rows_)
      graphs_ = options.step_graphs;
  }

  // Decodes `slots` together; hands each result to done(slot, hypotheses). The slots of sentence i
  // of `sources` begin in row i, the row of its prompt.
  template <class Done>
  void decode(std::span<const std::vector<int32_t>* const> sources, std::vector<Slot> slots,
              Done&& done) {
    slots_ = std::move(slots);
    rows_ = static_cast<int64_t>(sources.size());
    placed_ = false;
    std::vector<std::vector<int32_t>> prompts;
    int64_t longest = 0;
    for (const std::vector<int32_t>* source : sources) {
      prompts.push_back(prompt_of(model_.spec(), options_, *source));
      longest = std::max(longest, static_cast<int64_t>(prompts.back().size()));
    }
    stop_if_cancelled(options_.cancel, kSearchOrigin);
    const int64_t first_capacity = std::min(capacity_limit(), longest + kFirstCapacity);
    DecodeState state = model_.start_decoding(
        context_, pack_sources(context_, model_.spec(), sources), first_capacity,
        graphs_ ? graphs_->storage(rows_ * first_capacity) : Tensor());
    if (graphs_) graphs_->adopt(state);
    use_shortlist(state, sources);
    // Sources and special tokens have been validated, top_k returns tokens, and every slot ends
    // before the positions do.
    state.indices_validated = true;
    Answer answer = answer_of(model_.prefill(context_, state, prompts));
    for (;;) {
      const std::vector<int32_t> parents = advance(answer, done);
      if (slots_.empty()) return;
      if (!parents.empty()) reorder(context_, state, parents);
      stop_if_cancelled(options_.cancel, kSearchOrigin);
      const int64_t capacity = state.cache.capacity();
      if (state.cache.longest() == capacity)
        state.cache.grow(context_, std::min(capacity_limit(), 2 * capacity));
      answer = answer_of(next_logits(state));
    }
  }

 private:
  // The model's output for the next token of every row: logits for a sampler, or the scores of the
  // best tokens. While a prefix is forced, the log-probability of its token, by slot.
  struct Answer {
    Tensor logits;
    Scores scores;
    std::vector<double> forced;
  };
  // Appends the last token of each row.
  Tensor next_logits(DecodeState& state) const {
    const std::vector<int32_t> ids = last_tokens();
    if (!graphs_)
      return model_.decode_step(context_, state,
                                context_.from_values<int32_t>(ids, {state.rows()}));
    graphs_->adopt(state);
    return graphs_->step(state, ids, std::vector<int32_t>(ids.size(), 1));
  }
  Answer answer_of(Tensor logits) const {
    if (processor_.active()) logits = process(logits);
    std::vector<double> forced = forced_scores(logits);
    if (sampler_) return {std::move(logits), {}, std::move(forced)};
    return {{}, best_tokens(logits), std::move(forced)};
  }

  // The log-probabilities of the next tokens of prefixes, by slot; nothing if there is no such
  // token. They are the model's: rules for repetition do not apply to given tokens.
  std::vector<double> forced_scores(const Tensor& logits) const {
    std::vector<int32_t> labels;
    for (const Slot& slot : slots_)
      if (const auto token = slot.forced()) {
        labels.resize(static_cast<size_t>(logits.dim(0)), kIgnoreLabel);
        labels[static_cast<size_t>(slot.row)] = column_of(*token);
      }
    if (labels.empty()) return {};
    ops::CrossEntropyOptions cross_entropy;
    cross_entropy.ignore_label = kIgnoreLabel;
    cross_entropy.reduction = Reduction::none;
    const double temperature = options_.sampling.on ? options_.sampling.temperature : 1;
    const Tensor scaled = temperature == 1 ? logits : ops::scale(context_, logits, 1 / temperature);
    const Tensor on_device = context_.from_values<int32_t>(labels, {logits.dim(0)});
    const std::vector<double> nll =
        to_doubles(context_, ops::cross_entropy(context_, scaled, on_device, cross_entropy).nll);
    std::vector<double> scores;
    for (const Slot& slot : slots_) scores.push_back(-nll[static_cast<size_t>(slot.row)]);
    return scores;
  }

  Tensor process(const Tensor& logits) const {
    std::vector<LogitsProcessor::Row> rows;
    for (const Slot& slot : slots_) {
      if (slot.forced()) continue;
      for (size_t i = 0; i < slot.search.live().size(); ++i) {
        std::vector<int32_t> text(slot.text.begin(), slot.text.end());
        const std::vector<int32_t>& tokens = slot.search.live()[i].tokens;
        text.insert(text.end(), tokens.begin(), tokens.end());
        rows.push_back({slot.row + static_cast<int64_t>(i), std::move(text),
                        slot.text.size() + slot.prefix.size()});
      }
    }
    return processor_.process(context_, logits, rows, shortlist_);
  }

  int64_t capacity_limit() const {
    int64_t limit = 0;
    for (const Slot& slot : slots_) limit = std::max(limit, slot.positions);
    return limit;
  }

  // The last token of the hypothesis in each row; eos in an empty row.
  std::vector<int32_t> last_tokens() const {
    std::vector<int32_t> ids(static_cast<size_t>(rows_), options_.tokens.eos);
    for (const Slot& slot : slots_) {
      auto row = static_cast<size_t>(slot.row);
      for (const BeamSearch::Live& live : slot.search.live()) ids[row++] = live.tokens.back();
    }
    return ids;
  }

  Scores best_tokens(const Tensor& logits) const {
    const ops::TopK top =
        ops::top_k(context_, logits, k_, options_.shortlist ? banned_columns_ : banned_);
    Scores scores;
    scores.ids = context_.values<int32_t>(top.ids);
    for (int32_t& id : scores.ids) id = token_of(id);
    scores.values = to_doubles(context_, top.log_probabilities);
    return scores;
  }

  void collect_forced(const Slot& slot, int32_t token, double score) {
    require(std::isfinite(score), ErrorCode::non_finite, kSearchOrigin, "the model gives token ",
            slot.search.live()[0].tokens.size() + 1, " of the prefix of sentence ",
            slot.sentence + 1, " the log-probability ", score);
    candidates_ = {{slot.search.live()[0].log_probability + score, 0, token}};
  }

  void collect(const Slot& slot, const Scores& scores) {
    candidates_.clear();
    const auto& live = slot.search.live();
    for (size_t i = 0; i < live.size(); ++i) {
      const size_t begin = static_cast<size_t>(slot.row * k_) + i * static_cast<size_t>(k_);
      for (size_t j = begin; j < begin + static_cast<size_t>(k_); ++j) {
        require(!std::isnan(scores.values[j]), ErrorCode::non_finite, kSearchOrigin,
                "the model answers sentence ", slot.sentence + 1, " with NaN or infinity behind ",
                live[i].tokens.size(), " tokens");
        if (scores.values[j] == -std::numeric_limits<double>::infinity()) break;
        candidates_.push_back(
            {live[i].log_probability + scores.values[j], static_cast<int32_t>(i), scores.ids[j]});
      }
    }
  }

  // Restricts the logits of this batch to the tokens of shortlist_. Banned tokens that are on the
  // list keep their share of the probability, as they do without a list.
  void use_shortlist(DecodeState& state, std::span<const std::vector<int32_t>* const> sources) {
    if (!options_.shortlist) return;
    std::vector<int32_t> tokens;
    for (const std::vector<int32_t>* source : sources)
      tokens.insert(tokens.end(), source->begin(), source->end());
    shortlist_ = options_.shortlist(tokens);
    shortlist_.insert(shortlist_.end(), ends_.begin(), ends_.end());
    for (const Slot& slot : slots_)
      shortlist_.insert(shortlist_.end(), slot.prefix.begin(), slot.prefix.end());
    const int64_t vocabulary = model_.spec().vocabulary;
    std::erase_if(shortlist_, [&](int32_t id) { return id < 0 || id >= vocabulary; });
    std::sort(shortlist_.begin(), shortlist_.end());
    shortlist_.erase(std::unique(shortlist_.begin(), shortlist_.end()), shortlist_.end());
    restrict_output(context_, state, shortlist_);
    banned_columns_.clear();
    for (const int32_t token : banned_)
      if (column_of(token) >= 0) banned_columns_.push_back(column_of(token));
    k_ = std::min(options_.beam + static_cast<int64_t>(ends_.size()),
                  static_cast<int64_t>(shortlist_.size() - banned_columns_.size()));
    std::vector<int32_t> end_columns;
    for (const int32_t token : ends_) end_columns.push_back(column_of(token));
    if (sampler_) sampler_.emplace(options_.sampling, end_columns, banned_columns_);
  }
  int32_t token_of(int32_t column) const {
    return options_.shortlist && column >= 0 ? shortlist_[static_cast<size_t>(column)] : column;
  }
  // Of the logits; -1: the token is not on the shortlist.
  int32_t column_of(int32_t token) const {
    if (!options_.shortlist) return token;
    const auto found = std::lower_bound(shortlist_.begin(), shortlist_.end(), token);
    return found != shortlist_.end() && *found == token
               ? static_cast<int32_t>(found - shortlist_.begin())
               : -1;
  }

  // A draw for each slot that is not within a prefix. A slot that samples has one hypothesis.
  std::vector<Sampler::Draw> draw_tokens(const Tensor& logits) {
    std::vector<Sampler::Place> places;
    for (const Slot& slot : slots_) {
      if (slot.forced()) continue;
      const auto drawn = static_cast<int32_t>(slot.search.live()[0].tokens.size());
      const auto prefix = static_cast<int64_t>(slot.prefix.size());
      places.push_back(
          {slot.row, slot.sentence, slot.sample, drawn, drawn - prefix >= options_.min_length});
    }
    return places.empty() ? std::vector<Sampler::Draw>{} : sampler_->draw(context_, logits, places);
  }

  // Gives the live hypotheses their rows for the next step. Returns the row that each continues;
  // empty if all stay where they are.
  std::vector<int32_t> place() {
    int64_t hypotheses = 0;
    for (const Slot& slot : slots_) hypotheses += static_cast<int64_t>(slot.search.live().size());
    const int64_t rows = pads_rows_ ? padded_rows(hypotheses) : hypotheses;
    // Greedy: the rows of finished sentences stay until fewer rows will do.
    if (options_.beam == 1 && rows == rows_ && placed_) return {};
    std::vector<int32_t> parents;
    for (Slot& slot : slots_) {
      const int64_t row = static_cast<int64_t>(parents.size());
      for (const BeamSearch::Live& live : slot.search.live())
        parents.push_back(static_cast<int32_t>(slot.row + live.parent));
      slot.row = row;
    }
    parents.resize(static_cast<size_t>(rows), -1);
    rows_ = rows;
    placed_ = true;
    return parents;
  }

  // Chooses the next tokens of every slot; finished slots leave slots_. Returns the row that each
  // new row continues; empty if all stay where they are.
  template <class Done>
  std::vector<int32_t> advance(const Answer& answer, Done&& done) {
    const std::vector<Sampler::Draw> draws =
        sampler_ ? draw_tokens(answer.logits) : std::vector<Sampler::Draw>{};
    size_t next_draw = 0, left = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (const auto token = slot.forced()) {
        collect_forced(slot, *token, answer.forced[i]);
      } else if (sampler_) {
        const Sampler::Draw& draw = draws[next_draw++];
        candidates_.clear();
        if (draw.token >= 0)
          candidates_.push_back({slot.search.live()[0].log_probability + draw.log_probability, 0,
                                 token_of(draw.token)});
      } else {
        collect(slot, answer.scores);
      }
      slot.search.advance(candidates_);
      if (slot.search.done()) {
        done(slot, slot.search.results());
        continue;
      }
      if (left < i) slots_[left] = std::move(slot);
      ++left;
    }
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(left), slots_.end());
    return slots_.empty() ? std::vector<int32_t>{} : place();
  }

  Context& context_;
  const Model& model_;
  const DecodeOptions& options_;
  std::vector<int32_t> ends_, banned_;
  std::vector<int32_t> shortlist_, banned_columns_;
  std::optional<Sampler> sampler_;
  LogitsProcessor processor_;
  StepGraphs* graphs_ = nullptr;  // null: steps are launched kernel by kernel
  int64_t k_;  // expansions of a hypothesis: the ends and `beam` other tokens suffice
  bool pads_rows_;
  std::vector<Slot> slots_;
  int64_t rows_ = 0;     // of the logits and the cache
  bool placed_ = false;  // every live hypothesis has a separate row
  std::vector<BeamSearch::Candidate> candidates_;
};

}  // namespace trafo
