#include "engine/backend/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/status.h"

namespace trafo {
namespace {

TEST(FunctionRef, CallsLambdasFunctorsAndConstCallables) {
  int sum = 0;
  auto add = [&sum](int64_t value) { sum += static_cast<int>(value); };
  FunctionRef<void(int64_t)> ref = add;
  ref(3);
  const auto twice = [](int value) { return 2 * value; };
  FunctionRef<int(int)> const_ref = twice;
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(const_ref(21), 42);
}

TEST(ThreadPool, RunsEveryBlockOnceForAnyNumberOfThreadsAndBlocks) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t blocks : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(blocks));
      pool.parallel_for(blocks, [&](int64_t block) { ++runs[static_cast<size_t>(block)]; });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

// A worker may look for a job for a moment; then it takes no time of a processor.
TEST(ThreadPool, WorkersWithoutAJobSleep) {
  ThreadPool pool(4);
  const pid_t caller = gettid();
  std::mutex mutex;
  std::set<pid_t> workers;
  pool.parallel_for(200, [&](int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // so that each gets some
    const std::lock_guard lock(mutex);
    if (gettid() != caller) workers.insert(gettid());
  });
  ASSERT_FALSE(workers.empty());
  for (const pid_t worker : workers) {
    const auto state = [&] {
      std::string text;
      std::getline(std::ifstream(concat("/proc/self/task/", worker, "/stat")), text);
      return text.at(text.rfind(')') + 2);
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (state() != 'S' && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(state(), 'S');
  }
}

TEST(ThreadPool, FewerThreadsAreFewer) {
  ThreadPool pool(4);
  const auto threads_that_run = [&] {
    std::mutex mutex;
    std::set<std::thread::id> ids;
    pool.parallel_for(200, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // so that each gets some
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    return ids.size();
  };
  threads_that_run();
  for (const int threads : {3, 2, 1, 2}) {
    pool.set_threads(threads);
    EXPECT_LE(threads_that_run(), static_cast<size_t>(threads));
  }
}

TEST(ThreadPool, ResultsOfBlocksAreVisibleToTheCaller) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64);
  for (int64_t round = 0; round < 2000; ++round) {
    pool.parallel_for(64,
                      [&](int64_t block) { values[static_cast<size_t>(block)] = block + round; });
    const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
    ASSERT_EQ(sum, 64 * 63 / 2 + 64 * round);
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> arrived{0};
    // Every block waits for all three, so this ends only when three threads run at once.
    pool.parallel_for(3, [&](int64_t) {
      ++arrived;
      while (arrived.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ThreadPool, SleepsUntilASlowBlockOfAnotherThreadEnds) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> worker_has_block{false};
  std::atomic<bool> slow_block_ended{false};
  pool.parallel_for(2, [&](int64_t) {
    if (std::this_thread::get_id() == caller) {
      while (!worker_has_block.load()) std::this_thread::yield();
    } else {
      worker_has_block = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      slow_block_ended = true;
    }
  });
  EXPECT_TRUE(slow_block_ended.load());
}

TEST(ThreadPool, NestedLoopsRunInline) {
  ThreadPool pool(3);
  ThreadPool other(2);
  std::atomic<int> inner{0};
  pool.parallel_for(8, [&](int64_t) {
    const auto self = std::this_thread::get_id();
    const auto body = [&](int64_t) {
      if (std::this_thread::get_id() == self) ++inner;
    };
    pool.parallel_for(5, body);
    other.parallel_for(5, body);
  });
  EXPECT_EQ(inner.load(), 80);
}

TEST(ThreadPool, RethrowsTheExceptionOfTheLowestBlock) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      try {
        pool.parallel_for(100, [](int64_t block) {
          if (block >= 17 && block % 2 == 1) throw std::runtime_error(std::to_string(block));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        ASSERT_STREQ(error.what(), "17");
      }
      std::atomic<int> after{0};
      pool.parallel_for(4, [&](int64_t) { ++after; });
      ASSERT_EQ(after.load(), 4);
    }
  }
}

TEST(ThreadPool, RefusesBadThreadCounts) {
  ThreadPool pool(2);
  for (int threads : {0, -1, 257}) {
    try {
      pool.set_threads(threads);
      FAIL() << threads << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
  EXPECT_EQ(pool.threads(), 2);
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(pool.parallel_for(2, [&](int64_t) { pool.set_threads(1); }), Error);
}

TEST(ThreadPool, ThreadCountCanChangeBetweenLoops) {
  ThreadPool pool(1);
  for (int threads : {4, 2, 6, 1, 3}) {
    pool.set_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::atomic<int> arrived{0};
    pool.parallel_for(threads, [&](int64_t) {
      {
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      ++arrived;
      while (arrived.load() < threads) std::this_thread::yield();
    });
    EXPECT_EQ(ids.size(), static_cast<size_t>(threads));
  }
}

TEST(ThreadPool, TwoPoolsWorkAtTheSameTime) {
  std::atomic<int64_t> total{0};
  const auto drive = [&total] {
    ThreadPool pool(2);
    for (int round = 0; round < 500; ++round)
      pool.parallel_for(10, [&](int64_t block) { total += block; });
  };
  std::thread first(drive);
  std::thread second(drive);
  first.join();
  second.join();
  EXPECT_EQ(total.load(), 2 * 500 * 45);
}

TEST(ThreadPool, WorkersLeaveAsynchronousSignalsToTheHost) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::atomic<int> blocked{0};
  pool.parallel_for(2, [&](int64_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) return;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) + sigismember(&mask, SIGTERM) +
              sigismember(&mask, SIGUSR1) - sigismember(&mask, SIGSEGV);
  });
  EXPECT_EQ(blocked.load(), 3);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

TEST(ParallelForRange, CoversTheRangeInFixedPieces) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 99, 100, 101}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    parallel_for_range(pool, count, 10, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 10, 0);
      EXPECT_LE(end - begin, 10);
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
    });
    for (const auto& count_of_i : runs) ASSERT_EQ(count_of_i.load(), 1);
  }
}

}  // namespace
}  // namespace trafo
