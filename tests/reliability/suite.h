// Common parts of the programs of this folder: they count what they try and end with one line that
// run.py reads.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace trafo::testing {

class Suite {
 public:
  explicit Suite(std::string name) : name_(std::move(name)) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // children that end must not repeat it
  }

  void tried(int64_t count = 1) { tried_ += count; }
  // One that went wrong. The first ones are told.
  void failed(const std::string& what) {
    if (++failed_ <= kTold) std::fprintf(stderr, "%s: %s\n", name_.c_str(), what.c_str());
  }
  void require(bool condition, const std::string& what) {
    if (!condition) failed(what);
  }
  int64_t trials() const { return tried_; }
  int64_t failures() const { return failed_; }
  // Counts of a part in a separate process, which has reported them.
  void add_failures(int64_t count) { failed_ += count; }
  const std::string& name() const { return name_; }

  // The line, and the exit status of the program.
  int finish() const {
    std::printf("suite: %s  tried: %lld  failed: %lld\n", name_.c_str(),
                static_cast<long long>(tried_), static_cast<long long>(failed_));
    std::fflush(stdout);
    return failed_ == 0 && tried_ > 0 ? 0 : 1;
  }

 private:
  static constexpr int64_t kTold = 20;
  std::string name_;
  int64_t tried_ = 0, failed_ = 0;
};

// For tests that look at what was written and not at the disk: its fsync takes most of their time.
// TMPDIR decides if it is set.
inline void prefer_memory_file_system() {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
}

inline bool is_long(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--long") == 0) return true;
  return false;
}

}  // namespace trafo::testing
