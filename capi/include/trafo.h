/*
 * Trafo: an embedded training engine for transformers. This header is the whole public interface.
 *
 * Errors     Every call that can fail returns NULL for success or an error object, which the caller frees with
 *            trafo_error_free. Outputs come last and are zero or NULL after a failure. A failed call changes nothing else,
 *            unless its comment says so.
 * Ownership  _new, _load, _clone and functions with an out-handle give ownership: free it with the noun's _free, which
 *            accepts NULL. _get_ borrows: valid until the parent is freed or changed. A freed handle, a handle of another
 *            kind or NULL is INVALID_ARGUMENT wherever it can be told.
 * Strings    UTF-8, pointer and length, need no NUL; a NULL pointer with length 0 is the empty string. Strings that come
 *            out are NUL-terminated copies, freed with trafo_string_free.
 * Options    A struct's first member is its size: call its _init first, then set what differs. The library reads only
 *            struct_size bytes; a larger struct is accepted if its unknown tail is zero.
 * Threads    A const handle may be used by several threads at once; anything else by one thread at a time; everything may
 *            move between threads. Handles made from a context use that context: one thread at a time for all of them.
 * Callbacks  (fn, user_data). No lock is held while they run; a non-zero result stops the work. They run on the calling
 *            thread and must not free the object that is calling.
 * Process    The library never prints, exits, aborts, installs signal handlers or opens a network connection.
 *
 * Every symbol is stable within one ABI major version. `since 0.1` is the first release.
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

/* ABI major version this header describes; compare with trafo_abi_version(). */
#define TRAFO_ABI_VERSION 0

/* "0.1.0". Static storage. since 0.1 */
TRAFO_API const char *trafo_version(void);
/* since 0.1 */
TRAFO_API int32_t trafo_abi_version(void);

/* ---- Errors --------------------------------------------------------------------------------------------------- */

typedef struct trafo_error trafo_error;

/* int32 values; new ones may be added. */
#define TRAFO_OK 0
#define TRAFO_INVALID_ARGUMENT 1
#define TRAFO_SHAPE_MISMATCH 2
#define TRAFO_DTYPE_MISMATCH 3
#define TRAFO_OUT_OF_MEMORY 4
#define TRAFO_OUT_OF_DEVICE_MEMORY 5
#define TRAFO_NOT_FOUND 6
#define TRAFO_IO 7
#define TRAFO_CORRUPT_FILE 8
#define TRAFO_UNSUPPORTED 9
#define TRAFO_CANCELLED 10
#define TRAFO_DEVICE_LOST 11
#define TRAFO_NON_FINITE 12
#define TRAFO_VERSION 13
#define TRAFO_INTERNAL 14

/* TRAFO_OK for NULL. since 0.1 */
TRAFO_API int32_t trafo_error_code(const trafo_error *error);
/* What was wrong and what would be right. Borrowed; "" for NULL. since 0.1 */
TRAFO_API const char *trafo_error_message(const trafo_error *error);
/* The op or function that refused. Borrowed; "" for NULL. since 0.1 */
TRAFO_API const char *trafo_error_origin(const trafo_error *error);
/* "SHAPE_MISMATCH"; "UNKNOWN" for a number that is no code. Static storage. since 0.1 */
TRAFO_API const char *trafo_error_code_name(int32_t code);
/* since 0.1 */
TRAFO_API void trafo_error_free(trafo_error *error);

/* ---- Strings and buffers that come out ------------------------------------------------------------------------- */

typedef struct trafo_string_view {
  const char *data;
  size_t length; /* bytes */
} trafo_string_view;

/* since 0.1 */
TRAFO_API void trafo_string_free(char *string);
/* For int32 arrays that come out. since 0.1 */
TRAFO_API void trafo_ids_free(int32_t *ids);
/* For byte buffers that come out. since 0.1 */
TRAFO_API void trafo_buffer_free(uint8_t *buffer);

/* ---- Context: a device, its memory, its threads, its tape -------------------------------------------------------- */

typedef struct trafo_context trafo_context;

#define TRAFO_DEVICE_CPU 0
#define TRAFO_DEVICE_CUDA 1
/* CUDA device 0 where plugin, driver and device are there and fit, else the CPU. Only for trafo_context_options;
 * trafo_context_get_device says what was taken. */
#define TRAFO_DEVICE_AUTO 2

typedef struct trafo_context_options {
  size_t struct_size;
  int32_t device;        /* TRAFO_DEVICE_*; default CPU */
  int32_t device_index;  /* default 0; 0 for CPU and AUTO */
  int32_t threads;       /* host threads that compute; default 0: one for each core. Never changes results. */
  int32_t fused_kernels; /* default 1; 0 runs every op's composed reference */
  int32_t graphs;        /* default 1; 0: training steps on CUDA are issued kernel by kernel. Never changes a bit */
  int32_t reserved;      /* 0 */
} trafo_context_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_options_init(trafo_context_options *options, size_t struct_size);
/* `options` may be NULL for the defaults. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_new(const trafo_context_options *options, trafo_context **out);
/* Objects made from the context stay valid; the memory goes when the last of them does. since 0.1 */
TRAFO_API void trafo_context_free(trafo_context *context);
/* TRAFO_DEVICE_CPU or TRAFO_DEVICE_CUDA, and its index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_get_device(const trafo_context *context, int32_t *out_device,
                                                               int32_t *out_index);
/* Threads 1 to 256. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_set_threads(trafo_context *context, int32_t threads);

typedef struct trafo_device_info {
  size_t struct_size;
  int64_t memory_bytes;  /* all of the device's memory; for the CPU all of the machine's */
  int32_t compute_major; /* CUDA: the compute capability; 0 for the CPU */
  int32_t compute_minor;
  char name[128];        /* "NVIDIA H200"; "CPU" */
} trafo_device_info;

/* How many devices of a kind (TRAFO_DEVICE_CPU: 1, or TRAFO_DEVICE_CUDA) there are. *out_why, if not NULL, says what is missing
 * when there are none, and where it was looked for; else it is "". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_count(int32_t device, int32_t *out, char **out_why);
/* Describes device `index` of a kind without opening it. UNSUPPORTED: there is none of this index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_get_info(int32_t device, int32_t index, trafo_device_info *out,
                                                            size_t struct_size);

typedef struct trafo_memory_stats {
  int64_t allocated_bytes; /* in use now */
  int64_t peak_bytes;      /* most in use since the context was made or the peak was reset */
  int64_t reserved_bytes;  /* taken from the system, kept blocks included */
} trafo_memory_stats;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_memory_stats(trafo_context *context, trafo_memory_stats *out);
/* Gives kept blocks back to the system and starts a new peak. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_trim_memory(trafo_context *context);

/* Begins a profile: times of every op, forward and backward, and of the phases of training steps. keep_graphs 0: training steps on
 * CUDA are issued kernel by kernel meanwhile, so that their ops are seen; else a step stays one range. Never changes a bit. A
 * profile that was being recorded is dropped. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_profile_start(trafo_context *context, int32_t keep_graphs);
/* Ends the profile and writes it as a Chrome trace (JSON), whole or not at all; an empty path writes nothing. *out_table, if not
 * NULL, gets the ops by time as text. The profile is kept until the next start and may be written again, also after a failure.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_profile_write(trafo_context *context, const char *path,
                                                                  size_t path_length, char **out_table);

/* ---- Cancelling -------------------------------------------------------------------------------------------------- */

/* May be set from any thread while long work that was given it runs; the work returns TRAFO_CANCELLED between two batches,
 * in a consistent state. */
typedef struct trafo_cancel trafo_cancel;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_new(trafo_cancel **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_set(const trafo_cancel *cancel);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_reset(const trafo_cancel *cancel);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cancel_is_set(const trafo_cancel *cancel, int32_t *out);
/* since 0.1 */
TRAFO_API void trafo_cancel_free(trafo_cancel *cancel);

/* ---- Tensors ------------------------------------------------------------------------------------------------------ */

typedef struct trafo_tensor trafo_tensor;

#define TRAFO_FLOAT32 0
#define TRAFO_FLOAT64 1
#define TRAFO_BFLOAT16 2
#define TRAFO_INT32 3

/* Copies `bytes` of host memory, exactly the size of the tensor; NULL with 0 bytes gives zeros. rank 0 to 8; dimensions
 * outermost first. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_new(trafo_context *context, int32_t dtype, const int64_t *shape,
                                                       int32_t rank, const void *data, size_t bytes, trafo_tensor **out);
/* A leaf's copy: same values, no history. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_clone(const trafo_tensor *tensor, trafo_tensor **out);
/* Another handle on the same memory without history: no gradient flows through it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_detach(const trafo_tensor *tensor, trafo_tensor **out);
/* since 0.1 */
TRAFO_API void trafo_tensor_free(trafo_tensor *tensor);

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_dtype(const trafo_tensor *tensor, int32_t *out);
/* Writes the rank and up to `capacity` dimensions. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_shape(const trafo_tensor *tensor, int64_t *shape, int32_t capacity,
                                                             int32_t *out_rank);
/* Copies the elements in row-major order; `bytes` is exactly the size. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_read(const trafo_tensor *tensor, void *data, size_t bytes);
/* Overwrites a leaf's elements in row-major order. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_write(trafo_tensor *tensor, const void *data, size_t bytes);

/* ---- Autodiff ------------------------------------------------------------------------------------------------------ */

/* Marks a floating-point leaf whose gradient is wanted. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_set_requires_grad(trafo_tensor *tensor, int32_t requires_grad);
/* The gradient as a new handle, *out = NULL if none has arrived since it was zeroed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_get_grad(const trafo_tensor *tensor, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_zero_grad(trafo_tensor *tensor);
/* Adds the gradients of `root` to every leaf it depends on and frees the graph. `upstream`, the gradient of `root`, may be NULL
 * if root has one element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_backward(trafo_context *context, const trafo_tensor *root,
                                                     const trafo_tensor *upstream);
/* Whether ops are recorded (default 1); *out_previous, if not NULL, gets the old setting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_set_recording(trafo_context *context, int32_t recording,
                                                                  int32_t *out_previous);

/* A function of tensors: reads `input_count` borrowed inputs, writes `output_count` new handles (ownership passes to the
 * caller of the callback) and returns 0, or frees what it made and returns non-zero. */
typedef int32_t (*trafo_region_fn)(void *user_data, trafo_context *context, const trafo_tensor *const *inputs,
                                   size_t input_count, trafo_tensor **outputs, size_t output_count);

/* Runs `region` now without keeping its intermediates and again during backward, with the same bits. user_data_free (may be
 * NULL) is called once, when the region can no longer run, also if the call fails. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_checkpoint(trafo_context *context, trafo_region_fn region, void *user_data,
                                                       void (*user_data_free)(void *), const trafo_tensor *const *inputs,
                                                       size_t input_count, trafo_tensor **outputs, size_t output_count);

typedef struct trafo_gradcheck_result {
  int32_t ok;
  int64_t checked;    /* derivatives compared */
  double worst_error; /* largest |analytic - numeric| - rtol |numeric| */
} trafo_gradcheck_result;

/* Compares analytic gradients of `region` with central differences (step eps) for every element of every float64 input:
 * |analytic - numeric| <= atol + rtol |numeric|. out_message (may be NULL) gets the first failure, or "". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_gradcheck(trafo_context *context, trafo_region_fn region, void *user_data,
                                                      const trafo_tensor *const *inputs, size_t input_count,
                                                      size_t output_count, double eps, double atol, double rtol,
                                                      trafo_gradcheck_result *out, char **out_message);

/* ---- Ops ------------------------------------------------------------------------------------------------------------
 * Inputs are borrowed; the result is a new handle. All inputs live in `context`. Floating-point inputs of one op share one
 * dtype, float32 or float64; bfloat16 is a storage type on the CPU: cast first. */

/* dropout addressed by (seed, step, site, element): the same address gives the same mask on every device and again in backward.
 * p: probability of zeroing, 0 <= p < 1. */
typedef struct trafo_dropout {
  float p;
  uint32_t step;
  uint32_t site;
  uint32_t reserved; /* 0 */
  uint64_t seed;
} trafo_dropout;

#define TRAFO_RELU 0
#define TRAFO_GELU 1 /* tanh form */
#define TRAFO_SILU 2

#define TRAFO_REDUCE_NONE 0
#define TRAFO_REDUCE_SUM 1
#define TRAFO_REDUCE_MEAN 2

/* NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_add(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                   trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_subtract(trafo_context *context, const trafo_tensor *a,
                                                        const trafo_tensor *b, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_multiply(trafo_context *context, const trafo_tensor *a,
                                                        const trafo_tensor *b, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_divide(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      trafo_tensor **out);
/* factor * x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scale(trafo_context *context, const trafo_tensor *x, double factor,
                                                     trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_exp(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_log(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sqrt(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_tanh(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sigmoid(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* Over everything -> [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* Over everything -> [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* Over one dimension (negative counts from the end); keep_dim leaves a 1 in its place. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                        int32_t keep_dim, trafo_tensor **out);
/* The gradient goes to the first maximum. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_max_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* One dimension may be -1 and is inferred. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_reshape(trafo_context *context, const trafo_tensor *x, const int64_t *shape,
                                                       int32_t rank, trafo_tensor **out);
/* Swaps two dimensions; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_transpose(trafo_context *context, const trafo_tensor *x, int32_t dim0,
                                                         int32_t dim1, trafo_tensor **out);
/* x[.., start:stop, ..]; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_slice(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                     int64_t start, int64_t stop, trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_concat(trafo_context *context, const trafo_tensor *const *tensors,
                                                      size_t count, int32_t dim, trafo_tensor **out);
/* Between float32, float64 and bfloat16. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cast(trafo_context *context, const trafo_tensor *x, int32_t dtype,
                                                    trafo_tensor **out);
/* [m,k] x [k,n], or batched [b,m,k] x [b,k,n]; transpose_* swaps the last two dimensions of an input. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_matmul(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      int32_t transpose_a, int32_t transpose_b, trafo_tensor **out);
/* x W^T + bias: x [.., in], weight [out, in], bias [out] or NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear(trafo_context *context, const trafo_tensor *x,
                                                      const trafo_tensor *weight, const trafo_tensor *bias,
                                                      trafo_tensor **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_dropout(trafo_context *context, const trafo_tensor *x,
                                                       const trafo_dropout *dropout, trafo_tensor **out);
/* dropout(scale * table[ids] + position_table[positions]): ids [T] int32, table [V,C], positions [T] int32 and position_table
 * [P,C] or both NULL, dropout or NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_embedding(trafo_context *context, const trafo_tensor *ids,
                                                         const trafo_tensor *table, double scale,
                                                         const trafo_tensor *positions,
                                                         const trafo_tensor *position_table,
                                                         const trafo_dropout *dropout, trafo_tensor **out);
/* The sinusoidal position table [positions, width] (arXiv 1706.03762, sines first, then cosines); width even. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sinusoidal_positions(trafo_context *context, int64_t positions, int64_t width,
                                                                 int32_t dtype, trafo_tensor **out);
/* Over the last dimension; gamma, beta [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_layer_norm(trafo_context *context, const trafo_tensor *x,
                                                          const trafo_tensor *gamma, const trafo_tensor *beta,
                                                          double epsilon, trafo_tensor **out);
/* softmax(scale * x) over the last dimension; x [batch, heads, queries, keys] or fewer dimensions; padding_mask [batch, keys]
 * int32, non-zero = hidden, or NULL; causal: key j hidden from query i when j > i + keys - queries. A row with every key hidden
 * is zeros. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_softmax(trafo_context *context, const trafo_tensor *x, double scale,
                                                       int32_t causal, const trafo_tensor *padding_mask,
                                                       trafo_tensor **out);

typedef struct trafo_attention_options {
  size_t struct_size;
  int64_t heads;    /* default 1 */
  int64_t head_dim; /* must be set */
  int64_t q_column; /* first of heads * head_dim columns of q, k and v; default 0 */
  int64_t k_column;
  int64_t v_column;
  double scale;     /* default 0: 1 / sqrt(head_dim) */
  int32_t causal;   /* default 0 */
  int32_t reserved; /* 0 */
  trafo_dropout dropout; /* on probabilities; default off */
} trafo_attention_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_attention_options_init(trafo_attention_options *options, size_t struct_size);
/* Scaled dot-product attention over packed sequences: q [Tq, ..], k, v [Tk, ..] (the same tensor may serve as all three, at
 * different columns); cu_seqlens_* [B+1] int32, rows of sequence b are cu_seqlens[b] .. cu_seqlens[b+1]. -> [Tq, heads *
 * head_dim]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_attention(trafo_context *context, const trafo_tensor *q,
                                                         const trafo_tensor *k, const trafo_tensor *v,
                                                         const trafo_tensor *cu_seqlens_q,
                                                         const trafo_tensor *cu_seqlens_k,
                                                         const trafo_attention_options *options, trafo_tensor **out);
/* activation: TRAFO_RELU, _GELU, _SILU. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_activation(trafo_context *context, const trafo_tensor *x,
                                                          int32_t activation, trafo_tensor **out);
/* dropout(activation(x + bias)): bias [C] or NULL, dropout or NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_act_dropout(trafo_context *context, const trafo_tensor *x,
                                                                const trafo_tensor *bias, int32_t activation,
                                                                const trafo_dropout *dropout, trafo_tensor **out);
/* residual + dropout(x + bias): bias [C] or NULL, dropout or NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual(trafo_context *context, const trafo_tensor *x,
                                                                     const trafo_tensor *bias,
                                                                     const trafo_tensor *residual,
                                                                     const trafo_dropout *dropout, trafo_tensor **out);
/* sum = residual + dropout(x + bias) and normed = layer_norm(sum), in one pass. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, const trafo_tensor *residual,
    const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon, const trafo_dropout *dropout,
    trafo_tensor **out_sum, trafo_tensor **out_normed);

typedef struct trafo_cross_entropy_options {
  size_t struct_size;
  double label_smoothing;      /* default 0; mass spread over all classes */
  int32_t ignore_label;        /* default -100 */
  int32_t reduction;           /* default TRAFO_REDUCE_MEAN: over the weights that are not ignored */
  const trafo_tensor *weights; /* [T] of the logits' dtype, or NULL (default): all 1. No gradient */
} trafo_cross_entropy_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cross_entropy_options_init(trafo_cross_entropy_options *options,
                                                                       size_t struct_size);
/* logits [T,V], labels [T] int32 -> loss [1] or [T]; out_nll (may be NULL) gets the same without smoothing, never differentiated.
 * options may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cross_entropy(trafo_context *context, const trafo_tensor *logits,
                                                             const trafo_tensor *labels,
                                                             const trafo_cross_entropy_options *options,
                                                             trafo_tensor **out_loss, trafo_tensor **out_nll);
/* cross_entropy(x W^T + bias) in chunks, without ever holding all logits: x [T,C], weight [V,C], bias [V] or NULL. reduction sum
 * or mean. chunk_bytes: logits held at a time, 0 for the default. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear_cross_entropy(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight, const trafo_tensor *bias,
    const trafo_tensor *labels, const trafo_cross_entropy_options *options, int64_t chunk_bytes,
    trafo_tensor **out_loss, trafo_tensor **out_nll);

/* ---- Optimizer on user parameters --------------------------------------------------------------------------------- */

typedef struct trafo_adamw trafo_adamw;

typedef struct trafo_adamw_options {
  size_t struct_size;
  double beta1;        /* default 0.9 */
  double beta2;        /* default 0.98 */
  double epsilon;      /* default 1e-9 */
  double weight_decay; /* default 0 */
  double clip_norm;    /* global gradient norm limit; default 0: off */
} trafo_adamw_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_options_init(trafo_adamw_options *options, size_t struct_size);
/* Keeps the parameters (leaves that want gradients, one dtype) alive; gradients they already hold are forgotten. options may be
 * NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_new(trafo_context *context, trafo_tensor *const *parameters,
                                                      size_t count, const trafo_adamw_options *options,
                                                      trafo_adamw **out);
/* Updates every parameter that has a gradient, then zeroes the gradients. A norm that is not finite leaves everything as it is and
 * returns TRAFO_NON_FINITE. out_grad_norm (before clipping) may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_step(trafo_adamw *optimizer, double learning_rate,
                                                       double *out_grad_norm);
/* since 0.1 */
TRAFO_API void trafo_adamw_free(trafo_adamw *optimizer);

/* ---- Tokenizer: SentencePiece ------------------------------------------------------------------------------------- */

typedef struct trafo_tokenizer trafo_tokenizer;

#define TRAFO_TOKEN_UNK 0
#define TRAFO_TOKEN_BOS 1
#define TRAFO_TOKEN_EOS 2
#define TRAFO_TOKEN_PAD 3

typedef struct trafo_tokenizer_options {
  size_t struct_size;
  int64_t vocabulary;        /* pieces; default 8000 */
  double character_coverage; /* default 1.0 */
  int32_t bpe;               /* 0 (default): unigram model, 1: byte-pair encoding */
  int32_t byte_fallback;     /* default 0: unknown characters become <unk> */
  int32_t soft_limit;        /* default 0; 1: fewer pieces than asked for are accepted when the text has no more */
  int32_t reserved;          /* 0 */
} trafo_tokenizer_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_options_init(trafo_tokenizer_options *options, size_t struct_size);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_train(const trafo_string_view *lines, size_t count,
                                                            const trafo_tokenizer_options *options,
                                                            trafo_tokenizer **out);
/* A SentencePiece model file. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_load(const char *path, size_t path_length, trafo_tokenizer **out);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_load_buffer(const uint8_t *data, size_t bytes,
                                                                  trafo_tokenizer **out);
/* Writes the file whole or not at all. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_save(const trafo_tokenizer *tokenizer, const char *path,
                                                           size_t path_length);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_vocabulary(const trafo_tokenizer *tokenizer, int64_t *out);
/* Ids without <s> or </s>; freed with trafo_ids_free. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_encode(const trafo_tokenizer *tokenizer, const char *text,
                                                             size_t text_length, int32_t **out_ids, size_t *out_count);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_decode(const trafo_tokenizer *tokenizer, const int32_t *ids,
                                                             size_t count, char **out_text, size_t *out_length);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_piece(const trafo_tokenizer *tokenizer, int32_t id, char **out_piece,
                                                            size_t *out_length);
/* since 0.1 */
TRAFO_API void trafo_tokenizer_free(trafo_tokenizer *tokenizer);

/* ---- Parallel corpora ----------------------------------------------------------------------------------------------- */

typedef struct trafo_corpus trafo_corpus;

/* Two files of equal line count, plain or .gz. Errors name file, line and reason. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_load(const char *source_path, size_t source_length,
                                                        const char *target_path, size_t target_length,
                                                        trafo_corpus **out);
/* One file of source TAB target lines, plain or .gz; "-" is standard input. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_load_tsv(const char *path, size_t path_length, trafo_corpus **out);
/* Pairs in memory; checked like files, lines counted from 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_new(const trafo_string_view *source, const trafo_string_view *target,
                                                       size_t count, trafo_corpus **out);

typedef struct trafo_corpus_info {
  int64_t lines;         /* read */
  int64_t pairs;         /* kept */
  int64_t dropped_empty; /* one side empty */
} trafo_corpus_info;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_info(const trafo_corpus *corpus, trafo_corpus_info *out);
/* Borrowed views of pair `index`. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_pair(const trafo_corpus *corpus, int64_t index,
                                                            trafo_string_view *out_source,
                                                            trafo_string_view *out_target);
/* Trains one tokenizer on both sides together. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_train_tokenizer(const trafo_corpus *corpus,
                                                                   const trafo_tokenizer_options *options,
                                                                   trafo_tokenizer **out);
/* since 0.1 */
TRAFO_API void trafo_corpus_free(trafo_corpus *corpus);

/* ---- Models ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_model trafo_model;

#define TRAFO_ENCODER_DECODER 0
#define TRAFO_DECODER_LM 1 /* source <eos> target <eos> in one causal stream */

typedef struct trafo_model_config {
  size_t struct_size;
  int32_t architecture;    /* default TRAFO_ENCODER_DECODER */
  int32_t activation;      /* default TRAFO_RELU (encoder-decoder) */
  int64_t vocabulary;      /* pieces; must be set */
  int64_t encoder_layers;  /* default 6; not used by TRAFO_DECODER_LM */
  int64_t decoder_layers;  /* default 6 */
  int64_t width;           /* default 512 */
  int64_t ffn_width;       /* default 2048 */
  int64_t heads;           /* default 8 */
  int64_t max_positions;   /* longest sequence in tokens; default 1024 */
  int32_t pre_norm;        /* default 1 */
  int32_t tied_embeddings; /* default 1 */
  double dropout;          /* default 0.1 */
  double attention_dropout; /* default 0 */
  double ffn_dropout;      /* default 0 */
  double norm_epsilon;     /* default 1e-5 */
  /* What the model computes in: TRAFO_FLOAT32 (default); TRAFO_BFLOAT16 on CUDA, with float32 master copies of the
   * parameters that the optimizer works on and files hold; TRAFO_FLOAT64 on the CPU, for gradient checks. Not part of the
   * file: trafo_model_load gives float32, trafo_model_load_as what it is told. */
  int32_t precision;
  int32_t reserved;        /* 0 */
} trafo_model_config;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_init(trafo_model_config *config, size_t struct_size);
/* Fills a preset: "tiny" (4+4 x 128, ffn 256, 4 heads), "small" (4+4 x 256, ffn 1024, 4 heads), "iwslt", "base", "big",
 * "lm" (the seed's decoder: 4 x 256, 8 heads, GELU). NOT_FOUND lists the names. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_preset(trafo_model_config *config, const char *name,
                                                                size_t name_length);
/* Parameters drawn from `seed`. UNSUPPORTED: a precision that the device does not compute in. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_new(trafo_context *context, const trafo_model_config *config,
                                                      uint64_t seed, trafo_model **out);
/* A model.safetensors written by trafo_model_save or a training run. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load(trafo_context *context, const char *path, size_t path_length,
                                                       trafo_model **out);
/* The same, computing in `precision` (see trafo_model_config): TRAFO_FLOAT32 or, on CUDA, TRAFO_BFLOAT16. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_load_as(trafo_context *context, const char *path, size_t path_length,
                                                          int32_t precision, trafo_model **out);
/* Writes the file whole or not at all. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_save(const trafo_model *model, const char *path, size_t path_length);
/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_config(const trafo_model *model, trafo_model_config *out,
                                                             size_t struct_size);
/* Number of tensors, and of their elements. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter_count(const trafo_model *model, int64_t *out_tensors,
                                                                      int64_t *out_elements);
/* Name (borrowed) and a handle on the parameter's own memory; out_name, out_tensor may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_parameter(trafo_model *model, int64_t index, const char **out_name,
                                                                trafo_tensor **out_tensor);
#define TRAFO_EXPORT_HF_MARIAN 0   /* transformers' MarianMTModel: post-norm encoder-decoder, tied embeddings */
#define TRAFO_EXPORT_HF_GPT2 1     /* transformers' GPT2LMHeadModel: pre-norm decoder-lm */
#define TRAFO_EXPORT_CTRANSLATE2 2 /* every architecture */

/* Writes a model directory for another program, whole or not at all; it must not exist or be empty. What was written is read
 * back first: out_difference (may be NULL) gets how far its logits are from the model's. UNSUPPORTED names the setting that the
 * format cannot express. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_export(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                         int32_t format, const char *directory, size_t directory_length,
                                                         double *out_difference);
/* A MarianMTModel or GPT2LMHeadModel directory with model.safetensors, as float32. *out_tokenizer is NULL if it has no
 * SentencePiece model. out_note (may be NULL; freed with trafo_string_free): what the user should know, or "". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_import(trafo_context *context, const char *directory,
                                                         size_t directory_length, trafo_model **out_model,
                                                         trafo_tokenizer **out_tokenizer, char **out_note);
/* since 0.1 */
TRAFO_API void trafo_model_free(trafo_model *model);

/* ---- Training ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_trainer trafo_trainer;

#define TRAFO_SCHEDULE_CONSTANT 0
#define TRAFO_SCHEDULE_LINEAR 1
#define TRAFO_SCHEDULE_COSINE 2
#define TRAFO_SCHEDULE_INVERSE_SQRT 3
#define TRAFO_SCHEDULE_NOAM 4

#define TRAFO_UNIT_UPDATES 0
#define TRAFO_UNIT_TOKENS 1 /* target tokens */
#define TRAFO_UNIT_EPOCHS 2

/* What backward computes a second time instead of keeping it. */
#define TRAFO_RECOMPUTE_NONE 0
#define TRAFO_RECOMPUTE_SELECTIVE 1 /* the activations of the feed-forward: large and cheap */
#define TRAFO_RECOMPUTE_FULL 2      /* everything inside a layer */

/* What the optimizer keeps its two moments of every parameter in. */
#define TRAFO_OPTIMIZER_STATES_FLOAT32 0
#define TRAFO_OPTIMIZER_STATES_8BIT 1 /* codes in blocks of 256 with a scale: 2.03 bytes a parameter instead of 8 */

#define TRAFO_METRIC_CE 1 /* bits: ce-mean-words */
#define TRAFO_METRIC_BLEU 2
#define TRAFO_METRIC_CHRF 4

typedef struct trafo_period {
  int64_t value; /* 0: never */
  int32_t unit; /* TRAFO_UNIT_* */
  int32_t reserved;
} trafo_period;

typedef struct trafo_trainer_options {
  size_t struct_size;
  uint64_t seed;            /* dropout and data order; default 1 */
  double learning_rate;     /* peak; default 2e-3 */
  int64_t warmup;           /* updates; default 1000 */
  int64_t schedule_updates; /* cosine and linear: the update at which the rate reaches its end; must be set for them */
  int32_t schedule;         /* default TRAFO_SCHEDULE_INVERSE_SQRT */
  int32_t optimizer_delay;  /* batches accumulated per update; default 1 */
  double label_smoothing;   /* default 0.1 */
  double clip_norm;         /* global gradient norm; default 1; 0: off */
  double weight_decay;      /* default 0 */
  double beta1;             /* default 0.9 */
  double beta2;             /* default 0.98 */
  double epsilon;           /* default 1e-9 */
  int64_t batch_tokens;     /* target tokens a batch; default 4096 */
  int64_t max_length;       /* longer pairs are dropped and counted; default 256 tokens a side */
  int64_t after_updates;    /* training is done at the first of these that is reached; default 0: never by itself */
  int64_t after_epochs;
  int64_t after_tokens;     /* target tokens */
  trafo_period valid_freq;  /* default 1000 updates; validation happens at the end as well */
  trafo_period save_freq;   /* default 1000 updates; likewise */
  trafo_period disp_freq;   /* default 100 updates */
  int64_t disp_first;       /* the first so many updates are displayed as well; default 0 */
  int32_t early_stopping;   /* validations in a row without improvement of the deciding metric; default 0: never */
  int32_t valid_metrics;    /* bits TRAFO_METRIC_*; default all */
  int32_t first_metric;     /* one bit of valid_metrics: the metric that decides; default TRAFO_METRIC_BLEU */
  int32_t valid_beam;       /* default 1: greedy */
  int32_t keep_last;        /* checkpoints kept; default 3 */
  int32_t keep_best;        /* default 1: the best checkpoint of every metric is kept as well */
  int32_t max_bad_steps;    /* updates in a row with NaN or Inf before TRAFO_NON_FINITE; default 10 */
  int32_t recompute;        /* TRAFO_RECOMPUTE_*; default none. Less memory for more time; never changes a bit */
  int32_t optimizer_states; /* TRAFO_OPTIMIZER_STATES_*; default float32. A run continues with those it has begun with */
  int32_t batch_fit;        /* 1: batch_tokens is the largest that the memory has room for; default 0 */
  int64_t memory_limit;     /* bytes that training may take; default 0: what the device has free */
  int32_t tune_products;    /* 1: on CUDA the kernels of a new batch shape's products are measured before they first run and the fastest
                             * kept, in the run directory too: a continued run uses the same. Nothing on the CPU. Default 0 */
  int32_t reserved;         /* 0 */
} trafo_trainer_options;

typedef struct trafo_memory_plan {
  size_t struct_size;
  int64_t weights_bytes;     /* with the float32 masters of a bfloat16 model */
  int64_t gradients_bytes;
  int64_t optimizer_bytes;   /* the moments */
  int64_t activations_bytes; /* what forward and backward keep and use */
  int64_t total_bytes;       /* the peak of trafo_context_memory_stats, with the batch and small change */
  int64_t batch_tokens;      /* target tokens of the batch: those given, or the largest that fits */
  int64_t limit_bytes;       /* what training may take; 0: not known */
  int64_t device_bytes;      /* all of the device's memory, and what was free of it; 0: not asked */
  int64_t free_bytes;
} trafo_memory_plan;

/* What training takes on a CUDA device, which need not be there: `sentences` in batches of so many tokens a side (a
 * decoder-lm has no source). Of `options`, which may be NULL, optimizer_delay, optimizer_states and recompute matter; with batch_fit and a
 * memory_limit the batch is made larger or smaller, its sentences of the same lengths, to the largest that the limit has room for
 * (OUT_OF_DEVICE_MEMORY: none). INVALID_ARGUMENT: sizes that are no batch of this model. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_training(const trafo_model_config *config,
                                                          const trafo_trainer_options *options, int64_t sentences,
                                                          int64_t source_tokens, int64_t target_tokens,
                                                          trafo_memory_plan *out, size_t struct_size);

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_options_init(trafo_trainer_options *options, size_t struct_size);
/* The model (which the trainer changes), tokenizer and corpora are kept alive. `valid` may be NULL. run_directory may be empty:
 * nothing is written. If it holds a checkpoint, training continues from the newest whole one, bitwise; one of another
 * architecture, tokenizer or corpus is refused. OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY: the plan of its memory does not fit; the
 * message has the plan and what would fit. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_new(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *train, const trafo_corpus *valid,
                                                        const trafo_trainer_options *options,
                                                        const char *run_directory, size_t run_directory_length,
                                                        trafo_trainer **out);

#define TRAFO_EVENT_STARTED 0            /* message: what was dropped from the corpora, if anything */
#define TRAFO_EVENT_RESUMED 1            /* path: the checkpoint */
#define TRAFO_EVENT_CHECKPOINT_REFUSED 2 /* a newer checkpoint is damaged and was passed over; message: why */
#define TRAFO_EVENT_DISPLAY 3
#define TRAFO_EVENT_SKIPPED 4 /* an update with NaN or Inf was left out */
#define TRAFO_EVENT_EPOCH 5   /* an epoch is complete */
#define TRAFO_EVENT_VALIDATED 6 /* path: the translations, if any were written */
#define TRAFO_EVENT_SAVED 7   /* path: the checkpoint */
#define TRAFO_EVENT_FINISHED 8
#define TRAFO_EVENT_STOPPED 9 /* training can go on */
#define TRAFO_EVENT_VALIDATING 10 /* a validation begins, which may take long */

#define TRAFO_STOP_NONE 0
#define TRAFO_STOP_LIMIT 1 /* after_updates, after_epochs or after_tokens */
#define TRAFO_STOP_EARLY 2 /* early_stopping */
#define TRAFO_STOP_CALLBACK 3
#define TRAFO_STOP_CANCELLED 4
#define TRAFO_STOP_PAUSED 5 /* max_updates of this call are done */

typedef struct trafo_event {
  size_t struct_size;
  int32_t kind;          /* TRAFO_EVENT_* */
  int32_t stop;          /* TRAFO_STOP_*, FINISHED and STOPPED only */
  int64_t update;
  int64_t epoch;         /* the current one, from 1; EPOCH: the completed one */
  double epoch_fraction; /* of the current epoch, 0 to 1 */
  double loss;           /* mean per label since the last display, smoothing included */
  double nll;            /* the same without smoothing; exp() is the perplexity */
  double grad_norm;
  double learning_rate;
  int64_t target_tokens; /* of the run so far */
  int64_t source_tokens;
  double target_tokens_per_second; /* since the last display */
  double source_tokens_per_second;
  double elapsed_seconds; /* training time of the run, earlier processes included */
  double eta_seconds;     /* to the nearest limit; negative: unknown */
  int64_t memory_bytes;   /* in use */
  int64_t peak_memory_bytes;
  int64_t skipped_updates;
  int64_t stalled;        /* validations in a row without improvement */
  double valid_ce;        /* VALIDATED: cross-entropy per label; NaN where not asked for */
  double valid_bleu;
  double valid_chrf;
  double best_metric;     /* VALIDATED: best value of the deciding metric so far, and where */
  int64_t best_update;
  int32_t improved;       /* VALIDATED: the deciding metric improved */
  int32_t reserved;
  trafo_string_view message; /* borrowed while the callback runs */
  trafo_string_view path;
} trafo_event;

/* Called on the thread that runs the trainer. Non-zero stops the run; it returns TRAFO_CANCELLED. */
typedef int32_t (*trafo_event_fn)(void *user_data, const trafo_event *event);

/* Trains until a limit of the options, early stopping, max_updates more updates (0: no such limit), cancel, or an error; call again
 * to go on. Validates and saves by their frequencies and at the end; a run that is cancelled or stopped is saved as well, if there
 * is a run directory. cancel and callback may be NULL. *out_stop gets TRAFO_STOP_*. Stopped by cancel or by the callback it
 * returns TRAFO_CANCELLED. Unless it diverged (TRAFO_NON_FINITE), a call after an error continues. From inside the callback the trainer
 * refuses every call but trafo_trainer_free, which then takes effect when this call returns. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_run(trafo_trainer *trainer, int64_t max_updates,
                                                        const trafo_cancel *cancel, trafo_event_fn callback,
                                                        void *user_data, int32_t *out_stop);

typedef struct trafo_step_result {
  int64_t update;
  double loss; /* mean per label, smoothing included */
  double nll;
  double grad_norm;
  double learning_rate;
  int64_t labels;
  int32_t skipped; /* 1: NaN or Inf, nothing was changed */
  int32_t reserved;
} trafo_step_result;

/* One update; validates and saves by their frequencies like trafo_trainer_run. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_step(trafo_trainer *trainer, trafo_step_result *out);
/* Validates now; metrics not asked for are NaN. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_validate(trafo_trainer *trainer, double *out_ce, double *out_bleu,
                                                             double *out_chrf);
/* Saves a checkpoint into the run directory now. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_save(trafo_trainer *trainer);
/* What its training takes, by the largest batches of the first epoch. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_get_plan(const trafo_trainer *trainer, trafo_memory_plan *out,
                                                             size_t struct_size);
/* since 0.1 */
TRAFO_API void trafo_trainer_free(trafo_trainer *trainer);

/* ---- Translation --------------------------------------------------------------------------------------------------------- */

typedef struct trafo_translate_options {
  size_t struct_size;
  int32_t beam;            /* default 5; 1: greedy */
  int32_t n_best;          /* default 1; at most beam */
  double length_penalty;   /* score = log-probability / length^penalty; default 1 */
  int64_t max_length;      /* tokens; default 0: twice the source plus 10 */
  int64_t batch_tokens;    /* source tokens times beam decoded together; default 4096 */
  int32_t truncate;        /* 1 (default): a source over the model's limit is cut; 0: INVALID_ARGUMENT */
  int32_t reserved;
} trafo_translate_options;

typedef struct trafo_translations trafo_translations;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate_options_init(trafo_translate_options *options, size_t struct_size);
/* Translates lines, batched by length, results in input order. An empty line gives an empty translation. options, cancel may be
 * NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                      const trafo_string_view *lines, size_t count,
                                                      const trafo_translate_options *options,
                                                      const trafo_cancel *cancel, trafo_translations **out);
/* Hypothesis `rank` (0 is the best) of line `index`: text is borrowed. NOT_FOUND if there are fewer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get(const trafo_translations *translations, size_t index,
                                                             size_t rank, trafo_string_view *out_text,
                                                             double *out_score);
/* Hypotheses of line `index`. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_count(const trafo_translations *translations, size_t index,
                                                                   size_t *out);
/* How many sources were cut. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_truncated(const trafo_translations *translations,
                                                                       size_t *out);
/* since 0.1 */
TRAFO_API void trafo_translations_free(trafo_translations *translations);

/* Log-probability (natural) and target tokens (</s> included) of each pair; arrays of `count`. out_tokens may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_score(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                  const trafo_string_view *source, const trafo_string_view *target,
                                                  size_t count, double *out_log_probability, int64_t *out_tokens);

/* ---- Metrics -------------------------------------------------------------------------------------------------------------- */

/* Corpus BLEU as sacreBLEU computes it by default (13a tokenisation, exponential smoothing). signature (may be NULL) is freed with
 * trafo_string_free. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_bleu(const trafo_string_view *hypotheses, const trafo_string_view *references,
                                                 size_t count, int32_t lowercase, double *out_score,
                                                 char **out_signature);
/* Corpus chrF2 as sacreBLEU computes it by default. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_chrf(const trafo_string_view *hypotheses, const trafo_string_view *references,
                                                 size_t count, double *out_score, char **out_signature);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_H */
