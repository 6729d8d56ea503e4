/*
 * Trafo: models and training. Include trafo.h; its rules hold here.
 *
 * A token is an id of the vocabulary, which represents a SentencePiece subword. Lengths in tokens count the final </s>.
 */
#ifndef TRAFO_MODELS_H
#define TRAFO_MODELS_H

#include "trafo_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_model trafo_model;

/* options: begin constants of trafo_model_config (scripts/generate_options.py) */
/* Kinds of models. */
#define TRAFO_ENCODER_DECODER 0 /* Encoder and decoder with cross-attention. */
#define TRAFO_DECODER_LM      1 /* `source <eos> target <eos>` in one causal stream. */

/* The norm of a decoder-lm. */
#define TRAFO_NORM_LAYER 0 /* Layer norm. */
#define TRAFO_NORM_RMS   1 /* RMS norm, without biases. A decoder-lm only. */

/* How a model knows the position of a token. */
#define TRAFO_POSITIONS_STANDARD 0 /* Sinusoidal (encoder-decoder) or learned (decoder-lm). */
#define TRAFO_POSITIONS_ROTARY   1 /* Rotary position embedding of queries and keys. A decoder-lm only. */

/* The feed-forward blocks of a decoder-lm. */
#define TRAFO_FFN_PLAIN  0 /* Two linear layers with an activation between them. */
#define TRAFO_FFN_SWIGLU 1 /* A gated unit with SiLU. A decoder-lm only. */
/* options: end */

#define TRAFO_TIED_LAYERS 32 /* the most layers of a stack that shares parameters */

typedef struct trafo_model_config {
  /* options: begin trafo_model_config (scripts/generate_options.py) */
  size_t struct_size;
  int64_t vocabulary; /* Tokens of the vocabulary. It must be set. */
  int64_t encoder_layers; /* Layers of the encoder. A decoder-lm has none and ignores it. Default 6. */
  int64_t decoder_layers; /* Layers of the decoder. Default 6. */
  int64_t width; /* Width of the residual stream: an even multiple of heads. Default 512. */
  int64_t ffn_width; /* Width inside the feed-forward layers. Default 2048. */
  int64_t heads; /* Attention heads. Default 8. */
  int64_t max_positions; /* Longest sequence that either side may have, in tokens. Default 1024. */
  double dropout; /* Dropout of the embeddings and of the output of every block. Default 0.1. */
  double attention_dropout; /* Dropout of attention probabilities. Default 0. */
  double ffn_dropout; /* Dropout after the activation of the feed-forward layers. Default 0. */
  double norm_epsilon; /* Epsilon of the norms. Default 1e-5. */
  /* Heads of keys and values (grouped-query attention), with rotary positions. Default 0: as many as heads. */
  int64_t kv_heads;
  double rope_theta; /* Base of the angles of rotary positions. Default 10000. */
  /* Width of an attention head. A model whose heads were pruned has it, and one with rotary positions may. Default 0: width /
   * heads. */
  int64_t head_width;
  /* The angles of rotary positions are divided by it, all of them or, with rope_original_positions, the slow ones. Default 1.
   * */
  double rope_factor;
  /* Positions that a model was trained with before rope_factor (Llama 3.1): the factor divides the angles of pairs that turn
   * fewer than rope_low_turns times in them. It divides the angles of pairs of more turns less and less. Default 0: rope_factor
   * divides all angles. */
  int64_t rope_original_positions;
  /* Turns in rope_original_positions positions up to which rope_factor divides an angle whole. Default 1. */
  double rope_low_turns;
  /* Turns in rope_original_positions positions from which on rope_factor does not change an angle; above rope_low_turns.
   * Default 4. */
  double rope_high_turns;
  /* Width inside the feed-forward layers of the encoder, where pruning left it another one than the decoder has. Default 0:
   * ffn_width. */
  int64_t encoder_ffn_width;
  /* Attention heads of the encoder, where pruning left it another number than the decoder has. With head_width. Default 0:
   * heads. */
  int64_t encoder_heads;
  /* Which layers of the decoder share their parameters: a number from 1 to decoder_layers for each layer, and layers with the
   * same number share. For up to 32 layers. Default: none are shared. 0 ends the list. */
  uint8_t decoder_tied_layers[32];
  /* The same for the layers of the encoder and encoder_layers. Default: none are shared. 0 ends the list. */
  uint8_t encoder_tied_layers[32];
  int32_t architecture; /* Kind of model. Default TRAFO_ENCODER_DECODER. */
  int32_t activation; /* Activation of the feed-forward layers. Default TRAFO_RELU. */
  int32_t pre_norm; /* 1: the norm precedes each block instead of following it. Default 1. */
  /* 1: source, target and output share one embedding matrix. Otherwise there are three, two in a decoder-lm. Default 1. */
  int32_t tied_embeddings;
  int32_t norm; /* TRAFO_NORM_*. Norm of a decoder-lm; an encoder-decoder has layer norm. Default TRAFO_NORM_LAYER. */
  int32_t positions; /* TRAFO_POSITIONS_*. Positions of a decoder-lm. Default TRAFO_POSITIONS_STANDARD. */
  int32_t ffn; /* TRAFO_FFN_*. Feed-forward blocks of a decoder-lm. Default TRAFO_FFN_PLAIN. */
  /* 1: all linear layers have biases. A model with RMS norm may have qkv_biases, attention_output_bias and ffn_biases instead.
   * Default 1. */
  int32_t biases;
  /* 1: the initial weights of layer l are divided by the root of l (Zhang et al., arXiv 1908.11365). Deep models begin better.
   * Default 0. */
  int32_t depth_scaled_init;
  int32_t output_bias; /* 1: the output layer has a bias, in a model with biases. GPT-2 has none. Default 1. */
  /* 1: queries, keys and values have biases in a model that has no others (biases is 0), as in Qwen2. Default 0. */
  int32_t qkv_biases;
  int32_t attention_output_bias; /* 1: the output of an attention has a bias in a model without biases. Default 0. */
  int32_t ffn_biases; /* 1: the feed-forward layers have biases in a model without biases. Default 0. */
  /* Type of the computation: float32; bfloat16 on CUDA, with float32 master copies of the parameters, which the optimizer works
   * on and files hold; float64 on the CPU, for gradient checks. Not part of the model's file. Default TRAFO_FLOAT32. */
  int32_t precision;
  /* options: end */
} trafo_model_config;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_init(trafo_model_config *config, size_t struct_size);
/* Fills a config, whose struct_size is set, with a preset by task, for example "small" (docs/reference/options.md has a table). Fields that
 * the preset does not name get their defaults; vocabulary is the usual size of a new vocabulary. NOT_FOUND lists the names.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_preset(trafo_model_config *config, const char *name,
                                                                size_t name_length);
/* A model with random parameters, which follow from `seed`. UNSUPPORTED: the device does not compute in this precision. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_new(trafo_context *context, const trafo_model_config *config,
                                                      uint64_t seed, trafo_model **out);
/* The same with the factors of trafo_model_factorize: a matrix that is two factors in the model.safetensors `path` is two factors of the
 * same rank in the new model. Values of the file are not read: see trafo_model_load_weights, which needs a model of this form. A model of a
 * run that resumes is made with its checkpoint's file. INVALID_ARGUMENT: the configuration has no such matrix, or one that is too small
 * for the rank. NOT_FOUND, IO, CORRUPT_FILE. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_new_like(trafo_context *context, const trafo_model_config *config, uint64_t seed,
                                                           const char *path, size_t path_length, trafo_model **out);
/* Loads a model.safetensors of trafo_model_save or of a training run, in float32. A file of a checkpoint is checked against its
 * manifest.json. NOT_FOUND, IO, CORRUPT_FILE, VERSION. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load(trafo_context *context, const char *path, size_t path_length,
                                                       trafo_model **out);
/* The same for a model that computes in `precision`: TRAFO_FLOAT32 or, on CUDA, TRAFO_BFLOAT16. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_as(trafo_context *context, const char *path, size_t path_length,
                                                          int32_t precision, trafo_model **out);
/* The same with int8 weights, for translation and scoring on a CPU: the matrices are quantized while they are read, with a scale for each
 * row, and no float copy of them is kept. trafo_model_save then writes a file with int8 weights, about a quarter as large;
 * trafo_model_load reads such a file as it is, as this function does. The model cannot be trained, exported or averaged: UNSUPPORTED.
 * UNSUPPORTED: a context of a GPU. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_int8(trafo_context *context, const char *path, size_t path_length,
                                                            trafo_model **out);
/* How trafo_model_quantize rounds weights. */
#define TRAFO_QUANTIZE_NEAREST 0 /* each weight to the nearest code */
#define TRAFO_QUANTIZE_GPTQ    1 /* int4, each weight with the error of the ones before it (Frantar et al., arXiv 2210.17323) */

typedef struct trafo_quantize_options {
  size_t struct_size;
  int32_t bits;                        /* 8 (default): a scale for each row; 4: a scale for each 32 columns of a row */
  int32_t method;                      /* TRAFO_QUANTIZE_NEAREST (default) or TRAFO_QUANTIZE_GPTQ */
  const trafo_string_view *keep_float; /* patterns of names as of trafo_model_freeze: matrices that stay float32; default none */
  size_t keep_float_count;
  const trafo_tokenizer *tokenizer;    /* of the calibration pairs; default NULL */
  const trafo_corpus *calibration;     /* pairs that show what the layers multiply; TRAFO_QUANTIZE_GPTQ needs them; default NULL */
} trafo_quantize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_quantize_options_init(trafo_quantize_options *options, size_t struct_size);
/* A model with quantized weights, for translation and scoring; `model`, a float32 model on a CPU, stays as it is. options may be NULL for
 * the defaults. The new model computes with int8 codes, also of int4 weights, which trafo_model_save writes as they are.
 * trafo_parameter_info.signal_to_noise says how much each matrix has lost: with calibration pairs, of the outputs of its layer,
 * otherwise of the weights. NOT_FOUND: a pattern matches no matrix. INVALID_ARGUMENT: calibration without a pair, or a tokenizer of
 * another vocabulary; a weight that is not finite. UNSUPPORTED: a model on a GPU, in another precision, or with int8 weights. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_quantize(trafo_model *model, const trafo_quantize_options *options,
                                                           trafo_model **out);
/* Loads a model of a run directory, with one checkpoint or more (docs/guide/run-directory.md). which: TRAFO_RUN_BEST, TRAFO_RUN_LAST or
 * TRAFO_RUN_AVERAGED. The best one is by the first metric of the run's validation. `precision` and the other errors as above; of a run
 * that translate-train made, RUN/vocab.spm is the tokenizer. NOT_FOUND: the run has no such model; the message says why. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_run(trafo_context *context, const char *run_directory,
                                                           size_t run_directory_length, int32_t which, int32_t precision,
                                                           trafo_model **out);
/* The file that `path` means where a model is asked for: the file itself, the model.safetensors in a directory, or, of a run
 * directory, the model of TRAFO_RUN_BEST; its newest checkpoint if none was judged or the best was not kept. The caller frees
 * *out_path with trafo_string_free. NOT_FOUND: there is no such path, or no model in it. CORRUPT_FILE, VERSION, IO: of the run's
 * state. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_find_model(const char *path, size_t path_length, char **out_path);
/* The model file of a checkpoint of a run directory by its name: an update such as "1000", "latest", "best-bleu" (or another metric), or
 * "averaged". The caller frees *out_path with trafo_string_free. NOT_FOUND: there is no such directory, or no such checkpoint in it.
 * CORRUPT_FILE, IO: of RUN/NAME. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_find_checkpoint(const char *run_directory, size_t run_directory_length, const char *name,
                                                            size_t name_length, char **out_path);
/* The updates of the checkpoints of a run directory, whole or damaged, in ascending order: up to `capacity` of them are written to
 * `updates`, *out_count is the number of all. A run resumes in a directory that has one. 0: no checkpoint, or no such directory.
 * updates may be NULL if capacity is 0. IO. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_list_checkpoints(const char *run_directory, size_t run_directory_length, int64_t *updates,
                                                             int64_t capacity, int64_t *out_count);
/* Copies the weights of such a file into the model, to fine-tune them. Dropout and max_positions may differ. If the file is from a
 * training run, the tokenizer must be the one of that run. tokenizer may be NULL: no such check. INVALID_ARGUMENT names the tensor or setting that
 * does not fit, and the model has not changed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_weights(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                               const char *path, size_t path_length);
/* Writes the mean of model.safetensors files, summed in float64, to a file that appears whole or not at all. INVALID_ARGUMENT names
 * the tensor or setting in which a file differs from the first. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_average_models(const trafo_string_view *paths, size_t count, const char *output,
                                                           size_t output_length);
/* Sizes that trafo_model_prune leaves. A decoder-lm ignores the fields of the encoder. */
typedef struct trafo_prune_options {
  size_t struct_size;
  /* Share of the feed-forward columns of a layer that stays, above 0 and at most 1; rounded up to a multiple of 8 columns. Default
   * 1 */
  double encoder_ffn_share, decoder_ffn_share;
  /* Share of the attention heads of a layer that stays, above 0 and at most 1; at least one. Query heads that share keys and
   * values stay or go together. Default 1 */
  double encoder_head_share, decoder_head_share;
  /* Layers that stay; default 0: all */
  int64_t encoder_layers, decoder_layers;
} trafo_prune_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_prune_options_init(trafo_prune_options *options, size_t struct_size);
/* Makes a smaller float32 model of a trained one by removing whole layers, attention heads and feed-forward columns. `calibration`
 * says which are needed least (docs/guide/pruning.md); pairs of more than 256 tokens a side are left out. The new model is on the
 * same context and is the caller's; `model` does not change. It has lost quality: fine-tune it. options may be NULL: all stays.
 * cancel may be NULL. INVALID_ARGUMENT: an option, or the model has an adapter. UNSUPPORTED: int8 weights. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_prune(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *calibration, const trafo_prune_options *options,
                                                        const trafo_cancel *cancel, trafo_model **out);
/* The score by which trafo_model_sparsify chooses weights: the lowest become zero. */
#define TRAFO_PRUNE_MAGNITUDE 0 /* |weight|, among all weights of the matrix */
#define TRAFO_PRUNE_WANDA     1 /* |weight| times the norm of its input, among the weights of the row (Sun et al., arXiv 2306.11695) */

/* Which weights are compared with each other. */
#define TRAFO_SPARSITY_UNSTRUCTURED 0 /* as the score says */
#define TRAFO_SPARSITY_2_4          1 /* the four neighbours of a row, of which two stay: the sparsity is 0.5 */

typedef struct trafo_sparsify_options {
  size_t struct_size;
  double sparsity;                  /* share of the weights of each linear layer that becomes zero, at least 0 and below 1; default 0.5 */
  int32_t score;                    /* TRAFO_PRUNE_MAGNITUDE (default) or TRAFO_PRUNE_WANDA */
  int32_t pattern;                  /* TRAFO_SPARSITY_UNSTRUCTURED (default) or TRAFO_SPARSITY_2_4 */
  const trafo_tokenizer *tokenizer; /* of the calibration pairs; default NULL */
  const trafo_corpus *calibration;  /* pairs that show what the layers multiply; TRAFO_PRUNE_WANDA needs them; default NULL */
} trafo_sparsify_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sparsify_options_init(trafo_sparsify_options *options, size_t struct_size);
/* Makes a float32 model of a trained one in which single weights of the linear layers are zero (unstructured pruning); embeddings, the
 * output projection, biases and norms stay. At most 65,536 target tokens of the calibration pairs are read. The new model is on the same
 * context and is the caller's; `model` does not change. Fine-tune it with keep_zeros of trafo_trainer_options. options may be NULL for the
 * defaults. cancel may be NULL. INVALID_ARGUMENT: an option; Wanda without a calibration pair, or a tokenizer of another vocabulary; 2:4
 * and a row that is no multiple of 4 weights long; the model has an adapter. UNSUPPORTED: int8 weights. NON_FINITE: a weight, or an input
 * of a layer. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_sparsify(trafo_model *model, const trafo_sparsify_options *options,
                                                           const trafo_cancel *cancel, trafo_model **out);
/* The number of elements of parameter `index` that are exactly zero; of an int8 weight, of its codes. Reads the parameter. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_zeros(const trafo_model *model, int64_t index, int64_t *out_zeros);
/* How trafo_model_factorize makes matrices smaller: one of rank and ratio is given. */
typedef struct trafo_factorize_options {
  size_t struct_size;
  int64_t rank;                     /* of all factors, at least 1; default 0: ratio chooses the ranks */
  double ratio;                     /* share of the weights of the matrices that stays, above 0 and below 1; default 0: rank says */
  const trafo_string_view *layers;  /* patterns of names of matrices, '*' for any characters, '?' for one; default NULL: all */
  size_t layers_count;
  const trafo_tokenizer *tokenizer; /* of the calibration pairs */
  const trafo_corpus *calibration;  /* pairs that show what the layers multiply; needed */
} trafo_factorize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_factorize_options_init(trafo_factorize_options *options, size_t struct_size);
/* Makes a float32 model of a trained one in which matrices NAME [rows, columns] of linear layers are products of two factors, NAME.u
 * [rows, rank] and NAME.v [rank, columns], whose outputs on the calibration pairs differ least (whitened singular value decomposition,
 * docs/guide/low-rank.md). Embeddings and the output projection stay, and so does a matrix whose factors would be no smaller. At most 65,536
 * target tokens are read. signal_to_noise of trafo_parameter_info of NAME.u is measured on the layer's outputs. The new model is on the same
 * context and is the caller's; `model` does not change. Fine-tune it. cancel may be NULL. INVALID_ARGUMENT: an option; no calibration pair,
 * or a tokenizer of another vocabulary; a ratio that is too low, or a rank that makes no matrix smaller; the model is factorized already,
 * or has an adapter. NOT_FOUND: a pattern that matches no matrix. UNSUPPORTED: int8 weights. NON_FINITE: a weight, or an input of a layer.
 * CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_factorize(trafo_model *model, const trafo_factorize_options *options,
                                                            const trafo_cancel *cancel, trafo_model **out);
/* Writes a model.safetensors, which appears whole or not at all. IO. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_save(const trafo_model *model, const char *path, size_t path_length);
/* The configuration that the model was made or loaded with. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_config(const trafo_model *model, trafo_model_config *out,
                                                             size_t struct_size);
/* The same of a model.safetensors, whose weights are not read: only its header, whose tensors are compared with the configuration.
 * precision is the type of the stored weights. NOT_FOUND, IO, CORRUPT_FILE, VERSION. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_read_config(const char *path, size_t path_length, trafo_model_config *out,
                                                              size_t struct_size);
/* Checks that a tokenizer belongs to the model, as translating and scoring do. INVALID_ARGUMENT: it has another number of tokens, or the
 * model was trained with another vocabulary; the message names both files. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_check_tokenizer(const trafo_model *model, const trafo_tokenizer *tokenizer);
/* The number of parameter tensors, and of their elements together. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter_count(const trafo_model *model, int64_t *out_tensors,
                                                                      int64_t *out_elements);
/* The name of parameter `index` (borrowed) and a handle on its memory, not a copy. out_name and out_tensor may be NULL. UNSUPPORTED: a
 * handle on an int8 weight. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter(trafo_model *model, int64_t index, const char **out_name,
                                                                trafo_tensor **out_tensor);

/* The dtype of an int8 weight. No tensor has it. */
#define TRAFO_INT8 4

typedef struct trafo_parameter_info {
  size_t struct_size;
  const char *name;            /* borrowed from the model */
  const char *group;           /* borrowed: "matrices", "norms_and_biases", or a group that the model has declared */
  int64_t elements;
  int32_t dtype;               /* of the values: TRAFO_FLOAT32, ..., TRAFO_INT8 */
  int32_t trainable;           /* 0: frozen */
  double lr_factor;            /* multiplied with the learning rate */
  double weight_decay_factor;  /* multiplied with weight_decay */
  int64_t rows;                /* 1: a vector */
  int64_t columns;
  int64_t bits;                /* of an element in files: 4 of an int4 matrix, whose dtype is TRAFO_INT8 */
  double signal_to_noise;      /* of what trafo_model_quantize made of a matrix, in dB; NaN: not known */
} trafo_parameter_info;

/* How parameter `index` is trained. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter_info(const trafo_model *model, int64_t index,
                                                                     trafo_parameter_info *out, size_t struct_size);
/* Freezes the parameters whose whole names match `pattern`: training does not change them, and takes no gradients, optimizer states and
 * backward work for them. '*' matches any characters, '?' one: "encoder.*" and "*embedding.weight" leave the decoder to be
 * trained. Frozen parameters of a bfloat16 model keep no float32 master. out_count (may be NULL): how many parameters match. NOT_FOUND:
 * none. INVALID_ARGUMENT: the model has a trainer, is prepared for inference, or tensors of its parameters are not freed. A run directory
 * continues with the same parameters frozen. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_freeze(trafo_model *model, const char *pattern, size_t pattern_length,
                                                         int64_t *out_count);
/* Makes such parameters trainable again. out_count may be NULL. Errors as for trafo_model_freeze. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_unfreeze(trafo_model *model, const char *pattern, size_t pattern_length,
                                                           int64_t *out_count);
/* Sets what learning rate and weight decay are multiplied with for such parameters, at least 0. out_count may be NULL. Errors as for
 * trafo_model_freeze. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_set_update_factors(trafo_model *model, const char *pattern,
                                                                     size_t pattern_length, double lr_factor,
                                                                     double weight_decay_factor, int64_t *out_count);

/* ---- LoRA adapters (Hu et al., arXiv 2106.09685): y = x W^T + alpha / rank (x A^T) B^T ----
 *
 * docs/guide/adapters.md explains them. Each function below but trafo_model_save_adapter returns INVALID_ARGUMENT if the model has a trainer, is
 * prepared for inference, or tensors of its parameters are not freed. After an error the model is unchanged. */

/* Freezes the model and adds trainable matrices A [rank, in], drawn from `seed`, and B [out, rank], zeros, to its linear layers: it still
 * computes the same. `targets`: names with commas between them, of query, key, value, output, gate, up and down, as far as the model
 * has them; qkv in place of the first three in a model of GPT-2's form. Length 0: all. alpha > 0, often 2 * rank. A model with int8 weights
 * takes an adapter, but is not trained. INVALID_ARGUMENT: there is an adapter already, or a rank, an alpha or a target that cannot be.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_add_adapter(trafo_model *model, int64_t rank, double alpha, const char *targets,
                                                              size_t targets_length, uint64_t seed);
/* Adds the adapter in a directory of trafo_model_save_adapter or of PEFT: adapter_config.json and adapter_model.safetensors.
 * INVALID_ARGUMENT: an adapter of another base; the message names what differs. UNSUPPORTED: PEFT's options that adapters here do not have.
 * NOT_FOUND, CORRUPT_FILE. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_adapter(trafo_model *model, const char *directory, size_t directory_length);
/* Writes the adapter to a directory that PEFT reads beside the exported base; an adapter in it is replaced. INVALID_ARGUMENT: there is no
 * adapter, it is merged, or other parameters are trainable, which the directory would not have. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_save_adapter(const trafo_model *model, const char *directory, size_t directory_length);
/* Adds alpha / rank B A to the weights, so that the model computes as fast as without an adapter. trafo_model_save then writes a model
 * without one. The earlier weights stay in host memory for trafo_model_unmerge_adapter, until trafo_model_remove_adapter. UNSUPPORTED:
 * int8 weights. INVALID_ARGUMENT: there is no adapter, or it is merged. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_merge_adapter(trafo_model *model);
/* Gives the model the weights before the merge, bit for bit, and the adapter beside them. INVALID_ARGUMENT: none is merged.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_unmerge_adapter(trafo_model *model);
/* Drops the adapter. A merged one stays in the weights and can no longer be unmerged. The parameters stay frozen: see trafo_model_unfreeze.
 * INVALID_ARGUMENT: there is no adapter. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_remove_adapter(trafo_model *model);

/* ---- Word-level distillation: a model learns the probabilities that a teacher gives to each token (docs/guide/distillation.md) ---- */

/* Gives the model a teacher: a model.safetensors, a directory with one, or a run directory, whose best model it is. A teacher of before is
 * replaced. While the model is trained, the teacher computes beside it, in its precision, frozen and without dropout; see teacher_weight of
 * trafo_trainer_options. A run resumes with the same teacher only. The teacher is not part of the model's file. INVALID_ARGUMENT: a teacher
 * of another architecture, number of tokens or vocabulary (the message names both), or the model has a trainer or is prepared for inference.
 * UNSUPPORTED: int8 weights. NOT_FOUND, IO, CORRUPT_FILE, VERSION. After an error the model is unchanged. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_teacher(trafo_model *model, const char *path, size_t path_length);
/* Frees the teacher. INVALID_ARGUMENT: there is none, or the model has a trainer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_remove_teacher(trafo_model *model);

#define TRAFO_EXPORT_HF_MARIAN 0   /* transformers' MarianMTModel: post-norm encoder-decoder, tied embeddings */
#define TRAFO_EXPORT_HF_GPT2 1     /* transformers' GPT2LMHeadModel: pre-norm decoder-lm */
#define TRAFO_EXPORT_CTRANSLATE2 2 /* every architecture */
#define TRAFO_EXPORT_HF_LLAMA 3    /* transformers' LlamaForCausalLM: pre-norm decoder-lm with RMS norm, rotary positions, SwiGLU */
#define TRAFO_EXPORT_ONNX 4        /* ONNX graphs of opset 17 and their weights: every model */
#define TRAFO_EXPORT_GGUF 5        /* llama.cpp's file of such a model, model.gguf; a BPE vocabulary with byte fallback */
#define TRAFO_EXPORT_HF_COMPRESSED 6 /* compressed-tensors for transformers and vLLM: such a model in int8 or int4 */
#define TRAFO_EXPORT_HF_PEGASUS 7  /* transformers' PegasusForConditionalGeneration: pre-norm encoder-decoder, tied embeddings */

/* How an export stores matrices. */
#define TRAFO_EXPORT_WEIGHTS_BY_FORMAT 0 /* float16 in GGUF, int8 in compressed-tensors, float32 in the others */
#define TRAFO_EXPORT_WEIGHTS_FLOAT32 1
#define TRAFO_EXPORT_WEIGHTS_FLOAT16 2  /* CTranslate2, GGUF */
#define TRAFO_EXPORT_WEIGHTS_BFLOAT16 3 /* CTranslate2 */
#define TRAFO_EXPORT_WEIGHTS_INT16 4    /* CTranslate2: one scale for a matrix */
#define TRAFO_EXPORT_WEIGHTS_INT8 5     /* CTranslate2, ONNX (7 bits), compressed-tensors: a scale for each output */
#define TRAFO_EXPORT_WEIGHTS_Q8_0 6     /* GGUF: 8 bits, a scale for each block of 32 */
#define TRAFO_EXPORT_WEIGHTS_Q4_0 7     /* GGUF: 4 bits, a scale for each block of 32 */
#define TRAFO_EXPORT_WEIGHTS_INT4 8     /* compressed-tensors: 4 bits, a scale for each 32 values of a row */

/* Writes a model directory for another program. The directory must be empty or not exist, and appears whole or not at all, after
 * the library has read it back. out_difference (may be NULL) gets the largest difference between its logits and the model's;
 * with float32 weights more than 1e-4 is an error, with others every weight must be within the rounding of its type.
 * UNSUPPORTED names the setting that the format cannot express. INVALID_ARGUMENT: the model was trained with another vocabulary.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_export(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                         int32_t format, int32_t weights, const char *directory,
                                                         size_t directory_length, double *out_difference);
/* Reads a MarianMTModel, PegasusForConditionalGeneration, GPT2LMHeadModel or LlamaForCausalLM directory with model.safetensors, as
 * float32. *out_tokenizer is NULL if the directory has no SentencePiece model. *out_note gets a remark for the user, or ""; free it with trafo_string_free. out_note
 * may be NULL. NOT_FOUND, CORRUPT_FILE, UNSUPPORTED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_import(trafo_context *context, const char *directory,
                                                         size_t directory_length, trafo_model **out_model,
                                                         trafo_tokenizer **out_tokenizer, char **out_note);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_model_free(trafo_model *model);

/* ---- Training ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_trainer trafo_trainer;

/* options: begin constants of trafo_trainer_options (scripts/generate_options.py) */
/* How the learning rate goes after the warm-up. */
#define TRAFO_SCHEDULE_CONSTANT     0 /* It stays at its peak. */
#define TRAFO_SCHEDULE_LINEAR       1 /* It falls to final_rate on a line; needs schedule_updates. */
#define TRAFO_SCHEDULE_COSINE       2 /* It falls to final_rate on half a cosine; needs schedule_updates. */
#define TRAFO_SCHEDULE_INVERSE_SQRT 3 /* It falls with the square root of the update. */
#define TRAFO_SCHEDULE_NOAM         4 /* The schedule of the first transformer. */

/* How the weights follow their gradients. */
#define TRAFO_OPTIMIZER_ADAMW 0 /* AdamW; with weight_decay 0 it is Adam. */
#define TRAFO_OPTIMIZER_SGD   1 /* Stochastic gradient descent; weight_decay is added to the gradient. */
/* Muon: orthogonalized momentum for the matrices of linear layers, AdamW for all other weights. */
#define TRAFO_OPTIMIZER_MUON  2

/* Storage type of the optimizer's two moments of every parameter. */
#define TRAFO_OPTIMIZER_STATES_FLOAT32 0 /* float32: 8 bytes a parameter. */
#define TRAFO_OPTIMIZER_STATES_8BIT    1 /* Codes of a byte in blocks of 256 with a scale: 2.03 bytes a parameter. */

/* Type in which ranks send each other the gradient of a lane. Sums are float32 under each. */
#define TRAFO_COMMUNICATION_FLOAT32  0 /* float32. */
/* bfloat16, half the bytes: the gradient of each lane is rounded to nearest even before it is added. */
#define TRAFO_COMMUNICATION_BFLOAT16 1

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
/* options: end */

#define TRAFO_UNIT_UPDATES 0
#define TRAFO_UNIT_TOKENS 1 /* target tokens */
#define TRAFO_UNIT_EPOCHS 2

/* options: begin metrics (scripts/generate_options.py) */
#define TRAFO_METRIC_CE 1 /* bit: Cross-entropy for each label. */
#define TRAFO_METRIC_BLEU 2 /* bit: Corpus BLEU. */
#define TRAFO_METRIC_CHRF 4 /* bit: Corpus chrF2. */
#define TRAFO_METRIC_TER 8 /* bit: Translation edit rate: edits for each word of the reference, in per cent. */
#define TRAFO_METRIC_COUNT 4 /* metrics that this release knows */
/* options: end */

typedef struct trafo_period {
  int64_t value; /* 0: never */
  int32_t unit; /* TRAFO_UNIT_* */
  int32_t reserved;
} trafo_period;

typedef struct trafo_trainer_options {
  /* options: begin trafo_trainer_options (scripts/generate_options.py) */
  size_t struct_size;
  /* ---- The step. A run cannot be resumed with other values. ---- */
  double learning_rate; /* Peak of the learning rate. Default 0.002. */
  int64_t warmup; /* Updates in which the rate rises to its peak on a line. Default 1000. */
  /* The update at which cosine and linear schedules reach their end. It must be set for them. Default 0. */
  int64_t schedule_updates;
  double label_smoothing; /* Share of the target probability that is spread over the other tokens. Default 0.1. */
  double clip_norm; /* Largest global norm of the mean gradient. 0: no clipping. Default 1. */
  /* Weight decay: decoupled in AdamW and Muon; SGD adds it, times the weight, to the gradient. Default 0. */
  double weight_decay;
  double momentum; /* Momentum of SGD and Muon; AdamW has none. 0: plain SGD, which keeps no state. Default 0.95. */
  double beta1; /* Decay of the first moment of AdamW, also of the weights that follow it under Muon. Default 0.9. */
  double beta2; /* Decay of the second moment of AdamW, also of the weights that follow it under Muon. Default 0.98. */
  double epsilon; /* AdamW's epsilon. Default 1e-9. */
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
  /* 1: the momentum of SGD and Muon is Nesterov's: the update is along the momentum that follows. Default 1. */
  int32_t nesterov;
  /* TRAFO_OPTIMIZER_STATES_*. Storage type of AdamW's two moments of every parameter. INVALID_ARGUMENT: 8 bits with another
   * optimizer. float64 models have float32. Default TRAFO_OPTIMIZER_STATES_FLOAT32. */
  int32_t optimizer_states;
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
  /* TRAFO_COMMUNICATION_*. Type in which ranks send each other the gradient of a lane. With bfloat16 the gradient of every lane
   * is rounded, also on one rank, so that the number of ranks changes no bit. Sums of lanes are float32. Not for float64
   * models. Default TRAFO_COMMUNICATION_FLOAT32. */
  int32_t communication_dtype;
  int32_t reserved; /* 0 */
  /* ---- Data, used where text becomes a corpus. Fixed as well. ---- */
  int64_t batch_tokens; /* Target tokens of a batch. Default 4096. */
  int64_t max_length; /* Tokens a side. Longer pairs are dropped and counted. Default 256. */
  int64_t maxi_batch; /* Batches that are filled from sentences sorted by length together. Default 0: 262144 sentences. */
  double max_length_ratio; /* Largest ratio of the tokens of both sides. Other pairs are dropped and counted. Default 0: any. */
  /* Sampled segmentations of the source text, anew in every epoch: of a unigram vocabulary by probability^alpha, of a BPE
   * vocabulary with every merge left out with probability alpha. Default 0: the best segmentation. */
  double source_alpha;
  double target_alpha; /* The same for the target text. Default 0: the best segmentation. */
  /* Bytes that training may take. A run whose plan needs more is refused. Default 0: what the device has free. */
  int64_t memory_limit;
  int32_t drop_identical; /* 1: pairs with the same text on both sides are dropped and counted. Default 0. */
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
  /* options: end */
} trafo_trainer_options;

typedef struct trafo_memory_plan {
  size_t struct_size;
  int64_t weights_bytes;     /* with the float32 master weights of a bfloat16 model */
  int64_t gradients_bytes;
  int64_t optimizer_bytes;   /* the moments, and the EMA of the weights if ema_alpha is set */
  int64_t activations_bytes; /* activations and temporary memory of forward and backward */
  int64_t total_bytes;       /* expected peak of trafo_context_memory_stats, the batch included */
  int64_t batch_tokens;      /* target tokens of the batch: the given number, or the largest that fits */
  int64_t limit_bytes;       /* memory that training may use; 0: unknown */
  int64_t device_bytes;      /* total memory of the device; 0: the device was not asked */
  int64_t free_bytes;        /* free memory of the device before training; 0: the device was not asked */
  int64_t teacher_bytes;     /* the weights of the teacher; 0 without one */
} trafo_memory_plan;

/* The memory that training needs on a CUDA device, computed without the device. Parameters whose names match one of the `frozen_count`
 * patterns are planned as trafo_model_freeze leaves them; NOT_FOUND: a pattern matches none. A batch has `sentences` sentences with
 * source_tokens and target_tokens in total (source_tokens is 0 for a decoder-lm). Of `options`, which may be NULL, gradient_accumulation,
 * optimizer, momentum, optimizer_states, quantize_bits, fp8, ema_alpha and recompute matter. With batch_fit and a memory_limit, the
 * plan is for the largest batch that fits the limit, with sentences of the same lengths; OUT_OF_DEVICE_MEMORY: not even one sentence fits. INVALID_ARGUMENT: the sizes
 * are no batch of this model. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_training(const trafo_model_config *config,
                                                          const trafo_trainer_options *options,
                                                          const trafo_string_view *frozen, size_t frozen_count,
                                                          int64_t sentences, int64_t source_tokens, int64_t target_tokens,
                                                          trafo_memory_plan *out, size_t struct_size);

/* The same for a model with a teacher of this configuration (trafo_model_load_teacher), for rank `rank` of a group of `size` on `hosts`
 * hosts as of trafo_plan_training_of_rank, with its errors; 0 of 1 on 1 without a group. options may be NULL. INVALID_ARGUMENT also: the
 * teacher is of another architecture or has another number of tokens. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_distillation(const trafo_model_config *config, const trafo_model_config *teacher,
                                                              const trafo_trainer_options *options,
                                                              const trafo_string_view *frozen, size_t frozen_count,
                                                              int32_t rank, int32_t size, int32_t hosts, int64_t sentences,
                                                              int64_t source_tokens, int64_t target_tokens,
                                                              trafo_memory_plan *out, size_t struct_size);

/* The defaults. Training then has no limit. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_options_init(trafo_trainer_options *options, size_t struct_size);
/* The same for how the model of a preset is trained; see trafo_model_config_preset. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_options_preset(trafo_trainer_options *options, const char *name,
                                                                   size_t name_length);
/* A trainer for the model, whose weights it changes. It keeps model, tokenizer and corpora alive. `valid` may be NULL: no validation.
 * With an empty run_directory nothing is written. If the run directory has checkpoints, training resumes from the newest undamaged
 * one with the same bits; INVALID_ARGUMENT: it is from another architecture, tokenizer or corpus, or the model from a file that was
 * trained with another vocabulary. OUT_OF_MEMORY and
 * OUT_OF_DEVICE_MEMORY: the memory plan does not fit; the message has the plan and a batch that would fit. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_new(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *train, const trafo_corpus *valid,
                                                        const trafo_trainer_options *options,
                                                        const char *run_directory, size_t run_directory_length,
                                                        trafo_trainer **out);

#define TRAFO_EVENT_STARTED 0            /* message: the pairs that were dropped from the corpora, if any */
#define TRAFO_EVENT_RESUMED 1            /* path: the checkpoint */
#define TRAFO_EVENT_CHECKPOINT_REFUSED 2 /* a newer checkpoint is damaged and is not used; message: why */
#define TRAFO_EVENT_LOG 3
#define TRAFO_EVENT_SKIPPED 4 /* a non-finite update was skipped; message: its loss and gradient norm */
#define TRAFO_EVENT_EPOCH 5   /* an epoch is complete; message: the pairs that were dropped from it, if any */
/* path: the translations, if any were written. message: "before the first update" of the validation of the model that a run or a
 * phase starts from, which is no candidate for the best; otherwise empty */
#define TRAFO_EVENT_VALIDATED 6
#define TRAFO_EVENT_SAVED 7   /* path: the checkpoint; on a GPU, events of later updates may precede it */
#define TRAFO_EVENT_FINISHED 8
#define TRAFO_EVENT_STOPPED 9 /* training can be resumed */
#define TRAFO_EVENT_VALIDATING 10 /* a validation begins; it may take long */
#define TRAFO_EVENT_AVERAGED 11 /* average_last; path: the averaged model, message: its updates; metrics as in VALIDATED */
/* autotune_gemm; message: how many GEMMs were timed, how long that took, where the other kernels come from */
#define TRAFO_EVENT_GEMM_AUTOTUNED 12
#define TRAFO_EVENT_WARNING 13 /* something cannot be used, and the run continues without it; message: what and why */

#define TRAFO_STOP_NONE 0
#define TRAFO_STOP_LIMIT 1 /* after_updates, after_epochs or after_tokens */
#define TRAFO_STOP_EARLY 2 /* early_stopping */
#define TRAFO_STOP_CALLBACK 3
#define TRAFO_STOP_CANCELLED 4
#define TRAFO_STOP_PAUSED 5 /* max_updates of this call are done */

/* A metric of a validation. */
typedef struct trafo_metric_value {
  double value; /* NaN and infinities are possible: a model that diverged */
  int32_t metric; /* TRAFO_METRIC_* */
  int32_t reserved; /* 0 */
} trafo_metric_value;

typedef struct trafo_event {
  size_t struct_size;
  int32_t kind;          /* TRAFO_EVENT_* */
  int32_t stop;          /* TRAFO_STOP_*, FINISHED and STOPPED only */
  int64_t update;
  int64_t epoch;         /* the current one, from 1; EPOCH: the completed one */
  double epoch_fraction; /* of the current epoch, 0 to 1 */
  double loss;           /* mean per label since the last LOG event, label smoothing included */
  double nll;            /* the same without smoothing; exp() is the perplexity */
  double grad_norm;
  double learning_rate;
  int64_t target_tokens; /* of the run so far */
  int64_t source_tokens;
  double target_tokens_per_second; /* since the last LOG event */
  double source_tokens_per_second;
  double elapsed_seconds; /* training time of the run, earlier processes included */
  double eta_seconds;     /* to the nearest limit; negative: unknown */
  int64_t memory_bytes;   /* in use */
  int64_t peak_memory_bytes;
  int64_t skipped_updates;
  int64_t stalled;        /* validations in a row without improvement, as early stopping counts them */
  const trafo_metric_value *metrics; /* VALIDATED and AVERAGED: those of valid_metrics; borrowed while the callback runs */
  int64_t metric_count;
  double best_metric;     /* VALIDATED: best value of the deciding metric so far, and where */
  int64_t best_update;
  int32_t improved;       /* VALIDATED: the deciding metric improved */
  int32_t deciding_metric; /* VALIDATED: TRAFO_METRIC_*; chrF or cross-entropy instead of a metric of words for scripts without spaces */
  trafo_string_view message; /* borrowed while the callback runs */
  trafo_string_view path;
} trafo_event;

/* Called on the thread that runs the trainer. A non-zero result stops the run, which then returns TRAFO_CANCELLED. */
typedef int32_t (*trafo_event_fn)(void *user_data, const trafo_event *event);

/* Trains until a limit of the options is reached, early stopping ends the run, max_updates more updates are done (0: no such limit),
 * `cancel` is set, the callback stops it, or an error occurs. *out_stop gets TRAFO_STOP_*. Call it again to resume, also after an
 * error other than NON_FINITE. The run validates and saves at the frequencies of the options and at the end; with a run directory
 * it also saves when it is cancelled or stopped. cancel and callback may be NULL. While the callback runs, the trainer refuses all
 * calls but trafo_trainer_get_plan and trafo_trainer_free; the latter takes effect when this call returns. CANCELLED: stopped by
 * `cancel` or by the callback. NON_FINITE: more than max_non_finite_steps non-finite updates in a row. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_run(trafo_trainer *trainer, int64_t max_updates,
                                                        const trafo_cancel *cancel, trafo_event_fn callback,
                                                        void *user_data, int32_t *out_stop);

typedef struct trafo_step_result {
  int64_t update;
  double loss; /* mean per label, label smoothing included */
  double nll;  /* mean per label, without */
  double grad_norm; /* global norm before clipping */
  double learning_rate;
  int64_t labels;
  int32_t skipped; /* 1: a non-finite update, nothing has changed */
  int32_t reserved;
} trafo_step_result;

/* One update. Validates and saves at the frequencies of the options, like trafo_trainer_run. INVALID_ARGUMENT: training is done.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_step(trafo_trainer *trainer, trafo_step_result *out);
/* Validates now. `out`, an array of `capacity`, gets the metrics of valid_metrics, *out_count their number. INVALID_ARGUMENT: there is
 * no validation corpus, or `capacity` is smaller than the number of metrics. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_validate(trafo_trainer *trainer, trafo_metric_value *out, int64_t capacity,
                                                             int64_t *out_count);
/* Saves a checkpoint to the run directory now. INVALID_ARGUMENT: there is no run directory. IO. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_save(trafo_trainer *trainer);
/* A new model with the weights of the best checkpoint so far, by the first metric of validation, on the trainer's context. The
 * trainer and its model do not change. INVALID_ARGUMENT: there is no run directory. NOT_FOUND: nothing was validated yet, or the
 * best checkpoint is not kept (keep_best). since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_load_best(trafo_trainer *trainer, trafo_model **out);
/* The memory plan of the training, for the largest batches of its first epoch. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_get_plan(const trafo_trainer *trainer, trafo_memory_plan *out,
                                                             size_t struct_size);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_trainer_free(trafo_trainer *trainer);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_MODELS_H */
