// Generation from a decoder_lm: sequences that continue prompts, token by token.
//
// Sequences are decoded together, one token of each in a step, and leave the batch when they end.
// Others may be added between two steps: their prompts are read in the step that begins them.
//
// A row of the KV cache holds the tokens of a sequence that were read. The rows of ended sequences
// are kept, the newest ones. A prompt takes over or copies the row with which it has the longest
// beginning in common, also the row of a sequence in flight, and only the tokens after it are read.
//
// With a draft model a step may give a sequence several tokens: the model reads those that the
// draft model proposes in one pass and keeps them as far as they are the tokens that it chooses
// itself.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode/hypothesis.h"
#include "engine/decode/translator.h"
#include "engine/text/json_schema/token_constraint.h"

namespace trafo {

class DraftModel;
class StepGraphs;

struct GenerationOptions {
  // Used of decode: n_best, max_length (counted from the prompt), min_length, the rules of
  // LogitsProcessor, word_scores and sampling. Without sampling the most probable token is chosen.
  // begin_source and end_source: by_model is the begin that the model was trained with, and no end.
  TranslateOptions translate;
  std::vector<std::string> stop;     // texts that end a sequence
  std::vector<int32_t> stop_tokens;  // tokens that end it, beside the end tokens of the vocabulary
  int64_t alternatives = 0;          // of each token: the most probable ones
  int64_t draft_tokens = 0;          // of a step, at most, by the draft model; 0: it is not used
  std::string json_schema;           // texts are values that it allows (json_grammar); empty: any
};

struct GenerationPiece {
  int64_t sequence = -1;  // -1: nothing is in flight
  std::string text;       // no later token changes it; without a stop string
  int32_t token = -1;     // -1: none was allowed to follow
  bool finished = false;
  FinishReason finish = FinishReason::end;  // if finished
  // Under the model alone: before rules and temperature. NaN: without word_scores.
  double log_probability = std::numeric_limits<double>::quiet_NaN();
  std::vector<int32_t> alternatives;  // most probable first
  std::vector<double> alternative_log_probabilities;
  int64_t prompt_tokens = 0, cached_tokens = 0;  // those whose keys and values were there
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // proposed so far, and of them generated
};

// One thread at a time. Context and model must outlive it; the weights may not change.
class Generator {
 public:
  // `kept`: rows of ended sequences that are kept. UNSUPPORTED: the model has an encoder.
  // INVALID_ARGUMENT: as of Translator, and where special tokens are not known.
  Generator(Context& context, const Model& model, std::optional<Tokenizer> tokenizer,
            std::shared_ptr<const PackedWeights> weights, int64_t kept);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Proposes the tokens of requests with draft_tokens; `model` must outlive the generator, and its
  // weights may not change. Replaces one that was set. UNSUPPORTED: it has an encoder.
  // INVALID_ARGUMENT: its vocabulary is another one.
  void set_draft(const Model& model, std::shared_ptr<const PackedWeights> weights);

  // Adds n_best sequences for each prompt; returns the number of the first one. The others follow,
  // prompt by prompt. An empty prompt is the token in front of texts. INVALID_ARGUMENT: a prompt
  // that is not UTF-8 or leaves no position for a token, an option; nothing is added then.
  // UNSUPPORTED: json_schema with a vocabulary whose tokens are not bytes (Tokenizer::token_bytes).
  int64_t start(std::span<const std::string_view> prompts, const GenerationOptions& options);
  // The same with tokens, to which nothing is added; none may be empty.
  int64_t start_ids(std::vector<std::vector<int32_t>> prompts, const GenerationOptions& options);

  // The text and the numbers that the next token adds to one of the sequences. CANCELLED: before a
  // step, which changes nothing. After an error in choosing tokens, such as NON_FINITE, all
  // sequences have ended.
  GenerationPiece next(const CancelToken* cancel = nullptr);
  // Ends a sequence; one that has ended is passed over. INVALID_ARGUMENT: there is no such number.
  void end(int64_t sequence);

 private:
  struct Request;
  struct Sequence;
  struct Kept {
    std::vector<int32_t> tokens;
    int64_t row;
  };
  struct Past {
    int64_t row = -1;
    int64_t tokens = 0;
  };
  struct Scores;
  struct Position;

  std::shared_ptr<Request> make_request(const GenerationOptions& options);
  std::shared_ptr<TokenConstraint> constraint_of(const std::string& json_schema);
  Past take_past(std::span<const int32_t> prompt);
  void step(const CancelToken* cancel);
  void arrange();
  std::vector<std::vector<int32_t>> unread(std::span<const Sequence> sequences);
  Tensor read(std::span<const Sequence> sequences);
  Tensor verify(std::span<const Sequence> sequences);
  int64_t most_drafted(const Sequence& sequence) const;
  bool draft();
  bool propose();
  Tensor constrained(const Tensor& logits, std::span<const Position> positions);
  std::vector<int32_t> pick(const Tensor& logits, std::span<const Position> positions);
  void add_tokens(const Tensor& logits, std::span<const Position> positions, size_t round);
  void choose(const Tensor& logits, std::span<Sequence> sequences);
  void keep(Sequence& sequence);
  void forget();

  Context& context_;
  const Model& model_;
  std::optional<Tokenizer> tokenizer_;
  VocabularyTokens tokens_;
  std::shared_ptr<const PackedWeights> weights_;
  int64_t most_kept_;
  std::unique_ptr<DraftModel> draft_;  // null: none
  DecodeState state_;
  std::unique_ptr<StepGraphs> graphs_;     // null until a step is one of a graph
  std::vector<Sequence> sequences_;        // in flight; sequences of one prompt are side by side
  std::vector<Kept> kept_;                 // oldest first
  std::shared_ptr<const TokenTrie> trie_;  // null: no schema was used yet
  // Of the newest schemas, oldest first.
  std::vector<std::pair<std::string, std::shared_ptr<TokenConstraint>>> constraints_;
  std::deque<GenerationPiece> pieces_;
  int64_t next_number_ = 0;
};

}  // namespace trafo
