#include "engine/os/memory.h"

#include <malloc.h>

#include <cerrno>

#include "engine/os/file.h"
#include "engine/os/windows_calls.h"

namespace trafo::os {

void* allocate_aligned(size_t alignment, size_t bytes) noexcept {
  return _aligned_malloc(bytes, alignment);
}

void free_aligned(void* block) noexcept {
  _aligned_free(block);
}

// Large pages are a privilege here.
void prefer_huge_pages(void*, size_t) noexcept {}

// The system counts committed pages against its limit, also those that have no memory yet.
void* map_pages(size_t bytes, Pages) noexcept {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(void* begin, size_t) noexcept {
  VirtualFree(begin, 0, MEM_RELEASE);
}

void clear_pages(void* begin, size_t bytes) noexcept {
  VirtualFree(begin, bytes, MEM_DECOMMIT);
  VirtualAlloc(begin, bytes, MEM_COMMIT, PAGE_READWRITE);
}

void* map_nameless_file(const std::filesystem::path& prefix, size_t bytes) {
  const int file = open_nameless_file(prefix);
  if (file < 0) return nullptr;
  void* mapped = nullptr;
  // The mapping extends the file, and fails if the disk has no room.
  const HANDLE mapping = CreateFileMappingW(handle_of(file), nullptr, PAGE_READWRITE,
                                            static_cast<DWORD>(uint64_t{bytes} >> 32),
                                            static_cast<DWORD>(bytes), nullptr);
  if (mapping != nullptr) mapped = MapViewOfFile(mapping, FILE_MAP_WRITE, 0, 0, bytes);
  if (mapped == nullptr) fail_with_system_error(GetLastError());
  const int reason = errno;
  if (mapping != nullptr) CloseHandle(mapping);
  close_file(file);
  errno = reason;
  return mapped;
}

void unmap_file_pages(void* begin, size_t) noexcept {
  UnmapViewOfFile(begin);
}

void release_file_pages(void* begin, size_t bytes) noexcept {
  VirtualUnlock(begin, bytes);  // takes pages that are not locked out of the working set
}

int64_t machine_memory() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) != 0 ? static_cast<int64_t>(status.ullTotalPhys) : 0;
}

int64_t free_machine_memory() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) != 0 ? static_cast<int64_t>(status.ullAvailPhys) : 0;
}

int64_t thread_heap_bytes() noexcept {
  return 0;
}

}  // namespace trafo::os
