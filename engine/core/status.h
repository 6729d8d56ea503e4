// Inside the engine every error is an exception of type Error. capi/ turns it into a status object.
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace trafo {

// Values are part of the C ABI (capi/include/trafo.h): never renumber, only append.
enum class ErrorCode : int32_t {
  ok = 0,
  invalid_argument = 1,
  shape_mismatch = 2,
  dtype_mismatch = 3,
  out_of_memory = 4,
  out_of_device_memory = 5,
  not_found = 6,
  io = 7,
  corrupt_file = 8,
  unsupported = 9,
  cancelled = 10,
  device_lost = 11,
  non_finite = 12,
  version = 13,
  internal = 14,
  peer_lost = 15,
};

// For example "INVALID_ARGUMENT"; "UNKNOWN" for a value that is no code.
const char* error_code_name(ErrorCode code) noexcept;

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string origin, std::string message)
      : code_(code),
        origin_(std::move(origin)),
        message_(std::move(message)),
        what_("[" + origin_ + "] " + message_) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& origin() const noexcept { return origin_; }  // op or function
  const std::string& message() const noexcept {
    return message_;
  }  // what was wrong and what is allowed
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorCode code_;
  std::string origin_;
  std::string message_;
  std::string what_;
};

// One argument of concat(): where it is and the function that writes its type. The function that
// joins them is then compiled once, not for every list of types and every length of a literal.
struct TextPiece {
  TextPiece(const char* text) : at(text), write(&write_text) {}  // NOLINT: implicit
  template <class T>
  TextPiece(const T& value) : at(&value), write(&write_value<T>) {}  // NOLINT

  static void write_text(std::ostream& out, const void* at) { out << static_cast<const char*>(at); }
  template <class T>
  static void write_value(std::ostream& out, const void* at) {
    out << *static_cast<const T*>(at);
  }

  const void* at;
  void (*write)(std::ostream&, const void*);
};

// The text does not depend on the global locale.
std::string join_text(std::initializer_list<TextPiece> pieces);

[[noreturn]] inline void fail_joined(ErrorCode code, std::string_view origin,
                                     std::initializer_list<TextPiece> message) {
  throw Error(code, std::string(origin), join_text(message));
}

// concat("row ", 3, " of ", n): the streamed text of all arguments.
template <class... Args>
std::string concat(const Args&... args) {
  return join_text({TextPiece(args)...});
}

template <class... Args>
[[noreturn]] void fail(ErrorCode code, std::string_view origin, const Args&... message) {
  fail_joined(code, origin, {TextPiece(message)...});
}

// require(rows > 0, ErrorCode::shape_mismatch, "layer_norm", "rows must be ...", rows)
template <class... Args>
void require(bool condition, ErrorCode code, std::string_view origin, const Args&... message) {
  if (!condition) [[unlikely]]
    fail(code, origin, message...);
}

}  // namespace trafo
