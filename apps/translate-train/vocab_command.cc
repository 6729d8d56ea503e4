#include <fmt/format.h>

#include "commands.h"
#include "text_io.h"

namespace translate_train {
namespace {

struct VocabArguments {
  std::vector<std::string> files;
  std::string output = "vocab.spm";
  int64_t subwords = 8000;
  double coverage = 1;
  bool bpe = false, byte_fallback = false, soft_limit = false, quiet = false;
};

int vocab(const VocabArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  std::vector<std::string> lines;
  {
    Reporter::Phase phase(reporter, "reading");
    for (const std::string& file : arguments.files) {
      LineReader reader(file);
      std::string line;
      // The two sides of a TSV line are two sentences.
      while (reader.next(line)) {
        if (reader.line_number() % 100000 == 0)
          phase.now(
              fmt::format("reading {}, {} lines", reader.name(), grouped(reader.line_number())));
        for (size_t begin = 0; begin <= line.size();) {
          const size_t end = std::min(line.find('\t', begin), line.size());
          if (end > begin) lines.push_back(line.substr(begin, end - begin));
          begin = end + 1;
        }
      }
    }
  }
  if (lines.empty()) usage_error(arguments.files[0] + ": is empty");
  auto options = with_defaults<trafo_tokenizer_options>(trafo_tokenizer_options_init);
  options.vocabulary = arguments.subwords;
  options.character_coverage = arguments.coverage;
  options.bpe = arguments.bpe;
  options.byte_fallback = arguments.byte_fallback;
  options.soft_limit = arguments.soft_limit;
  const std::vector<trafo_string_view> text = views(lines);
  Tokenizer tokenizer;
  const Reporter::Phase phase(reporter, "training the vocabulary");
  tokenizer = make<Tokenizer>(trafo_tokenizer_train, text.data(), text.size(), &options);
  check(trafo_tokenizer_save(tokenizer.get(), arguments.output.data(), arguments.output.size()));
  int64_t subwords = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &subwords));
  reporter.info(fmt::format("{}: {} subwords from {} lines in {:.1f} s", arguments.output,
                            grouped(subwords), grouped(static_cast<int64_t>(lines.size())),
                            phase.seconds()));
  return kDone;
}

}  // namespace

Action add_vocab(CLI::App& app) {
  auto arguments = std::make_shared<VocabArguments>();
  app.add_option("-t,--train-sets", arguments->files,
                 "text of every language, plain, gzip, TSV, or - for standard input")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", arguments->output, "(default vocab.spm)")->type_name("FILE.spm");
  app.add_option("--dim-vocabs", arguments->subwords, "(default 8000)")->type_name("N");
  app.add_option("--character-coverage", arguments->coverage,
                 "share of characters that get a subword (default 1)")
      ->type_name("P");
  app.add_flag("--bpe", arguments->bpe, "byte-pair encoding instead of the unigram model");
  app.add_flag("--byte-fallback", arguments->byte_fallback, "unknown characters become bytes");
  app.add_flag("--soft-limit", arguments->soft_limit, "fewer subwords if the text has no more");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return [arguments] { return vocab(*arguments); };
}

}  // namespace translate_train
