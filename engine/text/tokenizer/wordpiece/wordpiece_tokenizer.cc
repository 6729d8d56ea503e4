#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/core/strings/utf8.h"

namespace trafo {
namespace {

// A key that only the model WordPiece has, in files with and without the key `type`.
constexpr std::string_view kOwnKey = "\"max_input_chars_per_word\"";

bool begins_character(char c) {
  return (c & 0xc0) != 0x80;
}

// Texts of the decoder's clean-up, as the library has them.
constexpr std::pair<std::string_view, std::string_view> kCleanUp[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

void clean_up(std::string& token) {
  for (const auto& [from, to] : kCleanUp)
    for (size_t at = token.find(from); at != std::string::npos;
         at = token.find(from, at + to.size()))
      token.replace(at, from.size(), to);
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(std::string_view serialized, const TokenizerText& text,
                                       std::string_view label,
                                       std::vector<CompanionFile> companions)
    : JsonModel(serialized, false) {
  const JsonPart file(std::string(label), text.rest);
  const JsonPart model = file.at("model");
  model.check(!text.has_scores && text.merges.empty(),
              "vocab is not an object of ids, or there are merges");
  read_model(model, text.vocabulary);
  read_steps(file);
  add_tokens(file);
  read_decoder(file);
  finish(file, std::move(companions));
}

void WordPieceTokenizer::read_model(const JsonPart& model, const SubwordTable& vocabulary) {
  if (const auto type = model.find("type"); type && type->text() != "WordPiece")
    type->refuse("it is ", quote(type->text()), ", and ", kOwnKey, " is a key of WordPiece");
  prefix_ = model.at("continuing_subword_prefix").text();
  const JsonPart most = model.at("max_input_chars_per_word");
  most_characters_ = static_cast<size_t>(most.integer(0, int64_t{1} << 31));
  reserve_tokens(model, vocabulary);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view text = vocabulary.text(i);
    set_token(model, vocabulary.id(i), text);
    first_.add(text, vocabulary.id(i), 0);
    if (text.starts_with(prefix_) && text.size() > prefix_.size())
      following_.add(text.substr(prefix_.size()), vocabulary.id(i), 0);
    longest_token_ = std::max(longest_token_, text.size());
  }
  first_.index();
  following_.index();
  const JsonPart unknown = model.at("unk_token");
  const uint32_t entry = first_.find(unknown.text());
  unknown.check(entry != SubwordTable::kNone, "vocab has no ", quote(unknown.text()));
  unknown_ = static_cast<int32_t>(first_.id(entry));
}

void WordPieceTokenizer::read_decoder(const JsonPart& file) {
  const std::optional<JsonPart> part = file.find("decoder");
  if (!part) return;
  if (part->type() != "WordPiece")
    part->refuse("type ", quote(part->type()), " is not supported; WordPiece is");
  joins_words_ = true;
  decoded_prefix_ = part->at("prefix").text();
  cleans_up_ = part->at("cleanup").flag();
}

// ---- encoding ----

int32_t WordPieceTokenizer::longest(std::string_view rest, bool is_first, size_t& bytes) const {
  const SubwordTable& table = is_first ? first_ : following_;
  for (bytes = std::min(rest.size(), longest_token_); bytes > 0; --bytes) {
    if (bytes < rest.size() && !begins_character(rest[bytes])) continue;
    const uint32_t entry = table.find(rest.substr(0, bytes));
    if (entry != SubwordTable::kNone) return static_cast<int32_t>(table.id(entry));
  }
  return -1;
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const auto characters =
      static_cast<size_t>(std::count_if(word.begin(), word.end(), begins_character));
  size_t bytes = 0;
  for (size_t at = 0; at < word.size() && characters <= most_characters_; at += bytes) {
    const int32_t id = longest(word.substr(at), at == 0, bytes);
    if (id < 0) {
      ids.resize(before);
      break;
    }
    ids.push_back(id);
  }
  if (ids.size() == before) ids.push_back(unknown_);
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  encode_text(text, false, ids);
}

void WordPieceTokenizer::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  encode_text(text, true, ids);
}

void WordPieceTokenizer::encode_text(std::string_view text, bool is_part,
                                     std::vector<int32_t>& ids) const {
  encode_words(text, is_part, ids,
               [this](std::string_view word, std::vector<int32_t>& to) { encode_word(word, to); });
}

// ---- decoding ----

std::string WordPieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text, token;
  bool is_first = true;
  for (const int32_t id : ids) {
    const auto i = static_cast<size_t>(id);
    if (is_special_[i]) continue;
    token = bytes_[i];
    if (!is_first && joins_words_ && token.starts_with(decoded_prefix_))
      token.erase(0, decoded_prefix_.size());
    else if (!is_first)
      token = concat(" ", token);
    if (cleans_up_) clean_up(token);
    text += token;
    is_first = false;
  }
  return text;
}

// ---- the kind ----

bool is_wordpiece_file(std::string_view file_bytes) {
  const size_t begin = file_bytes.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && file_bytes[begin] == '{' &&
         file_bytes.find(kOwnKey) != std::string_view::npos;
}

Tokenizer load_wordpiece(std::string_view file_bytes, std::string_view label,
                         std::vector<CompanionFile> companions) {
  const TokenizerText text = read_tokenizer_text(file_bytes, kTokenizerOrigin, label);
  return Tokenizer(
      std::make_shared<WordPieceTokenizer>(file_bytes, text, label, std::move(companions)));
}

void validate_wordpiece(const TokenizerTrainOptions&) {
  refuse_argument(
      kTokenizerOrigin, "kind",
      " is wordpiece: such a vocabulary comes with an imported model and is not trained");
}

}  // namespace trafo
