#include "engine/core/status.h"

#include <locale>

#include "engine/core/generated/error_names.h"

namespace trafo {

std::string join_text(std::initializer_list<TextPiece> pieces) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // a stream begins with the global locale of the process
  out.exceptions(std::ios::badbit);   // otherwise a bad_alloc would silently cut the text
  for (const TextPiece& piece : pieces) piece.write(out, piece.at);
  return std::move(out).str();
}

const char* error_code_name(ErrorCode code) noexcept {
  return is_known(code) ? enum_name(code) : "UNKNOWN";
}

}  // namespace trafo
