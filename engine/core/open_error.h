// One way to say that a text could not be opened.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/core/status.h"

namespace trafo {

// Errors: NOT_FOUND when `error`, an errno, says that there is no such file, OUT_OF_MEMORY when
// that was the reason, IO else.
[[noreturn]] inline void fail_to_open(std::string_view origin, const std::string& path, int error) {
  if (error == ENOENT) fail(ErrorCode::not_found, origin, path, ": ", std::strerror(error));
  if (error == ENOMEM) fail(ErrorCode::out_of_memory, origin, path, ": cannot be opened");
  fail(ErrorCode::io, origin, path, ": cannot be opened: ", std::strerror(error));
}

}  // namespace trafo
