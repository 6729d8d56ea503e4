// The fields of a serialized SentencePiece model, which is a protocol buffer.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/core/wire_format.h"

namespace trafo {

// Field numbers of the messages.
namespace spm_field {
inline constexpr uint32_t kSubword = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4,
                          kDenormalizer = 5;
inline constexpr uint32_t kSubwordText = 1, kSubwordScore = 2, kSubwordType = 3;
inline constexpr uint32_t kModelType = 3, kByteFallback = 35, kUnknownSurface = 44, kUnkToken = 45,
                          kBosToken = 46, kEosToken = 47, kPadToken = 48;
// Fields of ours in the trainer's message, in the range that the format leaves to extensions. The
// library takes no token as the first or last of a text that is an ordinary subword, and only one
// as the last. kEnds is a message of texts, the field kEnd, the first of them eos; kStart the text
// of bos.
inline constexpr uint32_t kEnds = 20001, kEnd = 1, kStart = 20002;
inline constexpr uint32_t kCharacterMap = 2, kDummyPrefix = 3, kExtraWhitespaces = 4, kEscape = 5;
}  // namespace spm_field

using SpmField = WireField;

// Throws CORRUPT_FILE: `name` is no usable model because of `reason`.
[[noreturn]] void fail_spm(std::string_view name, std::string_view reason);

// The fields of a message of a SentencePiece model; next() calls fail_spm() for bytes that are no
// field.
class SpmFields : public WireFields {
 public:
  SpmFields(std::string_view message, std::string_view name)
      : WireFields(message, name, fail_spm) {}
};

}  // namespace trafo
