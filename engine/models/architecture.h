// The architectures of schema/enums.toml, and the properties by which the engine tells them
// apart.
#pragma once

#include "engine/core/generated/option_enums.h"

namespace trafo {

struct ArchitectureInfo {
  Architecture architecture;
  bool has_encoder;  // false: one sequence holds source and target
};

// INVALID_ARGUMENT for a value that is no architecture.
const ArchitectureInfo& info_of(Architecture architecture);

}  // namespace trafo
