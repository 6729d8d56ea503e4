// Records ranges of time: every op forward and backward, and the phases of training steps.
//
// Host times are those of the steady clock. On an accelerator a range also gets device times: marks
// (StreamDevice::record_time) issued before and after its work, read when the profile ends, so that
// nothing waits meanwhile. Both are on the host's clock: when the profile begins the device is
// idle, a mark is issued and waited for at once, and it passed between the two host times around
// it; of several tries the tightest counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/runtime/trace.h"

namespace trafo {

// One thread at a time; the backend must outlive it.
class Profiler {
 public:
  explicit Profiler(Backend& backend) : backend_(backend) {}
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Begins a profile; one that was being recorded is dropped. Waits for the device. graphs: steps
  // that a device replays as one graph stay so, as one range; else they are issued kernel by
  // kernel.
  void start(bool graphs);
  // Ends it, and the ranges that are open; waits for the device.
  Trace finish();
  bool recording() const { return recording_; }
  bool keeps_graphs() const { return !recording_ || graphs_; }
  // A tool looks on and wants the names of ranges (NVTX), recorded or not.
  bool annotates() const { return names_ != nullptr; }
  void look_for_tools();

  // A range that has begun.
  struct Token {
    int64_t index = -1;  // -1: not recorded
    uint32_t profile = 0;
    bool named = false, backward = false;
  };
  // on_device: with device times, where there is a device. Ranges end in reverse order.
  Token begin(const char* name, TraceKind kind, bool on_device);
  void add_input(const Token& token, const Shape& shape, DType dtype);
  void end(const Token& token) noexcept;

  // While one lives, work is recorded instead of run: it has no device times.
  class NoDeviceTimes {
   public:
    explicit NoDeviceTimes(Profiler* profiler)
        : profiler_(profiler), device_(profiler ? profiler->device_ : nullptr) {
      if (profiler_) profiler_->device_ = nullptr;
    }
    ~NoDeviceTimes() {
      if (profiler_) profiler_->device_ = device_;
    }
    NoDeviceTimes(const NoDeviceTimes&) = delete;
    NoDeviceTimes& operator=(const NoDeviceTimes&) = delete;

   private:
    Profiler* profiler_;
    StreamDevice* device_;
  };

  static constexpr size_t kMostRanges = size_t{1} << 20;

 private:
  using Clock = std::chrono::steady_clock;
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
  }
  void calibrate();
  void read_marks();

  Backend& backend_;
  StreamDevice* device_ = nullptr;  // that gives device times
  StreamDevice* names_ = nullptr;   // that hands names on
  bool recording_ = false;
  bool graphs_ = false;
  uint32_t profile_ = 0;  // counts them
  Clock::time_point begin_;
  Trace trace_;
  std::vector<int64_t> open_;
  int backward_ = 0;  // open backward ranges
  // Marks of the ranges from `unread_` on; -1: none.
  std::vector<std::pair<int64_t, int64_t>> marks_;
  size_t unread_ = 0;
  int64_t marks_issued_ = 0;
  int64_t anchor_ = 0, anchor_time_ = 0;  // a mark whose time is known
};

// A range from construction to destruction; nothing without a profiler.
class ProfileRange {
 public:
  ProfileRange(Profiler* profiler, const char* name, TraceKind kind, bool on_device)
      : profiler_(profiler) {
    if (profiler_) [[unlikely]]
      token_ = profiler_->begin(name, kind, on_device);
  }
  ~ProfileRange() {
    if (profiler_) [[unlikely]]
      profiler_->end(token_);
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 protected:
  Profiler* profiler_;
  Profiler::Token token_;
};

}  // namespace trafo
