#include "report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "report/report_text.h"
#include "report/reporter.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "trafo.h"

namespace translate_train {
namespace {

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

std::string tiles(const RunLog& run) {
  std::string out = "<dl class=\"tiles\">\n";
  for (const FigureRow& row : figure_rows({&run, 1})) {
    const Figure figure = row.of(run);
    out += fmt::format("<div><dt>{}</dt><dd><b>{}</b> <small>{}</small></dd></div>\n", row.name,
                       figure.text, figure.detail);
  }
  return out + "</dl>\n";
}

std::string comparison(const std::vector<RunLog>& runs, double now) {
  std::string out =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of the runs\">"
      "<table class=\"figures\"><thead><tr><td></td>";
  for (size_t r = 0; r < runs.size(); ++r)
    out += fmt::format("<th scope=\"col\">{}</th>", run_label(runs, r));
  out += "</tr></thead><tbody>\n<tr><th scope=\"row\">State</th>";
  for (const RunLog& run : runs) {
    const State state = state_of(run, now);
    out += fmt::format("<td><span class=\"state {}\">{}</span></td>", state.kind, state.text);
  }
  out += "</tr>\n";
  for (const FigureRow& row : figure_rows(runs)) {
    std::vector<Figure> figures;
    double best = NAN;
    for (const RunLog& run : runs) {
      figures.push_back(row.of(run));
      best = std::fmax(best, figures.back().rank);
    }
    const auto known = std::count_if(figures.begin(), figures.end(),
                                     [](const Figure& f) { return !std::isnan(f.rank); });
    if (known < 2) best = NAN;  // nothing to be better than
    // What all of them would say is said once.
    const std::string detail = figures[0].detail;
    const bool common = std::all_of(figures.begin(), figures.end(),
                                    [&](const Figure& figure) { return figure.detail == detail; });
    if (common)
      for (Figure& figure : figures) figure.detail.clear();
    out += fmt::format("<tr><th scope=\"row\">{}{}</th>", row.name,
                       common && !detail.empty() ? " <small>" + detail + "</small>" : "");
    for (const Figure& figure : figures)
      out += fmt::format("<td{}><b>{}</b> <small>{}</small></td>",
                         figure.rank == best ? " class=\"top\"" : "", figure.text, figure.detail);
    out += "</tr>\n";
  }
  out += "<tr><th scope=\"row\">Device</th>";
  for (const RunLog& run : runs)
    out += fmt::format("<td><small>{}</small></td>", run.device.empty() ? "–" : html(run.device));
  return out + "</tr>\n</tbody></table></div>\n";
}

// Cells of one setting; values other than the most frequent one stand out.
std::string value_cells(const std::vector<const std::string*>& values) {
  std::map<std::string, size_t> uses;
  for (const std::string* value : values)
    if (value != nullptr) ++uses[*value];
  size_t most = 1;
  for (const auto& [value, count] : uses) most = std::max(most, count);
  std::string cells;
  for (const std::string* value : values)
    cells += value == nullptr
                 ? "<td class=\"none\">not set</td>"
                 : fmt::format("<td{}>{}</td>", uses[*value] < most ? " class=\"changed\"" : "",
                               html(*value));
  return cells;
}

}  // namespace

std::string run_label(const std::vector<RunLog>& runs, size_t run) {
  return fmt::format("<span class=\"run c{}\"><span class=\"spot\"></span><bdi>{}</bdi></span>",
                     run, html(runs[run].name));
}

std::string settings_section(const std::vector<RunLog>& runs) {
  // Settings in the order of the help, then those that this version does not know.
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (const SettingSpec& spec : setting_specs()) names.emplace_back(spec.name);
  for (size_t r = 0; r < runs.size(); ++r)
    for (const auto& [name, value] : runs[r].settings) {
      values[r][name] = value;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  std::string same, different;
  size_t same_count = 0;
  for (const std::string& name : names) {
    std::vector<const std::string*> row;
    for (const auto& of_run : values) {
      const auto found = of_run.find(name);
      row.push_back(found == of_run.end() ? nullptr : &found->second);
    }
    const bool any = std::any_of(row.begin(), row.end(), [](auto* value) { return value; });
    if (!any) continue;
    const bool equal = std::all_of(row.begin(), row.end(), [&](auto* value) {
      return value != nullptr && row[0] != nullptr && *value == *row[0];
    });
    if (equal) {
      same += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html(name), html(*row[0]));
      ++same_count;
      continue;
    }
    different += fmt::format("<tr><th scope=\"row\">{}</th>", html(name));
    different += value_cells(row) + "</tr>\n";
  }
  std::string out =
      "<section aria-labelledby=\"settings\"><h2 id=\"settings\">Configuration</h2>\n";
  if (same.empty() && different.empty())
    return out + "<p class=\"note\">There is no config.yml that can be read.</p></section>\n";
  if (runs.size() == 1) return out + "<dl class=\"settings\">" + same + "</dl></section>\n";
  if (different.empty()) {
    out += "<p class=\"note\">All settings are the same.</p>\n";
  } else {
    out +=
        "<h3>Where the runs differ</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"Settings that differ\"><table class=\"differences\"><thead><tr><td></td>";
    for (size_t r = 0; r < runs.size(); ++r)
      out += fmt::format("<th scope=\"col\">{}</th>", run_label(runs, r));
    out += "</tr></thead><tbody>\n" + different + "</tbody></table></div>\n";
  }
  if (!same.empty())
    out += fmt::format(
        "<details><summary>{} settings are the same in all runs</summary><dl class=\"settings\">{}"
        "</dl></details>\n",
        same_count, same);
  return out + "</section>\n";
}

std::string report_page(const std::vector<RunLog>& runs, double now) {
  std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string page =
      std::string(kReportBegin) +
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // The page has everything in it; nothing that a corpus could hold may fetch more.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
      "'none'\">\n<link rel=\"icon\" href=\"data:,\">\n";
  page += fmt::format("<title>{} – training report</title>\n<style>{}", html(title), kReportStyle);
  for (size_t r = 0; r < runs.size(); ++r)
    page += fmt::format("body:has(#run-{0}:not(:checked)) .r{0}{{display:none}}\n", r);
  page += "</style>\n</head>\n<body>\n<header>\n<p class=\"kind\">Training report</p>\n<h1><bdi>" +
          html(title) + "</bdi></h1>\n";
  if (runs.size() == 1) {
    const State state = state_of(runs[0], now);
    page += fmt::format("<p class=\"facts\"><span class=\"state {}\">{}</span>", state.kind,
                        state.text);
    if (!runs[0].device.empty()) page += fmt::format("<span>{}</span>", html(runs[0].device));
    page += fmt::format("<span>last record {}</span></p>\n", date_text(runs[0].last_time));
  }
  page += "</header>\n<main>\n";
  page += "<section aria-label=\"Figures\">\n" +
          (runs.size() == 1 ? tiles(runs[0]) : comparison(runs, now)) + "</section>\n";
  page += charts_section(runs) + samples_section(runs) + settings_section(runs);
  page += fmt::format(
      "</main>\n<footer>Made by translate-train {} on {} from the runs' metrics.jsonl and "
      "config.yml.</footer>\n<div id=\"tip\" hidden></div>\n"
      "<p id=\"said\" class=\"unseen\" aria-live=\"polite\"></p>\n<script>{}</script>\n"
      "</body>\n</html>\n",
      trafo_version(), date_text(now), kReportScript);
  return page;
}

}  // namespace translate_train
