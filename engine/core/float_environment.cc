#include "engine/core/float_environment.h"

#include <utility>

namespace trafo {
namespace {

thread_local DefaultFloatEnvironment* innermost = nullptr;

}  // namespace

DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept
    : outer_(std::exchange(innermost, this)) {
  std::fegetenv(&host_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  std::fesetenv(&host_);
  innermost = outer_;
}

HostFloatEnvironment::HostFloatEnvironment() noexcept {
  if (innermost != nullptr) std::fesetenv(&innermost->host_);
}

HostFloatEnvironment::~HostFloatEnvironment() {
  if (innermost == nullptr)
    return;  // a function that frees memory of the host, outside of any call
  std::fegetenv(&innermost->host_);  // the settings and flags that the function left are the host's
  std::fesetenv(FE_DFL_ENV);
}

}  // namespace trafo
