// The description of one option. The tables in schema/ fill it in; range checks and JSON of an
// options struct loop over these descriptions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/core/enum_names.h"
#include "engine/core/status.h"
#include "engine/core/strings/json.h"

namespace trafo {

inline constexpr double kNoLimit = 0x1p62;  // largest value of an option that has no upper bound

struct OptionField {
  const char* name;             // of the member, also in messages
  const char* key = nullptr;    // in JSON, if it differs from `name`
  bool fixed = false;           // cannot change when a run resumes
  bool phase = false;           // may change with a new phase of a run although it is fixed
  bool unless_default = false;  // absent from JSON where it has its default
  double low = 0, high = 0;
  bool low_inside = true, high_inside = true;
  const char* zero = nullptr;  // what 0 means; if set, 0 is allowed

  const char* json_key() const { return key != nullptr ? key : name; }
};

// Throws INVALID_ARGUMENT naming the option and what it may be.
void check_option(const char* origin, const OptionField& field, int64_t value);
void check_option(const char* origin, const OptionField& field, double value);
inline void check_option(const char*, const OptionField&, bool) {}
inline void check_option(const char*, const OptionField&, uint64_t) {}
// "norm must be 0 (layer) or 1 (rms), got 7"
[[noreturn]] void refuse_enum(const char* origin, const char* name, const char* const* names,
                              size_t count, int64_t value);
template <NamedEnum E>
void check_option(const char* origin, const OptionField& field, E value) {
  constexpr const auto& names = EnumNames<E>::names;
  if (!is_known(value))
    refuse_enum(origin, field.name, names.data(), names.size(), static_cast<int64_t>(value));
}

template <class T>
void write_option(Json& out, const OptionField& field, const T& value) {
  if constexpr (NamedEnum<T>)
    out[field.json_key()] = enum_name(value);
  else
    out[field.json_key()] = value;
}

// CORRUPT_FILE: the option is missing, has another kind or an unknown name.
template <class T>
void read_option(const JsonFields& in, const char* origin, const OptionField& field, T& value) {
  if constexpr (NamedEnum<T>) {
    std::string chosen;
    in.take(field.json_key(), chosen);
    size_t i = 0;
    while (i < EnumNames<T>::names.size() && chosen != EnumNames<T>::names[i]) ++i;
    require(i < EnumNames<T>::names.size(), ErrorCode::corrupt_file, origin, "unknown ", field.name,
            " ", chosen.substr(0, 64));
    value = static_cast<T>(i);
  } else {
    in.take(field.json_key(), value);
  }
}

}  // namespace trafo
