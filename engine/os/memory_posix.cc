#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "engine/os/file.h"
#include "engine/os/memory.h"
#include "engine/os/posix_calls.h"

namespace trafo::os {
namespace {

void* mapped_or_null(void* mapped) {
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

void* allocate_aligned(size_t alignment, size_t bytes) noexcept {
  return std::aligned_alloc(alignment, bytes);
}

void free_aligned(void* block) noexcept {
  std::free(block);
}

void prefer_huge_pages([[maybe_unused]] void* begin, [[maybe_unused]] size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  ::madvise(begin, bytes, MADV_HUGEPAGE);
#endif
}

void* map_pages(size_t bytes, Pages kind) noexcept {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (kind == Pages::addresses ? MAP_NORESERVE : 0);
  return mapped_or_null(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0));
}

void unmap_pages(void* begin, size_t bytes) noexcept {
  ::munmap(begin, bytes);
}

void clear_pages(void* begin, size_t bytes) noexcept {
  zero_private_pages(begin, bytes);
}

void* map_nameless_file(const std::filesystem::path& prefix, size_t bytes) {
  const int file = open_nameless_file(prefix);
  if (file < 0) return nullptr;
  // A write to a mapped page that the disk has no room for would end the process.
  const int error = reserve_on_disk(file, bytes);
  void* const mapped =
      error != 0
          ? nullptr
          : mapped_or_null(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const int reason = error != 0 ? error : errno;
  ::close(file);
  errno = reason;
  return mapped;
}

void unmap_file_pages(void* begin, size_t bytes) noexcept {
  ::munmap(begin, bytes);
}

void release_file_pages(void* begin, size_t bytes) noexcept {
  ::madvise(begin, bytes, MADV_DONTNEED);  // of a shared mapping: nothing is lost
}

int64_t machine_memory() noexcept {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE));
}

int64_t free_machine_memory() noexcept {
  return unused_memory();
}

int64_t thread_heap_bytes() noexcept {
  return kThreadHeapBytes;
}

}  // namespace trafo::os
