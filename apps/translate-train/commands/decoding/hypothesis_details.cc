#include "commands/decoding/hypothesis_details.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "commands/cli_error.h"
#include "text/number_text.h"

namespace translate_train {
namespace {

std::span<const double> word_scores_of(const trafo_translations* translations, size_t line,
                                       size_t rank) {
  const double* scores = nullptr;
  size_t count = 0;
  check(trafo_translations_get_word_scores(translations, line, rank, &scores, &count));
  return {scores, count};
}

struct SoftAlignment {
  const float* weights = nullptr;
  size_t targets = 0, sources = 0;

  std::span<const float> row(size_t target) const { return {weights + target * sources, sources}; }
};

SoftAlignment alignment_of(const trafo_translations* translations, size_t line, size_t rank) {
  SoftAlignment a;
  check(trafo_translations_get_alignment(translations, line, rank, &a.weights, &a.targets,
                                         &a.sources));
  return a;
}

// Pairs of source and target, in ascending order.
std::vector<std::pair<size_t, size_t>> links(const SoftAlignment& alignment, double threshold) {
  std::vector<std::pair<size_t, size_t>> result;
  for (size_t t = 0; t < alignment.targets; ++t) {
    const std::span<const float> row = alignment.row(t);
    if (threshold >= 1) {
      const auto best = std::max_element(row.begin(), row.end());
      result.emplace_back(static_cast<size_t>(best - row.begin()), t);
      continue;
    }
    for (size_t s = 0; s < row.size(); ++s)
      if (static_cast<double>(row[s]) > threshold) result.emplace_back(s, t);
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

void HypothesisDetails::add_flags(CLI::App& app, const char* group) {
  app.add_flag("--word-scores", word_scores_,
               "add '||| WordScores= S ...': the log-probability of every subword and of the end")
      ->group(group);
  alignment_flag_ =
      app.add_option("--alignment", mode_,
                     "add '||| 0-0 1-1 ...': source and target subwords, counted from 0, of the "
                     "largest cross-attention (hard, the default) or of one above T; soft: all "
                     "weights, 'W,W,... W,W,...'")
          ->expected(0, 1)
          ->type_name("[soft|hard|T]")
          ->group(group);
}

double HypothesisDetails::threshold() const {
  if (mode_.empty() || mode_ == "hard") return 1;
  double value = 0;
  if (!parse_number(mode_, value) || !(value > 0 && value <= 1))
    usage_error("--alignment: wants soft, hard or a number above 0 and at most 1, got '" + mode_ +
                "'");
  return value;
}

void HypothesisDetails::read(trafo_translate_options& options) const {
  options.word_scores = word_scores_;
  options.alignment = wants_alignment();
  if (wants_alignment() && !soft()) threshold();
}

std::string HypothesisDetails::text(const trafo_translations* translations, size_t line,
                                    size_t rank) const {
  std::string text;
  if (wants_alignment()) {
    std::vector<std::string> words;
    const SoftAlignment alignment = alignment_of(translations, line, rank);
    if (soft())
      for (size_t t = 0; t < alignment.targets; ++t)
        words.push_back(fmt::format("{:.6g}", fmt::join(alignment.row(t), ",")));
    else
      for (const auto& [source, target] : links(alignment, threshold()))
        words.push_back(fmt::format("{}-{}", source, target));
    text += fmt::format(" ||| {}", fmt::join(words, " "));
  }
  if (word_scores_) {
    text += " ||| WordScores=";
    for (const double score : word_scores_of(translations, line, rank))
      text += fmt::format(" {:.5f}", score);
  }
  return text;
}

std::string HypothesisDetails::empty_text() const {
  return std::string(wants_alignment() ? " ||| " : "") + (word_scores_ ? " ||| WordScores=" : "");
}

void HypothesisDetails::write(const trafo_translations* translations, size_t line, size_t rank,
                              nlohmann::ordered_json& object) const {
  if (word_scores_) object["word_scores"] = word_scores_of(translations, line, rank);
  if (!wants_alignment()) return;
  const SoftAlignment alignment = alignment_of(translations, line, rank);
  auto rows = nlohmann::ordered_json::array();
  if (soft())
    for (size_t t = 0; t < alignment.targets; ++t) rows.push_back(alignment.row(t));
  else
    for (const auto& [source, target] : links(alignment, threshold()))
      rows.push_back({source, target});
  object["alignment"] = std::move(rows);
}

}  // namespace translate_train
