// Memory that lies in files without names (os::map_nameless_file), for models that are larger than
// the machine's memory. The system writes its pages to the file and reads them back as it needs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace trafo {

// Zeros, in a new file in `directory`, which has room for all of it on the disk. OUT_OF_MEMORY with
// the system's reason: there is no room, or no file can be made there.
void* allocate_in_file(const std::filesystem::path& directory, size_t bytes);
void free_in_file(void* begin) noexcept;
// A copy of bytes in such memory.
class FileBytes {
 public:
  FileBytes() = default;
  FileBytes(const std::filesystem::path& directory, std::span<const std::byte> bytes);
  ~FileBytes();
  FileBytes(FileBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  FileBytes& operator=(FileBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::span<const std::byte> span() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// Whether a place is in such memory.
bool lies_in_file(const void* place) noexcept;
// Lets go of the pages of all such memory of the process. Their contents stay, and the next access
// brings them back. Called between the tensors of a model, it keeps one of them resident.
void release_file_memory() noexcept;

}  // namespace trafo
