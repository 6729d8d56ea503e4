#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"
#include "tests/text/bpe_golden.h"

namespace trafo {
namespace {

// Written by tests/golden/tokenizers/make_wordpiece_golden.py with the `tokenizers` library.
const Json& pieces_golden() {
  static const Json json = [] {
    std::ifstream file(TRAFO_GOLDEN_WORDPIECE);
    std::stringstream text;
    text << file.rdbuf();
    return parse_json(text.str(), "test", TRAFO_GOLDEN_WORDPIECE);
  }();
  return json;
}

// The base file with another value at a key.
Json pieces_file(const std::string& path = "version", const Json& value = "1.0") {
  Json file = *pieces_golden().find("base");
  change_file(file, path, value);
  return file;
}

Tokenizer load_pieces(const Json& file) {
  return Tokenizer::from_bytes(file.dump(), "tokenizer.json");
}

// The vocabulary of the base as a vocab.txt.
std::string vocab_txt() {
  std::string lines;
  for (const Json::Member& token :
       *pieces_golden().find("base")->find("model")->find("vocab")->as<Json::Object>())
    lines.append(token.key).append("\n");
  return lines;
}

void expect_golden(const Tokenizer& tokenizer, const Json& golden) {
  const auto& texts = *pieces_golden().find("texts")->as<Json::List>();
  const Tokenizer parsing = tokenizer.parsing_special();
  const auto ids_of = [&](const char* key, size_t text) {
    TokenIds ids;
    for (const Json& id : *(*golden.find(key)->as<Json::List>())[text].as<Json::List>())
      ids.push_back(static_cast<int32_t>(id.number()));
    return ids;
  };
  ASSERT_GE(texts.size(), 25u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& line = *texts[i].as<std::string>();
    const TokenIds ids = tokenizer.encode(line);
    EXPECT_EQ(ids, ids_of("ids", i)) << line;
    EXPECT_EQ(tokenizer.decode(ids),
              *(*golden.find("decoded")->as<Json::List>())[i].as<std::string>())
        << line;
    EXPECT_EQ(parsing.encode(line), ids_of("special_ids", i)) << line;
  }
}

TEST(WordPiece, HasTheIdsOfTheLibrary) {
  const auto& cases = *pieces_golden().find("cases")->as<Json::List>();
  ASSERT_GE(cases.size(), 20u);
  for (const Json& each : cases) {
    SCOPED_TRACE(*each.find("name")->as<std::string>());
    Json file = pieces_file();
    for (const Json::Member& change : *each.find("changes")->as<Json::Object>())
      file[change.key] = change.value;
    expect_golden(load_pieces(file), each);
  }
}

TEST(WordPiece, AVocabTxtIsReadAsTransformersReadsIt) {
  const auto& made = *pieces_golden().find("made")->as<Json::List>();
  const char* const kConfigs[] = {
      R"({"tokenizer_class": "BertTokenizerFast", "cls_token": {"content": "[CLS]"}})",
      R"({"do_lower_case": false})",
      R"({"strip_accents": false, "tokenize_chinese_chars": false})"};
  ASSERT_EQ(made.size(), std::size(kConfigs));
  for (size_t i = 0; i < made.size(); ++i)
    expect_golden(
        Tokenizer::from_bytes(vocab_txt(), "vocab.txt", {{"tokenizer_config.json", kConfigs[i]}}),
        made[i]);
  expect_golden(Tokenizer::from_bytes(vocab_txt(), "vocab.txt"), made[0]);
  std::string lines = vocab_txt();
  for (size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 2))
    lines.insert(at, "\r");
  expect_golden(Tokenizer::from_bytes(lines, "vocab.txt"), made[0]);
}

TEST(WordPiece, IsAVocabularyLikeTheOthers) {
  const Json file = pieces_file();
  const Tokenizer tokenizer = load_pieces(file);
  EXPECT_EQ(tokenizer.kind(), "wordpiece");
  EXPECT_EQ(tokenizer.file_name(), "tokenizer.json");
  EXPECT_EQ(tokenizer.serialized(), file.dump());
  EXPECT_EQ(tokenizer.special_tokens(), (SpecialTokens{.bos = 2, .eos = 3, .pad = 0, .unk = 1}));
  EXPECT_FALSE(tokenizer.bos_is_subword());
  std::set<std::string> names;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    names.insert(tokenizer.token(id));
    EXPECT_EQ(tokenizer.id(tokenizer.token(id)), id);
    EXPECT_FALSE(tokenizer.continues_character(id));
  }
  EXPECT_EQ(std::ssize(names), tokenizer.vocab_size());
  EXPECT_EQ(tokenizer.id("no such token"), 1);
  expect_error(ErrorCode::unsupported, "a wordpiece vocabulary has one segmentation",
               [&] { tokenizer.sampler(); });
  TokenizerTrainOptions options;
  options.kind = "wordpiece";
  expect_error(ErrorCode::invalid_argument, "such a vocabulary comes with an imported model",
               [&] { validate(options); });
}

TEST(WordPiece, ItsFilesAreFoundInADirectory) {
  const TemporaryDirectory folder;
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder.path() / name) << bytes;
  };
  write("vocab.txt", vocab_txt());
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  const Tokenizer cased = Tokenizer::load(folder.path());
  EXPECT_EQ(cased.kind(), "wordpiece");
  EXPECT_EQ(cased.file_name(), "tokenizer.json");
  EXPECT_EQ(cased.decode(cased.encode("Hello")), "Hello");
  ASSERT_EQ(cased.companions().size(), 1u);
  const Tokenizer again =
      Tokenizer::from_bytes(cased.serialized(), "tokenizer.json", cased.companions());
  EXPECT_EQ(again.encode("Hello cats"), cased.encode("Hello cats"));
  write("tokenizer.json", pieces_file().dump());
  EXPECT_EQ(Tokenizer::load(folder.path()).decode(cased.encode("Hello")), "Hello");
  EXPECT_EQ(Tokenizer::load(folder.path()).serialized(), pieces_file().dump());
}

TEST(WordPiece, FilesThatItCannotUseAreRefusedByKey) {
  constexpr ErrorCode corrupt = ErrorCode::corrupt_file, unsupported = ErrorCode::unsupported;
  const auto type = [](const char* name) { return Json(Json::Object{{"type", name}}); };
  const struct {
    ErrorCode code;
    const char* why;
    const char* key;
    Json value;
  } kFaults[] = {
      {unsupported, "model: type: it is 'BPE'", "model: type", "BPE"},
      {corrupt, "model: unk_token: vocab has no '<unk>'", "model: unk_token", "<unk>"},
      {corrupt, "model: there is no unk_token", "model: unk_token", nullptr},
      {corrupt, "max_input_chars_per_word: it is not an integer", "model: max_input_chars_per_word",
       -1},
      {corrupt, "model: there is no continuing_subword_prefix", "model: continuing_subword_prefix",
       nullptr},
      {corrupt, "vocab: the id 1 has two subwords", "model: vocab",
       Json::Object{{"a", 1}, {"b", 1}}},
      {corrupt, "vocab is not an object of ids", "model: vocab",
       Json::List{Json::List{"[UNK]", 0.5}}},
      {corrupt, "normalizer: there is no clean_text", "normalizer",
       Json::Object{{"type", "BertNormalizer"}, {"lowercase", true}}},
      {corrupt, "normalizer: there is no lowercase", "normalizer", type("BertNormalizer")},
      {unsupported, "normalizer: type 'Nmt' is not supported", "normalizer", type("Nmt")},
      {unsupported, "pre_tokenizer: type 'CharDelimiterSplit'", "pre_tokenizer",
       type("CharDelimiterSplit")},
      {unsupported, "post_processor: type 'Odd'", "post_processor", type("Odd")},
      {unsupported, "decoder: type 'ByteLevel' is not supported", "decoder", type("ByteLevel")},
      {corrupt, "decoder: there is no prefix", "decoder", type("WordPiece")},
  };
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(fault.why);
    expect_error(fault.code, fault.why, [&] { load_pieces(pieces_file(fault.key, fault.value)); });
  }
  Json both = pieces_file(
      "pre_tokenizer",
      Json::Object{{"type", "Sequence"},
                   {"pretokenizers", Json::List{type("BertPreTokenizer"), type("ByteLevel")}}});
  expect_error(unsupported, "pretokenizers[0]: it is not supported beside ByteLevel",
               [&] { load_pieces(both); });
}

TEST(WordPiece, AVocabTxtThatItCannotUseIsRefusedByLineOrKey) {
  const auto refuses = [](ErrorCode code, const char* why, const std::string& lines,
                          const char* config = "{}") {
    SCOPED_TRACE(why);
    expect_error(code, why, [&] {
      Tokenizer::from_bytes(lines, "vocab.txt", {{"tokenizer_config.json", config}});
    });
  };
  const std::string whole = vocab_txt();
  refuses(ErrorCode::corrupt_file, "vocab.txt: line 3: '[PAD]' is line 1 too",
          "[PAD]\n[UNK]\n[PAD]\n##s\n");
  refuses(ErrorCode::corrupt_file, "vocab.txt: line 2: a token has 0 bytes",
          "[PAD]\n\n[UNK]\n##s\n");
  refuses(ErrorCode::corrupt_file, "vocab.txt: line 3: invalid UTF-8", "a\n[UNK]\n\xff\n##s\n");
  refuses(ErrorCode::corrupt_file, "vocab.txt: there is no '[PAD]', the pad_token",
          "a\n[UNK]\n##s\n");
  refuses(ErrorCode::corrupt_file, "there is no '<s>', the cls_token", whole,
          R"({"cls_token": "<s>"})");
  refuses(ErrorCode::unsupported, "tokenizer_config.json: tokenizer_class: 'BertJapaneseTokenizer'",
          whole, R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  refuses(ErrorCode::unsupported, "do_basic_tokenize: false is not supported", whole,
          R"({"do_basic_tokenize": false})");
  refuses(ErrorCode::unsupported, "never_split: it is not supported", whole,
          R"({"never_split": ["x"]})");
  refuses(ErrorCode::corrupt_file, "do_lower_case: it is not true or false", whole,
          R"({"do_lower_case": 1})");
  refuses(ErrorCode::corrupt_file, "added_tokens_decoder: 7: its key is not the id of '[CLS]'",
          whole, R"({"added_tokens_decoder": {"7": {"content": "[CLS]", "special": true}}})");
  const Tokenizer more = Tokenizer::from_bytes(
      whole, "vocab.txt",
      {{"tokenizer_config.json",
        R"({"added_tokens_decoder": {"900": {"content": "<tool>", "special": false}}})"}});
  EXPECT_EQ(more.vocab_size(), 901);
  EXPECT_EQ(more.encode("<tool>"), TokenIds{900});
}

}  // namespace
}  // namespace trafo
