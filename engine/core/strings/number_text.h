// Numbers as text, the same in every locale.
#pragma once

#include <string>

namespace trafo {

// As printf's %.*f in the C locale.
std::string fixed_text(double value, int digits);

}  // namespace trafo
