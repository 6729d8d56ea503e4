// JSON: values, reading from files that may be hostile, writing. A failed allocation throws
// std::bad_alloc. The values of nlohmann::json would end the process there: their destructor
// allocates.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/core/limits.h"
#include "engine/core/status.h"

namespace trafo {

struct Json {
  struct Member;
  using List = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order of the text, each key once

  // An integer is a uint64_t, or an int64_t if it is negative.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, List, Object> value;

  Json(std::nullptr_t = nullptr);
  template <class T>
  requires std::is_arithmetic_v<T> Json(T number);
  // The copy of the variant's own crashes in libstdc++ 12 where copying a list fails for lack of
  // memory. None of these is defined in the class: Member is not complete there, and Clang looks.
  Json(const Json& other);
  Json(Json&&) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(const char* text);
  Json(std::string text);
  Json(List list);
  Json(Object object);
  template <class T>
  Json(const std::vector<T>& list) : Json(List(list.begin(), list.end())) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  bool is_integer() const { return as<uint64_t>() || as<int64_t>(); }
  bool is_number() const { return is_integer() || as<double>(); }
  double number() const;  // of a value that is one

  // The value of a key, null if this is no object or has no such key. Linear in the members.
  const Json* find(std::string_view key) const;
  // Adds the key if it is new. Null becomes an object.
  Json& operator[](std::string_view key);

  // Numbers are equal by value, objects in any order of their members.
  bool operator==(const Json& other) const;

  // One line; with an indent of 0 or more, one line a value. A double has the digits that read
  // back as the same double.
  std::string dump(int indent = -1) const;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

template <class T>
requires std::is_arithmetic_v<T> Json::Json(T number) {
  if constexpr (std::same_as<T, bool> || std::floating_point<T>)
    value = number;
  else if (std::in_range<uint64_t>(number))
    value = static_cast<uint64_t>(number);
  else
    value = static_cast<int64_t>(number);
}

struct JsonBounds {
  uint64_t bytes = limits::kConfigBytes;
  int depth = limits::kNesting;       // objects and lists inside each other
  size_t members = limits::kMembers;  // of one object
};

// Size, depth and number of members are bounded, and duplicate keys are refused. Numbers are never
// converted. Errors: CORRUPT_FILE naming `label`.
Json parse_json(std::string_view text, std::string_view origin, std::string_view label,
                const JsonBounds& bounds = {});

// Fields of one object. Errors: CORRUPT_FILE naming `label` and the field.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string_view origin, std::string_view label);

  bool has(std::string_view name) const { return object_.find(name) != nullptr; }
  const Json& at(std::string_view name) const;
  const Json::Object& members() const { return *object_.as<Json::Object>(); }

  template <class T>
  void take(std::string_view name, T& value) const {
    convert(at(name), name, value);
  }
  // `found` is the value of `name`. Refuses 1.5 or 1e300 for an integer and -1 for an unsigned one.
  template <std::integral T>
  requires(!std::same_as<T, bool>) void convert(const Json& found, std::string_view name,
                                                T& value) const {
    if (!found.is_integer()) refuse(name, "an integer");
    const auto assign = [&](auto number) {
      if (!std::in_range<T>(number)) refuse(name, "an integer that fits");
      value = static_cast<T>(number);
    };
    if (const auto* number = found.as<uint64_t>())
      assign(*number);
    else
      assign(*found.as<int64_t>());
  }
  void convert(const Json& found, std::string_view name, double& value) const;
  void convert(const Json& found, std::string_view name, bool& value) const;
  void convert(const Json& found, std::string_view name, std::string& value) const;
  // A list of integers.
  void convert(const Json& found, std::string_view name, std::vector<int64_t>& value) const;

 private:
  [[noreturn]] void refuse(std::string_view name, std::string_view wanted) const;
  const Json& object_;
  std::string_view origin_, label_;
};

}  // namespace trafo
