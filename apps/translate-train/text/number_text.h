// Numbers in texts, the same in every locale.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace translate_train {

// False if the text is anything but one number that `value` can hold.
template <class Number>
bool parse_number(std::string_view text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace translate_train
