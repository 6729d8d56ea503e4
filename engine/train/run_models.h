// Finds the models of a run directory (docs/run-directory.md).
#pragma once

#include <filesystem>

#include "engine/core/option_enums.generated.h"

namespace trafo {

// The file of a model, for load_model(), which checks it. Best is by the first metric that the
// newest checkpoint lists. NOT_FOUND: there is no such directory, or no such model in it, and why.
// CORRUPT_FILE, VERSION, IO: of the newest checkpoint's state.json.
std::filesystem::path run_model_file(const std::filesystem::path& run_directory, RunModel which);

}  // namespace trafo
