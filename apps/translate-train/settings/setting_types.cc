#include "settings/setting_types.h"

#include <fmt/format.h>

#include <algorithm>

namespace translate_train {
namespace {

constexpr char kUnits[] = {'u', 't', 'e'};  // by TRAFO_UNIT_*

}  // namespace

trafo_period parse_period(const Settings& settings, const std::string& name,
                          const std::string& text) {
  std::string number = text;
  trafo_period period{0, TRAFO_UNIT_UPDATES, 0};
  const auto* const unit =
      number.empty() ? std::end(kUnits) : std::ranges::find(kUnits, text.back());
  if (unit != std::end(kUnits)) {
    period.unit = static_cast<int32_t>(unit - std::begin(kUnits));
    number.pop_back();
  }
  if (!parse_count(number, period.value) || period.value < 0)
    settings.refuse(
        name,
        fmt::format("wants a number and a unit (1000u updates, 2Mt target tokens, 10e epochs), "
                    "got '{}'",
                    text));
  return period;
}

std::string period_text(const trafo_period& period) {
  return fmt::format("{}{}", period.value, kUnits[period.unit]);
}

void read_encoder_layers(const Settings& settings, const std::string& name,
                         trafo_model_config& config) {
  config.encoder_layers = settings.integer(name);
}

void read_tied_layers(const Settings& settings, const std::string& name,
                      uint8_t (&layers)[TRAFO_TIED_LAYERS]) {
  std::ranges::fill(layers, uint8_t{0});
  const auto& given = settings.list(name);
  if (given.empty() || (given.size() == 1 && given[0] == "none")) return;
  size_t count = 0;
  for (const std::string& value : given)
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      int64_t number = 0;
      if (!parse_count(value.substr(begin, end - begin), number) || number < 1 ||
          number > TRAFO_TIED_LAYERS || count == TRAFO_TIED_LAYERS)
        settings.refuse(
            name, fmt::format("wants none or a number of 1 to {} for each of up to {} layers, such "
                              "as 1 1 3 3, got '{}'",
                              TRAFO_TIED_LAYERS, TRAFO_TIED_LAYERS, fmt::join(given, " ")));
      layers[count++] = static_cast<uint8_t>(number);
      begin = end + 1;
    }
}

std::vector<std::string> layer_names(const uint8_t (&layers)[TRAFO_TIED_LAYERS]) {
  std::vector<std::string> names;
  for (const uint8_t number : layers)
    if (number != 0) names.push_back(std::to_string(number));
  return names.empty() ? std::vector<std::string>{"none"} : names;
}

void read_ema_alpha(const Settings& settings, const std::string& name,
                    trafo_trainer_options& options) {
  const auto& values = settings.list(name);
  if (values.empty() || values[0].empty() || values[0] == "on") {
    options.ema_alpha = 1e-4;
    return;
  }
  options.ema_alpha = values[0] == "off" ? 0 : settings.real(name);
  if (options.ema_alpha < 0 || options.ema_alpha >= 1)
    settings.refuse(
        name, fmt::format("wants a share of at least 0 and below 1, got {}", options.ema_alpha));
}

void read_alphas(const Settings& settings, const std::string& name,
                 trafo_trainer_options& options) {
  const std::vector<double> alphas = settings.reals(name);
  options.source_alpha = alphas.front();
  options.target_alpha = alphas.back();
}

void read_after(const Settings& settings, const std::string& name, trafo_trainer_options& options) {
  for (const std::string& value : settings.list(name)) {
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const bool of_phase = value[begin] == '+';
      if (of_phase && options.phase == 1)
        settings.refuse(name,
                        value + " counts from the start of a phase: give --phase 2, or above");
      if (of_phase) ++begin;
      const trafo_period limit = parse_period(settings, name, value.substr(begin, end - begin));
      if (!of_phase && options.phase > 1 && limit.value > 0)
        settings.refuse(name,
                        fmt::format("{} would count from the start of the run: phase {} wants "
                                    "+{}, which counts from its own start",
                                    value, options.phase, value));
      int64_t& slot = limit.unit == TRAFO_UNIT_UPDATES  ? options.after_updates
                      : limit.unit == TRAFO_UNIT_TOKENS ? options.after_tokens
                                                        : options.after_epochs;
      slot = limit.value;
      begin = end + 1;
    }
  }
}

void read_metrics(const Settings& settings, const std::string& name,
                  trafo_trainer_options& options) {
  options.valid_metrics = options.first_metric = 0;
  for (const std::string& metric : settings.list(name)) {
    const MetricSpec* const found = metric_named(metric);
    if (found == nullptr)
      settings.refuse(name, fmt::format("wants some of {}, got '{}'", known_metrics(), metric));
    const int32_t bit = found->bit;
    if (options.first_metric == 0) options.first_metric = bit;
    options.valid_metrics |= bit;
  }
}

std::vector<std::string> metric_names(const trafo_trainer_options& options) {
  std::vector<std::string> names;
  for (const bool first : {true, false})
    for (const MetricSpec& metric : metric_specs())
      if ((options.valid_metrics & metric.bit) != 0 &&
          (options.first_metric == metric.bit) == first)
        names.emplace_back(metric.name);
  return names;
}

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
