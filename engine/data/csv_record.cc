#include "engine/data/csv_record.h"

#include <algorithm>

#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr std::string_view kCsvOrigin = "corpus";

}  // namespace

bool is_csv_name(std::string_view path) noexcept {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(".csv");
}

void CsvScan::add(std::string_view line) noexcept {
  if (state_ != State::quoted) state_ = State::begin;
  for (const char c : line) {
    const bool is_quote = c == '"';
    switch (state_) {
      case State::begin:
        state_ = is_quote ? State::quoted : c == ',' ? State::begin : State::plain;
        break;
      case State::plain:
        if (c == ',') state_ = State::begin;
        break;
      case State::quoted:
        if (is_quote) state_ = State::quote;
        break;
      case State::quote:  // the end of the field, or the first of two
        state_ = is_quote ? State::quoted : c == ',' ? State::begin : State::plain;
        break;
    }
  }
}

std::vector<std::string> csv_fields(std::string_view record, std::string_view label) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    std::string& field = fields.emplace_back();
    if (at < record.size() && record[at] == '"') {
      bool closed = false;
      for (++at; at < record.size() && !closed; ++at) {
        if (record[at] != '"') {
          const size_t next = record.find_first_not_of('\r', at);
          if (next == at || next >= record.size() || record[next] != '\n') field += record[at];
        } else if (at + 1 < record.size() && record[at + 1] == '"') {
          field += '"';
          ++at;
        } else {
          closed = true;
        }
      }
      require(closed, ErrorCode::corrupt_file, kCsvOrigin, label, ": field ", fields.size(),
              " begins with a quote, and no quote ends it");
      require(at == record.size() || record[at] == ',', ErrorCode::corrupt_file, kCsvOrigin, label,
              ": field ", fields.size(), " has text after its closing quote");
    } else {
      const size_t end = std::min(record.find(',', at), record.size());
      field = record.substr(at, end - at);
      at = end;
    }
    if (at == record.size()) return fields;
    ++at;  // the comma
  }
}

}  // namespace trafo
