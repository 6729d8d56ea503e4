// BPE with byte fallback, as Llama 2 and Gemma have it. byte_bpe_test.cc compares ids and texts
// with the library's.
#include <gtest/gtest.h>

#include <set>

#include "engine/core/numeric/shuffle.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/support/errors.h"
#include "tests/text/bpe_golden.h"

namespace trafo {
namespace {

// The file of a golden case with other values at some keys.
Json fallback_file(const char* name,
                   std::initializer_list<std::pair<std::string, Json>> changes = {}) {
  for (const Json& each : *bpe_golden().find("cases")->as<Json::List>()) {
    if (*each.find("name")->as<std::string>() != name) continue;
    Json file = golden_file(each);
    for (const auto& [path, value] : changes) change_file(file, path, value);
    return file;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

Tokenizer load_fallback(const Json& file) {
  return Tokenizer::from_bytes(file.dump(), "tokenizer.json", bpe_end());
}

// The model of the file without a token.
Json without_token(const char* token) {
  Json model = *fallback_file("fallback").find("model");
  Json::Object vocabulary;
  for (const Json::Member& each : *model.find("vocab")->as<Json::Object>())
    if (each.key != token) vocabulary.push_back(each);
  model["vocab"] = std::move(vocabulary);
  return model;
}

// As the tab of Gemma 2.
TEST(BpeFallback, ACharacterWithATokenNeedsNoByte) {
  const Tokenizer whole = load_fallback(fallback_file("fallback"));
  const Tokenizer tokenizer =
      load_fallback(fallback_file("fallback", {{"model", without_token("<0x61>")}}));
  EXPECT_EQ(tokenizer.id("<0x61>"), tokenizer.unk_id());
  const TokenIds ids = tokenizer.encode("the a");
  EXPECT_EQ(ids, whole.encode("the a"));
  EXPECT_EQ(tokenizer.decode(ids), "the a");
}

TEST(BpeFallback, IsAVocabularyLikeTheOthers) {
  const Json file = fallback_file("fallback");
  const Tokenizer tokenizer = load_fallback(file);
  EXPECT_EQ(tokenizer.kind(), "byte-bpe");
  EXPECT_EQ(tokenizer.file_name(), "tokenizer.json");
  EXPECT_EQ(tokenizer.serialized(), file.dump());
  EXPECT_EQ(tokenizer.token(tokenizer.unk_id()), "<unk>");
  // A file that names no unknown token has it by its usual name.
  Json::List special;
  for (const char* const name : {"<unk>", "<|end|>"})
    special.push_back(added_token(std::ssize(special), name, true));
  const Tokenizer unnamed = load_fallback(fallback_file(
      "fallback", {{"model: unk_token", Json(nullptr)}, {"added_tokens", std::move(special)}}));
  EXPECT_EQ(unnamed.unk_id(), tokenizer.unk_id());
  expect_different_names(tokenizer);
  // A line feed is a token, and so is its byte.
  EXPECT_NE(tokenizer.id("<U+000A><U+000A>"), tokenizer.unk_id());
  EXPECT_NE(tokenizer.id("<0x0A>"), tokenizer.unk_id());
}

TEST(BpeFallback, BytesBecomeCharacters) {
  const Tokenizer tokenizer = load_fallback(fallback_file("fallback"));
  const TokenIds ids = expect_whole_characters(tokenizer);
  ASSERT_EQ(ids.size(), 6u);
  // As the library: if bytes beside each other are no UTF-8, each of them is U+FFFD.
  const int32_t letter = tokenizer.id("<0x41>"), a = ids[0];
  EXPECT_EQ(tokenizer.decode(TokenIds{letter, letter, a}), "AAa");
  EXPECT_EQ(tokenizer.decode(TokenIds{letter, ids[1], a}), "\ufffd\ufffda");
  EXPECT_EQ(tokenizer.decode(TokenIds{letter, ids[2]}), "\ufffd\ufffd");
  EXPECT_EQ(tokenizer.decode(TokenIds{letter, ids[1], ids[2]}), "A");
}

TEST(BpeFallback, SpecialTokensInATextByChoice) {
  for (const char* name : {"fallback", "fallback llama", "fallback metaspace first"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = load_fallback(fallback_file(name));
    const Tokenizer parsing = tokenizer.parsing_special();
    const std::string text = "the<|end|>the";
    const TokenIds plain = tokenizer.encode(text), parsed = parsing.encode(text);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer.eos_id()), 0);
    EXPECT_EQ(std::count(parsed.begin(), parsed.end(), tokenizer.eos_id()), 1);
    EXPECT_EQ(tokenizer.decode(plain).substr(std::string(name).ends_with("first") ? 1 : 0), text);
  }
  // Only a text that begins here gets the space in front.
  const Tokenizer first =
      load_fallback(fallback_file("fallback metaspace first")).parsing_special();
  const TokenIds ids = first.encode("the<|end|>the");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(first.token(ids[0]), "▁the");
  EXPECT_EQ(first.token(ids[2]), "the");
}

// A special token with `normalized` is where the library finds it: "</t1>" becomes "▁</t1>", which
// is in no text without a space there.
TEST(BpeFallback, NormalizedSpecialTokensAreInTheNormalForm) {
  const Tokenizer tokenizer = load_fallback(fallback_file("normalized special llama"));
  const Tokenizer parsing = tokenizer.parsing_special();
  const int32_t begin = tokenizer.id("<t1>"), end = tokenizer.id("</t1>");
  const TokenIds the{tokenizer.id("the")}, inner = parsing.encode("<t1>the</t1>");
  EXPECT_EQ(parsing.encode("<t1>the"), (TokenIds{begin, the[0]}));
  EXPECT_EQ(parsing.encode("<t1>the </t1>"), (TokenIds{begin, the[0], end}));
  EXPECT_EQ(std::count(inner.begin(), inner.end(), end), 0);
  const TokenIds text = tokenizer.encode("<t1>");
  EXPECT_EQ(std::count(text.begin(), text.end(), begin), 0);
  TokenIds ids;
  ShuffleRng rng(1, 0);
  parsing.sampler()->sample("<t1>the </t1>", 0, rng, ids);
  EXPECT_EQ(ids, parsing.encode("<t1>the </t1>"));
  // Parts of a text, of which only the second token has no byte.
  std::vector<uint8_t> marked;
  const TextSpan parts[] = {{0, 4}, {8, 13}};
  parsing.encode_marked("<t1>the </t1>", parts, ids, marked);
  EXPECT_EQ(ids, (TokenIds{begin, the[0], end}));
  EXPECT_EQ(marked, (std::vector<uint8_t>{1, 0, 1}));
}

// A token in a word is none, also where the other part of the word is a token.
TEST(BpeFallback, ASingleWordIsNotBesideASpecialTokenOfLetters) {
  const Tokenizer tokenizer = load_fallback(fallback_file("normalized special")).parsing_special();
  const TokenIds beside = tokenizer.encode("wordEnds"), apart = tokenizer.encode("word Ends");
  EXPECT_EQ(apart[0], tokenizer.id("word"));
  EXPECT_EQ(beside.back(), tokenizer.id("Ends"));
  EXPECT_EQ(std::count(beside.begin(), beside.end(), tokenizer.id("word")), 0);
}

TEST(BpeFallback, LeavesOutMergesAtRandom) {
  const Tokenizer tokenizer = load_fallback(fallback_file("fallback llama"));
  expect_merges_left_out(tokenizer, 18);
}

// transformers 5 takes spaces out of a decoded text if both keys are true, and else leaves them.
TEST(BpeFallback, RefusesToCleanUpSpaces) {
  const std::string forced =
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
  for (const char* name : {"fallback", "gpt2"}) {
    const auto load = [&](const std::string& keys) {
      return Tokenizer::from_bytes(
          fallback_file(name).dump(), "x",
          {{"tokenizer_config.json", R"({"eos_token": "<|end|>", )" + keys + "}"}});
    };
    const Tokenizer ignored = load(R"("clean_up_tokenization_spaces": true)");
    EXPECT_EQ(ignored.decode(ignored.encode("the world .")), "the world .");
    load("\"" + forced + "\": true");
    expect_error(ErrorCode::unsupported, "tokenizer_config.json: " + forced + ": it is true",
                 [&] { load(R"("clean_up_tokenization_spaces": true, ")" + forced + "\": true"); });
  }
}

// A text without words is merged as one, in less than quadratic time: otherwise this takes minutes.
TEST(BpeFallback, MergesLongTexts) {
  const Tokenizer tokenizer = load_fallback(fallback_file("fallback"));
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "the world ";
  const TokenIds ids = tokenizer.encode(text);
  EXPECT_EQ(ids.size(), 60001u);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

// Files that are damaged, or that need what is not done here, are refused by their key.
TEST(BpeFallback, RefusesFilesByTheirKey) {
  using enum ErrorCode;
  const auto type = [](const char* name) { return Json(Json::Object{{"type", name}}); };
  const auto steps = [](const char* key, Json::List list) {
    return Json(Json::Object{{"type", "Sequence"}, {key, std::move(list)}});
  };
  const auto decoders = [&](Json::List list) { return steps("decoders", std::move(list)); };
  const Json bytes = type("ByteFallback"), fuse = type("Fuse");
  const auto strip = [](Json content, Json start, Json stop) {
    return Json(Json::Object{{"type", "Strip"},
                             {"content", std::move(content)},
                             {"start", std::move(start)},
                             {"stop", std::move(stop)}});
  };
  const auto metaspace = [](Json replacement, Json scheme, Json split) {
    return Json(Json::Object{{"type", "Metaspace"},
                             {"replacement", std::move(replacement)},
                             {"prepend_scheme", std::move(scheme)},
                             {"split", std::move(split)}});
  };
  const auto replace = [](Json pattern, Json content) {
    return Json(Json::Object{
        {"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", std::move(content)}});
  };
  const auto token = [](Json id, Json content, Json special) {
    return Json(Json::List{added_token(std::move(id), std::move(content), std::move(special))});
  };
  const struct {
    ErrorCode code;
    const char* why;
    const char* key;
    Json value;
  } kFaults[] = {
      {unsupported, "byte_fallback is not true", "model: byte_fallback", false},
      {unsupported, "byte_fallback is not true", "model: type", "WordPiece"},
      {unsupported, "byte_fallback is not true", "added_tokens", Json::List()},
      {unsupported, "byte_fallback is not true", "added_tokens", nullptr},
      {unsupported, "byte_fallback is not true", "normalizer", type("Precompiled")},
      {corrupt_file, "model: byte_fallback: it is not true or false", "model: byte_fallback", 1},
      {unsupported, "model: byte_fallback: it is true, and vocab has no <0x41>", "model",
       without_token("<0x41>")},
      {corrupt_file, "model: unk_token: vocab has no '<none>'", "model: unk_token", "<none>"},
      {corrupt_file, "model: unk_token: it is not a text", "model: unk_token", 3},
      {unsupported, "model: continuing_subword_prefix: '##'", "model: continuing_subword_prefix",
       "##"},
      {unsupported, "model: end_of_word_suffix: '</w>'", "model: end_of_word_suffix", "</w>"},
      {unsupported, "model: dropout: it is not 0", "model: dropout", 0.5},
      {corrupt_file, "model: ignore_merges: it is not true or false", "model: ignore_merges", "x"},
      {corrupt_file, "merges: the vocabulary has no 'zzz'", "model: merges", Json::List{"zzz x"}},
      {corrupt_file, "merges: 'a' is not two subwords", "model: merges", Json::List{"a"}},
      {corrupt_file, "there is no decoder", "decoder", nullptr},
      {corrupt_file, "decoder: there is no type", "decoder", Json::Object()},
      {unsupported, "decoder: it has no ByteFallback", "decoder", decoders({})},
      {unsupported, "decoder: type 'ByteLevel' is not supported", "decoder", type("ByteLevel")},
      {unsupported, "decoder: decoders[1]: type 'ByteFallback'", "decoder",
       decoders({bytes, bytes})},
      {unsupported, "decoder: decoders[0]: type 'Metaspace'", "decoder",
       decoders({type("Metaspace"), bytes})},
      {unsupported, "decoder: decoders[1]: type 'Strip'", "decoder",
       decoders({bytes, strip(" ", 1, 0), fuse})},
      {unsupported, "decoder: decoders[1]: type 'Replace'", "decoder",
       decoders({bytes, replace(Json::Object{{"String", "a"}}, "b")})},
      {corrupt_file, "decoder: decoders[0]: it is before ByteFallback", "decoder",
       decoders({fuse, bytes})},
      {corrupt_file, "decoders[2]: content: it is not one character", "decoder",
       decoders({bytes, fuse, strip("ab", 1, 0)})},
      {corrupt_file, "decoders[2]: content: it is not one character", "decoder",
       decoders({bytes, fuse, strip("", 1, 0)})},
      {corrupt_file, "decoders[2]: start: it is not an integer", "decoder",
       decoders({bytes, fuse, strip(" ", -1, 0)})},
      {corrupt_file, "decoders[2]: stop: it is not an integer", "decoder",
       decoders({bytes, fuse, strip(" ", 1, "x")})},
      {corrupt_file, "decoders[0]: there is no pattern", "decoder",
       decoders({replace(nullptr, "b"), bytes})},
      {corrupt_file, "pre_tokenizer: replacement: it is not one character", "pre_tokenizer",
       metaspace("", "first", true)},
      {corrupt_file, "pre_tokenizer: replacement: it is not one character", "pre_tokenizer",
       metaspace("ab", "first", true)},
      {corrupt_file, "pre_tokenizer: add_prefix_space: it is false", "pre_tokenizer",
       Json::Object{{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}}},
      {unsupported, "pretokenizers[1]: prepend_scheme first is not supported after another step",
       "pre_tokenizer",
       steps("pretokenizers", {type("WhitespaceSplit"), metaspace("▁", "first", true)})},
      {unsupported, "pre_tokenizer: prepend_scheme first is not supported with a normalizer",
       "pre_tokenizer", metaspace("▁", "first", true)},
      {corrupt_file, "pre_tokenizer: there is no replacement", "pre_tokenizer",
       metaspace(nullptr, "first", true)},
      {corrupt_file, "prepend_scheme: 'last' is not first, always or never", "pre_tokenizer",
       metaspace("▁", "last", true)},
      {corrupt_file, "split: it is not true or false", "pre_tokenizer", metaspace("▁", "first", 1)},
      {unsupported, "pre_tokenizer: type 'UnicodeScripts' is not supported", "pre_tokenizer",
       type("UnicodeScripts")},
      {unsupported, "normalizer: type 'Nmt' is not supported", "normalizer", type("Nmt")},
      {corrupt_file, "normalizer: there is no prepend", "normalizer", type("Prepend")},
      {unsupported, "post_processor: type 'Odd' is not supported", "post_processor", type("Odd")},
      {corrupt_file, "added_tokens: '<x>' has the id of '<unk>'", "added_tokens",
       token(0, "<x>", true)},
      {corrupt_file, "added_tokens[0]: special: it is not true or false", "added_tokens",
       token(900, "<x>", 1)},
  };
  EXPECT_GE(std::size(kFaults), 30u);
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(fault.why);
    const Json file = fallback_file("fallback", {{fault.key, fault.value}});
    expect_error(fault.code, "tokenizer.json: ", [&] { load_fallback(file); });
    expect_error(fault.code, fault.why, [&] { load_fallback(file); });
  }
}

}  // namespace
}  // namespace trafo
