#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "commands/commands.h"
#include "commands/training.h"

namespace translate_train {
namespace {

constexpr int64_t kInMemory = int64_t{256} << 20;  // of the text of all files
constexpr const char* kNormalizations[] = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf",
                                           "identity"};

int32_t index_of(std::span<const char* const> words, const std::string& word) {
  return static_cast<int32_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

// In the order of TRAFO_CORPUS_*.
std::span<const char* const> data_formats() {
  return spec_of(Setting::data_format).words;
}

struct VocabArguments {
  std::vector<std::string> files, symbols;
  std::string kind, output, data_format = "auto", normalization = kNormalizations[0];
  std::optional<int64_t> subwords;
  double coverage = 1;
  bool bpe = false, byte_fallback = false, soft_limit = false, quiet = false;
};

// The lines of all files. Large files stay on disk, as in `train`.
Corpus read_text(const VocabArguments& arguments, Reporter& reporter) {
  const Reporter::Phase phase(reporter, "reading");
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  options.monolingual = 1;
  options.format = index_of(data_formats(), arguments.data_format);
  options.memory_bytes = kInMemory / static_cast<int64_t>(arguments.files.size());
  std::vector<Corpus> corpora;
  for (const std::string& file : arguments.files) {
    const trafo_string_view path = view(file);
    corpora.push_back(make<Corpus>(trafo_corpus_open, &path, size_t{1}, &options, nullptr));
  }
  if (corpora.size() == 1) return std::move(corpora.front());
  std::vector<const trafo_corpus*> parts;
  for (const Corpus& corpus : corpora) parts.push_back(corpus.get());
  const std::vector<double> weights(parts.size(), 1);
  return make<Corpus>(trafo_corpus_mix, parts.data(), weights.data(), parts.size());
}

int vocab(const VocabArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  if (arguments.files.empty() && arguments.kind.empty()) usage_error("--train-sets is required");
  Corpus text;
  if (!arguments.files.empty()) text = read_text(arguments, reporter);
  auto options = with_defaults<trafo_tokenizer_options>(trafo_tokenizer_options_init);
  if (!arguments.kind.empty()) options.kind = view(arguments.kind);
  if (arguments.subwords) options.vocabulary = *arguments.subwords;
  options.character_coverage = arguments.coverage;
  options.bpe = arguments.bpe;
  options.byte_fallback = arguments.byte_fallback;
  options.soft_limit = arguments.soft_limit;
  options.normalization = index_of(kNormalizations, arguments.normalization);
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
  app.add_option("--data-format", arguments->data_format, spec_of(Setting::data_format).help)
      ->type_name("NAME")
      ->check(
          CLI::IsMember(std::vector<std::string>(data_formats().begin(), data_formats().end())));
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
