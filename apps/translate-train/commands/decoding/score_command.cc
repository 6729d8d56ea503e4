#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "commands/commands.h"
#include "commands/decoding/hypothesis_details.h"
#include "commands/decoding/id_lines.h"
#include "commands/decoding/score_input.h"
#include "settings/setting_types.h"
#include "text/cut_lines.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

constexpr size_t kBatch = 2000, kBatchOfWindows = 20;  // lines of a call

struct ScoreArguments {
  ModelArguments model;
  std::vector<std::string> files;
  std::string tsv, text;
  std::vector<int64_t> columns;  // of --tsv; empty: 1 and 2
  bool n_best = false;
  std::string feature = "Score";
  HypothesisDetails details;
  int64_t alignment_layer = 0;
  std::string begin_source = "model", end_source = "model";
  bool crop = false;
  int64_t window_length = 0, window_stride = 0;
  bool normalize = false;
  bool quiet = false;
  bool json = false;
};

int32_t frame_token(const std::string& word) {
  return word == "on" ? TRAFO_FRAME_ON : word == "off" ? TRAFO_FRAME_OFF : TRAFO_FRAME_BY_MODEL;
}

ScoreInput read_input(const ScoreArguments& a) {
  if (!a.files.empty())
    return a.n_best ? read_n_best(a.files[0], a.files[1]) : read_pairs(a.files[0], a.files[1]);
  if (!a.text.empty()) return read_text(a.text);
  if (a.columns.empty()) return read_tsv_pairs(a.tsv, 1, 2, true);
  return read_tsv_pairs(a.tsv, a.columns[0], a.columns[1], false);
}

class ScoreRun {
 public:
  ScoreRun(const ScoreArguments& arguments, const trafo_translate_options& options,
           Reporter& reporter, ScoreInput input)
      : arguments_(arguments),
        options_(options),
        reporter_(reporter),
        input_(std::move(input)),
        long_(reporter, arguments.crop ? "cut" : "not scored"),
        out_("-") {}

  void run(const LoadedModel& loaded) {
    std::optional<Reporter::Phase> phase(std::in_place, reporter_, "scoring");
    const size_t batch = arguments_.window_stride > 0 ? kBatchOfWindows : kBatch;
    for (size_t begin = 0; begin < input_.size(); begin += batch) {
      phase->now(fmt::format("scoring, {} of {} lines done", grouped(static_cast<int64_t>(begin)),
                             grouped(static_cast<int64_t>(input_.size()))));
      const size_t count = std::min(batch, input_.size() - begin);
      const Translations scored = score(loaded, begin, count);
      for (size_t i = 0; i < count; ++i) write(scored.get(), i, begin + i);
    }
    phase.reset();
    finish();
  }

 private:
  Translations score(const LoadedModel& loaded, size_t begin, size_t count) const {
    if (arguments_.model.ids) return score_ids(loaded, begin, count);
    std::vector<trafo_string_view> source, target;
    for (size_t i = begin; i < begin + count; ++i) {
      if (!plain()) source.push_back(view(input_.source[i]));
      target.push_back(view(input_.target[i]));
    }
    if (plain())
      return make<Translations>(trafo_score_text, loaded.model.get(), loaded.tokenizer.get(),
                                target.data(), count, &options_, nullptr);
    return make<Translations>(trafo_force_decode, loaded.model.get(), loaded.tokenizer.get(),
                              source.data(), target.data(), count, &options_, nullptr);
  }
  // The empty source of plain text is its </s>.
  Translations score_ids(const LoadedModel& loaded, size_t begin, size_t count) const {
    IdRows sources, targets;
    for (size_t i = begin; i < begin + count; ++i) {
      const std::string place = fmt::format("line {}", i + 1);
      sources.add(plain() ? std::string_view() : input_.source[i], place);
      targets.add(input_.target[i], place);
    }
    return make<Translations>(trafo_force_decode_ids, loaded.model.get(), loaded.tokenizer.get(),
                              sources.views().data(), targets.views().data(), count, &options_,
                              nullptr);
  }
  bool plain() const { return !arguments_.text.empty(); }

  // Says that the line is too long for the model, if it is.
  bool too_long(const trafo_translations* scored, size_t i, size_t line) {
    int64_t had = 0, used = 0;
    check(trafo_translations_get_source(scored, i, &had, &used));
    if (!input_.cut[line] && used == had) return false;
    const std::string size = input_.cut[line] ? "more than 1 MiB"
                                              : fmt::format("{} tokens, the model takes {}",
                                                            grouped(had), grouped(used));
    long_.add(fmt::format("line {} has {}: {}", line + 1, size,
                          arguments_.crop ? "it is cut" : "it is not scored"));
    return true;
  }

  void write(const trafo_translations* scored, size_t i, size_t line) {
    trafo_string_view text{};
    double log_probability = 0;
    const int32_t* ids = nullptr;
    size_t length = 0;
    check(trafo_translations_get(scored, i, 0, &text, &log_probability));
    check(trafo_translations_get_tokens(scored, i, 0, &ids, &length));
    if (arguments_.model.ids) {  // an end is scored where the line has one
      const double* scores = nullptr;
      check(trafo_translations_get_word_scores(scored, i, 0, &scores, &length));
    } else if (!plain()) {
      ++length;  // the end
    }
    const bool skipped = too_long(scored, i, line) && !arguments_.crop;
    if (skipped) {
      ++skipped_;
    } else {
      total_ += log_probability;
      tokens_ += static_cast<int64_t>(length);
    }
    if (arguments_.json) {
      auto& object = scores_.emplace_back(
          nlohmann::ordered_json{{"log_probability", nullptr}, {"tokens", nullptr}});
      if (skipped) return;
      object["log_probability"] = log_probability;
      object["tokens"] = length;
      arguments_.details.write(scored, i, 0, object);
      return;
    }
    const double score = arguments_.normalize
                             ? log_probability / static_cast<double>(std::max<size_t>(length, 1))
                             : log_probability;
    const std::string number = skipped ? "nan" : fmt::format("{:.6f}", score);
    const std::string details =
        skipped ? arguments_.details.empty_text() : arguments_.details.text(scored, i, 0);
    if (input_.listed.empty()) return out_.write(number + details);
    const ScoreInput::Listed& listed = input_.listed[line];
    out_.write(fmt::format("{}{} ||| {}{}{}= {}{}", listed.begin, details, listed.features,
                           listed.features.empty() ? "" : " ", arguments_.feature, number,
                           listed.rest));
  }

  void finish() {
    const char* what = plain() ? "lines" : "pairs";
    const auto count = static_cast<int64_t>(input_.size());
    // NaN, which JSON has as null, if everything was skipped.
    const double mean = -total_ / static_cast<double>(tokens_);
    if (arguments_.json)
      out_.write(nlohmann::ordered_json{
          {what, count},
          {"skipped", skipped_},
          {"target_tokens", tokens_},
          {"log_probability", total_},
          {"cross_entropy", mean},
          {"perplexity", std::exp(mean)},
          {"scores",
           scores_}}.dump());
    out_.finish();
    long_.finish();
    if (tokens_ == 0)
      return reporter_.info(fmt::format("{} {}: nothing was scored", grouped(count), what));
    const std::string skipped =
        skipped_ > 0 ? fmt::format(" ({} not scored)", grouped(skipped_)) : std::string();
    reporter_.info(
        fmt::format("{} {}{} | {} target tokens | log-probability {:.4f} | cross-entropy {:.4f} | "
                    "perplexity {:.4f}",
                    grouped(count), what, skipped, grouped(tokens_), total_, mean, std::exp(mean)));
  }

  const ScoreArguments& arguments_;
  const trafo_translate_options& options_;
  Reporter& reporter_;
  ScoreInput input_;
  CutLines long_;
  LineWriter out_;
  double total_ = 0;
  int64_t tokens_ = 0, skipped_ = 0;
  nlohmann::ordered_json scores_ = nlohmann::ordered_json::array();  // with --json
};

int score(const ScoreArguments& arguments) {
  const int inputs = !arguments.files.empty() + !arguments.tsv.empty() + !arguments.text.empty();
  if (inputs != 1) usage_error("score wants --train-sets SRC TRG, --tsv FILE or --text FILE");
  if (arguments.n_best && arguments.files.empty())
    usage_error("--n-best wants --train-sets SRC LIST");
  auto options = with_defaults<trafo_translate_options>(trafo_translate_options_init);
  options.length_penalty = 0;
  options.alignment_layer = arguments.alignment_layer;
  options.begin_source = frame_token(arguments.begin_source);
  options.end_source = frame_token(arguments.end_source);
  options.window_length = arguments.window_length;
  options.window_stride = arguments.window_stride;
  arguments.details.read(options);
  if (arguments.model.ids) options.word_scores = 1;
  if (arguments.model.ids && (arguments.begin_source != "model" || arguments.end_source != "model"))
    usage_error(
        "--ids: the line itself says where <s> and </s> are, without --begin-source and "
        "--end-source");
  if (arguments.model.ids && arguments.window_stride > 0)
    usage_error("--window-stride is for lines of text, not for --ids");
  Reporter reporter({.quiet = arguments.quiet});
  ScoreInput input;
  {
    const Reporter::Phase phase(reporter, "reading");
    input = read_input(arguments);
  }
  const LoadedModel loaded = load_model(arguments.model, reporter);
  ScoreRun(arguments, options, reporter, std::move(input)).run(loaded);
  return kDone;
}

}  // namespace

Action add_score(CLI::App& app) {
  auto arguments = std::make_shared<ScoreArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-t,--train-sets", arguments->files, "the pairs, plain or gzip")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("--tsv", arguments->tsv, "instead: SOURCE<tab>TARGET lines, - is standard input")
      ->type_name("FILE|-");
  app.add_option("--tsv-columns", arguments->columns,
                 "columns of --tsv with source and target, counted from 1 (default 1 2)")
      ->expected(2)
      ->check(CLI::Range(1, 1000000))
      ->type_name("S T");
  CLI::Option* text =
      app.add_option("--text", arguments->text,
                     "instead: plain text for a decoder-lm, - is standard input: its perplexity")
          ->type_name("FILE|-");
  for (const auto& [name, value, help] :
       {std::tuple(
            "--begin-source", &arguments->begin_source,
            "with --text, on: <s> is before a line instead of </s> (default model: as it was "
            "trained)"),
        std::tuple("--end-source", &arguments->end_source,
                   "with --text, off: the end of a line is not scored (default model: as it was "
                   "trained)")})
    app.add_option(name, *value, help)
        ->check(CLI::IsMember({"on", "off", "model"}))
        ->needs(text)
        ->type_name("on|off|model");
  CLI::Option* n_best =
      app.add_flag("--n-best", arguments->n_best,
                   "TRG is an n-best list, 'LINE ||| TEXT ||| FEATURES ||| ...', which is written "
                   "with the score as one more feature");
  app.add_option("--n-best-feature", arguments->feature, "name of that feature (default Score)")
      ->needs(n_best)
      ->type_name("NAME");
  CLI::Option* crop =
      app.add_flag("--max-length-crop", arguments->crop,
                   "cut what is longer than the model takes; otherwise its score is nan, and the "
                   "summary leaves it out");
  CLI::Option* stride =
      app.add_option("--window-stride", arguments->window_stride,
                     "with --text: a line longer than a window is scored in windows, each N tokens "
                     "after the one before, each token once")
          ->needs(text)
          ->excludes(crop)
          ->check(CLI::Range(1, 1 << 24))
          ->type_name("N");
  app.add_option("--window-length", arguments->window_length,
                 "tokens of a window: --max-length of the training with --long-lines window "
                 "(default: as many as the model takes)")
      ->needs(stride)
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N");
  CLI::Option* normalize =
      app.add_flag("-n,--normalize", arguments->normalize, "divide by the length in tokens");
  app.add_flag("--json", arguments->json, "one JSON object, with the length of every target")
      ->excludes(normalize)
      ->excludes(n_best);
  add_text_arguments(app, arguments->model, "Options");
  arguments->details.add_flags(app, "Options");
  app.add_option("--alignment-layer", arguments->alignment_layer,
                 "decoder layer of --alignment, counted from 1; 0: the last but one (default 0)")
      ->type_name("N");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "Writes the natural log-probability of every pair or line, one line each; the summary goes "
      "to standard error.");
  return [arguments] { return score(*arguments); };
}

}  // namespace translate_train
