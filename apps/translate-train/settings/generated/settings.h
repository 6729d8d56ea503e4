// Written by scripts/generate_options.py from schema/*.toml: change those.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trafo.h"

namespace translate_train {

// A limit of a run or, with of_phase, of a phase.
struct RunLimit {
  trafo_period period;
  bool of_phase;
};

enum class Setting : size_t {
  train_sets,
  tsv,
  data_weights,
  valid_sets,
  vocabs,
  dim_vocabs,
  parse_special,
  source_language,
  target_language,
  vocab_kind,
  mini_batch_words,
  max_length,
  long_lines,
  chat_template,
  chat_loss,
  window_stride,
  maxi_batch,
  max_length_ratio,
  drop_identical,
  begin_source,
  end_source,
  sentencepiece_alphas,
  mini_batch_fit,
  data_format,
  document_end,
  data_in_memory,
  tempdir,
  task,
  arch,
  transformer_ffn_activation,
  enc_depth,
  dec_depth,
  dim_emb,
  transformer_dim_ffn,
  transformer_heads,
  transformer_norm,
  tied_embeddings_all,
  transformer_dropout,
  transformer_dropout_attention,
  transformer_dropout_ffn,
  transformer_kv_heads,
  transformer_depth_scaling,
  output_bias,
  transformer_tied_layers,
  transformer_tied_encoder_layers,
  learn_rate,
  lr_decay,
  lr_warmup,
  label_smoothing,
  clip_norm,
  weight_decay,
  decay_norms_and_biases,
  optimizer,
  momentum,
  nesterov,
  optimizer_states,
  decay_rate,
  clip_threshold,
  scale_parameter,
  quantize_bits,
  layer_drop,
  prune_sparsity,
  prune_start,
  prune_end,
  prune_every,
  keep_zeros,
  teacher,
  teacher_weight,
  teacher_temperature,
  objective,
  mask_probability,
  dpo_beta,
  dpo_label_smoothing,
  orpo_beta,
  kto_beta,
  kto_desirable_weight,
  kto_undesirable_weight,
  reference_model,
  exponential_smoothing,
  ema_decay,
  optimizer_delay,
  lanes,
  communication_dtype,
  freeze,
  lora_rank,
  lora_alpha,
  lora_targets,
  seed,
  phase,
  after,
  after_epochs,
  early_stopping,
  early_stopping_on,
  pretrained_model,
  base_precision,
  restart_validation,
  valid_freq,
  save_freq,
  valid_metrics,
  beam_size,
  normalize,
  keep_best,
  keep_last,
  average_last,
  device,
  devices,
  cpu_threads,
  precision,
  recompute,
  autotune_gemm,
  memory_limit,
  workspace,
  cuda_graphs,
  fused_kernels,
  disp_freq,
  log_format,
  progress,
  tensorboard,
  quiet,
  model,
  translate_max_length,
  translate_min_length,
  translate_alignment_layer,
  translate_end_source,
  translate_begin_source,
  translate_beam_size,
  translate_normalize,
  translate_repetition_penalty,
  translate_presence_penalty,
  translate_frequency_penalty,
  translate_no_repeat_ngram_size,
  translate_temperature,
  translate_sampling_topk,
  translate_sampling_topp,
  translate_min_p,
  translate_seed,
  translate_mini_batch_words,
  eval_tokenize,
  eval_tokenize_model,
  eval_lowercase,
  eval_confidence,
  eval_resamples,
  eval_seed,
};
inline constexpr size_t kSettingCount = 143;

// Values of flags that set no option of the library.
struct ProgramSettings {
  std::vector<std::string> train_sets{};
  std::vector<std::string> tsv{};
  std::vector<double> data_weights{};
  std::vector<std::string> valid_sets{};
  std::vector<std::string> vocabs{};
  int64_t dim_vocabs{};
  int32_t parse_special{};
  std::string source_language{};
  std::string target_language{};
  std::string vocab_kind{};
  std::string chat_template{};
  std::vector<double> sentencepiece_alphas{};
  int32_t data_format{};
  int64_t document_end{};
  int64_t data_in_memory{};
  std::string tempdir{};
  int32_t task{};
  std::string teacher{};
  std::string reference_model{};
  double ema_decay{};
  std::vector<std::string> freeze{};
  int64_t lora_rank{};
  double lora_alpha{};
  std::vector<std::string> lora_targets{};
  std::vector<RunLimit> after{};
  int64_t after_epochs{};
  std::string pretrained_model{};
  std::string device{};
  std::vector<std::string> devices{};
  int64_t cpu_threads{};
  std::string precision{};
  std::string workspace{};
  int32_t cuda_graphs{};
  int32_t fused_kernels{};
  int32_t log_format{};
  int32_t progress{};
  std::string tensorboard{};
  int32_t quiet{};
  std::string model{};
  std::string eval_tokenize_model{};
};

}  // namespace translate_train
