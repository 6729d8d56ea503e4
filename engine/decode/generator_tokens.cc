// How a Generator chooses tokens, its own and those that the draft model proposes.
//
// A proposed token is accepted if the model's own logits lead to it, by the rules of the request
// and the random number of its place. So a draft model changes how many tokens a step gives, and
// not which ones. The draft model chooses by the same rules and random numbers, so that it often
// draws the same token.
#include <cmath>
#include <limits>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/decode/draft_model.h"
#include "engine/decode/generator_state.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/view/view.h"

namespace trafo {

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
  piece.drafted_tokens = all_drafted;
  piece.accepted_tokens = accepted;
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

// Rows of the logits, ascending.
Tensor logits_of(Context& context, const Tensor& logits, const std::vector<int32_t>& rows) {
  const auto count = std::ssize(rows);
  if (rows.back() - rows.front() == count - 1)
    return ops::slice(context, logits, 0, rows.front(), rows.front() + count);
  return ops::gather_rows(context, logits, context.from_values<int32_t>(rows, {count}));
}

// Calls visit(logits, positions) for each request. Row 0 of these logits is the first one's.
template <class Position, class Visit>
void visit_requests(Context& context, const Tensor& logits, std::span<const Position> positions,
                    const Visit& visit) {
  for (size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    std::vector<Position> group;
    std::vector<int32_t> rows;
    for (; end < positions.size() &&
           positions[end].sequence->request == positions[begin].sequence->request;
         ++end) {
      const auto row = static_cast<int32_t>(positions[end].row);
      if (rows.empty() || rows.back() != row) rows.push_back(row);
      group.push_back(positions[end]);
      group.back().row = std::ssize(rows) - 1;
    }
    visit(logits_of(context, logits, rows), group);
  }
}

}  // namespace

// The logits with -infinity for tokens that cannot follow: ends of texts that are not complete, and
// others that leave the language of the schema.
Tensor Generator::constrained(const Tensor& logits, std::span<const Position> positions) {
  const Request& request = *positions.front().sequence->request;
  const auto vocabulary = static_cast<size_t>(logits.dim(1));
  std::vector<float> mask(static_cast<size_t>(logits.numel()),
                          -std::numeric_limits<float>::infinity());
  int64_t before = -1;
  for (const Position& position : positions) {
    if (position.row == before) continue;  // samples of a prompt begin with one text
    before = position.row;
    const auto of_row =
        std::span(mask).subspan(static_cast<size_t>(before) * vocabulary, vocabulary);
    const TokenSet allowed = request.constraint->allowed(*position.matcher);
    for (size_t token = 0; token < vocabulary; ++token)
      if (allowed.has(static_cast<int32_t>(token))) of_row[token] = 0;
    for (const int32_t end : request.ends)
      of_row[static_cast<size_t>(end)] =
          position.matcher->complete() ? 0 : -std::numeric_limits<float>::infinity();
  }
  const Tensor added = context_.from_values<float>(mask, logits.shape());
  return ops::add(context_, logits, ops::cast(context_, added, logits.dtype()));
}

// The next token at each position of a request; negative: none may follow.
std::vector<int32_t> Generator::pick(const Tensor& logits, std::span<const Position> positions) {
  Request& request = *positions.front().sequence->request;
  std::vector<Sampler::Place> places;
  std::vector<LogitsProcessor::Row> texts;
  for (const Position& position : positions) {
    const Sequence& sequence = *position.sequence;
    places.push_back({position.row, sequence.prompt, sequence.sample,
                      static_cast<int32_t>(position.generated()), position.may_end()});
    if (!request.processor.active() || (!texts.empty() && texts.back().row == position.row))
      continue;
    texts.push_back({position.row, sequence.tokens, static_cast<size_t>(sequence.prompt_tokens)});
    texts.back().text.insert(texts.back().text.end(), position.drafted.begin(),
                             position.drafted.end());
  }
  Tensor changed = texts.empty() ? logits : request.processor.process(context_, logits, texts, {});
  if (request.constraint) changed = constrained(changed, positions);
  if (!request.sampler) return best_tokens(context_, changed, places, request.ends, request.banned);
  std::vector<int32_t> chosen;
  for (const Sampler::Draw& draw : request.sampler->draw(context_, changed, places))
    chosen.push_back(draw.token);
  return chosen;
}

// Adds the next token to each sequence of a request. `round`: tokens that it got in this step.
void Generator::add_tokens(const Tensor& logits, std::span<const Position> positions,
                           size_t round) {
  const Request& request = *positions.front().sequence->request;
  const std::vector<int32_t> chosen = pick(logits, positions);
  std::optional<Scores> scores;
  std::vector<double> log_probabilities;
  if (request.wants_scores()) {
    std::vector<int64_t> rows;
    for (const Position& position : positions) rows.push_back(position.row);
    scores.emplace(context_, logits, request.options.alternatives);
    log_probabilities = scores->of(context_, rows, chosen);
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    Sequence& sequence = *positions[i].sequence;
    if (sequence.matcher && chosen[i] >= 0 && !request.is_end(chosen[i]))
      require(sequence.matcher->push(tokenizer_->token_bytes(chosen[i])), ErrorCode::internal,
              kGeneratorOrigin, "token ", chosen[i], " leaves the language of the schema");
    if (round < sequence.drafted.size() && chosen[i] == sequence.drafted[round]) {
      ++sequence.accepted;
      ++sequence.read;
    }
    GenerationPiece piece = sequence.add(chosen[i]);
    if (request.decode.word_scores && chosen[i] >= 0) piece.log_probability = log_probabilities[i];
    if (request.options.alternatives > 0) {
      const auto count = static_cast<size_t>(scores->count);
      const auto begin = static_cast<std::ptrdiff_t>(static_cast<size_t>(positions[i].row) * count);
      const auto end = begin + static_cast<std::ptrdiff_t>(count);
      piece.alternatives = {scores->ids.begin() + begin, scores->ids.begin() + end};
      piece.alternative_log_probabilities = {scores->values.begin() + begin,
                                             scores->values.begin() + end};
    }
    pieces_.push_back(std::move(piece));
  }
}

// Chooses the tokens of a step. The logits have a row for each row of the cache, and one more for
// each token that was drafted for it.
void Generator::choose(const Tensor& logits, std::span<Sequence> sequences) {
  std::vector<Position> open;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = sequences[i];
    int64_t row = 0;
    if (i > 0) {
      const bool shared = sequence.row == sequences[i - 1].row;
      row = open.back().row + (shared ? 0 : 1 + std::ssize(sequences[i - 1].drafted));
    }
    open.push_back({&sequence, row, {}, sequence.matcher ? &*sequence.matcher : nullptr});
  }
  for (size_t round = 0; !open.empty(); ++round) {
    visit_requests<Position>(context_, logits, open,
                             [&](const Tensor& of_request, std::span<const Position> positions) {
                               add_tokens(of_request, positions, round);
                             });
    std::erase_if(open, [&](const Position& position) {
      const Sequence& sequence = *position.sequence;
      return sequence.finished || round >= sequence.drafted.size() ||
             sequence.tokens.back() != sequence.drafted[round];
    });
    for (Position& position : open) ++position.row;
  }
}

// Tokens that may be drafted: one more is generated in any case.
int64_t Generator::most_drafted(const Sequence& sequence) const {
  if (!draft_ || sequence.is_new()) return 0;
  // The draft model does not read the last one.
  const int64_t positions = draft_->max_positions() + 1 - std::ssize(sequence.tokens);
  return std::min(
      {sequence.request->options.draft_tokens, sequence.most - sequence.generated - 1, positions});
}

// Lets the draft model propose tokens. True if there are any.
bool Generator::propose() {
  std::vector<Sequence*> drafting;
  std::vector<DraftModel::Text> texts;
  std::vector<std::optional<ByteMatcher>> matchers;
  for (Sequence& sequence : sequences_) {
    sequence.drafted.clear();
    if (most_drafted(sequence) < 1) continue;
    drafting.push_back(&sequence);
    texts.push_back({sequence.number, sequence.tokens});
    matchers.push_back(sequence.matcher);
  }
  if (drafting.empty()) return false;
  std::vector<std::vector<int32_t>> tokens = draft_->begin(texts, most_kept_);
  bool any = false;
  for (bool more = true; more;) {
    const Tensor logits = draft_->read(tokens);
    std::vector<Position> positions;
    std::vector<size_t> places;
    for (size_t i = 0; i < drafting.size(); ++i) {
      if (tokens[i].empty()) continue;
      positions.push_back({drafting[i], std::ssize(positions), drafting[i]->drafted,
                           matchers[i] ? &*matchers[i] : nullptr});
      places.push_back(i);
    }
    std::vector<int32_t> chosen;
    visit_requests<Position>(context_, logits, positions,
                             [&](const Tensor& of_request, std::span<const Position> group) {
                               const std::vector<int32_t> found = pick(of_request, group);
                               chosen.insert(chosen.end(), found.begin(), found.end());
                             });
    more = false;
    for (size_t p = 0; p < places.size(); ++p) {
      Sequence& sequence = *drafting[places[p]];
      std::vector<int32_t>& next = tokens[places[p]];
      next.clear();
      if (chosen[p] < 0 || sequence.request->is_end(chosen[p])) continue;
      sequence.drafted.push_back(chosen[p]);
      ++sequence.all_drafted;
      any = true;
      if (std::ssize(sequence.drafted) == most_drafted(sequence)) continue;
      if (matchers[places[p]])
        require(matchers[places[p]]->push(tokenizer_->token_bytes(chosen[p])), ErrorCode::internal,
                kGeneratorOrigin, "token ", chosen[p], " leaves the language of the schema");
      next = {chosen[p]};
      more = true;
    }
  }
  return any;
}

}  // namespace trafo
