// Everything that decides how a model is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/optim/adamw.h"
#include "engine/optim/schedule.h"
#include "engine/runtime/context.h"
#include "engine/train/period.h"

namespace trafo {

inline constexpr int64_t kSortWindow = 1 << 18;  // sentences

// The metrics that early stopping counts validations without a better one of. Values are part of
// the C ABI: never renumber, only append.
enum class StoppingMetrics : int32_t {
  first = 0,
  any = 1,  // stops when the first of them has not become better for so long
  all = 2,  // stops when none of them has
};

struct TrainOptions {
  // --- the step; a run cannot be continued with other values (see fixed_options_json) ---
  double learn_rate = 5e-4;  // peak
  ScheduleKind schedule = ScheduleKind::inverse_sqrt;
  int64_t warmup = 4000;         // updates with a linearly rising rate
  int64_t schedule_updates = 0;  // cosine and linear: the update that arrives at final_rate
  double final_rate = 0;
  double label_smoothing = 0.1;
  double clip_norm = 1.0;  // global norm of the mean gradient; 0: no clipping
  double weight_decay = 0;
  bool decay_norms_and_biases = true;  // false: weight_decay is for matrices only
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  OptimizerStates optimizer_states = OptimizerStates::float32;  // eight_bit: not for float64 models
  // Share of every update's weights in their running mean, which is what is validated and saved to
  // be used; 0: none is kept.
  double ema_alpha = 0;
  int64_t gradient_accumulation =
      1;  // micro-batches an update; the last one of an epoch may have fewer
  Recompute recompute = Recompute::none;  // changes memory and time, never a bit; not fixed
  // CUDA: the kernel of every matrix product is the fastest of the library's proposals instead of
  // the first. A run directory keeps which, so that a run goes on with the same bits; not fixed.
  bool autotune_gemm = false;
  uint64_t seed = 1;                  // of dropout and of the data order
  int64_t max_non_finite_steps = 10;  // of not finite loss or gradient; more: NON_FINITE

  // --- data, used where text becomes a corpus; fixed as well ---
  int64_t batch_tokens = 4096;  // target tokens a micro-batch
  int64_t max_length = 256;     // pieces a side; longer pairs are dropped and counted
  // BatcherOptions::sort_window; 0: kSortWindow, so that corpora in memory and on disk are
  // shuffled alike.
  int64_t sort_window = 0;
  int64_t maxi_batch = 0;       // batches sorted by length together at most; 0: sort_window decides
  double max_length_ratio = 0;  // pairs whose sides differ more are dropped and counted; 0: any
  bool drop_identical = false;  // pairs with the same text on both sides are, too
  // Sampled segmentations of the training text, new in every epoch: see SubwordSampling.
  double source_alpha = 0, target_alpha = 0;
  bool batch_fit = false;  // batch_tokens is chosen: the largest that memory has room for

  // --- memory: a run whose plan needs more is refused ---
  int64_t memory_limit = 0;  // bytes; 0: what the device has free

  // --- the end of a run: the first limit that is reached; all 0: until it is stopped ---
  int64_t after_updates = 0;
  int64_t after_epochs = 0;
  int64_t after_tokens = 0;    // target tokens
  int64_t early_stopping = 0;  // validations in a row without a better metric; 0: never
  StoppingMetrics early_stopping_on = StoppingMetrics::first;

  // --- what happens on the way ---
  Period log_freq{100, PeriodUnit::updates};
  int64_t log_first = 0;                         // the first so many updates are displayed as well
  Period valid_freq{1000, PeriodUnit::updates};  // and at the end; without validation data: never
  Period save_freq{1000, PeriodUnit::updates};   // and at the end; without a run directory: never
  std::vector<std::string> valid_metrics{"ce-mean-words"};  // also "bleu", "chrf"
  int64_t valid_beam = 1;                                   // 1: greedy
  double valid_normalize = 1;      // exponent of the length normalisation of a beam
  int64_t valid_batch_tokens = 0;  // source tokens translated at a time; 0: batch_tokens
  bool keep_best = true;           // save at every best metric, and keep the best of each
  int64_t keep_last = 3;           // checkpoints
  // At the end the mean of so many of the newest checkpoints, which are kept for it, is written and
  // measured; 0: not.
  int64_t average_last = 0;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TrainOptions& options);

// The learning-rate schedule of a model of this width.
ScheduleOptions schedule_options(const TrainOptions& options, int64_t width);

// The values a run keeps from its first update to its last, as a JSON object.
std::string fixed_options_json(const TrainOptions& options);

}  // namespace trafo
