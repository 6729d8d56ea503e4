#include "engine/tokenizer/spm_fields.h"

#include "engine/core/status.h"

namespace trafo {

void fail_spm(std::string_view name, std::string_view reason) {
  fail(ErrorCode::corrupt_file, "tokenizer", name, ": not a usable SentencePiece model: ", reason);
}

bool SpmFields::next(SpmField& field) {
  if (position_ == message_.size()) return false;
  const size_t begin = position_;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 >= 1u << 29) fail_spm(name_, "bad field number");
  field = {};
  field.number = static_cast<uint32_t>(key >> 3);
  field.wire = static_cast<uint32_t>(key & 7);
  switch (field.wire) {
    case SpmField::varint:
      field.value = varint();
      break;
    case SpmField::fixed64:
      field.value = fixed(8);
      break;
    case SpmField::bytes_of:
      field.bytes = take(varint());
      break;
    case SpmField::fixed32:
      field.value = fixed(4);
      break;
    default:
      fail_spm(name_, concat("bad wire type ", field.wire));
  }
  field.whole = message_.substr(begin, position_ - begin);
  return true;
}

uint64_t SpmFields::varint() {
  uint64_t result = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return result;
  }
  fail_spm(name_, "a number is too long");
}

uint64_t SpmFields::fixed(size_t size) {
  uint64_t result = 0;
  int shift = 0;
  for (const char byte : take(size)) {
    result |= static_cast<uint64_t>(static_cast<unsigned char>(byte)) << shift;
    shift += 8;
  }
  return result;
}

std::string_view SpmFields::take(uint64_t size) {
  if (size > message_.size() - position_)
    fail_spm(name_, concat("truncated at byte ", message_.size()));
  position_ += size;
  return message_.substr(position_ - size, size);
}

}  // namespace trafo
