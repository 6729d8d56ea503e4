/* Written by scripts/generate_options.py from schema/training.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_TRAINER_OPTIONS_H
#define TRAFO_GENERATED_TRAINER_OPTIONS_H

/* How the learning rate goes after the warm-up. */
#define TRAFO_SCHEDULE_CONSTANT      0 /* It stays at its peak. */
/* It falls on a line from its peak to 0 at update schedule_updates, which must be set. */
#define TRAFO_SCHEDULE_LINEAR        1
/* It falls on half a cosine from its peak to 0 at update schedule_updates, which must be set. */
#define TRAFO_SCHEDULE_COSINE        2
#define TRAFO_SCHEDULE_INVERSE_SQRT  3 /* It falls with the square root of the update. */
#define TRAFO_SCHEDULE_NOAM          4 /* The schedule of the first transformer. */
#define TRAFO_SCHEDULE_RELATIVE_STEP 5 /* It is the smaller one of its peak and 1 / sqrt(update): Adafactor's relative step. */

/* How the weights follow their gradients. */
#define TRAFO_OPTIMIZER_ADAMW     0 /* AdamW; with weight_decay 0 it is Adam. */
#define TRAFO_OPTIMIZER_SGD       1 /* Stochastic gradient descent; weight_decay is added to the gradient. */
/* Muon: orthogonalized momentum for the matrices of linear layers, AdamW for all other weights. */
#define TRAFO_OPTIMIZER_MUON      2
#define TRAFO_OPTIMIZER_LION      3 /* Lion: the sign of a momentum; weight_decay is decoupled. */
/* Adafactor: second moments of rows and columns, no first moment; weight_decay is decoupled. */
#define TRAFO_OPTIMIZER_ADAFACTOR 4

/* Storage type of the optimizer's two moments of every parameter. */
#define TRAFO_OPTIMIZER_STATES_FLOAT32 0 /* float32: 8 bytes a parameter. */
#define TRAFO_OPTIMIZER_STATES_8BIT    1 /* Codes of a byte in blocks of 256 with a scale: 2.03 bytes a parameter. */

/* The function that training minimises. */
#define TRAFO_OBJECTIVE_CROSS_ENTROPY  0 /* Cross-entropy of the labels; of a model with a teacher, word-level distillation. */
#define TRAFO_OBJECTIVE_DPO            1 /* Direct Preference Optimization, on preference pairs. */
#define TRAFO_OBJECTIVE_ORPO           2 /* Odds Ratio Preference Optimization, on preference pairs, without a reference. */
#define TRAFO_OBJECTIVE_KTO            3 /* Kahneman-Tversky Optimization, on labelled answers or preference pairs. */
#define TRAFO_OBJECTIVE_CLASSIFICATION 4 /* Cross-entropy of the labels that the head of an encoder gives to texts or tokens. */
/* Cross-entropy of masked tokens, in an encoder with the head masked-lm, on plain text. */
#define TRAFO_OBJECTIVE_MASKED_LM      5

/* Type in which ranks send each other the gradient of a lane. Sums are float32 under each. */
#define TRAFO_COMMUNICATION_FLOAT32  0 /* float32. */
/* bfloat16, half the bytes: the gradient of each lane is rounded to nearest even before it is added. */
#define TRAFO_COMMUNICATION_BFLOAT16 1

/* Treatment of lines of plain text with more than max_length tokens, in training and validation. */
#define TRAFO_LONG_LINES_DROP   0 /* They are dropped and counted. */
#define TRAFO_LONG_LINES_WINDOW 1 /* Windows of max_length tokens, for a decoder-lm. */

/* Tokens of conversations that the loss counts. */
#define TRAFO_CHAT_LOSS_ANSWERS 0 /* Those that the assistant writes, the end of each answer included. */
#define TRAFO_CHAT_LOSS_ALL     1 /* All but the first one. */

/* Whether a special token is beside a source or a prompt. */
#define TRAFO_FRAME_OFF      0 /* It is not there. */
#define TRAFO_FRAME_ON       1 /* It is there. */
#define TRAFO_FRAME_BY_MODEL 2 /* As the model was trained; of an imported decoder-lm, as its own files say. */

/* Activations that backward recomputes instead of keeping them (gradient checkpointing). Results are the same bits under each. */
#define TRAFO_RECOMPUTE_NONE      0 /* Nothing. */
#define TRAFO_RECOMPUTE_SELECTIVE 1 /* Outputs of norms and of activations, which are large and cheap. */
#define TRAFO_RECOMPUTE_FULL      2 /* Everything inside a layer. */

/* The metrics that early stopping looks at. */
#define TRAFO_STOPPING_FIRST 0 /* The metric that decides which checkpoint is best. */
#define TRAFO_STOPPING_ANY   1 /* Stops when any metric has stalled for so long. */
#define TRAFO_STOPPING_ALL   2 /* Stops when all metrics have stalled for so long. */

/* Which model of a run directory is loaded. */
#define TRAFO_RUN_BEST     0 /* Of the best checkpoint by the first metric of validation. */
#define TRAFO_RUN_LAST     1 /* Of the newest checkpoint. */
#define TRAFO_RUN_AVERAGED 2 /* The average of checkpoints (average_last, or `translate-train average`). */

#define TRAFO_METRIC_CE 1 /* bit: Cross-entropy for each label. */
#define TRAFO_METRIC_BLEU 2 /* bit: Corpus BLEU. */
#define TRAFO_METRIC_CHRF 4 /* bit: Corpus chrF2. */
#define TRAFO_METRIC_TER 8 /* bit: Translation edit rate: edits for each word of the reference, in per cent. */
#define TRAFO_METRIC_REWARD_ACCURACY 16 /* bit: Of DPO and ORPO: share of the pairs whose chosen answer has the higher reward. Of KTO: share of the answers whose reward is on the right side of the KL term. */
#define TRAFO_METRIC_REWARD_MARGIN 32 /* bit: Of DPO, ORPO and KTO: difference between the mean rewards of chosen and rejected answers. */
#define TRAFO_METRIC_ACCURACY 64 /* bit: Of classification: share of the labels that have the highest logit. */
#define TRAFO_METRIC_COUNT 7 /* metrics that this release knows */

typedef struct trafo_trainer_options {
  size_t struct_size;
  /* ---- The step. A run cannot be resumed with other values. ---- */
  double learning_rate; /* Peak of the learning rate. Default 0.002. */
  int64_t warmup; /* Updates in which the rate rises to its peak on a line. Default 1000. */
  /* The update at which cosine and linear schedules reach their end. It must be set for them. Default 0. */
  int64_t schedule_updates;
  double label_smoothing; /* Share of the target probability that is spread over the other tokens. Default 0.1. */
  double clip_norm; /* Largest global norm of the mean gradient. 0: no clipping. Default 1. */
  double weight_decay; /* Weight decay: decoupled, except that SGD adds it, times the weight, to the gradient. Default 0. */
  /* Momentum. 0: plain SGD, which keeps no state. Only the optimizers sgd and muon have it. INVALID_ARGUMENT: another value
   * than the default, with another optimizer. Default 0.95. */
  double momentum;
  /* The first beta of the update rule: the decay of the first moment in AdamW. Only the optimizers adamw, muon and lion have
   * it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0.9. */
  double beta1;
  /* The second beta of the update rule: the decay of the second moment in AdamW. Only the optimizers adamw, muon and lion have
   * it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0.98. */
  double beta2;
  /* The epsilon in the denominator of AdamW. Only the optimizers adamw and muon have it. INVALID_ARGUMENT: another value than
   * the default, with another optimizer. Default 1e-9. */
  double epsilon;
  /* The mean squares of update t have the weight t^decay_rate in the second moments. Only the optimizer adafactor has it.
   * INVALID_ARGUMENT: another value than the default, with another optimizer. Default -0.8. */
  double decay_rate;
  /* Largest root mean square of the update of a parameter, before the learning rate. Only the optimizer adafactor has it.
   * INVALID_ARGUMENT: another value than the default, with another optimizer. Default 1. */
  double clip_threshold;
  /* Added to squares of gradients: the first of the two numbers of transformers' eps. Only the optimizer adafactor has it.
   * INVALID_ARGUMENT: another value than the default, with another optimizer. Default 1e-30. */
  double square_epsilon;
  /* Least root mean square of a parameter in scale_parameter: the second of the two numbers of eps. Only the optimizer
   * adafactor has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0.001. */
  double scale_epsilon;
  /* Quantization-aware training: the weights that the model computes with are rounded to codes of 8 bits, or of 4 in groups of
   * 32, and the inputs of linear layers to int8. Gradients pass the rounding unchanged (straight-through), and the optimizer
   * works on exact weights, which files hold. 8 or 4. Default 0: no quantization. */
  int64_t quantize_bits;
  /* LayerDrop: the probability with which a batch of training skips a layer of the encoder or of the decoder (Fan et al., arXiv
   * 1909.11556). Each layer is drawn by itself, from the seed and the number of the batch. Validation and decoding run all
   * layers. Default 0: none is skipped. */
  double layer_drop;
  /* Unstructured pruning: the share of the weights of each trainable linear layer that is zero after prune_end. It rises from
   * zero at prune_start by a cubic schedule (Zhu & Gupta, arXiv 1710.01878). The weights of the least magnitude of a matrix are
   * pruned, and stay zero. Embeddings, the output projection, biases and norms are not pruned. Default 0: no weight is pruned.
   * */
  double prune_sparsity;
  int64_t prune_start; /* The update, counted from 1, before which pruning to prune_sparsity begins. Default 1. */
  int64_t prune_end; /* The update before which prune_sparsity is reached. Default 0: prune_start, all at once. */
  int64_t prune_every; /* Updates from one pruning to the next, between prune_start and prune_end. Default 100. */
  /* Share of the teacher in the loss of a model that has one: (1 - W) times the cross-entropy of the labels plus W T^2 times
   * the divergence from the teacher at teacher_temperature T. 0 does not run the teacher. Default 0.5. */
  double teacher_weight;
  /* The temperature that the logits of the teacher and of the student are divided by for the divergence. Default 1. */
  double teacher_temperature;
  /* Of masked-lm: the share of the tokens of a text that are predicted, at least one. Of these, 80 % become the mask token, 10
   * % a random token, and 10 % stay. Default 0.15. */
  double mask_probability;
  /* Of DPO: the reward of an answer is dpo_beta times the log of its probability relative to the reference. The higher, the
   * closer the model stays to the reference. Default 0.1. */
  double dpo_beta;
  /* Of DPO: share of the pairs whose answers are taken to be labelled the wrong way round (conservative DPO). Default 0. */
  double dpo_label_smoothing;
  /* Of ORPO: the loss is the cross-entropy of the chosen answer and orpo_beta times the loss of the odds ratio. Default 0.1. */
  double orpo_beta;
  /* Of KTO: the reward of an answer is kto_beta times the log of its probability relative to the reference. The higher, the
   * closer the model stays to the reference. Default 0.1. */
  double kto_beta;
  /* Of KTO: weight of the losses of desirable answers. Choose the two weights so that weight times number of answers is about
   * the same for desirable and undesirable ones. Default 1. */
  double kto_desirable_weight;
  double kto_undesirable_weight; /* Of KTO: weight of the losses of undesirable answers. Default 1. */
  /* EMA of the weights: the share that every update's weights have in it (1e-4 is usual). The EMA is what is validated and
   * saved as model.safetensors. Training continues from the weights themselves, which the model keeps and checkpoints hold as
   * unsmoothed.safetensors. Default 0: no EMA. */
  double ema_alpha;
  /* Batches whose gradients are accumulated for an update. The last update of an epoch may have fewer. Default 1. */
  int64_t gradient_accumulation;
  /* Number of parts of an update. Each part has gradient_accumulation batches. The ranks share the parts, at least one each.
   * The number decides every bit of a run, the number of ranks none. 1: one for each rank; a run that resumes keeps its own.
   * Default 1. */
  int64_t lanes;
  uint64_t seed; /* Seed of dropout and of the data order. Default 1. */
  int32_t schedule; /* TRAFO_SCHEDULE_*. How the learning rate goes after the warm-up. Default TRAFO_SCHEDULE_INVERSE_SQRT. */
  int32_t decay_norms_and_biases; /* 1: weight_decay acts on norms and biases too, and not only on matrices. Default 1. */
  int32_t optimizer; /* TRAFO_OPTIMIZER_*. How the weights follow their gradients. Default TRAFO_OPTIMIZER_ADAMW. */
  /* 1: the momentum is Nesterov's: the update is along the momentum that follows. Only the optimizers sgd and muon have it.
   * INVALID_ARGUMENT: another value than the default, with another optimizer. Default 1. */
  int32_t nesterov;
  /* TRAFO_OPTIMIZER_STATES_*. Storage type of the two moments of every parameter. float64 models have float32. Only the
   * optimizer adamw has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default
   * TRAFO_OPTIMIZER_STATES_FLOAT32. */
  int32_t optimizer_states;
  /* 1: the learning rate of a parameter is multiplied by its root mean square, at least scale_epsilon. Only the optimizer
   * adafactor has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0. */
  int32_t scale_parameter;
  /* 1: the GEMMs of a float32 model multiply in TF32 on CUDA: factors with 10 bits of mantissa, sums in float32. Weights,
   * activations and files stay float32. UNSUPPORTED on the CPU. Default 0. */
  int32_t tf32;
  /* 1: a bfloat16 model is trained with FP8 GEMMs on CUDA (compute capability 8.9 or newer): GEMMs of linear layers with at
   * least 3 x 2^20 weights (1024 x 3072), and of the output projection except for the gradient of its weight. Scales are powers
   * of two for each tensor, from its values at that moment. Weights, activations and files stay as in bfloat16 training;
   * validation and inference compute in bfloat16. UNSUPPORTED on the CPU and on older cards. Default 0. */
  int32_t fp8;
  /* 1: weights of trainable linear layers that are exactly zero stay zero: of a pruned model that is fine-tuned. A
   * prune_sparsity above 0 does the same. Default 0. */
  int32_t keep_zeros;
  /* TRAFO_OBJECTIVE_*. The function that training minimises. DPO, ORPO and KTO train on preferences: a loss for each pair or
   * answer in place of each label. Only cross-entropy has label_smoothing. Default TRAFO_OBJECTIVE_CROSS_ENTROPY. */
  int32_t objective;
  /* TRAFO_COMMUNICATION_*. Type in which ranks send each other the gradient of a lane. With bfloat16 the gradient of every lane
   * is rounded, also on one rank, so that the number of ranks changes no bit. Sums of lanes are float32. Not for float64
   * models. Default TRAFO_COMMUNICATION_FLOAT32. */
  int32_t communication_dtype;
  int32_t reserved; /* 0 */
  /* ---- Data, used where text becomes a corpus. Fixed as well. ---- */
  int64_t batch_tokens; /* Target tokens of a batch. Default 4096. */
  /* Tokens a side, or of both sides together in a decoder-lm. Longer pairs are dropped and counted; long_lines may cut text
   * without a source. Default 256. */
  int64_t max_length;
  /* Tokens from the start of a window to the start of the next one, at most max_length; with windows only. A smaller stride
   * gives tokens at the start of a window more context: those that the window before has learned are read without a loss.
   * Default 0: max_length. */
  int64_t window_stride;
  int64_t maxi_batch; /* Batches that are filled from sentences sorted by length together. Default 0: 262144 sentences. */
  double max_length_ratio; /* Largest ratio of the tokens of both sides. Other pairs are dropped and counted. Default 0: any. */
  /* Sampled segmentations of the source text, anew in every epoch: of a unigram vocabulary by probability^alpha, of a BPE
   * vocabulary with every merge left out with probability alpha. Default 0: the best segmentation. */
  double source_alpha;
  double target_alpha; /* The same for the target text. Default 0: the best segmentation. */
  /* Bytes that training may take. A run whose plan needs more is refused. Default 0: what the device has free. */
  int64_t memory_limit;
  /* TRAFO_LONG_LINES_*. Treatment of text without a source, as a document, that has more than max_length tokens. A window
   * begins without a begin token and ends without an end token, except where the document begins and ends. No token is learned
   * twice. Default TRAFO_LONG_LINES_DROP. */
  int32_t long_lines;
  int32_t chat_loss; /* TRAFO_CHAT_LOSS_*. Tokens of conversations that are learned. Default TRAFO_CHAT_LOSS_ANSWERS. */
  int32_t drop_identical; /* 1: pairs with the same text on both sides are dropped and counted. Default 0. */
  /* TRAFO_FRAME_*. Whether bos precedes the source of a pair, and plain text in place of eos, in training and then in all that
   * the model does. Of a decoder-lm. Default TRAFO_FRAME_BY_MODEL. */
  int32_t begin_source;
  /* TRAFO_FRAME_*. Whether eos follows the source of a pair, in training and then in all that the model does. Of a decoder-lm.
   * Default TRAFO_FRAME_BY_MODEL. */
  int32_t end_source;
  int32_t batch_fit; /* 1: batch_tokens is chosen: the largest that the memory has room for. Default 0. */
  /* TRAFO_RECOMPUTE_*. Activations that backward recomputes instead of keeping them: less memory for more time. It never
   * changes a bit. Default TRAFO_RECOMPUTE_NONE. */
  int32_t recompute;
  /* 1: CUDA times the kernels of small GEMMs at the start of a run, at most 5 seconds in all, and keeps those that are at least
   * 5 % faster than the library's first proposal. Checkpoints hold the choices, so that a resumed run computes the same bits. A
   * cache file of the user holds them for later runs. Nothing on the CPU and with several lanes. Default 1. */
  int32_t autotune_gemm;
  /* ---- Phases. ---- */
  /* Number of the phase. A run directory whose checkpoint is of the phase before begins this one: weights and moments stay;
   * data, learning rate, batches and teacher may be others; schedule, warm-up, epochs, best scores and patience start anew.
   * Limits count from there. A checkpoint of the same phase resumes it. Default 1. */
  int64_t phase;
  /* 1: a resumed run may validate on other text, or with another beam, than before: best scores and patience start anew then.
   * Otherwise it is refused. Default 0. */
  int32_t restart_validation;
  int32_t reserved2; /* 0 */
  /* ---- The end of a run: the first limit that is reached, counted from the start of the phase. All 0: until it is stopped.
   * ---- */
  int64_t after_updates; /* Training is done after this many updates. Default 0: never. */
  int64_t after_epochs; /* Training is done after this many epochs. Default 0: never. */
  int64_t after_tokens; /* Training is done after this many target tokens. Default 0: never. */
  /* Training is done after this many validations in a row without a better metric (see early_stopping_on). Default 0: never. */
  int64_t early_stopping;
  /* Updates in a row with a loss or gradient that is not finite, or a loss above 2 ln V + 20 a token, before the error
   * NON_FINITE. Default 10. */
  int64_t max_non_finite_steps;
  int32_t early_stopping_on; /* TRAFO_STOPPING_*. The metrics that early_stopping looks at. Default TRAFO_STOPPING_FIRST. */
  int32_t reserved3; /* 0 */
  /* ---- On the way. ---- */
  /* How often it validates, besides at the end. Nothing is validated without validation data. Default 1000 updates. */
  trafo_period valid_freq;
  /* How often it saves, besides at the end. Nothing is saved without a run directory. Default 1000 updates. */
  trafo_period save_freq;
  trafo_period log_freq; /* How often it logs (the event LOG). Default 20 updates. */
  int64_t log_first; /* This many updates at the start are logged as well. Default 0. */
  int64_t valid_beam; /* Beam of validation. 1 is greedy search. Default 1. */
  double valid_normalize; /* Length normalisation of that beam: score = log-probability / length^valid_normalize. Default 1. */
  int64_t keep_last; /* Newest checkpoints that are kept. Default 3. */
  /* At the end the mean of this many of the newest checkpoints, which are kept for it, is written to
   * ckpt/averaged/model.safetensors and measured. It needs a run directory. Default 0: no average. */
  int64_t average_last;
  /* Bits TRAFO_METRIC_*. Metrics that validation measures. Default TRAFO_METRIC_BLEU | TRAFO_METRIC_CHRF | TRAFO_METRIC_CE. */
  int32_t valid_metrics;
  /* One bit TRAFO_METRIC_*. The one of valid_metrics that decides which checkpoint is best. Default TRAFO_METRIC_BLEU. */
  int32_t first_metric;
  int32_t keep_best; /* 1: the best checkpoint of every metric is kept as well. Default 1. */
  int32_t reserved4; /* 0 */
} trafo_trainer_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_options_init(trafo_trainer_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_TRAINER_OPTIONS_H */
