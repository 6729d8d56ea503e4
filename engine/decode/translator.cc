#include "engine/decode/translator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/core/parallel_chunks.h"
#include "engine/decode/alignment.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kTranslatorOrigin = "translate";

// Rows of a packed batch are numbered in int32.
void check_tokens(const char* origin, int64_t tokens) {
  require(tokens <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument, origin,
          "the lines have ", tokens, " tokens, one call takes fewer than 2^31");
}

void check_shortlist(const Shortlist& list) {
  require_argument(list.first >= 0, kTranslatorOrigin, "shortlist_first",
                   " must be at least 0, got ", list.first);
  require_argument(list.best >= 0, kTranslatorOrigin, "shortlist_best", " must be at least 0, got ",
                   list.best);
}

}  // namespace

Translator::Translator(Context& context, const Model& model, Tokenizer tokenizer,
                       std::shared_ptr<const PackedWeights> weights)
    : context_(context),
      model_(model),
      tokenizer_(std::move(tokenizer)),
      weights_(std::move(weights)) {
  require_vocabulary_size(model, tokenizer_);
}

std::vector<Translation> Translator::translate(std::span<const std::string_view> lines,
                                               const TranslateOptions& options,
                                               std::span<const std::string_view> prefixes) const {
  require(prefixes.empty() || prefixes.size() == lines.size(), ErrorCode::invalid_argument,
          kTranslatorOrigin, "there are ", prefixes.size(), " prefixes for ", lines.size(),
          " lines");
  DecodeOptions decode = options.decode;
  decode.tokens = tokenizer_.special_tokens();
  decode.more_ends = tokenizer_.further_end_ids();
  decode.allow_bos = tokenizer_.bos_is_subword();
  decode.end_source = options.end_source;
  decode.weights = weights_;
  decode.all_hypotheses = options.distinct && !decode.sampling.on;
  const Shortlist& list = options.shortlist;
  check_shortlist(list);
  if (list.table != nullptr) {
    require_argument(list.first > 0 || list.best > 0, kTranslatorOrigin, "shortlist_first",
                     " and the best tokens of the shortlist are both 0: no token would be left");
    decode.shortlist = [list](std::span<const int32_t> sources) {
      return list.table->candidates(sources, list.first, list.best);
    };
  }
  const bool begins = options.begin_source;
  require_argument(!begins || (!model_.spec().has_encoder() && decode.tokens.bos >= 0),
                   kTranslatorOrigin, "begin_source",
                   " is for a decoder-lm whose vocabulary has bos");
  const int64_t limit = longest_source(model_.spec(), decode.max_length);
  std::vector<Translation> translations(lines.size());
  std::vector<std::vector<int32_t>> sources(lines.size()), begun(prefixes.size());
  // Another thread pays from some dozens of lines on.
  constexpr int64_t kChunk = 64;
  const int threads = threads_for_lines(context_);
  const auto for_lines = [&](auto&& work) {
    parallel_chunks(static_cast<int64_t>(lines.size()), kChunk, threads,
                    [&](int64_t begin, int64_t end) {
                      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
                        work(i);
                    });
  };
  for_lines([&](size_t i) {
    std::vector<int32_t>& ids = sources[i];
    ids = encode(lines[i], "", i + 1);
    if (!options.end_source) ids.pop_back();
    if (begins && !ids.empty()) ids.insert(ids.begin(), decode.tokens.bos);
    translations[i].source_tokens = static_cast<int64_t>(ids.size());
    if (options.truncate) truncate(ids, limit, options);
    translations[i].used_tokens = static_cast<int64_t>(ids.size());
    if (prefixes.empty()) return;
    begun[i] = encode(prefixes[i], "prefix, ", i + 1);
    begun[i].pop_back();
  });
  decode.prefixes = begun;
  std::vector<std::vector<Hypothesis>> found = translate_tokens(context_, model_, sources, decode);
  for_lines([&](size_t i) {
    for (Hypothesis& hypothesis : found[i]) {
      std::string text = options.end_source
                             ? tokenizer_.decode(hypothesis.tokens)
                             : tokenizer_.continuation(sources[i], hypothesis.tokens);
      translations[i].hypotheses.push_back({std::move(hypothesis), std::move(text)});
    }
    if (options.distinct) keep_distinct(translations[i], decode.n_best);
  });
  return translations;
}

// Keeps the first hypothesis of each text: of a search the best one. Subwords can spell a text in
// several ways.
void Translator::keep_distinct(Translation& translation, int64_t most) const {
  std::unordered_set<std::string> seen;
  std::erase_if(translation.hypotheses, [&](const TextHypothesis& hypothesis) {
    return static_cast<int64_t>(seen.size()) >= most || !seen.insert(hypothesis.text).second;
  });
}

std::vector<PairScore> Translator::score(std::span<const std::string_view> sources,
                                         std::span<const std::string_view> targets,
                                         ScoreOptions options) const {
  options.tokens = tokenizer_.special_tokens();
  return trafo::score(context_, model_, encode_pairs(sources, targets), options);
}

DecodeOptions Translator::forced_options(const TranslateOptions& given) const {
  DecodeOptions options = given.decode;
  options.tokens = tokenizer_.special_tokens();
  check_options(model_.spec(), options);
  check_shortlist(given.shortlist);
  return options;
}

std::vector<Translation> Translator::force_decode(std::span<const std::string_view> sources,
                                                  std::span<const std::string_view> targets,
                                                  const TranslateOptions& given) const {
  const DecodeOptions options = forced_options(given);
  std::vector<SentencePair> pairs = encode_pairs(sources, targets);
  std::vector<int64_t> tokens;
  for (SentencePair& pair : pairs) {
    tokens.push_back(static_cast<int64_t>(pair.source.size() + pair.target.size()));
    if (given.truncate) truncate(pair);
  }
  std::vector<Translation> result = forced(std::move(pairs), options, true);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].source_tokens = tokens[i];
    result[i].hypotheses[0].text = targets[i];
  }
  return result;
}

std::vector<Translation> Translator::score_text(std::span<const std::string_view> lines,
                                                const TranslateOptions& given) const {
  constexpr const char* kOrigin = "score_text";
  const ModelSpec& spec = model_.spec();
  DecodeOptions options = forced_options(given);
  require(!spec.has_encoder(), ErrorCode::unsupported, kOrigin,
          "a model with an encoder scores pairs, not plain text");
  require_argument(!given.begin_source || options.tokens.bos >= 0, kOrigin, "begin_source",
                   " needs a vocabulary with bos");
  std::vector<Translation> result(lines.size());
  std::vector<SentencePair> pairs;
  std::vector<size_t> scored;  // lines with a token to score
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids = encode(lines[i], "", i + 1);
    if (!given.end_source) ids.pop_back();
    result[i].source_tokens = static_cast<int64_t>(ids.size());
    // The last token is predicted, but not read; the one in front of the line is read.
    const auto most = static_cast<size_t>(spec.max_positions);
    if (given.truncate && ids.size() > most) {
      size_t kept = most;
      while (kept > 0 && tokenizer_.continues_character(ids[kept])) --kept;
      ids.resize(kept);
    }
    result[i].used_tokens = static_cast<int64_t>(ids.size());
    result[i].hypotheses.emplace_back().text = lines[i];
    if (ids.empty()) continue;
    const int32_t front = given.begin_source ? options.tokens.bos : options.tokens.eos;
    pairs.push_back({{front}, std::move(ids)});
    scored.push_back(i);
  }
  std::vector<Translation> found = forced(std::move(pairs), options, false);
  for (size_t i = 0; i < scored.size(); ++i) {
    TextHypothesis& hypothesis = found[i].hypotheses[0];
    hypothesis.text = lines[scored[i]];
    result[scored[i]].hypotheses[0] = std::move(hypothesis);
  }
  return result;
}

// Each target as the one hypothesis of its source, without text. `ended`: the targets end with eos.
std::vector<Translation> Translator::forced(std::vector<SentencePair> pairs,
                                            const DecodeOptions& options, bool ended) const {
  ScoreOptions score_options;
  score_options.batch_tokens = options.batch_tokens;
  score_options.tokens = options.tokens;
  score_options.ended = ended;
  score_options.cancel = options.cancel;
  std::vector<PairScore> scores = trafo::score(context_, model_, pairs, score_options);
  std::vector<Alignment> alignments(pairs.size());
  if (options.alignment) {
    AlignOptions align_options;
    align_options.layer = options.alignment_layer;
    align_options.batch_tokens = options.batch_tokens;
    align_options.tokens = options.tokens;
    align_options.cancel = options.cancel;
    alignments = align(context_, model_, pairs, align_options);
  }
  std::vector<Translation> result(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<int32_t>& target = pairs[i].target;
    TextHypothesis hypothesis;
    hypothesis.tokens.assign(target.begin(), target.end() - (ended ? 1 : 0));
    hypothesis.finished = ended;
    hypothesis.log_probability = scores[i].log_probability;
    hypothesis.score = scores[i].log_probability /
                       std::pow(static_cast<double>(target.size()), options.length_penalty);
    if (options.word_scores) hypothesis.word_scores = std::move(scores[i].word_scores);
    hypothesis.alignment = std::move(alignments[i]);
    result[i].used_tokens = static_cast<int64_t>(pairs[i].source.size() + target.size());
    result[i].hypotheses.push_back(std::move(hypothesis));
  }
  return result;
}

PackedStates Translator::states(std::span<const std::string_view> lines) const {
  constexpr const char* kOrigin = "hidden_states";
  const ModelSpec& spec = model_.spec();
  require(!lines.empty(), ErrorCode::invalid_argument, kOrigin, "there are no lines");
  std::vector<std::vector<int32_t>> texts;
  int64_t tokens = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<int32_t>& ids = texts.emplace_back(encode(lines[i], "", i + 1));
    const auto count = static_cast<int64_t>(ids.size());
    require(count <= spec.max_positions, ErrorCode::invalid_argument, kOrigin, "line ", i + 1,
            " has ", count, " tokens, the model takes at most ", spec.max_positions);
    tokens += count;
  }
  check_tokens(kOrigin, tokens);
  std::vector<const std::vector<int32_t>*> members;
  for (const std::vector<int32_t>& text : texts) members.push_back(&text);
  const Batch batch = pack_texts(context_, spec, members);
  return {model_.states(context_, batch),
          spec.has_encoder() ? batch.source_cu_seqlens : batch.target_cu_seqlens};
}

PackedLogits Translator::logits(std::span<const std::string_view> sources,
                                std::span<const std::string_view> targets) const {
  constexpr const char* kOrigin = "logits";
  require(!sources.empty(), ErrorCode::invalid_argument, kOrigin, "there are no lines");
  const std::vector<SentencePair> pairs = encode_pairs(sources, targets);
  const SpecialTokens special = tokenizer_.special_tokens();
  check_pairs(kOrigin, model_.spec(), special, pairs);
  std::vector<const SentencePair*> members;
  int64_t tokens = 0;
  for (const SentencePair& pair : pairs) {
    members.push_back(&pair);
    tokens += static_cast<int64_t>(pair.source.size() + pair.target.size());
  }
  check_tokens(kOrigin, tokens);
  const Batch batch = pack_pairs(context_, model_.spec(), special, members);
  return {model_.logits(context_, batch), batch.target_out};
}

std::vector<SentencePair> Translator::encode_pairs(
    std::span<const std::string_view> sources, std::span<const std::string_view> targets) const {
  require(sources.size() == targets.size(), ErrorCode::invalid_argument, kTranslatorOrigin,
          sources.size(), " source lines and ", targets.size(), " target lines are no pairs");
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < sources.size(); ++i)
    pairs.push_back({encode(sources[i], "source, ", i + 1), encode(targets[i], "target, ", i + 1)});
  return pairs;
}

// The tokens of a line and eos.
std::vector<int32_t> Translator::encode(std::string_view line, const char* side,
                                        size_t number) const {
  try {
    std::vector<int32_t> ids = tokenizer_.encode(line);
    ids.push_back(tokenizer_.eos_id());
    return ids;
  } catch (const Error& error) {
    fail(error.code(), kTranslatorOrigin, side, "line ", number, ": ", error.message());
  }
}

// Keeps the first tokens and eos, at most `limit` in total; without eos the last ones, and bos in
// front. A character that is spelled in byte tokens is kept whole or not at all.
void Translator::truncate(std::vector<int32_t>& ids, int64_t limit,
                          const TranslateOptions& options) const {
  if (static_cast<int64_t>(ids.size()) <= limit) return;
  auto kept = static_cast<size_t>(std::max<int64_t>(limit - 1, 0));
  if (options.end_source) {
    while (kept > 0 && tokenizer_.continues_character(ids[kept])) --kept;
    ids.resize(kept);
    ids.push_back(tokenizer_.eos_id());
    return;
  }
  if (!options.begin_source) ++kept;
  size_t first = ids.size() - kept;
  while (first < ids.size() && tokenizer_.continues_character(ids[first])) ++first;
  ids.erase(ids.begin() + (options.begin_source ? 1 : 0),
            ids.begin() + static_cast<std::ptrdiff_t>(first));
}

// Cuts a pair to the positions of the model. In a decoder_lm both sides share them: the source
// keeps those that the target leaves, and half of them at least.
void Translator::truncate(SentencePair& pair) const {
  const ModelSpec& spec = model_.spec();
  int64_t source = spec.max_positions, target = spec.max_positions;
  if (!spec.has_encoder()) {
    const int64_t both = spec.max_positions + 1;  // the last token is predicted, but not read
    const auto needed = static_cast<int64_t>(pair.target.size());
    source = std::max<int64_t>(std::max<int64_t>(1, both / 2), both - std::min(needed, both));
    target = both - std::min(source, static_cast<int64_t>(pair.source.size()));
  }
  const TranslateOptions ended;
  truncate(pair.source, std::min(source, spec.max_positions), ended);
  truncate(pair.target, std::min(target, spec.max_positions), ended);
}

}  // namespace trafo
