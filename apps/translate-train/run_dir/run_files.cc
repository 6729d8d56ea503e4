#include "run_dir/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "commands/cli_error.h"
#include "commands/trafo_handles.h"
#include "engine/io/atomic_file.h"
#include "engine/os/file.h"
#include "engine/os/names.h"
#include "engine/os/process.h"
#include "settings/setting_types.h"

namespace translate_train {

namespace fs = std::filesystem;
namespace os = trafo::os;

namespace {

std::string taken(char* text) {
  std::string copy = text;
  trafo_string_free(text);
  return copy;
}

}  // namespace

std::vector<int64_t> checkpoints_of(const std::string& run) {
  int64_t count = 0;
  check(trafo_list_checkpoints(run.data(), run.size(), nullptr, 0, &count));
  std::vector<int64_t> updates(static_cast<size_t>(count));
  check(trafo_list_checkpoints(run.data(), run.size(), updates.data(), count, &count));
  updates.resize(std::min(updates.size(), static_cast<size_t>(count)));  // some may be gone
  return updates;
}

std::string checkpoint_model(const std::string& run, const std::string& name) {
  char* path = nullptr;
  check(trafo_find_checkpoint(run.data(), run.size(), name.data(), name.size(), &path));
  return taken(path);
}

std::string usual_model(const std::string& path) {
  char* found = nullptr;
  check(trafo_find_model(path.data(), path.size(), &found));
  return taken(found);
}

std::string vocabulary_in(const std::string& folder) {
  char* path = nullptr;
  try {
    check(trafo_find_vocabulary(folder.data(), folder.size(), &path));
  } catch (const CliError& error) {
    if (error.trafo_code() == TRAFO_NOT_FOUND) return "";
    throw;
  }
  const std::string found = path;
  trafo_string_free(path);
  return found;
}

namespace {

void refuse_special_file(const std::string& path) {
  std::error_code none;
  const fs::file_status status = fs::status(os::path_of(path), none);
  if (fs::exists(status) && !fs::is_regular_file(status))
    usage_error(path + ": is no regular file");
}

}  // namespace

void check_run_files(const std::string& run) {
  for (const char* name : {"config.yml", "metrics.jsonl", "train.log", "latest"})
    refuse_special_file((os::path_of(run) / name).string());
  if (const std::string vocabulary = vocabulary_in(run); !vocabulary.empty())
    refuse_special_file(vocabulary);
  for (const MetricSpec& metric : metric_specs())
    refuse_special_file((os::path_of(run) / "best-").string() + metric.name);
}

void check_run_directory(const std::string& run) {
  fs::path nearest = fs::absolute(os::path_of(run)).lexically_normal();
  if (!nearest.has_filename()) nearest = nearest.parent_path();  // RUN/
  std::error_code ignored;
  while (!fs::exists(nearest, ignored) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  if (!fs::is_directory(nearest, ignored))
    usage_error(fmt::format("--model {}: {} is no directory", run, nearest.string()));
  // Whether a folder can be made there is known for sure only when it was: rights, a read-only
  // disk.
  uint64_t number = 0;
  os::random_bytes(&number, sizeof number);
  const fs::path probe = nearest / fmt::format(".trafo-{:016x}", number);
  if (os::make_directory(probe) != 0)
    throw CliError(kFailed, fmt::format("--model {}: cannot be made in {}: {}", run,
                                        nearest.string(), std::strerror(errno)));
  os::remove_directory(probe);
}

std::ifstream open_run_file(const std::string& path) {
  refuse_special_file(path);
  return std::ifstream(os::path_of(path), std::ios::binary);
}

OutputFile::OutputFile(const std::string& path, Mode mode) {
  file_ = os::open_file(path, os::Open::write | os::Open::create | os::Open::no_follow |
                                  os::Open::no_wait |
                                  (mode == Mode::create ? os::Open::exclusive : os::Open::append));
  os::FileStatus status;
  if (file_ < 0 || (os::file_status(file_, status) == 0 &&
                    status.kind == os::FileStatus::Kind::regular && status.names == 1))
    return;
  os::close_file(file_);
  file_ = -1;
  errno = EPERM;
}

OutputFile::~OutputFile() {
  if (file_ >= 0) os::close_file(file_);
}

bool OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ptrdiff_t count = os::write_some(file_, text.data(), text.size());
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return is_open();
}

void make_own_folder(const std::string& path) {
  os::FileStatus status;
  if (os::make_directory(path) != 0 && errno != EEXIST)
    throw CliError(kFailed, path + ": " + std::strerror(errno));
  if (os::link_status_of(path, status) != 0 || status.kind != os::FileStatus::Kind::directory)
    throw CliError(kFailed, path + ": is a symbolic link or no directory");
}

bool replace_file(const std::string& path, std::string_view text) {
  try {
    trafo::write_file_atomically(os::path_of(path), text);
    return true;
  } catch (const trafo::Error&) {
    return false;
  }
}

void write_file(const std::string& path, std::string_view text) {
  if (!replace_file(path, text)) throw CliError(kFailed, path + ": cannot be written");
}

}  // namespace translate_train
