#include "engine/core/wire_format.h"

#include <bit>

#include "engine/core/status.h"

namespace trafo {

void WireFields::fail_wire(std::string_view reason) const {
  refuse_(name_, reason);
  fail(ErrorCode::internal, "wire_format", "the refusal of ", name_, " returned");
}

bool WireFields::next(WireField& field) {
  if (position_ == message_.size()) return false;
  const size_t begin = position_;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 >= 1u << 29) fail_wire("bad field number");
  field = {};
  field.number = static_cast<uint32_t>(key >> 3);
  field.wire = static_cast<uint32_t>(key & 7);
  switch (field.wire) {
    case WireField::varint:
      field.value = varint();
      break;
    case WireField::fixed64:
      field.value = fixed(8);
      break;
    case WireField::bytes_of:
      field.bytes = take(varint());
      break;
    case WireField::fixed32:
      field.value = fixed(4);
      break;
    default:
      fail_wire(concat("bad wire type ", field.wire));
  }
  field.whole = message_.substr(begin, position_ - begin);
  return true;
}

uint64_t WireFields::varint() {
  uint64_t result = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return result;
  }
  fail_wire("a number is too long");
}

uint64_t WireFields::fixed(size_t size) {
  uint64_t result = 0;
  int shift = 0;
  for (const char byte : take(size)) {
    result |= static_cast<uint64_t>(static_cast<unsigned char>(byte)) << shift;
    shift += 8;
  }
  return result;
}

std::string_view WireFields::take(uint64_t size) {
  if (size > message_.size() - position_) fail_wire(concat("truncated at byte ", message_.size()));
  position_ += size;
  return message_.substr(position_ - size, size);
}

void WireWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) message_ += static_cast<char>(value | 0x80);
  message_ += static_cast<char>(value);
}

void WireWriter::key(uint32_t field, uint32_t wire) {
  varint(uint64_t{field} << 3 | wire);
}

void WireWriter::integer(uint32_t field, int64_t value) {
  key(field, WireField::varint);
  varint(static_cast<uint64_t>(value));
}

void WireWriter::real(uint32_t field, float value) {
  key(field, WireField::fixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) message_ += static_cast<char>(bits >> shift);
}

void WireWriter::bytes(uint32_t field, std::string_view value) {
  key(field, WireField::bytes_of);
  varint(value.size());
  message_ += value;
}

}  // namespace trafo
