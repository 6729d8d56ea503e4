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

// The columns of those tokens that have one.
std::vector<int32_t> columns_of(const std::vector<int32_t>& tokens,
                                std::span<const int32_t> classes) {
  if (classes.empty()) return tokens;
  std::vector<int32_t> columns;
  for (const int32_t token : tokens) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), token);
    if (found != classes.end() && *found == token)
      columns.push_back(static_cast<int32_t>(found - classes.begin()));
  }
  return columns;
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

Tensor LogitsProcessor::process(Context& context, const Tensor& logits, std::span<const Row> rows,
                                std::span<const int32_t> classes) const {
  struct Change {
    std::vector<int32_t> penalised, excluded;  // columns
  };
  std::vector<Change> changes(static_cast<size_t>(logits.dim(0)));
  size_t most = 0;
  for (const Row& row : rows) {
    Change& change = changes[static_cast<size_t>(row.row)];
    if (penalty_ != 1) {
      std::vector<int32_t> tokens = row.text;
      sort_unique(tokens);
      change.penalised = columns_of(tokens, classes);
    }
    if (ngram_ > 0) change.excluded = columns_of(repeating(row.text, ngram_), classes);
    most = std::max(most, change.penalised.size() + change.excluded.size());
  }
  if (most == 0) return logits;

  // Only the logits that change travel to the host. A row with fewer changes than others repeats
  // its last one; a row without any rewrites the first column with its value.
  const Shape shape{logits.dim(0), static_cast<int64_t>(most)};
  std::vector<int32_t> index;
  index.reserve(changes.size() * most);
  for (const Change& change : changes) {
    const size_t begin = index.size();
    index.insert(index.end(), change.penalised.begin(), change.penalised.end());
    index.insert(index.end(), change.excluded.begin(), change.excluded.end());
    const int32_t filler = index.size() > begin ? index.back() : 0;
    index.resize(begin + most, filler);
  }
  const Tensor places = context.from_values<int32_t>(index, shape);
  std::vector<double> values = to_doubles(context, ops::gather(context, logits, 1, places));
  for (size_t r = 0; r < changes.size(); ++r) {
    const Change& change = changes[r];
    const auto row = std::span(values).subspan(r * most, most);
    const size_t penalised = change.penalised.size();
    const size_t changed = penalised + change.excluded.size();
    for (size_t i = 0; i < penalised; ++i)
      row[i] = row[i] > 0 ? row[i] / penalty_ : row[i] * penalty_;
    for (size_t i = penalised; i < changed; ++i) row[i] = -std::numeric_limits<double>::infinity();
    if (changed > 0)
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(changed), row.end(), row[changed - 1]);
  }
  const Tensor changed = context.from_doubles(values, shape, logits.dtype());
  return ops::scatter(context, logits, 1, places, changed);
}

}  // namespace trafo
