#include <fmt/format.h>

#include <optional>
#include <span>

#include "commands/commands.h"
#include "commands/text_files.h"
#include "commands/training.h"

namespace translate_train {
namespace {

constexpr const char* kNormalizations[] = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf",
                                           "identity"};

struct VocabArguments {
  std::vector<std::string> files, symbols;
  std::string kind, output, data_format = "auto", normalization = kNormalizations[0];
  std::optional<int64_t> subwords;
  double coverage = 1;
  bool bpe = false, byte_fallback = false, soft_limit = false, quiet = false;
};

int vocab(const VocabArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  if (arguments.files.empty() && arguments.kind.empty()) usage_error("--train-sets is required");
  refuse_loss(arguments.files, arguments.output);
  Corpus text;
  if (!arguments.files.empty()) {
    const Reporter::Phase phase(reporter, "reading");
    text = read_texts(arguments.files, arguments.data_format);
  }
  auto options = with_defaults<trafo_tokenizer_options>(trafo_tokenizer_options_init);
  if (!arguments.kind.empty()) options.kind = view(arguments.kind);
  if (arguments.subwords) options.vocabulary = *arguments.subwords;
  options.character_coverage = arguments.coverage;
  options.bpe = arguments.bpe;
  options.byte_fallback = arguments.byte_fallback;
  options.soft_limit = arguments.soft_limit;
  options.normalization = index_of_word(kNormalizations, arguments.normalization);
  const std::vector<trafo_string_view> symbols = views(arguments.symbols);
  options.user_symbols = symbols.data();
  options.user_symbol_count = symbols.size();
  const Reporter::Phase phase(reporter, "training the vocabulary");
  const auto tokenizer =
      text ? make<Tokenizer>(trafo_corpus_train_tokenizer, text.get(), &options, nullptr)
           : make<Tokenizer>(trafo_tokenizer_train, static_cast<const trafo_string_view*>(nullptr),
                             size_t{0}, &options, nullptr);
  const std::string output =
      arguments.output.empty() ? vocabulary_name(tokenizer.get()) : arguments.output;
  refuse_loss(arguments.files, output);  // its usual name is known now
  check(trafo_tokenizer_save(tokenizer.get(), output.data(), output.size()));
  int64_t subwords = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &subwords));
  const std::string from =
      text ? fmt::format(" from {} lines", grouped(pair_count(text))) : std::string();
  reporter.info(fmt::format("{}: {} subwords{} in {:.1f} s", output, grouped(subwords), from,
                            phase.seconds()));
  return kDone;
}

}  // namespace

Action add_vocab(CLI::App& app) {
  auto arguments = std::make_shared<VocabArguments>();
  app.add_option("-t,--train-sets", arguments->files,
                 "text of every language: plain, gzip, TSV, JSON lines, or - for standard input")
      ->type_name("FILE");
  add_data_format(app, arguments->data_format);
  app.add_option("--kind", arguments->kind, spec_of(Setting::vocab_kind).help)->type_name("NAME");
  app.add_option("-o,--output", arguments->output,
                 "(default: the name that it has in a run directory)")
      ->type_name("FILE");
  app.add_option("--dim-vocabs", arguments->subwords, "(default 8000)")->type_name("N");
  app.add_option("--character-coverage", arguments->coverage,
                 "share of characters that get a subword (default 1)")
      ->type_name("P");
  app.add_option(
         "--normalization", arguments->normalization,
         "normal form of text, by SentencePiece's names: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or "
         "identity; _cf folds letters to lower case (default nmt_nfkc)")
      ->type_name("NAME")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kNormalizations), std::end(kNormalizations))));
  app.add_option("--user-defined-symbols", arguments->symbols,
                 "texts that are one token each, wherever they stand")
      ->type_name("TEXT ...");
  app.add_flag("--bpe", arguments->bpe, "byte-pair encoding instead of the unigram model");
  app.add_flag("--byte-fallback", arguments->byte_fallback, "unknown characters become bytes");
  app.add_flag("--soft-limit", arguments->soft_limit, "fewer subwords if the text has no more");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return [arguments] { return vocab(*arguments); };
}

}  // namespace translate_train
