#include "engine/core/float_environment.h"

#include <utility>

namespace trafo {
namespace {

thread_local DefaultFloatEnvironment* innermost_call = nullptr;

}  // namespace

DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept
    : outer_(std::exchange(innermost_call, this)) {
  std::fegetenv(&host_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  std::fesetenv(&host_);
  innermost_call = outer_;
}

HostFloatEnvironment::HostFloatEnvironment() noexcept {
  if (innermost_call != nullptr) std::fesetenv(&innermost_call->host_);
}

HostFloatEnvironment::~HostFloatEnvironment() {
  if (innermost_call == nullptr)
    return;  // a function that frees memory of the host, outside of any call
  std::fegetenv(
      &innermost_call->host_);  // the settings and flags that the function left are the host's
  std::fesetenv(FE_DFL_ENV);
}

}  // namespace trafo
