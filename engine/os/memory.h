// Memory of the system: aligned blocks, pages, address space, files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace trafo::os {

// A block of the heap. `alignment` is a power of two, and `bytes` a multiple of it. Null: no
// memory.
void* allocate_aligned(size_t alignment, size_t bytes) noexcept;
void free_aligned(void* block) noexcept;
// Asks for huge pages, which take a fraction of the time to map. The system may decline.
void prefer_huge_pages(void* begin, size_t bytes) noexcept;

// Pages, zero at first. `addresses`: they need no memory until they are written. Null: there are
// none.
enum class Pages { memory, addresses };
void* map_pages(size_t bytes, Pages kind) noexcept;
void unmap_pages(void* begin, size_t bytes) noexcept;
// Frees the memory of pages, which are zero afterwards.
void clear_pages(void* begin, size_t bytes) noexcept;

// Memory that the system may write to a file without a name, which is made as open_nameless_file()
// makes one. The disk has room for all of it. Null: errno has the reason. For unmap_file_pages().
void* map_nameless_file(const std::filesystem::path& prefix, size_t bytes);
void unmap_file_pages(void* begin, size_t bytes) noexcept;
// Lets go of the memory that the whole pages of such a range have. The file, or the system's cache
// of it, keeps what is in them, and the next access brings it back.
void release_file_pages(void* begin, size_t bytes) noexcept;

// Bytes of addresses that the C library may take for the heap of one more thread; 0: threads share
// a heap.
int64_t thread_heap_bytes() noexcept;

// Bytes of memory of the machine.
int64_t machine_memory() noexcept;
// Bytes that are not in use now; 0: unknown, or on Linux, where /proc/meminfo has them.
int64_t free_machine_memory() noexcept;

}  // namespace trafo::os
