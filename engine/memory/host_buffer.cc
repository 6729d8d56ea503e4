#include "engine/memory/host_buffer.h"

#include <sys/mman.h>

#include <limits>
#include <new>

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
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
  if (!data_) throw std::bad_alloc();
  // The kernel may decline; the buffer then has small pages.
  if (alignment == kHugePage) madvise(data_.get(), whole, MADV_HUGEPAGE);
}

}  // namespace trafo
