#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "commands.h"
#include "text_io.h"

namespace translate_train {
namespace {

struct TranslateArguments {
  ModelArguments model;
  std::string input = "-", output = "-";
  int beam = 5;
  int n_best = 0;  // 0: plain lines
  double normalize = 1;
  int64_t max_length = 0;
  int64_t batch_words = 0;
  int64_t batch_lines = 1000;
  bool quiet = false;
};

int translate(const TranslateArguments& arguments) {
  auto options = with_defaults<trafo_translate_options>(trafo_translate_options_init);
  options.beam = arguments.beam;
  options.n_best = arguments.n_best > 0 ? arguments.n_best : 1;
  options.length_penalty = arguments.normalize;
  options.max_length = arguments.max_length;
  if (arguments.batch_words > 0) options.batch_tokens = arguments.batch_words;
  Reporter reporter(
      {.live = arguments.output != "-" || isatty(STDOUT_FILENO) == 0, .quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  LineReader in(arguments.input);
  LineWriter out(arguments.output);
  // Somebody who types wants the answer before the next line.
  const bool typing = arguments.input == "-" && isatty(STDIN_FILENO) != 0;
  const size_t batch = typing ? 1 : static_cast<size_t>(arguments.batch_lines);

  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> lines;
  std::string line;
  int64_t done = 0;
  size_t cut = 0;
  // Not while somebody thinks about the next line.
  std::optional<Reporter::Phase> all;
  if (!typing) all.emplace(reporter, "translating");
  for (bool more = true; more;) {
    lines.clear();
    while (lines.size() < batch && (more = in.next(line))) lines.push_back(line);
    if (lines.empty()) break;
    const std::vector<trafo_string_view> sources = views(lines);
    Translations translations;
    {
      std::optional<Reporter::Phase> one;
      if (typing) one.emplace(reporter, "translating");
      translations = make<Translations>(trafo_translate, loaded.model.get(), loaded.tokenizer.get(),
                                        sources.data(), sources.size(), &options, nullptr);
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      size_t count = 0;
      check(trafo_translations_get_count(translations.get(), i, &count));
      for (size_t rank = 0; rank < count; ++rank) {
        trafo_string_view text{};
        double score = 0;
        check(trafo_translations_get(translations.get(), i, rank, &text, &score));
        const std::string_view hypothesis(text.data, text.length);
        if (arguments.n_best > 0)
          out.write(fmt::format("{} ||| {} ||| Score= {:.6f} ||| {:.6f}",
                                done + static_cast<int64_t>(i), hypothesis, score, score));
        else
          out.write(hypothesis);
      }
      if (count == 0 && arguments.n_best == 0) out.write("");
    }
    out.flush();
    size_t cut_now = 0;
    check(trafo_translations_get_truncated(translations.get(), &cut_now));
    cut += cut_now;
    done += static_cast<int64_t>(lines.size());
    if (all) all->now(fmt::format("translating, {} lines done", grouped(done)));
  }
  all.reset();
  out.finish();
  if (cut > 0)
    reporter.warn(fmt::format("{} lines were longer than the model allows and cut", cut));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!typing && seconds > 2)
    reporter.info(fmt::format("{} lines translated in {:.1f} s", grouped(done), seconds));
  return kDone;
}

}  // namespace

Action add_translate(CLI::App& app) {
  auto arguments = std::make_shared<TranslateArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-i,--input", arguments->input, "plain or .gz (default - : standard input)")
      ->type_name("FILE");
  app.add_option("-o,--output", arguments->output, "(default - : standard output)")
      ->type_name("FILE");
  app.add_option("-b,--beam-size,--beam", arguments->beam, "(default 5; 1: greedy)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_option("-n,--normalize,--lenpen", arguments->normalize,
                 "score = log-probability / length^A (default 1)")
      ->type_name("A");
  app.add_option("--n-best,--nbest", arguments->n_best,
                 "write the best N of every line as 'LINE ||| TEXT ||| Score= S ||| S'")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-length", arguments->max_length,
                 "longest translation in pieces (default: twice the source and 10)")
      ->type_name("N");
  app.add_option("--mini-batch-words", arguments->batch_words, "source pieces decoded together")
      ->type_name("N");
  app.add_option("--maxi-batch", arguments->batch_lines,
                 "lines read before translating (default 1000)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return [arguments] { return translate(*arguments); };
}

}  // namespace translate_train
