#include "engine/core/call_priority.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "engine/backend/cpu/thread_pool.h"

namespace trafo {
namespace {

using namespace std::chrono_literals;

// A call that works on short blocks until it is told to end.
class Worker {
 public:
  Worker(double share, int threads) : pool_(threads) {
    share_.set(share);
    thread_ = std::thread([this] {
      const CallPriority priority(share_);
      while (!end_) pool_.parallel_for(8, [this](int64_t) { work(); });
    });
  }
  ~Worker() {
    end_ = true;
    thread_.join();
  }
  // Time that its threads compute in an interval of this length.
  std::chrono::nanoseconds computed(std::chrono::milliseconds interval) const {
    const int64_t before = computed_;
    std::this_thread::sleep_for(interval);
    return std::chrono::nanoseconds(computed_ - before);
  }

 private:
  void work() {
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(100us);
    computed_ += (std::chrono::steady_clock::now() - began).count();
  }

  BackgroundShare share_;
  ThreadPool pool_;
  std::atomic<bool> end_{false};
  std::atomic<int64_t> computed_{0};
  std::thread thread_;
};

TEST(CallPriority, TheBackgroundComputesItsShareBesideTheForeground) {
  for (const int threads : {1, 3}) {
    const Worker worker(0.1, threads);
    EXPECT_GT(worker.computed(100ms), 50ms) << threads;
    BackgroundShare whole;
    std::optional<CallPriority> foreground;
    foreground.emplace(whole);
    worker.computed(5ms);  // what was begun before
    const auto beside = worker.computed(500ms);
    // A tenth of each thread's time. A slice ends with the block that it is in.
    EXPECT_LT(beside, threads * 150ms) << threads;
    EXPECT_GT(beside, 2ms) << threads;
    foreground.reset();
    worker.computed(5ms);
    EXPECT_GT(worker.computed(100ms), 50ms) << threads;
  }
}

// Pauses add up, so calls in the foreground that are shorter than a pause cannot stop the
// background for ever.
TEST(CallPriority, ShortCallsDoNotStarveTheBackground) {
  const Worker worker(0.2, 1);
  std::atomic<bool> end{false};
  std::thread caller([&] {
    BackgroundShare whole;
    while (!end) {
      const CallPriority foreground(whole);
      std::this_thread::sleep_for(2ms);
    }
  });
  EXPECT_GT(worker.computed(500ms), 10ms);
  end = true;
  caller.join();
}

// Such as a training step on a GPU.
TEST(CallPriority, APieceThatIsLongerThanASliceLengthensThePause) {
  BackgroundShare half, whole;
  half.set(0.5);
  EXPECT_FALSE(half.must_give_way());
  const CallPriority foreground(whole);
  EXPECT_TRUE(half.must_give_way());
  const auto began = std::chrono::steady_clock::now();
  half.give_way(40ms);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 40ms);
  EXPECT_FALSE(half.must_give_way());  // the next slice
}

TEST(CallPriority, CallsOfTheForegroundDoNotGiveWay) {
  const Worker worker(1.0, 2);
  BackgroundShare whole;
  const CallPriority other(whole);
  EXPECT_GT(worker.computed(100ms), 50ms);
}

TEST(CallPriority, ACallWithinAnotherHasThePriorityOfTheOuterOneOrAHigherOne) {
  BackgroundShare whole, tenth, half;
  tenth.set(0.1);
  half.set(0.5);
  EXPECT_EQ(CallPriority::background(), nullptr);
  {
    const CallPriority outer(tenth);
    EXPECT_EQ(CallPriority::background(), &tenth);
    {
      const CallPriority inner(half);
      EXPECT_EQ(CallPriority::background(), &half);
    }
    EXPECT_EQ(CallPriority::background(), &tenth);
    {
      const CallPriority inner(whole);
      EXPECT_EQ(CallPriority::background(), nullptr);
      const CallPriority innermost(half);
      EXPECT_EQ(CallPriority::background(), nullptr);
    }
    EXPECT_EQ(CallPriority::background(), &tenth);
  }
  EXPECT_EQ(CallPriority::background(), nullptr);
}

}  // namespace
}  // namespace trafo
