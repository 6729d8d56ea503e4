#include "engine/decode/search.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/decode/alignment.h"
#include "engine/decode/batch_decoder.h"
#include "engine/decode/generated/decode_options_fields.h"

namespace trafo {
namespace {

void check_source(const ModelSpec& spec, const DecodeOptions& options,
                  const std::vector<int32_t>& source, int64_t number) {
  require(source.back() == options.tokens.eos || !options.end_source, ErrorCode::invalid_argument,
          kSearchOrigin, "sentence ", number, " must end with eos, token ", options.tokens.eos,
          ", unless end_source is off; its last token is ", source.back());
  for (const int32_t id : source)
    require(id >= 0 && id < spec.source_vocabulary(), ErrorCode::invalid_argument, kSearchOrigin,
            "sentence ", number, " has token ", id, ", the vocabulary has 0 to ",
            spec.source_vocabulary() - 1);
  const int64_t limit = longest_source(spec, options.max_length);
  const int64_t size = static_cast<int64_t>(source.size());
  const std::string room =
      spec.has_encoder() ? std::string()
                         : concat(" and has positions for translations of ", options.max_length);
  require(size <= limit, ErrorCode::invalid_argument, kSearchOrigin, "sentence ", number, " has ",
          size, " tokens, the model takes at most ", limit, room);
}

bool is_empty(const DecodeOptions& options, const std::vector<int32_t>& source) {
  return source.empty() ||
         (options.end_source && source.size() == 1 && source[0] == options.tokens.eos);
}

std::span<const int32_t> prefix_of(const DecodeOptions& options, size_t sentence) {
  if (options.prefixes.empty()) return {};
  return options.prefixes[sentence];
}

void check_prefix(const ModelSpec& spec, const DecodeOptions& options,
                  const std::vector<int32_t>& source, std::span<const int32_t> prefix,
                  int64_t number) {
  if (prefix.empty()) return;
  require(!is_empty(options, source), ErrorCode::invalid_argument, kSearchOrigin, "sentence ",
          number, " has a prefix, but is empty");
  for (const int32_t id : prefix) {
    require(id >= 0 && id < spec.vocabulary, ErrorCode::invalid_argument, kSearchOrigin,
            "the prefix of sentence ", number, " has token ", id, ", the vocabulary has 0 to ",
            spec.vocabulary - 1);
    require(id != options.tokens.eos &&
                std::find(options.more_ends.begin(), options.more_ends.end(), id) ==
                    options.more_ends.end(),
            ErrorCode::invalid_argument, kSearchOrigin, "the prefix of sentence ", number,
            " has token ", id, ", which ends a translation");
  }
  const auto prompt = static_cast<int64_t>(prompt_of(spec, options, source).size());
  const auto size = static_cast<int64_t>(prefix.size());
  require(prompt + size <= spec.max_positions, ErrorCode::invalid_argument, kSearchOrigin,
          "the prefix of sentence ", number, " has ", size, " tokens, the model has positions for ",
          std::max<int64_t>(0, spec.max_positions - prompt));
}

// Each sample of a sentence is decoded as a separate sentence.
int64_t samples_of(const DecodeOptions& options) {
  return options.sampling.on ? options.n_best : 1;
}

// The slot of item `sentence * samples + sample`, whose prompt is in row `row`.
Slot make_slot(const ModelSpec& spec, const DecodeOptions& options, int64_t samples,
               const std::vector<int32_t>& source, int64_t item, int64_t row) {
  const int64_t size = static_cast<int64_t>(source.size());
  const std::span<const int32_t> prefix = prefix_of(options, static_cast<size_t>(item / samples));
  const auto given = static_cast<int64_t>(prefix.size());
  const int64_t prompt = static_cast<int64_t>(prompt_of(spec, options, source).size());
  // The last token of a hypothesis is never fed.
  const int64_t room = spec.max_positions - prompt + 1;
  const double wanted = options.max_length_factor * static_cast<double>(size) +
                        static_cast<double>(options.max_length_extra);
  const double steps = std::min(
      {wanted, static_cast<double>(options.max_length), static_cast<double>(room - given)});
  const int64_t max_steps = given + std::max<int64_t>(1, static_cast<int64_t>(steps));
  const std::span<const int32_t> text =
      options.end_source ? std::span<const int32_t>() : std::span<const int32_t>(source);
  return {item / samples,
          static_cast<int32_t>(item % samples),
          row,
          BeamSearch(options, max_steps, given + options.min_length),
          prompt + max_steps - 1,
          prefix,
          text};
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
  align_options.cancel = options.cancel;
  std::vector<Alignment> alignments = align(context, model, pairs, align_options);
  for (size_t i = 0; i < aligned.size(); ++i) aligned[i]->alignment = std::move(alignments[i]);
}

}  // namespace

void check_options(const ModelSpec& spec, const DecodeOptions& options) {
  require_generation(spec, kSearchOrigin);
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
  if (options.alignment) check_alignment(spec, options.alignment_layer);
  const SpecialTokens& tokens = options.tokens;
  check_range(tokens.eos >= 0 && tokens.eos < spec.vocabulary, "eos", tokens.eos,
              "a token of the vocabulary");
  for (const int32_t end : options.more_ends)
    check_range(end >= 0 && end < spec.vocabulary, "more_ends", end, "tokens of the vocabulary");
  check_range(options.end_source || !spec.has_encoder(), "end_source", 0,
              "1 for a model with an encoder");
  if (spec.has_encoder())
    check_range(tokens.start() >= 0 && tokens.start() < spec.vocabulary, "bos", tokens.start(),
                "a token of the vocabulary");
}

int64_t longest_source(const ModelSpec& spec, int64_t max_length) {
  if (spec.has_encoder()) return spec.max_positions;
  const int64_t half = std::max<int64_t>(1, spec.max_positions / 2);
  return std::max(half, spec.max_positions - std::min(max_length, spec.max_positions));
}

std::shared_ptr<const PackedWeights> pack_for_decoding(Context& context, const Model& model,
                                                       std::shared_ptr<const PackedWeights> base) {
  const ParameterStore& parameters = model.parameters();
  ThreadPool* pool = cpu_thread_pool(context.backend());
  if (pool == nullptr || parameters.dtype() != DType::f32) return nullptr;
  const bool has_base = base != nullptr;
  auto packed = std::make_shared<PackedWeights>(std::move(base));
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (parameters.is_int8(id) || parameters.is_coded(id)) continue;  // laid out already
    if (has_base && parameters.is_shared(id)) continue;
    const Tensor& weight = parameters.value(id);
    const std::vector<Part>& rows = parameters.parts(id).rows;  // none: of an adapter
    const Role role = rows.empty() ? Role::norm : rows.front().role;
    const bool table = role == Role::positions || role == Role::distance_bias ||
                       (role == Role::embedding && !model.spec().output.tied);
    if (weight.rank() == 2 && !table)
      packed->add(*pool, weight.data<float>(), weight.dim(0), weight.dim(1));
  }
  return packed;
}

std::vector<std::vector<Hypothesis>> translate_tokens(Context& context, const Model& model,
                                                      std::span<const std::vector<int32_t>> sources,
                                                      const DecodeOptions& wanted) {
  const ModelSpec& spec = model.spec();
  check_options(spec, wanted);
  require(wanted.prefixes.empty() || wanted.prefixes.size() == sources.size(),
          ErrorCode::invalid_argument, kSearchOrigin, "there are ", wanted.prefixes.size(),
          " prefixes for ", sources.size(), " sentences");
  DecodeOptions options = wanted;
  const int64_t samples = samples_of(options);
  if (options.sampling.on) options.beam = options.n_best = 1;
  const NoGrad no_grad(context);
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<int64_t> items;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<int32_t>& source = sources[i];
    results[i].resize(static_cast<size_t>(samples));
    const int64_t sentence = static_cast<int64_t>(i);
    check_prefix(spec, options, source, prefix_of(options, i), sentence + 1);
    if (is_empty(options, source)) continue;
    check_source(spec, options, source, sentence + 1);
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
  WorkProgress progress(Work::translate, std::ssize(items));
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
      slots.push_back(
          make_slot(spec, options, samples, source, item, static_cast<int64_t>(inputs.size()) - 1));
    }
    decoder.decode(inputs, std::move(slots), [&](const Slot& slot, std::vector<Hypothesis> best) {
      std::vector<Hypothesis>& result = results[static_cast<size_t>(slot.sentence)];
      if (options.sampling.on)
        result[static_cast<size_t>(slot.sample)] = std::move(best[0]);
      else
        result = std::move(best);
    });
    progress.add(std::ssize(group));
  }
  progress.finish();
  if (options.alignment) align_hypotheses(context, model, sources, options, results);
  return results;
}

}  // namespace trafo
