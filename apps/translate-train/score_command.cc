#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "hypothesis_details.h"
#include "setting_types.h"
#include "text_io.h"

namespace translate_train {
namespace {

constexpr size_t kBatch = 2000;

struct ScoreArguments {
  ModelArguments model;
  std::vector<std::string> files;
  std::string tsv;
  HypothesisDetails details;
  int64_t alignment_layer = 0;
  bool normalize = false;
  bool quiet = false;
  bool json = false;
};

void read_tsv(const std::string& path, std::vector<std::string>& source,
              std::vector<std::string>& target) {
  LineReader reader(path);
  std::string line;
  while (reader.next(line)) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos)
      usage_error(
          fmt::format("{}:{} wants SOURCE<tab>TARGET", reader.name(), reader.line_number()));
    source.push_back(line.substr(0, tab));
    target.push_back(line.substr(tab + 1));
  }
  if (source.empty()) usage_error(reader.name() + ": is empty");
}

int score(const ScoreArguments& arguments) {
  if (arguments.files.empty() == arguments.tsv.empty())
    usage_error("score wants --train-sets SRC TRG or --tsv FILE");
  auto options = with_defaults<trafo_translate_options>(trafo_translate_options_init);
  options.length_penalty = 0;
  options.alignment_layer = arguments.alignment_layer;
  arguments.details.read(options);
  Reporter reporter({.quiet = arguments.quiet});
  std::vector<std::string> source, target;
  {
    const Reporter::Phase phase(reporter, "reading");
    if (arguments.tsv.empty())
      read_pair(arguments.files[0], arguments.files[1], source, target);
    else
      read_tsv(arguments.tsv, source, target);
  }
  const LoadedModel loaded = load_model(arguments.model, reporter);
  LineWriter out("-");
  double total = 0;
  int64_t tokens = 0;
  auto scores = nlohmann::ordered_json::array();  // with --json
  std::optional<Reporter::Phase> phase(std::in_place, reporter, "scoring");
  for (size_t begin = 0; begin < source.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, source.size() - begin);
    std::vector<trafo_string_view> s, t;
    for (size_t i = begin; i < begin + count; ++i) {
      s.push_back(view(source[i]));
      t.push_back(view(target[i]));
    }
    phase->now(fmt::format("scoring, {} of {} pairs done", grouped(static_cast<int64_t>(begin)),
                           grouped(static_cast<int64_t>(source.size()))));
    const auto decoded = make<Translations>(
        trafo_force_decode, loaded.model.get(), loaded.tokenizer.get(), s.data(), t.data(), count,
        static_cast<const trafo_translate_options*>(&options), nullptr);
    for (size_t i = 0; i < count; ++i) {
      trafo_string_view text{};
      double log_probability = 0;
      const int32_t* ids = nullptr;
      size_t length = 0;
      check(trafo_translations_get(decoded.get(), i, 0, &text, &log_probability));
      check(trafo_translations_get_tokens(decoded.get(), i, 0, &ids, &length));
      ++length;  // the end
      total += log_probability;
      tokens += static_cast<int64_t>(length);
      if (arguments.json) {
        auto& object = scores.emplace_back(
            nlohmann::ordered_json{{"log_probability", log_probability}, {"tokens", length}});
        arguments.details.write(decoded.get(), i, 0, object);
        continue;
      }
      const double score =
          arguments.normalize ? log_probability / static_cast<double>(length) : log_probability;
      out.write(fmt::format("{:.6f}{}", score, arguments.details.text(decoded.get(), i, 0)));
    }
  }
  phase.reset();
  const double mean = -total / static_cast<double>(std::max<int64_t>(tokens, 1));
  if (arguments.json)
    out.write(nlohmann::ordered_json{
        {"pairs", source.size()},
        {"target_tokens", tokens},
        {"log_probability", total},
        {"cross_entropy", mean},
        {"perplexity", std::exp(mean)},
        {"scores",
         scores}}.dump());
  out.finish();
  reporter.info(fmt::format(
      "{} pairs | {} target tokens | log-probability {:.4f} | cross-entropy {:.4f} | perplexity "
      "{:.4f}",
      grouped(static_cast<int64_t>(source.size())), grouped(tokens), total, mean, std::exp(mean)));
  return kDone;
}

}  // namespace

Action add_score(CLI::App& app) {
  auto arguments = std::make_shared<ScoreArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-t,--train-sets", arguments->files, "the pairs, plain or gzip")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("--tsv", arguments->tsv, "instead: SOURCE<tab>TARGET lines, - is standard input")
      ->type_name("FILE|-");
  CLI::Option* normalize =
      app.add_flag("-n,--normalize", arguments->normalize, "divide by the length in tokens");
  app.add_flag("--json", arguments->json, "one JSON object, with the length of every target")
      ->excludes(normalize);
  arguments->details.add_flags(app, "Options");
  app.add_option("--alignment-layer", arguments->alignment_layer,
                 "decoder layer of --alignment, counted from 1; 0: the last but one (default 0)")
      ->type_name("N");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "Writes the natural log-probability of every pair; the summary goes to standard error.");
  return [arguments] { return score(*arguments); };
}

}  // namespace translate_train
