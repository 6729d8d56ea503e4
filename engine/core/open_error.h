// The error for a text file that cannot be opened.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/core/status.h"

namespace trafo {

// `error` is an errno. Errors: NOT_FOUND if there is no such file, OUT_OF_MEMORY if memory ran out,
// otherwise IO.
[[noreturn]] inline void fail_to_open(std::string_view origin, const std::string& path, int error) {
  if (error == ENOENT) fail(ErrorCode::not_found, origin, path, ": ", std::strerror(error));
  if (error == ENOMEM) fail(ErrorCode::out_of_memory, origin, path, ": cannot be opened");
  fail(ErrorCode::io, origin, path, ": cannot be opened: ", std::strerror(error));
}

}  // namespace trafo
