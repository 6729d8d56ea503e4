#include "commands/adapters.h"

#include <fmt/format.h>

#include <filesystem>

#include "commands/device.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"
#include "report/reporter.h"
#include "run_dir/run_files.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "adapter";
constexpr const char* kConfigFile = "adapter_config.json";

void refuse_without_adapter(const Settings& settings) {
  for (const Setting setting : {Setting::lora_alpha, Setting::lora_targets})
    if (settings.has(setting)) settings.refuse(setting, "is for an adapter: give --lora-rank");
  if (settings.has(Setting::base_precision) &&
      settings.model.base_precision != TRAFO_BASE_PRECISION_NONE)
    settings.refuse(Setting::base_precision,
                    "freezes the matrices of linear layers: give --lora-rank");
}

// With commas between them; empty: all.
std::string targets_of(const Settings& settings) {
  return fmt::format("{}", fmt::join(settings.program.lora_targets, ","));
}

void refuse_quantization(const Settings& settings) {
  if (settings.trainer.quantize_bits != 0)
    settings.refuse(Setting::quantize_bits,
                    "trains every weight of a matrix, --lora-rank freezes them: merge the adapter "
                    "first");
}

}  // namespace

std::optional<AdapterSettings> adapter_settings(const Settings& settings) {
  const ProgramSettings& given = settings.program;
  if (!settings.has(Setting::lora_rank)) {
    refuse_without_adapter(settings);
    return std::nullopt;
  }
  AdapterSettings adapter{given.lora_rank, 2 * static_cast<double>(given.lora_rank), {}};
  if (settings.has(Setting::lora_alpha)) adapter.alpha = given.lora_alpha;
  if (!settings.has(Setting::pretrained_model))
    settings.refuse(Setting::lora_rank,
                    "an adapter is for a model that is trained already: give "
                    "--pretrained-model");
  if (settings.has(Setting::freeze))
    settings.refuse(Setting::freeze, "--lora-rank freezes the whole pretrained model");
  refuse_quantization(settings);
  adapter.targets = targets_of(settings);
  return adapter;
}

std::optional<AdapterSettings> planned_adapter(const Settings& settings) {
  if (!settings.has(Setting::lora_rank)) {
    refuse_without_adapter(settings);
    return std::nullopt;
  }
  for (const Setting setting : {Setting::freeze, Setting::teacher})
    if (settings.has(setting)) settings.refuse(setting, "is not planned with --lora-rank");
  refuse_quantization(settings);
  return AdapterSettings{settings.program.lora_rank, 1, targets_of(settings)};
}

std::string add_adapter(trafo_model* model, const AdapterSettings& adapter, uint64_t seed) {
  check(trafo_model_add_adapter(model, adapter.rank, adapter.alpha, adapter.targets.data(),
                                adapter.targets.size(), seed));
  int64_t tensors = 0, all = 0, trained = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &all));
  for (int64_t i = 0; i < tensors; ++i) {
    trafo_parameter_info info{};
    check(trafo_model_get_parameter_info(model, i, &info, sizeof info));
    if (info.trainable != 0) trained += info.elements;
  }
  return fmt::format("adapter: rank {}, alpha {:g}, {}; {} of {} parameters are trained",
                     adapter.rank, adapter.alpha,
                     adapter.targets.empty() ? "all targets" : adapter.targets, grouped(trained),
                     grouped(all));
}

void load_adapter(trafo_model* model, const std::string& path) {
  fs::path folder = trafo::os::path_of(path);
  if (!fs::is_directory(folder)) usage_error("--adapter: " + path + ": no such directory");
  if (!fs::exists(folder / kConfigFile)) folder /= kFolder;
  if (!fs::exists(folder / kConfigFile))
    usage_error(fmt::format("--adapter: {} has no {}, nor a folder {} with one", path, kConfigFile,
                            kFolder));
  const std::string name = folder.string();
  check(trafo_model_load_adapter(model, name.data(), name.size()));
}

std::string write_run_adapter(const std::string& run) {
  if (checkpoints_of(run).empty()) return run + ": no checkpoint, and so no adapter";
  const std::string file = usual_model(run);
  const trafo_context_options cpu = context_options("cpu", 1, true);
  const auto context = make<Context>(trafo_context_new, &cpu);
  const auto model = make<Model>(trafo_model_load, context.get(), file.data(), file.size());
  const std::string folder = run + "/" + kFolder;
  trafo::MadeDirectory output(trafo::os::path_of(folder));
  make_own_folder(folder);
  check(trafo_model_save_adapter(model.get(), folder.data(), folder.size()));
  output.keep();
  return fmt::format("{}: the adapter of {}", folder, file);
}

}  // namespace translate_train
