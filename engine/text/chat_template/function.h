// Functions that a template calls, and the arguments of a call.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/chat_template/value.h"

namespace trafo::jinja {

struct Statement;

struct FunctionData {
  std::string name;
  Value self{};                      // of a method
  const Statement* macro = nullptr;  // null: a method or a function of Jinja
  bool method = false;
  int depth = 1;
};

class Arguments {
 public:
  std::vector<Value> values;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at a place or of a name; null if it is missing.
  const Value* find(size_t place, std::string_view name = {});
  // All are asked for by another function.
  void pass_on();
  // INVALID_ARGUMENT: there are arguments that find() was not asked for, or one has a place and a
  // name. `what` is called.
  void finish(std::string_view what, Budget& budget) const;

  // Converted; INVALID_ARGUMENT names the function.
  const Value& need(size_t place, std::string_view name, std::string_view what, Budget& budget);
  const std::string& need_text(size_t place, std::string_view name, std::string_view what,
                               Budget& budget);
  int64_t integer(size_t place, std::string_view name, int64_t otherwise, std::string_view what,
                  Budget& budget);
  bool flag(size_t place, std::string_view name, bool otherwise);

 private:
  size_t asked_ = 0;                                              // places
  std::vector<std::pair<std::string_view, size_t>> asked_names_;  // with their places
};

struct Filter {
  std::string_view name;
  Value (*apply)(const Value& input, Arguments& arguments, Budget& budget);
};
// Null: there is no such filter here.
const Filter* find_filter(std::string_view name);

struct ValueTest {
  std::string_view name;
  bool (*apply)(const Value& input, Arguments& arguments, Budget& budget);
};
const ValueTest* find_test(std::string_view name);

// Methods of texts, lists and mappings.
bool has_method(const Value& self, std::string_view name);
// Whether it is a method that changes a mapping. Those are undefined, as Jinja's sandbox has them.
bool is_refused_method(const Value& self, std::string_view name);
Value call_method(const Value& self, std::string_view name, Arguments& arguments, Budget& budget);

// object.name and object[key]; undefined if there is none. INVALID_ARGUMENT: the object is
// undefined.
Value attribute_of(const Value& object, std::string_view name, Budget& budget);
Value item_of(const Value& object, const Value& key, Budget& budget);
// object[start:stop:step]; none: left out.
Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step,
               Budget& budget);
// The operators of two operands but `and`, `or`, `~`. INVALID_ARGUMENT: the types do not have it,
// or a number is too large.
Value operate(std::string_view symbol, const Value& left, const Value& right, Budget& budget);
Value negative(const Value& value, Budget& budget);

}  // namespace trafo::jinja
