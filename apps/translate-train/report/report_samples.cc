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

using Json = nlohmann::ordered_json;

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
Json compared_words(const std::string& translation, const std::string& reference) {
  std::map<std::string, int> left;
  std::istringstream words(reference);
  for (std::string word; words >> word;) ++left[word];
  Json compared = Json::array();
  std::istringstream in(translation);
  for (std::string word; in >> word;) {
    const bool is_new = left[word]-- <= 0;
    compared.push_back(
        {{"word", word}, {"is_new", is_new}, {"space", compared.empty() ? "" : " "}});
  }
  return compared;
}

// "BLEU 31.2": the first metric of translations that was measured.
std::string first_metric(const ValidPoint& point) {
  for (size_t m = 0; m < metric_specs().size(); ++m)
    if (metric_specs()[m].of_translations && std::isfinite(point.metrics[m]))
      return std::string(metric_specs()[m].title) + " " + fixed(point.metrics[m], 1);
  return "";
}

Json validation_data(const RunLog& run, size_t validation, const std::string& translation,
                     const std::string& reference) {
  const ValidPoint& point = run.valid[validation];
  return {{"update", grouped(point.update)},
          {"metric", first_metric(point)},
          {"words", compared_words(translation, reference)},
          {"is_best", run.best_validation() == static_cast<int>(validation)},
          {"is_exact", translation == reference}};
}

}  // namespace

// All sentences with what each run made of them, in the order they appear in.
Json sentences_data(const std::vector<RunLog>& runs) {
  Json sentences = Json::array();
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (size_t r = 0; r < runs.size(); ++r) {
    std::map<size_t, Json> validations;
    for (const size_t v :
         chosen_validations(runs[r], runs.size() > 1 ? kFewValidations : kMostValidations)) {
      const ValidPoint& point = runs[r].valid[v];
      const SampleSet& set = runs[r].sample_sets[point.sample_set];
      for (size_t i = 0; i < set.sources.size(); ++i) {
        const auto key = std::pair(set.sources[i], set.references[i]);
        const auto [at, added] = index.try_emplace(key, sentences.size());
        if (added)
          sentences.push_back(
              {{"source", key.first}, {"reference", key.second}, {"of_runs", Json::array()}});
        validations[at->second].push_back(
            validation_data(runs[r], v, point.translations[i], set.references[i]));
      }
    }
    for (auto& [at, of_run] : validations)
      sentences[at]["of_runs"].push_back({{"index", std::to_string(r)},
                                          {"name", runs[r].name},
                                          {"validations", std::move(of_run)}});
  }
  return sentences;
}

}  // namespace translate_train
