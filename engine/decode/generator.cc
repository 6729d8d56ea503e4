#include "engine/decode/generator.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/core/strings/utf8.h"
#include "engine/decode/draft_model.h"
#include "engine/decode/generator_state.h"
#include "engine/decode/step_graphs.h"
#include "engine/models/model_io.h"
#include "engine/text/json_schema/json_grammar.h"

namespace trafo {
namespace {

constexpr int64_t kMostAlternatives = 1024;
constexpr int64_t kMostDraftTokens = 64;
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

}  // namespace

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

void Generator::set_draft(const Model& model, std::shared_ptr<const PackedWeights> weights) {
  require(!model.spec().has_encoder(), ErrorCode::unsupported, kGeneratorOrigin,
          "a draft model is a decoder-lm; this one has an encoder");
  require_generation(model.spec(), kGeneratorOrigin);
  require_argument(model.spec().vocabulary == model_.spec().vocabulary, kGeneratorOrigin, "draft",
                   " has a vocabulary of ", model.spec().vocabulary, " tokens, the model one of ",
                   model_.spec().vocabulary);
  const std::string& theirs = model.origin().vocabulary;
  const std::string own = model_.origin().vocabulary.empty() && tokenizer_
                              ? vocabulary_checksum(*tokenizer_)
                              : model_.origin().vocabulary;
  require_argument(own.empty() || theirs.empty() || own == theirs, kGeneratorOrigin, "draft",
                   " was trained with another vocabulary (checksum ", theirs,
                   ") than the model's (checksum ", own, ")");
  draft_ = std::make_unique<DraftModel>(context_, model, std::move(weights));
}

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
  require_argument(options.draft_tokens >= 0 && options.draft_tokens <= kMostDraftTokens,
                   kGeneratorOrigin, "draft_tokens", " must be 0 to ", kMostDraftTokens, ", got ",
                   options.draft_tokens);
  require_argument(options.draft_tokens == 0 || draft_, kGeneratorOrigin, "draft_tokens", " is ",
                   options.draft_tokens, ", and the generator has no draft model");
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
    const int64_t common = common_tokens(before, tokens);
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
  if (draft_) draft_->forget();
}

void Generator::step(const CancelToken* cancel) {
  stop_if_cancelled(cancel, kGeneratorOrigin);
  const NoGrad no_grad(context_);
  const bool drafted = draft();
  arrange();
  const std::span<Sequence> all(sequences_);
  // Sequences that begin have no drafted tokens and are the last ones.
  const auto is_begun = [](const Sequence& sequence) { return !sequence.is_new(); };
  const auto begun = static_cast<size_t>(drafted ? std::ranges::count_if(all, is_begun) : 0);
  const PackedWeightsScope scope(context_.backend(), weights_);
  const Tensor of_begun = begun > 0 ? verify(all.first(begun)) : Tensor();
  const Tensor of_others = begun < all.size() ? read(all.subspan(begun)) : Tensor();
  for (Sequence& sequence : sequences_) sequence.read = std::ssize(sequence.tokens);
  try {
    choose(of_begun, all.first(begun));
    choose(of_others, all.subspan(begun));
  } catch (...) {  // the tokens were read, so that the step cannot be repeated
    pieces_.clear();
    forget();
    throw;
  }
  for (Sequence& sequence : sequences_)
    if (sequence.finished) keep(sequence);
  std::erase_if(sequences_, [](const Sequence& sequence) { return sequence.finished; });
  if (sequences_.empty() && kept_.empty()) forget();
}

// Drafts tokens for the sequences that have a first token. True if there are any.
bool Generator::draft() {
  if (!draft_) return false;
  try {
    return propose();
  } catch (const Error& error) {
    pieces_.clear();
    forget();
    fail(error.code(), kGeneratorOrigin, "the draft model: ", error.message());
  }
}

// Gives every sequence a row, in their order, and then every kept one.
void Generator::arrange() {
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
}

// The tokens that the cache does not have, by row, the drafted ones last. Makes room for them.
std::vector<std::vector<int32_t>> Generator::unread(std::span<const Sequence> sequences) {
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(state_.rows()));
  int64_t longest = 0;
  for (const Sequence& sequence : sequences) {
    std::vector<int32_t>& row = tokens[static_cast<size_t>(sequence.row)];
    row = {sequence.tokens.begin() + sequence.read, sequence.tokens.end()};
    row.insert(row.end(), sequence.drafted.begin(), sequence.drafted.end());
    longest = std::max(longest, sequence.read + std::ssize(row));
  }
  const int64_t capacity = state_.cache.capacity();
  if (longest > capacity)
    state_.cache.grow(context_,
                      std::min(model_.spec().max_positions, std::max(2 * capacity, longest)));
  return tokens;
}

// Reads the tokens of sequences without drafted ones; returns the logits after them, of each row.
Tensor Generator::read(std::span<const Sequence> sequences) {
  const std::vector<std::vector<int32_t>> tokens = unread(sequences);
  if (!StepGraphs::usable(context_, model_) ||
      std::ranges::any_of(tokens, [](auto& row) { return row.size() > 1; }))
    return model_.prefill(context_, state_, tokens);
  if (!graphs_) graphs_ = std::make_unique<StepGraphs>(context_, model_);
  std::vector<int32_t> ids, counts;
  for (const std::vector<int32_t>& row : tokens) {
    ids.insert(ids.end(), row.begin(), row.end());
    counts.push_back(static_cast<int32_t>(row.size()));
  }
  graphs_->adopt(state_);
  return graphs_->step(state_, ids, counts);
}

// Reads the last token of each sequence and the drafted ones; returns the logits after each.
Tensor Generator::verify(std::span<const Sequence> sequences) {
  std::vector<int32_t> ids, counts;
  for (const std::vector<int32_t>& row : unread(sequences)) {
    ids.insert(ids.end(), row.begin(), row.end());
    counts.push_back(static_cast<int32_t>(row.size()));
  }
  state_.cache.begin_append(context_, counts);
  const Tensor logits =
      model_.step_logits(context_, state_, context_.from_values<int32_t>(ids, {std::ssize(ids)}));
  state_.cache.end_append();
  return logits;
}

}  // namespace trafo
