// The letters that stand for bytes in the vocabularies of GPT-2 and its successors: a printable
// letter of Latin-1 for itself, the others in order from U+0100 on. "Ġ" is a space.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace trafo {

const std::array<char32_t, 256>& byte_letters();
std::string to_byte_letters(std::string_view bytes);
// None: a character is no such letter.
std::optional<std::string> from_byte_letters(std::string_view text);

}  // namespace trafo
