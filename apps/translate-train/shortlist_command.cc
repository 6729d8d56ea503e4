#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands.h"
#include "text_io.h"

namespace translate_train {
namespace {

struct ShortlistArguments {
  std::vector<std::string> files;
  std::string vocabulary, output = "lex.s2t";
  int64_t best = 100;
  int64_t pairs = 500000;
  bool quiet = false;
};

// Every n-th of them, so that they come from all of the text.
std::vector<trafo_string_view> sample(const std::vector<std::string>& lines, size_t wanted) {
  const size_t step = std::max<size_t>(1, (lines.size() + wanted - 1) / wanted);
  std::vector<trafo_string_view> chosen;
  for (size_t i = 0; i < lines.size(); i += step) chosen.push_back(view(lines[i]));
  return chosen;
}

int learn(const ShortlistArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  const auto tokenizer = make<Tokenizer>(trafo_tokenizer_load, arguments.vocabulary.data(),
                                         arguments.vocabulary.size());
  std::vector<std::string> source, target;
  Reporter::Phase phase(reporter, "reading");
  read_pair(arguments.files[0], arguments.files[1], source, target);
  const auto wanted = static_cast<size_t>(arguments.pairs);
  const auto s = sample(source, wanted), t = sample(target, wanted);
  phase.now(fmt::format("learning from {} pairs", grouped(static_cast<int64_t>(s.size()))));
  const auto list = make<Shortlist>(trafo_shortlist_learn, tokenizer.get(), s.data(), t.data(),
                                    s.size(), arguments.best);
  check(trafo_shortlist_save(list.get(), arguments.output.data(), arguments.output.size()));
  reporter.info(fmt::format("{}: learnt from {} pairs in {:.1f} s", arguments.output,
                            grouped(static_cast<int64_t>(s.size())), phase.seconds()));
  return kDone;
}

}  // namespace

Action add_shortlist(CLI::App& app) {
  auto arguments = std::make_shared<ShortlistArguments>();
  app.add_option("-t,--train-sets", arguments->files, "the training text, plain or gzip")
      ->required()
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("-v,--vocab,--vocabs", arguments->vocabulary, "the model's SentencePiece model")
      ->required()
      ->type_name("FILE.spm");
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
