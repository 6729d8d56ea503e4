#include "engine/text/chat_template/lexer.h"

#include <algorithm>
#include <array>

#include "engine/core/strings/quote.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Line ends as Jinja reads them; one at the end of the source does not count.
std::string with_line_feeds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view label)
      : source_(with_line_feeds(source)), label_(label) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) {
      const size_t open = next_opening();
      read_text(open);
      if (open == source_.size()) break;
      const char what = source_[open + 1];
      advance(open + 2);
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) advance(at_ + 1);
      if (what == '#')
        skip_comment();
      else
        read_tag(what == '%');
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string_view message) const {
    fail_template(ErrorCode::corrupt_file, label_, line_, message);
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  bool follows(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  size_t next_opening() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i)
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return source_.size();
  }

  // The text up to `open`, without the white space that the tag there removes.
  void read_text(size_t open) {
    const bool begins_line = at_ == 0 || source_[at_ - 1] == '\n';
    std::string_view text = std::string_view(source_).substr(at_, open - at_);
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    if (open < source_.size() && sign == '-') {
      text = strip_space(text, false, true);
    } else if (open < source_.size() && sign != '+' && source_[open + 1] != '{') {
      const size_t start = text.rfind('\n') + 1;  // 0 if there is none
      const std::string_view last = text.substr(start);
      if ((start > 0 || begins_line) && strip_space(last, true, false).empty())
        text = text.substr(0, start);
    }
    if (!text.empty()) add(TokenKind::text, std::string(text));
    advance(open);
  }

  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    advance(source_.size() - strip_space(rest, true, false).size());
  }

  // After the end of a block or a comment, whose sign is in front of it.
  void end_block(char sign) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && follows("\n"))
      advance(at_ + 1);
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) refuse("a comment has no end: #}");
    const char sign = close > at_ ? source_[close - 1] : ' ';
    advance(close + 2);
    end_block(sign);
  }

  // Whether the tag ends here.
  bool read_end(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    for (const std::string_view sign : {"-", "+", ""}) {
      if (sign == "+" && !block) continue;
      if (!follows(concat(sign, close))) continue;
      add(block ? TokenKind::tag_end : TokenKind::output_end, std::string(close));
      advance(at_ + sign.size() + close.size());
      if (block || sign == "-") end_block(sign.empty() ? ' ' : sign[0]);
      return true;
    }
    return false;
  }

  void read_tag(bool block) {
    add(block ? TokenKind::tag_begin : TokenKind::output_begin, block ? "{%" : "{{");
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ == source_.size()) refuse(block ? "a tag has no end: %}" : "a tag has no end: }}");
      if (open.empty() && read_end(block)) return;
      const char c = source_[at_];
      if (begins_name(c))
        read_name();
      else if (is_digit(c))
        read_number();
      else if (c == '\'' || c == '"')
        read_string(c);
      else
        read_symbol(open);
    }
  }

  void read_name() {
    size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::name, source_.substr(at_, end - at_));
    advance(end);
  }

  void read_number() {
    std::string digits;
    size_t end = at_;
    const auto take_digits = [&] {
      for (; end < source_.size() && (is_digit(source_[end]) || source_[end] == '_'); ++end)
        if (source_[end] != '_') digits += source_[end];
    };
    const auto digit_at = [&](size_t place) {
      return place < source_.size() && is_digit(source_[place]);
    };
    take_digits();
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      real = true;
      digits += source_[end++];
      take_digits();
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
      if (digit_at(end + 1 + sign)) {
        real = true;
        digits.append(source_, end, 1 + sign);
        end += 1 + sign;
        take_digits();
      }
    }
    if (end < source_.size() && begins_name(source_[end]))
      refuse("numbers are decimal: " + quote(source_.substr(at_, end + 1 - at_)));
    add(real ? TokenKind::real : TokenKind::integer, std::move(digits));
    advance(end);
  }

  void read_string(char delimiter) {
    std::string text;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != delimiter; ++at) {
      if (source_[at] != '\\') {
        text += source_[at];
        continue;
      }
      if (++at == source_.size()) break;
      at = read_escape(at, text);
    }
    if (at == source_.size()) refuse("a string has no end");
    add(TokenKind::string, std::move(text));
    advance(at + 1);
  }

  // Python's escapes. Returns the place of the last character.
  size_t read_escape(size_t at, std::string& text) const {
    constexpr std::string_view kNames = "abfnrtv", kCodes = "\a\b\f\n\r\t\v";
    const char c = source_[at];
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      text += kCodes[known];
    } else if (c == '\\' || c == '\'' || c == '"') {
      text += c;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string_view hex = std::string_view(source_).substr(at + 1, digits);
      constexpr std::string_view kHex = "0123456789abcdef";
      uint64_t code = 0;
      for (const char digit : hex) {
        const size_t value = kHex.find(static_cast<char>(is_digit(digit) ? digit : digit | 0x20));
        if (value == std::string_view::npos) refuse("a bad escape in a string");
        code = 16 * code + value;
      }
      if (hex.size() < digits || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        refuse("a bad escape in a string");
      append_utf8(static_cast<char32_t>(code), text);
      return at + digits;
    } else if (c == '\n') {
      // A line that continues.
    } else if (is_digit(c) || c == 'N') {
      refuse("octal and named escapes in strings are not supported");
    } else {
      text += '\\';
      text += c;
    }
    return at;
  }

  void read_symbol(std::string& open) {
    static constexpr auto kSymbols = std::to_array<std::string_view>(
        {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"});
    const auto* const found =
        std::find_if(kSymbols.begin(), kSymbols.end(), [&](auto each) { return follows(each); });
    if (found == kSymbols.end())
      refuse("an unexpected character: " +
             quote(truncate_utf8(std::string_view(source_).substr(at_, 4), 4)));
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (!open.ends_with(wanted)) refuse(concat("an unexpected ", c));
      open.pop_back();
    }
    add(TokenKind::symbol, std::string(*found));
    advance(at_ + found->size());
  }

  const std::string source_;
  const std::string_view label_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source, std::string_view label) {
  return Lexer(source, label).read();
}

}  // namespace trafo::jinja
