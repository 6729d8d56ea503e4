#include "engine/models/architecture.h"

#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr ArchitectureInfo kArchitectures[] = {
#define TRAFO_ARCHITECTURE(name, has_encoder) {Architecture::name, has_encoder},
#include "engine/models/generated/architectures.def"
#undef TRAFO_ARCHITECTURE
};

}  // namespace

const ArchitectureInfo& info_of(Architecture architecture) {
  for (const ArchitectureInfo& info : kArchitectures)
    if (info.architecture == architecture) return info;
  fail(ErrorCode::invalid_argument, "model_config", "unknown architecture ",
       static_cast<int32_t>(architecture));
}

}  // namespace trafo
