// optimizer.safetensors of a checkpoint: the states of the optimizer (Optimizer::states).
//
// STATE.NAME of every parameter, with its shape and the dtype of the master weights, as exp_avg and
// exp_avg_sq of AdamW.
//
// With 8-bit states of AdamW: the flat workspace in blocks of 256 elements. Parameters are in their
// order, each at the next multiple of 16 elements, with zeros between them. exp_avg and exp_avg_sq
// are int32 [blocks, 64] and hold the codes of a block byte by byte (engine/quant/state_code.h).
// exp_avg_scale and exp_avg_sq_scale are float32 [blocks].
//
// Of Adafactor: exp_avg_sq_row.NAME [rows] and exp_avg_sq_col.NAME [columns] of every parameter. A
// vector is a matrix of one row.
//
// The file is the same if each rank of a group has the states of a shard.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/memory/host_buffer.h"
#include "engine/models/model_io.h"
#include "engine/nn/parameter_store.h"
#include "engine/optim/optimizer.h"
#include "engine/train/parallel/training_group.h"

namespace trafo {

// The states of all parameters in host memory, one buffer for each tensor. Collective;
// empty on other ranks than 0.
std::vector<HostBuffer> gather_states(Context& context, const ParameterStore& parameters,
                                      const Optimizer& optimizer, const TrainingGroup& group,
                                      const HostAllocator& allocate = plain_host_buffer);

// The tensors of the file. They point to `gathered`, which gather_states() returned.
std::vector<TensorEntry> state_entries(const ParameterStore& parameters, const Optimizer& optimizer,
                                       std::span<const HostBuffer> gathered);
// CORRUPT_FILE if a tensor is missing, unknown, damaged or of another shape or dtype.
// INVALID_ARGUMENT if the file has states of another optimizer or OptimizerStates. With peers, the
// commit of `staged` on rank 0 sends them their shards, which receive_states() takes.
void stage_states(const ParameterStore& parameters, const SafetensorsReader& reader,
                  const Optimizer& optimizer, const TrainingGroup& group, StagedTensors& staged);
void receive_states(Context& context, const ParameterStore& parameters, const Optimizer& optimizer,
                    const TrainingGroup& group);

// The file of an optimizer whose states may be in shards on several ranks.
class OptimizerFile {
 public:
  // All must outlive it.
  OptimizerFile(Context& context, const ParameterStore& parameters, const Optimizer& optimizer,
                const TrainingGroup& group)
      : context_(context), parameters_(parameters), optimizer_(optimizer), group_(group) {}

  // Collective, and nothing with one rank. Collects the states on rank 0, where copy() needs them.
  void gather();
  void drop_gathered() { gathered_.reset(); }

  // With several ranks the entries point to what gather() has collected.
  TensorFile copy(const HostAllocator& allocate = plain_host_buffer) const;
  void write(ByteSink& sink) const { copy().write(sink); }
  // stage_states() for this optimizer.
  void stage(const SafetensorsReader& reader, StagedTensors& staged) const {
    stage_states(parameters_, reader, optimizer_, group_, staged);
  }

 private:
  Context& context_;
  const ParameterStore& parameters_;
  const Optimizer& optimizer_;
  TrainingGroup group_;
  std::optional<std::vector<HostBuffer>> gathered_;
};

}  // namespace trafo
