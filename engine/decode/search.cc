#include "engine/decode/search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/decode/alignment.h"
#include "engine/decode/decode_options_fields.generated.h"
#include "engine/decode/packing.h"
#include "engine/decode/sampler.h"
#include "engine/decode/step_graphs.h"
#include "engine/ops/top_k/top_k.h"

namespace trafo {
namespace {

constexpr const char* kSearchOrigin = "translate";
// Capacity of a cache row after its prompt, in tokens, before the cache first grows.
constexpr int64_t kFirstCapacity = 32;

// The rows that `live` hypotheses are decoded in on an accelerator: eight sizes for every doubling.
// A library of GEMMs chooses a kernel anew for every number of rows, which takes longer than the
// rows that nobody needs.
int64_t padded_rows(int64_t live) {
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
  int64_t positions;  // largest number of tokens that a row of it holds
};

// The tokens that the decoder reads before it chooses the first one.
std::vector<int32_t> prompt_of(const ModelConfig& config, const DecodeOptions& options,
                               const std::vector<int32_t>& source) {
  return config.has_encoder() ? std::vector<int32_t>{options.tokens.start()} : source;
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
        pads_rows_(model.config().has_encoder() &&
                   options.pad_rows.value_or(context.backend().stream_device() != nullptr)) {
    const SpecialTokens& tokens = options.tokens;
    ends_ = options.more_ends;
    ends_.push_back(tokens.eos);
    const int32_t bos = options.allow_bos ? -1 : tokens.bos;
    for (const int32_t id : {tokens.pad, bos, options.allow_unk ? -1 : tokens.unk})
      if (id >= 0 && id < model.config().vocabulary &&
          std::find(ends_.begin(), ends_.end(), id) == ends_.end() &&
          std::find(banned_.begin(), banned_.end(), id) == banned_.end())
        banned_.push_back(id);
    k_ = std::min(options.beam + static_cast<int64_t>(ends_.size()),
                  model.config().vocabulary - static_cast<int64_t>(banned_.size()));
    if (options.sampling.on) sampler_.emplace(options.sampling, ends_, banned_);
    if (options.step_graphs && options.beam == 1 && !sampler_ && !options.shortlist && pads_rows_)
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
      prompts.push_back(prompt_of(model_.config(), options_, *source));
      longest = std::max(longest, static_cast<int64_t>(prompts.back().size()));
    }
    check_cancelled();
    const int64_t first_capacity = std::min(capacity_limit(), longest + kFirstCapacity);
    DecodeState state = model_.start_decoding(
        context_, pack_sources(context_, model_.config(), sources), first_capacity,
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
      check_cancelled();
      const int64_t capacity = state.cache.capacity();
      if (state.cache.longest() == capacity)
        state.cache.grow(context_, std::min(capacity_limit(), 2 * capacity));
      if (graphs_) {
        graphs_->adopt(state);
        StepGraphs::Best best = graphs_->step(state, last_tokens(), k_, banned_);
        answer.scores.ids = std::move(best.ids);
        answer.scores.values.assign(best.log_probabilities.begin(), best.log_probabilities.end());
        continue;
      }
      answer = answer_of(model_.decode_step(
          context_, state, context_.from_values<int32_t>(last_tokens(), {state.rows()})));
    }
  }

 private:
  // What the model says about the next token of every row: logits for a sampler, or the scores of
  // the best tokens.
  struct Answer {
    Tensor logits;
    Scores scores;
  };
  Answer answer_of(Tensor logits) const {
    if (sampler_) return {std::move(logits), {}};
    return {{}, best_tokens(logits)};
  }

  void check_cancelled() const {
    require(!(options_.cancelled && options_.cancelled()), ErrorCode::cancelled, kSearchOrigin,
            "cancelled by the caller");
  }

  int64_t capacity_limit() const {
    int64_t limit = 0;
    for (const Slot& slot : slots_) limit = std::max(limit, slot.positions);
    return limit;
  }

  // The last token of the hypothesis in each row; eos where there is none.
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
    const int64_t vocabulary = model_.config().vocabulary;
    std::erase_if(shortlist_, [&](int32_t id) { return id < 0 || id >= vocabulary; });
    std::sort(shortlist_.begin(), shortlist_.end());
    shortlist_.erase(std::unique(shortlist_.begin(), shortlist_.end()), shortlist_.end());
    restrict_output(context_, state, shortlist_);
    const auto column_of = [&](int32_t token) {
      const auto found = std::lower_bound(shortlist_.begin(), shortlist_.end(), token);
      return found != shortlist_.end() && *found == token
                 ? static_cast<int32_t>(found - shortlist_.begin())
                 : -1;
    };
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
    return options_.shortlist ? shortlist_[static_cast<size_t>(column)] : column;
  }

  // A slot that samples has one hypothesis.
  std::vector<Sampler::Draw> draw_tokens(const Tensor& logits) {
    std::vector<Sampler::Place> places;
    for (const Slot& slot : slots_) {
      const auto drawn = static_cast<int32_t>(slot.search.live()[0].tokens.size());
      places.push_back({slot.row, slot.sentence, slot.sample, drawn, drawn >= options_.min_length});
    }
    return sampler_->draw(context_, logits, places);
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
      if (sampler_) {
        const Sampler::Draw& draw = draws[next_draw++];
        candidates_ = {{slot.search.live()[0].log_probability + draw.log_probability, 0,
                        token_of(draw.token)}};
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
  StepGraphs* graphs_ = nullptr;  // null: steps are launched kernel by kernel
  int64_t k_;  // expansions of a hypothesis: the ends and `beam` other tokens suffice
  bool pads_rows_;
  std::vector<Slot> slots_;
  int64_t rows_ = 0;     // of the logits and the cache
  bool placed_ = false;  // every live hypothesis has a row of its own
  std::vector<BeamSearch::Candidate> candidates_;
};

void check_source(const ModelConfig& config, const DecodeOptions& options,
                  const std::vector<int32_t>& source, int64_t number) {
  require(source.back() == options.tokens.eos || !options.end_source, ErrorCode::invalid_argument,
          kSearchOrigin, "sentence ", number, " must end with eos, token ", options.tokens.eos,
          "; its last token is ", source.back());
  for (const int32_t id : source)
    require(id >= 0 && id < config.vocabulary, ErrorCode::invalid_argument, kSearchOrigin,
            "sentence ", number, " has token ", id, ", the vocabulary has 0 to ",
            config.vocabulary - 1);
  const int64_t limit = longest_source(config, options.max_length);
  const int64_t size = static_cast<int64_t>(source.size());
  const std::string room =
      config.has_encoder() ? std::string()
                           : concat(" and has positions for translations of ", options.max_length);
  require(size <= limit, ErrorCode::invalid_argument, kSearchOrigin, "sentence ", number, " has ",
          size, " tokens, the model takes at most ", limit, room);
}

bool is_empty(const DecodeOptions& options, const std::vector<int32_t>& source) {
  return source.empty() ||
         (options.end_source && source.size() == 1 && source[0] == options.tokens.eos);
}

// Each sample of a sentence is decoded as a sentence of its own.
int64_t samples_of(const DecodeOptions& options) {
  return options.sampling.on ? options.n_best : 1;
}

// The slot of item `sentence * samples + sample`, whose prompt is in row `row`.
Slot make_slot(const ModelConfig& config, const DecodeOptions& options, int64_t samples,
               const std::vector<int32_t>& source, int64_t item, int64_t row) {
  const int64_t size = static_cast<int64_t>(source.size());
  const int64_t prompt = static_cast<int64_t>(prompt_of(config, options, source).size());
  // The last token of a hypothesis is never fed.
  const int64_t room = config.max_positions - prompt + 1;
  const double wanted = options.max_length_factor * static_cast<double>(size) +
                        static_cast<double>(options.max_length_extra);
  const double steps =
      std::min({wanted, static_cast<double>(options.max_length), static_cast<double>(room)});
  const int64_t max_steps = std::max<int64_t>(1, static_cast<int64_t>(steps));
  return {item / samples, static_cast<int32_t>(item % samples), row, BeamSearch(options, max_steps),
          prompt + max_steps - 1};
}

// Aligns every hypothesis of a source that is not empty.
void align_hypotheses(Context& context, const Model& model,
                      std::span<const std::vector<int32_t>> sources, const DecodeOptions& options,
                      std::vector<std::vector<Hypothesis>>& results) {
  std::vector<SentencePair> pairs;
  std::vector<Hypothesis*> aligned;
  for (size_t i = 0; i < sources.size(); ++i)
    for (Hypothesis& hypothesis : results[i]) {
      std::vector<int32_t> target = hypothesis.tokens;
      if (hypothesis.finished) target.push_back(options.tokens.eos);
      if (is_empty(options, sources[i]) || target.empty()) continue;
      pairs.push_back({sources[i], std::move(target)});
      aligned.push_back(&hypothesis);
    }
  AlignOptions align_options;
  align_options.layer = options.alignment_layer;
  align_options.batch_tokens = options.batch_tokens;
  align_options.tokens = options.tokens;
  align_options.cancelled = options.cancelled;
  std::vector<Alignment> alignments = align(context, model, pairs, align_options);
  for (size_t i = 0; i < aligned.size(); ++i) aligned[i]->alignment = std::move(alignments[i]);
}

}  // namespace

void check_options(const ModelConfig& config, const DecodeOptions& options) {
  const auto check_range = [](bool good, const char* what, auto value, const char* range) {
    require_argument(good, kSearchOrigin, what, " must be ", range, ", got ", value);
  };
  for_each_field_of_decoding(options, [](const OptionField& field, const auto& value) {
    check_option(kSearchOrigin, field, value);
  });
  check_range(options.sampling.on || options.n_best <= options.beam, "n_best", options.n_best,
              "1 to the beam size");
  check_range(options.max_length >= 1, "max_length", options.max_length, "1 or more");
  check_range(std::isfinite(options.max_length_factor) && options.max_length_factor >= 0,
              "max_length_factor", options.max_length_factor, "0 or more");
  check_range(options.max_length_extra >= 1, "max_length_extra", options.max_length_extra,
              "1 or more");
  if (options.alignment) check_alignment(config, options.alignment_layer);
  const SpecialTokens& tokens = options.tokens;
  check_range(tokens.eos >= 0 && tokens.eos < config.vocabulary, "eos", tokens.eos,
              "a token of the vocabulary");
  for (const int32_t end : options.more_ends)
    check_range(end >= 0 && end < config.vocabulary, "more_ends", end, "tokens of the vocabulary");
  check_range(options.end_source || !config.has_encoder(), "end_source", 0,
              "1 for a model with an encoder");
  if (config.has_encoder())
    check_range(tokens.start() >= 0 && tokens.start() < config.vocabulary, "bos", tokens.start(),
                "a token of the vocabulary");
}

int64_t longest_source(const ModelConfig& config, int64_t max_length) {
  if (config.has_encoder()) return config.max_positions;
  const int64_t half = std::max<int64_t>(1, config.max_positions / 2);
  return std::max(half, config.max_positions - std::min(max_length, config.max_positions));
}

std::shared_ptr<const PackedWeights> pack_for_decoding(Context& context, const Model& model) {
  const ParameterStore& parameters = model.parameters();
  ThreadPool* pool = cpu_thread_pool(context.backend());
  if (pool == nullptr || parameters.dtype() != DType::f32) return nullptr;
  auto packed = std::make_shared<PackedWeights>();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (parameters.is_int8(id)) continue;  // laid out already
    const Tensor& weight = parameters.value(id);
    const std::vector<Part>& rows = parameters.parts(id).rows;  // none: of an adapter
    const Role role = rows.empty() ? Role::norm : rows.front().role;
    const bool table =
        role == Role::positions || (role == Role::embedding && !model.config().tied_embeddings);
    if (weight.rank() == 2 && !table)
      packed->add(*pool, weight.data<float>(), weight.dim(0), weight.dim(1));
  }
  return packed;
}

std::vector<std::vector<Hypothesis>> translate_tokens(Context& context, const Model& model,
                                                      std::span<const std::vector<int32_t>> sources,
                                                      const DecodeOptions& wanted) {
  const ModelConfig& config = model.config();
  check_options(config, wanted);
  DecodeOptions options = wanted;
  const int64_t samples = samples_of(options);
  if (options.sampling.on) options.beam = options.n_best = 1;
  const NoGrad no_grad(context);
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<int64_t> items;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<int32_t>& source = sources[i];
    results[i].resize(static_cast<size_t>(samples));
    if (is_empty(options, source)) continue;
    const int64_t sentence = static_cast<int64_t>(i);
    check_source(config, options, source, sentence + 1);
    for (int64_t sample = 0; sample < samples; ++sample)
      items.push_back(sentence * samples + sample);
  }

  const auto tokens_of = [&](int64_t item) {
    return static_cast<int64_t>(sources[static_cast<size_t>(item / samples)].size());
  };
  // Packing the weights takes about as long as one step with many rows.
  constexpr int64_t kRowsThatPay = 16;
  std::shared_ptr<const PackedWeights> weights = options.weights;
  if (!weights && static_cast<int64_t>(items.size()) * options.beam >= kRowsThatPay)
    weights = pack_for_decoding(context, model);
  const PackedWeightsScope scope(context.backend(), weights);
  BatchDecoder decoder(context, model, options);
  const int64_t budget = std::max<int64_t>(1, options.batch_tokens / options.beam);
  int64_t number = 0;
  for (const std::vector<int64_t>& group : group_by_length(items, budget, tokens_of)) {
    if (number++ % options.parts != options.part) {
      for (const int64_t item : group) results[static_cast<size_t>(item / samples)].clear();
      continue;
    }
    // The samples of a sentence are side by side and share its prompt.
    std::vector<const std::vector<int32_t>*> inputs;
    std::vector<Slot> slots;
    for (const int64_t item : group) {
      const std::vector<int32_t>& source = sources[static_cast<size_t>(item / samples)];
      if (inputs.empty() || inputs.back() != &source) inputs.push_back(&source);
      slots.push_back(make_slot(config, options, samples, source, item,
                                static_cast<int64_t>(inputs.size()) - 1));
    }
    decoder.decode(inputs, std::move(slots), [&](const Slot& slot, std::vector<Hypothesis> best) {
      std::vector<Hypothesis>& result = results[static_cast<size_t>(slot.sentence)];
      if (options.sampling.on)
        result[static_cast<size_t>(slot.sample)] = std::move(best[0]);
      else
        result = std::move(best);
    });
  }
  if (options.alignment) align_hypotheses(context, model, sources, options, results);
  return results;
}

}  // namespace trafo
