#include <gtest/gtest.h>

#include <vector>

#include "engine/io/checksum.h"

namespace trafo {
namespace {

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc, MatchesThePublishedCheckValue) {
  // The check value of CRC-32/ISO-HDLC in every catalogue of checksums.
  EXPECT_EQ(crc32(bytes_in("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32({}), 0u);
  EXPECT_EQ(crc32_text(0xcbf43926u), "cbf43926");
  EXPECT_EQ(crc32_text(0x1fu), "0000001f");
}

TEST(Crc, PiecesGiveTheSumOfTheWhole) {
  const std::string_view text = "the quick brown fox";
  const uint32_t whole = crc32(bytes_in(text));
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32(bytes_in(text.substr(cut)), crc32(bytes_in(text.substr(0, cut)))), whole)
        << cut;
  EXPECT_EQ(crc32({}, whole), whole);
}

// The definition, bit by bit.
uint32_t plain_crc32(std::span<const std::byte> bytes, uint32_t previous) {
  uint32_t crc = ~previous;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

TEST(Crc, LongInputsHaveTheSumOfTheDefinition) {
  std::vector<std::byte> bytes(1500);
  uint32_t state = 1;
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  for (size_t count = 200; count <= 1400; count += count < 600 ? 1 : 37) {
    const auto part = std::span(bytes).subspan(count % 64, count);
    EXPECT_EQ(crc32(part), plain_crc32(part, 0)) << count;
    EXPECT_EQ(crc32(part, 0x12345678), plain_crc32(part, 0x12345678)) << count;
  }
}

TEST(Crc, SealFindsEveryFlippedBit) {
  std::string text = "{\"crc\":\"00000000\",\"content\":[1,2,3]}";
  seal_text(text, 8);
  ASSERT_TRUE(is_sealed(text, 8));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(is_sealed(damaged, 8)) << "bit " << bit;
  }
}

TEST(Crc, SealNeedsRoomForItsDigits) {
  std::string text = "1234567";
  seal_text(text, 0);
  EXPECT_EQ(text, "1234567");
  EXPECT_FALSE(is_sealed(text, 0));
  EXPECT_FALSE(is_sealed("12345678", 1));
  EXPECT_FALSE(is_sealed("12345678", 9));
}

}  // namespace
}  // namespace trafo
