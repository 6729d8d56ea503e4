#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "commands/adapters.h"
#include "commands/commands.h"
#include "commands/training.h"
#include "engine/os/names.h"
#include "launch/ranks.h"
#include "run_dir/run_files.h"
#include "run_dir/run_origin.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "settings/train_config.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  FlagValues values;
  std::string config;
  std::string profile, profile_updates;
  bool profile_graphs = false;
  bool dump_config = false;
  LaunchArguments launch;
};

// Refuses settings that a run keeps from its start. The library checks model, corpus and optimizer.
// It would never see the settings here, because their values come from the run directory.
void check_continued(const Settings& saved, const Settings& given, const std::string& run) {
  for (const Setting setting :
       {Setting::task, Setting::arch, Setting::dim_vocabs, Setting::parse_special,
        Setting::source_language, Setting::target_language})
    if (given.has(setting) && saved.has(setting) &&
        text_of(setting, given) != text_of(setting, saved))
      given.refuse(setting, fmt::format("the run in {} has {}; give another --model to start one",
                                        run, text_of(setting, saved)));
  if (given.has(Setting::vocabs) && !same_content(given.program.vocabs.front(), vocabulary_in(run)))
    given.refuse(Setting::vocabs, fmt::format("is not the vocabulary of the run in {}", run));
}

// Marian sets its memory aside beforehand, in MiB or, below 0, what the GPU has less that amount.
void take_workspace(Settings& given) {
  if (!given.has(Setting::workspace)) return;
  if (given.has(Setting::memory_limit))
    given.refuse(Setting::workspace, "is --memory-limit: give one of them");
  const std::string& word = given.program.workspace;
  if (word[0] == '-')
    given.refuse(Setting::workspace,
                 "must not be below 0: without it a run takes what it needs of what is "
                 "free, and says so first");
  const bool has_unit = word.find_first_not_of("0123456789") != std::string::npos;
  if (!parse_bytes(has_unit ? word : word + "MiB", given.trainer.memory_limit))
    given.refuse(Setting::workspace,
                 fmt::format("wants a size as 9500 (MiB) or 8GiB, got '{}'", word));
  given.mark(Setting::memory_limit, "--workspace");
  given.unset(Setting::workspace);
}

// fairseq's form of the share: 1 - D, without the digits that only the subtraction makes.
void take_ema_decay(Settings& given) {
  if (!given.has(Setting::ema_decay)) return;
  given.set(Setting::exponential_smoothing, {fmt::format("{:.12g}", 1 - given.program.ema_decay)},
            "--ema-decay");
  given.unset(Setting::ema_decay);
}

// A limit in epochs beside the limits of --after.
void take_after_epochs(Settings& given) {
  if (!given.has(Setting::after_epochs)) return;
  given.program.after.push_back(
      {{given.program.after_epochs, TRAFO_UNIT_EPOCHS, 0}, /*of_phase=*/false});
  given.mark(Setting::after, "--after-epochs");
  given.unset(Setting::after_epochs);
}

// Where event files go; empty: nowhere.
std::string tensorboard_folder(const Settings& settings, const std::string& run) {
  if (!settings.has(Setting::tensorboard)) return {};
  const std::string& value = settings.program.tensorboard;
  if (value == "on" || value == "true") return run + "/tensorboard";
  return value == "off" || value == "false" ? "" : value;
}

// The names of the objectives whose other model has this role.
std::string objectives_with(std::string_view role) {
  std::string names;
  for (const ObjectiveSpec& each : objectives())
    if (each.other_model == role) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

// Refuses flags of the command line that the optimizer of the run does not have.
void refuse_settings_of_other_optimizers(const Settings& line, const Settings& all) {
  const int32_t optimizer =
      all.has(Setting::optimizer) ? all.trainer.optimizer : TRAFO_OPTIMIZER_ADAMW;
  for (const auto& [setting, optimizers] : optimizer_settings()) {
    if (!line.has(setting) || std::ranges::find(optimizers, optimizer) != optimizers.end())
      continue;
    std::string names;
    for (const int32_t each : optimizers) {
      Values values;
      values.trainer.optimizer = each;
      names += (names.empty() ? "" : ", ") + text_of(Setting::optimizer, values);
    }
    line.refuse(setting, "is for --optimizer " + names);
  }
}

// Command line over --config over what the run directory was started with.
Settings collect(const CLI::App& app, const TrainArguments& arguments, std::string& run) {
  const Settings line = given_settings(app, arguments.values);
  Settings given;
  if (!arguments.config.empty()) given = Settings::from_yaml(arguments.config);
  for (const auto& [one, other] : {std::pair(Setting::device, Setting::devices),
                                   std::pair(Setting::devices, Setting::device)}) {
    if (!line.has(one)) continue;
    if (line.has(other)) usage_error("--device and --devices: give one of them");
    given.unset(other);
  }
  given.overlay(line);
  take_workspace(given);
  if (given.has(Setting::vocabs))  // Marian names one for each side
    given.program.vocabs = {one_vocabulary(given.program.vocabs)};
  take_ema_decay(given);
  take_after_epochs(given);
  run = given.has(Setting::model) ? given.program.model : "run";
  if (given.has(Setting::tsv) && given.has(Setting::train_sets))
    usage_error("--train-sets and --tsv: give one of them");
  if (given.has(Setting::device) && given.has(Setting::devices))
    given.refuse(Setting::devices, "is instead of device: give one of them");
  Settings all;
  check_run_files(run);
  const std::string saved = run + "/config.yml";
  if (!checkpoints_of(run).empty() && fs::exists(trafo::os::path_of(saved))) {
    all = Settings::from_yaml(saved);
    check_continued(all, given, run);
    // A run directory may be a stranger's. Where it is written to, apart from itself, is said anew.
    all.unset(Setting::tempdir);
    all.unset(Setting::quiet);  // asked for in one call
    if (!tensorboard_folder(all, run).empty()) all.set(Setting::tensorboard, {"on"}, "config.yml");
  }
  if (given.has(Setting::tsv)) all.unset(Setting::train_sets);
  if (given.has(Setting::train_sets)) all.unset(Setting::tsv);
  if (given.has(Setting::tsv) || given.has(Setting::train_sets)) all.unset(Setting::data_weights);
  if (given.has(Setting::device)) all.unset(Setting::devices);
  all.overlay(given);
  for (const Setting setting : {Setting::teacher_weight, Setting::teacher_temperature})
    if (line.has(setting) && !all.has(Setting::teacher))
      line.refuse(setting, "there is no --teacher");
  refuse_settings_of_other_optimizers(line, all);
  const ObjectiveSpec& objective = objective_of(all);
  for (const auto& [setting, of] : objective_settings()) {
    const ObjectiveSpec& wanted = objectives()[static_cast<size_t>(of)];
    if (line.has(setting) && &wanted != &objective)
      line.refuse(setting, fmt::format("is for --objective {}", wanted.name));
  }
  for (const auto& [setting, role] :
       {std::pair(Setting::teacher, kTeacher), std::pair(Setting::reference_model, kReference)})
    if (all.has(setting) && objective.other_model != role)
      all.refuse(setting, "is for --objective " + objectives_with(role));
  return all;
}

std::string absolute_path(const std::string& path) {
  return path == "-" || path.empty()
             ? path
             : fs::absolute(trafo::os::path_of(path)).lexically_normal().string();
}

void make_absolute(Settings& settings) {
  ProgramSettings& p = settings.program;
  for (std::vector<std::string>* paths : {&p.train_sets, &p.tsv, &p.valid_sets, &p.vocabs})
    for (std::string& path : *paths) path = absolute_path(path);
  for (std::string* path : {&p.pretrained_model, &p.teacher, &p.reference_model, &p.tempdir})
    *path = absolute_path(*path);
  // Another folder than RUN/tensorboard.
  if (const std::string folder = tensorboard_folder(settings, ""); folder == p.tensorboard)
    p.tensorboard = absolute_path(folder);
}

// Before anything is done: a name that is wrong is the user's mistake, not a failed disk.
void check_readable(const Settings& settings) {
  const ProgramSettings& p = settings.program;
  for (const std::vector<std::string>* paths : {&p.train_sets, &p.tsv, &p.valid_sets, &p.vocabs})
    for (const std::string& path : *paths)
      if (path != "-" && !trafo::os::can_read(path))
        usage_error(path + ": " + std::strerror(errno));
}

trafo_corpus_info info_of(const Corpus& corpus) {
  trafo_corpus_info info{};
  check(trafo_corpus_get_info(corpus.get(), &info));
  return info;
}

Corpus open_corpus(std::span<const std::string> paths, const trafo_corpus_options& options,
                   Reporter& reporter) {
  std::vector<trafo_string_view> names;
  for (const std::string& path : paths) names.push_back(view(path));
  auto corpus = make<Corpus>(trafo_corpus_open, names.data(), names.size(), &options, nullptr);
  if (const trafo_corpus_info info = info_of(corpus); info.json_lines || info.csv)
    reporter.info(fmt::format("{}: {} of {}{}", paths[0], info.csv ? "CSV" : "JSON lines",
                              info.texts == 1   ? info.chats ? "conversations" : "text"
                              : info.texts == 2 ? "pairs"
                              : info.labelled   ? "labelled answers"
                                                : "preference pairs",
                              info.texts == 3 && info.chats ? " of conversations" : ""));
  return corpus;
}

// All corpora, each as often as its weight says.
Corpus open_training(const Settings& settings, const trafo_corpus_options& options,
                     Reporter& reporter) {
  const bool tsv = settings.has(Setting::tsv);
  const std::span<const std::string> paths =
      tsv ? settings.program.tsv : settings.program.train_sets;
  const bool preferences = has_preferences(settings);
  const bool single = tsv || paths.size() == 1 || has_token_files(settings);
  const size_t each = single ? 1 : preferences ? 3 : 2;
  const std::string wanted =
      preferences ? "three files of each corpus (prompts, chosen and rejected answers), or one of "
                    "JSON lines or CSV"
                  : "pairs of files, or one file of text for a decoder-lm, of JSON lines or of CSV";
  if (paths.size() % each != 0)
    settings.refuse(Setting::train_sets,
                    fmt::format("wants {}, got {} files", wanted, paths.size()));
  std::vector<double> weights(paths.size() / each, 1.0);
  if (settings.has(Setting::data_weights)) {
    weights = settings.program.data_weights;
    if (weights.size() != paths.size() / each)
      settings.refuse(Setting::data_weights,
                      fmt::format("wants a weight for each corpus: there are {} "
                                  "weights and {} corpora",
                                  weights.size(), paths.size() / each));
  }
  std::vector<Corpus> corpora;
  std::vector<const trafo_corpus*> handles;
  for (size_t i = 0; i < weights.size(); ++i) {
    try {
      corpora.push_back(open_corpus(paths.subspan(i * each, each), options, reporter));
    } catch (const CliError& error) {
      if (tsv || !preferences || each != 1) throw;
      throw error.within("", " (--train-sets wants " + wanted + ")");
    }
    handles.push_back(corpora.back().get());
  }
  return make<Corpus>(trafo_corpus_mix, handles.data(), weights.data(), handles.size());
}

Tokenizer load_vocabulary(const std::string& path) {
  return make<Tokenizer>(trafo_tokenizer_load, path.data(), path.size());
}

// The token that ends a document in files of token ids: --document-end, or the end of a text of the
// vocabulary in this file.
int64_t document_end(const Settings& settings, const std::string& vocabulary) {
  const int32_t format = settings.program.data_format;
  const bool has_ends = format == TRAFO_CORPUS_LLM_C || format == TRAFO_CORPUS_NANOGPT;
  if (settings.has(Setting::document_end)) {
    if (!has_ends) settings.refuse(Setting::document_end, "is for --data-format llmc and nanogpt");
    return settings.program.document_end;
  }
  if (!has_ends || vocabulary.empty()) return -1;
  trafo_special_tokens tokens{};
  check(trafo_tokenizer_get_special(load_vocabulary(vocabulary).get(), &tokens));
  return tokens.eos;
}

// `vocabulary`: its file; empty: it is not known yet.
Corpora load_corpora(const Settings& settings, const std::string& run,
                     const std::string& vocabulary, Reporter& reporter) {
  const Reporter::Phase phase(reporter, "reading the corpus");
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  const ProgramSettings& given = settings.program;
  if (settings.has(Setting::data_in_memory)) options.memory_bytes = given.data_in_memory;
  options.unpack_directory = view(settings.has(Setting::tempdir) ? given.tempdir : run);
  options.monolingual = is_monolingual(settings);
  options.preferences = has_preferences(settings);
  options.format = given.data_format;  // its words are in the order of TRAFO_CORPUS_*
  options.document_end = document_end(settings, vocabulary);
  Corpora corpora;
  corpora.train = open_training(settings, options, reporter);
  options.monolingual = info_of(corpora.train).texts == 1;  // JSON lines say it themselves
  if (settings.has(Setting::valid_sets))
    corpora.valid = open_corpus(given.valid_sets, options, reporter);
  else
    corpora = hold_out(std::move(corpora.train), reporter);
  reporter.info(fmt::format("corpus: {} pairs to train on, {} {}for validation, read in {:.1f} s",
                            grouped(pair_count(corpora.train)), grouped(pair_count(corpora.valid)),
                            settings.has(Setting::valid_sets) ? "" : "others held out ",
                            phase.seconds()));
  return corpora;
}

// The size of the corpus that the user gave.
int64_t all_pairs(const Settings& settings, const Corpora& corpora) {
  const bool held_out = !settings.has(Setting::valid_sets);
  return pair_count(corpora.train) + (held_out ? pair_count(corpora.valid) : 0);
}

// The tokenizer with the template that --chat-template names, or with its own.
Tokenizer with_chat_template(Tokenizer tokenizer, const Settings& settings) {
  if (!settings.has(Setting::chat_template)) return tokenizer;
  const std::string& given = settings.program.chat_template;
  std::string source = given;
  if (given != "chatml") {
    std::ifstream in(trafo::os::path_of(given), std::ios::binary);
    source.assign(std::istreambuf_iterator<char>(in), {});
    if (!in.good() && !in.eof())
      settings.refuse(Setting::chat_template, given + " cannot be read (chatml is built in)");
  }
  try {
    return make<Tokenizer>(trafo_tokenizer_with_chat_template, tokenizer.get(), source.data(),
                           source.size());
  } catch (const CliError& error) {
    throw error.within("", " (--chat-template " + given + ")");
  }
}

Reporter make_reporter(const Settings& settings, const Job& job) {
  return Reporter({.json = text_of(Setting::log_format, settings) == "json",
                   .live = text_of(Setting::progress, settings) == "auto",
                   .quiet = settings.program.quiet != 0,
                   .silent = job.rank > 0});
}

// Before the first update. With --mini-batch-fit the batch that was chosen becomes the run's.
// `whose`: " of rank 0" or nothing.
void report_memory(const trafo_trainer* trainer, const char* whose, Settings& settings,
                   Reporter& reporter) {
  trafo_memory_plan plan{};
  check(trafo_trainer_get_plan(trainer, &plan, sizeof plan));
  if (settings.trainer.batch_fit != 0) {
    settings.trainer.batch_tokens = plan.batch_tokens;
    reporter.info(fmt::format("mini-batch-fit: {} words a batch", grouped(plan.batch_tokens)),
                  {{"batch_tokens", plan.batch_tokens}});
  }
  const std::string frozen = plan.teacher_bytes > 0
                                 ? fmt::format(", {} {}", objective_of(settings).other_model,
                                               mebibytes(plan.teacher_bytes))
                                 : "";
  std::string line = fmt::format(
      "memory{}: planned peak {} (weights {}, gradients {}, optimizer {}{}, activations {})", whose,
      mebibytes(plan.total_bytes), mebibytes(plan.weights_bytes), mebibytes(plan.gradients_bytes),
      mebibytes(plan.optimizer_bytes), frozen, mebibytes(plan.activations_bytes));
  if (plan.device_bytes > 0)
    line += fmt::format(", device has {}, {} free", mebibytes(plan.device_bytes),
                        mebibytes(plan.free_bytes));
  reporter.info(line, {{"planned_peak_bytes", plan.total_bytes},
                       {"weights_bytes", plan.weights_bytes},
                       {"gradients_bytes", plan.gradients_bytes},
                       {"optimizer_bytes", plan.optimizer_bytes},
                       {"teacher_bytes", plan.teacher_bytes},
                       {"activations_bytes", plan.activations_bytes},
                       {"device_bytes", plan.device_bytes},
                       {"free_bytes", plan.free_bytes}});
}

// The configuration of the newest checkpoint of a run that can be read.
trafo_model_config config_of_run(const std::string& run, const std::vector<int64_t>& updates,
                                 std::string& file) {
  for (auto update = updates.rbegin();; ++update) {
    try {
      file = checkpoint_model(run, std::to_string(*update));
      return config_of_file(file);
    } catch (const CliError&) {
      if (std::next(update) == updates.rend()) throw;
    }
  }
}

// The model of --pretrained-model; of a run that goes on, its own newest one, whose weights come
// with the checkpoint.
std::optional<Pretrained> find_pretrained(const Settings& settings, const std::string& run,
                                          const std::vector<int64_t>& updates) {
  if (!settings.has(Setting::pretrained_model)) return std::nullopt;
  Pretrained found;
  if (!updates.empty()) {
    found.config = config_of_run(run, updates, found.model);
    return found;
  }
  ModelArguments arguments;
  arguments.model = settings.program.pretrained_model;
  if (settings.has(Setting::vocabs)) arguments.vocabulary = settings.program.vocabs.front();
  const ModelPaths paths = find_model(arguments);
  return Pretrained{paths.model, paths.vocabulary, config_of_file(paths.model)};
}

// The setting that names the other model of the objective. No value: it has none.
std::optional<Setting> frozen_setting(const Settings& settings) {
  if (settings.has(Setting::teacher)) return Setting::teacher;
  if (objective_of(settings).other_model != kReference) return std::nullopt;
  if (settings.has(Setting::reference_model)) return Setting::reference_model;
  if (adapter_settings(settings)) return std::nullopt;
  if (settings.has(Setting::pretrained_model)) return Setting::pretrained_model;
  settings.refuse(
      Setting::objective,
      fmt::format("{} compares the model with a reference: give --pretrained-model, which is the "
                  "reference too, or --reference-model",
                  objective_of(settings).name));
}

// The other model of the objective, with the vocabulary of the run if that is decided already.
std::optional<ModelPaths> find_frozen(const Settings& settings, const std::string& run,
                                      bool continuing, const Pretrained* pretrained) {
  const std::optional<Setting> setting = frozen_setting(settings);
  if (!setting) return std::nullopt;
  ModelArguments arguments;
  arguments.model = text_of(*setting, settings);
  if (!fs::exists(trafo::os::path_of(arguments.model)))
    settings.refuse(*setting, arguments.model + ": no such file or directory");
  if (continuing)
    arguments.vocabulary = vocabulary_in(run);
  else if (pretrained)
    arguments.vocabulary = pretrained->vocabulary;
  else if (settings.has(Setting::vocabs))
    arguments.vocabulary = settings.program.vocabs.front();
  return find_model(arguments);
}

// The path to load the vocabulary from; empty: it is to be trained. A vocabulary in the run
// directory that no run has written is used and stays as it is.
std::string vocabulary_file(const Settings& settings, const std::string& run, bool continuing,
                            const Pretrained* pretrained, const ModelPaths* frozen) {
  if (continuing) return run;
  const std::string own = vocabulary_in(run);
  const std::string given = pretrained                      ? pretrained->vocabulary
                            : settings.has(Setting::vocabs) ? settings.program.vocabs.front()
                            : frozen                        ? frozen->vocabulary
                                                            : "";
  if (own.empty() || owns_vocabulary(run)) return given;
  if (!given.empty() && !same_content(given, own))
    usage_error(
        fmt::format("{}: no run has written it, and a run would overwrite it with {}: move "
                    "it away, or give another --model",
                    own, given));
  return own;
}

// The vocabulary that was in the run directory before the run is another one than was asked for.
void check_adopted_size(const Settings& settings, const Tokenizer& tokenizer,
                        const std::string& path) {
  int64_t subwords = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &subwords));
  if (settings.program.dim_vocabs != subwords)
    settings.refuse(Setting::dim_vocabs,
                    fmt::format("{} has {} subwords, and no run has written it: move it away to "
                                "train another vocabulary, or leave --dim-vocabs out to use it",
                                path, subwords));
}

// --vocab-kind, where the vocabulary is not a new one.
void check_kind(const Settings& settings, const Tokenizer& tokenizer, const std::string& path) {
  const char* kind = nullptr;
  check(trafo_tokenizer_get_kind(tokenizer.get(), &kind, nullptr));
  if (settings.has(Setting::vocab_kind) && settings.program.vocab_kind != kind)
    settings.refuse(Setting::vocab_kind,
                    fmt::format("{} is a vocabulary of the kind {}", path, kind));
}

// Text without a source has nothing to translate. Returns whether it is such text.
bool choose_metric_of_text(Settings& settings, const Corpora& corpora) {
  if (info_of(corpora.train).texts != 1 || settings.has(Setting::valid_metrics)) return false;
  settings.set_default(Setting::valid_metrics, {metric_of(TRAFO_METRIC_CE)->name});
  return true;
}

// Prints the config.yml that a run with these settings would write, and its path.
int dump_config(Settings settings, const std::string& run, const Pretrained* pretrained,
                Reporter& reporter) {
  // A size that nobody has asked for gives way where the text has fewer subwords: it stays unsaid.
  const bool own_size = settings.has(Setting::dim_vocabs);
  int64_t pairs = 0;
  if (!settings.has(Setting::task) || settings.has(Setting::tsv)) {
    const Corpora corpora = load_corpora(settings, run, "", reporter);
    pairs = all_pairs(settings, corpora);
    choose_metric_of_text(settings, corpora);
  }
  fill_defaults(settings, pretrained, pairs);
  make_absolute(settings);
  if (!own_size) settings.unset(Setting::dim_vocabs);
  settings.set(Setting::model, {absolute_path(run)}, "--model");
  std::string text = settings.to_yaml(true);
  text.pop_back();  // the writer ends the line
  LineWriter out("-");
  out.write(text);
  out.finish();
  return kDone;
}

// RUN/config.yml. That of a resumed run stays if it says the same, with what a user has added.
void write_config(const Settings& settings, const std::string& run, bool continuing, bool owned) {
  const std::string path = run + "/config.yml", text = settings.to_yaml();
  if (continuing && fs::exists(trafo::os::path_of(path)) &&
      Settings::from_yaml(path).to_yaml() == text)
    return;
  write_file(path, config_with_checksums(text, run, owned));
}

// The weights that the model of a run begins with, and the parameters that are trained.
struct ModelStart {
  std::string pretrained;  // file; empty: random weights
  std::string like;        // file of a model with the same factors; empty: there are none
  std::optional<AdapterSettings> adapter;
  std::vector<std::string> frozen;
  std::string frozen_model;     // file of the teacher or the reference; empty: none
  std::string frozen_settings;  // "beta 0.1, label-smoothing 0"
};

// The files that a run begins with or continues from.
struct RunFiles {
  bool continuing;
  std::optional<Pretrained> pretrained;
  std::optional<ModelPaths> frozen;  // the teacher or the reference
  std::string vocabulary;            // empty: it is to be trained
};

// The given settings with their defaults, and what they are for the library.
struct Resolved {
  Settings settings;
  TrainConfig config;
};
Resolved resolve_all(Settings settings, const Pretrained* pretrained, int64_t pairs) {
  fill_defaults(settings, pretrained, pairs);
  TrainConfig config = resolve(settings, pretrained);
  return {std::move(settings), config};
}

// The settings of the objective that concern its other model, for the log.
std::string frozen_settings(const Settings& settings) {
  const ObjectiveSpec& objective = objective_of(settings);
  const bool has_teacher = objective.other_model == kTeacher;
  std::vector<Setting> shown;
  if (has_teacher) shown = {Setting::teacher_weight, Setting::teacher_temperature};
  for (const auto& [setting, of] : objective_settings())
    if (&objectives()[static_cast<size_t>(of)] == &objective) shown.push_back(setting);
  const std::string prefix = fmt::format("{}-", has_teacher ? kTeacher : objective.name);
  std::string text;
  for (const Setting setting : shown) {
    std::string_view name = spec_of(setting).name;
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, text_of(setting, settings));
  }
  return text;
}

// Each rank makes the same. `reporter` may be null.
Model make_model(trafo_context* context, const TrainConfig& config, const Tokenizer& tokenizer,
                 const ModelStart& start, Reporter* reporter) {
  const std::string& like = start.like;
  auto model = like.empty() ? make<Model>(trafo_model_new, context, &config.model, config.seed)
                            : make<Model>(trafo_model_new_like, context, &config.model, config.seed,
                                          like.data(), like.size());
  const std::string& file = start.pretrained;
  if (!file.empty())
    check(trafo_model_load_weights(model.get(), tokenizer.get(), file.data(), file.size()));
  if (!file.empty() && reporter) reporter->info("training begins with the weights of " + file);
  if (start.adapter) {
    const std::string added = add_adapter(model.get(), *start.adapter, config.seed);
    if (reporter) reporter->info(added);
  }
  for (const std::string& pattern : start.frozen)
    check(trafo_model_freeze(model.get(), pattern.data(), pattern.size(), nullptr));
  if (const std::string& frozen = start.frozen_model; !frozen.empty()) {
    const std::string_view role =
        objectives()[static_cast<size_t>(config.trainer.objective)].other_model;
    std::optional<Reporter::Phase> phase;
    if (reporter) phase.emplace(*reporter, fmt::format("loading the {}", role));
    const auto load = role == kReference ? trafo_model_load_reference : trafo_model_load_teacher;
    check(load(model.get(), frozen.data(), frozen.size()));
    if (reporter) reporter->info(fmt::format("{}: {}, {}", role, frozen, start.frozen_settings));
  }
  return model;
}

// `group`: null if there is one rank.
Trainer make_trainer(trafo_group* group, const Model& model, const Tokenizer& tokenizer,
                     const Corpora& corpora, const TrainConfig& config, const std::string& run) {
  try {
    if (group)
      return make<Trainer>(trafo_trainer_new_in_group, group, model.get(), tokenizer.get(),
                           corpora.train.get(), corpora.valid.get(), &config.trainer, run.data(),
                           run.size(), nullptr);
    return make<Trainer>(trafo_trainer_new, model.get(), tokenizer.get(), corpora.train.get(),
                         corpora.valid.get(), &config.trainer, run.data(), run.size(), nullptr);
  } catch (const CliError& error) {
    if (error.exit_code() != kOutOfMemory) throw;
    throw error.within("",
                       " (--recompute, --mini-batch-words, --optimizer-delay; --mini-batch-fit "
                       "chooses the batch)");
  }
}

// Corpus, vocabulary and model by the settings, and the run in (or continued from) the directory
// `run`. `resolved`: of a small corpus.
int train_run(const Settings& given, Resolved resolved, const std::string& run, const Job& job,
              Reporter& reporter, const ProfileRequest& profile, const RunFiles& files) {
  const bool continuing = files.continuing;
  const std::optional<Pretrained>& pretrained = files.pretrained;
  // First, because it says at once if there is no such device.
  std::optional<Ranks> opened;
  {
    const Reporter::Phase phase(reporter, "opening the device");
    opened.emplace(given, job);
  }
  const Ranks& ranks = *opened;
  const Precision precision =
      training_precision_on(ranks.context(ranks.first()),
                            given.has(Setting::precision) ? given.program.precision : "auto");
  if (has_token_files(given) && files.vocabulary.empty())
    given.refuse(Setting::data_format,
                 "is token ids: give the vocabulary that made them, --vocabs");
  Corpora corpora = load_corpora(given, run, files.vocabulary, reporter);
  const bool own_size = given.has(Setting::dim_vocabs);
  // The size of the corpus chooses the task where nobody has.
  const int64_t pairs = all_pairs(given, corpora);
  Settings known = given;
  if (choose_metric_of_text(known, corpora) ||
      (!given.has(Setting::task) && text_of(Setting::task, resolved.settings) !=
                                        task_for(pairs, !has_encoder(resolved.config.model)))) {
    resolved = resolve_all(std::move(known), pretrained ? &*pretrained : nullptr, pairs);
  }
  Settings& settings = resolved.settings;
  TrainConfig& config = resolved.config;
  config.model.precision = precision.dtype;
  config.trainer.tf32 = precision.tf32;
  config.trainer.fp8 = precision.fp8;

  const std::string own_vocabulary = vocabulary_in(run);
  const bool adopted =
      !continuing && !files.vocabulary.empty() && files.vocabulary == own_vocabulary;
  const bool owned = continuing ? owns_vocabulary(run) : !adopted;
  Tokenizer tokenizer = files.vocabulary.empty()
                            ? train_vocabulary(corpora.train, settings, !own_size, reporter)
                            : load_vocabulary(files.vocabulary);
  if (!files.vocabulary.empty()) check_kind(settings, tokenizer, files.vocabulary);
  if (adopted && own_size) check_adopted_size(settings, tokenizer, own_vocabulary);
  if (adopted) reporter.info("vocabulary: " + own_vocabulary + ", which was there before the run");
  tokenizer = reading_texts(std::move(tokenizer), settings.program.parse_special,
                            settings.program.source_language, settings.program.target_language);
  tokenizer = with_chat_template(std::move(tokenizer), settings);
  take_vocabulary_sizes(tokenizer.get(), config.model);
  settings.program.dim_vocabs = config.model.vocabulary;

  const ModelStart start{
      .pretrained = pretrained && !continuing ? pretrained->model : std::string(),
      .like = pretrained ? pretrained->model : std::string(),
      .adapter = adapter_settings(settings),
      .frozen = settings.program.freeze,
      .frozen_model = files.frozen ? files.frozen->model : std::string(),
      .frozen_settings = frozen_settings(settings)};
  int result = kDone;
  const auto train_first = [&](trafo_group* group) {
    const Model model =
        make_model(ranks.context(ranks.first()), config, tokenizer, start, &reporter);
    Trainer trainer;
    {
      const Reporter::Phase phase(reporter, "preparing the corpus");
      trainer = make_trainer(group, model, tokenizer, corpora, config, run);
    }
    // The run directory is ours from here on: the trainer holds its lock.
    reporter.open_files(run);
    if (!ranks.exchange().empty()) reporter.info(ranks.exchange());
    report_memory(trainer.get(), group ? " of rank 0" : "", settings, reporter);
    make_absolute(settings);
    if (!continuing && (!adopted || settings.has(Setting::chat_template)))
      write_own_vocabulary(run, tokenizer.get());
    write_config(settings, run, continuing, owned);
    int64_t tensors = 0, parameters = 0;
    check(trafo_model_get_parameter_count(model.get(), &tensors, &parameters));
    reporter.info(fmt::format(
        "trafo {} | {} | {} {} | {} parameters | {} subwords | run directory {}", trafo_version(),
        ranks.text(precision), text_of(Setting::task, settings), text_of(Setting::arch, settings),
        grouped(parameters), grouped(config.model.vocabulary), run));
    RunRecords records(
        {.description = {{"version", trafo_version()},
                         {"device", ranks.text(precision)},
                         {"task", text_of(Setting::task, settings)},
                         {"arch", text_of(Setting::arch, settings)},
                         {"parameters", parameters},
                         {"vocabulary", config.model.vocabulary},
                         {"train_pairs", pair_count(corpora.train)},
                         {"valid_pairs", pair_count(corpora.valid)}},
         .samples = pick_samples(corpora.valid),
         .tensorboard = tensorboard_folder(settings, run),
         .tensorboard_is_own = tensorboard_folder(settings, run) == run + "/tensorboard"},
        reporter);
    ProfileRequest profiled = profile;
    profiled.context = ranks.context(ranks.first());
    result = run_trainer(trainer.get(), records, reporter, profiled);
  };
  ranks.run([&](size_t rank, trafo_group* group) {
    if (rank == 0) return train_first(group);
    const Model model = make_model(ranks.context(rank), config, tokenizer, start, nullptr);
    const Trainer trainer = make_trainer(group, model, tokenizer, corpora, config, run);
    // Signals reach the first rank of each process.
    const bool is_first = rank == ranks.first();
    const int code = run_other_rank(trainer.get(), profile, is_first);
    if (is_first) result = code;
  });
  // Contexts keep the memory of models that are gone, which the model that is read here needs.
  opened.reset();
  if (start.adapter && job.rank == 0) reporter.info(write_run_adapter(run));
  return result;
}

int train(const CLI::App& app, const TrainArguments& arguments, const Job& job) {
  std::string run;
  Settings settings = collect(app, arguments, run);
  if (!settings.has(Setting::tsv) && !settings.has(Setting::train_sets))
    usage_error("--train-sets SRC TRG or --tsv FILE is missing");
  if (is_monolingual(settings) && !settings.has(Setting::task))
    settings.set_default(Setting::arch, {trains_encoder(settings) ? "encoder" : "decoder-lm"});
  // Mistakes in the values are found before the corpus is read, whose size only moves defaults.
  const std::vector<int64_t> updates = checkpoints_of(run);
  const bool continuing = !updates.empty();
  const std::optional<Pretrained> pretrained = find_pretrained(settings, run, updates);
  if (!continuing && !pretrained && trains_encoder(settings))
    settings.refuse(Setting::objective, "trains an encoder: give --pretrained-model");
  const Resolved resolved = resolve_all(settings, pretrained ? &*pretrained : nullptr, 0);
  check_together(resolved.config);
  adapter_settings(settings);
  check_readable(settings);
  const ProfileRequest profile =
      profile_request(arguments.profile, arguments.profile_updates, arguments.profile_graphs);
  Reporter reporter = make_reporter(resolved.settings, job);
  if (arguments.dump_config && job.rank > 0) return kDone;
  if (arguments.dump_config)
    return dump_config(std::move(settings), run, pretrained ? &*pretrained : nullptr, reporter);
  if (job.rank == 0) check_run_directory(run);
  if (!continuing) refuse_to_overwrite(run);
  const std::optional<ModelPaths> frozen =
      find_frozen(settings, run, continuing, pretrained ? &*pretrained : nullptr);
  const std::string vocabulary = vocabulary_file(
      settings, run, continuing, pretrained ? &*pretrained : nullptr, frozen ? &*frozen : nullptr);
  if (continuing)
    reporter.info(fmt::format("resuming {} at update {}", run, updates.back()));
  else if (is_monolingual(settings) && !has_encoder(resolved.config.model) &&
           !trains_encoder(settings))
    reporter.info(fmt::format("{} {}: training a language model, which continues text",
                              settings.program.train_sets[0],
                              has_token_files(settings) ? "has token ids" : "is one file"));
  return train_run(settings, resolved, run, job, reporter, profile,
                   {continuing, pretrained, frozen, vocabulary});
}

}  // namespace

Action add_train(CLI::App& app) {
  auto arguments = std::make_shared<TrainArguments>();
  for (const SettingSpec& spec : setting_specs()) add_setting(app, spec, arguments->values);
  app.add_option("-c,--config", arguments->config,
                 "settings by the names above; the command line wins")
      ->type_name("FILE.yml")
      ->group("Output");
  app.add_flag("--dump-config", arguments->dump_config,
               "print every setting as YAML for --config, and do nothing else")
      ->group("Output");
  app.add_option(
         "--profile", arguments->profile,
         "write a Chrome trace (chrome://tracing, Perfetto) of a few updates, op by op, and "
         "print a table of them")
      ->type_name("FILE")
      ->group("Output");
  app.add_option("--profile-updates", arguments->profile_updates,
                 "the updates of --profile, counted from where this run of the program begins "
                 "(default 10:15)")
      ->type_name("FROM:TO")
      ->group("Output");
  app.add_flag("--profile-graphs", arguments->profile_graphs,
               "with --profile on a GPU: steps stay graphs, each is one range instead of its ops")
      ->group("Output");
  app.footer(
      "Trains, or continues where the run directory stopped. Names after a comma are fairseq's for "
      "the\nsame setting. Numbers may end in k or M.");
  add_launch_flags(app, arguments->launch);
  return [&app, arguments] {
    const Job job = job_of(arguments->launch);
    try {
      return train(app, *arguments, job);
    } catch (const CliError& error) {
      if (job.rank == 0) throw;
      throw error.within(
          fmt::format("[{} {}] ", job.launcher == "nodes" ? "node" : "rank", job.rank));
    }
  };
}

}  // namespace translate_train
