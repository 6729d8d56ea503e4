// --profile: a few updates of a run are timed op by op.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "commands/trafo_handles.h"
#include "report/reporter.h"

namespace translate_train {

// Updates are counted from the first one of this process, from 1.
struct ProfileRequest {
  std::string path;  // empty: no profile
  int64_t first = 10, last = 15;
  bool keep_graphs = false;
  trafo_context* context = nullptr;
};

// Usage errors for a window that is none and for a file that could not be written. `updates`:
// "FROM:TO" or empty.
ProfileRequest profile_request(const std::string& path, const std::string& updates,
                               bool keep_graphs);

// Runs the trainer through `run_for` (updates, 0: to the end; returns TRAFO_STOP_*) with the window
// profiled, and reports the table and where the trace is. Nothing that happens to the profile ends
// the run. False: no trace was written, and a warning says why.
bool run_profiled(const ProfileRequest& request, const std::function<int32_t(int64_t)>& run_for,
                  Reporter& reporter);
// The same calls of `run_for`, with or without a profile, for a rank that reports nothing.
void run_in_step(const ProfileRequest& request, const std::function<int32_t(int64_t)>& run_for);

}  // namespace translate_train
