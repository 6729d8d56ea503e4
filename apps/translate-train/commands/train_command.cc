#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "commands/adapters.h"
#include "commands/commands.h"
#include "commands/training.h"
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

// What a run is cannot change while it goes on. The library checks model, corpus and optimizer;
// these it would never see, because the run directory's answer is taken.
void check_continued(const Settings& saved, const Settings& given, const std::string& run) {
  for (const char* name : {"task", "arch", "dim-vocabs"})
    if (given.has(name) && saved.has(name) && given.text(name) != saved.text(name))
      given.refuse(name, fmt::format("the run in {} has {}; give another --model to start one", run,
                                     saved.text(name)));
  if (given.has("vocabs") && !same_content(given.text("vocabs"), vocabulary_in(run)))
    given.refuse("vocabs", fmt::format("is not the vocabulary of the run in {}", run));
}

// Marian names a vocabulary for each side.
void take_vocabulary(Settings& given) {
  if (!given.has("vocabs") || given.list("vocabs").size() < 2) return;
  given.set("vocabs", {one_vocabulary(given.list("vocabs"))}, "--vocabs");
}

// Marian sets its memory aside beforehand, in MiB or, below 0, what the GPU has less that amount.
void take_workspace(Settings& given) {
  if (!given.has("workspace")) return;
  if (given.has("memory-limit")) given.refuse("workspace", "is --memory-limit: give one of them");
  std::string size = given.text("workspace");
  if (size[0] == '-')
    given.refuse("workspace",
                 "must not be below 0: without it a run takes what it needs of what is "
                 "free, and says so first");
  if (size.find_first_not_of("0123456789") == std::string::npos) size += "MiB";
  int64_t bytes = 0;
  if (!parse_bytes(size, bytes))
    given.refuse("workspace", fmt::format("wants a size as 9500 (MiB) or 8GiB, got '{}'",
                                          given.text("workspace")));
  given.set("memory-limit", {size}, "--workspace");
  given.unset("workspace");
}

// fairseq's form of the share: 1 - D.
void take_ema_decay(Settings& given) {
  if (!given.has("ema-decay")) return;
  const double share = 1 - given.real("ema-decay");
  given.set("exponential-smoothing", {fmt::format("{:.12g}", share)}, "--ema-decay");
  given.unset("ema-decay");
}

// A limit in epochs beside those of --after.
void take_after_epochs(Settings& given) {
  if (!given.has("after-epochs")) return;
  std::vector<std::string> after =
      given.has("after") ? given.list("after") : std::vector<std::string>();
  after.push_back(given.text("after-epochs") + "e");
  given.set("after", after, "--after-epochs");
  given.unset("after-epochs");
}

// Where event files go; empty: nowhere.
std::string tensorboard_folder(const Settings& settings, const std::string& run) {
  if (!settings.has("tensorboard")) return {};
  const auto& values = settings.list("tensorboard");
  const std::string value = values.empty() || values[0].empty() ? "on" : values[0];
  if (value == "on" || value == "true") return run + "/tensorboard";
  return value == "off" || value == "false" ? "" : value;
}

// Command line over --config over what the run directory was started with.
Settings collect(const CLI::App& app, const TrainArguments& arguments, std::string& run) {
  const Settings line = given_settings(app, setting_specs(), arguments.values);
  Settings given;
  if (!arguments.config.empty()) given = Settings::from_yaml(arguments.config);
  for (const auto& [one, other] :
       {std::pair("device", "devices"), std::pair("devices", "device")}) {
    if (!line.has(one)) continue;
    if (line.has(other)) usage_error("--device and --devices: give one of them");
    given.unset(other);
  }
  given.overlay(line);
  take_workspace(given);
  take_vocabulary(given);
  take_ema_decay(given);
  take_after_epochs(given);
  run = given.has("model") ? given.text("model") : "run";
  if (given.has("tsv") && given.has("train-sets"))
    usage_error("--train-sets and --tsv: give one of them");
  if (given.has("device") && given.has("devices"))
    given.refuse("devices", "is instead of device: give one of them");
  Settings all;
  check_run_files(run);
  const std::string saved = run + "/config.yml";
  if (has_checkpoint(run) && fs::exists(saved)) {
    all = Settings::from_yaml(saved);
    // Releases before this setting gave every model with biases an output bias.
    all.set_default("output-bias", {"on"});
    check_continued(all, given, run);
    // A run directory may be a stranger's. Where it is written to, apart from itself, is said anew.
    all.unset("tempdir");
    all.unset("quiet");  // asked for in one call
    if (!tensorboard_folder(all, run).empty()) all.set("tensorboard", {"on"}, "config.yml");
  }
  if (given.has("tsv")) all.unset("train-sets");
  if (given.has("train-sets")) all.unset("tsv");
  if (given.has("tsv") || given.has("train-sets")) all.unset("data-weights");
  if (given.has("device")) all.unset("devices");
  all.overlay(given);
  for (const char* name : {"teacher-weight", "teacher-temperature"})
    if (line.has(name) && !all.has("teacher")) line.refuse(name, "there is no --teacher");
  return all;
}

void make_absolute(Settings& settings) {
  for (const char* name :
       {"train-sets", "tsv", "valid-sets", "vocabs", "pretrained-model", "teacher", "tempdir"}) {
    if (!settings.has(name)) continue;
    std::vector<std::string> paths = settings.list(name);
    for (std::string& path : paths)
      if (path != "-") path = fs::absolute(path).lexically_normal().string();
    settings.set(name, paths, std::string("--") + name);
  }
  if (const std::string folder = tensorboard_folder(settings, "");
      folder[0] != '/' && !folder.empty())
    settings.set("tensorboard", {fs::absolute(folder).lexically_normal().string()},
                 "--tensorboard");
}

// Before anything is done: a name that is wrong is the user's mistake, not a failed disk.
void check_readable(const Settings& settings) {
  for (const char* name : {"train-sets", "tsv", "valid-sets", "vocabs"}) {
    if (!settings.has(name)) continue;
    for (const std::string& path : settings.list(name))
      if (path != "-" && access(path.c_str(), R_OK) != 0)
        usage_error(path + ": " + std::strerror(errno));
  }
}

Corpus open_corpus(std::span<const std::string> paths, const trafo_corpus_options& options) {
  std::vector<trafo_string_view> names;
  for (const std::string& path : paths) names.push_back(view(path));
  return make<Corpus>(trafo_corpus_open, names.data(), names.size(), &options);
}

// All corpora, each as often as its weight says.
Corpus open_training(const Settings& settings, const trafo_corpus_options& options) {
  const char* name = settings.has("tsv") ? "tsv" : "train-sets";
  const std::span<const std::string> paths = settings.list(name);
  const size_t each = settings.has("tsv") || paths.size() == 1 ? 1 : 2;
  if (paths.size() % each != 0)
    settings.refuse(name, fmt::format("wants pairs of files, or one file of text for a decoder-lm, "
                                      "got {} files",
                                      paths.size()));
  std::vector<double> weights(paths.size() / each, 1.0);
  if (settings.has("data-weights")) {
    weights = settings.reals("data-weights");
    if (weights.size() != paths.size() / each)
      settings.refuse("data-weights", fmt::format("wants a weight for each corpus: there are {} "
                                                  "weights and {} corpora",
                                                  weights.size(), paths.size() / each));
  }
  std::vector<Corpus> corpora;
  std::vector<const trafo_corpus*> handles;
  for (size_t i = 0; i < weights.size(); ++i) {
    corpora.push_back(open_corpus(paths.subspan(i * each, each), options));
    handles.push_back(corpora.back().get());
  }
  return make<Corpus>(trafo_corpus_mix, handles.data(), weights.data(), handles.size());
}

Corpora load_corpora(const Settings& settings, const std::string& run, Reporter& reporter) {
  const Reporter::Phase phase(reporter, "reading the corpus");
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  if (settings.has("data-in-memory")) options.memory_bytes = settings.bytes("data-in-memory");
  options.unpack_directory = view(settings.has("tempdir") ? settings.text("tempdir") : run);
  options.monolingual = is_monolingual(settings);
  Corpora corpora;
  corpora.train = open_training(settings, options);
  if (settings.has("valid-sets"))
    corpora.valid = open_corpus(settings.list("valid-sets"), options);
  else
    corpora = hold_out(std::move(corpora.train), reporter);
  reporter.info(fmt::format("corpus: {} pairs to train on, {} {}for validation, read in {:.1f} s",
                            grouped(pair_count(corpora.train)), grouped(pair_count(corpora.valid)),
                            settings.has("valid-sets") ? "" : "others held out ", phase.seconds()));
  return corpora;
}

Tokenizer load_vocabulary(const std::string& path) {
  return make<Tokenizer>(trafo_tokenizer_load, path.data(), path.size());
}

Reporter make_reporter(const Settings& settings, const Job& job) {
  static constexpr const char* kFormats[] = {"text", "json"};
  static constexpr const char* kProgress[] = {"auto", "off"};
  return Reporter({.json = settings.choice("log-format", kFormats) == 1,
                   .live = settings.choice("progress", kProgress) == 0,
                   .quiet = settings.flag("quiet"),
                   .silent = job.rank > 0});
}

// Before the first update. With --mini-batch-fit the batch that was chosen becomes the run's.
// `whose`: " of rank 0" or nothing.
void report_memory(const trafo_trainer* trainer, const char* whose, Settings& settings,
                   Reporter& reporter) {
  trafo_memory_plan plan{};
  check(trafo_trainer_get_plan(trainer, &plan, sizeof plan));
  if (settings.flag("mini-batch-fit")) {
    settings.set("mini-batch-words", {std::to_string(plan.batch_tokens)}, "--mini-batch-fit");
    reporter.info(fmt::format("mini-batch-fit: {} words a batch", grouped(plan.batch_tokens)),
                  {{"batch_tokens", plan.batch_tokens}});
  }
  const std::string teacher =
      plan.teacher_bytes > 0 ? ", teacher " + mebibytes(plan.teacher_bytes) : "";
  std::string line = fmt::format(
      "memory{}: planned peak {} (weights {}, gradients {}, optimizer {}{}, activations {})", whose,
      mebibytes(plan.total_bytes), mebibytes(plan.weights_bytes), mebibytes(plan.gradients_bytes),
      mebibytes(plan.optimizer_bytes), teacher, mebibytes(plan.activations_bytes));
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

// The checkpoint that a resumed run begins with, if it is whole. A process may have been killed
// before it wrote `latest`.
std::string newest_update(const std::string& run) {
  const std::string pointed = pointed_checkpoint(run, "latest");
  if (!pointed.empty()) return fs::path(pointed).filename().string();
  const std::vector<int64_t> updates = checkpoints_of(run);
  return updates.empty() ? "latest" : std::to_string(updates.back());
}

// The model of --pretrained-model; of a run that goes on, its own latest one, whose weights come
// with the checkpoint.
std::optional<Pretrained> find_pretrained(const Settings& settings, const std::string& run,
                                          bool continuing) {
  if (!settings.has("pretrained-model")) return std::nullopt;
  ModelArguments arguments;
  arguments.model = continuing ? run : settings.text("pretrained-model");
  if (continuing) arguments.checkpoint = newest_update(run);
  if (!continuing && settings.has("vocabs")) arguments.vocabulary = settings.text("vocabs");
  const ModelPaths paths = find_model(arguments);
  Pretrained found{paths.model, paths.vocabulary, {}};
  found.config = config_of_file(paths.model);
  return found;
}

// The model of --teacher, with the vocabulary of the run if that is decided already.
std::optional<ModelPaths> find_teacher(const Settings& settings, const std::string& run,
                                       bool continuing, const Pretrained* pretrained) {
  if (!settings.has("teacher")) return std::nullopt;
  ModelArguments arguments;
  arguments.model = settings.text("teacher");
  if (!fs::exists(arguments.model))
    settings.refuse("teacher", arguments.model + ": no such file or directory");
  if (continuing)
    arguments.vocabulary = vocabulary_in(run);
  else if (pretrained)
    arguments.vocabulary = pretrained->vocabulary;
  else if (settings.has("vocabs"))
    arguments.vocabulary = settings.text("vocabs");
  return find_model(arguments);
}

// The path to load the vocabulary from; empty: it is to be trained. A vocabulary in the run
// directory that no run has written is used and stays as it is.
std::string vocabulary_file(const Settings& settings, const std::string& run, bool continuing,
                            const Pretrained* pretrained, const ModelPaths* teacher) {
  if (continuing) return run;
  const std::string own = vocabulary_in(run);
  const std::string given = pretrained               ? pretrained->vocabulary
                            : settings.has("vocabs") ? settings.text("vocabs")
                            : teacher                ? teacher->vocabulary
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
  if (settings.integer("dim-vocabs") != subwords)
    settings.refuse("dim-vocabs",
                    fmt::format("{} has {} subwords, and no run has written it: move it away to "
                                "train another vocabulary, or leave --dim-vocabs out to use it",
                                path, subwords));
}

// --vocab-kind, where the vocabulary is not a new one.
void check_kind(const Settings& settings, const Tokenizer& tokenizer, const std::string& path) {
  const char* kind = nullptr;
  check(trafo_tokenizer_get_kind(tokenizer.get(), &kind, nullptr));
  if (settings.has("vocab-kind") && settings.text("vocab-kind") != kind)
    settings.refuse("vocab-kind", fmt::format("{} is a vocabulary of the kind {}", path, kind));
}

// What a run with these settings would keep as its config.yml, and where it would.
int dump_config(Settings settings, const std::string& run, const Pretrained* pretrained,
                Reporter& reporter) {
  // A size that nobody has asked for gives way where the text has fewer subwords: it stays unsaid.
  const bool own_size = settings.has("dim-vocabs");
  int64_t pairs = 0;
  if (!settings.has("task")) {
    const Corpora corpora = load_corpora(settings, run, reporter);
    pairs = pair_count(corpora.train);
    if (!settings.has("valid-sets")) pairs += pair_count(corpora.valid);
  }
  if (pretrained) fill_shape(settings, *pretrained);
  fill_defaults(settings, pairs);
  make_absolute(settings);
  if (!own_size) settings.unset("dim-vocabs");
  settings.set("model", {fs::absolute(run).lexically_normal().string()}, "--model");
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
  if (continuing && fs::exists(path) && Settings::from_yaml(path).to_yaml() == text) return;
  write_file(path, config_with_checksums(text, run, owned));
}

// What the model of a run begins with and what of it is trained.
struct ModelStart {
  std::string pretrained;  // file; empty: random weights
  std::string like;        // file of a model with the same factors; empty: there are none
  std::optional<AdapterSettings> adapter;
  std::vector<std::string> frozen;
  std::string teacher;  // file; empty: none
};

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
  if (!start.teacher.empty()) {
    std::optional<Reporter::Phase> phase;
    if (reporter) phase.emplace(*reporter, "loading the teacher");
    check(trafo_model_load_teacher(model.get(), start.teacher.data(), start.teacher.size()));
    if (reporter)
      reporter->info(fmt::format("teacher: {}, weight {:g}, temperature {:g}", start.teacher,
                                 config.trainer.teacher_weight,
                                 config.trainer.teacher_temperature));
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
                           run.size());
    return make<Trainer>(trafo_trainer_new, model.get(), tokenizer.get(), corpora.train.get(),
                         corpora.valid.get(), &config.trainer, run.data(), run.size());
  } catch (const CliError& error) {
    if (error.exit_code() != kOutOfMemory) throw;
    throw error.within("",
                       " (--recompute, --mini-batch-words, --optimizer-delay; --mini-batch-fit "
                       "chooses the batch)");
  }
}

// Corpus, vocabulary and model by `settings`, which get their defaults here, and the run in (or
// continued from) the directory `run`.
int train_run(Settings settings, const std::string& run, const Job& job, Reporter& reporter,
              const ProfileRequest& profile) {
  const bool continuing = has_checkpoint(run);
  // First, because it says at once if there is no such device.
  const auto ranks = [&] {
    const Reporter::Phase phase(reporter, "opening the device");
    return Ranks(settings, job);
  }();
  const Precision precision =
      training_precision_on(ranks.context(ranks.first()),
                            settings.has("precision") ? settings.text("precision") : "auto");
  Corpora corpora = load_corpora(settings, run, reporter);
  const bool own_size = settings.has("dim-vocabs");
  const std::optional<Pretrained> pretrained = find_pretrained(settings, run, continuing);
  if (pretrained) fill_shape(settings, *pretrained);
  const int64_t held_out = settings.has("valid-sets") ? 0 : pair_count(corpora.valid);
  fill_defaults(settings, pair_count(corpora.train) + held_out);
  TrainConfig config = resolve(settings, pretrained ? &*pretrained : nullptr);
  config.model.precision = precision.dtype;
  config.trainer.tf32 = precision.tf32;
  config.trainer.fp8 = precision.fp8;

  const std::string own_vocabulary = vocabulary_in(run);
  const std::optional<ModelPaths> teacher =
      find_teacher(settings, run, continuing, pretrained ? &*pretrained : nullptr);
  const std::string vocabulary =
      vocabulary_file(settings, run, continuing, pretrained ? &*pretrained : nullptr,
                      teacher ? &*teacher : nullptr);
  const bool adopted = !continuing && !vocabulary.empty() && vocabulary == own_vocabulary;
  const bool owned = continuing ? owns_vocabulary(run) : !adopted;
  Tokenizer tokenizer = vocabulary.empty()
                            ? train_vocabulary(corpora.train, settings, !own_size, reporter)
                            : load_vocabulary(vocabulary);
  if (!vocabulary.empty()) check_kind(settings, tokenizer, vocabulary);
  if (adopted && own_size) check_adopted_size(settings, tokenizer, own_vocabulary);
  if (adopted) reporter.info("vocabulary: " + own_vocabulary + ", which was there before the run");
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &config.model.vocabulary));
  settings.set("dim-vocabs", {std::to_string(config.model.vocabulary)}, "vocabulary");

  const ModelStart start{
      .pretrained = pretrained && !continuing ? pretrained->model : std::string(),
      .like = pretrained ? pretrained->model : std::string(),
      .adapter = adapter_settings(settings),
      .frozen = settings.has("freeze") ? settings.list("freeze") : std::vector<std::string>{},
      .teacher = teacher ? teacher->model : std::string()};
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
    if (!continuing && !adopted) write_own_vocabulary(run, tokenizer.get());
    write_config(settings, run, continuing, owned);
    int64_t tensors = 0, parameters = 0;
    check(trafo_model_get_parameter_count(model.get(), &tensors, &parameters));
    reporter.info(fmt::format(
        "trafo {} | {} | {} {} | {} parameters | {} subwords | run directory {}", trafo_version(),
        ranks.text(precision), settings.text("task"), settings.text("arch"), grouped(parameters),
        grouped(config.model.vocabulary), run));
    RunRecords records(
        {.description = {{"version", trafo_version()},
                         {"device", ranks.text(precision)},
                         {"task", settings.text("task")},
                         {"arch", settings.text("arch")},
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
  // Models and trainers are gone: their memory is free for the model that is read.
  if (start.adapter && job.rank == 0) reporter.info(write_run_adapter(run));
  return result;
}

int train(const CLI::App& app, const TrainArguments& arguments, const Job& job) {
  std::string run;
  Settings settings = collect(app, arguments, run);
  if (!settings.has("tsv") && !settings.has("train-sets"))
    usage_error("--train-sets SRC TRG or --tsv FILE is missing");
  if (is_monolingual(settings) && !settings.has("task"))
    settings.set_default("arch", {"decoder-lm"});
  // Mistakes in the values are found before the corpus is read, whose size only moves defaults.
  Settings trial = settings;
  const bool continuing = has_checkpoint(run);
  const std::optional<Pretrained> pretrained = find_pretrained(settings, run, continuing);
  if (pretrained) fill_shape(trial, *pretrained);
  fill_defaults(trial, 0);
  check_together(resolve(trial, pretrained ? &*pretrained : nullptr));
  adapter_settings(settings);
  check_readable(settings);
  const ProfileRequest profile =
      profile_request(arguments.profile, arguments.profile_updates, arguments.profile_graphs);
  Reporter reporter = make_reporter(trial, job);
  if (arguments.dump_config && job.rank > 0) return kDone;
  if (arguments.dump_config)
    return dump_config(std::move(settings), run, pretrained ? &*pretrained : nullptr, reporter);
  if (job.rank == 0) check_run_directory(run);
  if (!continuing) refuse_to_overwrite(run);
  const std::optional<ModelPaths> teacher =
      find_teacher(settings, run, continuing, pretrained ? &*pretrained : nullptr);
  vocabulary_file(settings, run, continuing, pretrained ? &*pretrained : nullptr,
                  teacher ? &*teacher : nullptr);
  if (continuing)
    reporter.info(fmt::format("resuming {} at update {}", run, newest_update(run)));
  else if (is_monolingual(settings))
    reporter.info(fmt::format("{} has one side: training a language model, which continues text",
                              settings.list("train-sets")[0]));
  return train_run(std::move(settings), run, job, reporter, profile);
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
