#include "engine/interop/spm_pieces.h"

#include <cstring>

#include "engine/core/status.h"

namespace trafo::interop {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3;
constexpr uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint32_t kModelType = 3, kBosPiece = 46, kEosPiece = 47;
constexpr uint32_t kCharacterMap = 2, kDummyPrefix = 3, kExtraWhitespaces = 4, kEscape = 5;

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;  // of a length-delimited field
  std::string_view whole;  // key and all
};

// Protocol buffers wire format, of a message that has been checked.
class Fields {
 public:
  explicit Fields(std::string_view message) : message_(message) {}

  bool next(Field& field) {
    if (position_ >= message_.size()) return false;
    const size_t begin = position_;
    const uint64_t key = varint();
    field.number = static_cast<uint32_t>(key >> 3);
    field.value = 0;
    field.bytes = {};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        fixed(field, 8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        fixed(field, 4);
        break;
      default:
        broken();
    }
    field.whole = message_.substr(begin, position_ - begin);
    return true;
  }

 private:
  [[noreturn]] static void broken() {
    fail(ErrorCode::corrupt_file, "interop", "not a usable SentencePiece model");
  }
  std::string_view take(uint64_t size) {
    if (size > message_.size() - position_) broken();
    position_ += size;
    return message_.substr(position_ - size, size);
  }
  void fixed(Field& field, size_t size) {
    std::memcpy(&field.value, take(size).data(), size);  // little-endian, as the format
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }

  std::string_view message_;
  size_t position_ = 0;
};

void add_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void add_bytes(std::string& out, uint32_t number, std::string_view bytes) {
  add_varint(out, uint64_t{number} << 3 | 2);
  add_varint(out, bytes.size());
  out += bytes;
}

SpmPiece parse_piece(std::string_view message) {
  SpmPiece piece;
  Fields fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == kPieceText) piece.text = field.bytes;
    if (field.number == kPieceType) piece.type = static_cast<uint32_t>(field.value);
    if (field.number == kPieceScore) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
  }
  return piece;
}

}  // namespace

SpmModel parse_spm(std::string_view serialized) {
  SpmModel model;
  Fields fields(serialized);
  for (Field field; fields.next(field);) {
    if (field.number == kPieces) {
      model.pieces.push_back(parse_piece(field.bytes));
      continue;
    }
    model.rest += field.whole;
    Fields inner(field.bytes);
    for (Field f; (field.number == kTrainer || field.number == kNormalizer) && inner.next(f);) {
      if (field.number == kTrainer) {
        if (f.number == kModelType) model.is_unigram = f.value == 1;
      } else if (f.number == kCharacterMap) {
        model.character_map = f.bytes;
      } else if (f.number == kDummyPrefix) {
        model.add_dummy_prefix = f.value != 0;
      } else if (f.number == kExtraWhitespaces) {
        model.remove_extra_whitespaces = f.value != 0;
      } else if (f.number == kEscape) {
        model.escape_whitespaces = f.value != 0;
      }
    }
  }
  return model;
}

std::string serialize_spm(const SpmModel& model, const std::vector<SpmPiece>& pieces) {
  std::string out;
  for (const SpmPiece& piece : pieces) {
    std::string message;
    add_bytes(message, kPieceText, piece.text);
    add_varint(message, kPieceScore << 3 | 5);
    char score[sizeof piece.score];
    std::memcpy(score, &piece.score, sizeof score);
    message.append(score, sizeof score);
    add_varint(message, kPieceType << 3);
    add_varint(message, piece.type);
    add_bytes(out, kPieces, message);
  }
  out += model.rest;
  // Fields of a message that comes again are merged, the last one counts.
  std::string names;
  add_bytes(names, kBosPiece, "<s>");
  add_bytes(names, kEosPiece, "</s>");
  add_bytes(out, kTrainer, names);
  return out;
}

}  // namespace trafo::interop
