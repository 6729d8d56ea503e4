// Translation and scoring: lines in, lines out, or token ids in and out.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode/lexical_table.h"
#include "engine/decode/scorer.h"
#include "engine/decode/search.h"
#include "engine/text/tokenizer/generated/frame_token.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Restricts translations to the tokens that are likely for the source sentences of a batch, so that
// a decode step computes few rows of the output projection.
struct Shortlist {
  const LexicalTable* table = nullptr;  // borrowed for the call; null: the whole vocabulary
#include "engine/decode/generated/shortlist.inc"
};

struct TranslateOptions {
  // The Translator sets `tokens`, `shortlist` and `weights` itself.
  DecodeOptions decode;
  Shortlist shortlist;
  // The limit of a source is longest_source().
#include "engine/decode/generated/translate_options.inc"
};

struct TextHypothesis : Hypothesis {
  std::string text;  // empty without a tokenizer
};

struct Translation {
  std::vector<TextHypothesis> hypotheses;  // best first; of sampling, in the order of the samples
  int64_t source_tokens = 0;               // of the line, eos counted; of a pair, of both sides
  int64_t used_tokens = 0;                 // fewer where the line or the pair was cut

  bool truncated() const { return used_tokens < source_tokens; }
};

// The tokens of several texts, one text after the other.
struct PackedStates {
  Tensor states;  // [T, width]
  Tensor
      cu_seqlens;  // [texts + 1] int32: text i has the rows cu_seqlens[i] to cu_seqlens[i + 1] - 1
};
// The output of an encoder's head for several texts.
struct PackedLabels {
  Tensor logits;      // a row for each text, or for each token
  Tensor cu_seqlens;  // [texts + 1] int32: the rows of text i, as above
};
// Ids of text pairs, and the type of each token if the model has types.
struct TypedRows {
  std::vector<std::vector<int32_t>> rows, types;
};
struct PackedLogits {
  Tensor logits;  // [T, vocabulary]
  Tensor labels;  // [T] int32: the token that each row predicts, or kIgnoreLabel
};

// Translates and scores with one model and its tokenizer. The functions named ..._ids take token
// ids, which the model reads as they are: nothing is added to a row and no tokenizer is needed. The
// others encode text and call them.
//
// A Translator is cheap to make. It borrows the context and the model, which must outlive it and
// are not changed. A context serves one thread at a time: threads that share a model use a context
// and a Translator each.
class Translator {
 public:
  // `weights`: of pack_for_decoding, if they stay valid; null: see DecodeOptions::weights.
  // INVALID_ARGUMENT: the tokenizer has not as many tokens as the model. Without a tokenizer there
  // is no text: the functions for lines refuse, hypotheses have ids alone, and the special tokens
  // are the model's (tokens_of()).
  Translator(Context& context, const Model& model, std::optional<Tokenizer> tokenizer,
             std::shared_ptr<const PackedWeights> weights = nullptr);

  // One result a line, in the order of the lines. An empty line has an empty translation.
  // `prefixes`: the beginning of each translation, one a line, of which an empty one gives nothing;
  // no prefixes at all are as many empty ones. INVALID_ARGUMENT: text that cannot be tokenised (the
  // message names the line, counted from 1), another number of prefixes than lines, and everything
  // that translate_tokens refuses. NON_FINITE, CANCELLED: as there.
  std::vector<Translation> translate(std::span<const std::string_view> lines,
                                     const TranslateOptions& options = {},
                                     std::span<const std::string_view> prefixes = {}) const;

  // The same with rows of ids. A row ends with eos, unless frame(options) has no end; an empty one
  // has an empty translation. If the frame has a begin, a row that is cut keeps its first token.
  // INVALID_ARGUMENT also: options.distinct without a tokenizer.
  std::vector<Translation> translate_ids(std::vector<std::vector<int32_t>> rows,
                                         const TranslateOptions& options = {},
                                         std::span<const std::vector<int32_t>> prefixes = {}) const;

  // The log-probability of each target line as the translation of the source line beside it.
  // `options.tokens` is set by the Translator. INVALID_ARGUMENT: text that cannot be tokenised, a
  // pair that is too long.
  std::vector<PairScore> score(std::span<const std::string_view> sources,
                               std::span<const std::string_view> targets,
                               ScoreOptions options = {}) const;

  // Forced decoding: each target line as the one hypothesis of the source line beside it. Its score
  // follows decode.length_penalty; it has word scores and an alignment where options ask for them.
  // With options.truncate, a pair that is too long is cut: both sides keep their first tokens and
  // eos, and source_tokens and used_tokens, which count both sides here, differ. Beyond that, only
  // frame(options), batch_tokens and cancel are used, but all options must be valid. Errors of
  // score() and align().
  std::vector<Translation> force_decode(std::span<const std::string_view> sources,
                                        std::span<const std::string_view> targets,
                                        const TranslateOptions& options = {}) const;

  // The same with ids. Every token of a target is scored, and eos only where it is the last one.
  // The empty source of a decoder_lm is eos: the target is plain text. A pair that is cut loses the
  // first tokens of a source that does not end with eos, the very first one apart if
  // frame(options) has a begin.
  std::vector<Translation> force_decode_ids(std::vector<SentencePair> pairs,
                                            const TranslateOptions& options = {}) const;

  // The log-probabilities of plain text under a decoder_lm, each line as the one hypothesis of
  // itself: of every token, given the tokens before it and eos in front of the line, as in training
  // on monolingual text; bos if frame(options) has a begin. If it has an end, the line ends with
  // eos, which is scored as well. A line without a token to score has
  // log-probability 0. Other options, and lines that are too long, as in force_decode.
  std::vector<Translation> score_text(std::span<const std::string_view> lines,
                                      const TranslateOptions& options = {}) const;

  // The states that the encoder computes of each token of the lines and of the eos after each
  // line; of a decoder_lm, whose lines have the model's frame, the last layer's, before the output
  // projection. One pass over all lines, without dropout, recorded where the context records.
  // INVALID_ARGUMENT: no lines, text that cannot be tokenised, a line that is too long.
  PackedStates states(std::span<const std::string_view> lines) const;
  PackedStates states_ids(std::span<const std::vector<int32_t>> rows) const;  // no empty row

  // One vector for each line, [lines, width] in float32, of the states of its tokens: their mean or
  // the first one; with `normalize`, divided by its Euclidean norm. Recorded and refused as
  // states(). INVALID_ARGUMENT also: unknown pooling.
  Tensor embed(std::span<const std::string_view> lines, Pooling pooling, bool normalize) const;
  Tensor embed_ids(std::span<const std::vector<int32_t>> rows, Pooling pooling,
                   bool normalize) const;

  // The logits of the head of an encoder: [lines, labels], [words, labels] (a row for the first
  // token of each word; of ids, for each token) or, of masked tokens, [tokens, vocabulary].
  // `second`: the second text of each line, for a model of text pairs; empty: none. `types`: the
  // token types of each row; empty: all are 0. Recorded and refused as states(). UNSUPPORTED: a
  // model of another architecture or without head. INVALID_ARGUMENT also: another number of second
  // texts or types; a type that the model does not have.
  PackedLabels classify(std::span<const std::string_view> lines,
                        std::span<const std::string_view> second = {}) const;
  PackedLabels classify_ids(std::span<const std::vector<int32_t>> rows,
                            std::span<const std::vector<int32_t>> types = {}) const;

  // The logits of every token of the target lines and their eos, given the source line beside each
  // and the target tokens before it. Of a decoder_lm the tokens of the source are rows as well,
  // with labels to be ignored. One pass, recorded as above. Errors of score(), and no lines.
  PackedLogits logits(std::span<const std::string_view> sources,
                      std::span<const std::string_view> targets) const;
  PackedLogits logits_ids(std::vector<SentencePair> pairs) const;  // as of force_decode_ids()

 private:
  std::vector<std::vector<int32_t>> framed(std::span<const std::string_view> lines) const;
  TypedRows framed_pairs(std::span<const std::string_view> first,
                         std::span<const std::string_view> second) const;
  PackedLabels classify_words(std::span<const std::string_view> lines) const;
  // Of rows that the model can read. INVALID_ARGUMENT as of states().
  Batch packed_texts(const char* origin, std::span<const std::vector<int32_t>> rows,
                     std::span<const std::vector<int32_t>> types = {}) const;
  const Tensor& text_bounds(const Batch& batch) const;  // of packed_texts()
  enum class Keep { first_and_end, first, last, begin_and_last };

  std::vector<Translation> forced_pairs(std::vector<SentencePair> pairs,
                                        const TranslateOptions& options) const;
  std::vector<Translation> forced(std::vector<SentencePair> pairs, const DecodeOptions& options,
                                  bool end_is_token) const;
  void truncate(SentencePair& pair, const TextFrame& frame) const;
  void keep_distinct(Translation& translation, int64_t most) const;
  DecodeOptions forced_options(const TranslateOptions& given) const;
  std::vector<SentencePair> encode_pairs(std::span<const std::string_view> sources,
                                         std::span<const std::string_view> targets,
                                         const TextFrame& frame) const;
  static std::vector<int32_t> encode(const Tokenizer& subwords, std::string_view line,
                                     const char* side, size_t number, const TextFrame& frame);
  void truncate(std::vector<int32_t>& ids, int64_t limit, Keep keep, bool of_source) const;
  void begin_plain_texts(std::vector<SentencePair>& pairs, const TextFrame& frame) const;
  bool continues_character(int32_t id, bool of_source) const;
  const Tokenizer& tokenizer() const;  // INVALID_ARGUMENT: there is none
  VocabularyTokens tokens() const;     // INVALID_ARGUMENT: they are not known
  // The model's, unless the options say otherwise. INVALID_ARGUMENT: no bos, or an encoder.
  TextFrame frame(const TranslateOptions& options) const;
  template <class Work>
  void for_lines(size_t count, Work&& work) const;  // on several threads

  Context& context_;
  const Model& model_;
  std::optional<Tokenizer> tokenizer_, sources_;  // the latter for ids of sources
  std::shared_ptr<const PackedWeights> weights_;
};

}  // namespace trafo
