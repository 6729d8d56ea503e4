#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands/commands.h"
#include "commands/training.h"

namespace translate_train {
namespace {

struct ShortlistArguments {
  std::vector<std::string> files;
  std::string vocabulary, output = "lex.s2t";
  int64_t best = 100;
  int64_t pairs = 500000;
  bool quiet = false;
};

// Every n-th pair, so that they come from all of the text, which stays on disk if it is large.
struct Sample {
  std::vector<std::string> source, target;
};
Sample sample(const std::vector<std::string>& files, int64_t wanted) {
  const std::vector<trafo_string_view> paths = views(files);
  const auto corpus = make<Corpus>(trafo_corpus_open, paths.data(), paths.size(), nullptr, nullptr);
  const int64_t pairs = pair_count(corpus);
  const int64_t step = std::max<int64_t>(1, (pairs + wanted - 1) / wanted);
  Sample chosen;
  for (int64_t i = 0; i < pairs; i += step) {
    trafo_string_view source{}, target{};
    check(trafo_corpus_get_pair(corpus.get(), i, &source, &target));
    chosen.source.emplace_back(source.data, source.length);
    chosen.target.emplace_back(target.data, target.length);
  }
  return chosen;
}

int learn(const ShortlistArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  const auto tokenizer = make<Tokenizer>(trafo_tokenizer_load, arguments.vocabulary.data(),
                                         arguments.vocabulary.size());
  refuse_loss(arguments.files, arguments.output);
  refuse_loss({arguments.vocabulary}, arguments.output);
  Reporter::Phase phase(reporter, "reading");
  const Sample pairs = sample(arguments.files, arguments.pairs);
  const auto count = static_cast<int64_t>(pairs.source.size());
  const auto s = views(pairs.source), t = views(pairs.target);
  phase.now(fmt::format("learning from {} pairs", grouped(count)));
  const auto list = make<Shortlist>(trafo_shortlist_learn, tokenizer.get(), s.data(), t.data(),
                                    s.size(), arguments.best, nullptr);
  check(trafo_shortlist_save(list.get(), arguments.output.data(), arguments.output.size()));
  reporter.info(fmt::format("{}: learnt from {} pairs in {:.1f} s", arguments.output,
                            grouped(count), phase.seconds()));
  return kDone;
}

}  // namespace

Action add_shortlist(CLI::App& app) {
  auto arguments = std::make_shared<ShortlistArguments>();
  app.add_option("-t,--train-sets", arguments->files, "the training text, plain or gzip")
      ->required()
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("-v,--vocab,--vocabs", arguments->vocabulary, "the vocabulary of the model")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", arguments->output, "(default lex.s2t)")->type_name("FILE");
  app.add_option("--best", arguments->best, "translations of a subword that are kept (default 100)")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  app.add_option("--max-pairs", arguments->pairs,
                 "learn from this many pairs, spread over the text (default 500000)")
      ->type_name("N")
      ->check(CLI::Range(1, 100000000));
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer("Lines 'TARGET SOURCE PROBABILITY', which translate --shortlist reads.");
  return [arguments] { return learn(*arguments); };
}

}  // namespace translate_train
