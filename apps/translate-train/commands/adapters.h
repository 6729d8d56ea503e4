// LoRA adapters of a training run, and directories of adapters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/trafo_handles.h"
#include "settings/settings.h"

namespace translate_train {

// Of --lora-rank, --lora-alpha and --lora-targets.
struct AdapterSettings {
  int64_t rank;
  double alpha;
  std::string targets;  // with commas between them; empty: all
};
// No value: the run trains no adapter. Throws usage errors.
std::optional<AdapterSettings> adapter_settings(const Settings& settings);
// The same for a plan, which needs no model and does not depend on alpha.
std::optional<AdapterSettings> planned_adapter(const Settings& settings);
// Adds it to a model. Returns what to tell the user.
std::string add_adapter(trafo_model* model, const AdapterSettings& adapter, uint64_t seed);

// Adds the adapter in `path`: a directory of one, or a run directory that has it in adapter/.
void load_adapter(trafo_model* model, const std::string& path);
// Writes the adapter of a run's best checkpoint to RUN/adapter. Returns what to tell the user.
std::string write_run_adapter(const std::string& run);

}  // namespace translate_train
