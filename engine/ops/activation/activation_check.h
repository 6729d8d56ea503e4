// A check that every op with an activation makes.
#pragma once

#include "engine/core/status.h"
#include "engine/ops/activation/activation.h"

namespace trafo {

inline void check_activation(const char* op, Activation kind) {
  require(kind == Activation::relu || kind == Activation::gelu || kind == Activation::silu ||
              kind == Activation::gelu_erf,
          ErrorCode::invalid_argument, op,
          "the activation must be relu (0), gelu (1), silu (2) or gelu_erf (3), got ",
          static_cast<int32_t>(kind));
}

}  // namespace trafo
