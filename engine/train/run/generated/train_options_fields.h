// Written by scripts/generate_options.py from schema/training.toml: change that.
// clang-format off
#pragma once

#include "engine/core/option_field.h"
#include "engine/train/run/options.h"

namespace trafo {

// visit(OptionField, member) for every member of TrainOptions.
template <class Options, class Visit>
void for_each_field_of_training(Options& o, Visit visit) {
  visit(OptionField{.name = "learning_rate", .key = "learn_rate", .fixed = true, .phase = true, .low = 0, .high = 1000000, .low_inside = false, .high_inside = false}, o.learning_rate);
  visit(OptionField{.name = "schedule", .fixed = true, .phase = true}, o.schedule);
  visit(OptionField{.name = "warmup", .fixed = true, .phase = true, .low = 0, .high = kNoLimit, .high_inside = false}, o.warmup);
  visit(OptionField{.name = "schedule_updates", .fixed = true, .phase = true, .low = 0, .high = kNoLimit, .high_inside = false}, o.schedule_updates);
  visit(OptionField{.name = "final_rate", .fixed = true, .phase = true, .low = 0, .high = 1000000, .high_inside = false}, o.final_rate);
  visit(OptionField{.name = "label_smoothing", .fixed = true, .phase = true, .low = 0, .high = 1, .high_inside = false}, o.label_smoothing);
  visit(OptionField{.name = "clip_norm", .fixed = true, .phase = true, .low = 0, .high = kNoLimit, .high_inside = false, .zero = "no clipping"}, o.clip_norm);
  visit(OptionField{.name = "weight_decay", .fixed = true, .phase = true, .low = 0, .high = 1000000, .high_inside = false}, o.weight_decay);
  visit(OptionField{.name = "decay_norms_and_biases", .fixed = true}, o.decay_norms_and_biases);
  visit(OptionField{.name = "optimizer", .fixed = true}, o.optimizer);
  visit(OptionField{.name = "momentum", .fixed = true, .low = 0, .high = 1, .high_inside = false}, o.momentum);
  visit(OptionField{.name = "nesterov", .fixed = true}, o.nesterov);
  visit(OptionField{.name = "beta1", .fixed = true, .phase = true, .low = 0, .high = 1, .high_inside = false}, o.beta1);
  visit(OptionField{.name = "beta2", .fixed = true, .phase = true, .low = 0, .high = 1, .high_inside = false}, o.beta2);
  visit(OptionField{.name = "epsilon", .fixed = true, .phase = true, .low = 0, .high = 1, .low_inside = false, .high_inside = false}, o.epsilon);
  visit(OptionField{.name = "optimizer_states", .fixed = true}, o.optimizer_states);
  visit(OptionField{.name = "decay_rate", .fixed = true, .low = -1, .high = 0}, o.decay_rate);
  visit(OptionField{.name = "clip_threshold", .fixed = true, .low = 0, .high = kNoLimit, .low_inside = false, .high_inside = false}, o.clip_threshold);
  visit(OptionField{.name = "scale_parameter", .fixed = true}, o.scale_parameter);
  visit(OptionField{.name = "square_epsilon", .fixed = true, .low = 1e-37, .high = 1, .high_inside = false}, o.square_epsilon);
  visit(OptionField{.name = "scale_epsilon", .fixed = true, .low = 0, .high = 1, .low_inside = false, .high_inside = false}, o.scale_epsilon);
  visit(OptionField{.name = "tf32", .fixed = true}, o.tf32);
  visit(OptionField{.name = "fp8", .fixed = true}, o.fp8);
  visit(OptionField{.name = "quantize_bits", .fixed = true, .low = 0, .high = 8, .zero = "no quantization"}, o.quantize_bits);
  visit(OptionField{.name = "layer_drop", .fixed = true, .phase = true, .low = 0, .high = 1, .high_inside = false, .zero = "none is skipped"}, o.layer_drop);
  visit(OptionField{.name = "prune_sparsity", .fixed = true, .low = 0, .high = 1, .high_inside = false, .zero = "no weight is pruned"}, o.prune_sparsity);
  visit(OptionField{.name = "prune_start", .fixed = true, .low = 1, .high = kNoLimit, .high_inside = false}, o.prune_start);
  visit(OptionField{.name = "prune_end", .fixed = true, .low = 0, .high = kNoLimit, .high_inside = false, .zero = "prune_start, all at once"}, o.prune_end);
  visit(OptionField{.name = "prune_every", .fixed = true, .low = 1, .high = kNoLimit, .high_inside = false}, o.prune_every);
  visit(OptionField{.name = "keep_zeros", .fixed = true}, o.keep_zeros);
  visit(OptionField{.name = "teacher_weight", .fixed = true, .phase = true, .low = 0, .high = 1}, o.teacher_weight);
  visit(OptionField{.name = "teacher_temperature", .fixed = true, .phase = true, .low = 0, .high = 1000000, .low_inside = false, .high_inside = false}, o.teacher_temperature);
  visit(OptionField{.name = "objective", .fixed = true, .phase = true}, o.objective);
  visit(OptionField{.name = "mask_probability", .fixed = true, .phase = true, .low = 0, .high = 1, .low_inside = false}, o.mask_probability);
  visit(OptionField{.name = "dpo_beta", .fixed = true, .phase = true, .low = 0, .high = 1000000, .low_inside = false, .high_inside = false}, o.dpo_beta);
  visit(OptionField{.name = "dpo_label_smoothing", .fixed = true, .phase = true, .low = 0, .high = 0.5, .high_inside = false}, o.dpo_label_smoothing);
  visit(OptionField{.name = "orpo_beta", .fixed = true, .phase = true, .low = 0, .high = 1000000, .low_inside = false, .high_inside = false}, o.orpo_beta);
  visit(OptionField{.name = "kto_beta", .fixed = true, .phase = true, .low = 0, .high = 1000000, .low_inside = false, .high_inside = false}, o.kto_beta);
  visit(OptionField{.name = "kto_desirable_weight", .fixed = true, .phase = true, .low = 0, .high = 1000000, .high_inside = false}, o.kto_desirable_weight);
  visit(OptionField{.name = "kto_undesirable_weight", .fixed = true, .phase = true, .low = 0, .high = 1000000, .high_inside = false}, o.kto_undesirable_weight);
  visit(OptionField{.name = "ema_alpha", .key = "exponential_smoothing", .fixed = true, .low = 0, .high = 1, .high_inside = false, .zero = "no EMA"}, o.ema_alpha);
  visit(OptionField{.name = "gradient_accumulation", .key = "optimizer_delay", .fixed = true, .phase = true, .low = 1, .high = 1048576}, o.gradient_accumulation);
  visit(OptionField{.name = "lanes", .fixed = true, .low = 1, .high = 65536}, o.lanes);
  visit(OptionField{.name = "communication_dtype", .fixed = true}, o.communication_dtype);
  visit(OptionField{.name = "seed", .fixed = true, .phase = true}, o.seed);
  visit(OptionField{.name = "batch_tokens", .fixed = true, .phase = true, .low = 2, .high = 268435456}, o.batch_tokens);
  visit(OptionField{.name = "max_length", .fixed = true, .phase = true, .low = 2, .high = 16777216}, o.max_length);
  visit(OptionField{.name = "long_lines", .fixed = true, .phase = true}, o.long_lines);
  visit(OptionField{.name = "chat_loss", .fixed = true, .phase = true}, o.chat_loss);
  visit(OptionField{.name = "window_stride", .fixed = true, .phase = true, .low = 0, .high = 16777216, .zero = "max_length"}, o.window_stride);
  visit(OptionField{.name = "sort_window", .fixed = true, .phase = true, .low = 0, .high = kNoLimit, .high_inside = false, .zero = "kSortWindow"}, o.sort_window);
  visit(OptionField{.name = "maxi_batch", .fixed = true, .phase = true, .low = 0, .high = 1048576, .zero = "262144 sentences"}, o.maxi_batch);
  visit(OptionField{.name = "max_length_ratio", .fixed = true, .phase = true, .low = 1, .high = 1000000, .high_inside = false, .zero = "any"}, o.max_length_ratio);
  visit(OptionField{.name = "drop_identical", .fixed = true, .phase = true}, o.drop_identical);
  visit(OptionField{.name = "begin_source"}, o.begin_source);
  visit(OptionField{.name = "end_source"}, o.end_source);
  visit(OptionField{.name = "source_alpha", .fixed = true, .phase = true, .low = 0, .high = 1000, .high_inside = false, .zero = "the best segmentation"}, o.source_alpha);
  visit(OptionField{.name = "target_alpha", .fixed = true, .phase = true, .low = 0, .high = 1000, .high_inside = false, .zero = "the best segmentation"}, o.target_alpha);
  visit(OptionField{.name = "batch_fit"}, o.batch_fit);
  visit(OptionField{.name = "recompute"}, o.recompute);
  visit(OptionField{.name = "autotune_gemm"}, o.autotune_gemm);
  visit(OptionField{.name = "memory_limit", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "what the device has free"}, o.memory_limit);
  visit(OptionField{.name = "phase", .low = 1, .high = 1048576}, o.phase);
  visit(OptionField{.name = "restart_validation"}, o.restart_validation);
  visit(OptionField{.name = "after_updates", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "never"}, o.after_updates);
  visit(OptionField{.name = "after_epochs", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "never"}, o.after_epochs);
  visit(OptionField{.name = "after_tokens", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "never"}, o.after_tokens);
  visit(OptionField{.name = "early_stopping", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "never"}, o.early_stopping);
  visit(OptionField{.name = "early_stopping_on"}, o.early_stopping_on);
  visit(OptionField{.name = "max_non_finite_steps", .low = 1, .high = 1073741824}, o.max_non_finite_steps);
  visit(OptionField{.name = "valid_freq"}, o.valid_freq);
  visit(OptionField{.name = "save_freq"}, o.save_freq);
  visit(OptionField{.name = "log_freq"}, o.log_freq);
  visit(OptionField{.name = "log_first", .low = 0, .high = kNoLimit, .high_inside = false}, o.log_first);
  visit(OptionField{.name = "valid_metrics"}, o.valid_metrics);
  visit(OptionField{.name = "valid_beam", .low = 1, .high = 1024}, o.valid_beam);
  visit(OptionField{.name = "valid_normalize", .low = 0, .high = 1000, .high_inside = false}, o.valid_normalize);
  visit(OptionField{.name = "valid_batch_tokens", .low = 0, .high = 268435456, .zero = "batch_tokens; on an accelerator up to 16384"}, o.valid_batch_tokens);
  visit(OptionField{.name = "keep_best"}, o.keep_best);
  visit(OptionField{.name = "keep_last", .low = 1, .high = kNoLimit, .high_inside = false}, o.keep_last);
  visit(OptionField{.name = "average_last", .low = 0, .high = 1000, .zero = "no average"}, o.average_last);
}

}  // namespace trafo
