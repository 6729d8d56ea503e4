// The tests of Jinja: `value is NAME`.
#include <algorithm>
#include <array>

#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

bool is_number_value(const Value& value) {
  return value.as<bool>() || value.as<int64_t>() || value.as<double>();
}

int64_t whole_number(const Value& value, std::string_view test, Budget& budget) {
  if (const bool* flag = value.as<bool>()) return *flag;
  if (!value.as<int64_t>())
    budget.refuse("the test ", test, " needs an integer, not a value of type ", type_name(value));
  return *value.as<int64_t>();
}

constexpr auto kTests = std::to_array<ValueTest>({
    {"defined", [](const Value& v, Arguments&, Budget&) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v, Arguments&, Budget&) { return v.is_undefined(); }},
    {"none", [](const Value& v, Arguments&, Budget&) { return v.is_none(); }},
    {"string", [](const Value& v, Arguments&, Budget&) { return v.text() != nullptr; }},
    {"mapping", [](const Value& v, Arguments&, Budget&) { return v.dict() != nullptr; }},
    {"sequence",
     [](const Value& v, Arguments&, Budget&) {
       return v.text() || v.dict() || v.is_undefined() || (v.list() && v.list()->is_sequence());
     }},
    {"iterable",
     [](const Value& v, Arguments&, Budget&) {
       return v.text() || v.list() || v.dict() || v.is_undefined();
     }},
    {"number", [](const Value& v, Arguments&, Budget&) { return is_number_value(v); }},
    {"integer",
     [](const Value& v, Arguments&, Budget&) { return v.as<int64_t>() != nullptr; }},
    {"float", [](const Value& v, Arguments&, Budget&) { return v.as<double>() != nullptr; }},
    {"boolean", [](const Value& v, Arguments&, Budget&) { return v.as<bool>() != nullptr; }},
    {"true", [](const Value& v, Arguments&, Budget&) { return v.as<bool>() && *v.as<bool>(); }},
    {"false", [](const Value& v, Arguments&, Budget&) { return v.as<bool>() && !*v.as<bool>(); }},
    {"callable",
     [](const Value& v, Arguments&, Budget&) {
       return v.as<FunctionRef>() || v.as<LoopRef>() || v.is_undefined();
     }},
    {"odd",
     [](const Value& v, Arguments&, Budget& budget) {
       return whole_number(v, "odd", budget) % 2 != 0;
     }},
    {"even",
     [](const Value& v, Arguments&, Budget& budget) {
       return whole_number(v, "even", budget) % 2 == 0;
     }},
    {"divisibleby",
     [](const Value& v, Arguments& arguments, Budget& budget) {
       const Value& by = arguments.need(0, "num", "divisibleby", budget);
       const int64_t divisor = whole_number(by, "divisibleby", budget);
       if (divisor == 0) budget.refuse("division by zero");
       return divisor == -1 || whole_number(v, "divisibleby", budget) % divisor == 0;
     }},
    {"lower",
     [](const Value& v, Arguments&, Budget& budget) {
       Arguments none;
       return is_true(call_method(to_text(v, budget), "islower", none, budget));
     }},
    {"upper",
     [](const Value& v, Arguments&, Budget& budget) {
       Arguments none;
       return is_true(call_method(to_text(v, budget), "isupper", none, budget));
     }},
    {"in",
     [](const Value& v, Arguments& arguments, Budget& budget) {
       return contains(arguments.need(0, {}, "in", budget), v, budget);
     }},
});

// Tests with another value, which have several names.
struct Comparison {
  std::string_view names[3];
  ValueTest test;
};
constexpr auto kComparisons = std::to_array<Comparison>({
    {{"==", "eq", "equalto"},
     {"equalto",
      [](const Value& v, Arguments& arguments, Budget& budget) {
        return equal(v, arguments.need(0, {}, "equalto", budget), budget);
      }}},
    {{"!=", "ne", "ne"},
     {"ne", [](const Value& v, Arguments& arguments,
               Budget& budget) { return !equal(v, arguments.need(0, {}, "ne", budget), budget); }}},
    {{"<", "lt", "lessthan"},
     {"lt",
      [](const Value& v, Arguments& arguments, Budget& budget) {
        return compare(v, arguments.need(0, {}, "lt", budget), budget) < 0;
      }}},
    {{"<=", "le", "le"},
     {"le",
      [](const Value& v, Arguments& arguments, Budget& budget) {
        return compare(v, arguments.need(0, {}, "le", budget), budget) <= 0;
      }}},
    {{">", "gt", "greaterthan"},
     {"gt",
      [](const Value& v, Arguments& arguments, Budget& budget) {
        return compare(v, arguments.need(0, {}, "gt", budget), budget) > 0;
      }}},
    {{">=", "ge", "ge"},
     {"ge",
      [](const Value& v, Arguments& arguments, Budget& budget) {
        return compare(v, arguments.need(0, {}, "ge", budget), budget) >= 0;
      }}},
});

}  // namespace

const ValueTest* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &ValueTest::name);
  if (found != kTests.end()) return found;
  for (const Comparison& comparison : kComparisons)
    if (std::ranges::find(comparison.names, name) != std::end(comparison.names))
      return &comparison.test;
  return nullptr;
}

}  // namespace trafo::jinja
