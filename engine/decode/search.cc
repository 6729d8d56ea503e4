#include "engine/decode/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/decode/decode_options_fields.generated.h"
#include "engine/decode/packing.h"
#include "engine/decode/sampler.h"
#include "engine/ops/top_k/top_k.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "translate";
// Capacity of a cache row after its prompt, in tokens, before the cache first grows.
constexpr int64_t kFirstCapacity = 32;

void check(const ModelConfig& config, const DecodeOptions& options) {
  const auto check_range = [](bool good, const char* what, auto value, const char* range) {
    require(good, ErrorCode::invalid_argument, kOrigin, what, " must be ", range, ", got ", value);
  };
  for_each_field_of_decoding(options, [](const OptionField& field, const auto& value) {
    check_option(kOrigin, field, value);
  });
  check_range(options.sampling.on || options.n_best <= options.beam, "n_best", options.n_best,
              "1 to the beam");
  check_range(options.max_length >= 1, "max_length", options.max_length, "1 or more");
  check_range(std::isfinite(options.max_length_factor) && options.max_length_factor >= 0,
              "max_length_factor", options.max_length_factor, "0 or more");
  check_range(options.max_length_extra >= 1, "max_length_extra", options.max_length_extra,
              "1 or more");
  const SpecialTokens& tokens = options.tokens;
  check_range(tokens.eos >= 0 && tokens.eos < config.vocabulary, "eos", tokens.eos,
              "a token of the vocabulary");
  if (config.has_encoder())
    check_range(tokens.bos >= 0 && tokens.bos < config.vocabulary, "bos", tokens.bos,
                "a token of the vocabulary");
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
  return config.has_encoder() ? std::vector<int32_t>{options.tokens.bos} : source;
}

// The log-probabilities of one step on the host, [rows, k].
struct Scores {
  std::vector<double> values;
  std::vector<int32_t> ids;
};

class BatchDecoder {
 public:
  BatchDecoder(Context& context, const Model& model, const DecodeOptions& options)
      : context_(context), model_(model), options_(options) {
    const SpecialTokens& tokens = options.tokens;
    for (const int32_t id : {tokens.pad, tokens.bos, options.allow_unk ? -1 : tokens.unk})
      if (id >= 0 && id < model.config().vocabulary && id != tokens.eos &&
          std::find(banned_.begin(), banned_.end(), id) == banned_.end())
        banned_.push_back(id);
    k_ = std::min(options.beam + 1,
                  model.config().vocabulary - static_cast<int64_t>(banned_.size()));
    if (options.sampling.on) sampler_.emplace(options.sampling, tokens.eos, banned_);
  }

  // Decodes `slots` together; hands each result to done(slot, hypotheses). The slots of sentence i
  // of `sources` begin in row i, the row of its prompt.
  template <class Done>
  void decode(std::span<const std::vector<int32_t>* const> sources, std::vector<Slot> slots,
              Done&& done) {
    slots_ = std::move(slots);
    std::vector<std::vector<int32_t>> prompts;
    int64_t longest = 0;
    for (const std::vector<int32_t>* source : sources) {
      prompts.push_back(prompt_of(model_.config(), options_, *source));
      longest = std::max(longest, static_cast<int64_t>(prompts.back().size()));
    }
    check_cancelled();
    DecodeState state =
        model_.start_decoding(context_, pack_sources(context_, model_.config(), sources),
                              std::min(capacity_limit(), longest + kFirstCapacity));
    use_shortlist(state, sources);
    // Sources and special tokens have been validated, top_k returns tokens, and every slot ends
    // before the positions do.
    state.indices_validated = true;
    Tensor logits = model_.prefill(context_, state, prompts);
    for (;;) {
      const std::vector<int32_t> parents = advance(logits, done);
      if (slots_.empty()) return;
      reorder(context_, state, parents);
      check_cancelled();
      const int64_t capacity = state.cache.capacity();
      if (state.cache.longest() == capacity)
        state.cache.grow(context_, std::min(capacity_limit(), 2 * capacity));
      logits = model_.decode_step(context_, state,
                                  context_.from_values<int32_t>(last_tokens(), {state.rows()}));
    }
  }

 private:
  void check_cancelled() const {
    require(!(options_.cancelled && options_.cancelled()), ErrorCode::cancelled, kOrigin,
            "cancelled by the caller");
  }

  int64_t capacity_limit() const {
    int64_t limit = 0;
    for (const Slot& slot : slots_) limit = std::max(limit, slot.positions);
    return limit;
  }

  // The last token of every live hypothesis, in the order of the rows.
  std::vector<int32_t> last_tokens() const {
    std::vector<int32_t> ids;
    for (const Slot& slot : slots_)
      for (const BeamSearch::Live& live : slot.search.live()) ids.push_back(live.tokens.back());
    return ids;
  }

  Scores best_tokens(const Tensor& logits) {
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
        require(!std::isnan(scores.values[j]), ErrorCode::non_finite, kOrigin,
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
    shortlist_.push_back(options_.tokens.eos);
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
    k_ = std::min(options_.beam + 1,
                  static_cast<int64_t>(shortlist_.size() - banned_columns_.size()));
    if (sampler_)
      sampler_.emplace(options_.sampling, column_of(options_.tokens.eos), banned_columns_);
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

  // Chooses the next tokens of every slot; finished slots leave slots_. Returns the row that each
  // new row continues.
  template <class Done>
  std::vector<int32_t> advance(const Tensor& logits, Done&& done) {
    const Scores scores = sampler_ ? Scores{} : best_tokens(logits);
    const std::vector<Sampler::Draw> draws =
        sampler_ ? draw_tokens(logits) : std::vector<Sampler::Draw>{};
    size_t next_draw = 0;
    std::vector<int32_t> parents;
    std::vector<Slot> left;
    for (Slot& slot : slots_) {
      if (sampler_) {
        const Sampler::Draw& draw = draws[next_draw++];
        candidates_ = {{slot.search.live()[0].log_probability + draw.log_probability, 0,
                        token_of(draw.token)}};
      } else {
        collect(slot, scores);
      }
      slot.search.advance(candidates_);
      if (slot.search.done()) {
        done(slot, slot.search.results());
        continue;
      }
      const int64_t row = static_cast<int64_t>(parents.size());
      for (const BeamSearch::Live& live : slot.search.live())
        parents.push_back(static_cast<int32_t>(slot.row + live.parent));
      slot.row = row;
      left.push_back(std::move(slot));
    }
    slots_ = std::move(left);
    return parents;
  }

  Context& context_;
  const Model& model_;
  const DecodeOptions& options_;
  std::vector<int32_t> banned_;
  std::vector<int32_t> shortlist_, banned_columns_;
  std::optional<Sampler> sampler_;
  int64_t k_;  // expansions of a hypothesis: eos and `beam` other tokens suffice
  std::vector<Slot> slots_;
  std::vector<BeamSearch::Candidate> candidates_;
};

void check_source(const ModelConfig& config, const DecodeOptions& options,
                  const std::vector<int32_t>& source, int64_t number) {
  require(source.back() == options.tokens.eos, ErrorCode::invalid_argument, kOrigin, "sentence ",
          number, " must end with eos, token ", options.tokens.eos, "; its last token is ",
          source.back());
  for (const int32_t id : source)
    require(id >= 0 && id < config.vocabulary, ErrorCode::invalid_argument, kOrigin, "sentence ",
            number, " has token ", id, ", the vocabulary has 0 to ", config.vocabulary - 1);
  const int64_t limit = longest_source(config);
  const int64_t size = static_cast<int64_t>(source.size());
  require(size <= limit, ErrorCode::invalid_argument, kOrigin, "sentence ", number, " has ", size,
          " tokens, the model takes at most ", limit);
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

}  // namespace

int64_t longest_source(const ModelConfig& config) {
  return config.has_encoder() ? config.max_positions
                              : std::max<int64_t>(1, config.max_positions / 2);
}

std::shared_ptr<const PackedWeights> pack_for_decoding(Context& context, const Model& model) {
  const ParameterStore& parameters = model.parameters();
  ThreadPool* pool = cpu_thread_pool(context.backend());
  if (pool == nullptr || parameters.dtype() != DType::f32) return nullptr;
  auto packed = std::make_shared<PackedWeights>();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (parameters.is_int8(id)) continue;  // laid out already
    const Tensor& weight = parameters.value(id);
    const std::string& name = parameters.name(id);
    const bool table = name.starts_with("positions.") || name.starts_with("source_embedding.") ||
                       (name.starts_with("embedding.") && !model.config().tied_embeddings);
    if (weight.rank() == 2 && !table)
      packed->add(*pool, weight.data<float>(), weight.dim(0), weight.dim(1));
  }
  return packed;
}

std::vector<std::vector<Hypothesis>> translate_tokens(Context& context, const Model& model,
                                                      std::span<const std::vector<int32_t>> sources,
                                                      const DecodeOptions& wanted) {
  const ModelConfig& config = model.config();
  check(config, wanted);
  DecodeOptions options = wanted;
  const int64_t samples = samples_of(options);
  if (options.sampling.on) options.beam = options.n_best = 1;
  const NoGrad no_grad(context);
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<int64_t> items;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<int32_t>& source = sources[i];
    results[i].resize(static_cast<size_t>(samples));
    if (source.empty() || (source.size() == 1 && source[0] == options.tokens.eos)) continue;
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
  for (const std::vector<int64_t>& group : group_by_length(items, budget, tokens_of)) {
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
  return results;
}

}  // namespace trafo
