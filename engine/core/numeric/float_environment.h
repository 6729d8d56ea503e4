// Rounding mode, traps, and flushing of subnormal numbers. A host may have set them on the thread
// that calls the library. Results must not depend on them, and the host must find them as they
// were.
#pragma once

#include <cfenv>

namespace trafo {

// Computes with the default environment while it lives. Then the thread has its former environment
// again, with the exception flags of that time. Threads that are started meanwhile inherit the
// default.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept;
  ~DefaultFloatEnvironment();
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  friend class HostFloatEnvironment;
  std::fenv_t host_;
  DefaultFloatEnvironment* outer_;
};

// Around a call of a function of the host: it finds the environment that its thread had when it
// called the library. On a thread of the library it finds the default.
class HostFloatEnvironment {
 public:
  HostFloatEnvironment() noexcept;
  ~HostFloatEnvironment();
  HostFloatEnvironment(const HostFloatEnvironment&) = delete;
  HostFloatEnvironment& operator=(const HostFloatEnvironment&) = delete;
};

}  // namespace trafo
