#include "report/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/report_text.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 400;

// In units of the view box, which report.html draws and report.js measures. Labels grow on small
// screens (report.css), so they have room.
constexpr double kLeft = 54, kRight = 468, kTop = 14, kBottom = 226;

struct ValueScale {
  double low, high;
  bool logarithmic;
  double pixel(double value) const {
    const auto place = [this](double v) { return logarithmic ? std::log(v) : v; };
    const double share = (place(value) - place(low)) / (place(high) - place(low));
    return kBottom + std::clamp(share, -1.0, 2.0) * (kTop - kBottom);
  }
};

double step_for(double span, int wanted) {
  const double rough = span / wanted, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (rough <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  const double step = step_for(high - low, wanted);
  for (double i = std::ceil(low / step - 1e-6); i * step <= high + 1e-6 * step; ++i)
    ticks.push_back(i == 0 ? 0 : i * step);  // never -0
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  if (high / low < 10) return linear_ticks(low, high, 5);
  const bool sparse = high / low > 3000;
  std::vector<double> ticks;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * power;
      if (tick >= low && tick <= high && (factor == 1 || !sparse)) ticks.push_back(tick);
    }
  return ticks;
}

// Labels of one axis have one unit: 5k beside 10k, not 5000.
std::string tick_label(double tick, const std::vector<double>& ticks) {
  const double largest = std::max(std::abs(ticks.front()), std::abs(ticks.back()));
  if (largest >= 999950 && largest < 999950000) return tick == 0 ? "0" : compact(tick / 1e6) + "M";
  if (largest >= 9999.5 && largest < 999950) return tick == 0 ? "0" : compact(tick / 1e3) + "k";
  return compact(tick);
}

ValueScale value_scale(const Chart& chart) {
  double low = INFINITY, high = -INFINITY;
  for (const Series& series : chart.series)
    for (const auto* values : {&series.y, &series.low, &series.high})
      for (const double value : *values)
        if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  if (low > high) low = 0, high = 1;
  const bool logarithmic = chart.logarithmic && low > 0;
  if (chart.from_zero) low = std::min(low, 0.0);
  if (logarithmic) {
    const double room = std::max(std::pow(high / low, 0.04), 1.02);
    return {low / room, high * room, true};
  }
  const double room = high > low ? 0.04 * (high - low) : std::max(0.1 * std::abs(high), 1e-6);
  return {chart.from_zero && low == 0 ? 0 : low - room, high + room, false};
}

double axis_pixel(const Axis& scale, double x) {
  return kLeft + std::clamp(x / scale.end, 0.0, 1.0) * (kRight - kLeft);
}

// Sub-paths between gaps. A point alone between two gaps becomes a dot by its round caps.
std::string line_path(const Series& series, size_t axis, const Axis& scale,
                      const ValueScale& values) {
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < series.y.size(); ++i) {
    const double x = series.x[axis][i], y = series.y[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      pen_down = false;
      continue;
    }
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M",
                   axis_pixel(scale, x), values.pixel(y));
    if (!pen_down) path += "h0";
    pen_down = true;
  }
  return path;
}

std::string band_path(const Series& series, size_t axis, const Axis& scale,
                      const ValueScale& values) {
  std::string path;
  for (size_t begin = 0; begin < series.low.size();) {
    const auto known = [&](size_t i) {
      return i < series.low.size() && std::isfinite(series.low[i]) &&
             std::isfinite(series.x[axis][i]);
    };
    size_t end = begin;
    while (known(end)) ++end;
    const auto point = [&](const char* command, size_t i, double y) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", command,
                     axis_pixel(scale, series.x[axis][i]), values.pixel(y));
    };
    for (size_t i = begin; i < end; ++i) point(i == begin ? "M" : "L", i, series.high[i]);
    for (size_t i = end; i > begin; --i) point("L", i - 1, series.low[i - 1]);
    if (end > begin) path += "Z";
    begin = end + 1;
  }
  return path;
}

std::string place(double value) {
  return fmt::format("{:.1f}", value);
}

// A path. Runs differ in shape as well as in colour.
std::string marker(size_t shape, double x, double y) {
  switch (shape % 4) {
    case 0:
      return fmt::format("M{:.1f} {:.1f}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0", x - 3.4, y);
    case 1:
      return fmt::format("M{:.1f} {:.1f}h6v6h-6z", x - 3, y - 3);
    case 2:
      return fmt::format("M{:.1f} {:.1f}l4 6.9h-8z", x, y - 4.3);
    default:
      return fmt::format("M{:.1f} {:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", x, y - 4.2);
  }
}

Json series_data(const Series& series, size_t axis, const Axis& scale, const ValueScale& values,
                 bool label_best) {
  Json data{{"color", std::to_string(series.color)},
            {"run", std::to_string(series.run)},
            {"second", series.secondary},
            {"band", nullptr},
            {"line", line_path(series, axis, scale, values)},
            {"dots", Json::array()},
            {"best", nullptr}};
  if (!series.low.empty()) data["band"] = band_path(series, axis, scale, values);
  const auto known = [&](size_t i) {
    return std::isfinite(series.y[i]) && std::isfinite(series.x[axis][i]);
  };
  if (series.markers && series.y.size() <= 60)
    for (size_t i = 0; i < series.y.size(); ++i)
      if (known(i))
        data["dots"].push_back(
            marker(series.run, axis_pixel(scale, series.x[axis][i]), values.pixel(series.y[i])));
  if (const auto best = static_cast<size_t>(series.marked); series.marked >= 0 && known(best)) {
    const double x = axis_pixel(scale, series.x[axis][best]), y = values.pixel(series.y[best]);
    data["best"] = {{"x", place(x)}, {"y", place(y)}, {"label", nullptr}};
    if (label_best)
      data["best"]["label"] = {{"x", place(x)},
                               {"y", place(y < kTop + 26 ? y + 22 : y - 11)},
                               {"anchor", x > kRight - 30 ? "end" : "middle"},
                               {"text", fixed(series.y[best], 2)}};
  }
  return data;
}

// The text of the chart for screen readers.
std::string chart_summary(const Chart& chart, const Axis& scale) {
  std::string text = fmt::format("{} ({}) by {}.", chart.title, chart.unit, scale.label);
  for (const Series& series : chart.series) {
    double first = NAN, last = NAN, low = NAN, high = NAN;
    for (const double y : series.y) {
      if (!std::isfinite(y)) continue;
      if (std::isnan(first)) first = low = high = y;
      last = y;
      low = std::min(low, y), high = std::max(high, y);
    }
    if (!std::isnan(first))
      text += fmt::format(" {}: from {} to {}, lowest {}, highest {}.", series.label,
                          compact(first), compact(last), compact(low), compact(high));
  }
  return text;
}

std::string number_list(const std::vector<double>& values, int digits) {
  std::string list = "[";
  for (const double value : values) {
    if (list.size() > 1) list += ',';
    list += std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null";
  }
  return list + "]";
}

}  // namespace

void thin_out(Series& series) {
  const size_t count = series.y.size();
  if (count <= kMostPoints) return;
  const size_t group = (count + kMostPoints - 1) / kMostPoints;
  Series thin = series;
  for (auto& x : thin.x) x.clear();
  thin.y.clear();
  for (size_t begin = 0; begin < count; begin += group) {
    const size_t end = std::min(begin + group, count);
    const auto first = series.y.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = series.y.begin() + static_cast<std::ptrdiff_t>(end);
    // A value that is not finite must stay visible, as a gap.
    double sum = 0;
    for (auto y = first; y != last; ++y) sum += std::isfinite(*y) ? *y : NAN;
    const bool gap = std::isnan(sum);
    for (size_t axis = 0; axis < kAxes; ++axis) thin.x[axis].push_back(series.x[axis][end - 1]);
    thin.y.push_back(sum / static_cast<double>(end - begin));
    thin.low.push_back(gap ? NAN : *std::min_element(first, last));
    thin.high.push_back(gap ? NAN : *std::max_element(first, last));
  }
  series = std::move(thin);
}

Json plot_data(const Chart& chart, size_t axis, const Axis& scale,
               const std::vector<AxisMark>& marks) {
  const ValueScale values = value_scale(chart);
  const auto ticks = values.logarithmic ? log_ticks(values.low, values.high)
                                        : linear_ticks(values.low, values.high, 5);
  const auto along = linear_ticks(0, scale.end / scale.unit, 5);
  Json data{{"id", scale.id},
            {"axis", std::to_string(axis)},
            {"name", scale.label},
            {"summary", chart_summary(chart, scale)},
            {"end", fmt::format("{:.9g}", scale.end)},
            {"axis_unit", fmt::format("{}", scale.unit)},
            {"low", fmt::format("{:.9g}", values.low)},
            {"high", fmt::format("{:.9g}", values.high)},
            {"log", values.logarithmic ? "1" : "0"},
            {"ticks", Json::array()},
            {"along", Json::array()},
            {"marks", Json::array()},
            {"series", Json::array()}};
  for (const double tick : ticks)
    data["ticks"].push_back({{"y", place(values.pixel(tick))}, {"label", tick_label(tick, ticks)}});
  for (const double tick : along)
    data["along"].push_back(
        {{"x", place(axis_pixel(scale, tick * scale.unit))}, {"label", tick_label(tick, along)}});
  for (const AxisMark& mark : marks)
    if (std::isfinite(mark.x[axis]))
      data["marks"].push_back({{"x", place(axis_pixel(scale, mark.x[axis]))}, {"text", mark.text}});
  const bool labels =
      std::ranges::all_of(chart.series, [](const Series& series) { return series.run == 0; });
  for (const Series& series : chart.series)
    data["series"].push_back(series_data(series, axis, scale, values, labels));
  return data;
}

std::string chart_json(const Chart& chart) {
  std::string json = "[";
  for (const Series& series : chart.series) {
    if (json.size() > 1) json += ",\n";
    json += fmt::format("{{\"run\":{},\"color\":{},\"label\":{},\"x\":[{},{},{}],\"y\":{}}}",
                        series.run, series.color, json_string(series.label),
                        number_list(series.x[0], 16), number_list(series.x[1], 9),
                        number_list(series.x[2], 9), number_list(series.y, 6));
  }
  return json + "]";
}

}  // namespace translate_train
