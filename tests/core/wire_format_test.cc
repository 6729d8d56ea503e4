#include "engine/core/wire_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

void refuse(std::string_view name, std::string_view reason) {
  fail(ErrorCode::corrupt_file, "test", name, ": ", reason);
}

std::vector<WireField> fields_of(std::string_view message) {
  std::vector<WireField> found;
  WireFields fields(message, "message", refuse);
  for (WireField field; fields.next(field);) found.push_back(field);
  return found;
}

// The bytes of the examples of https://protobuf.dev/programming-guides/encoding.
TEST(WireFormat, WritesTheBytesOfTheSpecification) {
  WireWriter number;
  number.integer(1, 150);
  EXPECT_EQ(number.message(), "\x08\x96\x01");
  WireWriter text;
  text.bytes(2, "testing");
  EXPECT_EQ(text.message(), "\x12\x07testing");
  WireWriter inner;
  inner.bytes(3, number.message());
  EXPECT_EQ(inner.message(), "\x1a\x03\x08\x96\x01");
  WireWriter negative;
  negative.integer(1, -2);
  EXPECT_EQ(negative.message(), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  WireWriter real;
  real.real(5, 1.0f);
  EXPECT_EQ(real.message(), std::string("\x2d\x00\x00\x80\x3f", 5));
}

TEST(WireFormat, ReadsWhatItWrites) {
  WireWriter out;
  out.integer(1, 0);
  out.integer(16, std::numeric_limits<int64_t>::min());
  out.real(300, -2.5f);
  out.bytes(4, std::string_view("a\0b", 3));
  out.bytes(5, "");
  out.append(out.message());
  const std::vector<WireField> fields = fields_of(out.message());
  ASSERT_EQ(fields.size(), 10u);
  std::string whole;
  for (size_t half = 0; half < 10; half += 5) {
    EXPECT_TRUE(fields[half].is(1, WireField::varint));
    EXPECT_EQ(fields[half].value, 0u);
    EXPECT_TRUE(fields[half + 1].is(16, WireField::varint));
    EXPECT_EQ(fields[half + 1].value, uint64_t{1} << 63);
    EXPECT_TRUE(fields[half + 2].is(300, WireField::fixed32));
    EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(fields[half + 2].value)), -2.5f);
    EXPECT_TRUE(fields[half + 3].is(4, WireField::bytes_of));
    EXPECT_EQ(fields[half + 3].bytes, std::string_view("a\0b", 3));
    EXPECT_TRUE(fields[half + 4].is(5, WireField::bytes_of));
    EXPECT_EQ(fields[half + 4].bytes, "");
  }
  for (const WireField& field : fields) whole += field.whole;
  EXPECT_EQ(whole, out.message());
}

// A field number has 29 bits.
TEST(WireFormat, FieldNumbersHaveALimit) {
  const auto key = [](uint64_t number) {
    std::string bytes;
    for (number <<= 3; number >= 0x80; number >>= 7)
      bytes += static_cast<char>((number & 0x7f) | 0x80);
    return bytes + static_cast<char>(number);
  };
  constexpr uint64_t kMost = (uint64_t{1} << 29) - 1;
  EXPECT_EQ(fields_of(key(kMost) + '\x05').at(0).number, kMost);
  for (const uint64_t number : {kMost + 1, kMost + 2, uint64_t{1} << 32, uint64_t{1} << 40})
    expect_error(ErrorCode::corrupt_file, "bad field number",
                 [&] { fields_of(key(number) + '\x05'); });
}

TEST(WireFormat, BytesThatAreNoMessageAreRefused) {
  const auto refused = [](std::string_view bytes, const char* text) {
    expect_error(ErrorCode::corrupt_file, text, [&] { fields_of(bytes); });
  };
  refused("\x08", "truncated at byte 1");
  refused(
      "\x12\x03"
      "ab",
      "truncated at byte 4");
  refused("\x2d\x01\x02", "truncated at byte 3");
  refused("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "truncated at byte 11");
  refused("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number is too long");
  refused("\x0b", "bad wire type 3");
  refused("\x02\x01", "bad field number");
  expect_error(ErrorCode::internal, "the refusal of message returned", [] {
    WireFields fields("\x0b", "message", [](std::string_view, std::string_view) {});
    WireField field;
    fields.next(field);
  });
}

}  // namespace
}  // namespace trafo
