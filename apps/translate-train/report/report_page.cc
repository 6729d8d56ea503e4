#include "report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "report/report_text.h"
#include "report/reporter.h"
#include "report/template.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "trafo.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSilence = 600;  // seconds without a record after which a run may have ended

struct State {
  const char* kind;  // CSS class
  std::string text;
};

State state_of(const RunLog& run, double now) {
  if (run.stop == "limit") return {"done", "finished: limit reached"};
  if (run.stop == "early stopping") return {"done", "finished: no more improvement"};
  if (run.stop == "diverged") return {"failed", "diverged: the loss rose out of bounds"};
  if (run.stop == "failed") return {"failed", "ended by an error"};
  if (!run.stop.empty()) return {"paused", "stopped, can go on"};
  if (now - run.last_time < kSilence) {
    std::string text = "running";
    if (run.eta_seconds > 0) text += ", about " + duration_text(run.eta_seconds) + " left";
    return {"running", text};
  }
  return {"paused", "no end recorded"};
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Best {
  double value = NAN;
  int64_t update = 0;
};
Best best_of(const RunLog& run, const MetricSpec& metric) {
  const auto index = static_cast<size_t>(&metric - &metric_specs()[0]);
  Best best;
  for (const ValidPoint& point : run.valid) {
    const double value = point.metrics[index];
    if (std::isfinite(value) && (std::isnan(best.value) || !metric.is_better(best.value, value)))
      best = {value, point.update};
  }
  return best;
}

struct Figure {
  std::string text, detail;
  double rank = NAN;  // the highest of several runs is the best
};

struct FigureRow {
  std::string name;
  std::function<Figure(const RunLog&)> of;
};

Figure best_figure(const RunLog& run, const MetricSpec& metric) {
  const Best best = best_of(run, metric);
  if (std::isnan(best.value)) return {"–", "", NAN};
  return {fixed(best.value, metric.decimals), "at update " + grouped(best.update),
          metric.lower_is_better ? -best.value : best.value};
}

Figure validation_loss(const RunLog& run) {
  Figure figure = best_figure(run, *metric_of(TRAFO_METRIC_CE));
  if (std::isnan(figure.rank)) return figure;
  figure.text = fixed(-figure.rank, 3);
  figure.detail = "perplexity " + fixed(std::exp(-figure.rank), 2);
  return figure;
}

std::vector<FigureRow> figure_rows(std::span<const RunLog> runs) {
  std::vector<FigureRow> rows;
  for (const MetricSpec& metric : metric_specs()) {
    const auto measured = [&](const RunLog& run) {
      return !std::isnan(best_of(run, metric).value);
    };
    if (metric.bit != TRAFO_METRIC_CE && std::ranges::any_of(runs, measured))
      rows.push_back({std::string("Best ") + metric.title,
                      [&metric](const RunLog& r) { return best_figure(r, metric); }});
  }
  const FigureRow others[] = {
      {"Validation loss", validation_loss},
      {"Training loss",
       [](const RunLog& r) {
         if (r.train.empty()) return Figure{"–", ""};
         std::string detail = fixed(r.train.back().loss, 3) + " with smoothing";
         if (r.skipped > 0) detail += ", " + grouped(r.skipped) + " updates skipped";
         return Figure{fixed(r.train.back().nll, 3), detail};
       }},
      {"Updates",
       [](const RunLog& r) {
         return Figure{grouped(r.last_update), "epoch " + grouped(std::max<int64_t>(1, r.epoch))};
       }},
      {"Target tokens",
       [](const RunLog& r) {
         return Figure{r.train.empty() ? "–" : compact(r.train.back().tokens), "trained on"};
       }},
      {"Training time",
       [](const RunLog& r) {
         double seconds = r.train.empty() ? NAN : r.train.back().seconds;
         if (!r.valid.empty()) seconds = std::fmax(seconds, r.valid.back().seconds);
         return Figure{duration_text(seconds), "validation included"};
       }},
      {"Speed",
       [](const RunLog& r) {
         std::vector<double> speeds;
         for (const TrainPoint& point : r.train) speeds.push_back(point.speed);
         const double speed = median(speeds);
         return Figure{compact(speed), "median of target tokens/s", speed};
       }},
      {"Peak memory",
       [](const RunLog& r) {
         double peak = NAN;
         for (const TrainPoint& point : r.train) peak = std::fmax(peak, point.peak_memory);
         return Figure{bytes_text(peak), "of the allocator"};
       }},
      {"Parameters",
       [](const RunLog& r) {
         return Figure{r.parameters > 0 ? compact(static_cast<double>(r.parameters)) : "–",
                       r.train_pairs > 0 ? grouped(r.train_pairs) + " training pairs" : ""};
       }},
  };
  rows.insert(rows.end(), std::begin(others), std::end(others));
  return rows;
}

Json figure_data(const FigureRow& row, const Figure& figure) {
  return {{"name", row.name}, {"text", figure.text}, {"detail", figure.detail}};
}

// A row of the comparison: the figures of all runs, of which the best is marked.
Json compared_figures(const FigureRow& row, const std::vector<RunLog>& runs) {
  std::vector<Figure> figures;
  double best = NAN;
  for (const RunLog& run : runs) {
    figures.push_back(row.of(run));
    best = std::fmax(best, figures.back().rank);
  }
  const auto known =
      std::ranges::count_if(figures, [](const Figure& figure) { return !std::isnan(figure.rank); });
  if (known < 2) best = NAN;  // nothing to be better than
  // A detail of all figures is shown once.
  const std::string detail = figures[0].detail;
  const bool common =
      std::ranges::all_of(figures, [&](const Figure& figure) { return figure.detail == detail; });
  Json data{{"name", row.name}, {"common", nullptr}, {"figures", Json::array()}};
  if (common && !detail.empty()) data["common"] = detail;
  for (Figure& figure : figures) {
    if (common) figure.detail.clear();
    data["figures"].push_back(figure_data(row, figure));
    data["figures"].back()["is_best"] = figure.rank == best;
  }
  return data;
}

// The values of one setting; all but the most frequent one are marked.
Json compared_values(const std::string& name, const std::vector<const std::string*>& values) {
  std::map<std::string, size_t> uses;
  for (const std::string* value : values)
    if (value != nullptr) ++uses[*value];
  size_t most = 1;
  for (const auto& [value, count] : uses) most = std::max(most, count);
  Json data{{"name", name}, {"values", Json::array()}};
  for (const std::string* value : values)
    if (value == nullptr)
      data["values"].push_back({{"value", nullptr}});
    else
      data["values"].push_back({{"value", *value}, {"is_changed", uses[*value] < most}});
  return data;
}

// Settings in the order of the help, then settings that this version does not know.
void add_settings(const std::vector<RunLog>& runs, Json& page) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (const SettingSpec& spec : setting_specs()) names.emplace_back(spec.name);
  for (size_t r = 0; r < runs.size(); ++r)
    for (const auto& [name, value] : runs[r].settings) {
      values[r][name] = value;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  Json same = Json::array(), different = Json::array();
  for (const std::string& name : names) {
    std::vector<const std::string*> row;
    for (const auto& of_run : values) {
      const auto found = of_run.find(name);
      row.push_back(found == of_run.end() ? nullptr : &found->second);
    }
    const auto is_set = [](const std::string* value) { return value != nullptr; };
    if (std::ranges::none_of(row, is_set)) continue;
    if (std::ranges::all_of(row, [&](auto* value) { return value && row[0] && *value == *row[0]; }))
      same.push_back({{"name", name}, {"value", *row[0]}});
    else
      different.push_back(compared_values(name, row));
  }
  page["has_settings"] = !same.empty() || !different.empty();
  page["differs"] = !different.empty();
  page["are_same"] = !same.empty();
  page["same_count"] = std::to_string(same.size());
  page["same"] = std::move(same);
  page["different"] = std::move(different);
}

}  // namespace

std::string_view report_begin() {
  const std::string_view page = report_template();
  return page.substr(0, page.find("<meta name=\"viewport\""));
}

std::string report_page(const std::vector<RunLog>& runs, double now) {
  Json page{{"title", runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size())},
            {"style", report_style()},
            {"script", report_script()},
            {"version", trafo_version()},
            {"now", date_text(now)},
            {"runs", Json::array()},
            {"one_run", nullptr},
            {"comparison", nullptr}};
  for (size_t r = 0; r < runs.size(); ++r) {
    const State state = state_of(runs[r], now);
    page["runs"].push_back({{"index", std::to_string(r)},
                            {"name", runs[r].name},
                            {"state", state.kind},
                            {"state_text", state.text},
                            {"device", nullptr}});
    if (!runs[r].device.empty()) page["runs"].back()["device"] = runs[r].device;
  }
  if (runs.size() == 1) {
    page["one_run"] = page["runs"][0];
    page["one_run"]["last_record"] = date_text(runs[0].last_time);
    for (const FigureRow& row : figure_rows(runs))
      page["one_run"]["figures"].push_back(figure_data(row, row.of(runs[0])));
  } else {
    for (const FigureRow& row : figure_rows(runs))
      page["comparison"]["rows"].push_back(compared_figures(row, runs));
  }
  page.update(charts_data(runs));
  page["sentences"] = sentences_data(runs);
  page["translations"] = !page["sentences"].empty();
  add_settings(runs, page);
  return fill_template(report_template(), page);
}

}  // namespace translate_train
