#include "engine/core/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace trafo {
namespace {

std::string hex(const Sha256& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

// FIPS 180-4's examples and one of a million letters (NIST CSRC, "SHA-256").
TEST(Sha256, DigestsOfTheStandard) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, test case 2, whose key is padded with zeros, in parts.
TEST(Sha256, CodesOfTheStandard) {
  Sha256 key{};
  key[0] = 'J', key[1] = 'e', key[2] = 'f', key[3] = 'e';
  const std::string expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  EXPECT_EQ(hex(hmac_sha256(key, {"what do ya want for nothing?"})), expected);
  EXPECT_EQ(hex(hmac_sha256(key, {"what do ya ", "", "want for nothing?"})), expected);
}

TEST(Sha256, EqualMeansEveryByte) {
  const Sha256 one = sha256("a");
  for (size_t i = 0; i < one.size(); ++i) {
    Sha256 other = one;
    other[i] ^= 1;
    EXPECT_FALSE(are_equal(one, other)) << i;
  }
  EXPECT_TRUE(are_equal(one, one));
}

TEST(Sha256, RandomBytesDiffer) {
  EXPECT_NE(random_bytes(), random_bytes());
}

}  // namespace
}  // namespace trafo
