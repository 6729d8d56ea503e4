// encode: text as a file of token ids that train and other programs read.
#include <fmt/format.h>

#include <memory>
#include <span>

#include "commands/commands.h"
#include "commands/text_files.h"
#include "settings/settings.h"

namespace translate_train {
namespace {

struct EncodeArguments {
  std::vector<std::string> files, vocabulary;
  std::string output, to, data_format = "auto";
  bool parse_special = false, quiet = false;
};

// The formats of token ids, and the first of them as TRAFO_CORPUS_*.
std::span<const char* const> token_formats() {
  return std::span(spec_of(Setting::data_format).words).subspan(TRAFO_CORPUS_LLM_C);
}

int encode(const EncodeArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  const std::string file = one_vocabulary(arguments.vocabulary);
  const Tokenizer tokenizer =
      reading_texts(make<Tokenizer>(trafo_tokenizer_load, file.data(), file.size()),
                    arguments.parse_special, "", "");
  refuse_loss(arguments.files, arguments.output);
  refuse_loss({file}, arguments.output);
  Corpus text;
  {
    const Reporter::Phase phase(reporter, "reading");
    text = read_texts(arguments.files, arguments.data_format);
  }
  const Reporter::Phase phase(reporter, "encoding");
  const std::string& output = arguments.output;
  int64_t documents = 0, tokens = 0;
  check(trafo_corpus_write_ids(text.get(), tokenizer.get(),
                               TRAFO_CORPUS_LLM_C + index_of_word(token_formats(), arguments.to),
                               output.data(), output.size(), nullptr, &documents, &tokens));
  trafo_special_tokens special{};
  check(trafo_tokenizer_get_special(tokenizer.get(), &special));
  reporter.info(fmt::format("{}: {} documents, {} tokens; each document ends with {}; {:.1f} s",
                            output, grouped(documents), grouped(tokens), special.eos,
                            phase.seconds()));
  return kDone;
}

}  // namespace

Action add_encode(CLI::App& app) {
  auto arguments = std::make_shared<EncodeArguments>();
  app.add_option("-t,--train-sets", arguments->files,
                 "text without a source: plain, gzip, JSON lines, CSV, or - for standard input")
      ->required()
      ->type_name("FILE");
  add_data_format(app, arguments->data_format);
  app.add_option("-v,--vocabs", arguments->vocabulary,
                 "vocabulary of the text: its file or a run directory")
      ->required()
      ->type_name("FILE");
  const std::span<const char* const> formats = token_formats();
  app.add_option("--to", arguments->to,
                 "llmc, nanogpt or megatron, which also has an index beside the file")
      ->required()
      ->type_name("NAME")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())));
  app.add_option("-o,--output", arguments->output, "NAME.bin")->required()->type_name("FILE");
  app.add_flag("--parse-special", arguments->parse_special,
               "the name of a special token in the text is that token");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer("train --data-format NAME reads the file.");
  return [arguments] { return encode(*arguments); };
}

}  // namespace translate_train
