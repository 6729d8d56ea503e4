// The context lock: calls of the C ABI that use one context are serialised.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/core/call_priority.h"
#include "engine/core/numeric/float_environment.h"
#include "engine/runtime/context.h"

namespace trafo::capi {

// Functions of the program that free something (user_data_free, the deleter of an imported tensor).
// The last reference may go away in any call, also in one that makes other threads wait, and the
// function may wait for such a thread. On a thread that makes others wait, the function therefore
// runs after the lock is released. On any other thread it runs at once.
class FreeingCalls {
 public:
  static void run(void (*function)(void*), void* argument) noexcept {
    State& state = this_thread();
    if (state.waits > 0) {
      try {
        state.due.emplace_back(function, argument);
        return;
      } catch (...) {  // no memory for the list
      }
    }
    call(function, argument);
  }

 private:
  friend class ContextLock;
  static void call(void (*function)(void*), void* argument) noexcept {
    const HostFloatEnvironment environment;
    function(argument);
  }
  struct State {
    int waits = 0;  // locks that this thread holds and other threads wait for
    std::vector<std::pair<void (*)(void*), void*>> due;
  };
  static State& this_thread() noexcept {
    static thread_local State state;
    return state;
  }
  static void begin_waits() { ++this_thread().waits; }
  static void end_waits() noexcept {
    State& state = this_thread();
    if (--state.waits > 0) return;
    while (!state.due.empty())
      for (const auto& [function, argument] : std::exchange(state.due, {}))
        call(function, argument);
  }
};

// Held by one thread at a time, recursively. Another thread waits, unless the holder may call back:
// then begin() fails at once, because a function of the program may itself wait for that thread.
// The mutex is free between begin() and end().
class ContextLock {
 public:
  // False: another thread holds the lock and may call back, or the lock is closed.
  bool begin(bool calls_back) {
    std::unique_lock lock(mutex_);
    if (closed_) return false;
    if (is_elsewhere()) {
      ended_.wait(lock, [&] { return depth_ == 0 || calls_back_ > 0; });
      if (depth_ > 0) return false;
    }
    take(calls_back);
    return true;
  }
  void end() {
    std::unique_lock lock(mutex_);
    bool others_wait = calls_back_ == 0;
    if (!others_wait) --calls_back_;
    while (depth_ == 1 && !left_.empty()) {  // objects that other threads freed meanwhile
      if (!others_wait) {
        FreeingCalls::begin_waits();
        others_wait = true;
      }
      const auto left = std::exchange(left_, {});
      lock.unlock();
      for (const auto& [object, deleter] : left) deleter(object);
      lock.lock();
    }
    if (--depth_ == 0) ended_.notify_one();
    lock.unlock();
    if (others_wait) FreeingCalls::end_waits();
  }
  // While it lives, its thread, which holds the lock, may not take it again.
  class Closed {
   public:
    explicit Closed(ContextLock& lock) : lock_(lock) { set(true); }
    ~Closed() { set(false); }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    void set(bool closed) {
      const std::lock_guard held(lock_.mutex_);
      lock_.closed_ = closed;
    }
    ContextLock& lock_;
  };
  // Whether this thread holds the lock.
  bool is_mine() {
    const std::lock_guard lock(mutex_);
    return depth_ > 0 && !is_elsewhere();
  }
  // Read and set while the lock is held.
  BackgroundShare& background_share() { return background_share_; }

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
      take(false);
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
    if (calls_back || calls_back_ > 0)
      ++calls_back_;
    else
      FreeingCalls::begin_waits();
    if (calls_back_ == 1) ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread::id owner_;
  int depth_ = 0, calls_back_ = 0;
  bool closed_ = false;
  BackgroundShare background_share_;
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
