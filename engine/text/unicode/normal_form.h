// Unicode's normal forms (UAX #15).
#pragma once

#include <string>

namespace trafo {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::u32string normalized(const std::u32string& text, NormalForm form);

}  // namespace trafo
