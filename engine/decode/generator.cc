#include "engine/decode/generator.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/core/strings/utf8.h"
#include "engine/decode/batch_decoder.h"
#include "engine/decode/stop_strings.h"
#include "engine/models/model_io.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/view/view.h"
#include "engine/text/json_schema/json_grammar.h"
#include "engine/text/tokenizer/text_stream.h"

namespace trafo {
namespace {

constexpr const char* kGeneratorOrigin = "generate";
constexpr int64_t kMostAlternatives = 1024;
constexpr size_t kMostConstraints = 8;

void check_token(const char* field, int32_t token, int64_t vocabulary) {
  require_argument(token >= 0 && token < vocabulary, kGeneratorOrigin, field, " has token ", token,
                   ", the vocabulary has 0 to ", vocabulary - 1);
}

void check_tokens_of(const GenerationOptions& options, int64_t vocabulary) {
  const DecodeOptions& decode = options.translate.decode;
  for (const int32_t token : options.stop_tokens) check_token("stop_tokens", token, vocabulary);
  for (const int32_t token : decode.banned_tokens) {
    check_token("banned_tokens", token, vocabulary);
    require_argument(std::ranges::find(options.stop_tokens, token) == options.stop_tokens.end(),
                     kGeneratorOrigin, "banned_tokens", " has token ", token,
                     ", which is a stop token");
  }
  std::unordered_set<int32_t> biased;
  for (const auto& [token, bias] : decode.logit_bias) {
    check_token("logit_bias", token, vocabulary);
    require_argument(std::isfinite(bias), kGeneratorOrigin, "logit_bias", " of token ", token,
                     " is ", bias);
    require_argument(biased.insert(token).second, kGeneratorOrigin, "logit_bias", " has token ",
                     token, " twice");
  }
}

std::vector<int32_t> ends_of(const GenerationOptions& options) {
  std::vector<int32_t> ends = options.translate.decode.more_ends;
  ends.push_back(options.translate.decode.tokens.eos);
  ends.insert(ends.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  return ends;
}

size_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

// The common state of the sequences of one start.
struct Generator::Request {
  Request(const GenerationOptions& given, int64_t vocabulary,
          std::shared_ptr<TokenConstraint> of_schema)
      : options(given),
        decode(options.translate.decode),
        processor(decode),
        ends(ends_of(options)),
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
  std::optional<TextStream> stream;
  StopStrings stop;
  std::optional<ByteMatcher> matcher;  // of the constraint
  bool finished = false;

  bool is_new() const { return generated == 0; }
  // Samples of a prompt have one row until their first token.
  bool shares_row_with(const Sequence& other) const {
    return is_new() && other.is_new() && request == other.request && prompt == other.prompt;
  }
  bool may_end() const { return generated >= request->decode.min_length; }
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

GenerationPiece Generator::Sequence::add(int32_t token) {
  GenerationPiece piece;
  piece.sequence = number;
  piece.token = token;
  const auto end = [&](FinishReason reason) {
    finished = true;
    piece.finish = reason;
    piece.text += last_text();
    if (stop.stopped()) piece.finish = FinishReason::stop;
  };
  if (token < 0) {
    end(FinishReason::blocked);
  } else if (++generated; request->is_end(token)) {
    end(request->is_stop(token) ? FinishReason::stop : FinishReason::end);
  } else {
    tokens.push_back(token);
    piece.text = text_of(token);
    if (stop.stopped())
      end(FinishReason::stop);
    else if (generated == most)
      end(FinishReason::length);
  }
  piece.finished = finished;
  piece.prompt_tokens = prompt_tokens;
  piece.cached_tokens = cached;
  piece.generated_tokens = generated;
  return piece;
}

// Log-probabilities of a step under the model alone.
struct Generator::Scores {
  Scores(Context& context, const Tensor& of_step, int64_t alternatives)
      : logits(of_step),
        count(std::max<int64_t>(1, std::min(alternatives, logits.dim(1)))),
        best(ops::top_k(context, logits, count)),
        ids(context.values<int32_t>(best.ids)),
        values(to_doubles(context, best.log_probabilities)) {}

  // Of token i in row rows[i].
  std::vector<double> of(Context& context, std::span<const int64_t> rows,
                         std::span<const int32_t> tokens) const {
    // The logit of the best token precedes the logits of the given ones.
    std::vector<std::vector<int32_t>> wanted(static_cast<size_t>(logits.dim(0)));
    for (size_t r = 0; r < wanted.size(); ++r) wanted[r] = {ids[r * static_cast<size_t>(count)]};
    std::vector<size_t> place;
    size_t most = 1;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<int32_t>& row = wanted[static_cast<size_t>(rows[i])];
      place.push_back(row.size());
      row.push_back(std::max(tokens[i], 0));
      most = std::max(most, row.size());
    }
    std::vector<int32_t> index;
    for (std::vector<int32_t>& row : wanted) {
      row.resize(most, row[0]);
      index.insert(index.end(), row.begin(), row.end());
    }
    const Shape shape{logits.dim(0), static_cast<int64_t>(most)};
    const std::vector<double> found = to_doubles(
        context, ops::gather(context, logits, 1, context.from_values<int32_t>(index, shape)));
    std::vector<double> result;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      result.push_back(found[row * most + place[i]] - found[row * most] +
                       values[row * static_cast<size_t>(count)]);
    }
    return result;
  }

  const Tensor logits;
  const int64_t count;
  const ops::TopK best;
  const std::vector<int32_t> ids;    // [rows, count]
  const std::vector<double> values;  // [rows, count]
};

Generator::Generator(Context& context, const Model& model, std::optional<Tokenizer> tokenizer,
                     std::shared_ptr<const PackedWeights> weights, int64_t kept)
    : context_(context),
      model_(model),
      tokenizer_(std::move(tokenizer)),
      weights_(std::move(weights)),
      most_kept_(kept) {
  require(!model.spec().has_encoder(), ErrorCode::unsupported, kGeneratorOrigin,
          "a model with an encoder translates; generation is for a decoder-lm");
  require_argument(kept >= 0, kGeneratorOrigin, "kept_sequences", " must be at least 0, got ",
                   kept);
  if (tokenizer_) require_vocabulary_size(model, *tokenizer_);
  tokens_ = tokens_of(model, tokenizer_);
}

Generator::~Generator() = default;

// A schema that was used before has decided of many tokens.
std::shared_ptr<TokenConstraint> Generator::constraint_of(const std::string& json_schema) {
  if (json_schema.empty()) return nullptr;
  require_argument(tokenizer_.has_value(), kGeneratorOrigin, "json_schema", " needs a tokenizer");
  const auto known =
      std::ranges::find(constraints_, json_schema, &decltype(constraints_)::value_type::first);
  if (known != constraints_.end()) return known->second;
  const std::shared_ptr<const ByteGrammar> grammar = json_grammar(json_schema);
  if (!trie_) trie_ = std::make_shared<TokenTrie>(*tokenizer_);
  if (constraints_.size() == kMostConstraints) constraints_.erase(constraints_.begin());
  constraints_.emplace_back(json_schema, std::make_shared<TokenConstraint>(grammar, trie_));
  return constraints_.back().second;
}

std::shared_ptr<Generator::Request> Generator::make_request(const GenerationOptions& given) {
  GenerationOptions options = given;
  DecodeOptions& decode = options.translate.decode;
  decode.tokens = tokens_.special;
  decode.more_ends = tokens_.further_ends;
  decode.allow_bos = tokenizer_ && tokenizer_->bos_is_subword();
  require_argument(decode.sampling.on || decode.n_best == 1, kGeneratorOrigin, "n_best", " is ",
                   decode.n_best, ", which needs sampling");
  require_argument(!decode.alignment, kGeneratorOrigin, "alignment",
                   " is for models with an encoder");
  require_argument(!options.translate.distinct, kGeneratorOrigin, "distinct",
                   " is not for generation");
  check_options(model_.spec(), decode);
  check_tokens_of(options, model_.spec().vocabulary);
  require_argument(options.alternatives >= 0 && options.alternatives <= kMostAlternatives,
                   kGeneratorOrigin, "alternatives", " must be 0 to ", kMostAlternatives, ", got ",
                   options.alternatives);
  require_argument(options.stop.empty() || tokenizer_.has_value(), kGeneratorOrigin, "stop",
                   " needs a tokenizer");
  for (const std::string& stop : options.stop)
    require_argument(!stop.empty() && is_valid_utf8(stop), kGeneratorOrigin, "stop",
                     stop.empty() ? " has an empty text" : " has a text that is not UTF-8");
  return std::make_shared<Request>(options, model_.spec().vocabulary,
                                   constraint_of(options.json_schema));
}

int64_t Generator::start(std::span<const std::string_view> prompts,
                         const GenerationOptions& options) {
  require_argument(tokenizer_.has_value(), kGeneratorOrigin, "prompts",
                   " are texts, which need a tokenizer");
  const SpecialTokens& special = tokens_.special;
  const auto is_there = [](FrameToken wanted, const char* field, bool otherwise) {
    require_argument(is_known(wanted), kGeneratorOrigin, field,
                     " is unknown: ", static_cast<int32_t>(wanted));
    return wanted == FrameToken::by_model ? otherwise : wanted == FrameToken::on;
  };
  const TextFrame frame{
      .begin = is_there(options.translate.begin_source, "begin_source", tokens_.frame.begin),
      .end = is_there(options.translate.end_source, "end_source", false)};
  require_argument(!frame.begin || special.bos >= 0, kGeneratorOrigin, "begin_source",
                   " is on, and the vocabulary has no bos");
  std::vector<std::vector<int32_t>> rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t>& row = rows.emplace_back();
    try {
      row = tokenizer_->encode(prompts[i]);
    } catch (const Error& error) {
      fail(error.code(), kGeneratorOrigin, "prompt ", i + 1, ": ", error.message());
    }
    if (frame.begin) row.insert(row.begin(), special.bos);
    if (frame.end) row.push_back(special.eos);
    if (row.empty()) row.push_back(frame.front(special));
  }
  return start_ids(std::move(rows), options);
}

int64_t Generator::start_ids(std::vector<std::vector<int32_t>> prompts,
                             const GenerationOptions& options) {
  const std::shared_ptr<Request> request = make_request(options);
  const ModelSpec& spec = model_.spec();
  const DecodeOptions& decode = request->decode;
  for (size_t i = 0; i < prompts.size(); ++i) {
    require(!prompts[i].empty(), ErrorCode::invalid_argument, kGeneratorOrigin, "prompt ", i + 1,
            " has no tokens");
    for (const int32_t id : prompts[i])
      require(id >= 0 && id < spec.vocabulary, ErrorCode::invalid_argument, kGeneratorOrigin,
              "prompt ", i + 1, " has token ", id, ", the vocabulary has 0 to ",
              spec.vocabulary - 1);
    require(std::ssize(prompts[i]) <= spec.max_positions, ErrorCode::invalid_argument,
            kGeneratorOrigin, "prompt ", i + 1, " has ", prompts[i].size(),
            " tokens, the model takes at most ", spec.max_positions);
  }
  std::vector<Sequence> added;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto size = std::ssize(prompts[i]);
    // The last token is never read.
    const int64_t most = std::min(decode.max_length, spec.max_positions - size + 1);
    std::optional<TextStream> stream;
    if (tokenizer_) stream.emplace(*tokenizer_, prompts[i]);
    std::optional<ByteMatcher> matcher;
    if (request->constraint) matcher = request->constraint->begin();
    for (int64_t sample = 0; sample < decode.n_best; ++sample)
      added.push_back({.number = next_number_ + std::ssize(added),
                       .request = request,
                       .prompt = static_cast<int64_t>(i),
                       .sample = static_cast<int32_t>(sample),
                       .tokens = prompts[i],
                       .prompt_tokens = size,
                       .most = most,
                       .row = -1,
                       .cached = 0,
                       .read = 0,
                       .stream = stream,
                       .stop = StopStrings(options.stop),
                       .matcher = matcher});
  }
  sequences_.reserve(sequences_.size() + added.size());
  for (Sequence& sequence : added) {
    const bool shares = !sequences_.empty() && sequence.shares_row_with(sequences_.back());
    const Past past =
        shares ? Past{sequences_.back().row, sequences_.back().cached} : take_past(sequence.tokens);
    sequence.row = past.row;
    sequence.cached = sequence.read = past.tokens;
    sequences_.push_back(std::move(sequence));
  }
  return std::exchange(next_number_, next_number_ + std::ssize(added));
}

// The row that has the longest beginning of a prompt, without its last token: that is read in any
// case, for the logits after it. A kept row is given away if the prompt continues all of it, or if
// it would be the first to go.
Generator::Past Generator::take_past(std::span<const int32_t> prompt) {
  const std::span<const int32_t> before = prompt.first(prompt.size() - 1);
  Past best;
  const auto consider = [&](std::span<const int32_t> tokens, int64_t row) {
    const auto common = static_cast<int64_t>(common_beginning(before, tokens));
    if (common <= best.tokens) return false;
    best = {row, common};
    return true;
  };
  for (const Sequence& sequence : sequences_)
    consider(std::span(sequence.tokens).first(static_cast<size_t>(sequence.read)), sequence.row);
  auto used = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept)
    if (consider(kept->tokens, kept->row)) used = kept;
  if (used != kept_.end() &&
      (best.tokens == std::ssize(used->tokens) || std::ssize(kept_) >= most_kept_))
    kept_.erase(used);
  return best;
}

GenerationPiece Generator::next(const CancelToken* cancel) {
  while (pieces_.empty() && !sequences_.empty()) step(cancel);
  if (pieces_.empty()) return {};
  GenerationPiece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

void Generator::end(int64_t sequence) {
  require_argument(sequence >= 0 && sequence < next_number_, kGeneratorOrigin, "sequence", " is ",
                   sequence, ", there are ", next_number_);
  std::erase_if(pieces_, [&](const GenerationPiece& piece) { return piece.sequence == sequence; });
  const auto found = std::ranges::find(sequences_, sequence, &Sequence::number);
  if (found == sequences_.end()) return;
  keep(*found);
  sequences_.erase(found);
}

void Generator::keep(Sequence& sequence) {
  if (most_kept_ == 0 || sequence.read == 0) return;
  sequence.tokens.resize(static_cast<size_t>(sequence.read));
  kept_.push_back({std::move(sequence.tokens), sequence.row});
  if (std::ssize(kept_) > most_kept_) kept_.erase(kept_.begin());
}

void Generator::forget() {
  sequences_.clear();
  kept_.clear();
  state_ = {};
}

void Generator::step(const CancelToken* cancel) {
  stop_if_cancelled(cancel, kGeneratorOrigin);
  const NoGrad no_grad(context_);
  const PackedWeightsScope scope(context_.backend(), weights_);
  const Tensor logits = read(arrange());
  try {
    for (size_t begin = 0, end = 0; begin < sequences_.size(); begin = end) {
      while (end < sequences_.size() && sequences_[end].request == sequences_[begin].request) ++end;
      const auto group = std::span(sequences_).subspan(begin, end - begin);
      const int64_t first = group.front().row, after = group.back().row + 1;
      choose(ops::slice(context_, logits, 0, first, after), group);
    }
  } catch (...) {  // the tokens were read, so that the step cannot be repeated
    pieces_.clear();
    forget();
    throw;
  }
  for (Sequence& sequence : sequences_)
    if (sequence.finished) keep(sequence);
  std::erase_if(sequences_, [](const Sequence& sequence) { return sequence.finished; });
  if (sequences_.empty() && kept_.empty()) state_ = {};
}

// Gives every sequence a row, in their order, and then every kept one. Returns the number of rows
// that sequences have.
int64_t Generator::arrange() {
  std::vector<int32_t> parents;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (i == 0 || !sequences_[i].shares_row_with(sequences_[i - 1]))
      parents.push_back(static_cast<int32_t>(sequences_[i].row));
    rows.push_back(std::ssize(parents) - 1);
  }
  const auto live = std::ssize(parents);
  for (const Kept& kept : kept_) parents.push_back(static_cast<int32_t>(kept.row));
  if (state_.rows() == 0) {
    Batch batch;
    batch.sentences = std::ssize(parents);
    int64_t longest = 0;
    for (const Sequence& sequence : sequences_)
      longest = std::max(longest, static_cast<int64_t>(std::ssize(sequence.tokens)));
    state_ = model_.start_decoding(context_, batch,
                                   std::min(model_.spec().max_positions, longest + kFirstCapacity));
    state_.indices_validated = true;  // prompts have been, and top_k and samplers return tokens
  } else {
    reorder(context_, state_, parents);
  }
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].row = rows[i];
    state_.cache.truncate(rows[i], sequences_[i].read);
  }
  for (size_t i = 0; i < kept_.size(); ++i) {
    kept_[i].row = live + static_cast<int64_t>(i);
    state_.cache.truncate(kept_[i].row, std::ssize(kept_[i].tokens));
  }
  return live;
}

// Reads what the sequences have in their first `rows` rows; returns the logits of these.
Tensor Generator::read(int64_t rows) {
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(state_.rows()));
  int64_t longest = 0;
  for (const Sequence& sequence : sequences_) {
    tokens[static_cast<size_t>(sequence.row)] = {sequence.tokens.begin() + sequence.read,
                                                 sequence.tokens.end()};
    longest = std::max(longest, static_cast<int64_t>(std::ssize(sequence.tokens)));
  }
  const int64_t capacity = state_.cache.capacity();
  if (longest > capacity)
    state_.cache.grow(context_,
                      std::min(model_.spec().max_positions, std::max(2 * capacity, longest)));
  Tensor logits = model_.prefill(context_, state_, tokens);
  for (Sequence& sequence : sequences_) sequence.read = std::ssize(sequence.tokens);
  require(logits.dim(0) == rows, ErrorCode::internal, kGeneratorOrigin, "there are logits of ",
          logits.dim(0), " rows, not ", rows);
  return logits;
}

namespace {

// The most probable token of each row that may follow; -1: there is none.
std::vector<int32_t> best_tokens(Context& context, const Tensor& logits,
                                 std::span<const Sampler::Place> places,
                                 std::span<const int32_t> ends, std::span<const int32_t> banned) {
  const bool may_end = std::ranges::all_of(places, &Sampler::Place::may_end);
  const int64_t k =
      std::min<int64_t>(1 + (may_end ? 0 : std::ssize(ends)), logits.dim(1) - std::ssize(banned));
  const ops::TopK top = ops::top_k(context, logits, k, banned);
  const std::vector<int32_t> ids = context.values<int32_t>(top.ids);
  const std::vector<double> values = to_doubles(context, top.log_probabilities);
  std::vector<int32_t> chosen;
  for (const Sampler::Place& place : places) {
    chosen.push_back(-1);
    for (int64_t i = 0; i < k && chosen.back() < 0; ++i) {
      const auto at = static_cast<size_t>(place.row * k + i);
      require(!std::isnan(values[at]), ErrorCode::non_finite, kGeneratorOrigin,
              "the model answers prompt ", place.sentence + 1, " with NaN or infinity after ",
              place.position, " tokens");
      if (values[at] == -std::numeric_limits<double>::infinity()) break;  // values are sorted
      const bool is_end = std::ranges::find(ends, ids[at]) != ends.end();
      if (place.may_end || !is_end) chosen.back() = ids[at];
    }
  }
  return chosen;
}

}  // namespace

// The logits with -infinity for tokens that cannot follow: ends of texts that are not complete, and
// others that leave the language of the schema.
Tensor Generator::constrained(const Tensor& logits, std::span<const Sequence> sequences) {
  const Request& request = *sequences.front().request;
  const auto vocabulary = static_cast<size_t>(logits.dim(1));
  std::vector<float> mask(static_cast<size_t>(logits.numel()),
                          -std::numeric_limits<float>::infinity());
  int64_t before = -1;
  for (const Sequence& sequence : sequences) {
    const int64_t row = sequence.row - sequences.front().row;
    if (row == before) continue;  // samples of a prompt have one text before their first token
    before = row;
    const auto of_row = std::span(mask).subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
    const TokenSet allowed = request.constraint->allowed(*sequence.matcher);
    for (size_t token = 0; token < vocabulary; ++token)
      if (allowed.has(static_cast<int32_t>(token))) of_row[token] = 0;
    for (const int32_t end : request.ends)
      of_row[static_cast<size_t>(end)] =
          sequence.matcher->complete() ? 0 : -std::numeric_limits<float>::infinity();
  }
  const Tensor added = context_.from_values<float>(mask, logits.shape());
  return ops::add(context_, logits, ops::cast(context_, added, logits.dtype()));
}

// Chooses the next token of each sequence of a request, whose rows of the logits begin with the
// first one's.
void Generator::choose(const Tensor& logits, std::span<Sequence> sequences) {
  Request& request = *sequences.front().request;
  std::vector<Sampler::Place> places;
  std::vector<LogitsProcessor::Row> texts;
  std::vector<int64_t> rows;
  for (const Sequence& sequence : sequences) {
    const int64_t row = sequence.row - sequences.front().row;
    places.push_back({row, sequence.prompt, sequence.sample,
                      static_cast<int32_t>(sequence.generated), sequence.may_end()});
    if (request.processor.active() && (rows.empty() || rows.back() != row))
      texts.push_back({row, sequence.tokens, static_cast<size_t>(sequence.prompt_tokens)});
    rows.push_back(row);
  }
  Tensor changed = texts.empty() ? logits : request.processor.process(context_, logits, texts, {});
  if (request.constraint) changed = constrained(changed, sequences);
  std::vector<int32_t> chosen;
  if (request.sampler) {
    for (const Sampler::Draw& draw : request.sampler->draw(context_, changed, places))
      chosen.push_back(draw.token);
  } else {
    chosen = best_tokens(context_, changed, places, request.ends, request.banned);
  }
  std::optional<Scores> scores;
  std::vector<double> log_probabilities;
  if (request.wants_scores()) {
    scores.emplace(context_, logits, request.options.alternatives);
    log_probabilities = scores->of(context_, rows, chosen);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].matcher && chosen[i] >= 0 && !request.is_end(chosen[i]))
      require(sequences[i].matcher->push(tokenizer_->token_bytes(chosen[i])), ErrorCode::internal,
              kGeneratorOrigin, "token ", chosen[i], " leaves the language of the schema");
    GenerationPiece piece = sequences[i].add(chosen[i]);
    if (request.decode.word_scores && chosen[i] >= 0) piece.log_probability = log_probabilities[i];
    if (request.options.alternatives > 0) {
      const auto count = static_cast<size_t>(scores->count);
      const auto begin = static_cast<std::ptrdiff_t>(static_cast<size_t>(rows[i]) * count);
      const auto end = begin + static_cast<std::ptrdiff_t>(count);
      piece.alternatives = {scores->ids.begin() + begin, scores->ids.begin() + end};
      piece.alternative_log_probabilities = {scores->values.begin() + begin,
                                             scores->values.begin() + end};
    }
    pieces_.push_back(std::move(piece));
  }
}

}  // namespace trafo
