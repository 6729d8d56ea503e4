// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include "engine/core/enum_names.h"
#include "engine/core/status.h"

namespace trafo {

template <>
struct EnumNames<ErrorCode> {
  static constexpr std::array<const char*, 16> names{"OK", "INVALID_ARGUMENT", "SHAPE_MISMATCH", "DTYPE_MISMATCH", "OUT_OF_MEMORY", "OUT_OF_DEVICE_MEMORY", "NOT_FOUND", "IO", "CORRUPT_FILE", "UNSUPPORTED", "CANCELLED", "DEVICE_LOST", "NON_FINITE", "VERSION", "INTERNAL", "PEER_LOST"};
};

}  // namespace trafo
