#include "tests/reliability/io_faults.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

// The linker gives the engine's calls of NAME to __wrap_NAME, and ours of __real_NAME to NAME.
#define REMOVE_ALL(prefix) prefix##_ZNSt10filesystem10remove_allERKNS_7__cxx114pathERSt10error_code
extern "C" {
int __real_openat(int directory, const char* path, int flags, ...);
int __real_close(int fd);
ssize_t __real_write(int fd, const void* bytes, size_t count);
ssize_t __real_pread(int fd, void* bytes, size_t count, off_t offset);
int __real_ftruncate(int fd, off_t size);
int __real_fsync(int fd);
int __real_fstat(int fd, struct stat* status);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);
int __real_mkdir(const char* path, mode_t mode);
int __real_flock(int fd, int operation);
DIR* __real_opendir(const char* path);
struct dirent* __real_readdir(DIR* directory);
int __real_closedir(DIR* directory);
}

namespace trafo::testing {
namespace {

enum Trait : unsigned {
  kPlain = 0,
  kMayNeedSpace = 1,
  kMayWait = 2,
  kTransfers = 4,
  kMayBeMissing = 8,
};

struct Session {
  std::string root;
  std::optional<IoFaultPlan> plan;
  DiskModel* model = nullptr;
  std::map<int, std::string> files;
  std::map<DIR*, std::string> directories;
  int64_t calls = 0;     // all
  int64_t eligible = 0;  // those that can have the plan's fault
  std::string first_failure;

  bool watches(std::string_view path) const {
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  }
};

std::mutex mutex;
Session* session = nullptr;

// Action of a call: nothing special, or fail with `error`, or move half, or die.
struct Verdict {
  int error = 0;
  bool half = false, dies = false;
};

bool can_have(IoFault fault, unsigned traits) {
  switch (fault) {
    case IoFault::io_error:
    case IoFault::kill:
      return true;
    case IoFault::no_space:
      return (traits & kMayNeedSpace) != 0;
    case IoFault::interrupted:
      return (traits & kMayWait) != 0;
    case IoFault::short_transfer:
      return (traits & kTransfers) != 0;
    case IoFault::unsupported:
      return (traits & kMayBeMissing) != 0;
  }
  return false;
}

// With the mutex held.
Verdict judge(const char* call, const std::string& path, unsigned traits) {
  ++session->calls;
  if (!session->plan || !can_have(session->plan->fault, traits)) return {};
  const IoFaultPlan& plan = *session->plan;
  const int64_t number = ++session->eligible;
  if (number < plan.at || (number > plan.at && !plan.persistent)) return {};
  if (session->first_failure.empty()) session->first_failure = std::string(call) + " " + path;
  switch (plan.fault) {
    case IoFault::io_error:
      return {.error = EIO};
    case IoFault::no_space:
      return {.error = ENOSPC};
    case IoFault::interrupted:
      return {.error = EINTR};
    case IoFault::short_transfer:
      return {.half = true};
    case IoFault::kill:
      return {.dies = true};
    case IoFault::unsupported:
      return {.error = plan.error};
  }
  return {};
}

void die() {
  kill(getpid(), SIGKILL);
}

// Calls `real` unless the verdict is against it; `succeeded` hears of what was done.
template <class Result, class Real, class Succeeded>
Result guarded(const char* call, const std::string& path, unsigned traits, Result failed, Real real,
               Succeeded succeeded) {
  const std::lock_guard lock(mutex);
  if (session == nullptr || !session->watches(path)) return real();
  const Verdict verdict = judge(call, path, traits);
  if (verdict.dies) die();
  if (verdict.error != 0) {
    errno = verdict.error;
    return failed;
  }
  const Result result = real();
  if (result != failed) {
    const int kept = errno;
    succeeded(result);
    errno = kept;
  }
  return result;
}

std::string path_of(int fd) {
  const std::lock_guard lock(mutex);
  if (session == nullptr) return {};
  const auto found = session->files.find(fd);
  return found == session->files.end() ? std::string() : found->second;
}

std::string path_of(DIR* directory) {
  const std::lock_guard lock(mutex);
  if (session == nullptr) return {};
  const auto found = session->directories.find(directory);
  return found == session->directories.end() ? std::string() : found->second;
}

// As std::filesystem::remove_all, but each removal is a separate call.
int remove_stepwise(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return 0;
  const bool is_directory = status.type() == std::filesystem::file_type::directory;
  if (is_directory) {
    std::vector<std::filesystem::path> entries;
    for (const auto& entry : std::filesystem::directory_iterator(path, error))
      entries.push_back(entry.path());
    std::sort(entries.begin(), entries.end());
    for (const auto& entry : entries)
      if (remove_stepwise(entry) != 0) return -1;
  }
  return guarded(
      is_directory ? "rmdir" : "unlink", path.string(), kPlain, -1,
      [&] { return is_directory ? ::rmdir(path.c_str()) : __real_unlink(path.c_str()); },
      [&](int) {
        if (session->model != nullptr) session->model->remove(path.string());
      });
}

}  // namespace

const char* io_fault_name(IoFault fault) {
  switch (fault) {
    case IoFault::io_error:
      return "EIO";
    case IoFault::no_space:
      return "ENOSPC";
    case IoFault::interrupted:
      return "EINTR";
    case IoFault::short_transfer:
      return "short transfer";
    case IoFault::kill:
      return "kill";
    case IoFault::unsupported:
      return "missing operation";
  }
  return "?";
}

IoFaults::IoFaults(const std::filesystem::path& root, std::optional<IoFaultPlan> plan,
                   DiskModel* model) {
  const std::lock_guard lock(mutex);
  if (session != nullptr) throw std::logic_error("one IoFaults at a time");
  session = new Session;
  session->root = root.string();
  session->plan = plan;
  session->model = model;
}

IoFaults::~IoFaults() {
  const std::lock_guard lock(mutex);
  delete std::exchange(session, nullptr);
}

bool IoFaults::fired() const {
  const std::lock_guard lock(mutex);
  return !session->first_failure.empty();
}

std::string IoFaults::first_failure() const {
  const std::lock_guard lock(mutex);
  return session->first_failure;
}

int64_t IoFaults::calls() const {
  const std::lock_guard lock(mutex);
  return session->calls;
}

}  // namespace trafo::testing

using namespace trafo::testing;

extern "C" {

int __wrap_openat(int directory, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const bool creates = (flags & O_CREAT) != 0;
  return guarded(
      "open", path, kMayWait | (creates ? kMayNeedSpace : kPlain), -1,
      [&] { return __real_openat(directory, path, flags, mode); },
      [&](int fd) {
        session->files[fd] = path;
        if (session->model != nullptr && creates) session->model->create(path);
      });
}

// The descriptor is gone, whatever close() says.
int __wrap_close(int fd) {
  const std::string path = path_of(fd);
  const std::lock_guard lock(mutex);
  if (path.empty()) return __real_close(fd);
  session->files.erase(fd);
  const Verdict verdict = judge("close", path, kMayWait | kMayNeedSpace);
  if (verdict.dies) die();
  const int result = __real_close(fd);
  if (verdict.error == 0) return result;
  errno = verdict.error;
  return -1;
}

ssize_t __wrap_write(int fd, const void* bytes, size_t count) {
  const std::string path = path_of(fd);
  const std::lock_guard lock(mutex);
  if (path.empty()) return __real_write(fd, bytes, count);
  const Verdict verdict =
      judge("write", path, kMayWait | kMayNeedSpace | (count > 1 ? kTransfers : kPlain));
  if (verdict.error != 0) {
    errno = verdict.error;
    return -1;
  }
  const size_t part = verdict.half || verdict.dies ? count / 2 : count;
  const ssize_t written = __real_write(fd, bytes, part);
  if (verdict.dies) die();
  if (written > 0 && session->model != nullptr)
    session->model->write(path,
                          {static_cast<const std::byte*>(bytes), static_cast<size_t>(written)});
  return written;
}

ssize_t __wrap_pread(int fd, void* bytes, size_t count, off_t offset) {
  const std::string path = path_of(fd);
  const std::lock_guard lock(mutex);
  if (path.empty()) return __real_pread(fd, bytes, count, offset);
  const Verdict verdict = judge("read", path, kMayWait | (count > 1 ? kTransfers : kPlain));
  if (verdict.dies) die();
  if (verdict.error != 0) {
    errno = verdict.error;
    return -1;
  }
  return __real_pread(fd, bytes, verdict.half ? count / 2 : count, offset);
}

int __wrap_ftruncate(int fd, off_t size) {
  const std::string path = path_of(fd);
  return guarded(
      "ftruncate", path, kMayWait | kMayNeedSpace, -1, [&] { return __real_ftruncate(fd, size); },
      [&](int) {
        if (session->model != nullptr) session->model->truncate(path, static_cast<uint64_t>(size));
      });
}

int __wrap_fsync(int fd) {
  const std::string path = path_of(fd);
  std::error_code none;
  const unsigned missing =
      !path.empty() && std::filesystem::is_directory(path, none) ? kMayBeMissing : kPlain;
  return guarded(
      "fsync", path, kMayWait | kMayNeedSpace | missing, -1, [&] { return __real_fsync(fd); },
      [&](int) {
        if (session->model != nullptr) session->model->sync(path);
      });
}

int __wrap_fstat(int fd, struct stat* status) {
  return guarded(
      "fstat", path_of(fd), kPlain, -1, [&] { return __real_fstat(fd, status); }, [](int) {});
}

int __wrap_rename(const char* from, const char* to) {
  return guarded(
      "rename", to, kMayNeedSpace, -1, [&] { return __real_rename(from, to); },
      [&](int) {
        if (session->model != nullptr) session->model->rename(from, to);
      });
}

int __wrap_unlink(const char* path) {
  return guarded(
      "unlink", path, kPlain, -1, [&] { return __real_unlink(path); },
      [&](int) {
        if (session->model != nullptr) session->model->remove(path);
      });
}

int __wrap_mkdir(const char* path, mode_t mode) {
  return guarded(
      "mkdir", path, kMayNeedSpace, -1, [&] { return __real_mkdir(path, mode); },
      [&](int) {
        if (session->model != nullptr) session->model->make_directory(path);
      });
}

int __wrap_flock(int fd, int operation) {
  return guarded(
      "flock", path_of(fd), kMayWait | kMayBeMissing, -1,
      [&] { return __real_flock(fd, operation); }, [](int) {});
}

DIR* __wrap_opendir(const char* path) {
  return guarded(
      "opendir", path, kMayWait, static_cast<DIR*>(nullptr), [&] { return __real_opendir(path); },
      [&](DIR* directory) { session->directories[directory] = path; });
}

struct dirent* __wrap_readdir(DIR* directory) {
  return guarded(
      "readdir", path_of(directory), kPlain, static_cast<struct dirent*>(nullptr),
      [&] { return __real_readdir(directory); }, [](struct dirent*) {});
}

int __wrap_closedir(DIR* directory) {
  const std::string path = path_of(directory);
  const std::lock_guard lock(mutex);
  if (!path.empty()) {
    session->directories.erase(directory);
    if (judge("closedir", path, kPlain).dies) die();
  }
  return __real_closedir(directory);
}

std::uintmax_t REMOVE_ALL(__wrap_)(const std::filesystem::path& path, std::error_code& error) {
  error.clear();
  if (remove_stepwise(path) == 0) return 1;
  error.assign(errno, std::generic_category());
  return static_cast<std::uintmax_t>(-1);
}

}  // extern "C"
