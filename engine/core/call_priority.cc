#include "engine/core/call_priority.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace trafo {
namespace {

// Calls end at any time, so a pause looks for their end this often.
constexpr std::chrono::microseconds kStep{500};

// Threads that are in a call in the foreground, in the whole process.
constinit std::atomic<int> foreground_threads{0};

}  // namespace

bool BackgroundShare::others_compute() noexcept {
  return foreground_threads.load(std::memory_order_relaxed) > 0;
}

bool BackgroundShare::must_give_way() const noexcept {
  return others_compute() &&
         Clock::now().time_since_epoch().count() >= slice_end_.load(std::memory_order_relaxed);
}

// One of the threads that pause measures the time, and begins the next slice for all of them.
void BackgroundShare::pause(Duration beyond) noexcept {
  const bool measures = !measured_.exchange(true, std::memory_order_acquire);
  const auto length =
      std::chrono::duration_cast<Clock::duration>((kSlice + beyond) * ((1.0 - share_) / share_));
  Clock::time_point now = Clock::now();
  while (others_compute()) {
    const auto left = measures ? length - paused_ : Clock::duration(kStep);
    std::this_thread::sleep_for(std::clamp(left, Clock::duration(0), Clock::duration(kStep)));
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now.time_since_epoch().count() < slice_end_.load(std::memory_order_relaxed)) break;
    if (!measures) continue;
    paused_ += now - before;
    if (paused_ < length) continue;
    paused_ = Clock::duration(0);
    slice_end_.store((now + kSlice).time_since_epoch().count(), std::memory_order_relaxed);
    break;
  }
  if (measures) measured_.store(false, std::memory_order_release);
}

CallPriority::CallPriority(BackgroundShare& share) noexcept : previous_(background_) {
  if (foreground_) return;
  counted_ = share.in_foreground();
  foreground_ = counted_;
  background_ = counted_ ? nullptr : &share;
  if (counted_) foreground_threads.fetch_add(1, std::memory_order_relaxed);
}

CallPriority::~CallPriority() {
  if (counted_) {
    foreground_threads.fetch_sub(1, std::memory_order_relaxed);
    foreground_ = false;
  }
  background_ = previous_;
}

}  // namespace trafo
