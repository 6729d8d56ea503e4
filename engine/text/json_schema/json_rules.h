// The rules of JSON that schemas are made of.
#pragma once

#include "engine/text/json_schema/byte_grammar.h"

namespace trafo {

class JsonRules {
 public:
  explicit JsonRules(ByteGrammar& grammar);

  int32_t space(int32_t next);  // optional white space
  // An object with any names; member(next) makes the node of a value.
  template <class Member>
  int32_t free_object(const Member& member, int32_t next) {
    return list_of(
        '{', '}',
        [&](int32_t after) {
          return grammar_.call(string, grammar_.literal(":", space(member(after))));
        },
        next);
  }
  template <class Item>
  int32_t array(const Item& item, int32_t next) {
    return list_of('[', ']', item, next);
  }

  int32_t value, string, number, integer, indent;  // rules

 private:
  template <class Item>
  int32_t list_of(char open, char close, const Item& item, int32_t next) {
    const int32_t end = grammar_.literal(std::string_view(&close, 1), next);
    const int32_t more = grammar_.reserve();
    const int32_t first = item(more);
    grammar_.set_targets(more, {grammar_.literal(",", space(first)), space(end)});
    return grammar_.literal(std::string_view(&open, 1), space(grammar_.split({first, end})));
  }
  void make_string();
  int32_t character(int32_t next);
  int32_t escape(int32_t next);
  int32_t digits(int most, int32_t next);  // 0 to `most`
  int32_t whole_number(int32_t next);

  ByteGrammar& grammar_;
};

}  // namespace trafo
