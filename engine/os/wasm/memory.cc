#include <emscripten/heap.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/os/memory.h"

namespace trafo::os {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

void* allocate_aligned(size_t alignment, size_t bytes) noexcept {
  return std::aligned_alloc(alignment, bytes);
}

void free_aligned(void* block) noexcept {
  std::free(block);
}

void prefer_huge_pages(void*, size_t) noexcept {}

// WebAssembly has one piece of memory, which only grows: pages are blocks of the heap, and
// addresses without memory do not exist.
void* map_pages(size_t bytes, Pages) noexcept {
  const size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const block = whole < bytes ? nullptr : std::aligned_alloc(kPageBytes, whole);
  if (block != nullptr) std::memset(block, 0, whole);
  return block;
}

void unmap_pages(void* begin, size_t) noexcept {
  std::free(begin);
}

void clear_pages(void* begin, size_t bytes) noexcept {
  std::memset(begin, 0, bytes);
}

// Files are in memory as well: the pages are the file.
void* map_nameless_file(const std::filesystem::path&, size_t bytes) {
  void* const pages = map_pages(bytes, Pages::memory);
  if (pages == nullptr) errno = ENOMEM;
  return pages;
}

void unmap_file_pages(void* begin, size_t bytes) noexcept {
  unmap_pages(begin, bytes);
}

void release_file_pages(void*, size_t) noexcept {}

int64_t machine_memory() noexcept {
  return static_cast<int64_t>(emscripten_get_heap_max());
}

int64_t free_machine_memory() noexcept {
  const auto end_of_heap = reinterpret_cast<uintptr_t>(::sbrk(0));
  return machine_memory() - static_cast<int64_t>(end_of_heap) +
         static_cast<int64_t>(::mallinfo().fordblks);
}

int64_t thread_heap_bytes() noexcept {
  return 0;
}

}  // namespace trafo::os
