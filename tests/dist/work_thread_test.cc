#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "engine/dist/process_world.h"

namespace trafo {
namespace {

// Nothing but stop() wakes a thread that does nothing in between.
TEST(WorkThread, StopsWhileItWaitsForWork) {
  process::WorkThread thread;
  ASSERT_TRUE(thread.run([] {}, 60));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits
  const auto stopped = std::async(std::launch::async, [&] { thread.stop(); });
  const bool in_time = stopped.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  if (!in_time) thread.post([] {});
}

// Peers' messages are read even if work never stops coming.
TEST(WorkThread, IsIdleBetweenPiecesOfWork) {
  std::atomic<int> idle = 0;
  process::WorkThread thread([&idle] { ++idle; });
  for (int i = 0; i < 100; ++i)
    thread.post([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  ASSERT_TRUE(thread.run([] {}, 60));
  EXPECT_GE(idle, 3);
  thread.stop();
}

}  // namespace
}  // namespace trafo
