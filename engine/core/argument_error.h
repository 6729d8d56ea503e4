// An error of one option or argument, which it names.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "engine/core/status.h"

namespace trafo {

// Its message begins with the field, so that a caller can put its own name of it there.
class ArgumentError : public Error {
 public:
  // reason: follows the field in the message, as " must be even, got 3".
  ArgumentError(ErrorCode code, std::string origin, std::string field, const std::string& reason)
      : Error(code, std::move(origin), field + reason), field_(std::move(field)) {}
  const std::string& field() const noexcept { return field_; }

 private:
  std::string field_;
};

// INVALID_ARGUMENT about a member of a struct of options, or an argument of a function.
template <class... Args>
[[noreturn]] void refuse_argument(std::string_view origin, std::string_view field,
                                  const Args&... reason) {
  throw ArgumentError(ErrorCode::invalid_argument, std::string(origin), std::string(field),
                      concat(reason...));
}

// require_argument(width % 2 == 0, "model", "width", " must be even, got ", width)
template <class... Args>
void require_argument(bool condition, std::string_view origin, std::string_view field,
                      const Args&... reason) {
  if (!condition) [[unlikely]]
    refuse_argument(origin, field, reason...);
}

}  // namespace trafo
