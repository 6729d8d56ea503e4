#include "capi/src/option_types.h"

#include <algorithm>

#include "engine/core/limits.h"
#include "engine/metrics/registry.h"

namespace trafo::capi {
namespace {

int32_t bit_of(const std::string& name) {
  const Metric* const metric = find_metric(name);
  return metric != nullptr ? metric->bit : 0;
}

// For messages: the metrics of the bits, or the number if a bit is of none.
std::string names_of(int32_t bits) {
  std::string names;
  int32_t rest = bits;
  for (const Metric& metric : metrics()) {
    if ((bits & metric.bit) == 0) continue;
    names += concat(names.empty() ? "" : ",", metric.name);
    rest &= ~metric.bit;
  }
  return names.empty() || rest != 0 ? std::to_string(bits) : names;
}

}  // namespace

trafo_period to_c(const Period& period) {
  return {period.value, static_cast<int32_t>(period.unit), 0};
}

Period to_period(const Call& call, const trafo_period& period, const char* name) {
  call.reserved(period.reserved);
  if (period.unit < TRAFO_UNIT_UPDATES || period.unit > TRAFO_UNIT_EPOCHS)
    call.refuse_argument(name, " has the unknown unit ", period.unit);
  if (period.value < 0) call.refuse_argument(name, " must be at least 0, got ", period.value);
  return {period.value, static_cast<PeriodUnit>(period.unit)};
}

int32_t metric_bits(const std::vector<std::string>& names) {
  int32_t bits = 0;
  for (const std::string& name : names) bits |= bit_of(name);
  return bits;
}

int32_t first_bit(const std::vector<std::string>& names) {
  return names.empty() ? 0 : bit_of(names.front());
}

std::vector<std::string> to_metrics(const Call& call, int32_t bits, int32_t first) {
  int32_t all = 0;
  for (const Metric& metric : metrics()) all |= metric.bit;
  if ((bits & ~all) != 0) call.refuse_argument("valid_metrics", " has unknown bits: ", bits);
  if (bits != 0 && ((first & bits) != first || (first & (first - 1)) != 0 || first == 0))
    call.refuse_argument("first_metric", " ", names_of(first), " is not one of valid_metrics ",
                         names_of(bits));
  std::vector<std::string> names;
  for (const bool is_first : {true, false})
    for (const Metric& metric : metrics())
      if ((bits & metric.bit) != 0 && (first == metric.bit) == is_first)
        names.emplace_back(metric.name);
  return names;
}

static_assert(TRAFO_TIED_LAYERS == limits::kTiedLayers);

void layers_to_c(const std::vector<int64_t>& layers, uint8_t (&out)[TRAFO_TIED_LAYERS]) {
  for (size_t i = 0; i < std::size(out); ++i)
    out[i] = i < layers.size() ? static_cast<uint8_t>(layers[i]) : uint8_t{0};
}

std::vector<int64_t> to_layers(const Call& call, const uint8_t (&layers)[TRAFO_TIED_LAYERS],
                               const char* name) {
  const auto* const end = std::find(std::begin(layers), std::end(layers), 0);
  if (std::any_of(end, std::end(layers), [](uint8_t number) { return number != 0; }))
    call.refuse_argument(name, " has a layer behind the 0 that ends the list");
  return {std::begin(layers), end};
}

}  // namespace trafo::capi
