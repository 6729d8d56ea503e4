// What ends a command with a one-line message and an exit code.
#pragma once

#include <stdexcept>
#include <string>

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

 private:
  int exit_code_;
  int32_t trafo_code_;
};

[[noreturn]] inline void usage_error(const std::string& message) {
  throw CliError(kUsage, message);
}

}  // namespace translate_train
