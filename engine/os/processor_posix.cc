#include "engine/os/processor.h"

#if defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace trafo::os {

bool has_arm_dot_product() noexcept {
#if defined(__linux__) && defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__) && defined(__aarch64__)
  return true;  // from the first one on
#else
  return false;
#endif
}

}  // namespace trafo::os
