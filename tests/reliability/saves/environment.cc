#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>

#include "tests/reliability/saves/run_trials.h"
#include "tests/reliability/saves/save_faults.h"

namespace trafo::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kNotAllowed = 77;

// In a child: separate mounts need a separate process, and a signal would be seen.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      status = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A separate file system with `options` ("size=1m"); errno has the reason of a failure.
bool mount_small(const fs::path& at, const char* options) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("trafo-test", at.c_str(), "tmpfs", 0, options) == 0;
}

int failures_of(const Suite& suite) {
  return suite.failures() == 0 ? 0 : 1;
}

void expect_io(Suite& suite, const std::string& label, const char* text,
               const std::function<void()>& action) {
  try {
    action();
    suite.failed(label + ": no error");
  } catch (const Error& error) {
    suite.require(error.code() == ErrorCode::io && mentions(error, text),
                  label + ": the error says " + error.what());
  }
}

// Filled to the last block in the middle of a run; then there is room again.
int full_disk(const RunTrials& trials, const fs::path& at, const char* options) {
  Suite suite("full disk");
  if (!mount_small(at, options)) return kNotAllowed;
  fs::copy(trials.prepared(), at / "run", fs::copy_options::recursive);
  {
    Process process = trials.open(at / "run");
    process.run->run({}, nullptr, RunTrials::kPaused - RunTrials::kSaved);
    for (int i = 0;; ++i) {  // blocks, or inodes
      std::ofstream out(at / concat("filler-", i), std::ios::binary);
      if (!out.is_open() || !out.write(std::string(16 << 10, 'x').data(), 16 << 10).flush()) break;
    }
    expect_io(suite, "full disk", "No space left on device", [&] { process.run->save(); });
    trials.check_checkpoints(suite, at / "run", RunTrials::kSavedLater, "full disk");
    for (const auto& entry : fs::directory_iterator(at))
      if (entry.path().filename().string().starts_with("filler-")) fs::remove(entry.path());
    trials.check_end(suite, process, "full disk");
  }
  trials.check_later_process(suite, at / "run", "full disk");
  return failures_of(suite);
}

// Mounted read-only, which stops root too.
int read_only(const RunTrials& trials, const fs::path& at) {
  Suite suite("read-only");
  if (!mount_small(at, "size=16m")) return kNotAllowed;
  fs::copy(trials.prepared(), at / "run", fs::copy_options::recursive);
  if (mount(nullptr, at.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return kNotAllowed;
  expect_io(suite, "read-only", "Read-only file system", [&] { trials.open(at / "run"); });
  expect_io(suite, "read-only", "Read-only file system", [&] { trials.open(at / "new"); });
  trials.check_checkpoints(suite, at / "run", RunTrials::kSaved, "read-only");
  return failures_of(suite);
}

int removed_while_running(const RunTrials& trials) {
  Suite suite("removed while running");
  const RunCopy run(trials.prepared());
  {
    Process process = trials.open(run.path());
    process.run->run({}, nullptr, RunTrials::kPaused - RunTrials::kSaved);
    fs::remove_all(run.path());
    expect_io(suite, "removed", run.path().c_str(), [&] { process.run->save(); });
    fs::copy(trials.prepared(), run.path(), fs::copy_options::recursive);
    trials.check_end(suite, process, "removed and put back");
  }
  trials.check_later_process(suite, run.path(), "removed and put back");
  return failures_of(suite);
}

int two_processes(const RunTrials& trials) {
  Suite suite("two processes");
  const RunCopy run(trials.prepared());
  const Process first = trials.open(run.path());
  const int second = in_child([&] {
    Suite other("second process");
    expect_io(other, "second process", "is in use by process", [&] { trials.open(run.path()); });
    return failures_of(other);
  });
  suite.require(second == 0, "two processes on one run directory");
  trials.check_checkpoints(suite, run.path(), RunTrials::kSaved, "two processes");
  return failures_of(suite);
}

}  // namespace

void try_environment(Suite& suite) {
  const RunTrials trials;
  const TemporaryDirectory mounts;
  const std::pair<const char*, std::function<int()>> cases[] = {
      {"no space", [&] { return full_disk(trials, mounts.path(), "size=512k"); }},
      {"no inodes", [&] { return full_disk(trials, mounts.path(), "size=16m,nr_inodes=40"); }},
      {"read-only", [&] { return read_only(trials, mounts.path()); }},
      {"removed while running", [&] { return removed_while_running(trials); }},
      {"two processes", [&] { return two_processes(trials); }},
  };
  for (const auto& [name, work] : cases) {
    const int status = in_child(work);
    if (status == kNotAllowed) {
      std::printf("environment, %s: SKIPPED, this process may not mount file systems\n", name);
      continue;
    }
    suite.tried();
    suite.require(status == 0, concat("environment, ", name, ": status ", status));
  }
}

}  // namespace trafo::testing
