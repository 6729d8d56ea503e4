// Calls in the foreground and in the background. While calls in the foreground are in flight, a
// call in the background computes only a share of the time. Results never depend on it.
#pragma once

#include <atomic>
#include <chrono>

namespace trafo {

// The share of one context. Every thread that computes for the context calls give_way() between
// two pieces of work.
class BackgroundShare {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // Longest time that calls in the background compute before they pause, while calls in the
  // foreground are in flight. A piece of work that has begun is finished first.
  static constexpr std::chrono::microseconds kSlice{1000};
  static constexpr double kLeast = 0.001;

  BackgroundShare() = default;
  BackgroundShare(const BackgroundShare&) = delete;
  BackgroundShare& operator=(const BackgroundShare&) = delete;

  // kLeast to 1, which is the foreground. Not while a call of the context is in flight.
  void set(double share) { share_ = share; }
  bool in_foreground() const { return share_ >= 1.0; }

  // Whether a call in the foreground is in flight, in the whole process.
  static bool others_compute() noexcept;

  // Returns at once if no call in the foreground is in flight. Otherwise the threads of the context
  // compute for kSlice, pause for kSlice * (1 - share) / share, and so on. A piece of work that has
  // taken `beyond` more than kSlice lengthens the pause in proportion.
  void give_way(Duration beyond = {}) noexcept {
    if (must_give_way()) pause(beyond);
  }
  // Whether give_way() would pause now.
  bool must_give_way() const noexcept;

 private:
  void pause(Duration beyond) noexcept;

  using Clock = std::chrono::steady_clock;

  double share_ = 1.0;
  std::atomic<Clock::rep> slice_end_{0};
  std::atomic<bool> measured_{false};  // a thread adds to paused_
  Clock::duration paused_{0};          // since the last slice, over several calls in the foreground
};

// While it lives, this thread works for a call with the share of a context.
class CallPriority {
 public:
  explicit CallPriority(BackgroundShare& share) noexcept;
  ~CallPriority();
  CallPriority(const CallPriority&) = delete;
  CallPriority& operator=(const CallPriority&) = delete;

  // The share that this thread computes with. Null: all of the time. A call that a call in the
  // foreground makes on another context, in a callback, is in the foreground as well.
  static BackgroundShare* background() noexcept { return background_; }

 private:
  static constinit inline thread_local BackgroundShare* background_ = nullptr;
  static constinit inline thread_local bool foreground_ = false;

  BackgroundShare* previous_;
  bool counted_ = false;  // this object has put the thread into the foreground
};

}  // namespace trafo
