// The wire format of protocol buffers: a message is a sequence of keys and values
// (https://protobuf.dev/programming-guides/encoding). SentencePiece models and ONNX files are
// messages; the numbers of their fields stand beside the code that uses them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trafo {

struct WireField {
  enum Wire : uint32_t { varint = 0, fixed64 = 1, bytes_of = 2, fixed32 = 5 };
  uint32_t number = 0;
  uint32_t wire = varint;
  uint64_t value = 0;      // if it is a number
  std::string_view bytes;  // if it is bytes_of: a text or a message
  std::string_view whole;  // key and value

  bool is(uint32_t field, uint32_t kind) const { return number == field && wire == kind; }
};

// Throws CORRUPT_FILE: `name` is not what it should be because of `reason`.
using WireRefusal = void (*)(std::string_view name, std::string_view reason);

// Iterates over the fields of a message. next() calls `refuse` if the bytes are no such sequence.
class WireFields {
 public:
  WireFields(std::string_view message, std::string_view name, WireRefusal refuse)
      : message_(message), name_(name), refuse_(refuse) {}
  bool next(WireField& field);  // false at the end

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);
  std::string_view take(uint64_t size);
  [[noreturn]] void fail_wire(std::string_view reason) const;

  std::string_view message_, name_;
  WireRefusal refuse_;
  size_t position_ = 0;
};

// Appends fields to a message.
class WireWriter {
 public:
  // int32, int64, bool and enums: a varint, of 64 bits in two's complement if it is negative.
  void integer(uint32_t field, int64_t value);
  void real(uint32_t field, float value);
  // A text, bytes, or a message inside this one.
  void bytes(uint32_t field, std::string_view value);
  // Fields that are serialized already.
  void append(std::string_view fields) { message_ += fields; }

  const std::string& message() const { return message_; }

 private:
  void key(uint32_t field, uint32_t wire);
  void varint(uint64_t value);
  std::string message_;
};

}  // namespace trafo
