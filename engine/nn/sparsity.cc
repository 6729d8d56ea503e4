#include "engine/nn/sparsity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trafo::nn {
namespace {

template <class T>
void zero_lowest_of(std::span<T> values, std::span<T> scores, int64_t count) {
  if (count == 0) return;
  std::vector<T> ordered(scores.begin(), scores.end());
  for (size_t i = 0; i < ordered.size(); ++i)
    if (std::isnan(ordered[i])) ordered[i] = scores[i] = std::numeric_limits<T>::infinity();
  const auto last = ordered.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(ordered.begin(), last, ordered.end());
  const T threshold = *last;
  int64_t left = count;  // after those below the threshold, of those at it
  for (const T score : scores) left -= score < threshold ? 1 : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (scores[i] > threshold) continue;
    if (scores[i] == threshold && left-- <= 0) continue;
    values[i] = 0;
  }
}

template <class T>
void prune_values(Context& context, ParameterStore& parameters, ParamId id, double sparsity) {
  std::vector<T> values(static_cast<size_t>(element_count(parameters.shape(id))));
  const size_t bytes = values.size() * sizeof(T);
  parameters.get_value(context, id, values.data(), bytes);
  std::vector<T> scores(values.size());
  std::transform(values.begin(), values.end(), scores.begin(), [](T x) { return std::abs(x); });
  zero_lowest_of<T>(values, scores, pruned_count(sparsity, std::ssize(values)));
  parameters.set_value(context, id, values.data(), bytes);
}

}  // namespace

int64_t pruned_count(double sparsity, int64_t elements) {
  return std::llround(sparsity * static_cast<double>(elements));
}

void zero_lowest(std::span<float> values, std::span<float> scores, int64_t count) {
  zero_lowest_of(values, scores, count);
}

void zero_lowest(std::span<double> values, std::span<double> scores, int64_t count) {
  zero_lowest_of(values, scores, count);
}

void prune_by_magnitude(Context& context, ParameterStore& parameters, ParamId id, double sparsity) {
  if (parameters.master().dtype() == DType::f64)
    prune_values<double>(context, parameters, id, sparsity);
  else
    prune_values<float>(context, parameters, id, sparsity);
}

}  // namespace trafo::nn
