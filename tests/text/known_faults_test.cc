// Published faults of SentencePiece: a hostile model makes it read or write out of bounds, or
// exhausts the stack. Each is refused before the library sees the model, whatever its version.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/core/wire_format.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

std::string message_of(uint32_t number, const std::string& bytes) {
  WireWriter message;
  message.bytes(number, bytes);
  return message.message();
}

std::string subword_of(const std::string& text, int type) {
  WireWriter subword;
  subword.bytes(spm_field::kSubwordText, text);
  subword.real(spm_field::kSubwordScore, 0);
  subword.integer(spm_field::kSubwordType, type);
  return message_of(spm_field::kSubword, subword.message());
}

std::string base_model() {
  return subword_of("<unk>", 2) + subword_of("</s>", 3) + subword_of("a", 1);
}

// A model with a character map: the size that it says its trie has, the trie, the texts.
std::string with_map(uint32_t said, const std::vector<uint32_t>& trie, const std::string& texts) {
  std::string blob(sizeof said + trie.size() * sizeof(uint32_t), '\0');
  std::memcpy(blob.data(), &said, sizeof said);
  std::memcpy(blob.data() + sizeof said, trie.data(), trie.size() * sizeof(uint32_t));
  return base_model() +
         message_of(spm_field::kNormalizer, message_of(spm_field::kCharacterMap, blob + texts));
}

// A trie of one block with an entry for the letter a whose text begins at `text`.
std::vector<uint32_t> letter_trie(uint32_t text) {
  std::vector<uint32_t> trie(256, 0);
  trie['a'] = 'a' | 1u << 8 | ('a' ^ 0x80u) << 10;
  trie[0x80] = 1u << 31 | text;
  return trie;
}

void expect_refused(const std::string& model, const char* reason) {
  expect_error(ErrorCode::corrupt_file, reason, [&] { Tokenizer::from_bytes(model, "bad.spm"); });
}

const std::string kTexts("x\0", 2);

TEST(KnownFaults, ASoundModelOfTheseFormsLoads) {
  EXPECT_NO_THROW(Tokenizer::from_bytes(base_model()));
  EXPECT_NO_THROW(Tokenizer::from_bytes(with_map(1024, letter_trie(0), kTexts)));
}

// CVE-2026-1260 and what version 0.2.1 checks since then: the size of the trie, the end of the
// texts, and where a leaf points.
TEST(KnownFaults, CharacterMapsThatVersion021Checks) {
  for (const uint32_t size : {0u, 4u, 1020u, 1023u, 1025u, 1536u, 2048u, 0xfffffc00u})
    expect_refused(with_map(size, letter_trie(0), kTexts), "its character map has a bad size");
  expect_refused(with_map(1024, letter_trie(0), ""), "its character map has a bad size");
  expect_refused(with_map(1024, letter_trie(0), "x"), "an unterminated text");
  for (const uint32_t text : {2u, 1000u, 0x7fffffffu})
    expect_refused(with_map(1024, letter_trie(text), kTexts), "points outside its texts");
}

// Issue 1269 of SentencePiece, open in 0.2.1: the root is followed without a look at it, and an
// offset there leaves the trie; a set top bit hid it from the check.
TEST(KnownFaults, TheRootOfACharacterMapPointsOutside) {
  for (const uint32_t offset : {0x100u, 0x3ffu, 0x1fffffu})
    for (const uint32_t top : {0u, 1u << 31})
      for (const uint32_t shifted : {0u, 1u << 9}) {
        std::vector<uint32_t> trie = letter_trie(0);
        trie[0] = top | shifted | offset << 10;
        expect_refused(with_map(1024, trie, kTexts), "its character map points outside itself");
      }
}

// Issue 1263, open in 0.2.1: tries are built by recursion, one level for each byte of a subword.
TEST(KnownFaults, SubwordsThatExhaustTheStack) {
  for (const size_t bytes : {size_t{1025}, size_t{100} << 10, size_t{1} << 20})
    for (const int type : {1, 3, 4})
      expect_refused(base_model() + subword_of(std::string(bytes, 'x'), type), " bytes");
}

// 0.2.1 gives lengths to the trie of user-defined symbols, whose texts ended at a NUL before.
TEST(KnownFaults, SubwordsWithNul) {
  for (const int type : {1, 4})
    for (const std::string& text : {std::string(1, '\0'), std::string("a\0b", 3)})
      expect_refused(base_model() + subword_of(text, type), "NUL");
}

}  // namespace
}  // namespace trafo
