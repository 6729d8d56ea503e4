#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "report/report_chart.h"
#include "report/report_page.h"
#include "report/report_text.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

struct Curve {
  const char* label;
  std::function<double(const TrainPoint&)> value;
};
struct Measure {
  const char* label;
  size_t metric;  // in metric_specs()
};

bool has_values(const Series& series) {
  return std::any_of(series.y.begin(), series.y.end(), [](double y) { return std::isfinite(y); });
}

class Charts {
 public:
  explicit Charts(const std::vector<RunLog>& runs) : runs_(runs) {
    double end[kAxes] = {};
    for (const RunLog& run : runs_) {
      const auto consider = [&](const auto& points) {
        for (const auto& point : points) {
          end[0] = std::max(end[0], static_cast<double>(point.update));
          end[1] = std::max(end[1], std::isnan(point.tokens) ? 0 : point.tokens);
          end[2] = std::max(end[2], std::isnan(point.seconds) ? 0 : point.seconds);
        }
      };
      consider(run.train);
      consider(run.valid);
    }
    const double unit = end[2] > 3 * 3600 ? 3600 : end[2] > 3 * 60 ? 60 : 1;
    const char* time = unit == 3600 ? "hours of training"
                       : unit == 60 ? "minutes of training"
                                    : "seconds of training";
    axes_ = {Axis{"u", "updates", 1, end[0]}, Axis{"t", "target tokens", 1, end[1]},
             Axis{"s", time, unit, end[2]}};
    for (Axis& axis : axes_)
      if (axis.end <= 0) axis.end = axis.unit;
    if (runs_.size() == 1) find_marks();
  }

  void add(const Chart& empty, const std::vector<Curve>& curves,
           const std::vector<Measure>& measures) {
    Chart chart = empty;
    const bool one_run = runs_.size() == 1;
    for (size_t r = 0; r < runs_.size(); ++r) {
      size_t in_run = 0;
      const auto take = [&](Series series, const char* label) {
        if (!has_values(series)) return;
        series.run = r;
        series.color = one_run ? in_run : r;
        series.secondary = in_run > 0;
        series.label = one_run                               ? label
                       : curves.size() + measures.size() > 1 ? runs_[r].name + ", " + label
                                                             : runs_[r].name;
        chart.series.push_back(std::move(series));
        ++in_run;
      };
      for (const Curve& curve : curves)
        take(make_series(runs_[r].train,
                         [&](const TrainPoint& p) { return curve.value(p) / chart.unit_size; }),
             curve.label);
      for (const Measure& measure : measures) {
        Series series = make_series(runs_[r].valid,
                                    [&](const ValidPoint& p) { return p.metrics[measure.metric]; });
        series.markers = true;
        mark_best(series, metric_specs()[measure.metric]);
        take(std::move(series), measure.label);
      }
    }
    if (chart.series.empty()) return;
    Json figure{{"id", chart.id},
                {"title", chart.title},
                {"unit", chart.unit},
                {"has_key", curves.size() + measures.size() > 1},
                {"key", key(curves, measures)},
                {"axes", Json::array()}};
    for (size_t axis = 0; axis < kAxes; ++axis)
      figure["axes"].push_back(plot_data(chart, axis, axes_[axis], marks_));
    figures_.push_back(std::move(figure));
    json_ += fmt::format("{}\"{}\":{}", json_.empty() ? "" : ",\n", chart.id, chart_json(chart));
  }

  // "data" is for the page's script.
  Json data() && {
    std::string names;
    for (const RunLog& run : runs_) {
      if (!names.empty()) names += ',';
      names += json_string(run.name);
    }
    const bool any = !figures_.empty();
    return {{"charts", std::move(figures_)},
            {"curves", any},
            {"data", fmt::format("{{\"runs\":[{}],\"charts\":{{{}}}}}", names, json_)}};
  }

 private:
  static void mark_best(Series& series, const MetricSpec& metric) {
    for (size_t i = 0; i < series.y.size(); ++i)
      if (std::isfinite(series.y[i]) &&
          (series.marked < 0 ||
           metric.is_better(series.y[i], series.y[static_cast<size_t>(series.marked)])))
        series.marked = static_cast<int>(i);
  }

  // Which line is which, where a run has two.
  Json key(const std::vector<Curve>& curves, const std::vector<Measure>& measures) const {
    Json key = Json::array();
    const auto add = [&](const char* label) {
      const size_t index = key.size();
      key.push_back({{"label", label},
                     {"color", runs_.size() == 1 ? std::to_string(index) : "-any"},
                     {"second", index > 0}});
    };
    for (const Curve& curve : curves) add(curve.label);
    for (const Measure& measure : measures) add(measure.label);
    return key;
  }

  void find_marks() {
    for (const int64_t update : runs_[0].resumed_after) {
      AxisMark mark{{static_cast<double>(update), NAN, NAN},
                    "continued after update " + compact(static_cast<double>(update))};
      for (const TrainPoint& point : runs_[0].train)
        if (point.update <= update) mark.x[1] = point.tokens, mark.x[2] = point.seconds;
      marks_.push_back(mark);
    }
  }

  const std::vector<RunLog>& runs_;
  std::array<Axis, kAxes> axes_;
  std::vector<AxisMark> marks_;
  Json figures_ = Json::array();
  std::string json_;
};

}  // namespace

Json charts_data(const std::vector<RunLog>& runs) {
  Charts charts(runs);
  charts.add(
      {"loss", "Loss", "cross-entropy, nats per target token", true, false, {}},
      {{"training", &TrainPoint::nll}},
      {{"validation", static_cast<size_t>(metric_of(TRAFO_METRIC_CE) - &metric_specs()[0])}});
  for (size_t m = 0; m < metric_specs().size(); ++m) {
    const MetricSpec& metric = metric_specs()[m];
    if (metric.bit == TRAFO_METRIC_CE) continue;  // beside the training loss
    charts.add(
        {metric.name,
         metric.title,
         metric.lower_is_better ? "validation, lower is better" : "validation, higher is better",
         false,
         true,
         {}},
        {}, {{metric.title, m}});
  }
  std::set<std::string> objective;
  for (const RunLog& run : runs)
    for (const TrainPoint& point : run.train)
      for (const auto& [name, value] : point.objective) objective.insert(name);
  for (const std::string& name : objective) {
    const auto value = [&name](const TrainPoint& point) {
      const auto found = point.objective.find(name);
      return found == point.objective.end() ? NAN : found->second;
    };
    std::string title = name;
    std::ranges::replace(title, '-', ' ');
    const std::string id = "objective-" + name;
    charts.add(
        {id.c_str(), title.c_str(), "training, mean per unit of the objective", false, false, {}},
        {{title.c_str(), value}}, {});
  }
  charts.add({"rate", "Learning rate", "per update", false, true, {}},
             {{"learning rate", &TrainPoint::learning_rate}}, {});
  charts.add({"norm", "Gradient norm", "before clipping", true, false, {}},
             {{"gradient norm", &TrainPoint::grad_norm}}, {});
  charts.add({"speed", "Speed", "target tokens per second", false, true, {}},
             {{"speed", &TrainPoint::speed}}, {});
  double memory = 0;
  for (const RunLog& run : runs)
    for (const TrainPoint& point : run.train) memory = std::fmax(memory, point.peak_memory);
  const bool small = memory < 1e9;
  charts.add({"memory", "Memory", small ? "MB" : "GB", false, true, {}, small ? 1e6 : 1e9},
             {{"peak", &TrainPoint::peak_memory}, {"between updates", &TrainPoint::memory}}, {});
  return std::move(charts).data();
}

}  // namespace translate_train
