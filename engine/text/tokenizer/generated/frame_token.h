// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include "engine/core/enum_names.h"

namespace trafo {

// Whether a special token is beside a source or a prompt. Values are part of the C ABI.
enum class FrameToken : int32_t {
  // It is not there.
  off = 0,
  // It is there.
  on = 1,
  // As the model was trained; of an imported decoder-lm, as its own files say.
  by_model = 2,
};
template <>
struct EnumNames<FrameToken> {
  static constexpr std::array<const char*, 3> names{"off", "on", "model"};
};

}  // namespace trafo
