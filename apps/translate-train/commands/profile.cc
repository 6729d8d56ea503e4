#include "commands/profile.h"

#include <fmt/format.h>

#include <sstream>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/os/names.h"
#include "settings/settings.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

// A profile from construction to write().
class Recording {
 public:
  Recording(const ProfileRequest& request, Reporter& reporter)
      : request_(request), reporter_(reporter) {
    check(trafo_context_profile_start(request.context, request.keep_graphs));
  }

  // The table is kept for the end of the run. False, and a warning, if the file cannot be written.
  bool write() {
    bool written = true;
    try {
      table_ = take(request_.path);
    } catch (const CliError& error) {
      reporter_.warn(fmt::format("the profile could not be written: {}", error.what()));
      written = false;
    }
    try {
      if (!written) table_ = take("");
    } catch (const CliError&) {  // a lost device: there is no table either
    }
    return written;
  }
  const std::string& table() const { return table_; }

 private:
  std::string take(const std::string& path) const {
    char* text = nullptr;
    check(trafo_context_profile_write(request_.context, path.data(), path.size(), &text));
    const std::string table = text;
    trafo_string_free(text);
    return table;
  }

  const ProfileRequest& request_;
  Reporter& reporter_;
  std::string table_;
};

}  // namespace

ProfileRequest profile_request(const std::string& path, const std::string& updates,
                               bool keep_graphs) {
  ProfileRequest request;
  request.path = path;
  request.keep_graphs = keep_graphs;
  if (path.empty()) {
    if (!updates.empty() || keep_graphs)
      usage_error("--profile-updates and --profile-graphs belong to --profile FILE");
    return request;
  }
  if (!updates.empty()) {
    const size_t colon = updates.find(':');
    if (colon == std::string::npos || !parse_count(updates.substr(0, colon), request.first) ||
        !parse_count(updates.substr(colon + 1), request.last) || request.first < 1 ||
        request.last < request.first)
      usage_error(
          fmt::format("--profile-updates: wants FROM:TO, the first and the last update to "
                      "profile, counted from 1; got '{}'",
                      updates));
  }
  // Now, and not when the updates have been run.
  std::error_code ignored;
  const fs::path parent = trafo::os::path_of(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (fs::is_directory(trafo::os::path_of(path), ignored))
    usage_error(fmt::format("--profile: {} is a directory, a file is wanted", path));
  if (!trafo::os::can_make_files_in(folder))
    usage_error(fmt::format("--profile: {} cannot be written: {}", path, std::strerror(errno)));
  return request;
}

bool run_profiled(const ProfileRequest& request, const std::function<int32_t(int64_t)>& run_for,
                  Reporter& reporter) {
  int32_t stop = request.first > 1 ? run_for(request.first - 1) : TRAFO_STOP_PAUSED;
  if (stop != TRAFO_STOP_PAUSED) {
    reporter.warn(
        fmt::format("the run ended before update {}, the first that --profile-updates "
                    "names: there is no profile",
                    request.first));
    return false;
  }
  Recording recording(request, reporter);
  bool written = false;
  try {
    stop = run_for(request.last - request.first + 1);
  } catch (...) {  // cancelled or failed: what there is may show why
    recording.write();
    throw;
  }
  written = recording.write();
  if (stop == TRAFO_STOP_PAUSED) run_for(0);
  reporter.info(fmt::format("profile of updates {} to {}{}", request.first, request.last,
                            written ? ": " + request.path : ""));
  std::istringstream table(recording.table());
  for (std::string line; std::getline(table, line);) reporter.info(line);
  return written;
}

void run_in_step(const ProfileRequest& request, const std::function<int32_t(int64_t)>& run_for) {
  if (!request.path.empty()) {
    if (request.first > 1 && run_for(request.first - 1) != TRAFO_STOP_PAUSED) return;
    if (run_for(request.last - request.first + 1) != TRAFO_STOP_PAUSED) return;
  }
  run_for(0);
}

}  // namespace translate_train
