#include "engine/formats/binary_file.h"

#include <algorithm>

#include "engine/formats/hf/directory.h"

namespace trafo::interop {

void BinaryReader::require_left(uint64_t count) const {
  require(count <= size_ - std::min(position_, size_), ErrorCode::corrupt_file, kOrigin, label(),
          " ends too early");
}

void BinaryReader::bytes(std::span<std::byte> to) {
  require_left(to.size());
  require(file_.read_at(position_, to) == to.size(), ErrorCode::corrupt_file, kOrigin, label(),
          " ends too early");
  position_ += to.size();
}

std::vector<std::byte> BinaryReader::bytes(uint64_t count) {
  require_left(count);
  std::vector<std::byte> data(static_cast<size_t>(count));
  bytes(std::span(data));
  return data;
}

std::string BinaryReader::text(uint64_t count) {
  require_left(count);
  std::string value(static_cast<size_t>(count), '\0');
  bytes(std::as_writable_bytes(std::span(value.data(), value.size())));
  return value;
}

}  // namespace trafo::interop
