#include "engine/text/tokenizer/wordpiece/vocab_txt.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "engine/core/limits.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace trafo {
namespace {

constexpr std::string_view kInnerPrefix = "##";
constexpr int64_t kMostCharacters = 100;  // characters
constexpr std::string_view kBertClasses[] = {"BertTokenizer", "DistilBertTokenizer",
                                             "ElectraTokenizer"};
// The token that each key names if the files do not.
constexpr std::pair<std::string_view, std::string_view> kBertTokens[] = {{"pad_token", "[PAD]"},
                                                                         {"unk_token", "[UNK]"},
                                                                         {"cls_token", "[CLS]"},
                                                                         {"sep_token", "[SEP]"},
                                                                         {"mask_token", "[MASK]"}};

using WordPieceIds = std::unordered_map<std::string, int64_t>;

// The tokens in their order.
WordPieceIds read_tokens(std::string_view bytes, std::string_view label, Json::Object& vocabulary) {
  WordPieceIds ids;
  while (!bytes.empty()) {
    const auto line = static_cast<int64_t>(vocabulary.size());
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string token(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (token.ends_with('\r')) token.pop_back();
    const auto check = [&](bool good, const auto&... why) {
      require(good, ErrorCode::corrupt_file, kTokenizerOrigin, label, ": line ", line + 1, ": ",
              why...);
    };
    check(!token.empty() && token.size() <= limits::kSubwordBytes, "a token has ", token.size(),
          " bytes, 1 to ", limits::kSubwordBytes, " are allowed");
    check(find_invalid_utf8(token) == kValidUtf8, "invalid UTF-8");
    const auto [found, is_new] = ids.emplace(token, line);
    check(is_new, quote(token), " is line ", found->second + 1, " too");
    vocabulary.push_back({std::move(token), line});
  }
  return ids;
}

// The name of a companion in messages.
std::string companion_label(const std::vector<CompanionFile>& companions, std::string_view name) {
  for (const CompanionFile& each : companions)
    if (each.name == name) return each.label();
  return std::string(name);
}

// A companion as JSON. Null: there is none.
Json companion_json(const std::vector<CompanionFile>& companions, std::string_view name) {
  for (const CompanionFile& each : companions) {
    if (each.name != name) continue;
    JsonBounds bounds;
    bounds.bytes = kCompanionBytes;
    return parse_json(each.content, kTokenizerOrigin, each.label(), bounds);
  }
  return Json::Object();
}

std::string content_of(const JsonPart& part) {
  return part.value().as<Json::Object>() != nullptr ? part.at("content").text() : part.text();
}

Json bert_token(int64_t id, const std::string& content) {
  return Json::Object{{"id", id},        {"content", content}, {"single_word", false},
                      {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                      {"special", true}};
}

void check_settings(const JsonPart& config) {
  if (const auto kind = config.find("tokenizer_class")) {
    std::string name = kind->text();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (std::find(std::begin(kBertClasses), std::end(kBertClasses), name) == std::end(kBertClasses))
      kind->refuse(quote(name), " is not supported with a vocab.txt; BertTokenizer is");
  }
  if (!config.flag("do_basic_tokenize", true))
    config.at("do_basic_tokenize").refuse("false is not supported");
  if (const auto words = config.find("never_split"); words && !words->list().empty())
    words->refuse("it is not supported");
}

Json normalizer_of(const JsonPart& config) {
  const auto strip = config.find("strip_accents");
  return Json::Object{{"type", "BertNormalizer"},
                      {"clean_text", true},
                      {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
                      {"strip_accents", strip ? Json(strip->flag()) : Json(nullptr)},
                      {"lowercase", config.flag("do_lower_case", true)}};
}

Json special_part(const std::string& token) {
  return Json::Object{{"SpecialToken", Json::Object{{"id", token}, {"type_id", 0}}}};
}

Json text_part(const char* name, int type) {
  return Json::Object{{"Sequence", Json::Object{{"id", name}, {"type_id", type}}}};
}

Json bert_template(const std::string& begin, int64_t begin_id, const std::string& end,
                   int64_t end_id) {
  const auto token = [](const std::string& name, int64_t id) {
    return Json(Json::Object{{"id", name}, {"ids", Json::List{id}}, {"tokens", Json::List{name}}});
  };
  Json last = special_part(end);
  last["SpecialToken"]["type_id"] = 1;
  return Json::Object{
      {"type", "TemplateProcessing"},
      {"single", Json::List{special_part(begin), text_part("A", 0), special_part(end)}},
      {"pair", Json::List{special_part(begin), text_part("A", 0), special_part(end),
                          text_part("B", 1), last}},
      {"special_tokens", Json::Object{{begin, token(begin, begin_id)}, {end, token(end, end_id)}}}};
}

// Tokens of added_tokens_decoder, which transformers has written since 4.34.
void add_further(const JsonPart& config, const WordPieceIds& ids, Json::List& added) {
  const auto part = config.find("added_tokens_decoder");
  if (!part) return;
  const auto* members = part->value().as<Json::Object>();
  part->check(members != nullptr, "it is not an object");
  std::unordered_set<std::string> listed;
  for (const Json& token : added) listed.insert(*token.find("content")->as<std::string>());
  for (const Json::Member& member : *members) {
    const JsonPart token(concat(part->path(), ": ", member.key), member.value);
    int64_t id = -1;
    const char* const key_end = member.key.data() + member.key.size();
    const auto [read_end, error] = std::from_chars(member.key.data(), key_end, id);
    const bool is_number = error == std::errc() && read_end == key_end && id < limits::kVocabulary;
    const std::string& content = token.at("content").text();
    const auto found = ids.find(content);
    token.check(is_number && id >= 0 && (found == ids.end() || found->second == id),
                "its key is not the id of ", quote(content));
    if (!listed.insert(content).second) continue;
    Json entry = bert_token(id, content);
    for (const char* key : {"single_word", "lstrip", "rstrip", "normalized", "special"})
      entry[key] = token.flag(key, false);
    added.push_back(std::move(entry));
  }
}

}  // namespace

bool is_vocab_txt(std::string_view file_bytes) {
  const bool has_unknown = file_bytes.starts_with("[UNK]\n") || file_bytes.starts_with("[UNK]\r") ||
                           file_bytes.find("\n[UNK]\n") != std::string_view::npos ||
                           file_bytes.find("\n[UNK]\r\n") != std::string_view::npos;
  return has_unknown && file_bytes.find("\n##") != std::string_view::npos;
}

std::string vocab_txt_to_json(std::string_view file_bytes, std::string_view label,
                              const std::vector<CompanionFile>& companions) {
  const Json config_json = companion_json(companions, kTokenizerConfigFile);
  const Json map_json = companion_json(companions, kSpecialTokensFile);
  const JsonPart config(companion_label(companions, kTokenizerConfigFile), config_json);
  const JsonPart map(companion_label(companions, kSpecialTokensFile), map_json);
  check_settings(config);
  Json::Object vocabulary;
  const WordPieceIds ids = read_tokens(file_bytes, label, vocabulary);

  std::unordered_map<std::string_view, std::string> names;
  Json::List added;
  for (const auto& [key, usual] : kBertTokens) {
    const auto named = config.find(key) ? config.find(key) : map.find(key);
    const std::string name = named ? content_of(*named) : std::string(usual);
    const auto id = ids.find(name);
    require(id != ids.end(), ErrorCode::corrupt_file, kTokenizerOrigin, label, ": there is no ",
            quote(name), ", the ", key);
    names[key] = name;
    added.push_back(bert_token(id->second, name));
  }
  add_further(config, ids, added);
  const auto id_of = [](const Json& token) {
    return static_cast<int64_t>(token.find("id")->number());
  };
  std::sort(added.begin(), added.end(),
            [&](const Json& a, const Json& b) { return id_of(a) < id_of(b); });

  const std::string &begin = names["cls_token"], &end = names["sep_token"];
  const std::string prefix(kInnerPrefix);
  return Json(Json::Object{
                  {"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", std::move(added)},
                  {"normalizer", normalizer_of(config)},
                  {"pre_tokenizer", Json::Object{{"type", "BertPreTokenizer"}}},
                  {"post_processor", bert_template(begin, ids.at(begin), end, ids.at(end))},
                  {"decoder",
                   Json::Object{{"type", "WordPiece"}, {"prefix", prefix}, {"cleanup", true}}},
                  {"model", Json::Object{{"type", "WordPiece"},
                                         {"unk_token", names["unk_token"]},
                                         {"continuing_subword_prefix", prefix},
                                         {"max_input_chars_per_word", kMostCharacters},
                                         {"vocab", std::move(vocabulary)}}}})
      .dump();
}

Tokenizer load_vocab_txt(std::string_view file_bytes, std::string_view label,
                         std::vector<CompanionFile> companions) {
  const std::string json = vocab_txt_to_json(file_bytes, label, companions);
  return load_wordpiece(json, label, std::move(companions));
}

}  // namespace trafo
