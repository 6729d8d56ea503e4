#include "engine/backend/cpu/thread_pool.h"

#include <chrono>
#include <system_error>

#include "engine/core/call_priority.h"
#include "engine/core/library_thread.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

// Long enough to bridge the serial code between two kernels, short enough not to be seen as load by
// the host.
constexpr auto kSpinTime = std::chrono::microseconds(40);

thread_local bool in_block = false;

class BlockScope {
 public:
  BlockScope() { in_block = true; }
  ~BlockScope() { in_block = false; }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;
};

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr uint32_t epoch_of(uint64_t ticket) {
  return static_cast<uint32_t>(ticket >> 32);
}
constexpr uint32_t left_of(uint64_t ticket) {
  return static_cast<uint32_t>(ticket);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  set_threads(threads);
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::set_threads(int threads) {
  require(threads >= 1 && threads <= kMaxThreads, ErrorCode::invalid_argument, "set_threads",
          "the number of threads must be 1 to ", kMaxThreads, ", not ", threads);
  require(!in_block, ErrorCode::invalid_argument, "set_threads",
          "the number of threads cannot change inside a parallel block");
  if (threads - 1 < static_cast<int>(workers_.size())) stop_workers();
  threads_ = threads;
  // With more threads than processors the thread waited for may need this one's processor.
  may_spin_.store(threads <= static_cast<int>(std::thread::hardware_concurrency()),
                  std::memory_order_relaxed);
}

void ThreadPool::parallel_for(int64_t blocks, Fn fn) {
  if (blocks <= 0) return;
  BackgroundShare* const background = CallPriority::background();
  const auto after_others = [&](int64_t block) {
    background->give_way();
    fn(block);
  };
  const Fn run = background ? Fn(after_others) : fn;
  if (blocks == 1 || threads_ == 1 || in_block) {
    for (int64_t block = 0; block < blocks; ++block) run(block);
    return;
  }
  require(blocks <= kMaxBlocks, ErrorCode::invalid_argument, "parallel_for", "at most ", kMaxBlocks,
          " blocks, not ", blocks);
  start_workers(std::min<int64_t>(threads_ - 1, blocks - 1));
  publish(blocks, run);
  run_blocks(epoch_of(ticket_.load(std::memory_order_relaxed)));
  wait_until_done();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::start_workers(int64_t wanted) {
  if (static_cast<int64_t>(workers_.size()) >= wanted) return;
  try {
    workers_.reserve(static_cast<size_t>(threads_ - 1));
    const uint32_t epoch = epoch_of(ticket_.load(std::memory_order_relaxed));
    while (static_cast<int64_t>(workers_.size()) < wanted)
      workers_.push_back(start_thread([this, epoch] { work(epoch); }));
  } catch (const std::system_error& error) {
    fail(ErrorCode::out_of_memory, "parallel_for", "could not start thread ", workers_.size() + 2,
         " of ", threads_, ": ", error.what());
  }
}

void ThreadPool::stop_workers() {
  if (workers_.empty()) return;
  stop_.store(true);
  {
    std::lock_guard lock(mutex_);
    job_ready_.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  stop_.store(false);
}

void ThreadPool::publish(int64_t blocks, const Fn& fn) {
  fn_ = &fn;
  blocks_ = blocks;
  unfinished_.store(blocks, std::memory_order_relaxed);
  lowest_failed_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
  const uint64_t epoch = epoch_of(ticket_.load(std::memory_order_relaxed)) + uint32_t{1};
  // Sequentially consistent against sleepers_: either a worker that is about to sleep sees this
  // job, or it is seen here.
  ticket_.store(epoch << 32 | static_cast<uint64_t>(blocks));
  if (sleepers_.load() > 0) {
    std::lock_guard lock(mutex_);
    const int64_t wake = std::min<int64_t>(sleepers_.load(), blocks - 1);
    for (int64_t i = 0; i < wake; ++i) job_ready_.notify_one();
  }
}

void ThreadPool::work(uint32_t seen_epoch) {
  while (wait_for_job(seen_epoch)) run_blocks(seen_epoch);
}

template <class Ready>
bool ThreadPool::spin_until(Ready ready) const {
  if (ready()) return true;
  if (!may_spin_.load(std::memory_order_relaxed)) return false;
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      cpu_relax();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// False when the pool stops; otherwise seen_epoch is the number of a job that had blocks left when
// it was looked at.
bool ThreadPool::wait_for_job(uint32_t& seen_epoch) {
  const uint32_t last = seen_epoch;
  const auto ready = [&] {
    if (stop_.load()) return true;
    const uint64_t ticket = ticket_.load();
    if (left_of(ticket) == 0 || epoch_of(ticket) == last) return false;
    seen_epoch = epoch_of(ticket);
    return true;
  };
  if (!spin_until(ready)) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    job_ready_.wait(lock, ready);
    sleepers_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::run_blocks(uint32_t epoch) {
  BlockScope scope;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (epoch_of(ticket) == epoch && left_of(ticket) > 0) {
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    run_block(blocks_ - left_of(ticket));
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      std::lock_guard lock(mutex_);
      job_done_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run_block(int64_t block) {
  // Blocks are handed out in ascending order, so all those below a failed one still run, and the
  // lowest failure is always found.
  if (block > lowest_failed_.load(std::memory_order_relaxed)) return;
  try {
    (*fn_)(block);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (block < lowest_failed_.load(std::memory_order_relaxed)) {
      lowest_failed_.store(block, std::memory_order_relaxed);
      error_ = std::current_exception();
    }
  }
}

void ThreadPool::wait_until_done() {
  const auto done = [&] { return unfinished_.load() == 0; };
  if (spin_until(done)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true);
  job_done_.wait(lock, done);
  caller_sleeps_.store(false);
}

}  // namespace trafo
