#include "engine/core/strings/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace trafo {
namespace {

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonBounds& bounds, std::string_view origin, std::string_view label)
      : bounds_(bounds), origin_(origin), label_(label) {}

  Json root;

  template <class... Why>
  void check(bool condition, const Why&... why) const {
    require(condition, ErrorCode::corrupt_file, origin_, label_, ": ", why...);
  }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in a text

  bool start_object(size_t) override { return enter(Json::Object()); }
  bool key(string_t& key) override {
    auto& members = std::get<Json::Object>(open_.back()->value);
    check(members.size() < bounds_.members, "a JSON object has more than ", bounds_.members,
          " members");
    members.push_back({std::move(key), {}});
    return true;
  }
  bool end_object() override {
    std::vector<std::string_view> keys;
    for (const Json::Member& member : std::get<Json::Object>(open_.back()->value))
      keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    check(std::adjacent_find(keys.begin(), keys.end()) == keys.end(),
          "a JSON object has a key twice");
    return end_array();
  }
  bool start_array(size_t) override { return enter(Json::List()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t byte, const std::string&,
                   const nlohmann::json::exception& error) override {
    const bool of_range = dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr;
    check(!of_range, "not valid JSON: a number is out of range");
    check(false, "not valid JSON at byte ", byte);
    return false;
  }

 private:
  Json& place() {
    if (open_.empty()) return root;
    if (auto* list = std::get_if<Json::List>(&open_.back()->value)) return list->emplace_back();
    return std::get<Json::Object>(open_.back()->value).back().value;
  }
  bool put(Json value) {
    place() = std::move(value);
    return true;
  }
  bool enter(Json empty) {
    check(open_.size() < static_cast<size_t>(bounds_.depth), "the JSON text is nested more than ",
          bounds_.depth, " deep");
    Json& here = place();
    here = std::move(empty);
    open_.push_back(&here);
    return true;
  }

  const JsonBounds& bounds_;
  std::string_view origin_, label_;
  std::vector<Json*> open_;  // what encloses the current value; none of them moves while it is here
};

// A scalar of the library has a destructor that does not allocate.
template <class Scalar>
std::string text_of(const Scalar& scalar) {
  return nlohmann::json(scalar).dump();
}

void write(const Json& json, int indent, size_t depth, std::string& out) {
  const auto new_line = [&](size_t levels) {
    if (indent >= 0) out += '\n' + std::string(levels * static_cast<size_t>(indent), ' ');
  };
  const auto each = [&](const auto& items, std::string_view brackets, auto item) {
    out += brackets[0];
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ',';
      new_line(depth + 1);
      item(items[i]);
    }
    if (!items.empty()) new_line(depth);
    out += brackets[1];
  };
  if (const auto* list = json.as<Json::List>())
    each(*list, "[]", [&](const Json& item) { write(item, indent, depth + 1, out); });
  else if (const auto* object = json.as<Json::Object>())
    each(*object, "{}", [&](const Json::Member& member) {
      out += text_of(member.key);
      out += indent >= 0 ? ": " : ":";
      write(member.value, indent, depth + 1, out);
    });
  else
    std::visit(
        [&]<class T>(const T& scalar) {
          if constexpr (!std::same_as<T, Json::List> && !std::same_as<T, Json::Object>)
            out += text_of(scalar);
        },
        json.value);
}

}  // namespace

Json::Json(std::nullptr_t) {}
Json::~Json() = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json&&) noexcept = default;
Json& Json::operator=(const Json& other) {
  return *this = Json(other);
}
Json::Json(const Json& other) {
  std::visit([this](const auto& from) { value = std::remove_cvref_t<decltype(from)>(from); },
             other.value);
}
Json::Json(const char* text) : value(std::string(text)) {}
Json::Json(std::string text) : value(std::move(text)) {}
Json::Json(List list) : value(std::move(list)) {}
Json::Json(Object object) : value(std::move(object)) {}

double Json::number() const {
  if (const auto* positive = as<uint64_t>()) return static_cast<double>(*positive);
  if (const auto* negative = as<int64_t>()) return static_cast<double>(*negative);
  return std::get<double>(value);
}

const Json* Json::find(std::string_view key) const {
  if (const auto* object = as<Object>())
    for (const Member& member : *object)
      if (member.key == key) return &member.value;
  return nullptr;
}

Json& Json::operator[](std::string_view key) {
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  if (as<std::nullptr_t>()) value = Object();
  return std::get<Object>(value).emplace_back(Member{std::string(key), {}}).value;
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number() && value.index() != other.value.index())
    return number() == other.number();
  const auto *a = as<Object>(), *b = other.as<Object>();
  if (a == nullptr || b == nullptr) return value == other.value;
  return a->size() == b->size() && std::all_of(a->begin(), a->end(), [&](const Member& member) {
           const Json* found = other.find(member.key);
           return found != nullptr && *found == member.value;
         });
}

std::string Json::dump(int indent) const {
  std::string text;
  write(*this, indent, 0, text);
  return text;
}

Json parse_json(std::string_view text, std::string_view origin, std::string_view label,
                const JsonBounds& bounds) {
  Builder builder(bounds, origin, label);
  builder.check(text.size() <= bounds.bytes, "the JSON text has ", text.size(),
                " bytes, the limit is ", bounds.bytes);
  // The parser treats NUL as the end of the text.
  builder.check(text.find('\0') == std::string_view::npos, "the JSON text has a NUL byte");
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root);
}

JsonFields::JsonFields(const Json& object, std::string_view origin, std::string_view label)
    : object_(object), origin_(origin), label_(label) {
  require(object.as<Json::Object>(), ErrorCode::corrupt_file, origin, label, ": no JSON object");
}

const Json& JsonFields::at(std::string_view name) const {
  const Json* found = object_.find(name);
  require(found != nullptr, ErrorCode::corrupt_file, origin_, label_, ": there is no ", name);
  return *found;
}

void JsonFields::convert(const Json& found, std::string_view name, double& value) const {
  if (!found.is_number()) refuse(name, "a number");
  value = found.number();
}

void JsonFields::convert(const Json& found, std::string_view name, bool& value) const {
  const bool* flag = found.as<bool>();
  if (flag == nullptr) refuse(name, "true or false");
  value = *flag;
}

void JsonFields::convert(const Json& found, std::string_view name, std::string& value) const {
  const auto* text = found.as<std::string>();
  if (text == nullptr) refuse(name, "a text");
  value = *text;
}

void JsonFields::convert(const Json& found, std::string_view name,
                         std::vector<int64_t>& value) const {
  const auto* list = found.as<Json::List>();
  if (list == nullptr) refuse(name, "a list");
  value.clear();
  for (const Json& number : *list) convert(number, name, value.emplace_back());
}

void JsonFields::refuse(std::string_view name, std::string_view wanted) const {
  fail(ErrorCode::corrupt_file, origin_, label_, ": ", name, " is not ", wanted);
}

}  // namespace trafo
