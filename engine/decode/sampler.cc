#include "engine/decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "engine/core/numeric/philox.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/decode/packing.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/top_k/top_k.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr const char* kSamplerOrigin = "translate";

[[noreturn]] void fail_non_finite(const Sampler::Place& place) {
  fail(ErrorCode::non_finite, kSamplerOrigin, "the model answers sentence ", place.sentence + 1,
       " with NaN or infinity behind ", place.position, " tokens");
}

}  // namespace

Sampler::Sampler(const DrawOptions& options, std::span<const int32_t> ends,
                 std::span<const int32_t> banned)
    : options_(options), ends_(ends.begin(), ends.end()), banned_(banned.begin(), banned.end()) {}

bool Sampler::allowed(int32_t id, const Place& place) const {
  return (place.may_end || std::find(ends_.begin(), ends_.end(), id) == ends_.end()) &&
         std::find(banned_.begin(), banned_.end(), id) == banned_.end();
}

double Sampler::uniform(const Place& place) const {
  const auto line =
      static_cast<uint64_t>(options_.first_line) + static_cast<uint64_t>(place.sentence);
  const PhiloxBlock block =
      philox4x32({static_cast<uint32_t>(line), static_cast<uint32_t>(line >> 32),
                  static_cast<uint32_t>(place.position), static_cast<uint32_t>(place.sample)},
                 options_.seed);
  const uint64_t bits = static_cast<uint64_t>(block[0]) << 32 | block[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Draws one of `tokens` in proportion to its probability. True probabilities are the given ones
// times e^scale.
Sampler::Draw Sampler::choose(std::span<const Token> tokens, const Place& place,
                              double scale) const {
  if (tokens.empty()) return {-1, scale};
  double total = 0;
  for (const Token& token : tokens) total += token.probability;
  if (!std::isfinite(total) || total <= 0) fail_non_finite(place);
  const double target = uniform(place) * total;
  double sum = 0;
  const Token* chosen = nullptr;
  for (const Token& token : tokens) {
    if (token.probability == 0) continue;
    chosen = &token;
    sum += token.probability;
    if (sum > target) break;
  }
  return {chosen->id, portable_log(chosen->probability) + scale};
}

// The allowed tokens if the others have nearly all of the probability, as happens at a low
// temperature. Their probabilities are relative to the largest allowed logit, so that none
// underflows. Returns the logarithm of the factor to the true probabilities. `tokens` is empty if
// the logits of all allowed tokens are -infinity.
double Sampler::unlikely_tokens(std::span<const double> logits, const Place& place,
                                std::vector<Token>& tokens) const {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  double most = kNothing, most_allowed = kNothing, total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double value = logits[i] / options_.temperature;
    most = std::max(most, value);
    if (allowed(static_cast<int32_t>(i), place)) most_allowed = std::max(most_allowed, value);
  }
  tokens.clear();
  if (most_allowed == kNothing && std::isfinite(most)) return kNothing;
  if (!std::isfinite(most_allowed)) fail_non_finite(place);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double value = logits[i] / options_.temperature;
    const auto id = static_cast<int32_t>(i);
    total += portable_exp(value - most);
    if (const double p = portable_exp(value - most_allowed); p > 0 && allowed(id, place))
      tokens.push_back({p, id});
  }
  return most_allowed - most - portable_log(total);
}

std::vector<Sampler::Draw> Sampler::draw(Context& context, const Tensor& logits,
                                         std::span<const Place> places) {
  return options_.top_k > 0 ? draw_from_best(context, logits, places)
                            : draw_from_all(context, logits, places);
}

namespace {

// Cuts the tokens, most probable first, after the one with which they reach `share` of their sum.
template <class Tokens>
void keep_share(Tokens& tokens, double share, double total) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += tokens[i].probability;
    if (sum >= share * total) return tokens.resize(i + 1);
  }
}

// Leaves the tokens with at least `share` of the largest probability.
template <class Tokens>
void keep_likely(Tokens& tokens, double share) {
  if (share == 0 || tokens.empty()) return;
  double most = 0;
  for (const auto& token : tokens) most = std::max(most, token.probability);
  std::erase_if(tokens, [&](const auto& token) { return token.probability < share * most; });
}

}  // namespace

std::vector<Sampler::Draw> Sampler::draw_from_best(Context& context, const Tensor& logits,
                                                   std::span<const Place> places) {
  const int64_t most = logits.dim(1) - static_cast<int64_t>(banned_.size());
  // More by the ends, in case they are among them and not allowed.
  const auto ends = static_cast<int64_t>(ends_.size());
  const int64_t k = std::min(options_.top_k + ends, most);
  const Tensor scaled =
      options_.temperature == 1 ? logits : ops::scale(context, logits, 1 / options_.temperature);
  const ops::TopK top = ops::top_k(context, scaled, k, banned_);
  const std::vector<double> values = to_doubles(context, top.log_probabilities);
  const std::vector<int32_t> ids = context.values<int32_t>(top.ids);
  std::vector<Draw> draws;
  std::vector<Token> tokens;
  for (const Place& place : places) {
    tokens.clear();
    double total = 0, best = 0;
    for (int64_t i = 0; i < k && static_cast<int64_t>(tokens.size()) < options_.top_k; ++i) {
      const auto at = static_cast<size_t>(place.row * k + i);
      if (std::isnan(values[at])) fail_non_finite(place);
      if (values[at] == -std::numeric_limits<double>::infinity()) break;  // values are sorted
      if (!allowed(ids[at], place)) continue;
      if (tokens.empty()) best = values[at];  // the largest
      tokens.push_back({portable_exp(values[at] - best), ids[at]});
      total += tokens.back().probability;
    }
    keep_share(tokens, options_.top_p, total);
    keep_likely(tokens, options_.min_p);
    draws.push_back(choose(tokens, place, best));
  }
  return draws;
}

std::vector<Sampler::Draw> Sampler::draw_from_all(Context& context, const Tensor& logits,
                                                  std::span<const Place> places) {
  ops::SoftmaxOptions softmax;
  softmax.scale = 1 / options_.temperature;
  const std::vector<double> probabilities =
      to_doubles(context, ops::softmax(context, logits, softmax));
  const auto classes = static_cast<size_t>(logits.dim(1));
  std::vector<double> values;  // all logits, copied only if needed
  std::vector<Draw> draws;
  std::vector<Token> tokens;
  for (const Place& place : places) {
    tokens.clear();
    double total = 0;
    const double* row = probabilities.data() + static_cast<size_t>(place.row) * classes;
    for (size_t i = 0; i < classes; ++i) {
      const auto id = static_cast<int32_t>(i);
      if (row[i] > 0) tokens.push_back({row[i], id});
      total += row[i];
    }
    if (!std::isfinite(total) || tokens.empty()) fail_non_finite(place);
    std::erase_if(tokens, [&](const Token& token) { return !allowed(token.id, place); });
    double share_of = 0, scale = 0;
    for (const Token& token : tokens) share_of += token.probability;
    // Probabilities near the smallest float have lost their proportions.
    if (share_of < 1e-30) {
      if (values.empty()) values = to_doubles(context, logits);
      scale = unlikely_tokens(
          std::span(values).subspan(static_cast<size_t>(place.row) * classes, classes), place,
          tokens);
      share_of = 0;
      for (const Token& token : tokens) share_of += token.probability;
    }
    if (options_.top_p < 1) {
      const auto more_probable = [](const Token& a, const Token& b) {
        return std::tie(b.probability, a.id) < std::tie(a.probability, b.id);
      };
      // A few tokens are nearly always enough, so only those are sorted.
      for (size_t sorted = 64;; sorted *= 8) {
        const size_t count = std::min(sorted, tokens.size());
        std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count),
                          tokens.end(), more_probable);
        double sum = 0;
        for (size_t i = 0; i < count; ++i) sum += tokens[i].probability;
        if (sum < options_.top_p * share_of && count < tokens.size()) continue;
        tokens.resize(count);
        break;
      }
      keep_share(tokens, options_.top_p, share_of);
    }
    keep_likely(tokens, options_.min_p);
    draws.push_back(choose(tokens, place, scale));
  }
  return draws;
}

}  // namespace trafo
