/*
 * Trafo: an embedded training engine for transformers.
 *
 * This header is the whole public interface. It includes the others:
 *   trafo_text.h         tokenizers and parallel corpora
 *   trafo_models.h       models and training
 *   trafo_translation.h  translation, scoring and metrics
 *   trafo_data.h         large corpora, monolingual text, mixtures
 *   trafo_callbacks.h    functions and streams of the calling program
 *   trafo_distributed.h  several ranks that train one model
 *   trafo_dlpack.h       tensors shared with other libraries
 *
 * Errors     A call that can fail returns NULL for success, or an error object that the caller frees with trafo_error_free.
 *            Outputs come last. After a failure they are zero or NULL, and nothing else has changed unless the comment says so.
 *            Any call may return INVALID_ARGUMENT, OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST or INTERNAL; comments name
 *            the other codes.
 * Ownership  Functions with a handle as output give ownership: _new, _load, _clone and others. Free the handle with the _free
 *            of its noun, which accepts NULL. _get_ functions lend: the result is valid until its parent is freed or changed.
 *            A handle is a number, not an address, and no number is given out twice. NULL, a freed handle and a handle of
 *            another type are INVALID_ARGUMENT in every call; their _free does nothing.
 * Strings    UTF-8 with a pointer and a length in bytes; no NUL is needed. A NULL pointer with length 0 is the empty string.
 *            Strings that are returned are NUL-terminated copies, freed with trafo_string_free.
 * Options    The first member of an options struct is its size. Call its _init first, then change members. The library reads
 *            only struct_size bytes and accepts a larger struct if the bytes it does not know are zero. Switches are 0 or 1.
 * Threads    Every function may be called on every thread. Calls that use the same context are serialised; a context is used by
 *            its tensors, models and trainers. Calls that run the program's own functions (trainers, regions, writers, readers
 *            and progress) do not make other threads wait: their calls on the context are INVALID_ARGUMENT until it is free
 *            again. A handle that is freed while a call on it is in flight stays valid until that call returns.
 * Callbacks  A callback is a function and a user_data pointer, which may be NULL. It runs on the calling thread, without any
 *            lock held, and stops the work by returning non-zero. trafo_pair_fn has separate rules.
 * Process    The library never prints, exits, aborts or installs a signal handler. It opens network connections only between the
 *            ranks of a group that the program makes. It depends on no locale, rounding mode, trap, umask, closed stream or limit
 *            of the process, and changes none. Callbacks find the floating-point environment of the program. After fork(), a
 *            child cannot use the parent's contexts, or anything made from them (UNSUPPORTED), but may free them.
 *
 * Every symbol is stable within a major version of the ABI. `since 0.1` names the first release that has it.
 */
#ifndef TRAFO_H
#define TRAFO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRAFO_API __attribute__((visibility("default")))
#define TRAFO_MUST_USE __attribute__((warn_unused_result))
#else
#define TRAFO_API
#define TRAFO_MUST_USE
#endif

/* ---- Version -------------------------------------------------------------------------------------------------- */

/* The ABI major version of this header; compare it with trafo_abi_version(). */
#define TRAFO_ABI_VERSION 0

/* "0.1.0". Static storage. since 0.1 */
TRAFO_API const char *trafo_version(void);
/* The ABI major version of the library that is linked. since 0.1 */
TRAFO_API int32_t trafo_abi_version(void);

/* ---- Errors --------------------------------------------------------------------------------------------------- */

typedef struct trafo_error trafo_error;

#include "trafo/generated/constants.h"

/* TRAFO_OK for NULL. since 0.1 */
TRAFO_API int32_t trafo_error_code(const trafo_error *error);
/* Says what was wrong and what is allowed. Borrowed from the error; "" for NULL. since 0.1 */
TRAFO_API const char *trafo_error_message(const trafo_error *error);
/* The op or function that failed. Borrowed from the error; "" for NULL. since 0.1 */
TRAFO_API const char *trafo_error_origin(const trafo_error *error);
/* The argument of the function, or the member of its struct of options, that was wrong, such as "width". The message begins with it, so a
 * program can put its own name of it there. "": the error is of no single one, or for NULL. Borrowed from the error. since 0.1 */
TRAFO_API const char *trafo_error_field(const trafo_error *error);
/* The name of a code, such as "SHAPE_MISMATCH"; "UNKNOWN" for other numbers. Static storage. since 0.1 */
TRAFO_API const char *trafo_error_code_name(int32_t code);
/* Frees the error. since 0.1 */
TRAFO_API void trafo_error_free(trafo_error *error);

/* ---- Strings and ids that are returned ----------------------------------------------------------------------------- */

typedef struct trafo_string_view {
  const char *data;
  size_t length; /* bytes */
} trafo_string_view;

/* Frees the string. since 0.1 */
TRAFO_API void trafo_string_free(char *string);
/* Frees an array of token ids. since 0.1 */
TRAFO_API void trafo_ids_free(int32_t *ids);

/* ---- Context: a device, its memory, its threads, its tape -------------------------------------------------------- */

typedef struct trafo_context trafo_context;

#include "trafo/generated/context_options.h"

/* `options` may be NULL for the defaults. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_new(const trafo_context_options *options, trafo_context **out);
/* Objects made from the context stay valid; the last of them to be freed releases the device. since 0.1 */
TRAFO_API void trafo_context_free(trafo_context *context);
/* TRAFO_DEVICE_CPU or TRAFO_DEVICE_CUDA, and its index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_get_device(const trafo_context *context, int32_t *out_device,
                                                               int32_t *out_index);
/* Host threads that compute, 1 to 256. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_set_threads(trafo_context *context, int32_t threads);
/* The option background_share of trafo_context_options, from the next call on: 0.001 to 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_set_background_share(trafo_context *context, double share);

#include "trafo/generated/device_info.h"

/* The number of devices of a kind: TRAFO_DEVICE_CPU (always 1) or TRAFO_DEVICE_CUDA. If there are none, *out_why tells what is
 * missing and where it was looked for, else it is "". out_why may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_count(int32_t device, int32_t *out, char **out_why);
/* Describes device `index` of a kind without opening it. UNSUPPORTED: there is no such device. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_get_info(int32_t device, int32_t index, trafo_device_info *out,
                                                            size_t struct_size);

#include "trafo/generated/memory_stats.h"

/* Bytes of the context's device that are in use, were in use at most, and are reserved. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_memory_stats(trafo_context *context, trafo_memory_stats *out);
/* Returns cached blocks to the system and resets the peak. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_trim_memory(trafo_context *context);

/* Starts a profile of every op, forward and backward, and of the phases of training steps. With keep_graphs 0, training steps on
 * CUDA run kernel by kernel while the profile runs, so that it shows their ops; with 1 a replayed step is a single range. Results
 * do not change. A running profile is discarded. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_profile_start(trafo_context *context, int32_t keep_graphs);
/* Ends the profile and writes a Chrome trace (JSON). The file appears whole or not at all; with an empty path none is written.
 * *out_table gets a text table of the ops by time; out_table may be NULL. The profile is kept until the next start and can be
 * written again, also after a failure. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_profile_write(trafo_context *context, const char *path,
                                                                  size_t path_length, char **out_table);

/* ---- Cancelling -------------------------------------------------------------------------------------------------- */

/* Stops long calls. Any thread may set it while a call that got it is in flight; the call then returns TRAFO_CANCELLED between
 * two batches (of a call without batches: soon), and its objects stay usable. */
typedef struct trafo_cancel trafo_cancel;

/* A new handle, not set. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_new(trafo_cancel **out);
/* Cancels the calls that got the handle. It stays set until it is reset. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_set(const trafo_cancel *cancel);
/* Takes the cancellation back; the handle can be used again. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_reset(const trafo_cancel *cancel);
/* 1 after trafo_cancel_set, 0 before it and after trafo_cancel_reset. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_is_set(const trafo_cancel *cancel, int32_t *out);
/* Is told how far a call is. `work` is a TRAFO_WORK_* and says what `done` and `total` count. total is 0 as long as it is unknown. If
 * it returns non-zero, the cancel handle is set, which ends the call, and the call does not call it again. It cannot use the context of
 * the call (INVALID_ARGUMENT). */
typedef int32_t (*trafo_progress_fn)(void *user_data, int32_t work, int64_t done, int64_t total);

/* Calls that get the handle from now on tell `progress` how far they are, on the thread that calls: when a piece of work begins, when it
 * ends, and at most every 100 ms between. trafo_trainer_run and trafo_trainer_step tell of validations; trainers of a group tell nothing
 * but in trafo_trainer_new_in_group. Such a call runs a function of the program, so meanwhile calls of other threads on its context are
 * INVALID_ARGUMENT. Calls of several threads with one handle call the function at the same time. progress may be NULL: none is told.
 * user_data_free (may be NULL) is called once, when the function will not be called again, also if this call fails. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_set_progress(trafo_cancel *cancel, trafo_progress_fn progress, void *user_data,
                                                                void (*user_data_free)(void *));
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_cancel_free(trafo_cancel *cancel);

/* ---- Tensors ------------------------------------------------------------------------------------------------------ */

typedef struct trafo_tensor trafo_tensor;

/* A tensor with the elements of `data`, in row-major order. `bytes` is exactly the size of the tensor; NULL with 0 bytes gives
 * zeros. rank is 0 to 8, shape has the outermost dimension first. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_new(trafo_context *context, int32_t dtype, const int64_t *shape,
                                                       int32_t rank, const void *data, size_t bytes, trafo_tensor **out);
/* A copy of the elements as a new leaf, without history. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_clone(const trafo_tensor *tensor, trafo_tensor **out);
/* Another handle on the same memory. No gradient flows through it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_detach(const trafo_tensor *tensor, trafo_tensor **out);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_tensor_free(trafo_tensor *tensor);

/* The type of the elements, TRAFO_FLOAT32 and so on. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_dtype(const trafo_tensor *tensor, int32_t *out);
/* Writes the rank and up to `capacity` dimensions. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_shape(const trafo_tensor *tensor, int64_t *shape, int32_t capacity,
                                                             int32_t *out_rank);
/* Copies the elements in row-major order; `bytes` is exactly the size. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_read(const trafo_tensor *tensor, void *data, size_t bytes);
/* Overwrites a leaf's elements in row-major order. A backward that needs the old ones fails afterwards (trafo_backward).
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_write(trafo_tensor *tensor, const void *data, size_t bytes);
/* Tells the library that the program has written to the tensor's memory itself, through DLPack. A backward that needs the old
 * elements then fails, as after trafo_tensor_write. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_mark_written(trafo_tensor *tensor);

/* ---- Autodiff ------------------------------------------------------------------------------------------------------ */

/* Turns the gradient of a floating-point leaf on (1) or off (0). since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_set_requires_grad(trafo_tensor *tensor, int32_t requires_grad);
/* The gradient as a new handle; *out is NULL if no backward has reached the leaf since it was zeroed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_grad(const trafo_tensor *tensor, trafo_tensor **out);
/* Forgets the gradient of a leaf. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_zero_grad(trafo_tensor *tensor);
/* Adds the gradient of `root` to every leaf it depends on, and frees the graph. `upstream` is the gradient of `root` itself; it
 * may be NULL (1) if root has one element. INVALID_ARGUMENT names an op and a tensor that its backward needs, if the tensor's memory
 * was written to since the op ran: by trafo_tensor_write (through any handle on the memory), an optimizer or trainer, or loaded
 * weights. The parameters of a model are one memory. After an error some gradients may have been added: zero them. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_backward(trafo_context *context, const trafo_tensor *root,
                                                     const trafo_tensor *upstream);
/* Turns the recording of ops for backward on (1, the default) or off (0). *out_previous (may be NULL) gets the old setting.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_set_recording(trafo_context *context, int32_t recording,
                                                                  int32_t *out_previous);

/* A function of tensors. It reads `input_count` borrowed inputs, writes `output_count` new handles, which the library then owns,
 * and returns 0. To fail, it frees the handles it made and returns non-zero. */
typedef int32_t (*trafo_region_fn)(void *user_data, trafo_context *context, const trafo_tensor *const *inputs,
                                   size_t input_count, trafo_tensor **outputs, size_t output_count);

/* Gradient checkpointing: runs `region` without keeping its intermediates and runs it again during backward, with the same bits.
 * user_data_free (may be NULL) is called once, when the region can no longer run, also if the call fails. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_checkpoint(trafo_context *context, trafo_region_fn region, void *user_data,
                                                       void (*user_data_free)(void *), const trafo_tensor *const *inputs,
                                                       size_t input_count, trafo_tensor **outputs, size_t output_count);

/* An op of the program, with its gradient. `forward` is a region, which is not recorded, and makes new floating-point tensors of its
 * inputs. `backward` gets the inputs, then the outputs, then a gradient of each output (zeros where nothing used it), in all input_count
 * + 2 output_count tensors; it writes a gradient of each input, of the input's shape and type, or leaves NULL where there is none. Nothing
 * may write to these gradients until trafo_backward has returned. `backward` runs in trafo_backward, whose error it is when it returns
 * non-zero, and, like `forward`, inside checkpointed regions and trafo_gradcheck. In it, trafo_backward and recording are
 * INVALID_ARGUMENT.
 * Inputs and outputs are kept until then. No gradient flows to tensors that are not inputs. user_data is for both functions;
 * user_data_free (may be NULL) is called once, when they can no longer run, also if the call fails. CANCELLED: `forward` returned
 * non-zero. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_custom_op(trafo_context *context, trafo_region_fn forward, trafo_region_fn backward,
                                                      void *user_data, void (*user_data_free)(void *),
                                                      const trafo_tensor *const *inputs, size_t input_count,
                                                      trafo_tensor **outputs, size_t output_count);

typedef struct trafo_gradcheck_result {
  int32_t ok;
  int64_t checked;    /* derivatives compared */
  double worst_error; /* largest |analytic - numeric| - rtol |numeric| */
} trafo_gradcheck_result;

/* Compares the analytic gradients of `region` with central differences of step eps, for every element of every float64 input:
 * |analytic - numeric| <= atol + rtol |numeric|. out_message (may be NULL) gets the first failure, or "". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_gradcheck(trafo_context *context, trafo_region_fn region, void *user_data,
                                                      const trafo_tensor *const *inputs, size_t input_count,
                                                      size_t output_count, double eps, double atol, double rtol,
                                                      trafo_gradcheck_result *out, char **out_message);

/* ---- Ops ------------------------------------------------------------------------------------------------------------
 * Inputs are borrowed and belong to `context`; the result is a new handle. The floating-point inputs of an op share one dtype:
 * float32, float64 or, on CUDA, bfloat16. On the CPU bfloat16 is a storage type: cast it first. SHAPE_MISMATCH, DTYPE_MISMATCH.
 * Dimensions in comments: T tokens, C channels, V classes, F the width of a feed-forward layer. */

/* Dropout with a counter-based random generator. (seed, step, dropout_id) and the index of the element decide whether it is zeroed,
 * so the mask is the same on every device and again in backward. p: probability of zeroing, 0 <= p < 1. */
typedef struct trafo_dropout {
  float p;
  uint32_t step;
  uint32_t dropout_id; /* which dropout of the model */
  uint32_t reserved;   /* 0 */
  uint64_t seed;
} trafo_dropout;

#include "trafo/generated/embedding_options.h"

/* The sinusoidal position table [positions, width] (arXiv 1706.03762, sines first, then cosines); width even. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sinusoidal_positions(trafo_context *context, int64_t positions, int64_t width,
                                                                 int32_t dtype, trafo_tensor **out);

#include "trafo/generated/attention_options.h"

#include "trafo/generated/cross_entropy_options.h"

#include "trafo/generated/ops.h"

/* ---- Optimizer on user parameters --------------------------------------------------------------------------------- */

typedef struct trafo_adamw trafo_adamw;

#include "trafo/generated/adamw_options.h"

/* An AdamW optimizer over leaves that have gradients on, all of one dtype. It keeps them alive and zeroes their gradients. With
 * weight_decay 0, the default, it is Adam. Groups of parameters with different settings need an optimizer each. options may be
 * NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_new(trafo_context *context, trafo_tensor *const *parameters,
                                                      size_t count, const trafo_adamw_options *options,
                                                      trafo_adamw **out);
/* Updates every parameter that has a gradient, then zeroes the gradients. out_grad_norm (may be NULL) gets the global norm before
 * clipping. NON_FINITE: the norm is NaN or infinite; no parameter has changed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_step(trafo_adamw *optimizer, double learning_rate,
                                                       double *out_grad_norm);
/* Writes what training resumes from to a safetensors file with checksums, which appears whole or not at all: of each parameter i, in
 * the order of trafo_adamw_new, "parameter.i", "first_moment.i", "second_moment.i" and "updates.i". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_save(const trafo_adamw *optimizer, const char *path, size_t path_length);
/* Reads such a file into the parameters and the optimizer; the next update has the same bits as without the pause. Gradients are
 * zeroed, and the options of trafo_adamw_new stay. NOT_FOUND names a missing file or tensor, SHAPE_MISMATCH a tensor of
 * another shape or dtype or another number of parameters, CORRUPT_FILE what is damaged; nothing has changed then. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_load(trafo_adamw *optimizer, const char *path, size_t path_length);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_adamw_free(trafo_adamw *optimizer);

/* Scales the gradients of the parameters so that their common norm is at most max_norm (0: measures only). The parameters may be
 * those of several optimizers. Those without a gradient count as 0. out_norm (may be NULL) gets the norm before. NON_FINITE: the
 * norm is NaN or infinite; nothing has changed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_clip_grad_norm(trafo_context *context, trafo_tensor *const *parameters,
                                                           size_t count, double max_norm, double *out_norm);
/* One update of SGD for each leaf p that has a gradient g, which is zeroed then: v = momentum v + g + weight_decay p,
 * p = p - learning_rate v. `velocities` has a tensor like each parameter, zeros at first; it may be NULL if momentum is 0. Call it
 * once for each group of parameters with different settings. Parameters are float32, or float64 on the CPU. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sgd_step(trafo_context *context, trafo_tensor *const *parameters,
                                                     trafo_tensor *const *velocities, size_t count, double learning_rate,
                                                     double momentum, double weight_decay);

/* ---- Random tensors, and files of tensors -------------------------------------------------------------------------- */

#define TRAFO_UNIFORM 0 /* a: low, b: high */
#define TRAFO_NORMAL 1  /* a: mean, b: standard deviation */

/* A floating-point leaf with random elements. A seed gives the same numbers on every device. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_random(trafo_context *context, int32_t dtype, const int64_t *shape,
                                                          int32_t rank, int32_t distribution, double a, double b,
                                                          uint64_t seed, trafo_tensor **out);
/* Writes tensors with their names to a safetensors file with checksums, which appears whole or not at all. Names are UTF-8, not
 * empty, and different. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensors_save(trafo_context *context, const char *path, size_t path_length,
                                                         const trafo_string_view *names,
                                                         const trafo_tensor *const *tensors, size_t count);
/* Reads the tensors of these names from a safetensors file as new leaves: out has room for `count` handles. The file may have more.
 * NOT_FOUND names a missing file or tensor, CORRUPT_FILE what is damaged. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensors_load(trafo_context *context, const char *path, size_t path_length,
                                                         const trafo_string_view *names, size_t count, trafo_tensor **out);
/* The names of the tensors in a safetensors file, in ascending order, each with a NUL byte after it: a string of *out_length bytes, freed
 * with trafo_string_free. NOT_FOUND, IO, CORRUPT_FILE. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensors_list(const char *path, size_t path_length, char **out_names,
                                                         size_t *out_length);
/* Copies the tensors of these names from a safetensors file into leaves of the program, as trafo_tensor_write does. The file may have
 * more. NOT_FOUND names a missing file or tensor, SHAPE_MISMATCH a tensor of another shape or dtype, CORRUPT_FILE what is damaged:
 * nothing has changed then. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensors_read(trafo_context *context, const char *path, size_t path_length,
                                                         const trafo_string_view *names, trafo_tensor *const *tensors,
                                                         size_t count);

#ifdef __cplusplus
}
#endif

#include "trafo_text.h"
#include "trafo_models.h"
#include "trafo_translation.h"
#include "trafo_data.h"
#include "trafo_dlpack.h"
#include "trafo_callbacks.h"
#include "trafo_distributed.h"

#endif /* TRAFO_H */
