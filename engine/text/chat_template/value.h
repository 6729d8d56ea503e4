// Values of a template, as Python has them. Lists and mappings are never changed once made.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/chat_template/budget.h"

namespace trafo::jinja {

struct ListData;
struct DictData;
struct LoopData;
struct NamespaceData;
struct FunctionData;

// A name or a member that is missing. Its text is for messages.
struct Undefined {
  std::shared_ptr<const std::string> what;
};

using Text = std::shared_ptr<const std::string>;
using ListRef = std::shared_ptr<const ListData>;
using DictRef = std::shared_ptr<const DictData>;
using LoopRef = std::shared_ptr<const LoopData>;
using FunctionRef = std::shared_ptr<const FunctionData>;

struct Value {
  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text, ListRef, DictRef, LoopRef,
               NamespaceData*, FunctionRef>
      data;

  Value() = default;  // undefined
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value>) Value(T value)  // NOLINT: implicit
      : data(std::move(value)) {}
  Value(std::string text)  // NOLINT: implicit
      : data(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT: implicit
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT: implicit

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<std::nullptr_t>() != nullptr; }
  const std::string* text() const { return as<Text>() ? as<Text>()->get() : nullptr; }
  const ListData* list() const { return as<ListRef>() ? as<ListRef>()->get() : nullptr; }
  const DictData* dict() const { return as<DictRef>() ? as<DictRef>()->get() : nullptr; }
};

// The sequences of Python: lists, tuples, range(), the views of a mapping, and the generators that
// filters return. Each has other operations.
enum class ListKind { list, tuple, range, keys, values, items, generator };

struct ListData {
  std::vector<Value> items;
  ListKind kind = ListKind::list;
  int depth = 1;
  mutable size_t taken = 0;  // elements of a generator that are used up

  bool is_generator() const { return kind == ListKind::generator; }
  // A list or a tuple.
  bool is_plain() const { return kind == ListKind::list || kind == ListKind::tuple; }
  // Has elements at places.
  bool is_sequence() const { return is_plain() || kind == ListKind::range; }
};

struct DictData {
  std::vector<std::pair<std::string, Value>> items;  // in their order, each key once
  int depth = 1;
  const Value* find(std::string_view key, Budget& budget) const;
};

struct LoopData {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
};

struct NamespaceData {
  std::vector<std::pair<std::string, Value>> items;
  Value* find(std::string_view key, Budget& budget);
};

// The value of a key; null if there is none. Charges for the keys and bytes that it compares.
template <class Items>
auto find_item(Items& items, std::string_view key, Budget& budget)
    -> decltype(&items.front().second) {
  budget.spend(std::ssize(items) / 16);
  for (auto& [name, value] : items) {
    if (name.size() != key.size()) continue;
    budget.spend(static_cast<int64_t>(key.size() / 16));
    if (name == key) return &value;
  }
  return nullptr;
}

// For messages: Python's name of its type.
std::string type_name(const Value& value);
// The depth of a value that holds these. INVALID_ARGUMENT: values are nested too deeply, and to
// free them would need too much of the stack.
int depth_around(const Value& value, const Budget& budget);
int depth_around(const std::vector<Value>& values, const Budget& budget);
// Charge for the elements, and refuse values that are nested too deeply.
Value make_list(std::vector<Value> items, Budget& budget, ListKind kind = ListKind::list);
Value make_dict(std::vector<std::pair<std::string, Value>> items, Budget& budget);
Value from_json(const Json& json, Budget& budget);

bool is_true(const Value& value);
// Python's ==.
bool equal(const Value& a, const Value& b, Budget& budget);
// Unordered if one is not a number (NaN). INVALID_ARGUMENT: the two have no order.
std::partial_ordering compare(const Value& a, const Value& b, Budget& budget);
// str(). INVALID_ARGUMENT: a function or a namespace, which has no text here.
std::string to_text(const Value& value, Budget& budget);

struct JsonStyle {
  bool ascii = false;   // escapes for other characters
  int64_t indent = -1;  // below 0: one line
  std::string item = ", ", key = ": ";
  bool sorted = false;
};
// As json.dumps(). INVALID_ARGUMENT: a value that JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

// The elements that a for loop goes through: of a list, the keys of a mapping, the characters of a
// text, none of an undefined value. Uses a generator up. INVALID_ARGUMENT: it has none.
std::vector<Value> elements_of(const Value& value, Budget& budget);
// len() of the same. INVALID_ARGUMENT: a generator, too.
int64_t length_of(const Value& value, Budget& budget);
// Python's `in`.
bool contains(const Value& container, const Value& element, Budget& budget);

}  // namespace trafo::jinja
