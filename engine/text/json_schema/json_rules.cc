#include "engine/text/json_schema/json_rules.h"

namespace trafo {
namespace {

constexpr int kMostDigits = 16, kMostExponentDigits = 2, kMostIndent = 16;

ByteGrammar::ByteSet set_of_bytes(std::string_view bytes) {
  ByteGrammar::ByteSet set{};
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    set[byte / 64] |= uint64_t{1} << (byte % 64);
  }
  return set;
}

constexpr std::string_view kEscapeDigits = "0123456789abcdefABCDEF";

}  // namespace

JsonRules::JsonRules(ByteGrammar& grammar)
    : value(grammar.new_rule()),
      string(grammar.new_rule()),
      number(grammar.new_rule()),
      integer(grammar.new_rule()),
      indent(grammar.new_rule()),
      grammar_(grammar) {
  const int32_t end = grammar.end();
  int32_t spaces = end;
  for (int i = 0; i < kMostIndent; ++i)
    spaces = grammar.optional(grammar.literal(" ", spaces), end);
  grammar.set_rule(indent, grammar.literal("\n", spaces));
  make_string();
  grammar.set_rule(integer, whole_number(end));
  const int32_t exponent = grammar.byte_set(
      set_of_bytes("eE"),
      grammar.split(
          {grammar.byte_set(set_of_bytes("+-"),
                            grammar.byte_range('0', '9', digits(kMostExponentDigits - 1, end))),
           grammar.byte_range('0', '9', digits(kMostExponentDigits - 1, end))}));
  const int32_t after_point = grammar.optional(exponent, end);
  const int32_t fraction =
      grammar.literal(".", grammar.byte_range('0', '9', digits(kMostDigits - 1, after_point)));
  grammar.set_rule(number, whole_number(grammar.split({fraction, exponent, end})));
  const auto any = [&](int32_t next) { return grammar.call(value, next); };
  grammar.set_rule(value,
                   grammar.split({free_object(any, end), array(any, end), grammar.call(string, end),
                                  grammar.call(number, end), grammar.literal("true", end),
                                  grammar.literal("false", end), grammar.literal("null", end)}));
}

int32_t JsonRules::space(int32_t next) {
  return grammar_.split({next, grammar_.literal(" ", next), grammar_.call(indent, next)});
}

int32_t JsonRules::digits(int most, int32_t next) {
  int32_t node = next;
  for (int i = 0; i < most; ++i)
    node = grammar_.optional(grammar_.byte_range('0', '9', node), next);
  return node;
}

// Without leading zeros.
int32_t JsonRules::whole_number(int32_t next) {
  const int32_t positive = grammar_.split(
      {grammar_.literal("0", next), grammar_.byte_range('1', '9', digits(kMostDigits - 1, next))});
  return grammar_.optional(grammar_.literal("-", positive), positive);
}

void JsonRules::make_string() {
  const int32_t inside = grammar_.reserve();
  grammar_.set_targets(inside, {character(inside), grammar_.literal("\\", escape(inside)),
                                grammar_.literal("\"", grammar_.end())});
  grammar_.set_rule(string, grammar_.literal("\"", inside));
}

// A code point in UTF-8 (Unicode, table 3-7) that needs no escape.
int32_t JsonRules::character(int32_t next) {
  ByteGrammar::ByteSet plain{};
  for (int byte = 0x20; byte < 0x80; ++byte)
    if (byte != '"' && byte != '\\')
      plain[static_cast<size_t>(byte / 64)] |= uint64_t{1} << (byte % 64);
  const auto range = [&](int low, int high, int32_t after) {
    return grammar_.byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(high), after);
  };
  const int32_t last = range(0x80, 0xBF, next), two = range(0x80, 0xBF, last);
  return grammar_.split({grammar_.byte_set(plain, next), range(0xC2, 0xDF, last),
                         range(0xE0, 0xE0, range(0xA0, 0xBF, last)), range(0xE1, 0xEC, two),
                         range(0xED, 0xED, range(0x80, 0x9F, last)), range(0xEE, 0xEF, two),
                         range(0xF0, 0xF0, range(0x90, 0xBF, two)),
                         range(0xF1, 0xF3, range(0x80, 0xBF, two)),
                         range(0xF4, 0xF4, range(0x80, 0x8F, two))});
}

// After the backslash.
int32_t JsonRules::escape(int32_t next) {
  const auto hex = [&](std::string_view digits, int32_t after) {
    return grammar_.byte_set(set_of_bytes(digits), after);
  };
  const int32_t one = hex(kEscapeDigits, next), two = hex(kEscapeDigits, one);
  const int32_t low_surrogate = grammar_.literal("\\u", hex("dD", hex("cdefCDEF", two)));
  const int32_t low_of_pair_2 = hex(kEscapeDigits, low_surrogate);
  const int32_t low_of_pair = hex(kEscapeDigits, low_of_pair_2);
  const int32_t code =
      grammar_.split({hex("0123456789abcefABCEF", hex(kEscapeDigits, two)),
                      hex("dD", hex("01234567", two)), hex("dD", hex("89abAB", low_of_pair))});
  return grammar_.split(
      {grammar_.byte_set(set_of_bytes("\"\\/bfnrt"), next), grammar_.literal("u", code)});
}

}  // namespace trafo
