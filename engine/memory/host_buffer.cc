#include "engine/memory/host_buffer.h"

#include <limits>
#include <new>

#include "engine/os/memory.h"

namespace trafo {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  if (bytes > std::numeric_limits<size_t>::max() - alignment) throw std::bad_alloc();
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(os::allocate_aligned(alignment, whole)));
  if (!data_) throw std::bad_alloc();
  data_.get_deleter().release = [](std::byte* data) { os::free_aligned(data); };
  if (alignment == kHugePage) os::prefer_huge_pages(data_.get(), whole);
}

}  // namespace trafo
