// How far a call is, for the program that made it.
//
// Code that works for long makes a WorkProgress. The program is told if the thread's call has a
// ProgressScope.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace trafo {

// The number that counts is beside each.
enum class Work : int32_t {
  read_text = 0,         // bytes of the files
  gather_text = 1,       // lines
  learn_vocabulary = 2,  // subwords
  encode_text = 3,       // pairs
  score = 4,             // pairs
  translate = 5,         // lines
  validate = 6,          // sequences
  evaluate = 7,          // lines
  resample = 8,          // resamples
  convert_weights = 9,   // weights
  calibrate = 10,        // tokens
  compress = 11,         // tensors
  learn_shortlist = 12,  // pairs
};

class WorkProgress;

// While it lives, work of this thread tells how far it is.
class ProgressScope {
 public:
  // total 0: unknown. False: the call is to end; it is not told again.
  using Tell = std::function<bool(Work work, int64_t done, int64_t total)>;
  explicit ProgressScope(Tell tell) : tell_(std::move(tell)), before_(current_) { current_ = this; }
  ~ProgressScope() { current_ = before_; }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  friend class WorkProgress;
  friend class ProgressPause;
  static constinit inline thread_local ProgressScope* current_ = nullptr;

  const Tell tell_;
  ProgressScope* const before_;
  WorkProgress* work_ = nullptr;  // the work that tells
  std::chrono::steady_clock::time_point told_;
  bool stopped_ = false;
};

// While it lives, work of this thread tells nothing, but in a ProgressScope inside of it.
class ProgressPause {
 public:
  ProgressPause() : before_(std::exchange(ProgressScope::current_, nullptr)) {}
  ~ProgressPause() { ProgressScope::current_ = before_; }
  ProgressPause(const ProgressPause&) = delete;
  ProgressPause& operator=(const ProgressPause&) = delete;

 private:
  ProgressScope* const before_;
};

// A piece of work. Tells when it begins, when it ends, and at most every 100 ms between. Inside of
// another one it tells nothing.
class WorkProgress {
 public:
  explicit WorkProgress(Work work, int64_t total = 0);  // 0: unknown
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // The one of this kind that tells on this thread, or null. It outlives threads that work for it.
  static WorkProgress* current(Work work) noexcept;

  // From any thread; only the one that has made it tells.
  void add(int64_t amount) {
    if (scope_ != nullptr) count(amount);
  }
  // Sets the total if it is unknown.
  void expect(int64_t total) noexcept;
  // The work is done. CANCELLED if the program has asked for the end meanwhile.
  void finish();

 private:
  void count(int64_t amount);
  void tell();

  ProgressScope* scope_ = nullptr;  // null: silent
  const Work work_;
  std::atomic<int64_t> done_{0}, total_;
};

}  // namespace trafo
