#include "tests/reliability/allocation_faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

// Inside a LibraryReserve, where memory is not refused but scarce: what has been freed there since
// the first failure can be had again.
thread_local int in_library = 0;
std::atomic<int64_t> freed{0};

bool take_freed(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  int64_t left = freed.load();
  while (left >= wanted && !freed.compare_exchange_weak(left, left - wanted)) {
  }
  return left >= wanted;
}

// The calls that led to each allocation, if they are recorded: a hash of the return addresses.
constexpr size_t kRecorded = size_t{1} << 20;
uint64_t* paths = nullptr;  // mapped: the record must not allocate
std::atomic<bool> recording{false};
thread_local bool in_record = false;

void record_path(int64_t number) {
  if (in_record || static_cast<size_t>(number) > kRecorded) return;
  in_record = true;  // walking the stack may allocate
  constexpr int kFrames = 14;
  void* frames[kFrames];
  const int depth = backtrace(frames, kFrames);
  uint64_t hash = 0;
  for (int i = 0; i < depth; ++i)
    hash = (hash ^ reinterpret_cast<uintptr_t>(frames[i])) * 0x9fb21c651e98df25u;
  paths[number - 1] = hash;
  in_record = false;
}

bool refuse(size_t bytes) {
  if (!armed.load(std::memory_order_relaxed) || in_record) return false;
  const int64_t number = seen.fetch_add(1, std::memory_order_relaxed) + 1;
  if (recording.load(std::memory_order_relaxed)) record_path(number);
  const int64_t from = fails_at.load(std::memory_order_relaxed);
  if (number != from && !(number > from && persistent_faults.load(std::memory_order_relaxed)))
    return false;
  if (in_library > 0 && number > from && take_freed(bytes)) return false;
  fired.store(true, std::memory_order_relaxed);
  return true;
}

void note_freed(void* memory) {
  if (in_library > 0 && fired.load(std::memory_order_relaxed))
    freed += static_cast<int64_t>(malloc_usable_size(memory));
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// The sanitizer's own malloc stays; what C++ allocates goes through here.
namespace {

void* take(size_t bytes) {
  return refuse(bytes) ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void* take(size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<size_t>(alignment);
  return refuse(bytes) ? nullptr : std::aligned_alloc(step, (bytes + step - 1) / step * step);
}
// As operator new: the handler finds memory or throws.
template <class... Args>
void* take_or_throw(Args... args) {
  for (;;) {
    if (void* memory = take(args...)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new[](size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, alignment);
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

// glibc's internal names, which stay if a program replaces the public names.
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
  return refuse(bytes) ? refused() : counted(__libc_malloc(bytes));
}
TRAFO_REPLACES void* calloc(size_t count, size_t bytes) {
  if (!is_thread_exit_record(__builtin_return_address(0)) && refuse(count * bytes))
    return refused();
  return counted(__libc_calloc(count, bytes));
}
TRAFO_REPLACES void* realloc(void* memory, size_t bytes) {
  if (refuse(bytes)) return refused();
  void* moved = __libc_realloc(memory, bytes);
  if (!memory && moved) live.fetch_add(1, std::memory_order_relaxed);
  if (memory && bytes == 0) live.fetch_sub(1, std::memory_order_relaxed);
  return moved;
}
TRAFO_REPLACES void* memalign(size_t alignment, size_t bytes) {
  return refuse(bytes) ? refused() : counted(__libc_memalign(alignment, bytes));
}
TRAFO_REPLACES void* aligned_alloc(size_t alignment, size_t bytes) {
  return refuse(bytes) ? refused() : counted(__libc_memalign(alignment, bytes));
}
TRAFO_REPLACES int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (refuse(bytes)) return ENOMEM;
  *memory = counted(__libc_memalign(alignment, bytes));
  return *memory ? 0 : ENOMEM;
}
TRAFO_REPLACES void free(void* memory) {
  if (memory) live.fetch_sub(1, std::memory_order_relaxed);
  if (memory) note_freed(memory);
  __libc_free(memory);
}
// Anonymous mappings are memory too: the parts of a LibraryReserve are.
TRAFO_REPLACES void* mmap(void* at, size_t bytes, int protection, int flags, int file,
                          off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) != 0 && refuse(bytes)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
TRAFO_REPLACES int munmap(void* memory, size_t bytes) noexcept {
  const auto result = static_cast<int>(syscall(SYS_munmap, memory, bytes));
  if (result == 0 && in_library > 0 && fired.load(std::memory_order_relaxed))
    freed += static_cast<int64_t>(bytes);
  return result;
}
TRAFO_REPLACES int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                  void* (*start)(void*), void* argument) {
  if (refuse(0)) return EAGAIN;
  if (in_library == 0) return symbols().start_thread(thread, attributes, start, argument);
  // The library's own threads are inside it as well.
  struct Start {
    void* (*start)(void*);
    void* argument;
  };
  auto* inside = new Start{start, argument};
  const int result = symbols().start_thread(
      thread, attributes,
      [](void* given) -> void* {
        const Start begin = *static_cast<Start*>(given);
        delete static_cast<Start*>(given);
        in_library = 1;
        return begin.start(begin.argument);
      },
      inside);
  if (result != 0) delete inside;  // glibc found no memory for the thread
  return result;
}

}  // extern "C"

#endif

// The linker gives the engine's calls of LibraryReserve's constructor and destructor to these.
extern "C" {

void __real__ZN5trafo14LibraryReserveC1EmNS0_3ForE(void* self, size_t bytes, int threads);
void __wrap__ZN5trafo14LibraryReserveC1EmNS0_3ForE(void* self, size_t bytes, int threads) {
  __real__ZN5trafo14LibraryReserveC1EmNS0_3ForE(self, bytes, threads);
  ++in_library;
}
void __real__ZN5trafo14LibraryReserveD1Ev(void* self);
void __wrap__ZN5trafo14LibraryReserveD1Ev(void* self) {
  --in_library;
  __real__ZN5trafo14LibraryReserveD1Ev(self);
}

}  // extern "C"

namespace trafo::testing {

void arm_allocations(int64_t nth, bool persistent) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  symbols();
#endif
  seen = 0;
  freed = 0;
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

void record_paths(bool wanted) {
  if (wanted && !paths) {
    void* memory = mmap(nullptr, kRecorded * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::exit(3);
    paths = static_cast<uint64_t*>(memory);
    void* frame[1];
    backtrace(frame, 1);  // loads what it needs
  }
  recording = wanted;
}

std::vector<uint64_t> recorded_paths(int64_t count) {
  return {paths, paths + std::min(static_cast<size_t>(count), kRecorded)};
}

}  // namespace trafo::testing
