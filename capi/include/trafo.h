/*
 * Trafo: an embedded training engine for transformers. This header is the whole public interface; it includes
 * trafo_models.h: tokenizers, corpora, models, training, translation and metrics; trafo_data.h: large corpora;
 * trafo_callbacks.h: functions and streams of the program; trafo_dlpack.h: tensors of other libraries.
 *
 * Errors     Every call that can fail returns NULL for success or an error object, which the caller frees with
 *            trafo_error_free. Outputs come last and are zero or NULL after a failure. A failed call changes nothing else,
 *            unless its comment says so.
 * Ownership  _new, _load, _clone and functions with an out-handle give ownership: free it with the noun's _free, which
 *            accepts NULL. _get_ borrows: valid until the parent is freed or changed. A freed handle, a handle of another
 *            kind or NULL is INVALID_ARGUMENT, whatever has been made since: handles are numbers, no addresses, and none is
 *            given out twice; _free of one does nothing. Switches are 0 or 1.
 * Strings    UTF-8, pointer and length, need no NUL; a NULL pointer with length 0 is the empty string. Strings that come
 *            out are NUL-terminated copies, freed with trafo_string_free.
 * Options    A struct's first member is its size: call its _init first, then set what differs. The library reads only
 *            struct_size bytes; a larger struct is accepted if its unknown tail is zero.
 * Threads    Everything may be used on every thread. Calls that work with one context - its tensors, models and trainers - take
 *            turns; while one that may call back runs (a trainer's, regions, writers, readers), other threads' calls on its
 *            context are INVALID_ARGUMENT. A handle that is freed while a call uses it lives until that call ends.
 * Callbacks  (fn, user_data); user_data may be NULL. No lock is held while they run; a non-zero result stops the work. They run
 *            on the calling thread. Other rules hold for trafo_pair_fn: see there.
 * Process    The library never prints, exits, aborts, installs signal handlers or opens a network connection. In a child made
 *            by fork(), contexts of the parent and what was made from them are UNSUPPORTED; freeing them there is allowed.
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

/* ---- Strings and ids that come out ----------------------------------------------------------------------------- */

typedef struct trafo_string_view {
  const char *data;
  size_t length; /* bytes */
} trafo_string_view;

/* since 0.1 */
TRAFO_API void trafo_string_free(char *string);
/* For int32 arrays that come out. since 0.1 */
TRAFO_API void trafo_ids_free(int32_t *ids);

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

/* The mask is a function of (seed, step, dropout_id, element). The same values give the same mask on every device and again in
 * backward. p: probability of zeroing, 0 <= p < 1. */
typedef struct trafo_dropout {
  float p;
  uint32_t step;
  uint32_t dropout_id; /* which dropout of the model */
  uint32_t reserved;   /* 0 */
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
/* dropout or NULL: the values as they are. since 0.1 */
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
/* x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension; gamma [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rms_norm(trafo_context *context, const trafo_tensor *x,
                                                        const trafo_tensor *gamma, double epsilon, trafo_tensor **out);
/* sum = residual + dropout(x) and normed = rms_norm(sum), in one pass; dropout or NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_residual_rms_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *residual, const trafo_tensor *gamma, double epsilon,
    const trafo_dropout *dropout, trafo_tensor **out_sum, trafo_tensor **out_normed);
/* Rotary position embedding: pairs (i, i + head_dim / 2) of every head turn by position * theta^(-2i / head_dim). positions [T]
 * int32. kv_heads 0: x [T, heads * head_dim]. Else x [T, (heads + 2 kv_heads) * head_dim] is a packed product of queries, keys and
 * values (which are not turned), and keys and values are repeated: [T, 3 * heads * head_dim]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rotary(trafo_context *context, const trafo_tensor *x,
                                                      const trafo_tensor *positions, int64_t heads, int64_t kv_heads,
                                                      int64_t head_dim, double theta, trafo_tensor **out);
/* silu(a) * b for x = [a, b], [.., 2F] -> [.., F]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_swiglu(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
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
/* sum = residual + dropout(x + bias) and normed = layer_norm(sum), in one pass; bias or NULL, dropout or NULL. since 0.1 */
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
 * or mean. chunk_bytes: logits held at a time, 0 for the default; options, out_nll may be NULL. since 0.1 */
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

#ifdef __cplusplus
}
#endif

#include "trafo_models.h"
#include "trafo_data.h"
#include "trafo_dlpack.h"
#include "trafo_callbacks.h"

#endif /* TRAFO_H */
