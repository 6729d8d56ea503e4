#include <fmt/format.h>

#include <memory>

#include "commands/commands.h"

namespace translate_train {
namespace {

struct MergeArguments {
  ModelArguments model;
  std::string output;
  bool quiet = false;
};

int merge(const MergeArguments& arguments) {
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  const Reporter::Phase phase(reporter, "merging");
  check(trafo_model_merge_adapter(loaded.model.get()));
  const std::string path =
      write_model_folder(arguments.output, loaded.model.get(), loaded.tokenizer.get());
  reporter.info(fmt::format("{}: the model with its adapter merged, with its vocabulary", path));
  return kDone;
}

}  // namespace

Action add_merge(CLI::App& app) {
  auto arguments = std::make_shared<MergeArguments>();
  arguments->model.device = "cpu";
  arguments->model.precision = "fp32";
  add_model_paths(app, arguments->model);
  add_adapter_argument(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocabulary")
      ->required()
      ->type_name("DIR");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The result is a model like any other: it can be trained, quantized, exported, and decodes "
      "as fast as the base. A run directory of train --lora-rank needs no --adapter.");
  return [arguments] { return merge(*arguments); };
}

}  // namespace translate_train
