// Texts of files in messages.
#pragma once

#include <string>
#include <string_view>

namespace trafo {

// 'text' in quotes: at most 200 bytes of it, with '?' for control characters, because it may come
// from a hostile file.
std::string quote(std::string_view text);

}  // namespace trafo
