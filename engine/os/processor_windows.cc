#include "engine/os/processor.h"

#include "engine/os/windows_calls.h"

namespace trafo::os {

bool has_arm_dot_product() noexcept {
#if defined(__aarch64__)
  return IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE) != 0;
#else
  return false;
#endif
}

bool has_arm_bfloat16() noexcept {
  return false;  // of 64-bit ARM, Windows is not supported
}

bool may_use_amx_tiles() noexcept {
  return false;  // Windows is not asked
}

}  // namespace trafo::os
