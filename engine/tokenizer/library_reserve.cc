#include "engine/tokenizer/library_reserve.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace trafo {
namespace {

std::mutex mutex;
LibraryReserve* newest = nullptr;     // of all that exist; guarded by `mutex`
std::new_handler previous = nullptr;  // the program's own, while any exists; guarded by `mutex`

// The child must not inherit a mutex that another thread of the parent holds, nor the reserves of
// threads that it does not have.
[[maybe_unused]] const int kForkHandlers =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                   [] {
                     newest = nullptr;
                     mutex.unlock();
                   });

}  // namespace

LibraryReserve::LibraryReserve(size_t bytes, For threads) : thread_(pthread_self()) {
  for (void*& part : parts_) {
    part = std::malloc(bytes / parts_.size() + 1);
    if (part != nullptr) continue;
    while (free_part()) {
    }
    throw std::bad_alloc();
  }
  if (threads == For::started_threads_too) {
    static std::atomic<unsigned> count = 0;
    std::snprintf(name_, sizeof name_, "trafo-spm-%u", count++ % 10000);
    // Linux gives a thread the name of the one that starts it.
    pthread_setname_np(thread_, name_);
  }
  const std::lock_guard lock(mutex);
  if (newest == nullptr) previous = std::set_new_handler(on_failed_allocation);
  next_ = newest;
  newest = this;
}

LibraryReserve::~LibraryReserve() {
  {
    const std::lock_guard lock(mutex);
    for (LibraryReserve** link = &newest; *link != nullptr; link = &(*link)->next_)
      if (*link == this) {
        *link = next_;
        break;
      }
    if (newest == nullptr && std::get_new_handler() == on_failed_allocation)
      std::set_new_handler(previous);
  }
  while (free_part()) {
  }
}

// Allocates nothing.
void LibraryReserve::on_failed_allocation() {
  std::new_handler handler = nullptr;
  {
    const std::lock_guard lock(mutex);
    for (LibraryReserve* reserve = newest; reserve != nullptr; reserve = reserve->next_)
      if (reserve->serves_this_thread() && reserve->free_part()) return;
    handler = previous;
  }
  if (handler == nullptr) throw std::bad_alloc();
  handler();
}

bool LibraryReserve::serves_this_thread() const {
  if (pthread_equal(thread_, pthread_self()) != 0) return true;
  char name[sizeof name_] = {};
  return name_[0] != '\0' && pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::strcmp(name, name_) == 0;
}

bool LibraryReserve::free_part() noexcept {
  for (void*& part : parts_)
    if (part != nullptr) {
      std::free(part);
      part = nullptr;
      return true;
    }
  return false;
}

}  // namespace trafo
