#include "engine/core/json.h"

#include <set>
#include <vector>

namespace trafo {

template <class Json>
Json parse_json(std::string_view text, std::string_view origin, std::string_view label,
                const JsonBounds& bounds) {
  const auto check = [&](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, origin, label, ": ", why...);
  };
  check(text.size() <= bounds.bytes, "the JSON text has ", text.size(), " bytes, the limit is ",
        bounds.bytes);
  // The parser would take a NUL for the end of the text.
  check(text.find('\0') == std::string_view::npos, "the JSON text has a NUL byte");
  std::vector<std::set<std::string>> keys;  // of the objects around the value that is read
  const auto look = [&](int depth, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      check(depth < bounds.depth, "the JSON text is nested more than ", bounds.depth, " deep");
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      std::string key = value.template get<std::string>();
      check(keys.back().size() < bounds.members, "a JSON object has more than ", bounds.members,
            " members");
      check(keys.back().insert(std::move(key)).second, "a JSON object has a key twice");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), look);
  } catch (const nlohmann::json::parse_error& error) {
    check(false, "not valid JSON at byte ", error.byte);
  } catch (const nlohmann::json::exception&) {
    check(false, "not valid JSON: a number is out of range");
  }
  return {};
}

template nlohmann::json parse_json(std::string_view, std::string_view, std::string_view,
                                   const JsonBounds&);
template nlohmann::ordered_json parse_json(std::string_view, std::string_view, std::string_view,
                                           const JsonBounds&);

JsonFields::JsonFields(const nlohmann::json& object, std::string_view origin,
                       std::string_view label)
    : object_(object), origin_(origin), label_(label) {
  require(object.is_object(), ErrorCode::corrupt_file, origin, label, ": no JSON object");
}

const nlohmann::json& JsonFields::at(std::string_view name) const {
  const auto found = object_.find(name);
  require(found != object_.end(), ErrorCode::corrupt_file, origin_, label_, ": there is no ", name);
  return *found;
}

void JsonFields::take(std::string_view name, double& value) const {
  const nlohmann::json& found = at(name);
  if (!found.is_number()) refuse(name, "a number");
  value = found.get<double>();
}

void JsonFields::take(std::string_view name, bool& value) const {
  const nlohmann::json& found = at(name);
  if (!found.is_boolean()) refuse(name, "true or false");
  value = found.get<bool>();
}

void JsonFields::take(std::string_view name, std::string& value) const {
  const nlohmann::json& found = at(name);
  if (!found.is_string()) refuse(name, "a text");
  value = found.get<std::string>();
}

void JsonFields::refuse(std::string_view name, std::string_view wanted) const {
  fail(ErrorCode::corrupt_file, origin_, label_, ": ", name, " is not ", wanted);
}

}  // namespace trafo
