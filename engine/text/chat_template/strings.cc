#include "engine/text/chat_template/strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/core/strings/utf8.h"
#include "engine/text/unicode/properties.h"

namespace trafo::jinja {
namespace {

// The start of the last code point of a text that is not empty.
size_t last_start(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

// Without the characters at its sides that `strips` is true for.
template <class Strips>
std::string_view strip_while(std::string_view text, bool left, bool right, const Strips& strips) {
  while (left && !text.empty()) {
    size_t next = 0;
    if (!strips(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const size_t start = last_start(text);
    size_t at = start;
    if (!strips(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

void append_hex(char32_t value, int digits, std::string& out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHexDigits[value >> shift & 15];
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::string_view strip_space(std::string_view text, bool left, bool right) {
  return strip_while(text, left, right, is_unicode_space);
}

std::string_view strip_text(std::string_view text, std::string_view characters, bool left,
                            bool right, Budget& budget) {
  budget.spend(static_cast<int64_t>(characters.size()));
  std::u32string set;
  for (size_t at = 0; at < characters.size();) set += next_code_point(characters, at);
  std::ranges::sort(set);
  return strip_while(text, left, right, [&](char32_t character) {
    return std::ranges::binary_search(set, character);
  });
}

TextSearch::TextSearch(std::string_view part, Budget& budget, bool backward)
    : part_(part), backward_(backward) {
  // Shorter parts are found soon without a table.
  constexpr size_t kShort = 16;
  if (part.size() <= kShort) return;
  budget.spend_bytes(4 * part.size());
  borders_.resize(part.size());
  const auto at = [&](size_t i) { return backward ? part[part.size() - 1 - i] : part[i]; };
  for (size_t i = 1, border = 0; i < part.size(); ++i) {
    while (border > 0 && at(i) != at(border)) border = borders_[border - 1];
    if (at(i) == at(border)) ++border;
    borders_[i] = static_cast<uint32_t>(border);
  }
}

size_t TextSearch::find(std::string_view text, size_t from) const {
  if (borders_.empty()) return backward_ ? text.rfind(part_) : text.find(part_, from);
  const size_t found = find_with_borders(text.substr(std::min(from, text.size())));
  return found == std::string_view::npos ? found : from + found;
}

// The algorithm of Knuth, Morris and Pratt.
size_t TextSearch::find_with_borders(std::string_view text) const {
  const size_t size = part_.size();
  const auto part = [&](size_t i) { return backward_ ? part_[size - 1 - i] : part_[i]; };
  for (size_t i = 0, matched = 0; i < text.size(); ++i) {
    const char c = backward_ ? text[text.size() - 1 - i] : text[i];
    while (matched > 0 && c != part(matched)) matched = borders_[matched - 1];
    if (c == part(matched)) ++matched;
    if (matched == size) return backward_ ? text.size() - 1 - i : i + 1 - size;
  }
  return std::string_view::npos;
}

int64_t code_points(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string slice_text(std::string_view text, int64_t start, int64_t stop, int64_t step) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); next_code_point(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  std::string out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    const auto place = static_cast<size_t>(i);
    out += text.substr(starts[place], starts[place + 1] - starts[place]);
  }
  return out;
}

std::vector<std::string_view> split_text(std::string_view text,
                                         std::optional<std::string_view> separator, int64_t most,
                                         Budget& budget) {
  std::vector<std::string_view> parts;
  const TextSearch search(separator.value_or(""), budget);
  if (!separator) text = strip_space(text, true, false);
  while (most < 0 || std::ssize(parts) < most) {
    size_t end = 0, next = 0;
    if (separator) {
      end = search.find(text);
      if (end == std::string_view::npos) break;
      next = end + separator->size();
    } else {
      for (end = 0; end < text.size(); end = next) {
        next = end;
        if (is_unicode_space(next_code_point(text, next))) break;
      }
      if (end == text.size()) break;
      next = text.size() - strip_space(text.substr(end), true, false).size();
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(next);
  }
  if (separator || !text.empty()) parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_text_from_right(std::string_view text,
                                                    std::optional<std::string_view> separator,
                                                    int64_t most, Budget& budget) {
  std::vector<std::string_view> parts;
  const TextSearch search(separator.value_or(""), budget, true);
  if (!separator) text = strip_space(text, false, true);
  while (most < 0 || std::ssize(parts) < most) {
    if (separator) {
      const size_t found = search.find(text);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(found + separator->size()));
      text = text.substr(0, found);
      continue;
    }
    size_t begin = text.size();  // of the last word
    while (begin > 0) {
      const size_t start = last_start(text.substr(0, begin));
      size_t at = start;
      if (is_unicode_space(next_code_point(text, at))) break;
      begin = start;
    }
    if (begin == 0) break;
    parts.push_back(text.substr(begin));
    text = strip_space(text.substr(0, begin), false, true);
  }
  if (separator || !text.empty()) parts.push_back(text);
  std::ranges::reverse(parts);
  return parts;
}

bool has_other_digits(std::string_view text) {
  static const CodePointTable digits(*category_set("Nd"));
  if (is_ascii(text)) return false;
  for (size_t at = 0; at < text.size();)
    if (const char32_t c = next_code_point(text, at); c >= 0x80 && digits.has(c)) return true;
  return false;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    if (!is_line_break(next_code_point(text, at))) continue;
    if (text[end] == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view by,
                         int64_t most, Budget& budget) {
  std::string out;
  const TextSearch search(old, budget);
  size_t at = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    if (old.empty()) {  // between all characters
      out += by;
      if (at == text.size()) return out;
      const size_t start = at;
      next_code_point(text, at);
      out += text.substr(start, at - start);
      continue;
    }
    const size_t found = search.find(text, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += by;
    at = found + old.size();
  }
  out += text.substr(at);
  return out;
}

std::optional<std::string> lower_text(std::string_view text) {
  constexpr char32_t kCapitalSigma = 0x3A3;
  std::string out;
  std::u32string letters;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = next_code_point(text, at);
    if (character == kCapitalSigma) return std::nullopt;
    letters.clear();
    append_lower_case(character, letters);
    for (const char32_t letter : letters) append_utf8(letter, out);
  }
  return out;
}

std::optional<std::string> upper_text(std::string_view text) {
  if (!is_ascii(text)) return std::nullopt;
  std::string out(text);
  std::ranges::transform(out, out.begin(), ascii_upper);
  return out;
}

std::optional<std::string> capitalize_text(std::string_view text, bool words) {
  if (!is_ascii(text)) return std::nullopt;
  std::string out(text);
  bool begins = true;
  for (char& c : out) {
    c = begins ? ascii_upper(c) : ascii_lower(c);
    begins = words && !is_ascii_letter(c);
  }
  return out;
}

std::optional<std::string> title_text(std::string_view text) {
  if (!is_ascii(text)) return std::nullopt;
  std::string out(text);
  bool begins = true;
  for (char& c : out) {
    c = begins ? ascii_upper(c) : ascii_lower(c);
    begins = std::string_view("-({[< \t\n\r\f\v\x1c\x1d\x1e\x1f").find(c) != std::string::npos;
  }
  return out;
}

std::string python_quoted(std::string_view text) {
  static const CodePointTable unprintable(category_set("C")->united(*category_set("Z")));
  const bool apostrophe = text.find('\'') != std::string_view::npos;
  const char quotes = apostrophe && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quotes);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == U'\\' || c == static_cast<char32_t>(quotes)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n' || c == U'\r' || c == U'\t') {
      out += c == U'\n' ? "\\n" : c == U'\r' ? "\\r" : "\\t";
    } else if (c == U' ' || !unprintable.has(c)) {
      append_utf8(c, out);
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      append_hex(c, digits, out);
    }
  }
  return out + quotes;
}

std::string python_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[400];
  const double magnitude = std::abs(value);
  const bool scientific = value != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value,
                    scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, end.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_json_text(std::string_view text, bool ascii, std::string& out) {
  constexpr std::string_view kCodes = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
  const auto append_unit = [&](char32_t unit) {
    out += "\\u";
    append_hex(unit, 4, out);
  };
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const size_t known = c < 0x80 ? kCodes.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += '\\';
      out += kNames[known];
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
      append_unit(c);
    } else if (ascii && c >= 0x10000) {
      append_unit(0xD800 + ((c - 0x10000) >> 10));
      append_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      append_utf8(c, out);
    }
  }
  out += '"';
}

}  // namespace trafo::jinja
