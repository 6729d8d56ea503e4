// The architectures that architectures.def lists, and the properties by which the engine tells them
// apart.
#pragma once

#include <cstdint>
#include <span>

namespace trafo {

// Values are part of the C ABI.
enum class Architecture : int32_t {
#define TRAFO_ARCHITECTURE(name, number, text, has_encoder, free_form) name = number,
#include "engine/models/architectures.def"
#undef TRAFO_ARCHITECTURE
};

struct ArchitectureInfo {
  Architecture architecture;
  const char* name;  // in configuration files and messages
  bool has_encoder;  // false: one sequence holds source and target
  bool free_form;    // see architectures.def
};

// All of them, in the order of architectures.def.
std::span<const ArchitectureInfo> architectures();
// INVALID_ARGUMENT for a value that is none of them.
const ArchitectureInfo& info_of(Architecture architecture);

}  // namespace trafo
