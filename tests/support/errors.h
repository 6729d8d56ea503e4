// The error that a call threw, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "engine/core/status.h"

namespace trafo {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
inline bool mentions(const Error& error, std::string_view text) {
  return contains(error.message(), text);
}

// The Error that `call` throws; fails the test and returns INTERNAL "nothing was thrown" otherwise.
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::internal, "test", "nothing was thrown");
}

// Its code; `ok` if nothing is thrown.
template <class Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::ok;
}

// `call` must throw an Error of this code whose message has this part.
template <class Call>
void expect_error(ErrorCode code, std::string_view part, Call&& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_TRUE(mentions(error, part))
      << "\"" << error.message() << "\" does not say \"" << part << "\"";
}

}  // namespace trafo
