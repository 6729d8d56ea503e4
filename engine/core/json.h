// Reading JSON from files that may be hostile. Size, depth and number of members are bounded,
// duplicate keys are refused, and numbers are never converted. Errors: CORRUPT_FILE naming `label`
// and the field.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/limits.h"
#include "engine/core/status.h"

namespace trafo {

struct JsonBounds {
  uint64_t bytes = limits::kConfigBytes;
  int depth = limits::kNesting;       // objects and lists inside each other
  size_t members = limits::kMembers;  // of one object
};

// Json: nlohmann::json or nlohmann::ordered_json. The latter compares every key with all others, so
// use it for objects with few members.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::string_view origin, std::string_view label,
                const JsonBounds& bounds = {});

// Fields of one object.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string_view origin, std::string_view label);

  bool has(std::string_view name) const { return object_.find(name) != object_.end(); }
  const nlohmann::json& at(std::string_view name) const;
  size_t count() const { return object_.size(); }

  // Refuses 1.5 or 1e300 for an integer and -1 for an unsigned one instead of converting them.
  template <std::integral T>
  requires(!std::same_as<T, bool>) void take(std::string_view name, T& value) const {
    const nlohmann::json& found = at(name);
    const bool is_unsigned = found.is_number_unsigned();
    if (!is_unsigned && !found.is_number_integer()) refuse(name, "an integer");
    if (is_unsigned ? !std::in_range<T>(found.get<uint64_t>())
                    : !std::in_range<T>(found.get<int64_t>()))
      refuse(name, "an integer that fits");
    value = found.get<T>();
  }
  void take(std::string_view name, double& value) const;
  void take(std::string_view name, bool& value) const;
  void take(std::string_view name, std::string& value) const;

 private:
  [[noreturn]] void refuse(std::string_view name, std::string_view wanted) const;
  const nlohmann::json& object_;
  std::string_view origin_, label_;
};

}  // namespace trafo
