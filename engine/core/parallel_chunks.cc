#include "engine/core/parallel_chunks.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/library_thread.h"

namespace trafo {
namespace {

constexpr int kMostIdleThreads = 8;

}  // namespace

bool parallel_chunks(int64_t count, int64_t chunk, int threads,
                     FunctionRef<void(int64_t begin, int64_t end)> work,
                     const std::atomic<bool>* stop) {
  const int64_t chunks = (count + chunk - 1) / chunk;
  const int64_t workers = std::clamp<int64_t>(threads, 1, std::max<int64_t>(chunks, 1));
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  int64_t failed = chunks;  // the first range that has failed
  std::exception_ptr error;
  const auto take_chunks = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < chunks;) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) stopped = true;
      if (stopped) return;
      try {
        work(i * chunk, std::min(count, (i + 1) * chunk));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
        next = chunks;
        return;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int64_t worker = 1; worker < workers; ++worker)
        others.push_back(start_thread<std::jthread>([&] { take_chunks(); }));
    } catch (const std::system_error&) {  // the threads that there are do all
    }
    take_chunks();
  }
  if (error) std::rethrow_exception(error);
  return !stopped;
}

int idle_host_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostIdleThreads);
}

}  // namespace trafo
