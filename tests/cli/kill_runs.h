// A small run of translate-train that is killed and continued.
#pragma once

#include <map>
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
// Every file of the run directory but the log and the lock, by name, without what a clock or the
// number of threads decides: times and speeds, and the checksums of files that have them.
std::map<std::string, std::string> final_files(const TemporaryFolder& folder,
                                               const std::string& run);
// The names of files that differ or that only one of the two has.
std::string differences(const std::map<std::string, std::string>& a,
                        const std::map<std::string, std::string>& b);

}  // namespace translate_train::testing
