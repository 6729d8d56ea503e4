#include "tests/support/memory_meter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> in_use{0}, peak{0}, base{0}, calls{0};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasures = false;
#else
constexpr bool kMeasures = true;

void* taken(void* memory) {
  if (memory == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = in_use.fetch_add(bytes) + bytes;
  int64_t most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}
#endif

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The linker sends the calls of the engine and of operator new below to these.
extern "C" {
void* __real_malloc(size_t bytes);
void* __real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void* memory);

void* __wrap_malloc(size_t bytes) {
  return taken(__real_malloc(bytes));
}
void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return taken(__real_aligned_alloc(alignment, bytes));
}
void __wrap_free(void* memory) {
  if (memory != nullptr) in_use -= static_cast<int64_t>(malloc_usable_size(memory));
  __real_free(memory);
}
}

void* operator new(size_t bytes) {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace trafo::testing {

bool measures_memory() {
  return kMeasures;
}

void reset_memory_peak() {
  base = in_use.load();
  peak = in_use.load();
}

int64_t memory_peak() {
  return peak - base;
}

int64_t heap_calls() {
  return calls;
}

}  // namespace trafo::testing
