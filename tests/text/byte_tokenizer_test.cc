#include "engine/text/tokenizer/byte/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using TokenIds = std::vector<int32_t>;

Tokenizer bytes() {
  TokenizerTrainOptions options;
  options.kind = "byte";
  return Tokenizer::train(std::span<const std::string_view>(), options);
}

// TokenIds of transformers' ByT5Tokenizer, without the </s> that it appends.
TEST(ByteTokenizer, HasTheIdsOfByT5) {
  const Tokenizer tokenizer = bytes();
  EXPECT_EQ(tokenizer.encode("Life is"), (TokenIds{79, 108, 105, 104, 35, 108, 118}));
  EXPECT_EQ(tokenizer.encode("für 日"), (TokenIds{105, 198, 191, 117, 35, 233, 154, 168}));
  EXPECT_EQ(tokenizer.encode(""), TokenIds{});
  EXPECT_EQ(tokenizer.encode("</s>"),
            (TokenIds{63, 50, 118, 65}));  // text is never a special token
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.pad_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_EQ(tokenizer.unk_id(), 2);
  EXPECT_EQ(tokenizer.bos_id(), -1);
  EXPECT_EQ(tokenizer.special_tokens().start(), 1);
  EXPECT_TRUE(tokenizer.further_end_ids().empty());
  EXPECT_FALSE(tokenizer.bos_is_subword());
  EXPECT_EQ(tokenizer.as_sentencepiece(), nullptr);
}

TEST(ByteTokenizer, DecodesWhatItEncodes) {
  const Tokenizer tokenizer = bytes();
  for (const char* text : {"", " two  spaces ", "\tтест\r", "日本語 \U0001F600", "\u2581<0x41>"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  // ByT5 leaves out special tokens and bytes that are no UTF-8.
  EXPECT_EQ(tokenizer.decode(TokenIds{0, 68, 2, 69, 1}), "AB");
  EXPECT_EQ(tokenizer.decode(TokenIds{68, 229, 133, 69}),
            "AB");  // two of the three bytes of a sign
  EXPECT_EQ(tokenizer.decode(TokenIds{195, 68, 258, 69, 198}), "AB");
  EXPECT_EQ(tokenizer.continuation(tokenizer.encode("a b"), tokenizer.encode(" c")), " c");
  expect_error(ErrorCode::invalid_argument, "has 259 tokens",
               [&] { tokenizer.decode(TokenIds{259}); });
  expect_error(ErrorCode::invalid_argument, "invalid UTF-8", [&] { tokenizer.encode("\xff"); });
  expect_error(ErrorCode::invalid_argument, "NUL byte",
               [&] { tokenizer.encode(std::string_view("a\0b", 3)); });
}

TEST(ByteTokenizer, NamesEachTokenAndFindsItAgain) {
  const Tokenizer tokenizer = bytes();
  std::set<std::string> names;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    names.insert(tokenizer.token(id));
    EXPECT_EQ(tokenizer.id(tokenizer.token(id)), id);
    const bool continues = id >= 3 + 0x80 && id < 3 + 0xc0;
    EXPECT_EQ(tokenizer.continues_character(id), continues) << id;
  }
  EXPECT_EQ(names.size(), 259u);
  EXPECT_EQ(tokenizer.token(1), "</s>");
  EXPECT_EQ(tokenizer.token(3 + ' '), "<0x20>");
  EXPECT_EQ(tokenizer.id("A"), tokenizer.unk_id());
  EXPECT_THROW(tokenizer.token(259), Error);
  EXPECT_THROW(tokenizer.continues_character(-1), Error);
  expect_error(ErrorCode::unsupported, "a byte vocabulary has one segmentation",
               [&] { tokenizer.sampler(); });
}

TEST(ByteTokenizer, RefusesOptionsThatItHasNoUseFor) {
  const auto refuses = [](const char* field, auto change) {
    TokenizerTrainOptions options;
    options.kind = "byte";
    change(options);
    expect_error(ErrorCode::invalid_argument, field, [&] { validate(options); });
  };
  using Options = TokenizerTrainOptions;
  refuses("vocabulary is 300", [](Options& o) { o.vocab_size = 300; });
  refuses("vocabulary is 258", [](Options& o) {
    o.vocab_size = 258;
    o.hard_vocab_limit = false;
  });
  refuses("bpe", [](Options& o) { o.model = TokenizerModel::bpe; });
  refuses("byte_fallback", [](Options& o) { o.byte_fallback = true; });
  refuses("character_coverage", [](Options& o) { o.character_coverage = 0.99; });
  refuses("normalization", [](Options& o) { o.normalization = Normalization::nfkc; });
  refuses("user_symbols", [](Options& o) { o.user_symbols = {"x"}; });
  refuses("kind must be sentencepiece, byte or byte-bpe, got 'word'",
          [](Options& o) { o.kind = "word"; });
  TokenizerTrainOptions larger;
  larger.kind = "byte";
  larger.vocab_size = 16000;
  larger.hard_vocab_limit = false;
  EXPECT_NO_THROW(validate(larger));
}

TEST(VocabularyFile, ItsContentTellsTheKind) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "any name";
  spill(path, bytes().serialized());
  const Tokenizer again = Tokenizer::load(path);
  EXPECT_EQ(again.kind(), "byte");
  EXPECT_EQ(again.file_name(), "vocab.byte");
  EXPECT_EQ(again.serialized(), bytes().serialized());
  for (const char* damaged :
       {"{\"tokenizer\": \"byte\", \"more\": 1}\n", "{\"tokenizer\": \"byte\"}"})
    expect_error(ErrorCode::corrupt_file, "x: a byte vocabulary has no more than",
                 [&] { Tokenizer::from_bytes(damaged, "x"); });
  expect_error(ErrorCode::corrupt_file,
               "x: not a vocabulary (sentencepiece, byte, marian, wordpiece or byte-bpe)",
               [&] { Tokenizer::from_bytes("{\"models\": {}}", "x"); });
  expect_error(ErrorCode::corrupt_file, "x: not a usable SentencePiece model",
               [&] { Tokenizer::from_bytes("text", "x"); });
}

TEST(VocabularyFile, IsFoundInADirectory) {
  const TemporaryDirectory folder;
  expect_error(
      ErrorCode::not_found,
      "there is no vocabulary (vocab.spm, vocab.byte, vocab.marian, tokenizer.json or vocab.txt)",
      [&] { Tokenizer::load(folder.path()); });
  spill(folder.path() / "vocab.byte", bytes().serialized());
  EXPECT_EQ(vocabulary_file(folder.path()), folder.path() / "vocab.byte");
  EXPECT_EQ(Tokenizer::load(folder.path()).kind(), "byte");
  spill(folder.path() / "vocab.spm", "x");
  expect_error(ErrorCode::invalid_argument, "has two vocabularies, vocab.spm and vocab.byte",
               [&] { Tokenizer::load(folder.path()); });
}

// Only WordPiece is read from two files, of which it writes the first. Byte-level BPE has a file of
// the same name.
TEST(VocabularyFile, EveryKindHasItsOwnNames) {
  std::multiset<std::string_view> names, files;
  for (const TokenizerKind& kind : tokenizer_kinds()) {
    const bool is_second = names.contains(kind.name);
    EXPECT_EQ(&tokenizer_kind(kind.name) == &kind, !is_second) << kind.file;
    EXPECT_EQ(is_second, kind.file == "vocab.txt") << kind.file;
    names.insert(kind.name);
    files.insert(kind.file);
  }
  for (const std::string_view name : names)
    EXPECT_EQ(names.count(name), name == "wordpiece" ? 2u : 1u) << name;
  for (const std::string_view file : files)
    EXPECT_EQ(files.count(file), file == "tokenizer.json" ? 2u : 1u) << file;
}

}  // namespace
}  // namespace trafo
