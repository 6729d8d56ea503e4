#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "commands.h"
#include "text_io.h"

namespace translate_train {
namespace {

constexpr size_t kBatch = 2000;

struct ScoreArguments {
  ModelArguments model;
  std::vector<std::string> files;
  std::string tsv;
  bool normalize = false;
  bool quiet = false;
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
  std::optional<Reporter::Phase> phase(std::in_place, reporter, "scoring");
  for (size_t begin = 0; begin < source.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, source.size() - begin);
    std::vector<trafo_string_view> s, t;
    for (size_t i = begin; i < begin + count; ++i) {
      s.push_back(view(source[i]));
      t.push_back(view(target[i]));
    }
    std::vector<double> log_probability(count);
    std::vector<int64_t> lengths(count);
    phase->now(fmt::format("scoring, {} of {} pairs done", grouped(static_cast<int64_t>(begin)),
                           grouped(static_cast<int64_t>(source.size()))));
    check(trafo_score(loaded.model.get(), loaded.tokenizer.get(), s.data(), t.data(), count,
                      log_probability.data(), lengths.data()));
    for (size_t i = 0; i < count; ++i) {
      total += log_probability[i];
      tokens += lengths[i];
      out.write(fmt::format("{:.6f}", arguments.normalize
                                          ? log_probability[i] / static_cast<double>(lengths[i])
                                          : log_probability[i]));
    }
  }
  phase.reset();
  out.finish();
  const double mean = -total / static_cast<double>(std::max<int64_t>(tokens, 1));
  reporter.info(fmt::format(
      "{} pairs | {} target tokens | log-probability {:.4f} | cross-entropy {:.4f} | perplexity "
      "{:.4f}",
      grouped(static_cast<int64_t>(source.size())), grouped(tokens), total, mean, std::exp(mean)));
  return kDone;
}

struct EvalArguments {
  std::string hypotheses, references;
  bool lowercase = false;
};

int eval(const EvalArguments& arguments) {
  Reporter reporter({});
  Reporter::Phase phase(reporter, "reading");
  std::vector<std::string> hypotheses, references;
  read_pair(arguments.hypotheses, arguments.references, hypotheses, references);
  const auto h = views(hypotheses), r = views(references);
  double bleu = 0, chrf = 0;
  char* signature = nullptr;
  LineWriter out("-");
  phase.now("computing BLEU");
  check(trafo_bleu(h.data(), r.data(), h.size(), arguments.lowercase, &bleu, &signature));
  out.write(fmt::format("BLEU|{} = {:.2f}", signature, bleu));
  trafo_string_free(signature);
  phase.now("computing chrF");
  check(trafo_chrf(h.data(), r.data(), h.size(), &chrf, &signature));
  out.write(fmt::format("chrF2|{} = {:.2f}", signature, chrf));
  trafo_string_free(signature);
  out.finish();
  return kDone;
}

}  // namespace

Action add_score(CLI::App& app) {
  auto arguments = std::make_shared<ScoreArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-t,--train-sets", arguments->files, "the pairs, plain or .gz")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("--tsv", arguments->tsv, "instead: SOURCE<tab>TARGET lines, - is standard input")
      ->type_name("FILE|-");
  app.add_flag("-n,--normalize", arguments->normalize, "divide by the length in tokens");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "Writes the natural log-probability of every pair; the summary goes to standard error.");
  return [arguments] { return score(*arguments); };
}

Action add_eval(CLI::App& app) {
  auto arguments = std::make_shared<EvalArguments>();
  app.add_option("--hyp", arguments->hypotheses, "translations, a line each; - is standard input")
      ->type_name("FILE")
      ->required();
  app.add_option("--ref", arguments->references, "references")->type_name("FILE")->required();
  app.add_flag("--lowercase", arguments->lowercase, "BLEU without case");
  return [arguments] { return eval(*arguments); };
}

}  // namespace translate_train
