#include "engine/text/tokenizer/sentencepiece/library_reserve.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "engine/os/memory.h"

namespace trafo {
namespace {

std::mutex mutex;
LibraryReserve* newest = nullptr;     // of all that exist; guarded by `mutex`
std::new_handler previous = nullptr;  // the program's own, while any exists; guarded by `mutex`

// The child must not inherit a mutex that another thread of the parent holds, nor the reserves of
// threads that it does not have.
[[maybe_unused]] const int kForkHandlers =
    os::call_at_fork([] { mutex.lock(); }, [] { mutex.unlock(); },
                     [] {
                       newest = nullptr;
                       mutex.unlock();
                     });

// Large parts are mapped here: malloc would do so too, but it raises its threshold for mappings
// when they are freed, and then keeps memory of that size for itself for as long as the process
// lives.
constexpr size_t kMapped = size_t{64} << 10;

void* take_part(size_t bytes) {
  return bytes < kMapped ? std::malloc(bytes) : os::map_pages(bytes, os::Pages::memory);
}

void give_part(void* part, size_t bytes) {
  if (bytes < kMapped)
    std::free(part);
  else
    os::unmap_pages(part, bytes);
}

}  // namespace

LibraryReserve::LibraryReserve(size_t bytes, For threads)
    : part_bytes_(bytes / std::tuple_size_v<decltype(parts_)> + 1),
      thread_(std::this_thread::get_id()) {
  for (void*& part : parts_) {
    part = take_part(part_bytes_);
    if (part != nullptr) continue;
    while (free_part()) {
    }
    throw std::bad_alloc();
  }
  if (threads == For::started_threads_too) {
    static std::atomic<unsigned> count = 0;
    std::snprintf(name_, sizeof name_, "trafo-spm-%u", count++ % 10000);
    os::name_threads(name_);
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
      if (reserve->serves_this_thread() && reserve->find_memory()) return;
    handler = previous;
  }
  if (handler == nullptr) throw std::bad_alloc();
  handler();
}

bool LibraryReserve::serves_this_thread() const {
  if (thread_ == std::this_thread::get_id()) return true;
  return name_[0] != '\0' && os::threads_have_name(name_);
}

// Whether operator new shall try again. A thread that may have failed before the last part was
// freed tries again first: of many threads that fail at once, the last would find no part left
// although one was enough for all.
bool LibraryReserve::find_memory() noexcept {
  const auto end = failures_.begin() + static_cast<ptrdiff_t>(failed_threads_);
  auto mine = std::find_if(failures_.begin(), end, [](const Failure& failure) {
    return failure.thread == std::this_thread::get_id();
  });
  if (mine == end && failed_threads_ < failures_.size()) {
    *mine = {std::this_thread::get_id(), 0};
    ++failed_threads_;
  }
  const bool noted = mine != failures_.end();
  if (!noted || mine->parts_freed == parts_freed_) {
    if (!free_part()) return false;
    ++parts_freed_;
  }
  if (noted) mine->parts_freed = parts_freed_;
  return true;
}

bool LibraryReserve::free_part() noexcept {
  for (void*& part : parts_)
    if (part != nullptr) {
      give_part(part, part_bytes_);
      part = nullptr;
      return true;
    }
  return false;
}

}  // namespace trafo
