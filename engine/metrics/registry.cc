#include "engine/metrics/registry.h"

#include <algorithm>
#include <cmath>

#include "engine/core/status.h"

namespace trafo {

#define TRAFO_MODEL_METRIC(...)
#define TRAFO_METRIC(name, title, bit, lower, needs, score) \
  double score(std::span<const std::string> hypotheses, ReferenceSets references, int threads);
#include "engine/metrics/generated/metrics.def"
#undef TRAFO_METRIC
#undef TRAFO_MODEL_METRIC

namespace {

constexpr Metric kMetrics[] = {
#define TRAFO_MODEL_METRIC(name, title, bit, lower, needs) \
  {name, title, bit, lower, MetricNeeds::needs, nullptr},
#define TRAFO_METRIC(name, title, bit, lower, needs, score) \
  {name, title, bit, lower, MetricNeeds::needs, score},
#include "engine/metrics/generated/metrics.def"
#undef TRAFO_METRIC
#undef TRAFO_MODEL_METRIC
};

}  // namespace

std::span<const Metric> metrics() {
  return kMetrics;
}

const Metric* find_metric(std::string_view name) {
  const auto* const found = std::ranges::find(kMetrics, name, &Metric::name);
  return found == std::end(kMetrics) ? nullptr : found;
}

const Metric& metric_named(std::string_view name, const char* origin) {
  const Metric* const found = find_metric(name);
  require(found != nullptr, ErrorCode::invalid_argument, origin, "unknown metric '", name,
          "', known are ", known_metrics());
  return *found;
}

std::string known_metrics() {
  std::string names;
  for (const Metric& metric : kMetrics) {
    const bool is_last = &metric == std::end(kMetrics) - 1;
    names += concat(names.empty() ? "" : is_last ? " and " : ", ", metric.name);
  }
  return names;
}

bool is_better(const Metric& metric, double value, std::optional<double> best) {
  if (!std::isfinite(value)) return false;
  if (!best || !std::isfinite(*best)) return true;
  return metric.lower_is_better ? value < *best : value > *best;
}

}  // namespace trafo
