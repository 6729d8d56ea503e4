// A small run of translate-train that is killed and continued.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace translate_train::testing {

inline constexpr int kKilledUpdates = 60;

// Corpora and a vocabulary; returns what was wrong, or nothing.
std::string prepare_killed_runs(const TemporaryFolder& folder);
std::vector<std::string> killed_run_command(const std::string& run, int threads);
// Of the last checkpoint.
std::string final_weights(const TemporaryFolder& folder, const std::string& run);

}  // namespace translate_train::testing
