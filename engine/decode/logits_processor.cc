#include "engine/decode/logits_processor.h"

#include <algorithm>
#include <limits>

#include "engine/decode/packing.h"
#include "engine/ops/along_dim/along_dim.h"

namespace trafo {
namespace {

void sort_unique(std::vector<int32_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

std::vector<int32_t> LogitsProcessor::repeating(std::span<const int32_t> text, int64_t n) {
  std::vector<int32_t> tokens;
  const auto size = static_cast<int64_t>(text.size());
  if (size < n) return tokens;
  const auto last = text.end() - (n - 1);  // the beginning of the n-gram that comes next
  for (auto begin = text.begin(); begin + (n - 1) < text.end(); ++begin)
    if (std::equal(last, text.end(), begin)) tokens.push_back(begin[n - 1]);
  sort_unique(tokens);
  return tokens;
}

std::vector<LogitsProcessor::Rule> LogitsProcessor::rules_of(
    const Row& row, std::span<const int32_t> classes) const {
  std::vector<Rule> all;
  for (size_t i = penalty_ != 1 ? 0 : row.given; i < row.text.size() && (penalty_ != 1 || counts());
       ++i)
    all.push_back({.token = row.text[i], .in_text = true, .generated = i < row.given ? 0 : 1});
  for (const auto& [token, bias] : bias_) all.push_back({.token = token, .bias = bias});
  for (const int32_t token : banned_) all.push_back({.token = token, .excluded = true});
  if (ngram_ > 0)
    for (const int32_t token : repeating(row.text, ngram_))
      all.push_back({.token = token, .excluded = true});
  std::ranges::sort(all, {}, &Rule::token);
  std::vector<Rule> rules;
  for (const Rule& rule : all) {
    if (rules.empty() || rules.back().token != rule.token) {
      rules.push_back(rule);
      continue;
    }
    Rule& same = rules.back();
    same.in_text = same.in_text || rule.in_text;
    same.generated += rule.generated;
    same.bias += rule.bias;
    same.excluded = same.excluded || rule.excluded;
  }
  if (classes.empty()) return rules;
  std::erase_if(rules, [&](Rule& rule) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), rule.token);
    if (found == classes.end() || *found != rule.token) return true;
    rule.token = static_cast<int32_t>(found - classes.begin());
    return false;
  });
  return rules;
}

double LogitsProcessor::changed(double logit, const Rule& rule) const {
  if (rule.excluded) return -std::numeric_limits<double>::infinity();
  if (rule.in_text) logit = logit > 0 ? logit / penalty_ : logit * penalty_;
  if (rule.generated > 0) logit -= presence_ + frequency_ * rule.generated;
  return logit + rule.bias;
}

Tensor LogitsProcessor::process(Context& context, const Tensor& logits, std::span<const Row> rows,
                                std::span<const int32_t> classes) const {
  std::vector<std::vector<Rule>> rules(static_cast<size_t>(logits.dim(0)));
  size_t most = 0;
  for (const Row& row : rows) {
    std::vector<Rule>& of_row = rules[static_cast<size_t>(row.row)];
    of_row = rules_of(row, classes);
    most = std::max(most, of_row.size());
  }
  if (most == 0) return logits;

  // Only the logits that change travel to the host. A row with fewer changes than others repeats
  // its last one; a row without any rewrites the first column with its value.
  const Shape shape{logits.dim(0), static_cast<int64_t>(most)};
  std::vector<int32_t> index;
  index.reserve(rules.size() * most);
  for (const std::vector<Rule>& of_row : rules) {
    const size_t begin = index.size();
    for (const Rule& rule : of_row) index.push_back(rule.token);
    index.resize(begin + most, of_row.empty() ? 0 : of_row.back().token);
  }
  const Tensor places = context.from_values<int32_t>(index, shape);
  std::vector<double> values = to_doubles(context, ops::gather(context, logits, 1, places));
  for (size_t r = 0; r < rules.size(); ++r) {
    const auto row = std::span(values).subspan(r * most, most);
    const size_t count = rules[r].size();
    for (size_t i = 0; i < count; ++i) row[i] = changed(row[i], rules[r][i]);
    if (count > 0)
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(count), row.end(), row[count - 1]);
  }
  const Tensor changed_values = context.from_doubles(values, shape, logits.dtype());
  return ops::scatter(context, logits, 1, places, changed_values);
}

}  // namespace trafo
