#include <algorithm>
#include <string>

#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/pattern/pattern_tree.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

using Kind = PatternNode::Kind;
using Greed = PatternNode::Greed;

constexpr int kMostNested = 32;     // groups and classes inside each other
constexpr int kMostRepeats = 1000;  // {n,m}
constexpr char32_t kLongS = 0x17f, kKelvin = 0x212a;

class PatternParser {
 public:
  PatternParser(std::string_view expression, std::string_view label)
      : expression_(expression), label_(label) {
    for (const char32_t c : to_code_points(expression)) text_ += c;
  }

  PatternNode parse() {
    PatternNode node = choice(false);
    check(at_ == text_.size(), "a ) that closes nothing");
    return node;
  }

 private:
  template <class... Why>
  [[noreturn]] void error(ErrorCode code, const Why&... why) const {
    fail(code, kTokenizerOrigin, label_, ": the pattern ", quote(expression_), " has ", why...,
         " at character ", std::min(at_, text_.size()) + 1);
  }
  template <class... Why>
  void check(bool good, const Why&... why) const {
    if (!good) error(ErrorCode::corrupt_file, why...);
  }
  template <class... Why>
  [[noreturn]] void refuse(const Why&... why) const {
    error(ErrorCode::unsupported, why..., ", which is not supported,");
  }

  bool ended() const { return at_ == text_.size(); }
  bool sees(std::u32string_view what) const { return text_.compare(at_, what.size(), what) == 0; }
  bool takes(std::u32string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  char32_t character(const char* wanted) {
    check(!ended(), "no ", wanted);
    return text_[at_++];
  }

  PatternNode choice(bool fold) {
    check(++depth_ <= kMostNested, "more than ", kMostNested, " groups inside each other");
    PatternNode node;
    node.kind = Kind::choice;
    do {
      node.parts.push_back(sequence(fold));
    } while (takes(U"|"));
    --depth_;
    return node.parts.size() == 1 ? std::move(node.parts.front()) : node;
  }

  PatternNode sequence(bool fold) {
    PatternNode node;
    char32_t before = 0;
    while (!ended() && !sees(U"|") && !sees(U")")) {
      const char32_t literal = text_[at_];
      if (fold) refuse_ligature(before, literal);
      before = literal;
      node.parts.push_back(repetition(fold));
    }
    return node;
  }
  // In a pattern that ignores case, Oniguruma takes one character for these two: the German sharp s
  // for "ss".
  void refuse_ligature(char32_t a, char32_t b) const {
    const auto low = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    for (const char* pair : {"ss", "ff", "fi", "fl", "st"})
      if (low(a) == static_cast<char32_t>(pair[0]) && low(b) == static_cast<char32_t>(pair[1]))
        refuse("'", pair, "' without regard to case");
  }

  PatternNode repetition(bool fold) {
    PatternNode node = atom(fold);
    for (bool interval = false;;) {
      int low = 0, high = PatternNode::kUnbounded;
      if (takes(U"?"))
        high = 1;
      else if (takes(U"+"))
        low = 1;
      else if (takes(U"{"))
        interval = bounds(low, high);
      else if (!takes(U"*"))
        return node;
      if (node.kind != Kind::set && node.kind != Kind::sequence && node.kind != Kind::choice)
        refuse("a repetition of such a part");
      PatternNode repeat;
      repeat.kind = Kind::repeat;
      repeat.low = low;
      repeat.high = high;
      if (sees(U"+") || sees(U"?")) {
        if (interval) refuse("a sign after {}");
        repeat.greed = takes(U"+") ? Greed::possessive : Greed::lazy;
        if (repeat.greed == Greed::lazy) ++at_;
      }
      if (repeat.greed == Greed::possessive && node.kind != Kind::set)
        refuse("a possessive repetition of a group");
      if (node.may_be_empty() && high == PatternNode::kUnbounded)
        refuse("a repetition of what may be empty");
      repeat.parts.push_back(std::move(node));
      node = std::move(repeat);
    }
  }
  // Between braces. Always true.
  bool bounds(int& low, int& high) {
    low = sees(U",") ? 0 : number();
    high = takes(U",") ? (sees(U"}") ? PatternNode::kUnbounded : number()) : low;
    check(takes(U"}"), "no } after {");
    check(high == PatternNode::kUnbounded || low <= high, "{} with the larger number first");
    return true;
  }
  int number() {
    int value = 0;
    check(!ended() && text_[at_] >= '0' && text_[at_] <= '9', "no number in {}");
    while (!ended() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + static_cast<int>(text_[at_++] - '0');
      if (value > kMostRepeats) refuse("more than ", kMostRepeats, " repetitions");
    }
    return value;
  }

  PatternNode group(PatternNode inside) {
    check(takes(U")"), "a ( without )");
    return inside;
  }
  PatternNode look(bool fold, bool negated) {
    PatternNode node;
    node.kind = Kind::look;
    node.negated = negated;
    node.parts.push_back(choice(fold));
    return group(std::move(node));
  }
  PatternNode atom(bool fold) {
    PatternNode node;
    if (takes(U"(?:")) return group(choice(fold));
    if (takes(U"(?i:")) return group(choice(true));
    if (takes(U"(?=")) return look(fold, false);
    if (takes(U"(?!")) return look(fold, true);
    if (sees(U"(?") || sees(U"(*")) refuse("a group of this kind");
    if (takes(U"(")) return group(choice(fold));
    if (takes(U"^")) {
      node.kind = Kind::line_start;
    } else if (takes(U"$")) {
      node.kind = Kind::line_end;
    } else if (takes(U"\\A")) {
      node.kind = Kind::text_start;
    } else if (takes(U"\\z")) {
      node.kind = Kind::text_end;
    } else {
      node.kind = Kind::set;
      if (takes(U"."))
        node.set = CodePointSet{{'\n', '\n'}}.complement();
      else if (takes(U"["))
        node.set = char_class(fold);
      else
        node.set = folded(one(), fold);
    }
    return node;
  }

  // With the other case of each letter.
  CodePointSet folded(const CodePointSet& set, bool fold) const {
    if (!fold) return set;
    if (!set.is_ascii()) refuse("more than ASCII without regard to case");
    std::vector<CodePointSet::Range> more;
    for (const CodePointSet::Range& range : set.ranges())
      for (char32_t c = range.first; c <= range.last; ++c) {
        if (c >= 'A' && c <= 'Z') more.push_back({c + 32, c + 32});
        if (c >= 'a' && c <= 'z') more.push_back({c - 32, c - 32});
        if ((c | 32) == 's') more.push_back({kLongS, kLongS});
        if ((c | 32) == 'k') more.push_back({kKelvin, kKelvin});
      }
    return set.united(CodePointSet(std::span<const CodePointSet::Range>(more)));
  }

  CodePointSet property(bool negated) {
    check(takes(U"{"), "no { after \\p");
    negated = takes(U"^") != negated;
    std::string name;
    while (!ended() && !sees(U"}")) append_utf8(text_[at_++], name);
    check(takes(U"}"), "no } after \\p{");
    const std::optional<CodePointSet> set = category_set(name);
    if (!set) refuse("the property ", quote(name));
    return negated ? set->complement() : *set;
  }
  char32_t hexadecimal(size_t least, size_t most) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most && !ended(); ++digits, ++at_) {
      const char32_t c = text_[at_];
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if ((c | 32) >= 'a' && (c | 32) <= 'f')
        value = value * 16 + ((c | 32) - 'a' + 10);
      else
        break;
    }
    check(digits >= least && value <= CodePointSet::kLast, "no code point");
    return value;
  }
  // One character or an escape of some.
  CodePointSet one() {
    const auto only = [](char32_t c) { return CodePointSet{{c, c}}; };
    const char32_t plain = character("character");
    if (plain != '\\') {
      check(plain != '*' && plain != '+' && plain != '?', "a repetition of nothing");
      return only(plain);
    }
    switch (const char32_t c = character("character after \\"); c) {
      case 'p':
      case 'P':
        return property(c == 'P');
      case 's':
        return white_space_set();
      case 'S':
        return white_space_set().complement();
      case 'd':
        return *category_set("Nd");
      case 'D':
        return category_set("Nd")->complement();
      case 'w':
        return word_set();
      case 'W':
        return word_set().complement();
      case 'n':
        return only('\n');
      case 'r':
        return only('\r');
      case 't':
        return only('\t');
      case 'f':
        return only('\f');
      case 'v':
        return only('\v');
      case 'u':
        return only(hexadecimal(4, 4));
      case 'x': {
        if (!takes(U"{")) return only(hexadecimal(1, 2));
        const char32_t value = hexadecimal(1, 8);
        check(takes(U"}"), "no } after \\x{");
        return only(value);
      }
      default:
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
          refuse("an escape of this kind");
        return only(c);
    }
  }

  // After its [.
  CodePointSet char_class(bool fold) {
    check(++depth_ <= kMostNested, "more than ", kMostNested, " classes inside each other");
    const bool negated = takes(U"^");
    if (sees(U"]")) refuse("a class that begins with ]");
    CodePointSet all, part;
    bool intersects = false;
    const auto close_part = [&] {
      all = intersects ? all.intersected(part) : part;
      part = {};
    };
    while (!takes(U"]")) {
      if (sees(U"[:")) refuse("a POSIX bracket");
      if (takes(U"&&")) {
        close_part();
        intersects = true;
        continue;
      }
      part = part.united(takes(U"[") ? char_class(fold) : folded(member(), fold));
    }
    close_part();
    --depth_;
    return negated ? all.complement() : all;
  }
  static bool is_one(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }
  // A character or a range of some.
  CodePointSet member() {
    check(!ended(), "a [ without ]");
    CodePointSet first = literal();
    if (!sees(U"-") || at_ + 1 >= text_.size() || text_[at_ + 1] == ']' || !is_one(first))
      return first;
    ++at_;
    if (sees(U"[")) refuse("a range of this kind");
    const CodePointSet last = literal();
    if (!is_one(last)) refuse("a range of this kind");
    const char32_t low = first.ranges()[0].first, high = last.ranges()[0].first;
    check(low <= high, "a range with the later character first");
    return {{low, high}};
  }
  // In a class, the signs of repetition are characters.
  CodePointSet literal() {
    if (!ended() && (sees(U"*") || sees(U"+") || sees(U"?"))) {
      const char32_t c = text_[at_++];
      return {{c, c}};
    }
    return one();
  }

  std::string_view expression_, label_;
  std::u32string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

bool PatternNode::may_be_empty() const {
  const auto empty = [](const PatternNode& part) { return part.may_be_empty(); };
  switch (kind) {
    case Kind::set:
      return false;
    case Kind::sequence:
      return std::all_of(parts.begin(), parts.end(), empty);
    case Kind::choice:
      return std::any_of(parts.begin(), parts.end(), empty);
    case Kind::repeat:
      return low == 0 || parts[0].may_be_empty();
    default:
      return true;
  }
}

CodePointSet PatternNode::first() const {
  static const CodePointSet kAny = CodePointSet().complement();
  if (may_be_empty()) return kAny;
  CodePointSet result = set;
  if (kind == Kind::repeat) return parts[0].first();
  for (const PatternNode& part : parts) {
    // A sequence may begin with its optional items, such as a space, or with the one after them.
    const bool skipped = kind == Kind::sequence && part.may_be_empty();
    if (skipped && part.kind != Kind::repeat) return kAny;
    result = result.united(skipped ? part.parts[0].first() : part.first());
    if (kind == Kind::sequence && !skipped) break;
  }
  return result;
}

PatternNode parse_pattern(std::string_view expression, std::string_view label) {
  return PatternParser(expression, label).parse();
}

}  // namespace trafo
