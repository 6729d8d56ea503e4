#include "engine/core/status.h"

#include <locale>

namespace trafo {

std::string join_text(std::initializer_list<TextPiece> pieces) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // a stream begins with the global locale of the process
  out.exceptions(std::ios::badbit);   // otherwise a bad_alloc would silently cut the text
  for (const TextPiece& piece : pieces) piece.write(out, piece.at);
  return std::move(out).str();
}

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok:
      return "OK";
    case ErrorCode::invalid_argument:
      return "INVALID_ARGUMENT";
    case ErrorCode::shape_mismatch:
      return "SHAPE_MISMATCH";
    case ErrorCode::dtype_mismatch:
      return "DTYPE_MISMATCH";
    case ErrorCode::out_of_memory:
      return "OUT_OF_MEMORY";
    case ErrorCode::out_of_device_memory:
      return "OUT_OF_DEVICE_MEMORY";
    case ErrorCode::not_found:
      return "NOT_FOUND";
    case ErrorCode::io:
      return "IO";
    case ErrorCode::corrupt_file:
      return "CORRUPT_FILE";
    case ErrorCode::unsupported:
      return "UNSUPPORTED";
    case ErrorCode::cancelled:
      return "CANCELLED";
    case ErrorCode::device_lost:
      return "DEVICE_LOST";
    case ErrorCode::non_finite:
      return "NON_FINITE";
    case ErrorCode::version:
      return "VERSION";
    case ErrorCode::internal:
      return "INTERNAL";
    case ErrorCode::peer_lost:
      return "PEER_LOST";
  }
  return "UNKNOWN";
}

}  // namespace trafo
