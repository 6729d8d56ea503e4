// Whose turn it is to use a context of the C ABI.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo::capi {

// One thread at a time, which may begin again what it has begun. No lock is held between begin()
// and end(): who comes meanwhile waits, or is told at once if the turn is one that may run
// functions of the program, which may themselves wait for the thread that came.
class ContextLock {
 public:
  // False: another thread has a turn that calls back.
  bool begin(bool calls_back) {
    std::unique_lock lock(mutex_);
    if (is_elsewhere()) {
      ended_.wait(lock, [&] { return depth_ == 0 || calls_back_ > 0; });
      if (depth_ > 0) return false;
    }
    take(calls_back);
    return true;
  }
  void end() {
    std::unique_lock lock(mutex_);
    if (calls_back_ > 0) --calls_back_;
    // What others wanted to end meanwhile; it may call back.
    while (depth_ == 1 && !left_.empty()) {
      const auto left = std::exchange(left_, {});
      ++calls_back_;
      ended_.notify_all();
      lock.unlock();
      for (const auto& [object, deleter] : left) deleter(object);
      lock.lock();
      --calls_back_;
    }
    if (--depth_ == 0) ended_.notify_one();
  }
  // Destroys an object that uses the context: in a turn of its own, or at the end of the one that
  // another thread has.
  void destroy(void* object, void (*deleter)(void*)) {
    {
      std::unique_lock lock(mutex_);
      if (is_elsewhere()) {
        try {
          left_.emplace_back(object, deleter);
          return;
        } catch (...) {  // no memory to leave it with
          ended_.wait(lock, [&] { return depth_ == 0; });
        }
      }
      take(true);
    }
    deleter(object);
    end();
  }

 private:
  bool is_elsewhere() const { return depth_ > 0 && owner_ != std::this_thread::get_id(); }
  void take(bool calls_back) {
    owner_ = std::this_thread::get_id();
    ++depth_;
    // What runs inside a turn that calls back is part of it.
    if (calls_back || calls_back_ > 0) ++calls_back_;
    if (calls_back_ == 1) ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread::id owner_;
  int depth_ = 0, calls_back_ = 0;
  std::vector<std::pair<void*, void (*)(void*)>> left_;
};

// Every context of the C ABI is owned by one of these, which is where its turns are found.
struct ContextOwner {
  std::shared_ptr<ContextLock> turns = std::make_shared<ContextLock>();
  void operator()(Context* context) const { delete context; }
};

inline ContextLock& lock_of(const std::shared_ptr<Context>& context) {
  return *std::get_deleter<ContextOwner>(context)->turns;
}

}  // namespace trafo::capi
