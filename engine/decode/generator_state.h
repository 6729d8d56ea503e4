// The state of a Generator's sequences, for the files that implement it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/batch_decoder.h"
#include "engine/decode/generator.h"
#include "engine/decode/stop_strings.h"
#include "engine/text/tokenizer/text_stream.h"

namespace trafo {

inline constexpr const char* kGeneratorOrigin = "generate";

// The tokens that end a sequence.
inline std::vector<int32_t> ends_of(const DecodeOptions& decode,
                                    std::span<const int32_t> stop_tokens) {
  std::vector<int32_t> ends = decode.more_ends;
  ends.push_back(decode.tokens.eos);
  ends.insert(ends.end(), stop_tokens.begin(), stop_tokens.end());
  return ends;
}

// The common state of the sequences of one start.
struct Generator::Request {
  Request(const GenerationOptions& given, int64_t vocabulary,
          std::shared_ptr<TokenConstraint> of_schema)
      : options(given),
        decode(options.translate.decode),
        processor(decode),
        ends(ends_of(options.translate.decode, options.stop_tokens)),
        banned(banned_specials(decode, vocabulary, ends)),
        constraint(std::move(of_schema)) {
    if (decode.sampling.on) sampler.emplace(decode.sampling, ends, banned);
  }
  bool is_stop(int32_t token) const {
    return std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end();
  }
  bool is_end(int32_t token) const { return std::ranges::find(ends, token) != ends.end(); }
  bool wants_scores() const { return decode.word_scores || options.alternatives > 0; }

  const GenerationOptions options;
  const DecodeOptions& decode;
  LogitsProcessor processor;
  std::vector<int32_t> ends;    // stop tokens among them
  std::vector<int32_t> banned;  // special tokens
  std::optional<Sampler> sampler;
  std::shared_ptr<TokenConstraint> constraint;  // null: any text
};

struct Generator::Sequence {
  int64_t number;
  std::shared_ptr<Request> request;
  int64_t prompt;  // its number in the request
  int32_t sample;
  std::vector<int32_t> tokens;  // the prompt, then generated ones without an end
  int64_t prompt_tokens;
  int64_t most;           // tokens that may be generated
  int64_t row;            // of the cache; -1: none
  int64_t cached, read;   // tokens in the row before its first step, and now
  int64_t generated = 0;  // an end included
  // Tokens that the draft model proposes for this step, and their number in all steps; of these,
  // those that were generated.
  std::vector<int32_t> drafted = {};
  int64_t all_drafted = 0, accepted = 0;
  std::optional<TextStream> stream;
  StopStrings stop;
  std::optional<ByteMatcher> matcher;  // of the constraint
  bool finished = false;

  bool is_new() const { return generated == 0; }
  // Samples of a prompt have one row until their first token.
  bool shares_row_with(const Sequence& other) const {
    return is_new() && other.is_new() && request == other.request && prompt == other.prompt;
  }
  std::string text_of(int32_t token) {
    return stream ? stop.push(stream->push(token)) : std::string();
  }
  std::string last_text() {
    if (!stream) return {};
    std::string text = stop.push(stream->finish());
    return text + stop.finish();
  }
  // The piece of a token, negative: none was allowed to follow.
  GenerationPiece add(int32_t token);
};

// A sequence whose next token is chosen, and tokens that are proposed to follow its own.
struct Generator::Position {
  Sequence* sequence;
  int64_t row;  // of the logits
  std::span<const int32_t> drafted = {};
  const ByteMatcher* matcher = nullptr;  // after these; null: any text

  int64_t generated() const { return sequence->generated + std::ssize(drafted); }
  bool may_end() const { return generated() >= sequence->request->decode.min_length; }
};

}  // namespace trafo
