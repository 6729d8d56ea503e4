// C arguments of ops as engine structs.
#pragma once

#include "capi/src/handles.h"
#include "engine/core/philox.h"
#include "engine/ops/activation/activation.h"

namespace trafo::capi {

// NULL: no dropout. The op checks the probability.
inline Dropout to_dropout(const Call& call, const trafo_dropout* dropout) {
  if (!dropout) return {};
  call.reserved(dropout->reserved);
  return {dropout->p, dropout->seed, dropout->step, dropout->dropout_id};
}

inline Activation to_activation(const Call& call, int32_t value) {
  if (value < TRAFO_RELU || value > TRAFO_GELU_ERF)
    call.refuse_argument("activation", " is unknown: ", value);
  return static_cast<Activation>(value);
}

}  // namespace trafo::capi
