// The filters of Jinja that chat templates use, with tojson as transformers sets it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/core/strings/quote.h"
#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/strings.h"

namespace trafo::jinja {
namespace {

std::string filter_case(std::optional<std::string> text, std::string_view what, Budget& budget) {
  if (!text) budget.unsupported(what, " of other letters than ASCII's is not supported");
  return std::move(*text);
}

// A member of an element: "a.b.0", or a place in a list.
Value member_of(Value value, const Value& path, Budget& budget) {
  if (path.text() == nullptr) return item_of(value, path, budget);
  budget.spend_bytes(path.text()->size());
  for (const std::string_view name : split_text(*path.text(), ".", -1, budget)) {
    budget.spend(1);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    value = item_of(value, whole ? Value(index) : Value(name), budget);
  }
  return value;
}

void refuse_undefined(const Value& input, std::string_view what, Budget& budget) {
  const Undefined* undefined = input.as<Undefined>();
  if (undefined == nullptr) return;
  budget.refuse(what, " needs a value, ", undefined->what ? *undefined->what : "the value",
                " is undefined");
}

Value make_generator(std::vector<Value> items, Budget& budget) {
  return make_list(std::move(items), budget, ListKind::generator);
}

Value string_filter(const Value& input, Arguments&, Budget& budget) {
  return to_text(input, budget);
}
Value safe_filter(const Value& input, Arguments&, Budget&) {
  return input;
}
Value upper_filter(const Value& input, Arguments&, Budget& budget) {
  return filter_case(upper_text(to_text(input, budget)), "upper", budget);
}
Value lower_filter(const Value& input, Arguments&, Budget& budget) {
  return filter_case(lower_text(to_text(input, budget)), "lower", budget);
}
Value title_filter(const Value& input, Arguments&, Budget& budget) {
  return filter_case(title_text(to_text(input, budget)), "title", budget);
}
Value capitalize_filter(const Value& input, Arguments&, Budget& budget) {
  return filter_case(capitalize_text(to_text(input, budget), false), "capitalize", budget);
}

Value trim_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const Value* set = arguments.find(0, "chars");
  std::string_view characters;
  if (set != nullptr && !set->is_none())
    characters = arguments.need_text(0, "chars", "trim", budget);
  const std::string text = to_text(input, budget);
  if (set == nullptr || set->is_none()) return strip_space(text, true, true);
  return strip_text(text, characters, true, true, budget);
}

Value replace_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const std::string text = to_text(input, budget);
  const std::string old = to_text(arguments.need(0, "old", "replace", budget), budget);
  const std::string by = to_text(arguments.need(1, "new", "replace", budget), budget);
  const int64_t most = arguments.integer(2, "count", -1, "replace", budget);
  budget.spend_bytes(text.size() / std::max<size_t>(old.size(), 1) * by.size());
  return replace_text(text, old, by, most, budget);
}

Value indent_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const Value* width = arguments.find(0, "width");
  const bool first = arguments.flag(1, "first", false), blank = arguments.flag(2, "blank", false);
  std::string indent;
  if (width != nullptr && width->text())
    indent = *width->text();
  else if (const int64_t spaces = arguments.integer(0, "width", 4, "indent", budget); spaces > 0)
    budget.spend_bytes(static_cast<size_t>(spaces)),
        indent.assign(static_cast<size_t>(spaces), ' ');
  refuse_undefined(input, "indent", budget);
  const std::string text = to_text(input, budget) + "\n";
  std::string out = first ? indent : "";
  bool begins = true;
  for (const std::string_view line : split_lines(text)) {
    budget.spend_bytes(indent.size() + line.size());
    if (!begins) out += '\n';
    if (!begins && (blank || !line.empty())) out += indent;
    begins = false;
    out += line;
  }
  return out;
}

Value length_filter(const Value& input, Arguments&, Budget& budget) {
  return length_of(input, budget);
}

Value default_filter(const Value& input, Arguments& arguments, Budget&) {
  const Value* otherwise = arguments.find(0, "default_value");
  const bool boolean = arguments.flag(1, "boolean", false);
  if (!input.is_undefined() && (!boolean || is_true(input))) return input;
  return otherwise != nullptr ? *otherwise : Value("");
}

Value first_filter(const Value& input, Arguments&, Budget& budget) {
  if (const ListData* list = input.list(); list && list->is_generator())
    return list->taken < list->items.size() ? list->items[list->taken++] : Value();
  const std::vector<Value> items = elements_of(input, budget);
  return items.empty() ? Value() : items.front();
}
Value last_filter(const Value& input, Arguments&, Budget& budget) {
  if (const ListData* list = input.list(); list && list->is_generator())
    budget.refuse("a value of type generator has no last element; write |list");
  const std::vector<Value> items = elements_of(input, budget);
  return items.empty() ? Value() : items.back();
}
Value list_filter(const Value& input, Arguments&, Budget& budget) {
  return make_list(elements_of(input, budget), budget);
}

Value reverse_filter(const Value& input, Arguments&, Budget& budget) {
  std::vector<Value> items = elements_of(input, budget);
  std::ranges::reverse(items);
  if (const ListData* list = input.list(); list && list->is_generator())
    return make_list(std::move(items), budget);
  if (!input.text()) return make_generator(std::move(items), budget);
  std::string out;
  for (const Value& item : items) out += *item.text();
  return out;
}

Value items_filter(const Value& input, Arguments& arguments, Budget& budget) {
  if (input.is_undefined()) return make_generator({}, budget);
  if (!input.dict()) budget.refuse("items needs a mapping, not a value of type ", type_name(input));
  const Value view = call_method(input, "items", arguments, budget);
  return make_generator(view.list()->items, budget);
}

Value join_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const Value* between = arguments.find(0, "d");
  const Value* attribute = arguments.find(1, "attribute");
  const std::string separator = between != nullptr ? to_text(*between, budget) : "";
  std::string out;
  bool first = true;
  for (const Value& item : elements_of(input, budget)) {
    if (!first) out += separator;
    first = false;
    budget.spend_bytes(separator.size());
    out += to_text(attribute ? member_of(item, *attribute, budget) : item, budget);
  }
  return out;
}

Value tojson_filter(const Value& input, Arguments& arguments, Budget& budget) {
  JsonStyle style;
  style.ascii = arguments.flag(0, "ensure_ascii", false);
  if (const Value* indent = arguments.find(1, "indent"); indent && !indent->is_none())
    style.indent = std::max<int64_t>(arguments.integer(1, "indent", 0, "tojson", budget), 0);
  style.sorted = arguments.flag(3, "sort_keys", false);
  if (style.indent >= 0) style.item = std::string(",");
  if (const Value* given = arguments.find(2, "separators"); given && !given->is_none()) {
    const ListData* both = given->list();
    if (!both || both->items.size() != 2 || !both->items[0].text() || !both->items[1].text())
      budget.refuse("separators of tojson are two texts");
    style.item = *both->items[0].text();
    style.key = *both->items[1].text();
  }
  return to_json(input, style, budget);
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

// A text as std::from_chars reads the numbers that Python's int() and float() read. None: it has
// underscores or signs where a number has none.
std::optional<std::string> spelled_number(const std::string& text, std::string_view what,
                                          Budget& budget) {
  budget.spend_bytes(text.size());
  std::string_view rest = strip_space(text, true, true);
  if (has_other_digits(rest))
    budget.unsupported(what, " of other digits than ASCII's is not supported");
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-')) return std::nullopt;
  }
  std::string out;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] != '_') {
      out += rest[i];
      continue;
    }
    if (i == 0 || i + 1 == rest.size() || !is_ascii_digit(rest[i - 1]) ||
        !is_ascii_digit(rest[i + 1]))
      return std::nullopt;
  }
  return out;
}

// None: it is no number.
std::optional<double> read_real(std::string_view spelled, Budget& budget) {
  double number = 0;
  const char* end = spelled.data() + spelled.size();
  const auto read = std::from_chars(spelled.data(), end, number);
  // from_chars also reads "nan(1)".
  if (read.ptr != end || spelled.ends_with(')')) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range)
    budget.refuse("a real number is out of range: ", quote(spelled));
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

Value whole_part(double number, const Value& otherwise, Budget& budget) {
  constexpr double kLimit = 9223372036854775808.0;
  if (std::isnan(number)) return otherwise;
  if (number >= kLimit || number < -kLimit) budget.refuse("an integer is too large");
  return static_cast<int64_t>(number);
}

Value int_filter(const Value& input, Arguments& arguments, Budget& budget) {
  refuse_undefined(input, "int", budget);
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value(int64_t{0});
  if (const bool* flag = input.as<bool>()) return int64_t{*flag};
  if (input.as<int64_t>()) return input;
  if (const double* real = input.as<double>()) return whole_part(*real, otherwise, budget);
  if (input.text() == nullptr) return otherwise;
  const std::optional<std::string> spelled = spelled_number(*input.text(), "int", budget);
  if (!spelled) return otherwise;
  int64_t whole = 0;
  const char* end = spelled->data() + spelled->size();
  const auto read = std::from_chars(spelled->data(), end, whole);
  if (read.ptr == end && read.ec == std::errc()) return whole;
  if (read.ptr == end && read.ec == std::errc::result_out_of_range)
    budget.refuse("an integer is too large");
  const std::optional<double> number = read_real(*spelled, budget);
  return number && !std::isinf(*number) ? whole_part(*number, otherwise, budget) : otherwise;
}

Value float_filter(const Value& input, Arguments& arguments, Budget& budget) {
  refuse_undefined(input, "float", budget);
  const Value* otherwise = arguments.find(0, "default");
  if (const bool* flag = input.as<bool>()) return double{*flag ? 1.0 : 0.0};
  if (const int64_t* whole = input.as<int64_t>()) return static_cast<double>(*whole);
  if (input.as<double>()) return input;
  if (const std::string* text = input.text()) {
    const std::optional<std::string> spelled = spelled_number(*text, "float", budget);
    const std::optional<double> number = spelled ? read_real(*spelled, budget) : std::nullopt;
    if (number) return *number;
  }
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value abs_filter(const Value& input, Arguments&, Budget& budget) {
  if (const double* real = input.as<double>()) return std::abs(*real);
  if (const bool* flag = input.as<bool>()) return int64_t{*flag};
  const bool below = compare(input, int64_t{0}, budget) < 0;
  return below ? negative(input, budget) : input;
}

// Elements of select, reject, selectattr and rejectattr: those whose test is `wanted`.
Value choose(const Value& input, Arguments& arguments, bool attribute, bool wanted,
             Budget& budget) {
  const Value* path = attribute ? &arguments.need(0, {}, "selectattr", budget) : nullptr;
  const size_t place = attribute ? 1 : 0;
  const ValueTest* test = nullptr;
  if (const Value* name = arguments.find(place)) {
    test = find_test(arguments.need_text(place, {}, "select", budget));
    if (test == nullptr) budget.unsupported("the test ", quote(*name->text()), " is not supported");
    if (arguments.named.empty()) arguments.pass_on();
  }
  std::vector<Value> items;
  for (const Value& item : elements_of(input, budget)) {
    const Value tested = path != nullptr ? member_of(item, *path, budget) : item;
    bool holds = false;
    if (test != nullptr) {
      Arguments rest;
      if (arguments.values.size() > place)
        rest.values.assign(arguments.values.begin() + static_cast<std::ptrdiff_t>(place) + 1,
                           arguments.values.end());
      budget.spend_elements(rest.values.size());
      holds = test->apply(tested, rest, budget);
      rest.finish(test->name, budget);
    } else {
      holds = is_true(tested);
    }
    if (holds == wanted) items.push_back(item);
  }
  return make_generator(std::move(items), budget);
}
Value select_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return choose(input, arguments, false, true, budget);
}
Value reject_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return choose(input, arguments, false, false, budget);
}
Value selectattr_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return choose(input, arguments, true, true, budget);
}
Value rejectattr_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return choose(input, arguments, true, false, budget);
}

Value map_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const Value* attribute = arguments.values.empty() ? arguments.find(0, "attribute") : nullptr;
  std::vector<Value> items;
  if (attribute != nullptr) {
    const Value* otherwise = arguments.find(1, "default");
    for (const Value& item : elements_of(input, budget)) {
      Value member = member_of(item, *attribute, budget);
      items.push_back(member.is_undefined() && otherwise != nullptr ? *otherwise
                                                                    : std::move(member));
    }
    return make_generator(std::move(items), budget);
  }
  const std::string& name = arguments.need_text(0, {}, "map", budget);
  const Filter* filter = find_filter(name);
  if (filter == nullptr) budget.unsupported("the filter ", quote(name), " is not supported");
  arguments.pass_on();
  for (const Value& item : elements_of(input, budget)) {
    Arguments rest;
    rest.values.assign(arguments.values.begin() + 1, arguments.values.end());
    rest.named = arguments.named;
    budget.spend(1);
    budget.spend_elements(rest.values.size() + rest.named.size());
    items.push_back(filter->apply(item, rest, budget));
    rest.finish(name, budget);
  }
  return make_generator(std::move(items), budget);
}

// As Jinja compares where case_sensitive is off.
Value sorting_key(const Value& value, bool sensitive, Budget& budget) {
  if (sensitive || !value.text()) return value;
  budget.spend_bytes(4 * value.text()->size());
  return filter_case(lower_text(*value.text()), "sort", budget);
}

Value sort_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const bool reverse = arguments.flag(0, "reverse", false);
  const bool sensitive = arguments.flag(1, "case_sensitive", false);
  const Value* attribute = arguments.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : elements_of(input, budget)) {
    const Value key = attribute ? member_of(item, *attribute, budget) : item;
    keyed.emplace_back(sorting_key(key, sensitive, budget), std::move(item));
  }
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    const std::partial_ordering order = compare(a.first, b.first, budget);
    if (order == std::partial_ordering::unordered) budget.refuse("nan has no order to sort by");
    return reverse ? order > 0 : order < 0;
  });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return make_list(std::move(items), budget);
}

Value dictsort_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const bool sensitive = arguments.flag(0, "case_sensitive", false);
  const Value* by = arguments.find(1, "by");
  const bool reverse = arguments.flag(2, "reverse", false);
  if (by != nullptr && (!by->text() || (*by->text() != "key" && *by->text() != "value")))
    budget.refuse("dictsort is by 'key' or 'value'");
  refuse_undefined(input, "dictsort", budget);
  Arguments none;
  const Value pairs = items_filter(input, none, budget);
  Arguments sorting;
  sorting.values = {reverse, sensitive, int64_t{by != nullptr && *by->text() == "value"}};
  return sort_filter(pairs, sorting, budget);
}

Value unique_filter(const Value& input, Arguments& arguments, Budget& budget) {
  const bool sensitive = arguments.flag(0, "case_sensitive", false);
  const Value* attribute = arguments.find(1, "attribute");
  std::vector<Value> items, seen;
  for (Value& item : elements_of(input, budget)) {
    const Value member = attribute ? member_of(item, *attribute, budget) : item;
    Value key = sorting_key(member, sensitive, budget);
    if (key.dict() || (key.list() && key.list()->kind == ListKind::list))
      budget.refuse("unique does not take elements of type ", type_name(key));
    if (std::ranges::any_of(seen, [&](const Value& other) { return equal(other, key, budget); }))
      continue;
    seen.push_back(std::move(key));
    items.push_back(std::move(item));
  }
  return make_generator(std::move(items), budget);
}

// The first one of the least or of the greatest elements.
Value extreme(const Value& input, Arguments& arguments, bool greatest, Budget& budget) {
  const bool sensitive = arguments.flag(0, "case_sensitive", false);
  const Value* attribute = arguments.find(1, "attribute");
  std::optional<Value> best_key;
  Value best;
  for (Value& item : elements_of(input, budget)) {
    const Value member = attribute ? member_of(item, *attribute, budget) : item;
    Value key = sorting_key(member, sensitive, budget);
    if (best_key) {
      const std::partial_ordering order = compare(key, *best_key, budget);
      if (!(greatest ? order > 0 : order < 0)) continue;
    }
    best_key = std::move(key);
    best = std::move(item);
  }
  return best;
}
Value min_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return extreme(input, arguments, false, budget);
}
Value max_filter(const Value& input, Arguments& arguments, Budget& budget) {
  return extreme(input, arguments, true, budget);
}

constexpr auto kFilters = std::to_array<Filter>({
    {"abs", abs_filter},
    {"capitalize", capitalize_filter},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"float", float_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", lower_filter},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject_filter},
    {"rejectattr", rejectattr_filter},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"safe", safe_filter},
    {"select", select_filter},
    {"selectattr", selectattr_filter},
    {"sort", sort_filter},
    {"string", string_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"unique", unique_filter},
    {"upper", upper_filter},
});

}  // namespace

const Filter* find_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &Filter::name);
  return found == kFilters.end() ? nullptr : found;
}

}  // namespace trafo::jinja
