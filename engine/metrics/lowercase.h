// Lower case of Unicode text, independent of the locale.
#pragma once

#include <string>
#include <string_view>

namespace trafo {

// Unicode 14's full lower-case mapping. A capital sigma becomes the final form when a letter with
// case stands before it and none behind it, apostrophes and combining marks aside. Ill-formed bytes
// become U+FFFD.
std::string lowercase_utf8(std::string_view text);

}  // namespace trafo
