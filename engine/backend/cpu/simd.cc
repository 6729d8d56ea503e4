#include "engine/backend/cpu/simd.h"

#include "engine/core/status.h"
#include "hwy/highway.h"

namespace trafo {

const char* simd_target_name() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);  // lower bits are better targets
}

void require_supported_cpu() {
  require((hwy::SupportedTargets() & HWY_TARGETS) != 0, ErrorCode::unsupported, "cpu_backend",
          "this processor lacks ", hwy::TargetName(HWY_STATIC_TARGET),
          ", the least that the CPU kernels need");
}

void refuse_float64() {
  fail(ErrorCode::unsupported, "cpu_backend",
       "this build of the engine computes in float32 alone: it has no kernels for float64 (the "
       "feature float64 of the crate, TRAFO_FLOAT64 of CMake)");
}

}  // namespace trafo
