// optimizer.safetensors of a checkpoint: the moments of AdamW.
//
// With float32 states: exp_avg.NAME and exp_avg_sq.NAME of every parameter, with its shape and the
// dtype of the master weights.
//
// With 8-bit states: the flat workspace in blocks of 256 elements. Parameters are in their order,
// each at the next multiple of 16 elements, with zeros between them. exp_avg and exp_avg_sq are
// int32 [blocks, 64] and hold the codes of a block byte by byte (engine/optim/state_code.h).
// exp_avg_scale and exp_avg_sq_scale are float32 [blocks].
#pragma once

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/models/model_io.h"
#include "engine/nn/parameter_store.h"
#include "engine/optim/adamw.h"

namespace trafo {

void write_moments(ByteSink& sink, Context& context, const ParameterStore& parameters,
                   const AdamW& optimizer);
// CORRUPT_FILE if a tensor is missing, unknown, damaged or of another shape or dtype.
// INVALID_ARGUMENT if the file has moments of another OptimizerStates.
void stage_moments(const ParameterStore& parameters, const SafetensorsReader& reader,
                   const AdamW& optimizer, StagedTensors& staged);

}  // namespace trafo
