// The engine's own threads. Work is cut into blocks by the caller, and a block always computes the
// same thing whoever runs it, so results never depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/core/function_ref.h"

namespace trafo {

// One caller at a time: two host threads that compute at the same time use two pools. Worker
// threads start with the first parallel_for that needs them, and leave the host program's
// asynchronous signals to the host's own threads.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;
  static constexpr int64_t kMaxBlocks = (int64_t{1} << 32) - 1;

  explicit ThreadPool(int threads = 1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that compute, the caller included.
  int threads() const { return threads_; }

  // 1..kMaxThreads, else INVALID_ARGUMENT. Not from inside a block, nor while parallel_for runs.
  void set_threads(int threads);

  // Runs fn(0) ... fn(blocks - 1), each once, in any order and on any thread, and returns when all
  // have finished. The caller takes part. From inside a block (of any pool) it runs inline. When
  // blocks throw, those not yet handed out are dropped, and the exception of the lowest block that
  // threw is rethrown here: the one a sequential loop would give.
  void parallel_for(int64_t blocks, FunctionRef<void(int64_t block)> fn);

 private:
  using Fn = FunctionRef<void(int64_t)>;

  void start_workers(int64_t wanted);
  void stop_workers();
  void work(uint32_t seen_epoch);
  bool wait_for_job(uint32_t& seen_epoch);
  void run_blocks(uint32_t epoch);
  void run_block(int64_t block);
  void publish(int64_t blocks, const Fn& fn);
  void wait_until_done();
  template <class Ready>
  bool spin_until(Ready ready) const;

  int threads_ = 1;
  std::atomic<bool> may_spin_{true};  // read by the workers
  std::vector<std::thread> workers_;

  // The job. Written by the caller before the ticket is published; a thread reads it only while it
  // holds a block, without which the job cannot end.
  const Fn* fn_ = nullptr;
  int64_t blocks_ = 0;

  // High half: number of the job (epoch); low half: blocks not yet handed out. Taking a block is a
  // compare-exchange of the whole word, so a thread that comes late never takes a block of another
  // job than it believes, and the caller waits only for blocks that were taken, not for every
  // worker to have looked.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};  // blocks of this job that have not finished
  std::atomic<int64_t> lowest_failed_{std::numeric_limits<int64_t>::max()};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards sleeping and error_
  std::condition_variable job_ready_;
  std::condition_variable job_done_;
  std::exception_ptr error_;
};

// fn(begin, end) over [0, count) in pieces of `grain` (> 0): the pieces depend on the shape alone.
template <class F>
void parallel_for_range(ThreadPool& pool, int64_t count, int64_t grain, F&& fn) {
  if (count <= 0) return;
  const int64_t blocks = (count - 1) / grain + 1;
  pool.parallel_for(blocks, [&](int64_t block) {
    const int64_t begin = block * grain;
    fn(begin, std::min(count, begin + grain));
  });
}

}  // namespace trafo
