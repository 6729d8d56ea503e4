#include "engine/core/file_memory.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "engine/core/status.h"
#include "engine/os/memory.h"

namespace trafo {
namespace {

struct FileBlocks {
  std::mutex mutex;
  std::map<std::byte*, size_t> sizes;
  std::atomic<size_t> count = 0;  // most processes have none, and need no lock to know
};

FileBlocks& file_blocks() {
  static FileBlocks blocks;
  return blocks;
}

}  // namespace

void* allocate_in_file(const std::filesystem::path& directory, size_t bytes) {
  void* const begin = os::map_nameless_file(directory / "memory-", bytes);
  require(begin != nullptr, ErrorCode::out_of_memory, "allocate", "a file of ", bytes, " bytes in ",
          directory.string(), ", for memory: ", std::strerror(errno));
  FileBlocks& blocks = file_blocks();
  try {
    const std::lock_guard lock(blocks.mutex);
    blocks.sizes.emplace(static_cast<std::byte*>(begin), bytes);
    ++blocks.count;
  } catch (...) {
    os::unmap_file_pages(begin, bytes);
    throw;
  }
  return begin;
}

void free_in_file(void* begin) noexcept {
  FileBlocks& blocks = file_blocks();
  const std::lock_guard lock(blocks.mutex);
  const auto found = blocks.sizes.find(static_cast<std::byte*>(begin));
  os::unmap_file_pages(begin, found->second);
  blocks.sizes.erase(found);
  --blocks.count;
}

FileBytes::FileBytes(const std::filesystem::path& directory, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  bytes_ = {static_cast<std::byte*>(allocate_in_file(directory, bytes.size())), bytes.size()};
  std::memcpy(bytes_.data(), bytes.data(), bytes.size());
}

FileBytes::~FileBytes() {
  if (!bytes_.empty()) free_in_file(bytes_.data());
}

bool lies_in_file(const void* place) noexcept {
  FileBlocks& blocks = file_blocks();
  if (blocks.count == 0) return false;
  const std::lock_guard lock(blocks.mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(place));
  const auto next = blocks.sizes.upper_bound(at);
  if (next == blocks.sizes.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return at < begin + size;
}

void release_file_memory() noexcept {
  FileBlocks& blocks = file_blocks();
  if (blocks.count == 0) return;
  const std::lock_guard lock(blocks.mutex);
  for (const auto& [begin, size] : blocks.sizes) os::release_file_pages(begin, size);
}

}  // namespace trafo
