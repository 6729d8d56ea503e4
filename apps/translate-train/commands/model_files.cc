#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "commands/adapters.h"
#include "commands/cli_error.h"
#include "commands/commands.h"
#include "commands/device.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "run_dir/run_origin.h"
#include "settings/setting_types.h"

namespace translate_train {

namespace fs = std::filesystem;

const char* vocabulary_name(const trafo_tokenizer* tokenizer) {
  const char *kind = nullptr, *file = nullptr;
  check(trafo_tokenizer_get_kind(tokenizer, &kind, &file));
  return file;
}

std::string one_vocabulary(const std::vector<std::string>& files) {
  if (files.front() != files.back() && !same_content(files.front(), files.back()))
    usage_error(
        fmt::format("--vocabs {} {}: a model has one vocabulary for both sides; join the two "
                    "texts and train one (translate-train vocab -t SRC TRG)",
                    files.front(), files.back()));
  return files.front();
}

void add_model_paths(CLI::App& app, ModelArguments& arguments) {
  app.add_option("-m,--model", arguments.model,
                 "run directory (its best checkpoint by the metric that decided, or its latest if "
                 "none was judged) or model.safetensors (default run)")
      ->type_name("DIR|FILE");
  app.add_option_function<std::vector<std::string>>(
         "-v,--vocab,--vocabs",
         [&arguments](const std::vector<std::string>& files) {
           arguments.vocabulary = one_vocabulary(files);
         },
         "vocabulary (default: the run directory's)")
      ->expected(1, 2)
      ->type_name("FILE");
  app.add_option("--checkpoint", arguments.checkpoint,
                 "of the run directory: latest, averaged, an update, or best-NAME, NAME being one "
                 "of " +
                     known_metrics())
      ->type_name("NAME");
}

void add_adapter_argument(CLI::App& app, ModelArguments& arguments) {
  app.add_option(
         "--adapter", arguments.adapter,
         "LoRA adapter of the model: a run directory of train --lora-rank, its adapter/, or "
         "a directory of PEFT")
      ->type_name("DIR");
}

void add_model_arguments(CLI::App& app, ModelArguments& arguments) {
  add_model_paths(app, arguments);
  add_adapter_argument(app, arguments);
  app.add_option("--device", arguments.device,
                 "auto, cpu, cuda or cuda:N (default auto: CUDA where there is one, else the CPU)")
      ->type_name("NAME");
  app.add_option("--precision", arguments.precision,
                 "auto, fp32 or bf16: what the model computes in (default auto: bf16 on CUDA, else "
                 "fp32)")
      ->type_name("NAME");
  app.add_option("--weights", arguments.weights,
                 "stored or int8: int8 quantizes the weights while they are loaded, for the CPU "
                 "(default stored: as in the file)")
      ->check(CLI::IsMember({"stored", "int8"}))
      ->type_name("NAME");
  app.add_option("--cpu-threads", arguments.threads, "(default 0: every core)")->type_name("N");
}

std::vector<CLI::Option*> add_language_arguments(CLI::App& app, ModelArguments& arguments,
                                                 const char* group) {
  std::vector<CLI::Option*> options;
  for (const auto& [flag, language, text] :
       {std::tuple{"--source-language", &arguments.source_language, "of the source text"},
        std::tuple{"--target-language", &arguments.target_language, "of the translation"}})
    options.push_back(app.add_option(flag, *language,
                                     std::string(text) +
                                         ", of a model with language codes, as eng_Latn (NLLB-200) "
                                         "or en (M2M100)")
                          ->type_name("CODE")
                          ->group(group));
  return options;
}

void add_text_arguments(CLI::App& app, ModelArguments& arguments, const char* group) {
  CLI::Option* ids = app.add_flag(
      "--ids", arguments.ids,
      "lines are token ids between spaces, which the model reads as they are; no vocabulary is "
      "needed");
  ids->group(group);
  app.add_flag("--parse-special", arguments.parse_special,
               "the name of a special token in a text, such as </s>, is that token")
      ->excludes(ids)
      ->group(group);
  for (CLI::Option* language : add_language_arguments(app, arguments, group))
    language->excludes(ids);
}

Tokenizer reading_texts(Tokenizer tokenizer, bool parse_special, const std::string& source_language,
                        const std::string& target_language) {
  if (parse_special) tokenizer = make<Tokenizer>(trafo_tokenizer_parse_special, tokenizer.get());
  if (source_language.empty() != target_language.empty())
    usage_error("--source-language and --target-language: give both of them");
  if (!source_language.empty())
    tokenizer =
        make<Tokenizer>(trafo_tokenizer_with_languages, tokenizer.get(), source_language.data(),
                        source_language.size(), target_language.data(), target_language.size());
  return tokenizer;
}

ModelPaths find_model(const ModelArguments& arguments) {
  ModelPaths paths;
  const fs::path given = trafo::os::path_of(arguments.model);
  if (!fs::exists(given)) usage_error(arguments.model + ": no such file or directory");
  if (!fs::is_directory(given)) {
    if (!arguments.checkpoint.empty())
      usage_error("--checkpoint: " + arguments.model + " is a file, not a run directory");
    paths.model = arguments.model;
    // RUN/ckpt/UPDATE/model.safetensors or a vocabulary next to the file.
    const fs::path folder = fs::absolute(given).parent_path();
    paths.vocabulary = vocabulary_in(folder.string());
    if (paths.vocabulary.empty())
      paths.vocabulary = vocabulary_in(folder.parent_path().parent_path().string());
  } else if (fs::exists(given / kModelFile)) {  // a checkpoint directory
    paths.model = (given / kModelFile).string();
    const fs::path run = fs::absolute(given).lexically_normal().parent_path().parent_path();
    paths.vocabulary = vocabulary_in(run.string());
    if (paths.vocabulary.empty()) paths.vocabulary = vocabulary_in(arguments.model);
  } else {
    check_run_files(arguments.model);
    paths.model = arguments.checkpoint.empty()
                      ? usual_model(arguments.model)
                      : checkpoint_model(arguments.model, arguments.checkpoint);
    paths.vocabulary = vocabulary_in(arguments.model);
  }
  if (!arguments.vocabulary.empty()) paths.vocabulary = arguments.vocabulary;
  if (paths.vocabulary.empty() && !arguments.ids)
    usage_error(arguments.model + ": no vocabulary belongs to it, give --vocab FILE");
  return paths;
}

trafo_model_config config_of_file(const std::string& path) {
  trafo_model_config config{};
  check(trafo_model_read_config(path.data(), path.size(), &config, sizeof config));
  return config;
}

LoadedModel load_model(const ModelArguments& arguments, Reporter& reporter,
                       const std::string& memory_directory) {
  const ModelPaths paths = find_model(arguments);
  const Reporter::Phase phase(reporter, "loading the model");
  const bool int8 = arguments.weights == "int8";
  if (int8 && arguments.precision != "auto" && arguments.precision != "fp32")
    usage_error("--weights int8: computes in fp32, not with --precision " + arguments.precision);
  const std::string device = int8 && arguments.device == "auto" ? "cpu" : arguments.device;
  trafo_context_options options = context_options(device, arguments.threads, true);
  options.memory_directory = {memory_directory.data(), memory_directory.size()};
  LoadedModel loaded;
  if (!paths.vocabulary.empty())
    loaded.tokenizer =
        make<Tokenizer>(trafo_tokenizer_load, paths.vocabulary.data(), paths.vocabulary.size());
  if (loaded.tokenizer)
    loaded.tokenizer = reading_texts(std::move(loaded.tokenizer), arguments.parse_special,
                                     arguments.source_language, arguments.target_language);
  loaded.context = make<Context>(trafo_context_new, &options);
  loaded.model = int8 ? make<Model>(trafo_model_load_int8, loaded.context.get(), paths.model.data(),
                                    paths.model.size())
                      : make<Model>(trafo_model_load_as, loaded.context.get(), paths.model.data(),
                                    paths.model.size(),
                                    precision_on(loaded.context.get(), arguments.precision));
  if (!arguments.adapter.empty()) load_adapter(loaded.model.get(), arguments.adapter);
  if (loaded.tokenizer)
    check(trafo_model_check_tokenizer(loaded.model.get(), loaded.tokenizer.get()));
  return loaded;
}

std::string ZeroCounts::text() const {
  const double share =
      elements > 0 ? static_cast<double>(zeros) / static_cast<double>(elements) : 0;
  return fmt::format("{} of {} weights of matrices are zero ({:.1f} %)", grouped(zeros),
                     grouped(elements), 100 * share);
}

ZeroCounts count_zeros(const trafo_model* model) {
  ZeroCounts counts;
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &elements));
  for (int64_t i = 0; i < tensors; ++i) {
    trafo_parameter_info info{};
    check(trafo_model_get_parameter_info(model, i, &info, sizeof info));
    int64_t zeros = 0;
    check(trafo_model_get_zeros(model, i, &zeros));
    counts.by_parameter.push_back(zeros);
    if (info.rows < 2) continue;
    counts.zeros += zeros;
    counts.elements += info.elements;
  }
  return counts;
}

bool is_outer_factor(std::string_view parameter) {
  return parameter.ends_with(".weight.u");
}

std::string matrix_of_factor(std::string_view parameter) {
  return std::string(parameter.substr(0, parameter.rfind('.')));
}

void require_no_model_in(const std::string& folder) {
  for (const std::string& path :
       {(trafo::os::path_of(folder) / kModelFile).string(), vocabulary_in(folder)})
    if (fs::exists(trafo::os::path_of(path))) usage_error(path + ": exists already");
}

namespace {

bool is_of_checkpoint(const fs::path& file) {
  std::ifstream in(file.parent_path() / "manifest.json", std::ios::binary);
  const auto manifest = nlohmann::json::parse(in, nullptr, false);
  return manifest.is_object() && manifest.contains("files") &&
         manifest["files"].contains(file.filename().string());
}

bool is_vocabulary_of_run(const fs::path& file) {
  std::error_code ignored;
  const fs::path folder = file.parent_path();
  return fs::exists(folder / "ckpt", ignored) &&
         trafo::os::path_of(vocabulary_in(folder.string())).filename() == file.filename();
}

}  // namespace

void refuse_loss(const std::vector<std::string>& inputs, const std::string& output) {
  if (output.empty() || output == "-") return;
  std::error_code ignored;
  const fs::path path = fs::absolute(trafo::os::path_of(output), ignored);
  if (!fs::is_regular_file(path, ignored)) return;
  for (const std::string& input : inputs)
    if (!input.empty() && input != "-" && fs::equivalent(trafo::os::path_of(input), path, ignored))
      usage_error(fmt::format("--output {}: is the input {}, which would be lost", output, input));
  const bool of_checkpoint = is_of_checkpoint(path);
  if (of_checkpoint || is_vocabulary_of_run(path))
    usage_error(fmt::format("--output {}: is a file of {}, which could not be used without it",
                            output, of_checkpoint ? "a checkpoint" : "a run"));
}

void take_vocabulary_sizes(const trafo_tokenizer* tokenizer, trafo_model_config& config) {
  check(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  int64_t of_sources = 0;
  check(trafo_tokenizer_get_source_vocabulary(tokenizer, &of_sources));
  if (of_sources > 0) config.source_vocabulary = of_sources;
}

void write_own_vocabulary(const std::string& run, const trafo_tokenizer* tokenizer) {
  const fs::path before = trafo::os::path_of(vocabulary_in(run)), name = vocabulary_name(tokenizer);
  if (!before.empty() && before.filename() != name) fs::remove(before);
  const std::string path = (trafo::os::path_of(run) / name).string();
  check(trafo_tokenizer_save(tokenizer, path.data(), path.size()));
}

std::string write_model_folder(const std::string& folder, const trafo_model* model,
                               const trafo_tokenizer* tokenizer) {
  trafo::MadeDirectory output(trafo::os::path_of(folder));
  if (tokenizer != nullptr) {
    const std::string vocabulary = output.file(vocabulary_name(tokenizer)).string();
    check(trafo_tokenizer_save(tokenizer, vocabulary.data(), vocabulary.size()));
  }
  std::string path = output.file(kModelFile).string();
  check(trafo_model_save(model, path.data(), path.size()));
  output.keep();
  return path;
}

}  // namespace translate_train
