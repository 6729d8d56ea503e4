#include "run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli_error.h"

namespace translate_train {

namespace fs = std::filesystem;

namespace {

// An update as the library writes it: its pointers and its folders have no other form.
bool is_update(const std::string& text) {
  return !text.empty() && text.size() < 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<int64_t> checkpoints_of(const std::string& run) {
  std::vector<int64_t> updates;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(run) / "ckpt", none)) {
    const std::string name = entry.path().filename().string();
    if (is_update(name) && fs::exists(entry.path() / kModelFile))
      updates.push_back(std::stoll(name));
  }
  std::sort(updates.begin(), updates.end());
  return updates;
}

std::string pointed_checkpoint(const std::string& run, const std::string& name) {
  check_run_files(run);
  std::error_code none;
  if (!fs::is_regular_file(fs::path(run) / name, none)) return "";
  std::ifstream in(fs::path(run) / name);
  char text[64] = "";
  in.read(text, sizeof text - 1);
  std::string update(text);
  if (update.ends_with('\n')) update.pop_back();
  if (!is_update(update)) return "";
  const fs::path path = fs::path(run) / "ckpt" / update;
  return fs::exists(path / kModelFile) ? path.string() : "";
}

std::string usual_checkpoint(const std::string& run) {
  const std::string best = pointed_checkpoint(run, "best-bleu");
  return best.empty() ? pointed_checkpoint(run, "latest") : best;
}

void check_run_files(const std::string& run) {
  for (const char* name : {"config.yml", "vocab.spm", "metrics.jsonl", "train.log", "latest",
                           "best-bleu", "best-chrf", "best-ce-mean-words"}) {
    const fs::path path = fs::path(run) / name;
    std::error_code none;
    const fs::file_status status = fs::status(path, none);
    if (fs::exists(status) && !fs::is_regular_file(status))
      usage_error(path.string() + ": is no regular file");
  }
}

OutputFile::OutputFile(const std::string& path, Mode mode) {
  // O_NONBLOCK: opening a FIFO must not wait for its reader.
  file_ = open(path.c_str(),
               O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
                   (mode == Mode::create ? O_EXCL : O_APPEND),
               0666);
  struct stat info {};
  if (file_ < 0 || (fstat(file_, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1))
    return;
  close(file_);
  file_ = -1;
  errno = EPERM;
}

OutputFile::~OutputFile() {
  if (file_ >= 0) close(file_);
}

bool OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return is_open();
}

void make_own_folder(const std::string& path) {
  struct stat info {};
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    throw CliError(kFailed, path + ": " + std::strerror(errno));
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    throw CliError(kFailed, path + ": is a symbolic link or no directory");
}

namespace {

// An open directory: what is written there stays there, whatever becomes of the path.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : file_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~Folder() {
    if (file_ >= 0) close(file_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // A new file with all of the text, on the disk.
  bool write(const std::string& name, std::string_view text) const {
    const int file =
        openat(file_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return false;
    bool done = true;
    while (done && !text.empty()) {
      const ssize_t count = ::write(file, text.data(), text.size());
      if (count > 0) text.remove_prefix(static_cast<size_t>(count));
      done = count > 0 || (count < 0 && errno == EINTR);
    }
    done = done && fsync(file) == 0;
    return close(file) == 0 && done;
  }
  bool rename(const std::string& from, const std::string& to) const {
    return renameat(file_, from.c_str(), file_, to.c_str()) == 0;
  }
  void remove(const std::string& name) const { unlinkat(file_, name.c_str(), 0); }
  void sync() const { fsync(file_); }

 private:
  int file_;
};

}  // namespace

bool replace_file(const std::string& path, std::string_view text) {
  const fs::path target(path);
  const Folder folder(target.has_parent_path() ? target.parent_path().string() : ".");
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return false;
  // The library's form: it removes what a process that died left in a run directory.
  const std::string name = target.filename().string(),
                    temporary = fmt::format(".{}.tmp-{}-{}", name, getpid(), number >> 1);
  if (folder.write(temporary, text) && folder.rename(temporary, name)) {
    folder.sync();  // the file is there in any case
    return true;
  }
  folder.remove(temporary);
  return false;
}

void write_file(const std::string& path, std::string_view text) {
  if (!replace_file(path, text)) throw CliError(kFailed, path + ": cannot be written");
}

}  // namespace translate_train
