#include "settings/setting_types.h"

#include <algorithm>

namespace translate_train {

const MetricSpec* metric_of(int32_t bit) {
  const auto found = std::ranges::find(metric_specs(), bit, &MetricSpec::bit);
  return found == metric_specs().end() ? nullptr : &*found;
}

const MetricSpec* metric_named(std::string_view name) {
  const auto found = std::ranges::find(metric_specs(), name, &MetricSpec::name);
  return found == metric_specs().end() ? nullptr : &*found;
}

std::string known_metrics() {
  std::string names;
  for (const MetricSpec& metric : metric_specs()) {
    if (!names.empty()) names += ", ";
    names += metric.name;
  }
  return names;
}

}  // namespace translate_train
