// The context lock: calls of the C ABI that use one context are serialised.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo::capi {

// Held by one thread at a time, recursively. Another thread waits, unless the holder may call back:
// then begin() fails at once, because a function of the program may itself wait for that thread.
// The mutex is free between begin() and end().
class ContextLock {
 public:
  // False: another thread holds the lock and may call back.
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
    // Objects that other threads freed meanwhile. Their destructors may call back.
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
  // Destroys an object that uses the context, under the lock. If another thread holds it, that
  // thread's end() destroys the object.
  void destroy(void* object, void (*deleter)(void*)) {
    {
      std::unique_lock lock(mutex_);
      if (is_elsewhere()) {
        try {
          left_.emplace_back(object, deleter);
          return;
        } catch (...) {  // no memory to put it on the list
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
    // Nested calls of one that calls back count as calling back too.
    if (calls_back || calls_back_ > 0) ++calls_back_;
    if (calls_back_ == 1) ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread::id owner_;
  int depth_ = 0, calls_back_ = 0;
  std::vector<std::pair<void*, void (*)(void*)>> left_;
};

// The deleter of every context of the C ABI; it carries the context's lock.
struct ContextOwner {
  std::shared_ptr<ContextLock> lock = std::make_shared<ContextLock>();
  void operator()(Context* context) const { delete context; }
};

inline ContextLock& lock_of(const std::shared_ptr<Context>& context) {
  return *std::get_deleter<ContextOwner>(context)->lock;
}

}  // namespace trafo::capi
