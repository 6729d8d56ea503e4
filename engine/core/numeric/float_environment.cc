#include "engine/core/numeric/float_environment.h"

#include <utility>

#if defined(__x86_64__) && defined(__GLIBC__)
#include <immintrin.h>
#endif

namespace trafo {
namespace {

thread_local DefaultFloatEnvironment* innermost_call = nullptr;

#if defined(__x86_64__) && defined(__GLIBC__)
// Saving and loading the whole x87 state takes 200 ns, more than many a call. Where the host has
// left the x87 control word alone, as nearly all do, the library has no reason to touch that state.
constexpr unsigned short kDefaultControl = 0x37F;
constexpr unsigned kDefaultMxcsr = 0x1F80;

void save(std::fenv_t& environment) noexcept {
  unsigned short control = 0;
  asm volatile("fnstcw %0" : "=m"(control));
  if (control != kDefaultControl) std::fegetenv(&environment);
  environment.__control_word = control;
  environment.__mxcsr = _mm_getcsr();
}
void load(const std::fenv_t& environment) noexcept {
  if (environment.__control_word == kDefaultControl)
    _mm_setcsr(environment.__mxcsr);
  else
    std::fesetenv(&environment);
}
void load_default_after(const std::fenv_t& environment) noexcept {
  if (environment.__control_word == kDefaultControl)
    _mm_setcsr(kDefaultMxcsr);
  else
    std::fesetenv(FE_DFL_ENV);
}
#else
void save(std::fenv_t& environment) noexcept {
  std::fegetenv(&environment);
}
void load(const std::fenv_t& environment) noexcept {
  std::fesetenv(&environment);
}
void load_default_after(const std::fenv_t&) noexcept {
  std::fesetenv(FE_DFL_ENV);
}
#endif

}  // namespace

DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept
    : outer_(std::exchange(innermost_call, this)) {
  save(host_);
  load_default_after(host_);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  load(host_);
  innermost_call = outer_;
}

HostFloatEnvironment::HostFloatEnvironment() noexcept {
  if (innermost_call != nullptr) load(innermost_call->host_);
}

HostFloatEnvironment::~HostFloatEnvironment() {
  if (innermost_call == nullptr) return;  // a function that frees memory of the host
  save(innermost_call->host_);  // the settings and flags that the function left are the host's
  load_default_after(innermost_call->host_);
}

}  // namespace trafo
