#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>

#include "commands.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char* name;
  int32_t value;
};
constexpr std::array<Format, 5> kFormats = {{{"hf-marian", TRAFO_EXPORT_HF_MARIAN},
                                             {"hf-gpt2", TRAFO_EXPORT_HF_GPT2},
                                             {"hf-llama", TRAFO_EXPORT_HF_LLAMA},
                                             {"ctranslate2", TRAFO_EXPORT_CTRANSLATE2},
                                             {"onnx", TRAFO_EXPORT_ONNX}}};

std::string format_names() {
  std::string names;
  for (const Format& each : kFormats) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

struct ExportArguments {
  ModelArguments model;
  std::string format, output;
  bool quiet = false;
};

int export_to(const ExportArguments& arguments) {
  const Format* format = nullptr;
  for (const Format& each : kFormats)
    if (arguments.format == each.name) format = &each;
  if (format == nullptr)
    usage_error("--to " + arguments.format + ": there is no such format; there are " +
                format_names());
  Reporter reporter({.quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  double difference = 0;
  const Reporter::Phase phase(reporter, "exporting");
  check(trafo_model_export(loaded.model.get(), loaded.tokenizer.get(), format->value,
                           arguments.output.data(), arguments.output.size(), &difference));
  reporter.info(fmt::format(
      "{}: {}, read back and checked, logits differ by at most {:.1e} from the model's in {:.1f} s",
      arguments.output, format->name, difference, phase.seconds()));
  return kDone;
}

struct ImportArguments {
  std::string from, output = "imported";
  bool quiet = false;
};

int import_from(const ImportArguments& arguments) {
  if (!fs::is_directory(arguments.from)) usage_error(arguments.from + ": no such directory");
  const fs::path folder = arguments.output;
  const std::string model_path = (folder / "model.safetensors").string();
  const std::string vocabulary_path = (folder / "vocab.spm").string();
  for (const std::string& path : {model_path, vocabulary_path})
    if (fs::exists(path)) usage_error(path + ": exists already");
  Reporter reporter({.quiet = arguments.quiet});
  const auto context =
      make<Context>(trafo_context_new, static_cast<trafo_context_options*>(nullptr));
  trafo_model* model = nullptr;
  trafo_tokenizer* tokenizer = nullptr;
  char* note = nullptr;
  const Reporter::Phase phase(reporter, "importing");
  check(trafo_model_import(context.get(), arguments.from.data(), arguments.from.size(), &model,
                           &tokenizer, &note));
  const Model owned_model(model);
  const Tokenizer owned_tokenizer(tokenizer);
  const Handle<char, trafo_string_free> owned_note(note);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) usage_error(arguments.output + ": cannot be made: " + error.message());
  if (tokenizer != nullptr)
    check(trafo_tokenizer_save(tokenizer, vocabulary_path.data(), vocabulary_path.size()));
  check(trafo_model_save(model, model_path.data(), model_path.size()));
  if (*note != '\0') reporter.warn(note);
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &elements));
  reporter.info(fmt::format("{}: {} weights{} in {:.1f} s", model_path, elements,
                            tokenizer != nullptr ? ", with vocab.spm" : "", phase.seconds()));
  return kDone;
}

}  // namespace

Action add_export(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  arguments->model.device = "cpu";
  arguments->model.precision = "fp32";
  app.add_option("--to", arguments->format, "one of " + format_names())
      ->required()
      ->type_name("FORMAT");
  app.add_option("-o,--output", arguments->output, "a directory that is new or empty")
      ->required()
      ->type_name("DIR");
  add_model_paths(app, arguments->model);
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer("What is written is read back before it appears: its logits must be the model's.");
  return [arguments] { return export_to(*arguments); };
}

Action add_import(CLI::App& app) {
  auto arguments = std::make_shared<ImportArguments>();
  app.add_option("--from", arguments->from,
                 "MarianMT, GPT-2 or Llama directory of transformers, with model.safetensors")
      ->required()
      ->type_name("DIR");
  app.add_option("-o,--output", arguments->output,
                 "directory for model.safetensors and vocab.spm (default imported)")
      ->type_name("DIR");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return [arguments] { return import_from(*arguments); };
}

}  // namespace translate_train
