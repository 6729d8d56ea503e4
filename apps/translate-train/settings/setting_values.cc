// Words and values of settings, one from the other.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "commands/trafo_handles.h"
#include "settings/setting_types.h"
#include "settings/settings.h"

namespace translate_train {
namespace {

constexpr char kUnits[] = {'u', 't', 'e'};  // by TRAFO_UNIT_*
constexpr double kMarianShare = 1e-4;       // of --exponential-smoothing without a value
constexpr std::pair<std::string_view, double> kSizes[] = {
    {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"", 1},
    {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};

std::string period_text(const trafo_period& period) {
  return fmt::format("{}{}", period.value, kUnits[period.unit]);
}

std::string size_text(int64_t bytes) {
  const auto* const size = std::ranges::find_if(kSizes, [&](const auto& each) {
    return bytes != 0 && bytes % static_cast<int64_t>(each.second) == 0;
  });
  if (size == std::end(kSizes)) return std::to_string(bytes);
  return fmt::format("{}{}", bytes / static_cast<int64_t>(size->second), size->first);
}

bool parse_real(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out);
}

std::string first_name(std::string_view names) {
  return std::string(names.substr(0, names.find('|')));
}

std::vector<std::string> layer_words(const uint8_t (&layers)[TRAFO_TIED_LAYERS]) {
  std::vector<std::string> words;
  for (const uint8_t number : layers)
    if (number != 0) words.push_back(std::to_string(number));
  return words.empty() ? std::vector<std::string>{"none"} : words;
}

std::vector<std::string> metric_words(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const bool first : {true, false})
    for (const MetricSpec& metric : metric_specs())
      if ((*metrics.all & metric.bit) != 0 && (*metrics.first == metric.bit) == first)
        names.emplace_back(metric.name);
  return names;
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// The words of one setting, and where they are from.
class Words {
 public:
  Words(const SettingSpec& spec, const std::vector<std::string>& words, const std::string& origin)
      : spec_(spec), words_(words), origin_(origin) {}

  [[noreturn]] void refuse(const std::string& reason) const {
    refuse_value(spec_.name, origin_, reason);
  }
  // No word, or an empty one.
  bool is_bare() const { return words_.empty() || words_[0].empty(); }
  const std::string& text() const {
    if (words_.size() != 1 || words_[0].empty()) refuse("wants one value");
    return words_[0];
  }

  int64_t integer() const {
    int64_t value = 0;
    if (!parse_count(text(), value)) refuse(fmt::format("wants a whole number, got '{}'", text()));
    check(static_cast<double>(value), std::to_string(value));
    return value;
  }
  double real() const {
    double value = 0;
    if (!parse_real(text(), value)) refuse(fmt::format("wants a number, got '{}'", text()));
    check(value, fmt::format("{}", value));
    return value;
  }
  std::vector<double> reals() const {
    std::vector<double> values;
    for (const std::string& word : words_)
      if (!parse_real(word, values.emplace_back()))
        refuse(fmt::format("wants numbers, got '{}'", word));
    return values;
  }
  uint64_t seed() const {
    const int64_t value = integer();
    if (value < 0) refuse("must be at least 0");
    return static_cast<uint64_t>(value);
  }
  int64_t bytes() const {
    int64_t value = 0;
    if (!parse_bytes(text(), value))
      refuse(fmt::format("wants a size as 800MiB or 4GiB, got '{}'", text()));
    return value;
  }
  bool flag() const {
    if (is_bare()) return true;
    const std::string& word = words_[0];
    if (word == "on" || word == "true") return true;
    if (word == "off" || word == "false") return false;
    refuse(fmt::format("wants on or off, got '{}'", word));
  }
  double share() const {
    if (is_bare() || words_[0] == "on") return kMarianShare;
    const double value = words_[0] == "off" ? 0 : real();
    if (value < 0 || value >= 1)
      refuse(fmt::format("wants a share of at least 0 and below 1, got {}", value));
    return value;
  }
  int32_t choice() const {
    std::string known;
    const std::string wanted = '|' + text() + '|';
    for (size_t i = 0; i < spec_.words.size(); ++i) {
      if (('|' + std::string(spec_.words[i]) + '|').find(wanted) != std::string::npos)
        return static_cast<int32_t>(i);
      known += (i == 0 ? "" : i + 1 == spec_.words.size() ? " or " : ", ");
      known += first_name(spec_.words[i]);
    }
    refuse(fmt::format("wants {}, got '{}'", known, text()));
  }
  trafo_period period(const std::string& word) const {
    trafo_period value{};
    if (!parse_period(word, value))
      refuse(
          fmt::format("wants a number and a unit (1000u updates, 2Mt target tokens, 10e epochs), "
                      "got '{}'",
                      word));
    return value;
  }
  std::vector<RunLimit> limits() const {
    std::vector<RunLimit> limits;
    for (const std::string& word : parts()) {
      const bool of_phase = word.starts_with('+');
      limits.push_back({period(word.substr(of_phase ? 1 : 0)), of_phase});
    }
    return limits;
  }
  void layers(uint8_t (&layers)[TRAFO_TIED_LAYERS]) const {
    std::ranges::fill(layers, uint8_t{0});
    if (words_.empty() || (words_.size() == 1 && words_[0] == "none")) return;
    size_t count = 0;
    for (const std::string& word : parts()) {
      int64_t number = 0;
      if (!parse_count(word, number) || number < 1 || number > TRAFO_TIED_LAYERS ||
          count == TRAFO_TIED_LAYERS)
        refuse(
            fmt::format("wants none or a number of 1 to {} for each of up to {} layers, such "
                        "as 1 1 3 3, got '{}'",
                        TRAFO_TIED_LAYERS, TRAFO_TIED_LAYERS, fmt::join(words_, " ")));
      layers[count++] = static_cast<uint8_t>(number);
    }
  }
  void metrics(const Metrics& to) const {
    *to.all = *to.first = 0;
    for (const std::string& word : words_) {
      const MetricSpec* const found = metric_named(word);
      if (found == nullptr)
        refuse(fmt::format("wants some of {}, got '{}'", known_metrics(), word));
      if (*to.first == 0) *to.first = found->bit;
      *to.all |= found->bit;
    }
  }

 private:
  void check(double value, const std::string& shown) const {
    const Bounds& bounds = spec_.bounds;
    if (bounds.text == nullptr || (bounds.zero && value == 0)) return;
    const bool inside = (bounds.low_inside ? value >= bounds.low : value > bounds.low) &&
                        (bounds.high_inside ? value <= bounds.high : value < bounds.high);
    if (!inside) refuse(fmt::format("must be {}, got {}", bounds.text, shown));
  }
  // Commas part words.
  std::vector<std::string> parts() const {
    std::vector<std::string> parts;
    for (const std::string& word : words_)
      for (size_t begin = 0; begin <= word.size();) {
        const size_t end = std::min(word.find(',', begin), word.size());
        parts.push_back(word.substr(begin, end - begin));
        begin = end + 1;
      }
    return parts;
  }

  const SettingSpec& spec_;
  const std::vector<std::string>& words_;
  const std::string& origin_;
};

}  // namespace

Values::Values()
    : model(with_defaults<trafo_model_config>(trafo_model_config_init)),
      trainer(with_defaults<trafo_trainer_options>(trafo_trainer_options_init)),
      translate(with_defaults<trafo_translate_options>(trafo_translate_options_init)),
      evaluation(with_defaults<trafo_evaluation_options>(trafo_evaluation_options_init)) {}

bool parse_count(std::string_view text, int64_t& out) {
  int64_t factor = 1;
  if (!text.empty()) {
    const char last = text.back();
    factor = last == 'k' || last == 'K' ? 1000
             : last == 'M'              ? 1000000
             : last == 'G'              ? 1000000000
                                        : 1;
    if (factor != 1) text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  return !__builtin_mul_overflow(out, factor, &out);
}

bool parse_bytes(std::string_view text, int64_t& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  for (const auto& [unit, factor] : kSizes) {
    if (text != unit) continue;
    value *= factor;
    if (!(value >= 0 && value < 0x1p62)) return false;
    out = static_cast<int64_t>(value);
    return true;
  }
  return false;
}

bool parse_period(std::string_view text, trafo_period& out) {
  out = {0, TRAFO_UNIT_UPDATES, 0};
  const auto* const unit = text.empty() ? std::end(kUnits) : std::ranges::find(kUnits, text.back());
  if (unit != std::end(kUnits)) {
    out.unit = static_cast<int32_t>(unit - std::begin(kUnits));
    text.remove_suffix(1);
  }
  return parse_count(text, out.value) && out.value >= 0;
}

void refuse_value(const std::string& name, const std::string& origin, const std::string& reason) {
  // "run.yml:3" does not say which setting it is.
  usage_error(origin + (origin.find(name) == std::string::npos ? " " + name : "") + ": " + reason);
}

void read_value(Setting setting, const std::vector<std::string>& words, const std::string& origin,
                Values& to) {
  const SettingSpec& spec = spec_of(setting);
  const SettingKind kind = spec.kind;
  const Words given(spec, words, origin);
  const Overloaded read{
      [&](int64_t* v) { *v = kind == SettingKind::bytes ? given.bytes() : given.integer(); },
      [&](uint64_t* v) { *v = given.seed(); },
      [&](double* v) { *v = kind == SettingKind::share ? given.share() : given.real(); },
      [&](int32_t* v) { *v = kind == SettingKind::choice ? given.choice() : given.flag(); },
      [&](trafo_period* v) { *v = given.period(given.text()); },
      [&](Layers v) { given.layers(*v); },
      [&](const Metrics& v) { given.metrics(v); },
      [&](std::string* v) { *v = spec.min_values == 0 && given.is_bare() ? "on" : given.text(); },
      [&](std::vector<std::string>* v) { *v = words; },
      [&](std::vector<double>* v) { *v = given.reals(); },
      [&](std::vector<RunLimit>* v) { *v = given.limits(); }};
  std::visit(read, spec.slot(to));
}

std::vector<std::string> words_of(Setting setting, const Values& values) {
  using List = std::vector<std::string>;
  const SettingSpec& spec = spec_of(setting);
  const auto each = [](const auto& list, auto text) {
    List words;
    for (const auto& value : list) words.push_back(text(value));
    return words;
  };
  const Overloaded words{
      [&](const int64_t* v) {
        return List{spec.kind == SettingKind::bytes ? size_text(*v) : std::to_string(*v)};
      },
      [](const uint64_t* v) { return List{std::to_string(*v)}; },
      [](const double* v) { return List{fmt::format("{}", *v)}; },
      [&](const int32_t* v) {
        if (spec.kind == SettingKind::choice)
          return List{first_name(spec.words[static_cast<size_t>(*v)])};
        return List{*v != 0 ? "on" : "off"};
      },
      [](const trafo_period* v) { return List{period_text(*v)}; },
      [](Layers v) { return layer_words(*v); },
      [](const Metrics& v) { return metric_words(v); },
      [](const std::string* v) { return List{*v}; },
      [](const List* v) { return *v; },
      [&](const std::vector<double>* v) {
        return each(*v, [](double value) { return fmt::format("{}", value); });
      },
      [&](const std::vector<RunLimit>* v) {
        return each(*v, [](const RunLimit& limit) { return text_of(limit); });
      }};
  return std::visit(words, spec.slot(const_cast<Values&>(values)));  // NOLINT: it is only read
}

std::string text_of(Setting setting, const Values& values) {
  return fmt::format("{}", fmt::join(words_of(setting, values), " "));
}

std::string text_of(const RunLimit& limit) {
  return (limit.of_phase ? "+" : "") + period_text(limit.period);
}

void copy_value(Setting setting, const Values& from, Values& to) {
  const SettingSpec& spec = spec_of(setting);
  const Slot source = spec.slot(const_cast<Values&>(from));  // NOLINT: it is only read
  std::visit(
      [&]<typename T>(const T& target) {
        const T& read = std::get<T>(source);
        if constexpr (std::is_same_v<T, Layers>)
          std::ranges::copy(*read, *target);
        else if constexpr (std::is_same_v<T, Metrics>)
          *target.all = *read.all, *target.first = *read.first;
        else
          *target = *read;
      },
      spec.slot(to));
}

}  // namespace translate_train
