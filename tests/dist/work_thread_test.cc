#include <gtest/gtest.h>

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

}  // namespace
}  // namespace trafo
