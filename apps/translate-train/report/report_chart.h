// Curves of a report.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace translate_train {

// The choices of the horizontal axis; every chart is drawn once for each.
inline constexpr size_t kAxes = 3;
struct Axis {
  const char* id;  // "u", "t", "s"
  std::string label;
  double unit;  // of a label in the numbers of Series::x: 60 if labels are minutes
  double end;   // of the scale, in the numbers of Series::x; it begins at 0
};

struct Series {
  size_t run;
  size_t color;    // 0 to 7
  bool secondary;  // of two of a run: drawn dashed
  bool markers;    // few points that count one by one
  std::string label;
  std::array<std::vector<double>, kAxes> x;
  std::vector<double> y;          // NaN: a gap
  std::vector<double> low, high;  // empty, or the spread of the displays that y is the mean of
  int marked = -1;                // index of the best point
};

struct Chart {
  const char* id;
  const char* title;
  const char* unit;
  bool logarithmic;  // if all values are above 0
  bool from_zero;
  std::vector<Series> series;
  double unit_size = 1;
};

// The values of `points` that `value` reads, as a series of at most 400 points.
template <typename Point, typename Value>
Series make_series(const std::vector<Point>& points, Value value);

// A mark on the horizontal axis.
struct AxisMark {
  std::array<double, kAxes> x;
  std::string text;
};

// The chart over one axis, for the template: places in its view box, and labels.
nlohmann::ordered_json plot_data(const Chart& chart, size_t axis, const Axis& scale,
                                 const std::vector<AxisMark>& marks);
// The series as JSON, for the page's script.
std::string chart_json(const Chart& chart);

// Means of `count` values in order, in at most 400 groups; used by make_series.
void thin_out(Series& series);

template <typename Point, typename Value>
Series make_series(const std::vector<Point>& points, Value value) {
  Series series{};
  for (const Point& point : points) {
    series.x[0].push_back(static_cast<double>(point.update));
    series.x[1].push_back(point.tokens);
    series.x[2].push_back(point.seconds);
    series.y.push_back(value(point));
  }
  thin_out(series);
  return series;
}

}  // namespace translate_train
