// Reads the wire format of a serialized SentencePiece model: a protocol buffer, which is a sequence
// of keys and values.
#pragma once

#include <cstdint>
#include <string_view>

namespace trafo {

// Field numbers of the messages.
namespace spm_field {
inline constexpr uint32_t kSubword = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4,
                          kDenormalizer = 5;
inline constexpr uint32_t kSubwordText = 1, kSubwordScore = 2, kSubwordType = 3;
inline constexpr uint32_t kModelType = 3, kUnknownSurface = 44, kBosToken = 46, kEosToken = 47;
inline constexpr uint32_t kCharacterMap = 2, kDummyPrefix = 3, kExtraWhitespaces = 4, kEscape = 5;
}  // namespace spm_field

struct SpmField {
  enum Wire : uint32_t { varint = 0, fixed64 = 1, bytes_of = 2, fixed32 = 5 };
  uint32_t number = 0;
  uint32_t wire = varint;
  uint64_t value = 0;      // if it is a number
  std::string_view bytes;  // if it is bytes_of: a text or a message
  std::string_view whole;  // key and value

  bool is(uint32_t field, uint32_t kind) const { return number == field && wire == kind; }
};

// Iterates over the fields of a message. next() throws CORRUPT_FILE, naming `name`, if the bytes
// are no such sequence.
class SpmFields {
 public:
  SpmFields(std::string_view message, std::string_view name) : message_(message), name_(name) {}
  bool next(SpmField& field);  // false at the end

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);
  std::string_view take(uint64_t size);

  std::string_view message_, name_;
  size_t position_ = 0;
};

// Throws CORRUPT_FILE: `name` is no usable model because of `reason`.
[[noreturn]] void fail_spm(std::string_view name, std::string_view reason);

}  // namespace trafo
