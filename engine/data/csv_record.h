// Records of CSV (RFC 4180): fields between commas, of which one in quotes may have commas, line
// feeds and quotes, each of these written twice. A quote inside a field that does not begin with
// one is a character. CR in front of LF is left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trafo {

// Whether the name of a file says that it has CSV: .csv, also with .gz.
bool is_csv_name(std::string_view path) noexcept;

// Finds the lines of a record.
class CsvScan {
 public:
  // The next line, after a line feed if it is not the first one.
  void add(std::string_view line) noexcept;
  // Whether a quoted field continues after the last line.
  bool is_open() const noexcept { return state_ == State::quoted; }

 private:
  enum class State { begin, plain, quoted, quote };
  State state_ = State::begin;
};

// The fields of a whole record. CORRUPT_FILE, naming `label`, if there is text between a closing
// quote and the next comma, or a quoted field does not end.
std::vector<std::string> csv_fields(std::string_view record, std::string_view label);

}  // namespace trafo
