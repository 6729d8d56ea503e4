#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/core/numeric/shuffle.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"
#include "tests/text/bpe_golden.h"

namespace trafo {
namespace {

// The base file with other values at some keys.
Json bpe_file(std::initializer_list<std::pair<std::string, Json>> changes) {
  Json file = *bpe_golden().find("base");
  for (const auto& [path, value] : changes) change_file(file, path, value);
  return file;
}

Tokenizer load_bpe(const Json& file) {
  return Tokenizer::from_bytes(file.dump(), "tokenizer.json", bpe_end());
}

TokenIds golden_ids(const Json& list) {
  TokenIds ids;
  for (const Json& id : *list.as<Json::List>()) ids.push_back(static_cast<int32_t>(id.number()));
  return ids;
}

TEST(ByteBpe, HasTheIdsOfTheLibrary) {
  const auto& texts = *bpe_golden().find("texts")->as<Json::List>();
  const auto& cases = *bpe_golden().find("cases")->as<Json::List>();
  ASSERT_GE(cases.size(), 45u);
  for (const Json& each : cases) {
    SCOPED_TRACE(*each.find("name")->as<std::string>());
    const std::string bytes = golden_file(each).dump();
    const Tokenizer tokenizer = Tokenizer::from_bytes(bytes, "x", bpe_end());
    const Tokenizer parsing = tokenizer.parsing_special();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto item = [&](const char* key) { return (*each.find(key)->as<Json::List>())[i]; };
      const std::string& line = *texts[i].as<std::string>();
      const TokenIds ids = tokenizer.encode(line);
      EXPECT_EQ(ids, golden_ids(item("ids"))) << line;
      EXPECT_EQ(tokenizer.decode(ids), *item("decoded").as<std::string>()) << line;
      EXPECT_EQ(parsing.encode(line), golden_ids(item("special_ids"))) << line;
    }
  }
}

TEST(ByteBpe, IsAVocabularyLikeTheOthers) {
  const Json file = bpe_file({});
  const Tokenizer tokenizer = load_bpe(file);
  EXPECT_EQ(tokenizer.kind(), "byte-bpe");
  EXPECT_EQ(tokenizer.file_name(), "tokenizer.json");
  EXPECT_EQ(tokenizer.serialized(), file.dump());
  EXPECT_EQ(tokenizer.as_sentencepiece(), nullptr);
  expect_different_names(tokenizer);
  EXPECT_EQ(tokenizer.id("no such token"), tokenizer.unk_id());
  EXPECT_EQ(tokenizer.unk_id(), -1);
  expect_error(ErrorCode::invalid_argument, "NUL byte",
               [&] { tokenizer.encode(std::string_view("a\0b", 3)); });
}

TEST(ByteBpe, HoldsBackAnUnfinishedCharacter) {
  const Tokenizer tokenizer = load_bpe(bpe_file({}));
  const TokenIds ids = expect_whole_characters(tokenizer);
  ASSERT_EQ(ids.size(), 6u);
  // Inside a text, bytes that are no UTF-8 become U+FFFD as in the library.
  const TokenIds broken = {ids[1], ids[2], ids[0], ids[3], ids[0]};
  EXPECT_EQ(tokenizer.decode(broken), "\ufffda\ufffda");
}

TEST(ByteBpe, LeavesOutMergesAtRandom) {
  const Tokenizer tokenizer = load_bpe(bpe_file({}));
  expect_merges_left_out(tokenizer, 17);
}

TEST(ByteBpe, ReadsItsSpecialTokensFromTheFilesBesideIt) {
  const auto token = [](int id, const char* name) {
    return Json(Json::Object{{"id", id},
                             {"content", name},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}});
  };
  const Json file = bpe_file(
      {{"added_tokens", Json::List{token(300, "<a>"), token(301, "<b>"), token(302, "</s>")}}});
  const auto special = [&](std::vector<CompanionFile> companions, const Json& from) {
    return Tokenizer::from_bytes(from.dump(), "x", std::move(companions));
  };
  // A usual name, where nothing else is known.
  EXPECT_EQ(special({}, file).eos_id(), 302);
  EXPECT_EQ(special({}, file).bos_id(), -1);
  const Tokenizer named = special(
      {{"tokenizer_config.json",
        R"({"eos_token": {"content": "<b>"}, "bos_token": null,
                                        "pad_token": "<a>", "unk_token": "<a>"})"},
       {"generation_config.json", R"({"eos_token_id": [302, 301, 302], "bos_token_id": 300})"}},
      file);
  EXPECT_EQ(named.eos_id(), 301);
  EXPECT_EQ(named.further_end_ids(), TokenIds{302});
  EXPECT_EQ(named.bos_id(), -1);
  EXPECT_EQ(named.pad_id(), 300);
  EXPECT_EQ(named.unk_id(), 300);
  const Tokenizer by_id =
      special({{"generation_config.json", R"({"eos_token_id": 300, "bos_token_id": 301})"}}, file);
  EXPECT_EQ(by_id.eos_id(), 300);
  EXPECT_EQ(by_id.bos_id(), 301);
  // The post-processor's.
  const auto item = [](const char* kind, const char* id) {
    return Json(Json::Object{{kind, Json::Object{{"id", id}, {"type_id", 0}}}});
  };
  Json framed = file;
  framed["post_processor"] = Json::Object{
      {"type", "TemplateProcessing"},
      {"single",
       Json::List{item("SpecialToken", "<a>"), item("Sequence", "A"), item("SpecialToken", "<b>")}},
      {"pair", Json::List{}},
      {"special_tokens", Json::Object{{"<a>", Json::Object{{"ids", Json::List{300}}}},
                                      {"<b>", Json::Object{{"ids", Json::List{301}}}}}}};
  EXPECT_EQ(special({}, framed).bos_id(), 300);
  EXPECT_EQ(special({}, framed).eos_id(), 301);
  expect_error(ErrorCode::corrupt_file,
               "tokenizer_config.json: eos_token: tokenizer.json has no token '<c>'",
               [&] { special(bpe_end("<c>"), file); });
  expect_error(ErrorCode::corrupt_file,
               "generation_config.json: eos_token_id: it is not an integer", [&] {
                 special({{"generation_config.json", R"({"eos_token_id": 303})"}}, file);
               });
  expect_error(ErrorCode::unsupported, "x: no token ends a text", [&] {
    special({}, bpe_file({{"added_tokens", Json::List()}}));
  });
}

TEST(ByteBpe, IsReadWithItsCompanionsFromADirectory) {
  const TemporaryDirectory folder;
  spill(folder.path() / "tokenizer.json", bpe_file({}).dump());
  spill(folder.path() / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  spill(folder.path() / "chat_template.jinja", "{{ x }}");
  for (const auto& path : {folder.path(), folder.path() / "tokenizer.json"}) {
    const Tokenizer tokenizer = Tokenizer::load(path);
    EXPECT_EQ(tokenizer.token(tokenizer.eos_id()), "<|end|>");
    ASSERT_EQ(tokenizer.companions().size(), 2u);
    EXPECT_EQ(tokenizer.companions()[1].content, "{{ x }}");
  }
  // A file of another name has none.
  spill(folder.path() / "other.json", bpe_file({}).dump());
  expect_error(ErrorCode::unsupported, "other.json: no token ends a text",
               [&] { Tokenizer::load(folder.path() / "other.json"); });
}

// Files that are damaged, or that need what is not done here, are refused by their key.
TEST(ByteBpe, RefusesFilesByTheirKey) {
  using enum ErrorCode;
  const auto type = [](const char* name) { return Json(Json::Object{{"type", name}}); };
  const auto steps = [](const char* key, Json step) {
    return Json(Json::Object{{"type", "Sequence"}, {key, Json::List{std::move(step)}}});
  };
  const Json letters = Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const auto before = [&](Json step) {
    return Json(Json::Object{{"type", "Sequence"},
                             {"pretokenizers", Json::List{std::move(step), letters}}});
  };
  const auto split = [&](Json pattern, Json behavior, Json invert) {
    return before(Json::Object{{"type", "Split"},
                               {"pattern", std::move(pattern)},
                               {"behavior", std::move(behavior)},
                               {"invert", std::move(invert)}});
  };
  const auto regex = [](const char* text) { return Json(Json::Object{{"Regex", text}}); };
  const auto token = [](Json id, Json content, Json special) {
    return Json(Json::List{added_token(std::move(id), std::move(content), std::move(special))});
  };
  const struct {
    ErrorCode code;
    const char* why;
    const char* key;
    Json value;
  } kFaults[] = {
      {unsupported, "it is not byte-level BPE", "model: type", "WordPiece"},
      {unsupported, "it is not byte-level BPE", "model: type", "Unigram"},
      {unsupported, "it is not byte-level BPE", "pre_tokenizer", nullptr},
      {unsupported, "it is not byte-level BPE", "pre_tokenizer", type("Metaspace")},
      {unsupported, "model: continuing_subword_prefix: '##' is not supported",
       "model: continuing_subword_prefix", "##"},
      {unsupported, "model: end_of_word_suffix: '</w>'", "model: end_of_word_suffix", "</w>"},
      {unsupported, "model: dropout: it is not 0", "model: dropout", 0.1},
      {corrupt_file, "model: dropout: it is not a number", "model: dropout", "x"},
      {corrupt_file, "model: ignore_merges: it is not true or false", "model: ignore_merges", 1},
      {corrupt_file, "merges: the vocabulary has no 'zzz'", "model: merges", Json::List{"zzz x"}},
      {corrupt_file, "merges: 'a' is not two subwords", "model: merges", Json::List{"a"}},
      {corrupt_file, "model: merges has a list that is no pair", "model: merges",
       Json::List{Json::List{"a"}}},
      {corrupt_file, "vocab: the id of 'a' is not a number", "model: vocab",
       Json::Object{{"a", 1u << 20}}},
      {corrupt_file, "vocab: the id 1 has two subwords", "model",
       Json::Object{{"type", "BPE"}, {"vocab", Json::Object{{"a", 1}, {"b", 1}}}}},
      {corrupt_file, "vocab", "model: vocab", "text"},
      {unsupported, "normalizer: type 'Nmt' is not supported; NFC", "normalizer", type("Nmt")},
      {corrupt_file, "normalizer: there is no type", "normalizer", Json::Object()},
      {corrupt_file, "normalizer: it is not an object", "normalizer", "NFC"},
      {unsupported, "normalizer: normalizers[0]: type 'Precompiled'", "normalizer",
       steps("normalizers", type("Precompiled"))},
      {corrupt_file, "normalizer: there is no normalizers", "normalizer", type("Sequence")},
      {corrupt_file, "normalizer: there is no strip_left", "normalizer", type("Strip")},
      {corrupt_file, "normalizer: there is no pattern", "normalizer", type("Replace")},
      {unsupported, "pre_tokenizer: pretokenizers[0]: type 'Metaspace' is not supported",
       "pre_tokenizer", before(type("Metaspace"))},
      {unsupported, "pre_tokenizer: pretokenizers[1]: a second ByteLevel", "pre_tokenizer",
       before(letters)},
      {corrupt_file, "pretokenizers[0]: there is no individual_digits", "pre_tokenizer",
       before(type("Digits"))},
      {unsupported, "pretokenizers[0]: pattern: Regex: the pattern '(?<=a)b' has a group",
       "pre_tokenizer", split(regex("(?<=a)b"), "Isolated", false)},
      {corrupt_file, "pattern: Regex: the pattern '[a' has a [ without ]", "pre_tokenizer",
       split(regex("[a"), "Isolated", false)},
      {corrupt_file, "behavior: 'Sideways' is no behavior", "pre_tokenizer",
       split(regex("a"), "Sideways", false)},
      {corrupt_file, "invert: it is not true or false", "pre_tokenizer",
       split(regex("a"), "Isolated", "no")},
      {corrupt_file, "pattern: String: it is empty", "pre_tokenizer",
       split(Json::Object{{"String", ""}}, "Isolated", false)},
      {corrupt_file, "pattern: there is no String", "pre_tokenizer",
       split(Json::Object{{"Text", "a"}}, "Isolated", false)},
      {unsupported, "post_processor: type 'Odd' is not supported", "post_processor", type("Odd")},
      {corrupt_file, "post_processor: there is no single", "post_processor",
       type("TemplateProcessing")},
      {unsupported, "decoder: type 'WordPiece' is not supported", "decoder", type("WordPiece")},
      {corrupt_file, "there is no decoder", "decoder", nullptr},
      {corrupt_file, "added_tokens: it is not a list", "added_tokens", "x"},
      {corrupt_file, "added_tokens[0]: id: it is not an integer", "added_tokens",
       token(-1, "x", true)},
      {corrupt_file, "added_tokens: '<x>' has no id below", "added_tokens",
       token(100000, "<x>", true)},
      {corrupt_file, "added_tokens: '<x>' has the id of '!'", "added_tokens",
       token(0, "<x>", true)},
      {corrupt_file, "added_tokens[0]: its content has 0 bytes", "added_tokens",
       token(400, "", true)},
      {corrupt_file, "added_tokens[0]: special: it is not true or false", "added_tokens",
       token(400, "<x>", "yes")},
      {corrupt_file, "two tokens have the name '!'", "added_tokens", token(400, "!", true)},
  };
  EXPECT_GE(std::size(kFaults), 30u);
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(fault.why);
    const Json file = bpe_file({{fault.key, fault.value}});
    expect_error(fault.code, std::string("tokenizer.json: "), [&] { load_bpe(file); });
    expect_error(fault.code, fault.why, [&] { load_bpe(file); });
  }
  const std::string whole = bpe_file({}).dump();
  for (size_t size : {size_t{10}, whole.size() / 2, whole.size() - 1})
    EXPECT_THROW(Tokenizer::from_bytes(whole.substr(0, size), "x", bpe_end()), Error);
}

TEST(ByteBpe, GrowsNoTextWithoutBound) {
  const Json replace = Json::Object{{"type", "Replace"},
                                    {"pattern", Json::Object{{"String", "a"}}},
                                    {"content", std::string(1000, 'b')}};
  const Tokenizer tokenizer = load_bpe(bpe_file({{"normalizer", replace}}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a")), std::string(1000, 'b'));
  expect_error(ErrorCode::corrupt_file, "the normalizer of the vocabulary turns a text of",
               [&] { tokenizer.encode(std::string(100000, 'a')); });
}

TEST(ByteBpe, IsTrainedOnAText) {
  std::vector<std::string> lines;
  for (int i = 0; i < 50; ++i) {
    lines.push_back("low lower lowest newer newest wider " + std::to_string(i));
    lines.push_back("日本語 übung don't stop");
  }
  TokenizerTrainOptions options;
  options.kind = "byte-bpe";
  options.vocab_size = 303;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(lines), options);
  EXPECT_EQ(tokenizer.vocab_size(), 303);
  EXPECT_EQ(tokenizer.unk_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), 3);
  EXPECT_EQ(tokenizer.encode(" lower").size(), 1u);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(lines[1] + " unseen \U0001F600")),
            lines[1] + " unseen \U0001F600");
  EXPECT_EQ(Tokenizer::train(std::span<const std::string>(lines), options).serialized(),
            tokenizer.serialized());
  EXPECT_EQ(Tokenizer::from_bytes(tokenizer.serialized()).encode(lines[0]),
            tokenizer.encode(lines[0]));
  options.vocab_size = 5000;
  expect_error(ErrorCode::invalid_argument, "the text gives at most",
               [&] { Tokenizer::train(std::span<const std::string>(lines), options); });
  options.hard_vocab_limit = false;
  EXPECT_LT(Tokenizer::train(std::span<const std::string>(lines), options).vocab_size(), 5000);
  options.vocab_size = 260;
  expect_error(ErrorCode::invalid_argument, "must be 261 to", [&] { validate(options); });
  options.vocab_size = 300;
  options.byte_fallback = true;
  expect_error(ErrorCode::invalid_argument, "byte_fallback is not for a byte-bpe vocabulary",
               [&] { validate(options); });
  options.byte_fallback = false;
  expect_error(ErrorCode::invalid_argument, "there is no text",
               [&] { Tokenizer::train(std::span<const std::string>(), options); });
}

}  // namespace
}  // namespace trafo
