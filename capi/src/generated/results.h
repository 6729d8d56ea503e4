// Written by scripts/generate_options.py from schema/results.toml: change that.
// clang-format off
#pragma once

#include "capi/include/trafo.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/run/event.h"

namespace trafo::capi {

// Leaves batch_tokens, limit_bytes, device_bytes, free_bytes zero.
inline trafo_memory_plan to_c(const MemoryPlan& o) {
  trafo_memory_plan c{};
  c.struct_size = sizeof c;
  c.weights_bytes = o.weights;
  c.gradients_bytes = o.gradients;
  c.optimizer_bytes = o.optimizer;
  c.activations_bytes = o.activations;
  c.total_bytes = o.total;
  c.teacher_bytes = o.teacher;
  return c;
}

// Borrows the texts of `o`; leaves metrics, best_metric, best_update, improved, deciding_metric, objective_metrics zero.
inline trafo_event to_c(const TrainEvent& o) {
  trafo_event c{};
  c.struct_size = sizeof c;
  c.kind = static_cast<int32_t>(o.kind);
  c.stop = static_cast<int32_t>(o.reason);
  c.update = o.update;
  c.epoch = o.epoch;
  c.epoch_fraction = o.epoch_fraction;
  c.loss = o.loss;
  c.nll = o.nll;
  c.grad_norm = o.grad_norm;
  c.learning_rate = o.learning_rate;
  c.target_tokens = o.target_tokens;
  c.source_tokens = o.source_tokens;
  c.target_tokens_per_second = o.target_tokens_per_second;
  c.source_tokens_per_second = o.source_tokens_per_second;
  c.elapsed_seconds = o.elapsed_seconds;
  c.eta_seconds = o.eta_seconds;
  c.memory_bytes = o.memory_bytes;
  c.peak_memory_bytes = o.peak_memory_bytes;
  c.skipped_updates = o.skipped_updates;
  c.stalled = o.stalled;
  c.message = {o.message.data(), o.message.size()};
  c.path = {o.path.data(), o.path.size()};
  return c;
}

}  // namespace trafo::capi
