// Records time ranges: the forward and backward of every op, and the phases of training steps.
//
// Host times come from the steady clock. On an accelerator a range also has device times, from
// marks (StreamDevice::record_time) issued before and after its work. The marks are read when the
// profile ends, so that nothing waits before. Device times are converted to the host's clock: when
// a profile begins, the idle device passes a mark between two readings of the host's clock. The
// tightest of several such pairs gives the offset.
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

  // Starts a profile and drops an unfinished one. Waits for the device. graphs: a step that is
  // replayed as a graph stays one range; otherwise it is launched kernel by kernel.
  void start(bool graphs);
  // Ends the profile and all open ranges; waits for the device.
  Trace finish();
  bool recording() const { return recording_; }
  bool keeps_graphs() const { return !recording_ || graphs_; }
  // True if a tool is attached that takes the names of ranges (NVTX), recorded or not.
  bool annotates() const { return names_ != nullptr; }
  void look_for_tools();

  // A range that has begun.
  struct Token {
    int64_t index = -1;  // -1: not recorded
    uint32_t profile = 0;
    bool named = false, backward = false;
  };
  // on_device: with device times, on an accelerator. Ranges end in reverse order.
  Token begin(const char* name, TraceKind kind, bool on_device);
  void add_input(const Token& token, const Shape& shape, DType dtype);
  // Says which kernel ran in the innermost open range; `name` is of static storage duration.
  void set_kernel(const char* name);
  void end(const Token& token) noexcept;

  // For graph capture, where work does not run: turns device times off during its lifetime.
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

  static constexpr size_t kMaxRanges = size_t{1} << 20;

 private:
  using Clock = std::chrono::steady_clock;
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
  }
  void calibrate();
  void read_marks();

  Backend& backend_;
  StreamDevice* device_ = nullptr;  // for device times
  StreamDevice* names_ = nullptr;   // for names of ranges
  bool recording_ = false;
  bool graphs_ = false;
  uint32_t profile_ = 0;  // number of the profile
  Clock::time_point begin_;
  Trace trace_;
  std::vector<int64_t> open_;
  int backward_ = 0;  // open backward ranges
  // First and last mark of each range from `unread_` on; -1: none.
  std::vector<std::pair<int64_t, int64_t>> marks_;
  size_t unread_ = 0;
  int64_t marks_issued_ = 0;
  int64_t anchor_ = 0, anchor_time_ = 0;  // a mark whose host time is known
};

// A range from construction to destruction. Does nothing if `profiler` is null.
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
