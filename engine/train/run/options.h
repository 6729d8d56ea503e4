// How a model is trained. The table is engine/options/training.toml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/runtime/context.h"
#include "engine/train/run/period.h"

namespace trafo {

// Sentences that are sorted by length together. It is one for corpora in memory and on disk, so
// that both are shuffled alike.
inline constexpr int64_t kSortWindow = 1 << 18;

struct TrainOptions {
  // options: begin TrainOptions (scripts/generate_options.py)
  // clang-format off
  // --- The step. A run cannot be resumed with other values. ---
  double learning_rate = 0.002;  // Peak of the learning rate.
  // How the learning rate goes after the warm-up.
  ScheduleKind schedule = ScheduleKind::inverse_sqrt;
  int64_t warmup = 1000;  // Updates in which the rate rises to its peak on a line.
  // The update at which cosine and linear schedules reach their end. It must be set for them.
  int64_t schedule_updates = 0;
  double final_rate = 0;  // The rate at the end of cosine and linear schedules.
  // Share of the target probability that is spread over the other tokens.
  double label_smoothing = 0.1;
  double clip_norm = 1;  // Largest global norm of the mean gradient. 0: no clipping.
  // Weight decay: decoupled in AdamW and Muon; SGD adds it, times the weight, to the gradient.
  double weight_decay = 0;
  // Whether weight_decay acts on norms and biases too, and not only on matrices.
  bool decay_norms_and_biases = true;
  OptimizerKind optimizer = OptimizerKind::adamw;  // How the weights follow their gradients.
  // Momentum of SGD and Muon; AdamW has none. 0: plain SGD, which keeps no state.
  double momentum = 0.95;
  // Whether the momentum of SGD and Muon is Nesterov's: the update is along the momentum that
  // follows.
  bool nesterov = true;
  // Decay of the first moment of AdamW, also of the weights that follow it under Muon.
  double beta1 = 0.9;
  // Decay of the second moment of AdamW, also of the weights that follow it under Muon.
  double beta2 = 0.98;
  double epsilon = 1e-9;  // AdamW's epsilon.
  // Storage type of AdamW's two moments of every parameter. INVALID_ARGUMENT: 8 bits with another
  // optimizer. float64 models have float32.
  OptimizerStates optimizer_states = OptimizerStates::float32;
  // Whether the GEMMs of a float32 model multiply in TF32 on CUDA: factors with 10 bits of
  // mantissa, sums in float32. Weights, activations and files stay float32. UNSUPPORTED on the
  // CPU.
  bool tf32 = false;
  // Whether a bfloat16 model is trained with FP8 GEMMs on CUDA (compute capability 8.9 or newer):
  // GEMMs of linear layers with at least 3 x 2^20 weights (1024 x 3072), and of the output
  // projection except for the gradient of its weight. Scales are powers of two for each tensor,
  // from its values at that moment. Weights, activations and files stay as in bfloat16 training;
  // validation and inference compute in bfloat16. UNSUPPORTED on the CPU and on older cards.
  bool fp8 = false;
  // Quantization-aware training: the weights that the model computes with are rounded to codes of
  // 8 bits, or of 4 in groups of 32, and the inputs of linear layers to int8. Gradients pass the
  // rounding unchanged (straight-through), and the optimizer works on exact weights, which files
  // hold. 8 or 4. 0: no quantization.
  int64_t quantize_bits = 0;
  // LayerDrop: the probability with which a batch of training skips a layer of the encoder or of
  // the decoder (Fan et al., arXiv 1909.11556). Each layer is drawn by itself, from the seed and
  // the number of the batch. Validation and decoding run all layers. 0: none is skipped.
  double layer_drop = 0;
  // Unstructured pruning: the share of the weights of each trainable linear layer that is zero
  // after prune_end. It rises from zero at prune_start by a cubic schedule (Zhu & Gupta, arXiv
  // 1710.01878). The weights of the least magnitude of a matrix are pruned, and stay zero.
  // Embeddings, the output projection, biases and norms are not pruned. 0: no weight is pruned.
  double prune_sparsity = 0;
  // The update, counted from 1, before which pruning to prune_sparsity begins.
  int64_t prune_start = 1;
  // The update before which prune_sparsity is reached. 0: prune_start, all at once.
  int64_t prune_end = 0;
  // Updates from one pruning to the next, between prune_start and prune_end.
  int64_t prune_every = 100;
  // Whether weights of trainable linear layers that are exactly zero stay zero: of a pruned model
  // that is fine-tuned. A prune_sparsity above 0 does the same.
  bool keep_zeros = false;
  // Share of the teacher in the loss of a model that has one: (1 - W) times the cross-entropy of
  // the labels plus W T^2 times the divergence from the teacher at teacher_temperature T. 0 does
  // not run the teacher.
  double teacher_weight = 0.5;
  // The temperature that the logits of the teacher and of the student are divided by for the
  // divergence.
  double teacher_temperature = 1;
  // EMA of the weights: the share that every update's weights have in it (1e-4 is usual). The EMA
  // is what is validated and saved as model.safetensors. Training continues from the weights
  // themselves, which the model keeps and checkpoints hold as unsmoothed.safetensors. 0: no EMA.
  double ema_alpha = 0;
  // Batches whose gradients are accumulated for an update. The last update of an epoch may have
  // fewer.
  int64_t gradient_accumulation = 1;
  // Number of parts of an update. Each part has gradient_accumulation batches. The ranks share
  // the parts, at least one each. The number decides every bit of a run, the number of ranks
  // none. 1: one for each rank; a run that resumes keeps its own.
  int64_t lanes = 1;
  // Type in which ranks send each other the gradient of a lane. With bfloat16 the gradient of
  // every lane is rounded, also on one rank, so that the number of ranks changes no bit. Sums of
  // lanes are float32. Not for float64 models.
  CommunicationDType communication_dtype = CommunicationDType::float32;
  uint64_t seed = 1;  // Seed of dropout and of the data order.

  // --- Data, used where text becomes a corpus. Fixed as well. ---
  int64_t batch_tokens = 4096;  // Target tokens of a batch.
  int64_t max_length = 256;  // Tokens a side. Longer pairs are dropped and counted.
  int64_t sort_window = 0;  // Sentences that are sorted by length together. 0: kSortWindow.
  // Batches that are filled from sentences sorted by length together. 0: 262144 sentences.
  int64_t maxi_batch = 0;
  // Largest ratio of the tokens of both sides. Other pairs are dropped and counted. 0: any.
  double max_length_ratio = 0;
  // Whether pairs with the same text on both sides are dropped and counted.
  bool drop_identical = false;
  // Sampled segmentations of the source text, anew in every epoch: of a unigram vocabulary by
  // probability^alpha, of a BPE vocabulary with every merge left out with probability alpha. 0:
  // the best segmentation.
  double source_alpha = 0;
  double target_alpha = 0;  // The same for the target text. 0: the best segmentation.
  // Whether batch_tokens is chosen: the largest that the memory has room for.
  bool batch_fit = false;
  // Activations that backward recomputes instead of keeping them: less memory for more time. It
  // never changes a bit.
  Recompute recompute = Recompute::none;
  // Whether CUDA times the kernels of small GEMMs at the start of a run, at most 5 seconds in
  // all, and keeps those that are at least 5 % faster than the library's first proposal.
  // Checkpoints hold the choices, so that a resumed run computes the same bits. A cache file of
  // the user holds them for later runs. Nothing on the CPU and with several lanes.
  bool autotune_gemm = true;
  // Bytes that training may take. A run whose plan needs more is refused. 0: what the device has
  // free.
  int64_t memory_limit = 0;

  // --- Phases. ---
  // Number of the phase. A run directory whose checkpoint is of the phase before begins this one:
  // weights and moments stay; data, learning rate, batches and teacher may be others; schedule,
  // warm-up, epochs, best scores and patience start anew. Limits count from there. A checkpoint
  // of the same phase resumes it.
  int64_t phase = 1;
  // Whether a resumed run may validate on other text, or with another beam, than before: best
  // scores and patience start anew then. Otherwise it is refused.
  bool restart_validation = false;

  // --- The end of a run: the first limit that is reached, counted from the start of the phase.
  // All 0: until it is stopped. ---
  int64_t after_updates = 0;  // Training is done after this many updates. 0: never.
  int64_t after_epochs = 0;  // Training is done after this many epochs. 0: never.
  int64_t after_tokens = 0;  // Training is done after this many target tokens. 0: never.
  // Training is done after this many validations in a row without a better metric (see
  // early_stopping_on). 0: never.
  int64_t early_stopping = 0;
  // The metrics that early_stopping looks at.
  StoppingMetrics early_stopping_on = StoppingMetrics::first;
  // Updates in a row with a loss or gradient that is not finite, or a loss above 2 ln V + 20 a
  // token, before the error NON_FINITE.
  int64_t max_non_finite_steps = 10;

  // --- On the way. ---
  // How often it validates, besides at the end. Nothing is validated without validation data.
  Period valid_freq{1000, PeriodUnit::updates};
  // How often it saves, besides at the end. Nothing is saved without a run directory.
  Period save_freq{1000, PeriodUnit::updates};
  Period log_freq{20, PeriodUnit::updates};  // How often it logs (the event LOG).
  int64_t log_first = 0;  // This many updates at the start are logged as well.
  // Metrics that validation measures.
  std::vector<std::string> valid_metrics{"bleu", "chrf", "ce-mean-words"};
  int64_t valid_beam = 1;  // Beam of validation. 1 is greedy search.
  // Length normalisation of that beam: score = log-probability / length^valid_normalize.
  double valid_normalize = 1;
  // Source tokens that validation translates at a time. 0: batch_tokens; on an accelerator up to
  // 16384.
  int64_t valid_batch_tokens = 0;
  bool keep_best = true;  // Whether the best checkpoint of every metric is kept as well.
  int64_t keep_last = 3;  // Newest checkpoints that are kept.
  // At the end the mean of this many of the newest checkpoints, which are kept for it, is written
  // to ckpt/averaged/model.safetensors and measured. It needs a run directory. 0: no average.
  int64_t average_last = 0;
  // clang-format on
  // options: end
  // Whether another thread writes checkpoints while training continues. No value: on an
  // accelerator.
  std::optional<bool> background_saves;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TrainOptions& options);

// The learning-rate schedule of a model of this width.
ScheduleOptions schedule_options(const TrainOptions& options, int64_t width);
OptimizerOptions optimizer_options(const TrainOptions& options);

// The values a run keeps from its first update to its last, as a JSON object.
std::string fixed_options_json(const TrainOptions& options);

}  // namespace trafo
