#include <algorithm>

#include "engine/core/strings/quote.h"
#include "engine/text/chat_template/function.h"

namespace trafo::jinja {

const Value* Arguments::find(size_t place, std::string_view name) {
  asked_ = std::max(asked_, place + 1);
  if (!name.empty()) asked_names_.emplace_back(name, place);
  if (place < values.size()) return &values[place];
  if (name.empty()) return nullptr;
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

void Arguments::pass_on() {
  asked_ = values.size();
  for (const auto& [key, value] : named) asked_names_.emplace_back(key, SIZE_MAX);
}

void Arguments::finish(std::string_view what, Budget& budget) const {
  if (values.size() > asked_)
    budget.refuse(what, " takes at most ", asked_, " arguments, it has ", values.size());
  for (const auto& [key, value] : named) {
    // Twice: find() has compared the same names.
    budget.spend(std::ssize(asked_names_) / 8);
    const auto matches = [&, &key = key](const auto& asked) {  // clang 14 needs the name
      if (asked.first.size() != key.size()) return false;
      budget.spend(static_cast<int64_t>(key.size() / 8));
      return asked.first == key;
    };
    const auto asked = std::ranges::find_if(asked_names_, matches);
    if (asked == asked_names_.end()) budget.refuse(what, " has no argument ", quote(key));
    if (asked->second < values.size())
      budget.refuse(what, " has the argument ", quote(key), " twice");
  }
}

const Value& Arguments::need(size_t place, std::string_view name, std::string_view what,
                             Budget& budget) {
  const Value* value = find(place, name);
  if (value == nullptr) budget.refuse(what, " needs ", place + 1, " arguments");
  return *value;
}

const std::string& Arguments::need_text(size_t place, std::string_view name, std::string_view what,
                                        Budget& budget) {
  const Value& value = need(place, name, what, budget);
  if (value.text() == nullptr)
    budget.refuse(what, " needs a text, not a value of type ", type_name(value));
  return *value.text();
}

int64_t Arguments::integer(size_t place, std::string_view name, int64_t otherwise,
                           std::string_view what, Budget& budget) {
  const Value* value = find(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (const bool* flag = value->as<bool>()) return *flag;
  if (value->as<int64_t>() == nullptr)
    budget.refuse(what, " needs an integer, not a value of type ", type_name(*value));
  return *value->as<int64_t>();
}

bool Arguments::flag(size_t place, std::string_view name, bool otherwise) {
  const Value* value = find(place, name);
  return value == nullptr ? otherwise : is_true(*value);
}

}  // namespace trafo::jinja
