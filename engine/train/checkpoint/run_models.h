// Finds the models of a run directory (docs/guide/run-directory.md).
#pragma once

#include <filesystem>
#include <string>

#include "engine/core/option_enums.generated.h"

namespace trafo {

// The file of a model, for load_model(), which checks it. Best is by the first metric in the newest
// checkpoint's state.json that has judged a model. Nothing else decides which model is the best.
// NOT_FOUND: there is no such directory, or no such model in it, and why. CORRUPT_FILE, VERSION,
// IO: of that state.json.
std::filesystem::path run_model_file(const std::filesystem::path& run_directory, RunModel which);

// The model file of a checkpoint of a run by its name: an update, a pointer of the run ("latest",
// "best-METRIC"), or "averaged". NOT_FOUND: there is no such directory, or no such checkpoint in
// it. CORRUPT_FILE: the pointer names no update.
std::filesystem::path checkpoint_model_file(const std::filesystem::path& run_directory,
                                            const std::string& name);

// The model file that a path means: the file itself, the model.safetensors in a directory, or the
// best model of a run directory, or its newest if none was judged or the best was not kept. Errors
// as above.
std::filesystem::path find_model_file(const std::filesystem::path& path);

}  // namespace trafo
