#include "engine/text/tokenizer/byte_bpe/json_model.h"

#include <algorithm>

#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

// Ids of added tokens are not far from the others in real files.
constexpr size_t kIdGap = 65536;

bool is_blank(char32_t c) {
  static const CodePointTable table(white_space_set().united({{0, 0x20}}));
  return table.has(c);
}

}  // namespace

// A token as its name. White space is written "<0x20>" or, where that is a byte token, "<U+0020>".
std::string JsonModel::name_of(std::string_view text) const {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string name;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t character = next_code_point(text, at);
    if (!is_blank(character)) {
      name.append(text, begin, at - begin);
    } else if (names_bytes_) {
      for (const char each : text.substr(begin, at - begin)) {
        const auto byte = static_cast<unsigned char>(each);
        name.append("<0x").append({kDigits[byte >> 4], kDigits[byte & 15], '>'});
      }
    } else {
      name += "<U+";
      for (int bits = 12; bits >= 0; bits -= 4) name += kDigits[character >> bits & 15];
      name += '>';
    }
  }
  return name;
}

void JsonModel::reserve_tokens(const JsonPart& model, const SubwordTable& vocabulary) {
  model.check(vocabulary.size() > 0, "vocab is empty");
  uint32_t last = 0;
  for (size_t i = 0; i < vocabulary.size(); ++i) last = std::max(last, vocabulary.id(i));
  tokens_.resize(last + size_t{1});
  bytes_.resize(last + size_t{1});
}

void JsonModel::set_token(const JsonPart& model, uint32_t id, std::string_view text) {
  model.check(tokens_[id].empty(), "vocab: the id ", id, " has two subwords");
  tokens_[id] = name_of(text);
  bytes_[id] = text;
}

void JsonModel::read_steps(const JsonPart& file) {
  if (const auto part = file.find("normalizer")) normalizer_ = TextNormalizer(*part);
  const std::optional<JsonPart> pre_tokenizer = file.find("pre_tokenizer");
  pre_tokenizer_ =
      std::make_unique<PreTokenizer>(pre_tokenizer ? PreTokenizer(*pre_tokenizer) : PreTokenizer());
  // A normalizer may take the beginning of a text away, which then has no mark.
  if (pre_tokenizer_->marks_the_beginning() && !normalizer_.changes_nothing())
    pre_tokenizer->refuse("prepend_scheme first is not supported with a normalizer");
}

void JsonModel::add_tokens(const JsonPart& file) {
  is_special_.resize(tokens_.size());
  const std::optional<JsonPart> part = file.find("added_tokens");
  if (!part) return;
  added_ = AddedTokens(*part, normalizer_);
  const size_t limit = tokens_.size() + added_.all().size() + kIdGap;
  for (const AddedToken& token : added_.all()) {
    const auto id = static_cast<size_t>(token.id);
    const std::string name = name_of(token.text);
    part->check(id < limit, quote(token.text), " has no id below ", limit);
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      bytes_.resize(id + 1);
      is_special_.resize(id + 1);
    }
    part->check(tokens_[id].empty() || tokens_[id] == name, quote(token.text), " has the id of ",
                quote(tokens_[id]));
    if (tokens_[id].empty()) bytes_[id] = token.decoded;
    tokens_[id] = name;
    is_special_[id] = token.special;
  }
}

void JsonModel::index_tokens(const JsonPart& file) {
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) tokens_[id] = "<unused:" + std::to_string(id) + ">";
    names_.add(tokens_[id], static_cast<uint32_t>(id), 0);
  }
  const uint32_t twice = names_.index();
  file.check(twice == SubwordTable::kNone, "two tokens have the name ",
             quote(twice == SubwordTable::kNone ? std::string_view() : names_.text(twice)));
}

void JsonModel::finish(const JsonPart& file, std::vector<CompanionFile> companions) {
  index_tokens(file);
  companions_ = std::move(companions);
  const auto find = [this](std::string_view name) {
    const uint32_t entry = names_.find(name_of(name));
    return entry == SubwordTable::kNone ? -1 : static_cast<int32_t>(names_.id(entry));
  };
  const auto find_special = [&](std::string_view name) {
    const int32_t id = find(name);
    return id >= 0 && is_special_[static_cast<size_t>(id)] ? id : -1;
  };
  const VocabularyLookup lookup{find, find_special, vocab_size()};
  SpecialChoice choice = choose_special_tokens(file, companions_, lookup);
  special_ = choice.tokens;
  further_ends_ = std::move(choice.further_ends);
  text_begin_ = choice.text_begin;
}

int32_t JsonModel::id(std::string_view token) const {
  const uint32_t entry = names_.find(token);
  return entry == SubwordTable::kNone ? special_.unk : static_cast<int32_t>(names_.id(entry));
}

bool JsonModel::has_text(std::string_view text) const {
  return names_.find(name_of(text)) != SubwordTable::kNone;
}

std::string JsonModel::with_tokens(std::span<const std::string> tokens, bool special) const {
  constexpr std::string_view kKey = "added_tokens";
  const std::string_view file = serialized();
  const std::optional<TextSpan> span = find_member(file, kKey);
  std::string_view list = span ? file.substr(span->begin, span->end - span->begin) : "";
  const size_t close = list.find_last_of(']');  // none: null
  std::string added(close == std::string_view::npos ? "[" : list.substr(0, close));
  added.erase(added.find_last_not_of(" \t\r\n") + 1);
  int32_t id = vocab_size();
  for (const std::string& token : tokens) {
    const Json entry = Json::Object{
        {"id", id++},      {"content", token},       {"single_word", false}, {"lstrip", false},
        {"rstrip", false}, {"normalized", !special}, {"special", special}};
    added.append(added.back() == '[' ? "" : ",").append(entry.dump());
  }
  return with_member(file, kKey, added + "]");
}

std::vector<NamedToken> JsonModel::special_names() const {
  std::vector<NamedToken> names;
  for (const AddedToken& token : added_.all())
    names.push_back({.name = token.text,
                     .id = token.id,
                     .takes_space_before = token.lstrip,
                     .takes_space_after = token.rstrip,
                     .is_single_word = token.single_word,
                     .is_normalized = token.normalized,
                     .is_special = token.special});
  return names;
}

}  // namespace trafo
