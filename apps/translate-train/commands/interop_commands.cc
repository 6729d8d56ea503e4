#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "commands/command_flags.h"
#include "commands/commands.h"
#include "engine/os/memory.h"
#include "engine/os/names.h"
#include "run_dir/model_card.h"
#include "run_dir/run_files.h"
#include "settings/generated/choices.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kPeft = -1;  // no format of trafo_model_export: the adapter alone

const std::vector<Choice>& export_choices() {
  static const std::vector<Choice> all = [] {
    std::vector<Choice> choices(std::begin(kExportFormatChoices), std::end(kExportFormatChoices));
    choices.push_back({"peft", kPeft});
    return choices;
  }();
  return all;
}

// Without the value that leaves the type to the format: the flag is left out then.
std::span<const Choice> weights_choices() {
  return std::span(kExportWeightsChoices).subspan(TRAFO_EXPORT_WEIGHTS_BY_FORMAT + 1);
}

std::string names_of(std::span<const Choice> choices) {
  std::string names;
  for (const Choice& each : choices)
    names.append(names.empty() ? "" : ", ")
        .append(each.name)
        .append(*each.alias != '\0' ? std::string(" (") + each.alias + ")" : "");
  return names;
}

// How the help and shells name them: NAME:{one,two}.
std::string type_of(const char* name, std::span<const Choice> choices) {
  std::vector<std::string> names;
  for (const Choice& each : choices) names.emplace_back(each.name);
  return fmt::format("{}:{{{}}}", name, joined(names, ","));
}

const Choice& choice_of(const char* flag, const std::string& name,
                        std::span<const Choice> choices) {
  for (const Choice& each : choices)
    if (name == each.name || (*each.alias != '\0' && name == each.alias)) return each;
  usage_error(
      fmt::format("{} {}: there is no such choice; there are {}", flag, name, names_of(choices)));
}

// A directory for the memory of a model: --memory-directory, or the directory of the output if the
// float32 weights take more than half of the machine's memory; else empty.
std::string memory_directory(const std::string& given, const std::string& output,
                             uintmax_t weight_bytes) {
  if (!given.empty() || std::cmp_less_equal(weight_bytes, trafo::os::machine_memory() / 2))
    return given;
  const fs::path parent = fs::absolute(trafo::os::path_of(output)).lexically_normal().parent_path();
  fs::create_directories(parent);
  return parent.string();
}

// Float32 weights of the files of a directory, which may hold them in half as many bytes.
uintmax_t float_bytes_in(const std::string& directory) {
  uintmax_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(trafo::os::path_of(directory)))
    if (const fs::path kind = entry.path().extension(); kind == ".safetensors" || kind == ".bin")
      bytes += entry.is_regular_file() ? 2 * entry.file_size() : 0;
  return bytes;
}

void add_memory_directory(CLI::App& app, std::string& directory) {
  app.add_option("--memory-directory", directory,
                 "where weights lie that are to take no memory, in files without names (default: "
                 "the output's directory if they take more than half of the memory)")
      ->type_name("DIR");
}

struct ExportArguments {
  ModelArguments model;
  std::string format, weights, output, memory_directory;
  bool quiet = false;
};

int export_to(const ExportArguments& arguments) {
  const Choice& format = choice_of("--to", arguments.format, export_choices());
  const int32_t weights = arguments.weights.empty()
                              ? TRAFO_EXPORT_WEIGHTS_BY_FORMAT
                              : choice_of("--weights", arguments.weights, weights_choices()).value;
  Reporter reporter({.quiet = arguments.quiet});
  // A format that needs a vocabulary says so.
  ModelArguments optional = arguments.model;
  optional.ids = true;
  const std::string memory =
      memory_directory(arguments.memory_directory, arguments.output,
                       fs::file_size(trafo::os::path_of(find_model(optional).model)));
  const LoadedModel loaded = load_model(optional, reporter, memory);
  double difference = 0;
  const Reporter::Phase phase(reporter, "exporting");
  if (format.value == kPeft) {
    if (!arguments.weights.empty()) usage_error("--weights: the adapter of --to peft is float32");
    check(trafo_model_save_adapter(loaded.model.get(), arguments.output.data(),
                                   arguments.output.size()));
    reporter.info(fmt::format("{}: the adapter, as a directory of PEFT", arguments.output));
    return kDone;
  }
  const std::string card =
      model_card({loaded.model.get(), find_model(optional).model, format.name, arguments.weights});
  check(trafo_model_export(loaded.model.get(), loaded.tokenizer.get(), format.value, weights,
                           arguments.output.data(), arguments.output.size(), nullptr, &difference));
  // After an error the export stays: it is whole and was checked.
  write_file((trafo::os::path_of(arguments.output) / "README.md").string(), card);
  reporter.info(fmt::format(
      "{}: {}, read back and checked, logits differ by at most {:.1e} from the model's in {:.1f} s",
      arguments.output, format.name, difference, phase.seconds()));
  return kDone;
}

struct ImportArguments {
  std::string from, output = "imported";
  std::string head, labels;
  std::string memory_directory;
  bool quiet = false;
};

// The model with the head of --head, for the labels of --labels.
Model with_head(const ImportArguments& arguments, const trafo_model* model) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < arguments.labels.size();) {
    const size_t comma = std::min(arguments.labels.find(',', begin), arguments.labels.size());
    names.push_back(arguments.labels.substr(begin, comma - begin));
    begin = comma + 1;
  }
  const int32_t head = choice_of("--head", arguments.head, kEncoderHeadChoices).value;
  trafo_model* made = nullptr;
  constexpr uint64_t kSeed = 1;
  check(trafo_model_with_head(model, head, views(names).data(), names.size(), kSeed, &made));
  return Model(made);
}

int import_from(const ImportArguments& arguments) {
  if (arguments.head.empty() && !arguments.labels.empty())
    usage_error("--labels comes with --head sequence or --head token");
  if (!fs::is_directory(trafo::os::path_of(arguments.from)))
    usage_error(arguments.from + ": no such directory");
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  auto options = with_defaults<trafo_context_options>(trafo_context_options_init);
  const std::string memory = memory_directory(arguments.memory_directory, arguments.output,
                                              float_bytes_in(arguments.from));
  options.memory_directory = {memory.data(), memory.size()};
  const auto context = make<Context>(trafo_context_new, &options);
  trafo_model* model = nullptr;
  trafo_tokenizer* tokenizer = nullptr;
  char* note = nullptr;
  const Reporter::Phase phase(reporter, "importing");
  check(trafo_model_import(context.get(), arguments.from.data(), arguments.from.size(), nullptr,
                           &model, &tokenizer, &note));
  Model owned_model(model);
  const Tokenizer owned_tokenizer(tokenizer);
  const Handle<char, trafo_string_free> owned_note(note);
  if (!arguments.head.empty()) owned_model = with_head(arguments, model);
  model = owned_model.get();
  const std::string model_path = write_model_folder(arguments.output, model, tokenizer);
  if (*note != '\0') reporter.warn(note);
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &elements));
  reporter.info(fmt::format("{}: {} weights{} in {:.1f} s", model_path, elements,
                            tokenizer != nullptr ? ", with its vocabulary" : "", phase.seconds()));
  return kDone;
}

}  // namespace

Action add_export(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  arguments->model.device = "cpu";
  arguments->model.precision = "fp32";
  app.add_option("--to", arguments->format, "the program that is to read it")
      ->required()
      ->type_name(type_of("FORMAT", export_choices()));
  app.add_option("--weights", arguments->weights,
                 "how matrices are stored; ctranslate2 has the first five, onnx float32 and int8, "
                 "gguf float32, "
                 "float16, q8_0 and q4_0, hf-compressed int8 and int4, the others float32 "
                 "(default: float16 for gguf, int8 for hf-compressed, bfloat16 for transformers if "
                 "all values of the model are bfloat16 numbers, otherwise float32)")
      ->type_name(type_of("TYPE", weights_choices()));
  app.add_option("-o,--output", arguments->output, "a directory that is new or empty")
      ->required()
      ->type_name("DIR");
  add_model_paths(app, arguments->model);
  add_adapter_argument(app, arguments->model);
  add_memory_directory(app, arguments->memory_directory);
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "A model with a LoRA adapter is exported with the adapter merged; peft writes the adapter "
      "alone. What is written is read back before it appears: its logits must be the model's, and "
      "with "
      "weights in fewer bits than float32 every weight must be within the rounding of its type.");
  return [arguments] { return export_to(*arguments); };
}

Action add_import(CLI::App& app) {
  auto arguments = std::make_shared<ImportArguments>();
  app.add_option(
         "--from", arguments->from,
         "directory of transformers with safetensors weights (docs/guide/import.md has the models)")
      ->required()
      ->type_name("DIR");
  app.add_option("-o,--output", arguments->output,
                 "directory for model.safetensors and vocabulary (default imported)")
      ->type_name("DIR");
  app.add_option("--head", arguments->head,
                 "give an encoder another head, with new weights where it has none")
      ->type_name(type_of("HEAD", kEncoderHeadChoices));
  app.add_option("--labels", arguments->labels,
                 "of --head sequence or token: the names of the labels, with commas between them")
      ->type_name("A,B,...");
  add_memory_directory(app, arguments->memory_directory);
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return [arguments] { return import_from(*arguments); };
}

}  // namespace translate_train
