// The step level of training: batches in, one update of the weights out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/models/model.h"
#include "engine/optim/adamw.h"
#include "engine/optim/clip.h"
#include "engine/text/batcher.h"
#include "engine/train/options.h"
#include "engine/train/state.h"

namespace trafo {

struct StepResult {
  int64_t update = 0;        // updates applied so far, this one included unless it was skipped
  double loss = 0;           // mean per label, with label smoothing
  double nll = 0;            // mean per label, without
  double grad_norm = 0;      // global norm of the mean loss's gradient, before clipping
  double learning_rate = 0;  // of this update
  double labels = 0;         // what the means are divided by: the sum of the target weights
  int64_t source_tokens = 0, target_tokens = 0;  // read by the encoder and by the decoder
  int64_t sentences = 0;
  bool skipped = false;  // loss or gradient was not finite: weights, moments and schedule untouched
};

// Context and model must outlive the trainer. One thread at a time.
class Trainer {
 public:
  Trainer(Context& context, Model& model, const TrainOptions& options);

  // Forward and backward over each micro-batch, then one clipped AdamW update with the gradient of
  // the mean loss over all their labels. Errors: INVALID_ARGUMENT for no batch or no label that
  // counts; NON_FINITE after max_bad_steps_in_a_row skipped updates, and whatever the model
  // throws. After any error but NON_FINITE the trainer is as it was before the call.
  StepResult step(std::span<const Batch> micro_batches);
  // The same from host memory; one micro-batch is on the device at a time.
  StepResult step(std::span<const PackedBatchHost> micro_batches);

  const TrainOptions& options() const { return options_; }
  const TrainerState& state() const { return state_; }
  double learning_rate(int64_t update) const { return schedule_(update); }  // update 1, 2, ...

  // What a checkpoint holds besides the weights. `optimizer.safetensors` has the tensors
  // exp_avg.NAME and exp_avg_sq.NAME of every parameter.
  void write_optimizer(ByteSink& sink) const;
  // Nothing has changed if it throws CORRUPT_FILE.
  void restore(const SafetensorsReader& optimizer, const TrainerState& state);

 private:
  using BatchAt = std::function<Batch(size_t)>;
  StepResult step(size_t count, double labels, const BatchAt& batch_at);
  // Backward over one micro-batch; its loss stays on the device.
  ops::CrossEntropyOutput accumulate(const Batch& batch, double labels, StepResult& result);
  // An accelerator gets the division by the label count with the loss: its upstream gradient is
  // then known to be one, and nothing has to be read before the end of the step.
  bool mean_on_device() const { return context_.device().kind != DeviceKind::cpu; }
  void update(const GradientNorm& norm, StepResult& result);

  Context& context_;
  Model& model_;
  TrainOptions options_;
  Schedule schedule_;
  AdamW optimizer_;
  TrainerState state_;
};

}  // namespace trafo
