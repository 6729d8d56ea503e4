// optimizer.safetensors of a checkpoint: the moments.
//
//   fp32   exp_avg.NAME and exp_avg_sq.NAME of every parameter, in its shape and the master's dtype
//   8bit   of the flat workspace as a whole (parameters in their order, each at the next multiple
//   of
//          16 elements, zeros between them), in blocks of 256: exp_avg and exp_avg_sq, int32
//          [blocks, 64], a block's codes in the order of their bytes; exp_avg_scale and
//          exp_avg_sq_scale, float32 [blocks]. engine/optim/state_code.h says what a code
//          means.
#pragma once

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/models/model_io.h"
#include "engine/nn/parameter_store.h"
#include "engine/optim/adamw.h"

namespace trafo {

void write_moments(ByteSink& sink, Context& context, const ParameterStore& parameters,
                   const AdamW& optimizer);
// CORRUPT_FILE when a tensor is missing, surplus, of another shape or dtype, or damaged;
// INVALID_ARGUMENT when the file has the other kind of moments.
void stage_moments(const ParameterStore& parameters, const SafetensorsReader& reader,
                   const AdamW& optimizer, StagedTensors& staged);

}  // namespace trafo
