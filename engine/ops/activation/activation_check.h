// A check that every op with an activation makes.
#pragma once

#include "engine/core/status.h"
#include "engine/ops/activation/activation.h"

namespace trafo {

inline void check_activation(const char* op, Activation kind) {
  require(kind == Activation::relu || kind == Activation::gelu || kind == Activation::silu,
          ErrorCode::invalid_argument, op,
          "the activation must be relu (0), gelu (1) or silu (2), got ",
          static_cast<int32_t>(kind));
}

}  // namespace trafo
