#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

struct EvalArguments {
  std::vector<std::string> metrics;
  std::string hypotheses, baseline;
  std::vector<std::string> references;
  FlagValues values;  // of eval_specs()
  Settings settings;
  bool json = false;
};

// Tokenizers of sacreBLEU that need what this program cannot have.
void refuse_unavailable(const FlagValues& values) {
  const auto given = values.find("--tokenize");
  if (given == values.end() || given->second.words.empty()) return;
  const std::string& name = given->second.words.front();
  if (name == "ko-mecab")
    usage_error("--tokenize: " + name +
                " needs MeCab's Korean dictionary, which this program does not use; use char, or "
                "flores200 with --tokenize-model");
  if (name == "spm" || name == "flores101")
    usage_error("--tokenize: " + name +
                ": use flores200, with that SentencePiece model as --tokenize-model");
}

// Null if the tokenizer needs none.
Tokenizer load_subwords(const Settings& settings, const trafo_evaluation_options& options) {
  const bool wanted = options.tokenize == TRAFO_TOKENIZE_FLORES200;
  if (wanted != settings.has(Setting::eval_tokenize_model))
    usage_error(wanted ? "--tokenize flores200 wants its SentencePiece model: --tokenize-model FILE"
                       : "--tokenize-model: only --tokenize flores200 has a model");
  if (!wanted) return nullptr;
  const std::string& path = settings.program.eval_tokenize_model;
  return make<Tokenizer>(trafo_tokenizer_load, path.data(), path.size());
}

Json to_json(const trafo_resampled_score& score) {
  Json json{{"score", score.score}};
  const auto add = [&](const char* name, double value) {
    if (!std::isnan(value)) json[name] = value;
  };
  add("mean", score.mean);
  add("half_width", score.half_width);
  add("p_value", score.p_value);
  return json;
}

Json to_json(const trafo_evaluation& e, size_t lines, size_t reference_sets) {
  Json bleu = to_json(e.bleu), chrf = to_json(e.chrf);
  bleu["signature"] = e.bleu_signature;
  chrf["signature"] = e.chrf_signature;
  bleu["precisions"] = e.bleu_precisions;
  bleu["matches"] = e.bleu_matches;
  bleu["totals"] = e.bleu_totals;
  bleu["brevity_penalty"] = e.bleu_brevity_penalty;
  bleu["hypothesis_tokens"] = e.hypothesis_tokens;
  bleu["reference_tokens"] = e.reference_tokens;
  if (!std::isnan(e.baseline_bleu.score)) {
    bleu["baseline"] = to_json(e.baseline_bleu);
    chrf["baseline"] = to_json(e.baseline_chrf);
  }
  return {{"lines", lines},
          {"references", reference_sets},
          {"unspaced_references", e.unspaced_references},
          {"bleu", bleu},
          {"chrf", chrf}};
}

// "43.61 (mean 43.60 ± 1.10)"
std::string score_text(const trafo_resampled_score& score) {
  std::string text = fmt::format("{:.2f}", score.score);
  if (!std::isnan(score.mean))
    text += fmt::format(" (mean {:.2f} ± {:.2f})", score.mean, score.half_width);
  return text;
}

std::string bleu_parts(const trafo_evaluation& e) {
  const double* p = e.bleu_precisions;
  const double ratio = e.reference_tokens == 0 ? 0
                                               : static_cast<double>(e.hypothesis_tokens) /
                                                     static_cast<double>(e.reference_tokens);
  return fmt::format(
      "{:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", p[0],
      p[1], p[2], p[3], e.bleu_brevity_penalty, ratio, e.hypothesis_tokens, e.reference_tokens);
}

// The metrics of --metrics, which have neither intervals nor a baseline.
using Scores = std::vector<std::pair<const MetricSpec*, double>>;

void write_text(const trafo_evaluation& e, const Scores& others, LineWriter& out) {
  out.write(fmt::format("BLEU|{} = {} {}", e.bleu_signature, score_text(e.bleu), bleu_parts(e)));
  out.write(fmt::format("chrF2|{} = {}", e.chrf_signature, score_text(e.chrf)));
  for (const auto& [metric, score] : others)
    out.write(fmt::format("{} = {:.{}f}", metric->title, score, metric->decimals));
  if (std::isnan(e.baseline_bleu.score)) return;
  const auto compare = [&](const char* name, const trafo_resampled_score& score,
                           const trafo_resampled_score& baseline) {
    out.write(fmt::format("baseline {} = {}, difference {:+.2f}, p = {:.4f}", name,
                          score_text(baseline), score.score - baseline.score, score.p_value));
  };
  compare("BLEU", e.bleu, e.baseline_bleu);
  compare("chrF2", e.chrf, e.baseline_chrf);
}

// A tenth of the references is enough for a BLEU that says little about them.
void warn_of_unspaced(const trafo_evaluation& e, int32_t tokenize, size_t references,
                      Reporter& reporter) {
  const bool by_spaces = tokenize == TRAFO_TOKENIZE_13A || tokenize == TRAFO_TOKENIZE_INTL ||
                         tokenize == TRAFO_TOKENIZE_NONE;
  if (!by_spaces || 10 * e.unspaced_references <= static_cast<int64_t>(references)) return;
  reporter.warn(fmt::format(
      "{} of {} references are written without spaces, so this tokenizer counts whole phrases as "
      "words: use --tokenize zh for Chinese, ja-mecab for Japanese, char for others, or chrF2",
      grouped(e.unspaced_references), grouped(static_cast<int64_t>(references))));
}

int eval(const EvalArguments& arguments) {
  trafo_evaluation_options options = arguments.settings.evaluation;
  const Tokenizer subwords = load_subwords(arguments.settings, options);
  options.tokenizer = subwords.get();
  Reporter reporter({});
  Reporter::Phase phase(reporter, "reading");
  const std::vector<std::string> hypotheses = read_lines(arguments.hypotheses);
  if (hypotheses.empty()) usage_error(arguments.hypotheses + ": is empty");
  const auto beside = [&](const std::string& path) {
    std::vector<std::string> lines = read_lines(path);
    check_same_length(arguments.hypotheses, hypotheses.size(), path, lines.size());
    return lines;
  };
  std::vector<std::string> references, baseline;
  for (const std::string& path : arguments.references)
    for (std::string& line : beside(path)) references.push_back(std::move(line));
  if (!arguments.baseline.empty()) baseline = beside(arguments.baseline);
  const auto h = views(hypotheses), r = views(references), b = views(baseline);
  phase.now(baseline.empty() && options.confidence == 0 ? "computing BLEU and chrF"
                                                        : "resampling BLEU and chrF");
  trafo_evaluation result{};
  check(trafo_evaluate(h.data(), r.data(), h.size(), arguments.references.size(),
                       baseline.empty() ? nullptr : b.data(), &options, nullptr, &result,
                       sizeof result));
  warn_of_unspaced(result, options.tokenize, references.size(), reporter);
  Scores others;
  for (const std::string& name : arguments.metrics) {
    const MetricSpec* const metric = metric_named(name);
    double score = 0;
    check(trafo_metric_score(metric->bit, h.data(), r.data(), h.size(), arguments.references.size(),
                             &score));
    others.emplace_back(metric, score);
  }
  LineWriter out("-");
  if (arguments.json) {
    Json json = to_json(result, h.size(), arguments.references.size());
    for (const auto& [metric, score] : others) json[metric->name] = {{"score", score}};
    out.write(json.dump());
  } else {
    write_text(result, others, out);
  }
  out.finish();
  return kDone;
}

}  // namespace

Action add_eval(CLI::App& app) {
  auto arguments = std::make_shared<EvalArguments>();
  app.add_option("--hyp", arguments->hypotheses, "translations, a line each; - is standard input")
      ->type_name("FILE")
      ->required();
  app.add_option("--ref", arguments->references, "references; several files: several of each line")
      ->type_name("FILE ...")
      ->required();
  app.add_option("--baseline", arguments->baseline,
                 "other translations, which --hyp is compared with by paired bootstrap")
      ->type_name("FILE");
  for (const SettingSpec& spec : eval_specs()) add_setting(app, spec, arguments->values);
  std::vector<std::string> others;  // trafo_evaluate computes BLEU and chrF
  for (const MetricSpec& metric : metric_specs())
    if (metric.of_translations && (metric.bit & (TRAFO_METRIC_BLEU | TRAFO_METRIC_CHRF)) == 0)
      others.emplace_back(metric.name);
  app.add_option("--metrics", arguments->metrics,
                 fmt::format("further metrics, of {}", fmt::join(others, ", ")))
      ->check(CLI::IsMember(others))
      ->type_name("NAME ...");
  app.add_flag("--json", arguments->json, "one JSON object");
  app.footer("BLEU, chrF2 and TER as sacreBLEU computes them.");
  return [&app, arguments] {
    refuse_unavailable(arguments->values);
    arguments->settings = given_settings(app, arguments->values);
    return eval(*arguments);
  };
}

}  // namespace translate_train
