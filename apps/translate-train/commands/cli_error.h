// An error that ends a command with a one-line message and an exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "trafo.h"

namespace translate_train {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,  // also bad input
  kDiverged = 3,
  kOutOfMemory = 4,
  kInterrupted = 130,
  kTerminated = 143,
};

class CliError : public std::runtime_error {
 public:
  CliError(int exit_code, const std::string& message, int32_t trafo_code = TRAFO_OK)
      : std::runtime_error(message), exit_code_(exit_code), trafo_code_(trafo_code) {}
  int exit_code() const { return exit_code_; }
  int32_t trafo_code() const { return trafo_code_; }
  // The argument of the library that was wrong (trafo_error_field); empty: none.
  const std::string& field() const { return field_; }

  // An error of the library, whose message follows `before`.
  static CliError of_field(int exit_code, const std::string& before, const std::string& message,
                           int32_t trafo_code, std::string field) {
    CliError error(exit_code, before + message, trafo_code);
    error.field_ = std::move(field);
    error.field_at_ = before.size();
    return error;
  }
  // The same with more text around the message.
  CliError within(const std::string& before, const std::string& after = "") const {
    CliError error(exit_code_, before + what() + after, trafo_code_);
    error.field_ = field_;
    error.field_at_ = before.size() + field_at_;
    return error;
  }
  // The same with the flag that sets the field in the place of its name.
  CliError with_flag(const std::string& flag) const {
    return {exit_code_, std::string(what()).replace(field_at_, field_.size(), flag), trafo_code_};
  }

 private:
  int exit_code_;
  int32_t trafo_code_;
  std::string field_{};
  size_t field_at_ = 0;  // in the message
};

[[noreturn]] inline void usage_error(const std::string& message) {
  throw CliError(kUsage, message);
}

}  // namespace translate_train
