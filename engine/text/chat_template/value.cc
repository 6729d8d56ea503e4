#include "engine/text/chat_template/value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/core/strings/utf8.h"
#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

int depth_of(const Value& value) {
  if (const ListData* list = value.list()) return list->depth;
  if (const DictData* dict = value.dict()) return dict->depth;
  if (const LoopRef* loop = value.as<LoopRef>()) return (*loop)->depth;
  if (const FunctionRef* function = value.as<FunctionRef>()) return (*function)->depth;
  return 0;
}

int checked_depth(int inside, const Budget& budget) {
  if (inside >= budget.bounds().nesting) budget.refuse("values are nested too deeply");
  return inside + 1;
}

// An integer or a real number; a flag counts as an integer.
struct Number {
  bool real = false;
  int64_t integer = 0;
  double value = 0;
};
bool read_number(const Value& value, Number& number) {
  if (const bool* flag = value.as<bool>()) return number = {false, *flag, double(*flag)}, true;
  if (const int64_t* whole = value.as<int64_t>())
    return number = {false, *whole, static_cast<double>(*whole)}, true;
  if (const double* real = value.as<double>()) return number = {true, 0, *real}, true;
  return false;
}
// Exact, also of integers that a real number cannot have.
std::partial_ordering compare_mixed(int64_t whole, double real) {
  constexpr double kLimit = 9223372036854775808.0;
  if (std::isnan(real)) return std::partial_ordering::unordered;
  if (real >= kLimit) return std::partial_ordering::less;
  if (real < -kLimit) return std::partial_ordering::greater;
  const auto truncated = static_cast<int64_t>(real);
  if (whole != truncated) return whole <=> truncated;
  return 0.0 <=> real - static_cast<double>(truncated);
}
std::partial_ordering compare_numbers(const Number& a, const Number& b) {
  if (a.real && b.real) return a.value <=> b.value;
  if (a.real) return 0 <=> compare_mixed(b.integer, a.value);
  if (b.real) return compare_mixed(a.integer, b.value);
  return a.integer <=> b.integer;
}

// Views of keys and pairs are compared as sets.
bool equal_lists(const ListData& a, const ListData& b, Budget& budget) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.is_generator() || a.kind == ListKind::values) return false;
  if (a.items.size() != b.items.size()) return false;
  const auto same = [&](const Value& p, const Value& q) { return equal(p, q, budget); };
  if (a.is_sequence()) return std::ranges::equal(a.items, b.items, same);
  return std::ranges::all_of(a.items, [&](const Value& item) {
    return std::ranges::any_of(b.items, [&](const Value& other) { return same(item, other); });
  });
}

// Around the elements in repr().
std::pair<std::string_view, std::string_view> brackets_of(const ListData& list) {
  switch (list.kind) {
    case ListKind::tuple:
      return {"(", list.items.size() == 1 ? ",)" : ")"};
    case ListKind::keys:
      return {"dict_keys([", "])"};
    case ListKind::values:
      return {"dict_values([", "])"};
    case ListKind::items:
      return {"dict_items([", "])"};
    default:
      return {"[", "]"};
  }
}

// Appends repr() or, of a text outside of lists, str().
class PythonWriter {
 public:
  PythonWriter(Budget& budget, std::string& out) : budget_(budget), out_(out) {}

  void write(const Value& value) {
    budget_.spend(1);
    if (const std::string* text = value.text()) {
      budget_.spend_bytes(text->size());
      out_ += python_quoted(*text);
    } else if (const ListData* list = value.list()) {
      if (list->is_generator() || list->kind == ListKind::range)
        budget_.unsupported("a value of type ", type_name(value), " has no text here; write |list");
      const auto [open, close] = brackets_of(*list);
      out_ += open;
      write_items(list->items, [&](const Value& item) { write(item); });
      out_ += close;
    } else if (const DictData* dict = value.dict()) {
      out_ += "{";
      write_items(dict->items, [&](const auto& item) {
        budget_.spend_bytes(item.first.size());
        out_ += python_quoted(item.first) + ": ";
        write(item.second);
      });
      out_ += "}";
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      out_ += to_text(value, budget_);
    }
  }

 private:
  template <class Items, class Write>
  void write_items(const Items& items, Write&& write_item) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ", ";
      first = false;
      write_item(item);
    }
  }

  Budget& budget_;
  std::string& out_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget, std::string& out)
      : style_(style), budget_(budget), out_(out) {}

  void write(const Value& value, int64_t depth) {
    budget_.spend(1);
    if (const std::string* text = value.text()) {
      write_text(*text);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const bool* flag = value.as<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (value.as<int64_t>()) {
      out_ += to_text(value, budget_);
    } else if (const double* real = value.as<double>()) {
      out_ += std::isnan(*real)   ? "NaN"
              : std::isinf(*real) ? (*real > 0 ? "Infinity" : "-Infinity")
                                  : python_real(*real);
    } else if (const ListData* list = value.list(); list && list->is_plain()) {
      write_items('[', ']', list->items, depth, [&](const Value& item) { write(item, depth + 1); });
    } else if (const DictData* dict = value.dict()) {
      write_members(*dict, depth);
    } else {
      budget_.refuse("a value of type ", type_name(value), " cannot be written as JSON");
    }
  }

 private:
  void write_members(const DictData& dict, int64_t depth) {
    std::vector<const std::pair<std::string, Value>*> members;
    for (const auto& item : dict.items) {
      budget_.spend_bytes(item.first.size());
      members.push_back(&item);
    }
    if (style_.sorted)
      std::ranges::stable_sort(
          members, {}, [](const auto* member) -> const std::string& { return member->first; });
    write_items('{', '}', members, depth, [&](const auto* member) {
      write_text(member->first);
      budget_.spend_bytes(style_.key.size());
      out_ += style_.key;
      write(member->second, depth + 1);
    });
  }
  void write_text(const std::string& text) {
    budget_.spend_bytes(text.size());
    append_json_text(text, style_.ascii, out_);
  }
  void line(int64_t depth) {
    if (style_.indent < 0) return;
    budget_.spend_bytes(static_cast<size_t>(style_.indent * depth));
    out_ += '\n';
    out_.append(static_cast<size_t>(style_.indent * depth), ' ');
  }
  template <class Items, class Write>
  void write_items(char open, char close, const Items& items, int64_t depth, Write&& write_item) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) {
        budget_.spend_bytes(style_.item.size());
        out_ += style_.item;
      }
      first = false;
      line(depth + 1);
      write_item(item);
    }
    if (!items.empty()) line(depth);
    out_ += close;
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string& out_;
};

}  // namespace

const Value* DictData::find(std::string_view key, Budget& budget) const {
  return find_item(items, key, budget);
}
Value* NamespaceData::find(std::string_view key, Budget& budget) {
  return find_item(items, key, budget);
}

int depth_around(const Value& value, const Budget& budget) {
  return checked_depth(depth_of(value), budget);
}
int depth_around(const std::vector<Value>& values, const Budget& budget) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, depth_of(value));
  return checked_depth(depth, budget);
}

std::string type_name(const Value& value) {
  constexpr const char* kNames[] = {"undefined", "None", "bool", "int",       "float",   "str",
                                    "list",      "dict", "loop", "namespace", "function"};
  constexpr const char* kLists[] = {"list",        "tuple",      "range",    "dict_keys",
                                    "dict_values", "dict_items", "generator"};
  if (const ListData* list = value.list()) return kLists[static_cast<size_t>(list->kind)];
  return kNames[value.data.index()];
}

Value make_list(std::vector<Value> items, Budget& budget, ListKind kind) {
  budget.spend_elements(items.size());
  const int depth = depth_around(items, budget);
  return std::make_shared<const ListData>(ListData{std::move(items), kind, depth});
}

Value make_dict(std::vector<std::pair<std::string, Value>> items, Budget& budget) {
  budget.spend_elements(items.size());
  int depth = 0;
  for (const auto& [key, item] : items) {
    depth = std::max(depth, depth_of(item));
    budget.spend_bytes(key.size());
  }
  return std::make_shared<const DictData>(DictData{std::move(items), checked_depth(depth, budget)});
}

Value from_json(const Json& json, Budget& budget) {
  if (json.as<std::nullptr_t>()) return nullptr;
  if (const bool* flag = json.as<bool>()) return *flag;
  if (const int64_t* whole = json.as<int64_t>()) return *whole;
  if (const uint64_t* whole = json.as<uint64_t>()) {
    if (*whole > static_cast<uint64_t>(INT64_MAX)) budget.refuse("an integer has over 63 bits");
    return static_cast<int64_t>(*whole);
  }
  if (const double* real = json.as<double>()) return *real;
  if (const std::string* text = json.as<std::string>()) return *text;
  if (const Json::List* list = json.as<Json::List>()) {
    std::vector<Value> items;
    for (const Json& item : *list) items.push_back(from_json(item, budget));
    return make_list(std::move(items), budget);
  }
  std::vector<std::pair<std::string, Value>> items;
  for (const Json::Member& member : *json.as<Json::Object>())
    items.emplace_back(member.key, from_json(member.value, budget));
  return make_dict(std::move(items), budget);
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const std::string* text = value.text()) return !text->empty();
  if (const ListData* list = value.list()) return list->is_generator() || !list->items.empty();
  if (const DictData* dict = value.dict()) return !dict->items.empty();
  Number number;
  return !read_number(value, number) || (number.real ? number.value != 0 : number.integer != 0);
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  Number x, y;
  if (read_number(a, x) && read_number(b, y)) return compare_numbers(x, y) == 0;
  if (a.data.index() != b.data.index()) return false;
  if (const std::string* text = a.text()) {
    budget.spend_bytes(text->size());
    return *text == *b.text();
  }
  if (const ListData* list = a.list()) return equal_lists(*list, *b.list(), budget);
  if (const DictData* dict = a.dict()) {
    if (dict->items.size() != b.dict()->items.size()) return false;
    return std::ranges::all_of(dict->items, [&](const auto& item) {
      budget.spend(1);
      const Value* other = b.dict()->find(item.first, budget);
      return other != nullptr && equal(item.second, *other, budget);
    });
  }
  if (a.is_undefined() || a.is_none()) return true;
  if (const LoopRef* loop = a.as<LoopRef>()) return *loop == *b.as<LoopRef>();
  if (const FunctionRef* function = a.as<FunctionRef>()) return *function == *b.as<FunctionRef>();
  return *a.as<NamespaceData*>() == *b.as<NamespaceData*>();
}

std::partial_ordering compare(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  Number x, y;
  if (read_number(a, x) && read_number(b, y)) return compare_numbers(x, y);
  if (a.text() && b.text()) {
    budget.spend_bytes(std::min(a.text()->size(), b.text()->size()));
    return a.text()->compare(*b.text()) <=> 0;
  }
  if (a.list() && b.list() && a.list()->is_plain() && a.list()->kind == b.list()->kind) {
    const auto &left = a.list()->items, &right = b.list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (const auto order = compare(left[i], right[i], budget); order != 0) return order;
    return left.size() <=> right.size();
  }
  budget.refuse("values of types ", type_name(a), " and ", type_name(b), " have no order");
}

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.spend_bytes(text->size());
    return *text;
  }
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const int64_t* whole = value.as<int64_t>()) return std::to_string(*whole);
  if (const double* real = value.as<double>()) return python_real(*real);
  if (!value.list() && !value.dict())
    budget.unsupported("a value of type ", type_name(value), " has no text here");
  std::string out;
  PythonWriter(budget, out).write(value);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  std::string out;
  JsonWriter(style, budget, out).write(value, 0);
  return out;
}

std::vector<Value> elements_of(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const ListData* list = value.list()) {
    budget.spend_elements(list->items.size());
    if (!list->is_generator()) return list->items;
    const size_t taken = std::exchange(list->taken, list->items.size());
    return std::vector<Value>(list->items.begin() + static_cast<std::ptrdiff_t>(taken),
                              list->items.end());
  }
  if (const DictData* dict = value.dict()) {
    budget.spend_elements(dict->items.size());
    for (const auto& [key, item] : dict->items) items.emplace_back(key);
    return items;
  }
  const std::string* text = value.text();
  if (text == nullptr) budget.refuse("a value of type ", type_name(value), " has no elements");
  budget.spend_elements(text->size());
  for (size_t at = 0; at < text->size();) {
    const size_t start = at;
    next_code_point(*text, at);
    items.emplace_back(text->substr(start, at - start));
  }
  return items;
}

int64_t length_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return 0;
  const ListData* list = value.list();
  if (list && !list->is_generator()) return std::ssize(list->items);
  if (const DictData* dict = value.dict()) return std::ssize(dict->items);
  const std::string* text = value.text();
  if (text == nullptr) budget.refuse("a value of type ", type_name(value), " has no length");
  budget.spend_bytes(text->size());
  return code_points(*text);
}

bool contains(const Value& container, const Value& element, Budget& budget) {
  if (container.is_undefined()) return false;
  if (const std::string* text = container.text()) {
    if (!element.text())
      budget.refuse("'in' of a text needs a text, not a value of type ", type_name(element));
    budget.spend_bytes(text->size());
    return TextSearch(*element.text(), budget).find(*text) != std::string::npos;
  }
  if (const ListData* list = container.list()) {
    for (size_t i = list->taken; i < list->items.size(); ++i) {
      if (list->is_generator()) list->taken = i + 1;
      if (equal(list->items[i], element, budget)) return true;
    }
    return false;
  }
  const DictData* dict = container.dict();
  if (dict == nullptr)
    budget.refuse("a value of type ", type_name(container), " has no elements for 'in'");
  budget.spend(1);
  return element.text() && dict->find(*element.text(), budget) != nullptr;
}

}  // namespace trafo::jinja
