// The metrics of validations: the rows of schema/metrics.toml.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/metrics/metric.h"

namespace trafo {

// The input of a metric: the model's probabilities of the references; a metric of the objective
// with the same name; translations; or the words of translations, which say little about scripts
// without spaces.
enum class MetricNeeds { model, objective, translations, words };

struct Metric {
  const char* name;   // in options, files and events: "bleu"
  const char* title;  // for readers: "BLEU"
  int32_t bit;        // TRAFO_METRIC_* of the C ABI
  bool lower_is_better;
  MetricNeeds needs;
  // Of translations; INVALID_ARGUMENT if the counts differ or are 0. The score does not depend on
  // the threads. Null for metrics without needs_translations().
  double (*score)(std::span<const std::string> hypotheses, ReferenceSets references, int threads);

  bool needs_translations() const {
    return needs == MetricNeeds::translations || needs == MetricNeeds::words;
  }
};

// In the order in which they are listed.
std::span<const Metric> metrics();
// Null: there is no such metric.
const Metric* find_metric(std::string_view name);
// INVALID_ARGUMENT naming the known ones.
const Metric& metric_named(std::string_view name, const char* origin);
// "bleu, chrf, ter and ce-mean-words"
std::string known_metrics();

// Whether `value` beats `best`; without a best, any number does. NaN and infinities never do.
bool is_better(const Metric& metric, double value, std::optional<double> best);

}  // namespace trafo
