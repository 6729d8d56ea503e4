#include "engine/core/parallel_chunks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace trafo {
namespace {

TEST(ParallelChunks, EveryElementIsVisitedOnce) {
  for (const int threads : {1, 2, 7})
    for (const int64_t count : {0, 1, 63, 64, 65, 1000}) {
      std::vector<int> visits(static_cast<size_t>(count));
      parallel_chunks(count, 64, threads, [&](int64_t begin, int64_t end) {
        EXPECT_LE(end - begin, 64);
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " " << count;
    }
}

TEST(ParallelChunks, TheExceptionOfTheFirstRangeIsRethrown) {
  for (const int threads : {1, 2, 7})
    for (int i = 0; i < 20; ++i) try {
        parallel_chunks(100, 1, threads, [&](int64_t begin, int64_t) {
          if (begin % 10 == 3) throw std::runtime_error(std::to_string(begin));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "3");
      }
}

TEST(ParallelChunks, StopsWhenToldTo) {
  std::atomic<bool> stop{false};
  int visited = 0;
  const bool complete = parallel_chunks(
      100, 1, 1,
      [&](int64_t begin, int64_t) {
        ++visited;
        stop = begin == 4;
      },
      &stop);
  EXPECT_EQ(visited, 5);
  EXPECT_FALSE(complete);
  stop = false;
  EXPECT_TRUE(parallel_chunks(
      100, 1, 1, [](int64_t, int64_t) {}, &stop));
}

// Another thread sets the flag and takes it back at once: no element is left out unnoticed.
TEST(ParallelChunks, AFlagThatIsTakenBackLeavesNothingOutUnnoticed) {
  int seen = 0;
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> stop{false}, begun{false}, done{false};
    std::atomic<int> visited{0};
    std::thread flickers([&] {
      for (begun = true; !done;) {
        stop = true;
        stop = false;
      }
    });
    while (!begun) std::this_thread::yield();
    const bool complete = parallel_chunks(
        1000, 1, 2, [&](int64_t, int64_t) { ++visited; }, &stop);
    done = true;
    flickers.join();
    EXPECT_EQ(complete, visited == 1000) << visited;
    seen += !complete;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace trafo
