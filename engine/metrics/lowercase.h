// Lower case of Unicode text, independent of the locale.
#pragma once

#include <string>
#include <string_view>

namespace trafo {

// The full lower-case mapping of Unicode 14. A capital sigma becomes a final sigma if a cased
// letter precedes and none follows it; apostrophes and combining marks between them are ignored.
// Ill-formed bytes become U+FFFD.
std::string lowercase_utf8(std::string_view text);

}  // namespace trafo
