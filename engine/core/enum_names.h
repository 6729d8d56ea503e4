// Names of the enums that options are made of (schema/enums.toml).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trafo {

// Specialised for enums with values 0, 1, ...: `names` is a std::array of their names in files.
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::names;
};

template <NamedEnum E>
bool is_known(E value) {
  const auto i = static_cast<int64_t>(value);
  return i >= 0 && i < static_cast<int64_t>(EnumNames<E>::names.size());
}
template <NamedEnum E>
const char* enum_name(E value) {
  return is_known(value) ? EnumNames<E>::names[static_cast<size_t>(value)] : "unknown";
}

}  // namespace trafo
