#include "engine/decode/translator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/parallel_chunks.h"
#include "engine/data/long_text.h"
#include "engine/decode/alignment.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kTranslatorOrigin = "translate";
constexpr TextFrame kNoFrame{.begin = false, .end = false};

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

Translator::Translator(Context& context, const Model& model, std::optional<Tokenizer> tokenizer,
                       std::shared_ptr<const PackedWeights> weights)
    : context_(context),
      model_(model),
      tokenizer_(std::move(tokenizer)),
      weights_(std::move(weights)) {
  if (!tokenizer_) return;
  require_vocabulary_size(model, *tokenizer_);
  sources_ = tokenizer_->for_sources();
}

const Tokenizer& Translator::tokenizer() const {
  require(tokenizer_.has_value(), ErrorCode::invalid_argument, kTranslatorOrigin,
          "text needs a tokenizer");
  return *tokenizer_;
}

VocabularyTokens Translator::tokens() const {
  return tokens_of(model_, tokenizer_);
}

TextFrame Translator::frame(const TranslateOptions& options) const {
  const VocabularyTokens vocabulary = tokens();
  TextFrame frame = vocabulary.frame;
  const auto choose = [](FrameToken wanted, bool& there, const char* field) {
    require_argument(is_known(wanted), kTranslatorOrigin, field,
                     " is unknown: ", static_cast<int32_t>(wanted));
    if (wanted != FrameToken::by_model) there = wanted == FrameToken::on;
  };
  choose(options.begin_source, frame.begin, "begin_source");
  choose(options.end_source, frame.end, "end_source");
  require_argument(!frame.begin || (!model_.spec().has_encoder() && vocabulary.special.bos >= 0),
                   kTranslatorOrigin, "begin_source",
                   " is for a decoder-lm whose vocabulary has bos");
  require_argument(frame.end || !model_.spec().has_encoder(), kTranslatorOrigin, "end_source",
                   " is off, which a model with an encoder does not allow");
  return frame;
}

template <class Work>
void Translator::for_lines(size_t count, Work&& work) const {
  // Another thread pays from some dozens of lines on.
  constexpr int64_t kChunk = 64;
  parallel_chunks(static_cast<int64_t>(count), kChunk, threads_for_lines(context_),
                  [&](int64_t begin, int64_t end) {
                    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
                      work(i);
                  });
}

std::vector<Translation> Translator::translate(std::span<const std::string_view> lines,
                                               const TranslateOptions& options,
                                               std::span<const std::string_view> prefixes) const {
  require(prefixes.empty() || prefixes.size() == lines.size(), ErrorCode::invalid_argument,
          kTranslatorOrigin, "there are ", prefixes.size(), " prefixes for ", lines.size(),
          " lines");
  const Tokenizer& subwords = tokenizer();
  const Tokenizer targets = subwords.for_targets();
  const TextFrame around = frame(options);
  // A language is the first token of every translation that is not empty.
  const bool begins = !prefixes.empty() || targets.language() >= 0;
  std::vector<std::vector<int32_t>> rows(lines.size()), begun(begins ? lines.size() : 0);
  for_lines(lines.size(), [&](size_t i) {
    rows[i] = encode(subwords, lines[i], "", i + 1, around);
    const std::string_view prefix = prefixes.empty() ? std::string_view() : prefixes[i];
    const bool is_empty = prefix.empty() && rows[i].size() == (around.end ? 1 : 0);
    if (begins && !is_empty) begun[i] = encode(targets, prefix, "prefix, ", i + 1, kNoFrame);
  });
  return translate_ids(std::move(rows), options, begun);
}

std::vector<Translation> Translator::translate_ids(
    std::vector<std::vector<int32_t>> rows, const TranslateOptions& options,
    std::span<const std::vector<int32_t>> prefixes) const {
  const VocabularyTokens vocabulary = tokens();
  DecodeOptions decode = options.decode;
  decode.tokens = vocabulary.special;
  decode.more_ends = vocabulary.further_ends;
  decode.allow_bos = tokenizer_ && tokenizer_->bos_is_subword();
  const TextFrame around = frame(options);
  decode.end_source = around.end;
  decode.prefixes = prefixes;
  decode.weights = weights_;
  decode.all_hypotheses = options.distinct && !decode.sampling.on;
  require_argument(!options.distinct || tokenizer_.has_value(), kTranslatorOrigin, "distinct",
                   " compares texts, which need a tokenizer");
  const Shortlist& list = options.shortlist;
  check_shortlist(list);
  if (list.table != nullptr) {
    require(model_.spec().embedding.own_sources == 0, ErrorCode::unsupported, kTranslatorOrigin,
            "a shortlist is for one vocabulary of both sides, sources of the model have their own "
            "(source_vocabulary)");
    require_argument(list.first > 0 || list.best > 0, kTranslatorOrigin, "shortlist_first",
                     " and the best tokens of the shortlist are both 0: no token would be left");
    decode.shortlist = [list](std::span<const int32_t> sources) {
      return list.table->candidates(sources, list.first, list.best);
    };
  }
  const int64_t limit = longest_source(model_.spec(), decode.max_length);
  const Keep keep = around.end     ? Keep::first_and_end
                    : around.begin ? Keep::begin_and_last
                                   : Keep::last;
  std::vector<Translation> translations(rows.size());
  for_lines(rows.size(), [&](size_t i) {
    translations[i].source_tokens = static_cast<int64_t>(rows[i].size());
    if (options.truncate) truncate(rows[i], limit, keep, true);
    translations[i].used_tokens = static_cast<int64_t>(rows[i].size());
  });
  std::vector<std::vector<Hypothesis>> found = translate_tokens(context_, model_, rows, decode);
  for_lines(rows.size(), [&](size_t i) {
    for (Hypothesis& hypothesis : found[i]) {
      std::string text;
      if (tokenizer_)
        text = around.end ? tokenizer_->decode(hypothesis.tokens)
                          : tokenizer_->continuation(rows[i], hypothesis.tokens);
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
  const VocabularyTokens vocabulary = tokens();
  options.tokens = vocabulary.special;
  options.ended = options.ended && vocabulary.frame.end;
  std::vector<SentencePair> pairs = encode_pairs(sources, targets, vocabulary.frame);
  begin_plain_texts(pairs, vocabulary.frame);
  return trafo::score(context_, model_, pairs, options);
}

DecodeOptions Translator::forced_options(const TranslateOptions& given) const {
  DecodeOptions options = given.decode;
  options.tokens = tokens().special;
  check_options(model_.spec(), options);
  check_shortlist(given.shortlist);
  return options;
}

std::vector<Translation> Translator::force_decode(std::span<const std::string_view> sources,
                                                  std::span<const std::string_view> targets,
                                                  const TranslateOptions& given) const {
  std::vector<Translation> result =
      forced_pairs(encode_pairs(sources, targets, frame(given)), given);
  for (size_t i = 0; i < result.size(); ++i) result[i].hypotheses[0].text = targets[i];
  return result;
}

std::vector<Translation> Translator::force_decode_ids(std::vector<SentencePair> pairs,
                                                      const TranslateOptions& given) const {
  std::vector<Translation> result = forced_pairs(std::move(pairs), given);
  for (Translation& pair : result)
    if (tokenizer_) pair.hypotheses[0].text = tokenizer_->decode(pair.hypotheses[0].tokens);
  return result;
}

std::vector<Translation> Translator::forced_pairs(std::vector<SentencePair> pairs,
                                                  const TranslateOptions& given) const {
  const DecodeOptions options = forced_options(given);
  const TextFrame around = frame(given);
  begin_plain_texts(pairs, around);
  std::vector<int64_t> counts;
  for (SentencePair& pair : pairs) {
    counts.push_back(static_cast<int64_t>(pair.source.size() + pair.target.size()));
    if (given.truncate) truncate(pair, around);
  }
  std::vector<Translation> result = forced(std::move(pairs), options, false);
  for (size_t i = 0; i < result.size(); ++i) result[i].source_tokens = counts[i];
  return result;
}

// A decoder_lm reads eos or bos in front of plain text.
void Translator::begin_plain_texts(std::vector<SentencePair>& pairs, const TextFrame& frame) const {
  if (model_.spec().has_encoder()) return;
  const int32_t front = frame.front(tokens().special);
  for (SentencePair& pair : pairs)
    if (pair.source.empty()) pair.source.push_back(front);
}

std::vector<Translation> Translator::score_text(std::span<const std::string_view> lines,
                                                const TranslateOptions& given) const {
  constexpr const char* kOrigin = "score_text";
  const ModelSpec& spec = model_.spec();
  require_generation(spec, kOrigin);
  DecodeOptions options = forced_options(given);
  require(!spec.has_encoder(), ErrorCode::unsupported, kOrigin,
          "a model with an encoder scores pairs, not plain text");
  const TextFrame around = frame(given);
  const int32_t front = around.front(options.tokens);
  const int64_t longest = given.window_length == 0 ? spec.max_positions : given.window_length;
  require_argument(longest >= 2 && longest <= spec.max_positions, kOrigin, "window_length", " is ",
                   longest, ", it must be 2 to ", spec.max_positions,
                   ", the positions of the model");
  require_argument(given.window_length == 0 || given.window_stride > 0, kOrigin, "window_length",
                   " is for windows, and window_stride is 0");
  require_argument(given.window_stride >= 0 && given.window_stride <= longest, kOrigin,
                   "window_stride", " is ", given.window_stride, ", it must be 0 to ", longest,
                   ", the length of a window");
  const TokenizedCorpusOptions lengths{.form = SequenceForm::decoder_only,
                                       .max_length = static_cast<int32_t>(longest),
                                       .window_stride = static_cast<int32_t>(given.window_stride)};
  std::vector<Translation> result(lines.size());
  std::vector<SentencePair> pairs;
  std::vector<size_t> scored;  // lines with a token to score
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids =
        encode(tokenizer(), lines[i], "", i + 1, {.begin = false, .end = around.end});
    result[i].source_tokens = static_cast<int64_t>(ids.size());
    // The last token is predicted, but not read; the one in front of the line is read.
    const auto most = static_cast<size_t>(spec.max_positions);
    if (given.window_stride == 0 && given.truncate && ids.size() > most) {
      size_t kept = most;
      while (kept > 0 && continues_character(ids[kept], true)) --kept;
      ids.resize(kept);
    }
    result[i].used_tokens = static_cast<int64_t>(ids.size());
    result[i].hypotheses.emplace_back().text = lines[i];
    if (ids.empty()) continue;
    PairBlock windows;
    windows.ids.push_back(0);
    windows.tokens.push_back({{&front, 1}, ids});
    cut_long_texts(lengths, windows);
    for (const PairTokens& window : windows.tokens) {
      pairs.push_back({{window.source.begin(), window.source.end()},
                       {window.target.begin(), window.target.end()}});
      scored.push_back(i);
    }
  }
  std::vector<Translation> found = forced(std::move(pairs), options, true);
  for (size_t i = 0; i < scored.size(); ++i) {
    TextHypothesis& part = found[i].hypotheses[0];
    TextHypothesis& line = result[scored[i]].hypotheses[0];
    if (line.tokens.empty()) {
      part.text = lines[scored[i]];
      line = std::move(part);
      continue;
    }
    // A further window of the line.
    line.tokens.insert(line.tokens.end(), part.tokens.begin(), part.tokens.end());
    line.word_scores.insert(line.word_scores.end(), part.word_scores.begin(),
                            part.word_scores.end());
    line.log_probability += part.log_probability;
    line.score = line.log_probability /
                 portable_pow(static_cast<double>(line.tokens.size()), options.length_penalty);
  }
  return result;
}

// Each target as the one hypothesis of its source, without text. eos at the end of a target is one
// of the tokens of its hypothesis or only says that it is finished.
std::vector<Translation> Translator::forced(std::vector<SentencePair> pairs,
                                            const DecodeOptions& options, bool end_is_token) const {
  ScoreOptions score_options;
  score_options.batch_tokens = options.batch_tokens;
  score_options.tokens = options.tokens;
  score_options.ended = false;
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
    hypothesis.finished = !end_is_token && target.back() == options.tokens.eos;
    hypothesis.tokens.assign(target.begin(), target.end() - (hypothesis.finished ? 1 : 0));
    hypothesis.log_probability = scores[i].log_probability;
    hypothesis.score = scores[i].log_probability /
                       portable_pow(static_cast<double>(target.size()), options.length_penalty);
    if (options.word_scores) hypothesis.word_scores = std::move(scores[i].word_scores);
    hypothesis.alignment = std::move(alignments[i]);
    result[i].used_tokens = static_cast<int64_t>(pairs[i].source.size() + target.size());
    result[i].hypotheses.push_back(std::move(hypothesis));
  }
  return result;
}

PackedStates Translator::states(std::span<const std::string_view> lines) const {
  return states_ids(framed(lines));
}

PackedStates Translator::states_ids(std::span<const std::vector<int32_t>> rows) const {
  const Batch batch = packed_texts("hidden_states", rows);
  return {model_.states(context_, batch), text_bounds(batch)};
}

PackedLogits Translator::logits(std::span<const std::string_view> sources,
                                std::span<const std::string_view> targets) const {
  return logits_ids(encode_pairs(sources, targets, tokens().frame));
}

PackedLogits Translator::logits_ids(std::vector<SentencePair> pairs) const {
  constexpr const char* kOrigin = "logits";
  require(!pairs.empty(), ErrorCode::invalid_argument, kOrigin, "there are no lines");
  begin_plain_texts(pairs, tokens().frame);
  const SpecialTokens special = tokens().special;
  check_pairs(kOrigin, model_.spec(), special, pairs, false);
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

std::vector<SentencePair> Translator::encode_pairs(std::span<const std::string_view> sources,
                                                   std::span<const std::string_view> targets,
                                                   const TextFrame& frame) const {
  require(sources.size() == targets.size(), ErrorCode::invalid_argument, kTranslatorOrigin,
          sources.size(), " source lines and ", targets.size(), " target lines are no pairs");
  const Tokenizer& subwords = tokenizer();
  const Tokenizer target_subwords = subwords.for_targets();
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < sources.size(); ++i)
    pairs.push_back(
        {encode(subwords, sources[i], "source, ", i + 1, frame),
         encode(target_subwords, targets[i], "target, ", i + 1, {.begin = false, .end = true})});
  return pairs;
}

// The tokens of a line in its frame. Without an end, an empty line stays empty.
std::vector<int32_t> Translator::encode(const Tokenizer& subwords, std::string_view line,
                                        const char* side, size_t number, const TextFrame& frame) {
  try {
    std::vector<int32_t> ids = subwords.encode(line);
    if (frame.end) ids.push_back(subwords.eos_id());
    if (frame.begin && !ids.empty()) ids.insert(ids.begin(), subwords.bos_id());
    return ids;
  } catch (const Error& error) {
    fail(error.code(), kTranslatorOrigin, side, "line ", number, ": ", error.message());
  }
}

bool Translator::continues_character(int32_t id, bool of_source) const {
  return tokenizer_ && (of_source ? sources_ : tokenizer_)->continues_character(id);
}

// Keeps `limit` tokens at most. A character that is spelled in byte tokens is kept whole or not at
// all.
void Translator::truncate(std::vector<int32_t>& ids, int64_t limit, Keep keep,
                          bool of_source) const {
  if (static_cast<int64_t>(ids.size()) <= limit) return;
  const bool marked = keep == Keep::first_and_end || keep == Keep::begin_and_last;
  auto kept = static_cast<size_t>(std::max<int64_t>(limit - (marked ? 1 : 0), 0));
  if (keep == Keep::first_and_end || keep == Keep::first) {
    const int32_t end = ids.back();
    while (kept > 0 && continues_character(ids[kept], of_source)) --kept;
    ids.resize(kept);
    if (marked) ids.push_back(end);
    return;
  }
  size_t first = ids.size() - kept;
  while (first < ids.size() && continues_character(ids[first], of_source)) ++first;
  ids.erase(ids.begin() + (marked ? 1 : 0), ids.begin() + static_cast<std::ptrdiff_t>(first));
}

// Cuts a pair to the positions of the model. In a decoder_lm both sides share them: the source
// keeps those that the target leaves, and half of them at least.
void Translator::truncate(SentencePair& pair, const TextFrame& frame) const {
  const ModelSpec& spec = model_.spec();
  int64_t source = spec.max_positions, target = spec.max_positions;
  if (!spec.has_encoder()) {
    const int64_t both = spec.max_positions + 1;  // the last token is predicted, but not read
    const auto needed = static_cast<int64_t>(pair.target.size());
    source = std::max<int64_t>(std::max<int64_t>(1, both / 2), both - std::min(needed, both));
    target = both - std::min(source, static_cast<int64_t>(pair.source.size()));
  }
  const auto ended = [eos = tokens().special.eos](const std::vector<int32_t>& ids) {
    return !ids.empty() && ids.back() == eos;
  };
  truncate(pair.source, std::min(source, spec.max_positions),
           ended(pair.source) ? Keep::first_and_end
           : frame.begin      ? Keep::begin_and_last
                              : Keep::last,
           true);
  truncate(pair.target, std::min(target, spec.max_positions),
           ended(pair.target) ? Keep::first_and_end : Keep::first, false);
}

}  // namespace trafo
