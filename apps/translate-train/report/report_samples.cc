#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "report/report_page.h"
#include "report/report_text.h"
#include "report/reporter.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

// Of a run, for each sentence: alone, and among others.
constexpr size_t kMostValidations = 6, kFewValidations = 3;

// The first, the last, the best and some between, of those that have translations.
std::vector<size_t> chosen_validations(const RunLog& run, size_t most) {
  std::vector<size_t> all;
  for (size_t i = 0; i < run.valid.size(); ++i)
    if (!run.valid[i].translations.empty()) all.push_back(i);
  std::set<size_t> chosen;
  const size_t count = std::min(all.size(), most);
  for (size_t i = 0; i < count; ++i)
    chosen.insert(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  const int best = run.best_validation();
  if (best >= 0 && !run.valid[static_cast<size_t>(best)].translations.empty())
    chosen.insert(static_cast<size_t>(best));
  return {chosen.begin(), chosen.end()};
}

// Words that the reference does not have are marked, each as often as it has them too often.
std::string compared(const std::string& translation, const std::string& reference) {
  std::map<std::string, int> left;
  std::istringstream words(reference);
  for (std::string word; words >> word;) ++left[word];
  std::string out;
  std::istringstream in(translation);
  for (std::string word; in >> word;) {
    if (!out.empty()) out += ' ';
    out += left[word]-- > 0 ? html(word) : "<span class=\"other\">" + html(word) + "</span>";
  }
  return out;
}

struct Sentence {
  std::string source, reference, rows;
};

// "BLEU 31.2": the first metric of translations that was measured.
std::string first_metric(const ValidPoint& point) {
  for (size_t m = 0; m < metric_specs().size(); ++m)
    if (metric_specs()[m].bit != TRAFO_METRIC_CE && std::isfinite(point.metrics[m]))
      return std::string(metric_specs()[m].title) + " " + fixed(point.metrics[m], 1);
  return "";
}

std::string row(const RunLog& run, size_t validation, const std::string& translation,
                const std::string& reference) {
  const ValidPoint& point = run.valid[validation];
  std::string badges;
  if (run.best_validation() == static_cast<int>(validation))
    badges += "<span class=\"badge\">best</span>";
  if (translation == reference) badges += "<span class=\"badge exact\">= reference</span>";
  return fmt::format(
      "<tr><th scope=\"row\">update {} <small>{}</small></th><td><bdi>{}</bdi>{}</td></tr>\n",
      grouped(point.update), first_metric(point),
      translation.empty() ? "<i>nothing</i>" : compared(translation, reference), badges);
}

// All sentences with what each run made of them, in the order they appear in.
std::vector<Sentence> collect(const std::vector<RunLog>& runs) {
  const bool several = runs.size() > 1;
  std::vector<Sentence> sentences;
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (size_t r = 0; r < runs.size(); ++r) {
    std::map<size_t, std::string> rows;
    for (const size_t v :
         chosen_validations(runs[r], several ? kFewValidations : kMostValidations)) {
      const ValidPoint& point = runs[r].valid[v];
      const SampleSet& set = runs[r].sample_sets[point.sample_set];
      for (size_t i = 0; i < set.sources.size(); ++i) {
        const auto key = std::pair(set.sources[i], set.references[i]);
        const auto [at, added] = index.try_emplace(key, sentences.size());
        if (added) sentences.push_back({key.first, key.second, ""});
        rows[at->second] += row(runs[r], v, point.translations[i], set.references[i]);
      }
    }
    for (const auto& [at, of_run] : rows) {
      const std::string head =
          several ? fmt::format("<tr><th colspan=\"2\" scope=\"rowgroup\">{}</th></tr>\n",
                                run_label(runs, r))
                  : "";
      sentences[at].rows += fmt::format("<tbody class=\"r{}\">{}{}</tbody>\n", r, head, of_run);
    }
  }
  return sentences;
}

}  // namespace

std::string samples_section(const std::vector<RunLog>& runs) {
  const std::vector<Sentence> sentences = collect(runs);
  if (sentences.empty())
    return "<section><h2>Translations</h2><p class=\"note\">No validation has recorded "
           "translations: there has been none yet, none of its metrics translates, or the run is "
           "older than this record.</p></section>\n";
  std::string out =
      "<section aria-labelledby=\"samples\"><h2 id=\"samples\">Translations over time</h2>\n"
      "<p class=\"note\">Validation sentences after more and more training. "
      "<span class=\"other\">Dotted words</span> are not in the reference.</p>\n"
      "<div class=\"samples\">\n";
  for (const Sentence& sentence : sentences)
    out += fmt::format(
        "<article><dl><dt>Source</dt><dd><bdi>{}</bdi></dd><dt>Reference</dt><dd><bdi>{}</bdi>"
        "</dd></dl>\n<table>{}</table></article>\n",
        html(sentence.source), html(sentence.reference), sentence.rows);
  return out + "</div></section>\n";
}

}  // namespace translate_train
