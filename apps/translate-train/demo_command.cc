#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "commands.h"
#include "demo_corpus.h"
#include "text_io.h"
#include "training.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kTrainPairs = 12000;
constexpr size_t kHeldOutPairs = 500;
constexpr uint64_t kSeed = 1;
constexpr int kSamples = 8;

struct DemoArguments {
  std::string run = "demo";
  int64_t threads = 0;
  double minutes = 2.5;
  bool quiet = false;
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void write_side(const std::string& path, const std::vector<DemoPair>& pairs,
                std::string DemoPair::*side) {
  LineWriter out(path);
  for (const DemoPair& pair : pairs) out.write(pair.*side);
  out.finish();
}

Settings demo_settings(const DemoArguments& arguments, const std::string& data) {
  Settings settings;
  const auto set = [&](const char* name, std::vector<std::string> values) {
    settings.set(name, std::move(values), std::string("demo ") + name);
  };
  const auto path = [&](const char* name) {
    return fs::absolute(data + name).lexically_normal().string();
  };
  set("train-sets", {path("/train.de"), path("/train.en")});
  set("task", {"tiny"});
  set("dim-vocabs", {"1000"});
  set("enc-depth", {"2"});
  set("dec-depth", {"2"});
  set("dim-emb", {"128"});
  set("transformer-dim-ffn", {"256"});
  set("transformer-heads", {"4"});
  set("transformer-dropout", {"0.05"});
  set("label-smoothing", {"0.1"});
  set("mini-batch-words", {"1024"});
  set("learn-rate", {"0.003"});
  set("lr-warmup", {"150"});
  set("lr-decay", {"linear"});
  set("after", {"1500u"});
  set("valid-freq", {"0u"});  // once, at the end
  set("save-freq", {"0u"});
  set("disp-freq", {"50u"});
  set("early-stopping", {"0"});
  set("cpu-threads", {std::to_string(arguments.threads)});
  return settings;
}

int demo(const DemoArguments& arguments) {
  const auto begin = Clock::now();
  Reporter reporter({.quiet = arguments.quiet});
  const std::string data = arguments.run + "/data";
  std::error_code failed;
  fs::create_directories(data, failed);
  if (failed) throw CliError(kFailed, data + ": " + failed.message());

  const DemoCorpus corpus = make_demo_corpus(kSeed, kTrainPairs, kHeldOutPairs);
  write_side(data + "/train.de", corpus.train, &DemoPair::german);
  write_side(data + "/train.en", corpus.train, &DemoPair::english);
  write_side(data + "/test.de", corpus.held_out, &DemoPair::german);
  write_side(data + "/test.en", corpus.held_out, &DemoPair::english);
  reporter.info(fmt::format(
      "made {} German-English sentence pairs for training and {} held out, in {}",
      grouped(static_cast<int64_t>(corpus.train.size())), corpus.held_out.size(), data));
  if (fs::exists(arguments.run + "/latest"))
    reporter.info(
        fmt::format("{} has been trained before: going on from there (remove it to start "
                    "anew)",
                    arguments.run));

  const auto training = Clock::now();
  const double limit = 60 * arguments.minutes;
  bool out_of_time = false;
  const RunResult result = train_run(demo_settings(arguments, data), arguments.run, reporter,
                                     [&](const trafo_event& event) {
                                       if (event.kind == TRAFO_EVENT_LOG && since(training) > limit)
                                         out_of_time = true;
                                       return !out_of_time;
                                     });
  if (result.exit_code != kDone) return result.exit_code;
  if (out_of_time && result.stop != TRAFO_STOP_LIMIT)
    reporter.warn("this machine is slow: training was ended early");
  const double trained = since(training);

  ModelArguments where;
  where.model = arguments.run;
  where.checkpoint = "latest";
  where.threads = arguments.threads;
  const LoadedModel loaded = load_model(where, reporter);
  std::vector<std::string> sources, references, translations;
  for (const DemoPair& pair : corpus.held_out) {
    sources.push_back(pair.german);
    references.push_back(pair.english);
  }
  const auto translating = Clock::now();
  auto options = with_defaults<trafo_translate_options>(trafo_translate_options_init);
  options.beam = 4;
  {
    const Reporter::Phase phase(reporter, "translating the held-out sentences");
    const auto lines = views(sources);
    const auto results =
        make<Translations>(trafo_translate, loaded.model.get(), loaded.tokenizer.get(),
                           lines.data(), lines.size(), &options, nullptr);
    for (size_t i = 0; i < sources.size(); ++i) {
      trafo_string_view text{};
      check(trafo_translations_get(results.get(), i, 0, &text, nullptr));
      translations.emplace_back(text.data, text.length);
    }
  }
  const double translated = since(translating);
  LineWriter hypotheses(data + "/test.hyp");
  for (const std::string& line : translations) hypotheses.write(line);
  hypotheses.finish();

  double bleu = 0, chrf = 0;
  const auto h = views(translations), r = views(references);
  check(trafo_bleu(h.data(), r.data(), h.size(), 0, &bleu, nullptr));
  check(trafo_chrf(h.data(), r.data(), h.size(), &chrf, nullptr));
  size_t exact = 0;
  for (size_t i = 0; i < translations.size(); ++i) exact += translations[i] == references[i];

  LineWriter out("-");
  out.write("");
  for (int i = 0; i < kSamples; ++i) {
    const size_t k = static_cast<size_t>(i) * translations.size() / kSamples;
    out.write("  German     " + sources[k]);
    out.write("  translated " + translations[k]);
    out.write("  reference  " + references[k]);
    out.write("");
  }
  out.write(
      fmt::format("{} sentences that training has not seen: BLEU {:.2f}, chrF {:.2f}, {} exactly "
                  "as the reference",
                  sources.size(), bleu, chrf, exact));
  out.write(fmt::format("training {:.0f} s, translating {:.1f} s, all {:.0f} s", trained,
                        translated, since(begin)));
  out.write("");
  out.write("Next:");
  out.write(
      fmt::format("  echo 'Der Zug kommt um halb neun an.' | translate-train translate --model {}",
                  arguments.run));
  out.write(fmt::format("  translate-train info {}", arguments.run));
  out.write(fmt::format("  translate-train eval --hyp {0}/test.hyp --ref {0}/test.en", data));
  out.write("  translate-train train --train-sets YOUR.de YOUR.en --model run");
  out.finish();
  return kDone;
}

}  // namespace

Action add_demo(CLI::App& app) {
  auto arguments = std::make_shared<DemoArguments>();
  app.add_option("-m,--model", arguments->run, "run directory (default demo)")->type_name("DIR");
  app.add_option("--cpu-threads", arguments->threads, "(default 0: every core)")->type_name("N");
  app.add_option("--minutes", arguments->minutes, "longest training (default 2.5)")
      ->type_name("X")
      ->check(CLI::PositiveNumber);
  app.add_flag("-q,--quiet", arguments->quiet, "results only");
  return [arguments] { return demo(*arguments); };
}

}  // namespace translate_train
