// Sequence-level distillation (Kim and Rush, "Sequence-Level Knowledge Distillation", EMNLP 2016):
// the translations of a large model become the training text of a small one.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>

#include "commands/commands.h"
#include "commands/compression/distill_files.h"
#include "commands/pair_filter.h"
#include "engine/os/names.h"
#include "launch/signals.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

struct DistillArguments {
  ModelArguments model;
  std::vector<std::string> input, output;
  std::string pick = "score";
  int64_t n_best = 0;  // 0: the beam
  PairLimits limits;
  std::string drop_identical = "on", drop_duplicates = "on";
  int64_t step_lines = 1000;
  bool quiet = false;
  FlagValues values;
  Settings settings;

  bool by_reference() const { return pick != "score"; }
};

trafo_translate_options translate_options(const DistillArguments& arguments) {
  trafo_translate_options options = arguments.settings.translate;
  options.n_best = arguments.n_best > 0 ? arguments.n_best : options.beam;
  if (options.n_best > options.beam)
    usage_error(fmt::format("--n-best: {} of a beam of {}", options.n_best, options.beam));
  return options;
}

trafo_evaluation_options metric_options(const DistillArguments& arguments) {
  const Settings& settings = arguments.settings;
  const trafo_evaluation_options options = settings.evaluation;
  if (!settings.has(Setting::eval_tokenize)) return options;
  if (arguments.pick != "bleu")
    settings.refuse(Setting::eval_tokenize, "only --pick bleu has words");
  if (options.tokenize == TRAFO_TOKENIZE_FLORES200)
    settings.refuse(Setting::eval_tokenize, "flores200 is for eval; use char or zh");
  return options;
}

// A text as it is read, to recognise it and to know how much is left.
struct TextSum {
  int64_t lines = 0;
  uLong crc = crc32(0, nullptr, 0);

  void add(std::string_view line) {
    ++lines;
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(line.data()), line.size());
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>("\n"), 1);
  }
  Json json() const { return fmt::format("{} lines, CRC-32 {:08x}", lines, crc); }
};

std::vector<TextSum> sums_of(const std::vector<std::string>& paths) {
  std::vector<TextSum> sums;
  for (const std::string& path : paths) {
    LineReader reader(path);
    TextSum sum;
    std::string line;
    while (reader.next(line)) sum.add(line);
    sums.push_back(sum);
  }
  if (sums.size() > 1)
    check_same_length(paths[0], static_cast<size_t>(sums[0].lines), paths[1],
                      static_cast<size_t>(sums[1].lines));
  if (sums[0].lines == 0) usage_error(paths[0] + ": is empty");
  return sums;
}

Json sum_of_file(const std::string& path) {
  std::ifstream in(trafo::os::path_of(path), std::ios::binary);
  std::vector<char> buffer(size_t{1} << 20);
  uLong crc = crc32(0, nullptr, 0);
  int64_t bytes = 0;
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
    bytes += in.gcount();
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(buffer.data()),
                  static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) throw CliError(kFailed, path + ": cannot be read");
  return fmt::format("{} bytes, CRC-32 {:08x}", bytes, crc);
}

// Everything that decides about the bytes of the output, by the flag that sets it.
Json all_settings(const DistillArguments& a, const trafo_translate_options& options,
                  const trafo_evaluation_options& metric, const std::vector<TextSum>& text) {
  const ModelPaths paths = find_model(a.model);
  return {{"version", trafo_version()},
          {"--model", sum_of_file(paths.model)},
          {"--vocab", sum_of_file(paths.vocabulary)},
          {"--source-language", a.model.source_language},
          {"--target-language", a.model.target_language},
          {"--weights", a.model.weights},
          {"--precision", a.model.precision},
          {"the source text", text[0].json()},
          {"the target text", a.by_reference() ? text[1].json() : Json()},
          {"--pick", a.pick},
          {"--tokenize", metric.tokenize},
          {"--beam-size", options.beam},
          {"--n-best", options.n_best},
          {"--normalize", options.length_penalty},
          {"--max-length", options.max_length},
          {"--min-length", options.min_length},
          {"--max-length-ratio", a.limits.length_ratio},
          {"--drop-identical", a.limits.drop_identical},
          {"--drop-duplicates", a.drop_duplicates == "on"},
          {"--max-repeats", a.limits.repeats},
          {"--min-score", std::isfinite(a.limits.score) ? Json(a.limits.score) : Json()},
          {"--maxi-batch", a.step_lines}};
}

struct FreeIds {
  void operator()(int32_t* ids) const { trafo_ids_free(ids); }
};

class Tokens {
 public:
  // `encode`: trafo_tokenizer_encode, or trafo_tokenizer_encode_target.
  Tokens(decltype(trafo_tokenizer_encode)* encode, const trafo_tokenizer* tokenizer,
         std::string_view text) {
    int32_t* ids = nullptr;
    check(encode(tokenizer, text.data(), text.size(), &ids, &count_));
    ids_.reset(ids);
  }
  operator std::span<const int32_t>() const { return {ids_.get(), count_}; }

 private:
  std::unique_ptr<int32_t, FreeIds> ids_;
  size_t count_ = 0;
};

// A line of the input and what becomes of it.
struct Line {
  std::string source, reference;
  std::vector<std::string> candidates;  // translations that pass, best score first
  size_t chosen = 0;
  std::optional<Loss> loss;  // without a candidate
};

// Counts of the lines that were kept and lost so far.
struct Totals {
  int64_t lines = 0, kept = 0;
  LossCounts lost{};

  Json json() const { return {{"lines", lines}, {"kept", kept}, {"lost", lost}}; }
};

Totals totals_of(const DistillFiles& files) {
  Totals totals;
  const Json& state = files.state();
  try {
    if (!state.is_null()) {
      state.at("lines").get_to(totals.lines);
      state.at("kept").get_to(totals.kept);
      state.at("lost").get_to(totals.lost);
    }
  } catch (const Json::exception&) {
    usage_error(files.journal_name() + ": is no journal of distill, or it is damaged");
  }
  return totals;
}

class DistillRun {
 public:
  DistillRun(const DistillArguments& arguments, const trafo_translate_options& options,
             const trafo_evaluation_options& metric, int64_t lines, LoadedModel loaded,
             DistillFiles& files)
      : arguments_(arguments),
        options_(options),
        metric_(metric),
        all_(lines),
        loaded_(std::move(loaded)),
        files_(files),
        source_(arguments.input[0]) {
    if (arguments.by_reference()) reference_.emplace(arguments.input[1]);
    if (arguments.drop_duplicates == "on") seen_.emplace(arguments.output[0], lines);
    if (!files.state().is_null()) resume();
  }

  void run(const trafo_cancel* cancel, Reporter& reporter) {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t first = totals_.lines;
    Reporter::Phase phase(reporter, progress(0, 0));
    while (read_step()) {
      translate(cancel);
      if (arguments_.by_reference()) choose();
      write();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      phase.now(progress(totals_.lines - first, seconds.count()));
    }
  }

  const Totals& totals() const { return totals_; }

 private:
  std::string progress(int64_t done_here, double seconds) const {
    std::string text =
        fmt::format("translating, {} of {} lines done", grouped(totals_.lines), grouped(all_));
    if (done_here > 0)
      text += fmt::format(", {} left", clock_text(seconds / static_cast<double>(done_here) *
                                                  static_cast<double>(all_ - totals_.lines)));
    return text;
  }

  // A translation by score follows from the source alone.
  std::string key(const std::string& source, const std::string& target) const {
    return arguments_.by_reference() ? source + '\n' + target : source;
  }

  void resume() {
    totals_ = totals_of(files_);
    std::string source, target;
    for (int64_t line = 0; line < totals_.lines; ++line) {
      source_.next(source);
      if (reference_) reference_->next(target);
    }
    if (!seen_) return;
    LineReader sources(files_.source_part()), targets(files_.target_part());
    while (sources.next(source) && targets.next(target)) seen_->insert(key(source, target));
  }

  bool read_step() {
    lines_.clear();
    Line line;
    while (static_cast<int64_t>(lines_.size()) < arguments_.step_lines &&
           source_.next(line.source)) {
      if (reference_) reference_->next(line.reference);
      lines_.push_back(line);
    }
    return !lines_.empty();
  }

  // Fills in the candidates of the lines.
  void translate(const trafo_cancel* cancel) {
    std::vector<trafo_string_view> sources;
    std::vector<Line*> translated;
    for (Line& line : lines_) {
      if (line.source.find_first_not_of(" \t") == std::string::npos) {
        line.loss = Loss::empty;
      } else if (seen_ && !arguments_.by_reference() && seen_->contains(line.source)) {
        line.loss = Loss::duplicate;
      } else {
        sources.push_back(view(line.source));
        translated.push_back(&line);
      }
    }
    const auto translations = make<Translations>(
        trafo_translate, loaded_.model.get(), loaded_.tokenizer.get(), sources.data(),
        sources.size(), static_cast<const trafo_translate_options*>(&options_), cancel);
    for (size_t i = 0; i < translated.size(); ++i) filter(translations.get(), i, *translated[i]);
  }

  void filter(const trafo_translations* translations, size_t i, Line& line) {
    int64_t tokens = 0, used = 0;
    check(trafo_translations_get_source(translations, i, &tokens, &used));
    if (used < tokens) {
      line.loss = Loss::too_long;
      return;
    }
    const Tokens source(trafo_tokenizer_encode, loaded_.tokenizer.get(), line.source);
    size_t count = 0;
    check(trafo_translations_get_count(translations, i, &count));
    line.loss = Loss::empty;
    for (size_t rank = 0; rank < count; ++rank) {
      trafo_string_view text{};
      double score = 0;
      check(trafo_translations_get(translations, i, rank, &text, &score));
      const std::string_view hypothesis(text.data, text.length);
      const Tokens target(trafo_tokenizer_encode_target, loaded_.tokenizer.get(), hypothesis);
      Loss loss{};
      if (passes({line.source, source}, {hypothesis, target}, score, arguments_.limits, loss))
        line.candidates.emplace_back(hypothesis);
      else if (rank == 0)
        line.loss = loss;
      if (!arguments_.by_reference() && !line.candidates.empty()) return;
    }
  }

  // The candidate that is nearest to the reference; of equal ones the one with the best score.
  void choose() {
    std::vector<trafo_string_view> hypotheses, references;
    for (const Line& line : lines_)
      for (const std::string& candidate : line.candidates) {
        hypotheses.push_back(view(candidate));
        references.push_back(view(line.reference));
      }
    if (hypotheses.empty()) return;
    std::vector<double> scores(hypotheses.size());
    const bool bleu = arguments_.pick == "bleu";
    check(trafo_sentence_scores(hypotheses.data(), references.data(), hypotheses.size(), &metric_,
                                bleu ? scores.data() : nullptr, bleu ? nullptr : scores.data()));
    auto score = scores.begin();
    for (Line& line : lines_) {
      const auto end = score + static_cast<std::ptrdiff_t>(line.candidates.size());
      if (score != end) line.chosen = static_cast<size_t>(std::max_element(score, end) - score);
      score = end;
    }
  }

  void write() {
    std::string sources, targets;
    for (const Line& line : lines_) {
      std::optional<Loss> loss;
      if (line.candidates.empty())
        loss = line.loss;
      else if (seen_ && !seen_->insert(key(line.source, line.candidates[line.chosen])))
        loss = Loss::duplicate;
      if (loss) {
        ++totals_.lost[static_cast<size_t>(*loss)];
        continue;
      }
      ++totals_.kept;
      sources += line.source + '\n';
      targets += line.candidates[line.chosen] + '\n';
    }
    totals_.lines += static_cast<int64_t>(lines_.size());
    files_.append(sources, targets, totals_.json());
  }

  const DistillArguments& arguments_;
  const trafo_translate_options options_;
  const trafo_evaluation_options metric_;
  const int64_t all_;
  LoadedModel loaded_;
  DistillFiles& files_;
  LineReader source_;
  std::optional<LineReader> reference_;
  std::optional<SeenTexts> seen_;
  std::vector<Line> lines_;
  Totals totals_;
};

std::string summary(const std::string& target, const Totals& totals) {
  std::string text =
      fmt::format("{}: {} of {} lines kept", target, grouped(totals.kept), grouped(totals.lines));
  const char* before = "; left out: ";
  for (size_t i = 0; i < totals.lost.size(); ++i) {
    if (totals.lost[i] == 0) continue;
    text += fmt::format("{}{} {}", before, grouped(totals.lost[i]), kLossNames[i]);
    before = ", ";
  }
  return text;
}

// An exit code. The files are whole and durable up to the last step, whatever happens.
int distill(const DistillArguments& arguments) {
  const auto options = translate_options(arguments);
  const auto metric = metric_options(arguments);
  if (arguments.by_reference() && arguments.input.size() < 2)
    usage_error("--pick " + arguments.pick + ": wants the references, -t SRC TRG");
  if (arguments.limits.length_ratio > 0 && arguments.limits.length_ratio < 1)
    usage_error("--max-length-ratio: wants 0 or at least 1");
  DistillFiles::check_names(arguments.output[0], arguments.output[1]);
  Reporter reporter({.quiet = arguments.quiet});
  std::vector<TextSum> text;
  {
    const Reporter::Phase phase(reporter, "reading");
    text = sums_of(arguments.input);
  }
  const int64_t lines = text[0].lines;
  LoadedModel loaded = load_model(arguments.model, reporter);
  DistillFiles files(arguments.output[0], arguments.output[1],
                     all_settings(arguments, options, metric, text));
  if (!files.is_locked())
    reporter.warn(
        fmt::format("{}: the file system has no locks (flock), so a second process that "
                    "writes this file is not refused",
                    files.source_part()));
  if (files.finished()) {
    const Totals totals = totals_of(files);
    files.finish();
    reporter.info(summary(arguments.output[1], totals));
    return kDone;
  }
  {
    const Reporter::Phase phase(reporter, "preparing the model");
    check(trafo_model_prepare_inference(loaded.model.get()));
  }
  const auto cancel = make<Cancel>(trafo_cancel_new);
  const SignalCancel signals(cancel.get());
  DistillRun run(arguments, options, metric, lines, std::move(loaded), files);
  const Totals& totals = run.totals();
  if (totals.lines > 0)
    reporter.info(
        fmt::format("{}: continues behind line {}", arguments.output[1], grouped(totals.lines)));
  try {
    run.run(cancel.get(), reporter);
  } catch (const CliError& error) {
    if (error.trafo_code() != TRAFO_CANCELLED || signals.received() == 0) throw;
    reporter.warn(fmt::format("stopped behind line {} of {}: the same command continues there",
                              grouped(totals.lines), grouped(lines)));
    return signals.exit_code();
  }
  files.finish();
  reporter.info(summary(arguments.output[1], totals));
  if (totals.kept == 0) reporter.warn(arguments.output[1] + ": is empty, no pair passed");
  return kDone;
}

}  // namespace

Action add_distill(CLI::App& app) {
  auto arguments = std::make_shared<DistillArguments>();
  DistillArguments& a = *arguments;
  add_model_arguments(app, a.model);
  const auto in_group = [&](const char* group, CLI::Option* option) {
    return option->group(group);
  };
  constexpr const char* kText = "Text";
  in_group(kText, app.add_option("-t,--train-sets", a.input,
                                 "the text to translate, plain or gzip; --pick bleu and chrf want "
                                 "its translation as well")
                      ->required()
                      ->expected(1, 2)
                      ->type_name("SRC [TRG]"));
  in_group(kText, app.add_option("-o,--output", a.output,
                                 "the pairs that are kept, gzip if they are named .gz; SRC.part, "
                                 "TRG.part and TRG.journal until they are complete")
                      ->required()
                      ->expected(2)
                      ->type_name("SRC TRG"));
  add_language_arguments(app, a.model, kText);
  constexpr const char* kChoice = "Choice";
  in_group(kChoice, app.add_option("--pick", a.pick,
                                   "which translation of a line: the one with the best score of "
                                   "the model, or the nearest to the reference by BLEU or chrF2 "
                                   "of the sentence: score, bleu or chrf (default score)")
                        ->check(CLI::IsMember({"score", "bleu", "chrf"}))
                        ->type_name("NAME"));
  in_group(kChoice, app.add_option("--n-best,--nbest", a.n_best,
                                   "choose among the N best (default: as many as --beam-size)")
                        ->check(CLI::Range(1, 4096))
                        ->type_name("N"));
  constexpr const char* kFilters = "Filters: a translation that does not pass is not chosen";
  in_group(kFilters, app.add_option("--max-length-ratio", a.limits.length_ratio,
                                    "tokens of the longer side over those of the shorter, 0: any "
                                    "(default 3)")
                         ->check(CLI::Range(0.0, 1e6))
                         ->type_name("R"));
  in_group(kFilters, app.add_option("--max-repeats", a.limits.repeats,
                                    "how often 1 to 8 tokens may follow themselves, unless the "
                                    "source repeats as much, 0: any (default 4)")
                         ->check(CLI::Range(0, 1000000))
                         ->type_name("N"));
  in_group(kFilters, app.add_option("--min-score", a.limits.score,
                                    "the lowest score, as translate --n-best 1 shows it (default: "
                                    "any)")
                         ->check(CLI::Range(-1e9, 1e9))
                         ->type_name("S"));
  const auto add_switch = [&](const char* name, std::string& value, const char* help) {
    in_group(kFilters, app.add_option(name, value, help)
                           ->check(CLI::IsMember({"on", "off"}))
                           ->type_name("on|off"));
  };
  add_switch("--drop-identical", a.drop_identical,
             "leave out translations that are the source (default on)");
  add_switch("--drop-duplicates", a.drop_duplicates,
             "leave out pairs that came before; with --pick score, sources (default on)");
  constexpr const char* kBatches = "Batches";
  in_group(kBatches, app.add_option("--maxi-batch", a.step_lines,
                                    "lines of one length are sought among N, and written "
                                    "together (default 1000)")
                         ->check(CLI::Range(1, 1000000))
                         ->type_name("N"));
  for (const SettingSpec& spec : translate_specs())
    if (!std::string_view(spec.group).starts_with("Sampling")) add_setting(app, spec, a.values);
  add_setting(app, spec_of(Setting::eval_tokenize), a.values)->group(kChoice);
  app.add_flag("-q,--quiet", a.quiet, "errors and warnings only");
  app.footer(
      "After a kill the same command continues, and the files end with the same bytes as without "
      "it. Nothing that exists is overwritten. The order is that of the input.");
  return [&app, arguments] {
    arguments->settings = given_settings(app, arguments->values);
    arguments->limits.drop_identical = arguments->drop_identical == "on";
    return distill(*arguments);
  };
}

}  // namespace translate_train
