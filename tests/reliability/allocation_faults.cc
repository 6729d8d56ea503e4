#include "tests/reliability/allocation_faults.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> seen{0}, fails_at{kNever}, live{0};
std::atomic<bool> armed{false}, persistent_faults{false}, fired{false};

// Inside LibraryMemory: what other people's code takes there has been asked for before.
thread_local int in_library = 0;

bool refuse() {
  if (!armed.load(std::memory_order_relaxed) || in_library > 0) return false;
  const int64_t number = seen.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t from = fails_at.load(std::memory_order_relaxed);
  if (number != from && !(number > from && persistent_faults.load(std::memory_order_relaxed)))
    return false;
  fired.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// The sanitizer's own malloc stays; what C++ allocates goes through here.
namespace {

void* take(size_t bytes) {
  return refuse() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void* take(size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<size_t>(alignment);
  return refuse() ? nullptr : std::aligned_alloc(step, (bytes + step - 1) / step * step);
}
void* or_throw(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  return or_throw(take(bytes));
}
void* operator new[](size_t bytes) {
  return or_throw(take(bytes));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return or_throw(take(bytes, alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, alignment);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#else

#define TRAFO_REPLACES __attribute__((visibility("default")))

extern "C" {

// What glibc calls its own, whoever replaces the public names.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

}  // extern "C"

namespace {

void* counted(void* memory) {
  if (memory) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}
void* refused() {
  errno = ENOMEM;
  return nullptr;
}

using ThreadStart = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

struct Symbols {
  ThreadStart start_thread;
  uintptr_t register_destructor;
};
// Looked up before anything fails.
const Symbols& symbols() {
  static const Symbols all{
      reinterpret_cast<ThreadStart>(dlsym(RTLD_NEXT, "pthread_create")),
      reinterpret_cast<uintptr_t>(dlsym(RTLD_NEXT, "__cxa_thread_atexit_impl"))};
  return all;
}

// glibc ends the process where it has no memory to note a thread_local's destructor: 40 bytes, once
// for each thread, which nobody but glibc could spare.
bool is_thread_exit_record(const void* caller) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const auto at = reinterpret_cast<uintptr_t>(caller);
  const uintptr_t begin = symbols().register_destructor;
  return begin != 0 && at >= begin && at < begin + 256;
}

}  // namespace

extern "C" {

TRAFO_REPLACES void* malloc(size_t bytes) {
  return refuse() ? refused() : counted(__libc_malloc(bytes));
}
TRAFO_REPLACES void* calloc(size_t count, size_t bytes) {
  if (!is_thread_exit_record(__builtin_return_address(0)) && refuse()) return refused();
  return counted(__libc_calloc(count, bytes));
}
TRAFO_REPLACES void* realloc(void* memory, size_t bytes) {
  if (refuse()) return refused();
  void* moved = __libc_realloc(memory, bytes);
  if (!memory && moved) live.fetch_add(1, std::memory_order_relaxed);
  if (memory && bytes == 0) live.fetch_sub(1, std::memory_order_relaxed);
  return moved;
}
TRAFO_REPLACES void* memalign(size_t alignment, size_t bytes) {
  return refuse() ? refused() : counted(__libc_memalign(alignment, bytes));
}
TRAFO_REPLACES void* aligned_alloc(size_t alignment, size_t bytes) {
  return refuse() ? refused() : counted(__libc_memalign(alignment, bytes));
}
TRAFO_REPLACES int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (refuse()) return ENOMEM;
  *memory = counted(__libc_memalign(alignment, bytes));
  return *memory ? 0 : ENOMEM;
}
TRAFO_REPLACES void free(void* memory) {
  if (memory) live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(memory);
}
TRAFO_REPLACES int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                  void* (*start)(void*), void* argument) {
  if (refuse()) return EAGAIN;
  if (in_library == 0) return symbols().start_thread(thread, attributes, start, argument);
  // The library's own threads are inside it as well.
  struct Start {
    void* (*start)(void*);
    void* argument;
  };
  auto* inside = new Start{start, argument};
  return symbols().start_thread(
      thread, attributes,
      [](void* given) -> void* {
        const Start begin = *static_cast<Start*>(given);
        delete static_cast<Start*>(given);
        in_library = 1;
        return begin.start(begin.argument);
      },
      inside);
}

}  // extern "C"

#endif

// The linker gives the engine's calls of LibraryMemory's constructor and destructor to these.
extern "C" {

void __real__ZN5trafo13LibraryMemoryC1Em(void* self, size_t bytes);
void __wrap__ZN5trafo13LibraryMemoryC1Em(void* self, size_t bytes) {
  __real__ZN5trafo13LibraryMemoryC1Em(self, bytes);
  ++in_library;
}
void __wrap__ZN5trafo13LibraryMemoryD1Ev(void*) {
  --in_library;
}

}  // extern "C"

namespace trafo::testing {

void arm_allocations(int64_t nth, bool persistent) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  symbols();
#endif
  seen = 0;
  fired = false;
  fails_at = nth;
  persistent_faults = persistent;
  armed = true;
}

bool disarm_allocations() {
  armed = false;
  return fired;
}

int64_t allocations_seen() {
  return seen;
}

int64_t live_blocks() {
  return live;
}

}  // namespace trafo::testing
