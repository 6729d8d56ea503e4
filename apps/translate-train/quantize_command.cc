#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct QuantizeArguments {
  ModelArguments model;
  std::string output;
  bool quiet = false;
};

double megabytes(uintmax_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

int quantize(QuantizeArguments arguments) {
  require_no_model_in(arguments.output);
  arguments.model.device = "cpu";
  arguments.model.weights = "int8";
  Reporter reporter({.quiet = arguments.quiet});
  const std::string from = find_model(arguments.model).model;
  const LoadedModel loaded = load_model(arguments.model, reporter);
  const Reporter::Phase phase(reporter, "writing");
  const std::string to =
      write_model_folder(arguments.output, loaded.model.get(), loaded.tokenizer.get());
  const auto before = fs::file_size(from), after = fs::file_size(to);
  reporter.info(fmt::format("{}: int8 weights, {:.2f} MB ({}: {:.2f} MB), with vocab.spm", to,
                            megabytes(after), from, megabytes(before)));
  return kDone;
}

}  // namespace

Action add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  add_model_paths(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocab.spm")
      ->required()
      ->type_name("DIR");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The matrices become int8 codes with a scale for each row; norms and biases stay float32. "
      "translate and score read DIR as any model. It cannot be trained, exported or averaged.");
  return [arguments] { return quantize(*arguments); };
}

}  // namespace translate_train
