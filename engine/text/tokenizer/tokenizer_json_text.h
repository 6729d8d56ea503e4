// The text of a tokenizer.json, parsed: vocabulary and merges as compact tables, the rest as JSON.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/text_span.h"

namespace trafo {

// The subwords of a vocabulary. A JSON value for each would be many times as large as the file.
class SubwordTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  size_t size() const { return entries_.size(); }
  size_t text_bytes() const { return texts_.size(); }
  void add(std::string_view text, uint32_t id, double score);
  std::string_view text(size_t entry) const;
  uint32_t id(size_t entry) const { return entries_[entry].id; }
  float score(size_t entry) const { return entries_[entry].score; }

  // Keeps a text that is no entry. Returns where kept() finds it.
  uint32_t keep(std::string_view text);
  std::string_view kept(uint32_t place, uint32_t bytes) const {
    return std::string_view(texts_).substr(place, bytes);
  }

  // Makes find() possible, and add() impossible. Returns an entry whose text another one has as
  // well, or kNone.
  uint32_t index();
  uint32_t find(std::string_view text) const;  // the entry, or kNone

 private:
  struct Entry {
    uint32_t begin, bytes, id;
    float score;
  };
  size_t slot(std::string_view text) const;
  std::string texts_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // a hash table of entries
};

struct Merge {
  uint32_t left, right, result;  // entries of the vocabulary
};

struct TokenizerText {
  Json rest;  // all but model.vocab and model.merges
  SubwordTable vocabulary;
  bool has_scores = false;   // a list of [subword, score]; otherwise an object of ids
  std::deque<Merge> merges;  // in the order of the file; does not move its elements
};

// Where the value of a member is in the text of a JSON object, which has been parsed. None: the
// object has no such member.
std::optional<TextSpan> find_member(std::string_view object, std::string_view key);
// The text of the object with another value of this member, which is the first one if it is new.
std::string with_member(std::string_view object, std::string_view key, std::string_view value);

// CORRUPT_FILE with `label`: no JSON, vocabularies and merges of another form, merges of subwords
// that the vocabulary lacks, and more of anything than a tokenizer has.
TokenizerText read_tokenizer_text(std::string_view bytes, std::string_view origin,
                                  std::string_view label);

}  // namespace trafo
