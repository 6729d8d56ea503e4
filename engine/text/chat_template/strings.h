// Functions of Python's str on UTF-8. Positions and lengths count code points where a comment says
// so, and bytes elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_template/budget.h"

namespace trafo::jinja {

// Without Unicode's white space, or the characters of a set, at its sides.
std::string_view strip_space(std::string_view text, bool left, bool right);
std::string_view strip_text(std::string_view text, std::string_view characters, bool left,
                            bool right, Budget& budget);

// Finds a part of texts, in a time that is linear in the text and the part. The caller charges for
// the text.
class TextSearch {
 public:
  // Charges for the part, which must outlive this. `backward`: finds the last occurrence.
  TextSearch(std::string_view part, Budget& budget, bool backward = false);
  // The place of the first one that begins at `from` or later, or of the last one in the text;
  // npos: there is none.
  size_t find(std::string_view text, size_t from = 0) const;

 private:
  size_t find_with_borders(std::string_view text) const;

  std::string_view part_;
  bool backward_;
  // Of each beginning of the part, the length of the longest other beginning that it ends with.
  std::vector<uint32_t> borders_;
};

int64_t code_points(std::string_view text);
// The characters [start, stop) with a step, counted in code points. start and stop are in range.
std::string slice_text(std::string_view text, int64_t start, int64_t stop, int64_t step);

// As str.split and str.rsplit; without a separator, at white space. `most`: splits; -1: any.
std::vector<std::string_view> split_text(std::string_view text,
                                         std::optional<std::string_view> separator, int64_t most,
                                         Budget& budget);
std::vector<std::string_view> split_text_from_right(std::string_view text,
                                                    std::optional<std::string_view> separator,
                                                    int64_t most, Budget& budget);
// Whether it has decimal digits that are not ASCII's.
bool has_other_digits(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text);
std::string replace_text(std::string_view text, std::string_view old, std::string_view by,
                         int64_t most, Budget& budget);

// None: the text has letters whose other case is not known here. Lower case has all letters but
// the Greek capital sigma, upper case ASCII's.
std::optional<std::string> lower_text(std::string_view text);
std::optional<std::string> upper_text(std::string_view text);
// The first letter in upper case, the others in lower case; with `words`, of each run of letters.
std::optional<std::string> capitalize_text(std::string_view text, bool words);
// Jinja's filter `title`: words end at white space, '-' and opening brackets.
std::optional<std::string> title_text(std::string_view text);

// As repr(): in quotes, with escapes.
std::string python_quoted(std::string_view text);
// As repr(float).
std::string python_real(double value);
// A string of JSON, in quotes.
void append_json_text(std::string_view text, bool ascii, std::string& out);

}  // namespace trafo::jinja
