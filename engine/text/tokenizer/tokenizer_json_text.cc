#include "engine/text/tokenizer/tokenizer_json_text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/core/limits.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"
#include "engine/core/strings/quote.h"

namespace trafo {
namespace {

// The tables of a file fit into limits::kRefusalBytes: 24 MiB of texts, 12 MiB of entries while
// their list grows, 4 MiB of their hash table, 12 MiB of merges and some of the rest. Gemma's
// vocabulary, a large one, has 2^18 subwords and 2^19 merges, in a file of 33 MB. The texts of
// merges are kept only if they come before the vocabulary.
constexpr size_t kTextBytes = 24u << 20;
// A run of 1,024 spaces has 2,048 bytes in the letters of byte-level BPE.
constexpr size_t kSubwordBytes = 8u << 10;
constexpr size_t kSubwords = size_t{1} << 19;
constexpr size_t kMerges = size_t{1} << 20;
constexpr size_t kOtherValues = 65536;
constexpr size_t kDepth = limits::kNesting;

class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(std::string_view origin, std::string_view label, TokenizerText& text)
      : origin_(origin), label_(label), text_(text) {}

  bool null() override { return other(nullptr); }
  bool boolean(bool value) override { return other(value); }
  bool number_integer(number_integer_t value) override {
    return in_pair() ? score(static_cast<double>(value)) : other(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_pair()) return score(static_cast<double>(value));
    if (part_ != Part::vocabulary) return other(value);
    check(depth_ == 3 && !text_.has_scores && value < kSubwords, "vocab: the id of ",
          quote(subword_), " is not a number below ", kSubwords);
    return add(static_cast<uint32_t>(value), 0);
  }
  bool number_float(number_float_t value, const string_t&) override {
    return in_pair() ? score(value) : other(value);
  }
  bool string(string_t& value) override {
    if (part_ == Part::vocabulary) {
      check(depth_ == 4 && items_ == 0,
            "vocab is no object of ids and no list of [subword, score]");
      subword_ = std::move(value);
      ++items_;
      return true;
    }
    if (part_ == Part::merges) return merge(value);
    return other(Json(std::move(value)));
  }
  bool binary(binary_t&) override { return false; }  // not in a text

  bool start_object(std::size_t) override {
    if (part_ == Part::none) return enter(Json::Object());
    check(part_ == Part::vocabulary && depth_ == 2, "model: ", name(), " has an object inside");
    ++depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (part_ == Part::vocabulary) {
      subword_ = std::move(key);
      return true;
    }
    if (depth_ == 2 && keys_.front() == "model" && (key == "vocab" || key == "merges")) {
      part_ = key == "vocab" ? Part::vocabulary : Part::merges;
      bool& seen = key == "vocab" ? has_vocabulary_ : has_merges_;
      check(!std::exchange(seen, true), "model: ", name(), " comes twice");
      return true;
    }
    auto& members = std::get<Json::Object>(open_.back()->value);
    count();
    keys_.back() = key;
    members.push_back({std::move(key), {}});
    return true;
  }
  bool end_object() override {
    if (part_ == Part::none) {
      std::vector<std::string_view> keys;
      for (const Json::Member& member : std::get<Json::Object>(open_.back()->value))
        keys.push_back(member.key);
      std::sort(keys.begin(), keys.end());
      check(std::adjacent_find(keys.begin(), keys.end()) == keys.end(),
            "a JSON object has a key twice");
    }
    return leave();
  }
  bool start_array(std::size_t) override {
    if (part_ == Part::none) return enter(Json::List());
    if (depth_ == 2 && part_ == Part::vocabulary) text_.has_scores = true;
    check(depth_ == 2 || (depth_ == 3 && (part_ == Part::merges || text_.has_scores)),
          "model: ", name(), " is nested too deep");
    ++depth_;
    items_ = 0;
    return true;
  }
  bool end_array() override {
    if (depth_ == 4 && part_ != Part::none)
      check(items_ == 2, "model: ", name(), " has a list that is no pair");
    return leave();
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception&) override {
    check(false, "not valid JSON at byte ", byte);
    return false;
  }

  void finish() {
    check(text_.rest.as<Json::Object>() != nullptr, "it is not a JSON object");
    check(has_vocabulary_, "model has no vocab");
    if (!is_indexed_) index_vocabulary();
    if (has_texts_of_merges_)
      for (Merge& merge : text_.merges) merge = resolved(merge);
  }

 private:
  enum class Part { none, vocabulary, merges };

  template <class... Why>
  void check(bool good, const Why&... why) const {
    require(good, ErrorCode::corrupt_file, origin_, label_, ": ", why...);
  }
  const char* name() const { return part_ == Part::merges ? "merges" : "vocab"; }
  bool in_pair() const { return part_ == Part::vocabulary && depth_ == 4; }

  void count() { check(++others_ <= kOtherValues, "it has too many values beside its vocabulary"); }
  bool other(Json value) {
    check(part_ == Part::none || (depth_ == 2 && value.as<std::nullptr_t>()), "model: ", name(),
          " has a value of another kind, behind ", quote(subword_));
    if (part_ != Part::none) {  // null in place of the list
      part_ = Part::none;
      return true;
    }
    place() = std::move(value);
    return true;
  }
  Json& place() {
    if (open_.empty()) return text_.rest;
    if (auto* list = std::get_if<Json::List>(&open_.back()->value)) {
      count();
      return list->emplace_back();
    }
    return std::get<Json::Object>(open_.back()->value).back().value;
  }
  bool enter(Json empty) {
    check(depth_ < kDepth, "it is nested more than ", kDepth, " deep");
    Json& here = place();
    here = std::move(empty);
    open_.push_back(&here);
    keys_.emplace_back();
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    if (part_ != Part::none) {
      if (depth_ == 2 && part_ == Part::vocabulary) index_vocabulary();
      if (depth_ == 2) part_ = Part::none;
      return true;
    }
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  void index_vocabulary() {
    const uint32_t twice = text_.vocabulary.index();
    check(twice == SubwordTable::kNone, "vocab has a subword twice, with the id ",
          twice == SubwordTable::kNone ? 0 : text_.vocabulary.id(twice));
    is_indexed_ = true;
  }
  bool score(double value) {
    check(items_ == 1 && std::isfinite(static_cast<float>(value)), "vocab: the score of ",
          quote(subword_), " is not a finite number");
    ++items_;
    return add(static_cast<uint32_t>(text_.vocabulary.size()), value);
  }
  bool add(uint32_t id, double score) {
    check(text_.vocabulary.size() < kSubwords, "vocab has more than ", kSubwords, " subwords");
    check(!subword_.empty() && subword_.size() <= kSubwordBytes, "vocab: subword ", id, " has ",
          subword_.size(), " bytes, 1 to ", kSubwordBytes, " are allowed");
    check_text_bytes(subword_.size());
    text_.vocabulary.add(subword_, id, score);
    return true;
  }

  bool merge(const std::string& value) {
    if (depth_ == 4) {  // one of a pair
      check(items_ < 2, "model: merges has a list that is no pair");
      (items_ == 0 ? left_ : subword_) = value;
      return ++items_ < 2 ? true : merge(left_, subword_);
    }
    check(depth_ == 3, "model: merges is no list");
    const size_t space = value.find(' ');
    check(space != std::string::npos && value.find(' ', space + 1) == std::string::npos,
          "merges: ", quote(value), " is not two subwords");
    return merge(value.substr(0, space), value.substr(space + 1));
  }
  // Vocabulary and merges come in any order. If the merges come first, one is the place of its
  // texts and their sizes until finish().
  bool merge(std::string_view left, std::string_view right) {
    check(text_.merges.size() < kMerges, "there are more than ", kMerges, " merges");
    check(left.size() + right.size() <= kSubwordBytes, "merges: a subword has more than ",
          kSubwordBytes, " bytes");
    if (is_indexed_) {
      text_.merges.push_back(found(left, right));
      return true;
    }
    has_texts_of_merges_ = true;
    check_text_bytes(left.size() + right.size());
    text_.merges.push_back({text_.vocabulary.keep(left), static_cast<uint32_t>(left.size()),
                            static_cast<uint32_t>(right.size())});
    text_.vocabulary.keep(right);
    return true;
  }
  void check_text_bytes(size_t more) const {
    check(text_.vocabulary.text_bytes() + more <= kTextBytes, "vocab and merges have more than ",
          kTextBytes, " bytes of text");
  }
  Merge resolved(const Merge& kept) const {
    const auto [place, left_bytes, right_bytes] = kept;
    return found(text_.vocabulary.kept(place, left_bytes),
                 text_.vocabulary.kept(place + left_bytes, right_bytes));
  }
  Merge found(std::string_view left, std::string_view right) const {
    const auto entry = [&](std::string_view subword) {
      const uint32_t found = text_.vocabulary.find(subword);
      check(found != SubwordTable::kNone, "merges: the vocabulary has no ", quote(subword));
      return found;
    };
    return {entry(left), entry(right), entry(std::string(left).append(right))};
  }

  const std::string_view origin_, label_;
  TokenizerText& text_;
  std::vector<Json*> open_;        // what encloses the current value in `rest`
  std::vector<std::string> keys_;  // of each, the key that it is at
  size_t depth_ = 0;               // open objects and lists; `vocab` and `merges` are at depth 3
  size_t items_ = 0;               // of the innermost list of `vocab` and `merges`
  size_t others_ = 0;
  Part part_ = Part::none;
  bool has_vocabulary_ = false, has_merges_ = false;
  bool is_indexed_ = false, has_texts_of_merges_ = false;
  std::string subword_, left_;
};

// The parser holds a string, and all text between two strings or numbers, in memory several
// times. A tokenizer's longest string is a map of characters, of less than 1 MiB.
constexpr size_t kTokenBytes = 4u << 20;

void check_tokens(std::string_view bytes, std::string_view origin, std::string_view label) {
  bool in_string = false, in_number = false;
  size_t length = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool numeric = c == '-' || (c >= '0' && c <= '9');
    const bool begins = !in_string && (c == '"' || (numeric && !in_number));
    in_number = numeric;
    length = begins ? 1 : length + 1;
    require(length <= kTokenBytes, ErrorCode::corrupt_file, origin, label,
            ": a string, or white space and brackets in a row, of more than ", kTokenBytes,
            " bytes");
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
  }
}

}  // namespace

void SubwordTable::add(std::string_view text, uint32_t id, double score) {
  entries_.push_back(
      {keep(text), static_cast<uint32_t>(text.size()), id, static_cast<float>(score)});
}

uint32_t SubwordTable::keep(std::string_view text) {
  const auto place = static_cast<uint32_t>(texts_.size());
  texts_ += text;
  return place;
}

std::string_view SubwordTable::text(size_t entry) const {
  return std::string_view(texts_).substr(entries_[entry].begin, entries_[entry].bytes);
}

// The slot of the text, or the free one where it would be.
size_t SubwordTable::slot(std::string_view text) const {
  uint64_t hash = text.size();
  for (size_t i = 0; i < text.size(); i += sizeof hash) {
    uint64_t part = 0;
    std::memcpy(&part, text.data() + i, std::min(sizeof part, text.size() - i));
    hash = mix_bits(hash ^ part);
  }
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at] != kNone && this->text(slots_[at]) != text) at = (at + 1) & (slots_.size() - 1);
  return at;
}

uint32_t SubwordTable::index() {
  slots_.assign(std::bit_ceil(2 * entries_.size() + 1), kNone);
  uint32_t twice = kNone;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    uint32_t& place = slots_[slot(text(entry))];
    if (place != kNone) twice = entry;
    place = entry;
  }
  return twice;
}

uint32_t SubwordTable::find(std::string_view wanted) const {
  return slots_[slot(wanted)];
}

std::optional<TextSpan> find_member(std::string_view object, std::string_view key) {
  size_t depth = 0, begin = std::string_view::npos;  // of the value
  std::string_view last;                             // text of the string before
  for (size_t at = 0; at < object.size(); ++at) {
    const char c = object[at];
    if (c == '"') {
      const size_t from = at + 1;
      for (++at; object[at] != '"'; ++at)
        if (object[at] == '\\') ++at;
      if (depth == 1) last = object.substr(from, at - from);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 1 && c == ':' && last == key && begin == std::string_view::npos) {
      begin = at + 1;
    } else if (depth == 1 && (c == ',' || c == '}') && begin != std::string_view::npos) {
      return TextSpan{begin, object.find_last_not_of(" \t\r\n", at - 1) + 1};
    }
    if (c == '}' || c == ']') --depth;
  }
  return std::nullopt;
}

std::string with_member(std::string_view object, std::string_view key, std::string_view value) {
  if (const std::optional<TextSpan> old = find_member(object, key))
    return concat(object.substr(0, old->begin), value, object.substr(old->end));
  const size_t first = object.find('{') + 1;
  return concat(object.substr(0, first), "\"", key, "\":", value, ",", object.substr(first));
}

TokenizerText read_tokenizer_text(std::string_view bytes, std::string_view origin,
                                  std::string_view label) {
  check_tokens(bytes, origin, label);
  TokenizerText text;
  Handler handler(origin, label, text);
  nlohmann::json::sax_parse(bytes, &handler);
  handler.finish();
  return text;
}

}  // namespace trafo
