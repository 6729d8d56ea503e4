// Text in pieces: no later token changes a piece, and all pieces are the text of all tokens.
#include "engine/text/tokenizer/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/core/numeric/philox.h"
#include "engine/core/strings/utf8.h"
#include "tests/support/chat_tokenizer.h"
#include "tests/text/bpe_golden.h"

namespace trafo {
namespace {

using StreamIds = std::vector<int32_t>;

Tokenizer with_bytes() {
  const std::vector<std::string> text = {"der hund sieht die katze", "das haus ist alt und rot",
                                         "ein altes haus sieht gut aus"};
  TokenizerTrainOptions options;
  options.vocab_size = 330;
  options.byte_fallback = true;
  options.hard_vocab_limit = false;
  return Tokenizer::train(text, options);
}

Tokenizer of_bytes() {
  TokenizerTrainOptions options;
  options.kind = "byte";
  return Tokenizer::train(std::span<const std::string_view>(), options);
}

Tokenizer with_fallback() {
  for (const Json& each : *bpe_golden().find("cases")->as<Json::List>())
    if (*each.find("name")->as<std::string>() == "fallback")
      return Tokenizer::from_bytes(golden_file(each).dump(), "tokenizer.json", bpe_end());
  ADD_FAILURE() << "no case fallback";
  return of_bytes();
}

struct Kind {
  const char* name;
  Tokenizer (*make)();
};

class TextStreamTest : public ::testing::TestWithParam<Kind> {
 protected:
  const Tokenizer tokenizer_ = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, TextStreamTest,
    ::testing::Values(Kind{"SentencePiece", with_bytes}, Kind{"Byte", of_bytes},
                      Kind{"ByteLevel", [] { return testing::chat_tokenizer(); }},
                      Kind{"Fallback", with_fallback}),
    [](const auto& kind) { return std::string(kind.param.name); });

constexpr const char* kStreamed = "a\U0001F600\U0001F1E9\U0001F1EA b\u4f60\u597d\u00fc \u20ac!";

// A piece that was given is the beginning of the text, whatever follows.
TEST_P(TextStreamTest, PiecesOfRandomTokensAreTheirText) {
  PhiloxStream random(3, 1);
  const auto any = [&](uint32_t below) { return random.next_u32() % below; };
  const StreamIds characters = tokenizer_.encode(kStreamed);
  for (int round = 0; round < 300; ++round) {
    StreamIds before = tokenizer_.encode(round % 2 == 0 ? "das haus" : ""), ids;
    const uint32_t count = 1 + any(round % 10 == 0 ? 200 : 40);
    while (ids.size() < count) {
      // Wrong bytes, and beginnings of characters that are right for a while.
      const size_t begin = any(static_cast<uint32_t>(characters.size()));
      const size_t size = std::min<size_t>(1 + any(6), characters.size() - begin);
      if (any(2) == 0)
        ids.insert(ids.end(), characters.begin() + static_cast<std::ptrdiff_t>(begin),
                   characters.begin() + static_cast<std::ptrdiff_t>(begin + size));
      else
        ids.push_back(static_cast<int32_t>(any(static_cast<uint32_t>(tokenizer_.vocab_size()))));
    }
    TextStream stream(tokenizer_, before);
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string piece = stream.push(ids[i]);
      ASSERT_TRUE(is_valid_utf8(piece)) << round;
      text += piece;
    }
    text += stream.finish();
    ASSERT_EQ(text, tokenizer_.continuation(before, ids)) << round;
  }
}

// A character whose bytes have special tokens between them, which have no text.
TEST(TextStream, BytesThatAreFarApartAreACharacter) {
  const Tokenizer tokenizer = testing::chat_tokenizer();
  StreamIds ids(20, tokenizer.encode("a")[0]);
  const StreamIds euro = tokenizer.encode("\u20ac");
  ASSERT_EQ(euro.size(), 3u);
  ids.push_back(euro[0]);
  ids.insert(ids.end(), 7, tokenizer.eos_id());
  ids.insert(ids.end(), {euro[1], euro[2]});
  TextStream stream(tokenizer, {});
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), tokenizer.continuation({}, ids));
}

TEST_P(TextStreamTest, CharactersComeWithTheirLastToken) {
  TextStream stream(tokenizer_, {});
  std::string text, whole;
  for (const int32_t id : tokenizer_.encode(kStreamed)) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    EXPECT_EQ(piece.find("\ufffd"), std::string::npos);
    text += piece;
    // Byte fallback decides about a character when another token follows.
    if (std::string_view(GetParam().name) != "Fallback" && piece == "\U0001F600") {
      EXPECT_EQ(text, "a\U0001F600");
      whole = text;
    }
  }
  EXPECT_EQ(text + stream.finish(), kStreamed);
  EXPECT_EQ(whole.empty(), std::string_view(GetParam().name) == "Fallback");
}

TEST_P(TextStreamTest, TheEndOfABrokenCharacterIsShownAsDecodingShowsIt) {
  const StreamIds whole = tokenizer_.encode("x\U0001F600");
  const StreamIds ids(whole.begin(), whole.end() - 1);
  TextStream stream(tokenizer_, {});
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(text + stream.finish(), tokenizer_.decode(ids));
}

}  // namespace
}  // namespace trafo
