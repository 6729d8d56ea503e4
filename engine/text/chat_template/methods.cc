// Methods of texts, lists and mappings.
#include <algorithm>
#include <array>

#include "engine/core/strings/quote.h"
#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

constexpr auto kTextMethods = std::to_array<std::string_view>(
    {"strip",    "lstrip",       "rstrip",       "split",   "rsplit",  "splitlines", "startswith",
     "endswith", "replace",      "upper",        "lower",   "title",   "capitalize", "find",
     "rfind",    "count",        "join",         "isdigit", "isalpha", "isspace",    "isupper",
     "islower",  "removeprefix", "removesuffix", "format"});
constexpr auto kDictMethods =
    std::to_array<std::string_view>({"items", "keys", "values", "get", "copy", "fromkeys"});
constexpr auto kDictChanges =
    std::to_array<std::string_view>({"clear", "pop", "popitem", "setdefault", "update"});
constexpr auto kListMethods =
    std::to_array<std::string_view>({"count", "index", "append", "extend", "insert", "pop"});
constexpr auto kSequenceMethods = std::to_array<std::string_view>({"count", "index"});

template <class Names>
bool has_name(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Value list_of_texts(const std::vector<std::string_view>& parts, Budget& budget) {
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    budget.spend_bytes(part.size());
    items.emplace_back(part);
  }
  return make_list(std::move(items), budget);
}

std::string known_case(std::optional<std::string> text, std::string_view what, Budget& budget) {
  if (!text) budget.unsupported(what, " of other letters than ASCII's is not supported");
  return std::move(*text);
}

// The beginnings or ends that a method compares with: one, or a tuple of them.
bool matches_any(const std::string& text, const Value& affixes, bool begin, std::string_view name,
                 Budget& budget) {
  const auto matches = [&](const Value& affix) {
    if (!affix.text()) budget.refuse(name, " needs texts, not a value of type ", type_name(affix));
    budget.spend_bytes(std::min(text.size(), affix.text()->size()));
    return begin ? text.starts_with(*affix.text()) : text.ends_with(*affix.text());
  };
  if (affixes.list() == nullptr) return matches(affixes);
  return std::ranges::any_of(affixes.list()->items, matches);
}

Value find_in_text(const std::string& text, std::string_view name, Arguments& arguments,
                   Budget& budget) {
  const std::string& part = arguments.need_text(0, {}, name, budget);
  budget.spend_bytes(text.size());
  if (name == "count" && part.empty()) return code_points(text) + 1;
  const TextSearch search(part, budget, name == "rfind");
  if (name == "count") {
    int64_t count = 0;
    for (size_t at = search.find(text); at != std::string::npos; at = search.find(text, at)) {
      ++count;
      at += part.size();
    }
    return count;
  }
  const size_t found = search.find(text);
  if (found == std::string::npos) return int64_t{-1};
  return code_points(std::string_view(text).substr(0, found));
}

bool all_characters(const std::string& text, std::string_view name, Budget& budget) {
  if (name == "isspace") return !text.empty() && strip_space(text, true, false).empty();
  bool cased = false, fits = !text.empty();
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80)
      budget.unsupported(name, " of other characters than ASCII's is not supported");
    const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
    cased = cased || lower || upper;
    fits = fits && !(name == "isdigit"   ? c < '0' || c > '9'
                     : name == "isalpha" ? !lower && !upper
                     : name == "isupper" ? lower
                                         : upper);
  }
  return fits && (cased || name == "isdigit");
}

Value split_method(const std::string& text, std::string_view name, Arguments& arguments,
                   Budget& budget) {
  const Value* separator = arguments.find(0, "sep");
  std::optional<std::string_view> by;
  if (separator != nullptr && !separator->is_none()) {
    by = arguments.need_text(0, "sep", name, budget);
    if (by->empty()) budget.refuse(name, " has an empty separator");
  }
  const int64_t most = arguments.integer(1, "maxsplit", -1, name, budget);
  return list_of_texts(name == "split" ? split_text(text, by, most, budget)
                                       : split_text_from_right(text, by, most, budget),
                       budget);
}

Value join_method(const std::string& text, Arguments& arguments, Budget& budget) {
  std::string out;
  bool first = true;
  for (const Value& item : elements_of(arguments.need(0, {}, "join", budget), budget)) {
    if (!item.text()) budget.refuse("join needs texts, not a value of type ", type_name(item));
    budget.spend_bytes(text.size() + item.text()->size());
    if (!first) out += text;
    first = false;
    out += *item.text();
  }
  return out;
}

Value call_text_method(const std::string& text, std::string_view name, Arguments& arguments,
                       Budget& budget) {
  budget.spend_bytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* given = arguments.find(0);
    std::string_view set;
    if (given != nullptr && !given->is_none()) set = arguments.need_text(0, {}, name, budget);
    if (given == nullptr || given->is_none())
      return strip_space(text, name != "rstrip", name != "lstrip");
    return strip_text(text, set, name != "rstrip", name != "lstrip", budget);
  }
  if (name == "split" || name == "rsplit") return split_method(text, name, arguments, budget);
  if (name == "splitlines") return list_of_texts(split_lines(text), budget);
  if (name == "startswith" || name == "endswith")
    return matches_any(text, arguments.need(0, {}, name, budget), name == "startswith", name,
                       budget);
  if (name == "replace") {
    const std::string& old = arguments.need_text(0, {}, name, budget);
    const std::string& by = arguments.need_text(1, {}, name, budget);
    const int64_t most = arguments.integer(2, "count", -1, name, budget);
    budget.spend_bytes(text.size() / std::max<size_t>(old.size(), 1) * by.size());
    return replace_text(text, old, by, most, budget);
  }
  if (name == "upper") return known_case(upper_text(text), name, budget);
  if (name == "lower") return known_case(lower_text(text), name, budget);
  if (name == "title" || name == "capitalize")
    return known_case(capitalize_text(text, name == "title"), name, budget);
  if (name == "find" || name == "rfind" || name == "count")
    return find_in_text(text, name, arguments, budget);
  if (name == "join") return join_method(text, arguments, budget);
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = arguments.need_text(0, {}, name, budget);
    std::string_view rest = text;
    if (name == "removeprefix" && rest.starts_with(part)) rest.remove_prefix(part.size());
    if (name == "removesuffix" && rest.ends_with(part)) rest.remove_suffix(part.size());
    return rest;
  }
  if (name.starts_with("is")) return all_characters(text, name, budget);
  budget.unsupported("the method ", quote(name), " of texts is not supported");
}

Value call_dict_method(const DictData& dict, std::string_view name, Arguments& arguments,
                       Budget& budget) {
  if (name == "get") {
    const Value& key = arguments.need(0, {}, name, budget);
    const Value* otherwise = arguments.find(1);
    const Value* found = key.text() ? dict.find(*key.text(), budget) : nullptr;
    if (found != nullptr) return *found;
    return otherwise != nullptr ? *otherwise : Value(nullptr);
  }
  if (name == "copy" || name == "fromkeys")
    budget.unsupported("the method ", quote(name), " of mappings is not supported");
  const ListKind kind = name == "items"  ? ListKind::items
                        : name == "keys" ? ListKind::keys
                                         : ListKind::values;
  std::vector<Value> items;
  budget.spend_elements(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    if (name == "items")
      items.push_back(make_list({key, value}, budget, ListKind::tuple));
    else
      items.push_back(name == "keys" ? Value(key) : value);
  }
  return make_list(std::move(items), budget, kind);
}

Value call_list_method(const ListData& list, std::string_view name, Arguments& arguments,
                       Budget& budget) {
  if (name != "count" && name != "index")
    budget.unsupported("the method ", quote(name), " changes a list; write list + [element]");
  const Value& wanted = arguments.need(0, {}, name, budget);
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!equal(list.items[i], wanted, budget)) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") budget.refuse("index: the list has no such element");
  return count;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  if (self.text()) return has_name(kTextMethods, name);
  if (self.dict()) return has_name(kDictMethods, name);
  const ListData* list = self.list();
  if (!list || !list->is_sequence()) return false;
  return list->kind == ListKind::list ? has_name(kListMethods, name)
                                      : has_name(kSequenceMethods, name);
}

bool is_refused_method(const Value& self, std::string_view name) {
  return self.dict() && has_name(kDictChanges, name);
}

Value call_method(const Value& self, std::string_view name, Arguments& arguments, Budget& budget) {
  Value result = self.text()   ? call_text_method(*self.text(), name, arguments, budget)
                 : self.dict() ? call_dict_method(*self.dict(), name, arguments, budget)
                               : call_list_method(*self.list(), name, arguments, budget);
  arguments.finish(name, budget);
  return result;
}

}  // namespace trafo::jinja
