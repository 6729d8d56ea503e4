#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "commands/commands.h"
#include "commands/decoding/hypothesis_details.h"
#include "commands/decoding/id_lines.h"
#include "engine/os/file.h"
#include "engine/os/terminal.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "text/cut_lines.h"
#include "text/number_text.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

struct TranslateArguments {
  ModelArguments model;
  std::string input = "-", output = "-";
  std::string prefixes;  // a file; empty: none
  FlagValues values;     // of translate_specs()
  Settings settings;     // the settings that were given
  HypothesisDetails details;
  int n_best = 0;  // 0: plain lines
  bool distinct = false;
  int64_t batch_lines = 1000;
  bool crop = true;
  bool quiet = false;
  bool sampling = false;
  std::vector<std::string> shortlist;  // FILE [FIRST [BEST]]
  std::vector<std::string> method;     // of --output-sampling
};

// --output-sampling full | topk N | nucleus P
void read_method(const std::vector<std::string>& method, trafo_translate_options& options) {
  const auto wrong = [&] {
    std::string given;
    for (const std::string& word : method) given += (given.empty() ? "" : " ") + word;
    usage_error("--output-sampling: wants nothing, full, topk N or nucleus P, got '" + given + "'");
  };
  if (method.empty() || method[0].empty()) return;
  const bool topk = method[0] == "topk", nucleus = method[0] == "nucleus" || method[0] == "topp";
  if (!topk && !nucleus && (method[0] != "full" || method.size() > 1)) wrong();
  if (topk) options.top_k = 10;
  if (nucleus) options.top_p = 0.9;
  if (method.size() < 2) return;
  if (topk ? !parse_number(method[1], options.top_k) : !parse_number(method[1], options.top_p))
    wrong();
}

trafo_translate_options translate_options(const TranslateArguments& arguments) {
  trafo_translate_options options = arguments.settings.translate;
  options.n_best = arguments.n_best > 0 ? arguments.n_best : 1;
  options.truncate = arguments.crop;
  options.distinct = arguments.distinct;
  options.sampling = arguments.sampling;
  read_method(arguments.method, options);
  arguments.details.read(options);
  const auto number = [&](size_t place, int64_t otherwise) {
    if (arguments.shortlist.size() <= place) return otherwise;
    int64_t value = -1;
    if (!parse_number(arguments.shortlist[place], value) || value < 0)
      usage_error("--shortlist: wants FILE FIRST BEST, got '" + arguments.shortlist[place] + "'");
    return value;
  };
  options.shortlist_first = number(1, options.shortlist_first);
  options.shortlist_best = number(2, options.shortlist_best);
  return options;
}

class TranslateRun {
 public:
  TranslateRun(const TranslateArguments& arguments, Reporter& reporter, LoadedModel loaded)
      : arguments_(arguments),
        reporter_(reporter),
        loaded_(std::move(loaded)),
        options_(translate_options(arguments)),
        in_(arguments.input, arguments.crop),
        out_(arguments.output),
        cut_(reporter, "cut"),
        typing_(arguments.input == "-" && trafo::os::is_terminal(trafo::os::kStandardInput)) {
    if (arguments.prefixes == "-" && arguments.input == "-")
      usage_error(
          "--prefixes: standard input is the text already; give a file, or the text with -i");
    if (!arguments.prefixes.empty()) given_.emplace(arguments.prefixes);
    if (arguments.shortlist.empty()) return;
    if (!loaded_.tokenizer) usage_error("--shortlist: needs the vocabulary, give --vocab FILE");
    const std::string& file = arguments.shortlist[0];
    shortlist_ =
        make<Shortlist>(trafo_shortlist_load, loaded_.tokenizer.get(), file.data(), file.size());
    options_.shortlist = shortlist_.get();
  }

  void run() {
    const auto limit = static_cast<size_t>(arguments_.batch_lines);
    std::string line;
    while (true) {
      if (!in_.ready(0)) {
        if (typing_)
          phase_.reset();  // somebody thinks about the next line
        else
          now("waiting for lines");
      }
      lines_.clear();
      prefixes_.clear();
      id_rows_.clear();
      id_prefixes_.clear();
      do {
        if (!in_.next(line)) break;
        if (in_.cut_from() > 0)
          cut_.add(fmt::format("line {} has {} bytes: what is behind the first 1 MiB is left out",
                               in_.line_number(), grouped(static_cast<int64_t>(in_.cut_from()))));
        lines_.push_back(line);
        if (arguments_.model.ids)
          id_rows_.add(line, fmt::format("{}:{}", in_.name(), in_.line_number()));
        if (given_) next_prefix();
        // Lines that arrive together are translated together, without waiting for more.
      } while (lines_.size() < limit && in_.ready(kPatience));
      if (lines_.empty()) break;
      now("translating");
      translate();
    }
    phase_.reset();
    if (std::string more; given_ && given_->next(more))
      usage_error(fmt::format("--prefixes {}: has more lines than the input, which has {}",
                              given_->name(), grouped(done_)));
    out_.finish();
    cut_.finish();
  }
  int64_t lines() const { return done_; }
  bool typing() const { return typing_; }

 private:
  static constexpr int kPatience = 5;  // milliseconds

  void now(const char* doing) {
    const std::string text =
        done_ == 0 ? doing : fmt::format("{}, {} lines done", doing, grouped(done_));
    if (phase_)
      phase_->now(text);
    else
      phase_.emplace(reporter_, text);
  }

  void next_prefix() {
    if (!given_->next(prefixes_.emplace_back()))
      usage_error(fmt::format("--prefixes {}: ends before line {} of the input", given_->name(),
                              in_.line_number()));
    if (arguments_.model.ids)
      id_prefixes_.add(prefixes_.back(),
                       fmt::format("{}:{}", given_->name(), given_->line_number()));
  }

  Translations translated() {
    if (arguments_.model.ids)
      return make<Translations>(trafo_translate_ids, loaded_.model.get(), loaded_.tokenizer.get(),
                                id_rows_.views().data(),
                                given_ ? id_prefixes_.views().data() : nullptr, lines_.size(),
                                static_cast<const trafo_translate_options*>(&options_), nullptr);
    const std::vector<trafo_string_view> sources = views(lines_), prefixes = views(prefixes_);
    const trafo_translate_options* options = &options_;
    if (!given_)
      return make<Translations>(trafo_translate, loaded_.model.get(), loaded_.tokenizer.get(),
                                sources.data(), sources.size(), options, nullptr);
    return make<Translations>(trafo_translate_with_prefixes, loaded_.model.get(),
                              loaded_.tokenizer.get(), sources.data(), prefixes.data(),
                              sources.size(), options, nullptr);
  }

  void translate() {
    options_.first_line = done_;
    const Translations translations = translated();
    for (size_t i = 0; i < lines_.size(); ++i) write(translations.get(), i);
    out_.flush();
    done_ += static_cast<int64_t>(lines_.size());
  }

  void write(const trafo_translations* translations, size_t i) {
    const int64_t line = done_ + static_cast<int64_t>(i);
    int64_t tokens = 0, used = 0;
    check(trafo_translations_get_source(translations, i, &tokens, &used));
    if (used < tokens)
      cut_.add(fmt::format("line {} has {} tokens, the model takes {}: the end is left out",
                           line + 1, grouped(tokens), grouped(used)));
    size_t count = 0;
    check(trafo_translations_get_count(translations, i, &count));
    for (size_t rank = 0; rank < count; ++rank) {
      trafo_string_view text{};
      double score = 0;
      check(trafo_translations_get(translations, i, rank, &text, &score));
      // Byte subwords can spell the end of a line, which would shift every line after it.
      std::string hypothesis = arguments_.model.ids ? id_line(translations, i, rank)
                                                    : std::string(text.data, text.length);
      std::replace(hypothesis.begin(), hypothesis.end(), '\n', ' ');
      hypothesis += arguments_.details.text(translations, i, rank);
      if (arguments_.n_best > 0)
        out_.write(
            fmt::format("{} ||| {} ||| Score= {:.6f} ||| {:.6f}", line, hypothesis, score, score));
      else
        out_.write(hypothesis);
    }
    if (count == 0 && arguments_.n_best == 0) out_.write("");
  }

  const TranslateArguments& arguments_;
  Reporter& reporter_;
  LoadedModel loaded_;
  Shortlist shortlist_;
  trafo_translate_options options_;
  LineReader in_;
  LineWriter out_;
  CutLines cut_;
  const bool typing_;
  std::optional<LineReader> given_;  // the beginnings of the translations
  std::vector<std::string> lines_, prefixes_;
  IdRows id_rows_, id_prefixes_;  // of them, with --ids
  int64_t done_ = 0;
  std::optional<Reporter::Phase> phase_;
};

int translate(const TranslateArguments& arguments) {
  translate_options(arguments);  // says what is wrong before a model is loaded
  refuse_loss(
      {arguments.input, arguments.prefixes, arguments.model.model, arguments.model.vocabulary,
       arguments.shortlist.empty() ? std::string() : arguments.shortlist.front()},
      arguments.output);
  Reporter reporter(
      {.live = arguments.output != "-" || !trafo::os::is_terminal(trafo::os::kStandardOutput),
       .quiet = arguments.quiet});
  LoadedModel loaded = load_model(arguments.model, reporter);
  {
    const Reporter::Phase phase(reporter, "preparing the model");
    check(trafo_model_prepare_inference(loaded.model.get()));
  }
  TranslateRun run(arguments, reporter, std::move(loaded));
  const auto begin = std::chrono::steady_clock::now();
  run.run();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!run.typing() && seconds > 2)
    reporter.info(fmt::format("{} lines translated in {:.1f} s", grouped(run.lines()), seconds));
  return kDone;
}

}  // namespace

Action add_translate(CLI::App& app) {
  auto arguments = std::make_shared<TranslateArguments>();
  TranslateArguments& a = *arguments;
  add_model_arguments(app, a.model);
  const auto in_group = [&](const char* group, CLI::Option* option) { option->group(group); };
  constexpr const char* kText = "Text";
  in_group(kText,
           app.add_option("-i,--input", a.input, "plain or gzip (default - : standard input)")
               ->type_name("FILE"));
  in_group(kText, app.add_option("-o,--output", a.output,
                                 "plain, or gzip if it is named .gz (default - : standard output)")
                      ->type_name("FILE"));
  in_group(kText,
           app.add_option("--n-best,--nbest", a.n_best,
                          "write N translations of every line as 'LINE ||| TEXT ||| Score= S "
                          "||| S', lines counted from 0: the best, or N samples")
               ->type_name("N")
               ->check(CLI::Range(1, 1024)));
  in_group(kText, app.add_flag("--distinct", a.distinct,
                               "with --n-best: equal texts of a line once, so that there may be "
                               "fewer than N"));
  in_group(kText, app.add_option("--prefixes", a.prefixes,
                                 "the beginning of each translation, a line for each line of the "
                                 "input; an empty line gives nothing")
                      ->type_name("FILE"));
  in_group(kText,
           app.add_flag("--max-length-crop,!--no-max-length-crop", a.crop,
                        "cut a line that is longer than the model takes, and say so (default); "
                        "--no-max-length-crop: such a line is an error"));
  add_text_arguments(app, a.model, kText);
  a.details.add_flags(app, kText);
  constexpr const char* kSearch = "Search";
  in_group(kSearch,
           app.add_option("--shortlist", a.shortlist,
                          "of the command shortlist or Marian's lex.s2t: choose among the "
                          "FIRST subwords of the vocabulary and the BEST translations of every "
                          "source subword (default 100 100)")
               ->expected(1, 3)
               ->type_name("FILE [FIRST [BEST]]"));
  constexpr const char* kSampling = "Sampling, instead of the search";
  CLI::Option* method =
      app.add_option("--output-sampling,--sampling", a.method,
                     "draw every token: of all (full), of the N most probable (topk N) or of the "
                     "fewest with a share P of the probability (nucleus P)")
          ->expected(0, 2)
          ->type_name("[full|topk N|nucleus P]");
  in_group(kSampling, method);
  constexpr const char* kBatches = "Batches";
  in_group(kBatches, app.add_option("--maxi-batch", a.batch_lines,
                                    "lines of one length are sought among N (default 1000)")
                         ->type_name("N")
                         ->check(CLI::Range(1, 1000000)));
  for (const SettingSpec& spec : translate_specs()) {
    CLI::Option* option = add_setting(app, spec, a.values);
    if (std::string_view(spec.group) == kSampling) option->needs(method);
  }
  app.add_flag("-q,--quiet", a.quiet, "errors and warnings only");
  app.footer(
      "Lines come out in the order of the input, and as soon as the input pauses: nothing waits "
      "for a full batch.");
  return [&app, arguments, method] {
    arguments->settings = given_settings(app, arguments->values);
    arguments->sampling = method->count() > 0;
    return translate(*arguments);
  };
}

}  // namespace translate_train
