#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/core/strings/quote.h"
#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

// For messages: the type and, of an undefined value, its name.
std::string described(const Value& value) {
  const Undefined* undefined = value.as<Undefined>();
  if (undefined == nullptr || undefined->what == nullptr) return type_name(value);
  return concat("undefined (", *undefined->what, ")");
}

bool as_integer(const Value& value, int64_t& number) {
  if (const bool* flag = value.as<bool>()) return number = *flag, true;
  if (const int64_t* whole = value.as<int64_t>()) return number = *whole, true;
  return false;
}
bool as_real(const Value& value, double& number) {
  int64_t whole = 0;
  if (const double* real = value.as<double>()) return number = *real, true;
  if (!as_integer(value, whole)) return false;
  number = static_cast<double>(whole);
  return true;
}

double real_power(double a, double b, Budget& budget) {
  if (a == 0 && b < 0) budget.refuse("0 has no negative power");
  const double power = std::pow(a, b);
  if (!std::isfinite(a) || !std::isfinite(b)) return power;
  if (std::isnan(power)) budget.unsupported("a power is a complex number");
  if (std::isinf(power)) budget.refuse("a real number is too large");
  return power;
}

// The quotient, rounded down, and the rest, which has the sign of b.
std::pair<double, double> divide_with_rest(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;  // whole, but for its rounding
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double below = std::floor(quotient);
  return {quotient - below > 0.5 ? below + 1 : below, rest};
}

Value operate_on_integers(std::string_view symbol, int64_t a, int64_t b, Budget& budget) {
  int64_t result = 0;
  bool too_large = false;
  if ((symbol == "//" || symbol == "%" || symbol == "/") && b == 0)
    budget.refuse("division by zero");
  if (symbol == "+") {
    too_large = __builtin_add_overflow(a, b, &result);
  } else if (symbol == "-") {
    too_large = __builtin_sub_overflow(a, b, &result);
  } else if (symbol == "*") {
    too_large = __builtin_mul_overflow(a, b, &result);
  } else if (symbol == "/") {
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (symbol == "**") {
    if (b < 0) return real_power(static_cast<double>(a), static_cast<double>(b), budget);
    result = 1;
    for (int64_t i = 0; i < b && !too_large && result != 0; ++i) {
      budget.spend(1);
      too_large = __builtin_mul_overflow(result, a, &result);
    }
  } else {  // rounded down, as Python does
    too_large = b == -1 && a == INT64_MIN;
    if (!too_large) {
      const int64_t rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      result = symbol == "//" ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
    }
  }
  if (too_large) budget.refuse("an integer is too large");
  return result;
}

Value operate_on_reals(std::string_view symbol, double a, double b, Budget& budget) {
  if ((symbol == "//" || symbol == "%" || symbol == "/") && b == 0)
    budget.refuse("division by zero");
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "/") return a / b;
  if (symbol == "**") return real_power(a, b, budget);
  const auto [quotient, rest] = divide_with_rest(a, b);
  return symbol == "//" ? quotient : rest;
}

// A text or a list, `count` times.
Value repeated(const Value& value, int64_t count, Budget& budget) {
  count = std::max<int64_t>(count, 0);
  if (const std::string* text = value.text()) {
    if (!text->empty() && count > INT64_MAX / std::ssize(*text)) budget.spend(INT64_MAX / 2);
    budget.spend_bytes(text->size() * static_cast<size_t>(count));
    std::string out;
    if (text->empty()) return out;
    for (int64_t i = 0; i < count; ++i) out += *text;
    return out;
  }
  const ListData& list = *value.list();
  std::vector<Value> items;
  if (list.items.empty()) count = 0;
  for (int64_t i = 0; i < count; ++i) {
    budget.spend_elements(list.items.size());
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), budget, list.kind);
}

bool can_repeat(const Value& value) {
  return value.text() || (value.list() && value.list()->is_plain());
}

}  // namespace

Value operate(std::string_view symbol, const Value& left, const Value& right, Budget& budget) {
  budget.spend(1);
  int64_t a = 0, b = 0;
  if (as_integer(left, a) && as_integer(right, b)) return operate_on_integers(symbol, a, b, budget);
  double x = 0, y = 0;
  if (as_real(left, x) && as_real(right, y)) return operate_on_reals(symbol, x, y, budget);
  if (symbol == "+" && left.text() && right.text()) {
    budget.spend_bytes(left.text()->size() + right.text()->size());
    return *left.text() + *right.text();
  }
  if (symbol == "+" && left.list() && right.list() && left.list()->is_plain() &&
      left.list()->kind == right.list()->kind) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return make_list(std::move(items), budget, left.list()->kind);
  }
  if (symbol == "*" && can_repeat(left) && as_integer(right, b)) return repeated(left, b, budget);
  if (symbol == "*" && can_repeat(right) && as_integer(left, a)) return repeated(right, a, budget);
  if (symbol == "%" && left.text()) budget.unsupported("texts with % formats are not supported");
  budget.refuse("operator ", symbol, " does not take ", described(left), " and ", described(right));
}

Value negative(const Value& value, Budget& budget) {
  if (!value.as<double>()) return operate("-", int64_t{0}, value, budget);
  return -*value.as<double>();
}

Value attribute_of(const Value& object, std::string_view name, Budget& budget) {
  if (const Undefined* undefined = object.as<Undefined>())
    budget.refuse(undefined->what ? *undefined->what : std::string("a value"),
                  " is undefined, it has no member ", quote(name));
  if (has_method(object, name)) {
    FunctionData method{std::string(name), object, nullptr, true, depth_around(object, budget)};
    return std::make_shared<const FunctionData>(std::move(method));
  }
  double number = 0;
  static constexpr auto kOfNumbers =
      std::to_array<std::string_view>({"real", "imag", "numerator", "denominator"});
  if (as_real(object, number) && std::ranges::find(kOfNumbers, name) != kOfNumbers.end())
    budget.unsupported("the member ", quote(name), " of a number is not supported");
  if (object.as<FunctionRef>())
    budget.unsupported("the member ", quote(name), " of a function is not supported");
  if (is_refused_method(object, name)) return Undefined{std::make_shared<const std::string>(name)};
  if (const DictData* dict = object.dict()) {
    if (const Value* found = dict->find(name, budget)) return *found;
  }
  if (NamespaceData* const* space = object.as<NamespaceData*>()) {
    if (const Value* found = (*space)->find(name, budget)) return *found;
  }
  if (const LoopRef* loop = object.as<LoopRef>()) {
    const auto index = static_cast<int64_t>((*loop)->index);
    const auto length = std::ssize((*loop)->items);
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "first") return index == 0;
    if (name == "last") return index + 1 == length;
    if (name == "length") return static_cast<int64_t>(length);
    if (name == "revindex") return length - index;
    if (name == "revindex0") return length - index - 1;
    if (name == "previtem" && index > 0) return (*loop)->items[static_cast<size_t>(index) - 1];
    if (name == "nextitem" && index + 1 < length)
      return (*loop)->items[static_cast<size_t>(index) + 1];
    if (name != "previtem" && name != "nextitem")
      budget.unsupported("loop has no member ", quote(name), " here");
  }
  budget.spend_bytes(name.size());
  return Undefined{std::make_shared<const std::string>(name)};
}

Value item_of(const Value& object, const Value& key, Budget& budget) {
  int64_t index = 0;
  const bool whole = as_integer(key, index);
  if (const ListData* list = object.list(); list && list->is_sequence() && whole) {
    if (index < 0) index += std::ssize(list->items);
    if (index >= 0 && index < std::ssize(list->items))
      return list->items[static_cast<size_t>(index)];
    return Undefined{};
  }
  if (const std::string* text = object.text(); text && whole) {
    budget.spend_bytes(text->size());
    const int64_t length = code_points(*text);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return Undefined{};
    return slice_text(*text, index, index + 1, 1);
  }
  if (key.text()) {
    if (const DictData* dict = object.dict()) {
      if (const Value* found = dict->find(*key.text(), budget)) return *found;
    }
    return attribute_of(object, *key.text(), budget);
  }
  if (object.is_undefined()) return attribute_of(object, "[]", budget);
  return Undefined{};
}

Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step,
               Budget& budget) {
  const std::string* text = object.text();
  const ListData* list = object.list();
  if (!text && !(list && list->is_sequence()))
    budget.refuse("a value of type ", described(object), " has no slices");
  const int64_t length = length_of(object, budget);
  const auto part = [&](const Value& value, int64_t otherwise) {
    int64_t number = otherwise;
    if (!value.is_none() && !as_integer(value, number))
      budget.refuse("a slice needs integers, not a value of type ", described(value));
    return number;
  };
  const int64_t by = part(step, 1);
  if (by == 0) budget.refuse("the step of a slice is 0");
  // Within the range where stepping by `by` cannot overflow.
  const int64_t stride = std::clamp(by, -length - 1, length + 1);
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    int64_t number = part(value, 0);
    if (number < 0) number = number < -length ? -1 : number + length;
    return by > 0 ? std::clamp<int64_t>(number, 0, length)
                  : std::clamp<int64_t>(number, -1, length - 1);
  };
  const int64_t from = place(start, by > 0 ? 0 : length - 1);
  const int64_t to = place(stop, by > 0 ? length : -1);
  if (text) {
    budget.spend_bytes(text->size());
    budget.spend_elements(text->size());
    return slice_text(*text, from, to, stride);
  }
  std::vector<Value> items;
  for (int64_t i = from; by > 0 ? i < to : i > to; i += stride)
    items.push_back(list->items[static_cast<size_t>(i)]);
  return make_list(std::move(items), budget, list->kind);
}

}  // namespace trafo::jinja
