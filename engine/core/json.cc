#include "engine/core/json.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trafo {

namespace {

// Checks a text before any value is built from it, so that a refused text costs no memory. The
// library's own callback would take quadratic time for lists of objects.
class Bounds final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Bounds(const JsonBounds& bounds, std::string_view origin, std::string_view label)
      : bounds_(bounds), origin_(origin), label_(label) {}

  template <class... Why>
  void check(bool condition, const Why&... why) const {
    require(condition, ErrorCode::corrupt_file, origin_, label_, ": ", why...);
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& key) override {
    check(keys_.back().size() < bounds_.members, "a JSON object has more than ", bounds_.members,
          " members");
    check(keys_.back().insert(std::move(key)).second, "a JSON object has a key twice");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override {
    --depth_;
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
  bool enter() {
    check(depth_ < bounds_.depth, "the JSON text is nested more than ", bounds_.depth, " deep");
    ++depth_;
    return true;
  }

  const JsonBounds& bounds_;
  std::string_view origin_, label_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that enclose the current value
};

}  // namespace

template <class Json>
Json parse_json(std::string_view text, std::string_view origin, std::string_view label,
                const JsonBounds& bounds) {
  Bounds within(bounds, origin, label);
  within.check(text.size() <= bounds.bytes, "the JSON text has ", text.size(),
               " bytes, the limit is ", bounds.bytes);
  // The parser treats NUL as the end of the text.
  within.check(text.find('\0') == std::string_view::npos, "the JSON text has a NUL byte");
  nlohmann::json::sax_parse(text.begin(), text.end(), &within);
  return Json::parse(text.begin(), text.end());
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
