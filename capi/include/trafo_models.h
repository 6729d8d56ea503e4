/*
 * Trafo: models and training. Include trafo.h; its rules hold here.
 *
 * A token is an id of the vocabulary, which represents a piece of text. Lengths in tokens count the final </s>.
 */
#ifndef TRAFO_MODELS_H
#define TRAFO_MODELS_H

#include "trafo_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_model trafo_model;

#define TRAFO_TIED_LAYERS 32 /* the most layers of a stack that shares parameters */

#include "trafo/generated/model_config.h"

/* Fills a config, whose struct_size is set, with a preset by task, for example "small" (docs/reference/generated/options.md has a table). Fields that
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
#include "trafo/generated/quantize_options.h"

/* A model with quantized weights, for translation and scoring; `model`, a float32 model on a CPU, stays as it is. options may be NULL for
 * the defaults. The new model computes with int8 codes, also of int4 weights, which trafo_model_save writes as they are.
 * trafo_parameter_info.signal_to_noise says how much each matrix has lost: with calibration pairs, of the outputs of its layer,
 * otherwise of the weights. cancel may be NULL. CANCELLED. NOT_FOUND: a pattern matches no matrix. INVALID_ARGUMENT: calibration without a pair, or a tokenizer of
 * another vocabulary; a weight that is not finite. UNSUPPORTED: a model on a GPU, in another precision, or with int8 weights. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_quantize(trafo_model *model, const trafo_quantize_options *options,
                                                           const trafo_cancel *cancel, trafo_model **out);
/* Loads a model of a run directory, with one checkpoint or more (docs/guide/run-directory.md). which: TRAFO_RUN_BEST, TRAFO_RUN_LAST or
 * TRAFO_RUN_AVERAGED. The best one is by the first metric of the run's validation. `precision` and the other errors as above; of a run
 * that translate-train made, trafo_tokenizer_load takes the directory as well. NOT_FOUND: the run has no such model; the message says why. since 0.1 */
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
 * does not fit, and the model has not changed. IO after the file was checked: the model has a part of its weights. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_weights(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                               const char *path, size_t path_length);
/* Writes the mean of model.safetensors files, summed in float64, to a file that appears whole or not at all. INVALID_ARGUMENT names
 * the tensor or setting in which a file differs from the first. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_average_models(const trafo_string_view *paths, size_t count, const char *output,
                                                           size_t output_length);
#include "trafo/generated/prune_options.h"

/* Makes a smaller float32 model of a trained one by removing whole layers, attention heads and feed-forward columns. `calibration`
 * says which are needed least (docs/guide/pruning.md); pairs of more than 256 tokens a side are left out. The new model is on the
 * same context and is the caller's; `model` does not change. It has lost quality: fine-tune it. options may be NULL: all stays.
 * cancel may be NULL. INVALID_ARGUMENT: an option, or the model has an adapter. UNSUPPORTED: int8 weights. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_prune(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *calibration, const trafo_prune_options *options,
                                                        const trafo_cancel *cancel, trafo_model **out);
#include "trafo/generated/sparsify_options.h"

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
#include "trafo/generated/factorize_options.h"

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
/* Tells the model the special tokens of its vocabulary, so that it can be trained and translate from token ids without a tokenizer;
 * trafo_model_save keeps them, and trafo_model_import sets those of the directory. further_ends, which may be NULL, are tokens beside eos
 * that end a generated text. A tokenizer that a call gets goes before. INVALID_ARGUMENT: an id is not in the vocabulary; bos, pad and unk
 * may be -1 (none). since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_set_special_tokens(trafo_model *model, const trafo_special_tokens *tokens,
                                                                     const int32_t *further_ends, size_t count);
/* The special tokens that the model knows; *out_further_ends is borrowed and valid until they are set again. out_further_ends and out_count
 * may be NULL. NOT_FOUND: it knows none. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_special_tokens(const trafo_model *model, trafo_special_tokens *out,
                                                                     const int32_t **out_further_ends, size_t *out_count);
/* The number of parameter tensors, and of their elements together. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter_count(const trafo_model *model, int64_t *out_tensors,
                                                                      int64_t *out_elements);
/* The name of parameter `index` (borrowed) and a handle on its memory, not a copy. out_name and out_tensor may be NULL. UNSUPPORTED: a
 * handle on an int8 weight. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter(trafo_model *model, int64_t index, const char **out_name,
                                                                trafo_tensor **out_tensor);

#include "trafo/generated/parameter_info.h"

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
 * docs/guide/adapters.md explains them. Each function below but trafo_model_with_adapter and trafo_model_save_adapter returns
 * INVALID_ARGUMENT if the model has a trainer, is prepared for inference, or tensors of its parameters are not freed. After an error the
 * model is unchanged. */

/* Freezes the model and adds trainable matrices A [rank, in], drawn from `seed`, and B [out, rank], zeros, to its linear layers: it still
 * computes the same. `targets`: names with commas between them, of query, key, value, output, gate, up and down, as far as the model
 * has them; qkv in place of the first three in GPT-2 and ModernBERT, gate_up in place of gate and up in ModernBERT. Length 0: all.
 * alpha > 0, often 2 * rank. A model with int8 weights takes an adapter, but is not trained. INVALID_ARGUMENT: there is an adapter
 * already, or a rank, an alpha or a target that cannot be. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_add_adapter(trafo_model *model, int64_t rank, double alpha, const char *targets,
                                                              size_t targets_length, uint64_t seed);
/* Adds the adapter in a directory of trafo_model_save_adapter or of PEFT: adapter_config.json and adapter_model.safetensors.
 * INVALID_ARGUMENT: an adapter of another base; the message names what differs. UNSUPPORTED: PEFT's options that adapters here do not have.
 * NOT_FOUND, CORRUPT_FILE. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_adapter(trafo_model *model, const char *directory, size_t directory_length);
/* A model of the same context that computes as `base` would with the adapter of such a directory: any number of adapters serve over one
 * base, and a request chooses its model. The new model has its own adapter (on a CPU in float32 also laid out for decoding) and the
 * classifier that comes with one; all other weights, quantized ones too, are the base's memory. It is prepared for inference like the base,
 * which must be, and keeps the base's weights alive; both are freed in any order. The call hashes the base once, if the directory has the
 * checksum of its base. Errors as of trafo_model_load_adapter. INVALID_ARGUMENT also: the base is not prepared for inference, or has an
 * adapter. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_with_adapter(trafo_model *base, const char *directory, size_t directory_length,
                                                               trafo_model **out);
/* Writes the adapter to a directory that PEFT reads beside the exported base; an adapter in it is replaced. INVALID_ARGUMENT: there is no
 * adapter, it is merged, or other parameters are trainable, which the directory would not have. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_save_adapter(const trafo_model *model, const char *directory, size_t directory_length);
/* Adds alpha / rank B A to the weights, so that the model computes as fast as without an adapter. trafo_model_save then writes a model
 * without one. The earlier weights stay in host memory for trafo_model_unmerge_adapter, until trafo_model_remove_adapter. UNSUPPORTED:
 * int8 weights or a base_precision. INVALID_ARGUMENT: there is no adapter, or it is merged. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_merge_adapter(trafo_model *model);
/* Gives the model the weights before the merge, bit for bit, and the adapter beside them. INVALID_ARGUMENT: none is merged.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_unmerge_adapter(trafo_model *model);
/* Drops the adapter. A merged one stays in the weights and can no longer be unmerged. The parameters stay frozen: see trafo_model_unfreeze.
 * INVALID_ARGUMENT: there is no adapter. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_remove_adapter(trafo_model *model);

/* ---- More tokens for a model and its vocabulary (docs/guide/fine-tuning.md) ---- */

/* A new model of the same context with `count` tokens after those of its vocabulary, and the tokenizer that has them, which the caller frees
 * with trafo_tokenizer_free. A token is found in every text or, if it is special, only by a tokenizer of trafo_tokenizer_parse_special; a
 * special one can be a language (trafo_tokenizer_with_languages). Its rows of the embeddings, the output matrix and the output bias are those
 * of the token `like` or, if that is empty, the mean of the rows of the subwords that its text has. All other weights are copied. The new
 * tokenizer has no languages chosen and does not parse special tokens. INVALID_ARGUMENT names the token: it is there already, is given
 * twice, is empty or too long, or no text has it; or there is no token `like`; or the model has an adapter or int8 weights, or another
 * vocabulary. UNSUPPORTED names the kind of a vocabulary that takes no tokens, "byte" or "marian". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_add_tokens(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                             const trafo_string_view *tokens, size_t count, int32_t special,
                                                             const char *like, size_t like_length, trafo_model **out_model,
                                                             trafo_tokenizer **out_tokenizer);

/* ---- Word-level distillation: a model learns the probabilities that a teacher gives to each token (docs/guide/distillation.md) ---- */

/* Gives the model a teacher: a model.safetensors, a directory with one, or a run directory, whose best model it is. A teacher of before is
 * replaced. While the model is trained, the teacher computes beside it, in its precision, frozen and without dropout; see teacher_weight of
 * trafo_trainer_options. A run resumes with the same teacher only. The teacher is not part of the model's file. INVALID_ARGUMENT: a teacher
 * of another architecture, number of tokens or vocabulary (the message names both), or the model has a trainer or is prepared for inference.
 * UNSUPPORTED: int8 weights. NOT_FOUND, IO, CORRUPT_FILE, VERSION. After an error the model is unchanged. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_teacher(trafo_model *model, const char *path, size_t path_length);
/* Frees the teacher. INVALID_ARGUMENT: there is none, or the model has a trainer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_remove_teacher(trafo_model *model);
/* Gives the model the reference that TRAFO_OBJECTIVE_DPO or _KTO compares it with, usually the file that its weights come from, in place of a
 * teacher or an earlier reference. A model with an adapter needs none: without its adapter it is its own reference. Otherwise as
 * trafo_model_load_teacher. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_reference(trafo_model *model, const char *path, size_t path_length);
/* Frees the reference. INVALID_ARGUMENT: there is none, or the model has a trainer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_remove_reference(trafo_model *model);

/* Writes a model directory for another program. The directory must be empty or not exist, and appears whole or not at all, after
 * the library has read it back. out_difference (may be NULL) gets the largest difference between its logits and the model's;
 * with float32 weights more than 1e-4 is an error, with others every weight must be within the rounding of its type.
 * tokenizer may be NULL for TRAFO_EXPORT_HF_GPT2, TRAFO_EXPORT_HF_LLAMA and TRAFO_EXPORT_HF_COMPRESSED: the directory then has no
 * tokenizer, and the special tokens that the model knows. UNSUPPORTED names the setting that the format cannot express. INVALID_ARGUMENT:
 * the model was trained with another vocabulary; another format without a tokenizer. cancel may be NULL. CANCELLED: nothing is left of the
 * directory. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_export(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                         int32_t format, int32_t weights, const char *directory,
                                                         size_t directory_length, const trafo_cancel *cancel,
                                                         double *out_difference);
/* Reads a directory of Hugging Face Transformers with safetensors weights, as float32. docs/guide/import.md lists the families.
 * *out_tokenizer is NULL if the directory has no tokenizer that can be read. *out_note gets a remark for the user, or ""; free it
 * with trafo_string_free. out_note and cancel may be NULL. NOT_FOUND, CORRUPT_FILE, UNSUPPORTED, CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_import(trafo_context *context, const char *directory,
                                                         size_t directory_length, const trafo_cancel *cancel,
                                                         trafo_model **out_model, trafo_tokenizer **out_tokenizer,
                                                         char **out_note);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_model_free(trafo_model *model);

/* ---- Training ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_trainer trafo_trainer;

typedef struct trafo_period {
  int64_t value; /* 0: never */
  int32_t unit; /* TRAFO_UNIT_* */
  int32_t reserved;
} trafo_period;

#include "trafo/generated/trainer_options.h"

#include "trafo/generated/memory_plan.h"

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

/* The same for a model whose adapter of `adapter_rank` is trained (trafo_model_add_adapter, with its `targets`), also with a base_precision in
 * `config`. options may be NULL. INVALID_ARGUMENT also: a rank or a target that cannot be. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_adapter(const trafo_model_config *config, const trafo_trainer_options *options,
                                                         int64_t adapter_rank, const char *targets, size_t targets_length,
                                                         int32_t rank, int32_t size, int32_t hosts, int64_t sentences,
                                                         int64_t source_tokens, int64_t target_tokens, trafo_memory_plan *out,
                                                         size_t struct_size);

/* The same for how the model of a preset is trained; see trafo_model_config_preset. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_options_preset(trafo_trainer_options *options, const char *name,
                                                                   size_t name_length);
/* The learning rate that the schedule of the options gives an update, counted from 1, for optimizers of own networks. width is that of the
 * model, which TRAFO_SCHEDULE_NOAM needs; at least 1. options may be NULL for the defaults. INVALID_ARGUMENT: an option; update or
 * width is below 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_scheduled_rate(const trafo_trainer_options *options, int64_t width, int64_t update,
                                                           double *out);
/* A trainer for the model, whose weights it changes. It keeps model, tokenizer and corpora alive. `valid` may be NULL: no validation.
 * tokenizer may be NULL where the corpora have token ids (trafo_corpus_new_ids): the special tokens are then the model's
 * (trafo_model_set_special_tokens). train may be NULL: the program gives batches (trafo_trainer_set_batches) before the trainer trains, and
 * the memory is planned for batches of batch_tokens in rows of max_length.
 * With an empty run_directory nothing is written. If the run directory has checkpoints, training resumes from the newest undamaged
 * one with the same bits; INVALID_ARGUMENT: it is from another architecture, tokenizer or corpus, or the model from a file that was
 * trained with another vocabulary. OUT_OF_MEMORY and
 * OUT_OF_DEVICE_MEMORY: the memory plan does not fit; the message has the plan and a batch that would fit. cancel may be NULL.
 * CANCELLED: it was set while the corpora were tokenised; the model has not changed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_new(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *train, const trafo_corpus *valid,
                                                        const trafo_trainer_options *options,
                                                        const char *run_directory, size_t run_directory_length,
                                                        const trafo_cancel *cancel, trafo_trainer **out);

/* A metric of a validation. */
typedef struct trafo_metric_value {
  double value; /* NaN and infinities are possible: a model that diverged */
  int32_t metric; /* TRAFO_METRIC_* */
  int32_t reserved; /* 0 */
} trafo_metric_value;

#include "trafo/generated/objective_metric.h"

#include "trafo/generated/event.h"

/* Called on the thread that runs the trainer. A non-zero result stops the run, which then returns TRAFO_CANCELLED. */
typedef int32_t (*trafo_event_fn)(void *user_data, const trafo_event *event);

/* Trains until a limit of the options is reached, early stopping ends the run, max_updates more updates are done (0: no such limit),
 * `cancel` is set, the callback stops it, or an error occurs. *out_stop gets TRAFO_STOP_*. Call it again to resume, also after an
 * error other than NON_FINITE. The run validates and saves at the frequencies of the options and at the end; with a run directory
 * it also saves when it is cancelled or stopped. cancel and callback may be NULL. While the callback runs, the trainer refuses all
 * calls but trafo_trainer_get_plan and trafo_trainer_free; the latter takes effect when this call returns. CANCELLED: stopped by
 * `cancel` or by the callback. NON_FINITE: max_non_finite_steps updates in a row were not finite, or
 * had a loss far above that of a model that guesses. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_run(trafo_trainer *trainer, int64_t max_updates,
                                                        const trafo_cancel *cancel, trafo_event_fn callback,
                                                        void *user_data, int32_t *out_stop);

#include "trafo/generated/step_result.h"

/* One update. Validates and saves at the frequencies of the options, like trafo_trainer_run. INVALID_ARGUMENT: training is done.
 * cancel may be NULL. CANCELLED: it was set before the update began; a validation that it interrupted is repeated by the next call.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_step(trafo_trainer *trainer, const trafo_cancel *cancel,
                                                         trafo_step_result *out);
/* Validates now. `out`, an array of `capacity`, gets the metrics of valid_metrics, *out_count their number. INVALID_ARGUMENT: there is
 * no validation corpus, or `capacity` is smaller than the number of metrics. cancel may be NULL; several ranks do not look at it. CANCELLED.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_validate(trafo_trainer *trainer, const trafo_cancel *cancel,
                                                             trafo_metric_value *out, int64_t capacity, int64_t *out_count);
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
