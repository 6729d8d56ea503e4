/* Made of capi/include/trafo.h by scripts/generate_options.py. */
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

/* Written by scripts/generate_options.py from schema/enums.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CONSTANTS_H
#define TRAFO_GENERATED_CONSTANTS_H

/* How the hidden states of a text become one vector. */
#define TRAFO_POOLING_MEAN  0 /* The mean over all tokens, the special ones included. */
#define TRAFO_POOLING_FIRST 1 /* The hidden state of the first token. */

/* Activations of feed-forward layers. */
#define TRAFO_RELU     0 /* max(x, 0). */
#define TRAFO_GELU     1 /* GELU, tanh form. */
#define TRAFO_SILU     2 /* x sigmoid(x), also called swish. */
#define TRAFO_GELU_ERF 3 /* GELU, exact: x Phi(x) with the error function. */

/* How two elements are compared. */
#define TRAFO_EQUAL         0 /* a == b. */
#define TRAFO_NOT_EQUAL     1 /* a != b. */
#define TRAFO_LESS          2 /* a < b. */
#define TRAFO_LESS_EQUAL    3 /* a <= b. */
#define TRAFO_GREATER       4 /* a > b. */
#define TRAFO_GREATER_EQUAL 5 /* a >= b. */

/* How the losses of rows become one. */
#define TRAFO_REDUCE_NONE 0 /* One loss for each row. */
#define TRAFO_REDUCE_SUM  1 /* Their sum. */
#define TRAFO_REDUCE_MEAN 2 /* Their sum over the sum of the weights that are not ignored. */

/* Models of other programs that can be written. */
#define TRAFO_EXPORT_HF_MARIAN     0 /* MarianMTModel of transformers: a post-norm encoder-decoder with tied embeddings. */
#define TRAFO_EXPORT_HF_GPT2       1 /* GPT2LMHeadModel of transformers: a pre-norm decoder-lm. */
#define TRAFO_EXPORT_CTRANSLATE2   2 /* CTranslate2: every architecture. */
/* LlamaForCausalLM of transformers: a pre-norm decoder-lm with RMS norm, rotary positions and SwiGLU. */
#define TRAFO_EXPORT_HF_LLAMA      3
#define TRAFO_EXPORT_ONNX          4 /* ONNX graphs of opset 17 and their weights: every model. */
#define TRAFO_EXPORT_GGUF          5 /* llama.cpp's file of such a model, model.gguf; a BPE vocabulary with byte fallback. */
#define TRAFO_EXPORT_HF_COMPRESSED 6 /* compressed-tensors for transformers and vLLM: such a model in int8 or int4. */
/* PegasusForConditionalGeneration of transformers: a pre-norm encoder-decoder with tied embeddings. */
#define TRAFO_EXPORT_HF_PEGASUS    7
/* M2M100ForConditionalGeneration of transformers, M2M100 and NLLB-200: such a model with fairseq_positions. */
#define TRAFO_EXPORT_HF_M2M100     8
/* MBartForConditionalGeneration of transformers, mBART-50: such a model with learned_positions. */
#define TRAFO_EXPORT_HF_MBART      9
/* BartForConditionalGeneration of transformers: such a model with post-norm layers and byte-level BPE. */
#define TRAFO_EXPORT_HF_BART       10
/* T5ForConditionalGeneration or MT5ForConditionalGeneration of transformers: a pre-norm encoder-decoder with relative_buckets
 * and RMS norm. */
#define TRAFO_EXPORT_HF_T5         11
/* BertModel, RobertaModel, XLMRobertaModel and ModernBertModel of transformers, with the head that the model has: an encoder.
 * */
#define TRAFO_EXPORT_HF_BERT       12

/* How an export stores matrices. */
#define TRAFO_EXPORT_WEIGHTS_BY_FORMAT 0 /* float16 in GGUF, int8 in compressed-tensors, float32 in the others. */
#define TRAFO_EXPORT_WEIGHTS_FLOAT32   1 /* float32. */
#define TRAFO_EXPORT_WEIGHTS_FLOAT16   2 /* float16: CTranslate2, GGUF. */
#define TRAFO_EXPORT_WEIGHTS_BFLOAT16  3 /* bfloat16: CTranslate2. */
#define TRAFO_EXPORT_WEIGHTS_INT16     4 /* CTranslate2: one scale for a matrix. */
#define TRAFO_EXPORT_WEIGHTS_INT8      5 /* CTranslate2, ONNX (7 bits), compressed-tensors: a scale for each output. */
#define TRAFO_EXPORT_WEIGHTS_Q8_0      6 /* GGUF: 8 bits, a scale for each block of 32. */
#define TRAFO_EXPORT_WEIGHTS_Q4_0      7 /* GGUF: 4 bits, a scale for each block of 32. */
#define TRAFO_EXPORT_WEIGHTS_INT4      8 /* compressed-tensors: 4 bits, a scale for each 32 values of a row. */

/* How weights are rounded. */
#define TRAFO_QUANTIZE_NEAREST 0 /* Each weight to the nearest code. */
/* int4, each weight with the error of the ones before it (Frantar et al., arXiv 2210.17323). */
#define TRAFO_QUANTIZE_GPTQ    1

/* Format of the files of a corpus. */
/* JSON lines if the name of the file ends in .jsonl, .ndjson or .json, or if the first line that is not empty is a JSON object;
 * CSV if it ends in .csv; all also with .gz; text otherwise. */
#define TRAFO_CORPUS_AUTO       0
#define TRAFO_CORPUS_TEXT       1 /* A text, or the texts of a pair with tabs between them. */
#define TRAFO_CORPUS_JSON_LINES 2 /* A JSON object, whose members are a text, the texts of a pair or a conversation. */
/* A JSON object that becomes a conversation, also with a prompt and a completion or Alpaca's members. */
#define TRAFO_CORPUS_CHATS      3
#define TRAFO_CORPUS_CSV        4 /* CSV. Its first line names the columns as JSON lines name their members. */
/* Token ids of text without a source in a .bin file of llm.c: of GPT-2 (uint16) or Llama 3 (uint32). */
#define TRAFO_CORPUS_LLM_C      5
#define TRAFO_CORPUS_NANOGPT    6 /* The same in a .bin file of nanoGPT: uint16 without a header. */
/* The same in NAME.bin and NAME.idx of Megatron: uint16 or int32. Its index says where documents end. */
#define TRAFO_CORPUS_MEGATRON   7

/* The score by which trafo_model_sparsify chooses weights: the lowest become zero. */
#define TRAFO_PRUNE_MAGNITUDE 0 /* |weight|, among all weights of the matrix. */
/* |weight| times the norm of its input, among the weights of the row (Sun et al., arXiv 2306.11695). */
#define TRAFO_PRUNE_WANDA     1

/* Which weights are compared with each other. */
#define TRAFO_SPARSITY_UNSTRUCTURED 0 /* As the score says. */
#define TRAFO_SPARSITY_2_4          1 /* The four neighbours of a row, of which two stay: the sparsity is 0.5. */

/* The normal form of text, by the names of SentencePiece. NMT: white space of all kinds becomes a space, control characters vanish, and U+200C becomes a space unless the text writes words with it, as Persian and Telugu do. CF: letters are folded to lower case. */
#define TRAFO_NORMALIZATION_NMT_NFKC    0 /* NMT's NFKC. The default. */
#define TRAFO_NORMALIZATION_NFKC        1 /* NFKC. */
#define TRAFO_NORMALIZATION_NMT_NFKC_CF 2 /* NMT's NFKC, with letters folded to lower case. */
#define TRAFO_NORMALIZATION_NFKC_CF     3 /* NFKC, with letters folded to lower case. */
#define TRAFO_NORMALIZATION_IDENTITY    4 /* Text stays as it is. */

/* How the ranks of a group exchange bytes. Later versions may add transports. */
#define TRAFO_TRANSPORT_LOCAL 0 /* Threads of one process, on the CPU or each on a separate GPU. */
#define TRAFO_TRANSPORT_MPI   1 /* The processes of an MPI job (mpirun, srun), on the CPU. Needs libtrafo_mpi.so. */
/* Threads of one process, or processes, each on a separate GPU. NCCL moves the bytes, and adds nothing up. */
#define TRAFO_TRANSPORT_NCCL  2
#define TRAFO_TRANSPORT_TCP   3 /* Processes of one host or several, on the CPU. Needs libtrafo_tcp.so. */

/* The unit of a period. */
#define TRAFO_UNIT_UPDATES 0 /* Updates. */
#define TRAFO_UNIT_TOKENS  1 /* Target tokens. */
#define TRAFO_UNIT_EPOCHS  2 /* Epochs. */

/* Why a hypothesis ends. */
#define TRAFO_FINISH_END     0 /* An end token. So ends the translation of an empty line as well. */
/* The longest length: max_length, or the positions that the model has. A text that is scored without its end has this, too. */
#define TRAFO_FINISH_LENGTH  1
#define TRAFO_FINISH_BLOCKED 2 /* No token was allowed to follow, by no_repeat_ngram_size or min_length. */
#define TRAFO_FINISH_STOP    3 /* Of a generation alone: a stop string or a stop token. */

/* The events of a training run. */
#define TRAFO_EVENT_STARTED            0 /* A new run. Message: the pairs that were dropped from the corpora, if any. */
#define TRAFO_EVENT_RESUMED            1 /* Continued from a checkpoint. Path: the checkpoint. */
#define TRAFO_EVENT_CHECKPOINT_REFUSED 2 /* A newer checkpoint is damaged and is not used. Message: why. */
#define TRAFO_EVENT_LOG                3 /* Progress, every log_freq. */
#define TRAFO_EVENT_SKIPPED            4 /* A non-finite update was skipped. Message: its loss and gradient norm. */
#define TRAFO_EVENT_EPOCH              5 /* An epoch is complete. Message: the pairs that were dropped from it, if any. */
/* A validation is done. Path: the translations, if any were written. Message: "before the first update" of the model that a run
 * or a phase starts from, which is no candidate for the best; otherwise empty. */
#define TRAFO_EVENT_VALIDATED          6
/* A checkpoint was written. On a GPU, events of later updates may precede this one. Path: the checkpoint. */
#define TRAFO_EVENT_SAVED              7
#define TRAFO_EVENT_FINISHED           8 /* A limit was reached, or early stopping ended the training. */
#define TRAFO_EVENT_STOPPED            9 /* Training ended and can be resumed. */
#define TRAFO_EVENT_VALIDATING         10 /* A validation begins; it may take long. */
/* The average of the newest checkpoints was made (average_last). Path: the averaged model. Message: the updates of its
 * checkpoints, as "100, 200". */
#define TRAFO_EVENT_AVERAGED           11
/* GEMM kernels were timed or taken from a cache (autotune_gemm). Message: how many were timed, how long that took, where the
 * other kernels come from. */
#define TRAFO_EVENT_GEMM_AUTOTUNED     12
/* Something cannot be used, and the run continues without it. Message: the event and its reason. */
#define TRAFO_EVENT_WARNING            13

/* Why training ended. */
#define TRAFO_STOP_NONE      0 /* It has not. */
#define TRAFO_STOP_LIMIT     1 /* after_updates, after_epochs or after_tokens was reached. */
#define TRAFO_STOP_EARLY     2 /* No improvement for early_stopping validations. */
#define TRAFO_STOP_CALLBACK  3 /* The function that receives events asked for it. */
#define TRAFO_STOP_CANCELLED 4 /* The cancel token was set. */
#define TRAFO_STOP_PAUSED    5 /* The updates that were asked for are done. */

/* The work of a call that tells how far it is. Later versions may add values. */
/* Files of text are read. Counts bytes of the files, which may be compressed; the total of a pipe is unknown. */
#define TRAFO_WORK_READ_TEXT        0
#define TRAFO_WORK_GATHER_TEXT      1 /* Text for the training of a tokenizer is looked at. Counts lines. */
/* A tokenizer is trained. Counts subwords; both numbers are 0 where SentencePiece does it. */
#define TRAFO_WORK_LEARN_VOCABULARY 2
#define TRAFO_WORK_ENCODE_TEXT      3 /* A corpus becomes token ids. Counts pairs. */
#define TRAFO_WORK_SCORE            4 /* A model scores pairs. Counts pairs. */
#define TRAFO_WORK_TRANSLATE        5 /* A model translates. Counts lines, and with sampling each sample of a line. */
/* Losses of the validation corpus are computed. Counts sequences: windows of long texts, and two of a preference pair. */
#define TRAFO_WORK_VALIDATE         6
#define TRAFO_WORK_EVALUATE         7 /* Translations are compared with references, for each metric. Counts lines. */
#define TRAFO_WORK_RESAMPLE         8 /* Confidence intervals are computed, for each metric. Counts resamples. */
/* Weights are copied, written, read or compared for another format. Counts weights; the writing of an export counts each twice.
 * */
#define TRAFO_WORK_CONVERT_WEIGHTS  9
#define TRAFO_WORK_CALIBRATE        10 /* A model reads calibration text. Counts target tokens. */
#define TRAFO_WORK_COMPRESS         11 /* Weights are quantized, factorized or made sparse. Counts tensors. */
#define TRAFO_WORK_LEARN_SHORTLIST  12 /* A shortlist is learned, in several passes. Counts pairs of all passes. */

/* Codes of errors. Later versions may add codes. */
#define TRAFO_OK                   0 /* No error. */
#define TRAFO_INVALID_ARGUMENT     1 /* An argument is impossible; the message names it. */
#define TRAFO_SHAPE_MISMATCH       2 /* Shapes do not fit each other. */
#define TRAFO_DTYPE_MISMATCH       3 /* Element types do not fit each other or the op. */
#define TRAFO_OUT_OF_MEMORY        4 /* No host memory. */
#define TRAFO_OUT_OF_DEVICE_MEMORY 5 /* No device memory. */
#define TRAFO_NOT_FOUND            6 /* A name, a preset or a file does not exist. */
#define TRAFO_IO                   7 /* Reading or writing failed. */
#define TRAFO_CORRUPT_FILE         8 /* A file is damaged. */
#define TRAFO_UNSUPPORTED          9 /* The library cannot do that. */
#define TRAFO_CANCELLED            10 /* Stopped on request. */
#define TRAFO_DEVICE_LOST          11 /* The device does not answer any more. */
#define TRAFO_NON_FINITE           12 /* NaN or Inf where the work cannot continue with it. */
#define TRAFO_VERSION              13 /* The library and the program, or a file, are of versions that do not fit. */
#define TRAFO_INTERNAL             14 /* A bug in the library. */
#define TRAFO_PEER_LOST            15 /* Another rank of a group has left, has died or does not answer. */

/* Devices that compute. */
#define TRAFO_DEVICE_CPU  0 /* The processor of the host. */
#define TRAFO_DEVICE_CUDA 1 /* A CUDA device. */
/* CUDA device 0 if the plugin loads and the driver and device suit it, else the CPU. Only to make a context, which tells the
 * device that was chosen. */
#define TRAFO_DEVICE_AUTO 2

/* Types of a tensor's elements. Ops compute in float32 and float64, on CUDA also in bfloat16. */
#define TRAFO_FLOAT32  0 /* 32-bit floats. */
#define TRAFO_FLOAT64  1 /* 64-bit floats: for gradient checks. */
#define TRAFO_BFLOAT16 2 /* 16-bit brain floats, a storage type on the CPU. */
#define TRAFO_INT32    3 /* 32-bit integers: tokens, labels, offsets. */
#define TRAFO_INT8     4 /* 8-bit codes, of int8 weights. No tensor has them. */

#endif /* TRAFO_GENERATED_CONSTANTS_H */

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

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CONTEXT_OPTIONS_H
#define TRAFO_GENERATED_CONTEXT_OPTIONS_H

typedef struct trafo_context_options {
  size_t struct_size;
  int32_t device; /* TRAFO_DEVICE_*. The device that computes. Default TRAFO_DEVICE_CPU. */
  int32_t device_index; /* 0 for CPU and AUTO. Default 0. */
  int32_t threads; /* Host threads that compute, 1 to 256; 0: one a core. Does not change results. Default 0. */
  int32_t fused_kernels; /* 1: ops run fused kernels; otherwise every op runs its unfused reference. Default 1. */
  int32_t graphs; /* 1: training steps on CUDA are replayed as CUDA graphs. Does not change results. Default 1. */
  /* TRAFO_*. TRAFO_FLOAT32 or TRAFO_BFLOAT16: what GEMMs of float32 tensors multiply on the CPU, forward and backward. With
   * bfloat16, both operands are rounded to it. Products are exact; sums, results, weights and all else are float32. GEMMs with
   * few rows and translating stay float32. UNSUPPORTED: bfloat16 on CUDA, where models compute in bfloat16, and on a processor
   * that lacks AVX512-BF16 or, of 64-bit ARM, FEAT_BF16. Default TRAFO_FLOAT32. */
  int32_t matmul_precision;
  /* Below 1, calls on the context are in the background: while calls on other contexts of the process are in flight, they
   * compute this share of the time, at least 0.001. On CUDA, a training step that has begun is finished first, and their work
   * has the lowest priority of the card's streams. Does not change results. Default 1. */
  double background_share;
  /* A directory for memory: tensors of at least 16 MiB lie in files without names there, which the system pages in and out. For
   * import, export and quantization of models that are larger than the machine's memory; all parameters are frozen at first.
   * Empty: none. CPU only. Does not change results. Default empty. */
  trafo_string_view memory_directory;
} trafo_context_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_options_init(trafo_context_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_CONTEXT_OPTIONS_H */

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

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_DEVICE_INFO_H
#define TRAFO_GENERATED_DEVICE_INFO_H

/* Description of a device. */
typedef struct trafo_device_info {
  size_t struct_size;
  int64_t memory_bytes; /* Total memory of the device; of the machine for the CPU. */
  int32_t compute_major; /* CUDA: the compute capability; 0 for the CPU. */
  int32_t compute_minor; /* Its second number. */
  char name[128]; /* "NVIDIA H200"; "CPU". */
  /* CPU: what multiplies int8 weights: "avx512-vnni", "avx-vnni", "avx2", "neon-dot", "neon" or "portable"; empty for a GPU. */
  char int8_kernel[32];
} trafo_device_info;

#endif /* TRAFO_GENERATED_DEVICE_INFO_H */

/* The number of devices of a kind: TRAFO_DEVICE_CPU (always 1) or TRAFO_DEVICE_CUDA. If there are none, *out_why tells what is
 * missing and where it was looked for, else it is "". out_why may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_count(int32_t device, int32_t *out, char **out_why);
/* Describes device `index` of a kind without opening it. UNSUPPORTED: there is no such device. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_device_get_info(int32_t device, int32_t index, trafo_device_info *out,
                                                            size_t struct_size);

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MEMORY_STATS_H
#define TRAFO_GENERATED_MEMORY_STATS_H

/* Memory of a context, in bytes. */
typedef struct trafo_memory_stats {
  int64_t allocated_bytes; /* In use now. */
  int64_t peak_bytes; /* Most in use since the context was made or its memory was trimmed. */
  int64_t reserved_bytes; /* Taken from the system, cached blocks included. */
} trafo_memory_stats;

#endif /* TRAFO_GENERATED_MEMORY_STATS_H */

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

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EMBEDDING_OPTIONS_H
#define TRAFO_GENERATED_EMBEDDING_OPTIONS_H

typedef struct trafo_embedding_options {
  size_t struct_size;
  double scale; /* Multiplies the rows of the table. Default 1. */
  int64_t padding_id; /* Tokens with this id give the table no gradient. Default -1: none. */
  const trafo_tensor *positions; /* [T] int32, with position_table. Default NULL. */
  const trafo_tensor *position_table; /* [P,C]. Default NULL. */
  trafo_dropout dropout; /* On the sum. Default off. */
} trafo_embedding_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_embedding_options_init(trafo_embedding_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_EMBEDDING_OPTIONS_H */

/* The sinusoidal position table [positions, width] (arXiv 1706.03762, sines first, then cosines); width even. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sinusoidal_positions(trafo_context *context, int64_t positions, int64_t width,
                                                                 int32_t dtype, trafo_tensor **out);

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_ATTENTION_OPTIONS_H
#define TRAFO_GENERATED_ATTENTION_OPTIONS_H

typedef struct trafo_attention_options {
  size_t struct_size;
  int64_t heads; /* Heads of q. Default 1. */
  int64_t kv_heads; /* Heads of k and v, a divisor of heads (grouped-query attention); 0: as many as heads. Default 0. */
  int64_t head_dim; /* Columns of a head. It must be set. */
  int64_t q_column; /* First of heads * head_dim columns of q. Default 0. */
  int64_t k_column; /* First of kv_heads * head_dim columns of k. Default 0. */
  int64_t v_column; /* First of kv_heads * head_dim columns of v. Default 0. */
  double scale; /* Of the scores; 0: 1 / sqrt(head_dim). Default 0. */
  int32_t causal; /* 1: a query attends to no later key. Default 0. */
  int32_t reserved; /* 0 */
  trafo_dropout dropout; /* On probabilities. Default off. */
  /* [B, heads, queries, keys], of which each may be 1; queries and keys of the longest sequences. int32: what is not 0 is
   * masked. Of the dtype of q: added to the scaled scores; it gets a gradient, and -infinity masks. A query whose keys are all
   * masked gives zeros. With a mask the scores of all heads are stored: memory and time are as for a matmul and a softmax.
   * Default NULL. */
  const trafo_tensor *mask;
  /* With causal, keys that a query attends to at most: its last one and those before it (sliding window). Without, it attends
   * to the keys whose distance from that one is less, on both sides. 0: all. Default 0. */
  int64_t window;
} trafo_attention_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_attention_options_init(trafo_attention_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_ATTENTION_OPTIONS_H */

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H
#define TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H

typedef struct trafo_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /* Mass spread over all classes. Default 0. */
  int32_t ignore_label; /* Rows with this label do not count. Default -100. */
  /* TRAFO_REDUCE_*. How rows are put together. The mean is divided by the sum of the weights that count. Default
   * TRAFO_REDUCE_MEAN. */
  int32_t reduction;
  /* [T], a weight for each row, of the logits' dtype (float32 for bfloat16). Without them all are 1. No gradient. Default NULL.
   * */
  const trafo_tensor *weights;
  /* [V], a weight for each class, of the same dtype. Without them all are 1. The term of class v in a row's loss is multiplied
   * by the weight of v, and a row counts with the weight of its label. No gradient. The linear cross-entropy takes them without
   * smoothing only. Default NULL. */
  const trafo_tensor *class_weights;
} trafo_cross_entropy_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cross_entropy_options_init(trafo_cross_entropy_options *options,
                                                                       size_t struct_size);

#endif /* TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H */

/* Written by scripts/generate_options.py from schema/ops.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_OPS_H
#define TRAFO_GENERATED_OPS_H

/* ---- Ops: element by element ---- */
/* Operands broadcast as in NumPy. A mask is int32, such as comparisons give; where it is not 0 it holds. NaN stays NaN. */

/* a + b, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_add(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                   trafo_tensor **out);
/* a - b, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_subtract(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                        trafo_tensor **out);
/* a * b by elements, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_multiply(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                        trafo_tensor **out);
/* a / b by elements, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_divide(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      trafo_tensor **out);
/* factor * x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scale(trafo_context *context, const trafo_tensor *x, double factor,
                                                     trafo_tensor **out);
/* x + amount. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_shift(trafo_context *context, const trafo_tensor *x, double amount,
                                                     trafo_tensor **out);
/* e to the power of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_exp(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The natural logarithm of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_log(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The square root of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sqrt(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The hyperbolic tangent of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_tanh(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* 1 / (1 + exp(-x)) of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sigmoid(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* |x|; the gradient at 0 is 0. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_abs(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The sine of each element, in radians. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sin(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The cosine of each element, in radians. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cos(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The exact GELU, x (1 + erf(x / sqrt(2))) / 2. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_gelu_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* An activation of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_activation(trafo_context *context, const trafo_tensor *x, int32_t activation,
                                                          trafo_tensor **out);
/* x^exponent; NaN for negative x with an exponent that is no integer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_power(trafo_context *context, const trafo_tensor *x, double exponent,
                                                     trafo_tensor **out);
/* min(max(x, low), high), low <= high; the gradient of an element outside is 0. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_clamp(trafo_context *context, const trafo_tensor *x, double low, double high,
                                                     trafo_tensor **out);
/* The larger of two elements; the gradient of equal elements is divided in half. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_maximum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       trafo_tensor **out);
/* The smaller of two elements; the gradient of equal elements is divided in half. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_minimum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       trafo_tensor **out);
/* a^b. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_pow(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                   trafo_tensor **out);
/* An int32 tensor: 1 where the comparison of a with b holds, else 0. Both have one type; int32 is allowed. No gradient.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_compare(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       int32_t comparison, trafo_tensor **out);
/* trafo_op_compare with a number. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_compare_number(trafo_context *context, const trafo_tensor *a, double number,
                                                              int32_t comparison, trafo_tensor **out);
/* a where mask is not 0, else b; int32 is allowed. The operand that is not chosen affects neither values nor gradients.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_where(trafo_context *context, const trafo_tensor *mask, const trafo_tensor *a,
                                                     const trafo_tensor *b, trafo_tensor **out);
/* value where mask is not 0, else x; int32 is allowed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_masked_fill(trafo_context *context, const trafo_tensor *x,
                                                           const trafo_tensor *mask, double value, trafo_tensor **out);
/* x [.., rows, columns] with 0 in place of the elements [i, j] above the diagonal: j - i > diagonal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_tril(trafo_context *context, const trafo_tensor *x, int64_t diagonal,
                                                    trafo_tensor **out);
/* trafo_op_tril below the diagonal: j - i < diagonal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_triu(trafo_context *context, const trafo_tensor *x, int64_t diagonal,
                                                    trafo_tensor **out);
/* Zeroes elements and scales the others by 1 / (1 - p). Without a dropout the values do not change. dropout may be NULL.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_dropout(trafo_context *context, const trafo_tensor *x,
                                                       const trafo_dropout *dropout, trafo_tensor **out);
/* Between float32, float64, bfloat16 and int32. To int32 it rounds towards zero; a value outside becomes the nearest int32, NaN
 * becomes 0; it has no gradient. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cast(trafo_context *context, const trafo_tensor *x, int32_t dtype,
                                                    trafo_tensor **out);

/* ---- Ops: reductions ---- */
/* A negative dim counts from the end; keep_dim leaves a dimension of size 1. */

/* The sum of all elements, [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The mean of all elements, [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The sum over one dimension. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* The mean over one dimension. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                        int32_t keep_dim, trafo_tensor **out);
/* The maximum over one dimension; the gradient goes to the first maximum. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_max_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* The sum over several dimensions, each given once; over all if none is given. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* The mean over several dimensions, given as for trafo_op_sum_dims. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                         size_t count, int32_t keep_dim, trafo_tensor **out);
/* The maximum over several dimensions, given as for trafo_op_sum_dims; the gradient goes to the first one. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_max_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* The minimum over several dimensions, given as for trafo_op_sum_dims; the gradient goes to the first one. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_min_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* An int32 tensor: the number along dim of the largest element, the first of equal ones; NaN counts as largest. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_argmax(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      int32_t keep_dim, trafo_tensor **out);
/* trafo_op_argmax of the smallest element; NaN counts as smallest. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_argmin(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      int32_t keep_dim, trafo_tensor **out);

/* ---- Ops: along dimensions ---- */
/* A negative dim counts from the end. An element of an index out of range is INVALID_ARGUMENT on the CPU. A GPU cannot report
 * it: gather gives NaN (-1 in int32), scatter and scatter_add make the first element along dim NaN. */

/* The k largest elements along dim, largest first, and their numbers (int32), equal ones by lower number. 1 <= k <= size.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_top_k(trafo_context *context, const trafo_tensor *x, int64_t k, int32_t dim,
                                                     trafo_tensor **out_values, trafo_tensor **out_ids);
/* y_i = x_0 + .. + x_i along dim; int32 is allowed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cumsum(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      trafo_tensor **out);
/* x at each place p of index, with the place along dim replaced by the index's element. The index is int32, has the rank of x
 * and is in no other dimension larger; the result has its shape. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_gather(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      const trafo_tensor *index, trafo_tensor **out);
/* x with each element of src added at the place that trafo_op_gather reads for it; src has the shape of index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scatter_add(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                           const trafo_tensor *index, const trafo_tensor *src,
                                                           trafo_tensor **out);
/* trafo_op_scatter_add with the elements put there; of several for one place the last in row-major order stays. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scatter(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       const trafo_tensor *index, const trafo_tensor *src, trafo_tensor **out);
/* The mean of the rows of each packed sequence: x [T, ..] and cu_seqlens [B + 1] int32 to [B, ..], zeros for a sequence without
 * rows. Sequence b has the rows cu_seqlens[b] to cu_seqlens[b + 1] - 1. Sums are made in float32, of float64 in float64.
 * INVALID_ARGUMENT: cu_seqlens does not rise from 0 to T. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_segment_mean(trafo_context *context, const trafo_tensor *x,
                                                            const trafo_tensor *cu_seqlens, trafo_tensor **out);

/* ---- Ops: shapes ---- */

/* The same elements in another shape. One dimension may be -1: it is inferred. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_reshape(trafo_context *context, const trafo_tensor *x, const int64_t *shape,
                                                       int32_t rank, trafo_tensor **out);
/* Swaps two dimensions; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_transpose(trafo_context *context, const trafo_tensor *x, int32_t dim0,
                                                         int32_t dim1, trafo_tensor **out);
/* Dimension i of the result is dimension dims[i] of x, each given once; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_permute(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                       size_t count, trafo_tensor **out);
/* Repeats dimensions of size 1, and new ones in front, to shape; -1 keeps the size. A view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_expand(trafo_context *context, const trafo_tensor *x, const int64_t *shape,
                                                      int32_t rank, trafo_tensor **out);
/* The elements of a range of one dimension, without its end; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_slice(trafo_context *context, const trafo_tensor *x, int32_t dim, int64_t start,
                                                     int64_t stop, trafo_tensor **out);
/* The tensors one after the other along a dimension; all other dimensions must be equal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_concat(trafo_context *context, const trafo_tensor *const *tensors, size_t count,
                                                      int32_t dim, trafo_tensor **out);

/* ---- Ops: products ---- */

/* [m,k] x [k,n], or batched [..,m,k] x [..,k,n], whose leading dimensions broadcast; a vector [k] is a row on the left and a
 * column on the right. transpose_a and transpose_b swap the last two dimensions of an input. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_matmul(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      int32_t transpose_a, int32_t transpose_b, trafo_tensor **out);
/* x W^T + bias: x [.., in], weight [out, in], bias [out]. bias may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear(trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight,
                                                      const trafo_tensor *bias, trafo_tensor **out);

/* ---- Ops: parts of transformers ---- */

/* dropout(scale * table[ids] + position_table[positions]): ids [T] int32, table [V,C] to [T,C]. options may be NULL.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_embedding(trafo_context *context, const trafo_tensor *ids,
                                                         const trafo_tensor *table, const trafo_embedding_options *options,
                                                         trafo_tensor **out);
/* Layer norm over the last dimension; gamma and beta are [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_layer_norm(trafo_context *context, const trafo_tensor *x,
                                                          const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon,
                                                          trafo_tensor **out);
/* x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension; gamma is [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rms_norm(trafo_context *context, const trafo_tensor *x,
                                                        const trafo_tensor *gamma, double epsilon, trafo_tensor **out);
/* sum = residual + dropout(x) and normed = rms_norm(sum), in one pass. dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_residual_rms_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *residual, const trafo_tensor *gamma, double epsilon,
    const trafo_dropout *dropout, trafo_tensor **out_sum, trafo_tensor **out_normed);
/* Rotary position embedding: pairs (i, i + head_dim / 2) of a head are rotated by position * theta^(-2i / head_dim). positions
 * is [T] int32. With kv_heads 0, x is [T, heads * head_dim], and all heads are rotated. Else x is the packed projection of
 * queries, keys and values, [T, (heads + 2 kv_heads) * head_dim]: queries and keys are rotated, values are copied. The result
 * has the shape of x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rotary(trafo_context *context, const trafo_tensor *x,
                                                      const trafo_tensor *positions, int64_t heads, int64_t kv_heads,
                                                      int64_t head_dim, double theta, trafo_tensor **out);
/* silu(a) * b for x = [a, b], [.., 2F] to [.., F]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_swiglu(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* softmax(scale * x) over the last dimension; x [batch, heads, queries, keys] or fewer dimensions; padding_mask [batch, keys]
 * int32, non-zero: the key is masked. causal: key j is masked for query i if j > i + keys - queries. A row whose keys are all
 * masked is zeros. padding_mask may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_softmax(trafo_context *context, const trafo_tensor *x, double scale,
                                                       int32_t causal, const trafo_tensor *padding_mask, trafo_tensor **out);
/* Scaled dot-product attention over packed sequences, to [Tq, heads * head_dim]. q [Tq, ..], k and v [Tk, ..]; one tensor may
 * serve as all three, at different columns. Query head h reads head h / (heads / kv_heads) of k and v. cu_seqlens_q and
 * cu_seqlens_k are [B+1] int32: the tokens of sequence b are rows cu_seqlens[b] to cu_seqlens[b+1] - 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_attention(
    trafo_context *context, const trafo_tensor *q, const trafo_tensor *k, const trafo_tensor *v,
    const trafo_tensor *cu_seqlens_q, const trafo_tensor *cu_seqlens_k, const trafo_attention_options *options,
    trafo_tensor **out);
/* dropout(activation(x + bias)) in one pass; bias is [C]. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_act_dropout(trafo_context *context, const trafo_tensor *x,
                                                                const trafo_tensor *bias, int32_t activation,
                                                                const trafo_dropout *dropout, trafo_tensor **out);
/* residual + dropout(x + bias) in one pass; bias is [C]. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual(trafo_context *context, const trafo_tensor *x,
                                                                     const trafo_tensor *bias, const trafo_tensor *residual,
                                                                     const trafo_dropout *dropout, trafo_tensor **out);
/* sum = residual + dropout(x + bias) and normed = layer_norm(sum), in one pass. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, const trafo_tensor *residual,
    const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon, const trafo_dropout *dropout, trafo_tensor **out_sum,
    trafo_tensor **out_normed);

/* ---- Ops: losses ---- */

/* Cross-entropy of logits [T,V] and labels [T] int32: the loss [1], or [T] without reduction, and nll, the same without
 * smoothing, which has no gradient. options and out_nll may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cross_entropy(trafo_context *context, const trafo_tensor *logits,
                                                             const trafo_tensor *labels,
                                                             const trafo_cross_entropy_options *options,
                                                             trafo_tensor **out_loss, trafo_tensor **out_nll);
/* Cross-entropy of logits [T,V] and class probabilities [T,V] of one dtype, such as a teacher's: [1], or [T] without reduction.
 * The targets may want a gradient. label_smoothing e makes them (1 - e) targets + e / V; ignore_label has no meaning; a mean is
 * divided by the sum of the row weights, without them by T. options may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_soft_cross_entropy(trafo_context *context, const trafo_tensor *logits,
                                                                  const trafo_tensor *targets,
                                                                  const trafo_cross_entropy_options *options,
                                                                  trafo_tensor **out);
/* trafo_op_cross_entropy of x W^T + bias in chunks that never hold all logits. x [T,C], weight [V,C], bias [V]; the reduction
 * is sum or mean. chunk_bytes: logits held at a time, 0 for the default. bias, options and out_nll may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear_cross_entropy(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight, const trafo_tensor *bias,
    const trafo_tensor *labels, const trafo_cross_entropy_options *options, int64_t chunk_bytes, trafo_tensor **out_loss,
    trafo_tensor **out_nll);

#endif /* TRAFO_GENERATED_OPS_H */

/* ---- Optimizer on user parameters --------------------------------------------------------------------------------- */

typedef struct trafo_adamw trafo_adamw;

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_ADAMW_OPTIONS_H
#define TRAFO_GENERATED_ADAMW_OPTIONS_H

typedef struct trafo_adamw_options {
  size_t struct_size;
  double beta1; /* Decay of the first moment. Default 0.9. */
  double beta2; /* Decay of the second moment. Default 0.98. */
  double epsilon; /* Added to the root of the second moment. Default 1e-9. */
  double weight_decay; /* Decoupled weight decay. Default 0. */
  double clip_norm; /* Limit of the global gradient norm; 0: off. Default 0. */
} trafo_adamw_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_options_init(trafo_adamw_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_ADAMW_OPTIONS_H */

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

/*
 * Trafo: tokenizers and parallel corpora. Include trafo.h; its rules hold here.
 *
 * A token is an id of the vocabulary, which represents a piece of text. Lengths in tokens count the final </s>.
 */
#ifndef TRAFO_TEXT_H
#define TRAFO_TEXT_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tokenizers --------------------------------------------------------------------------------------------------- */

typedef struct trafo_tokenizer trafo_tokenizer;

/* Special tokens of SentencePiece vocabularies that are trained here. trafo_tokenizer_get_special gives the ids of any vocabulary. */
#define TRAFO_TOKEN_UNK 0
#define TRAFO_TOKEN_BOS 1
#define TRAFO_TOKEN_EOS 2
#define TRAFO_TOKEN_PAD 3

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_TOKENIZER_OPTIONS_H
#define TRAFO_GENERATED_TOKENIZER_OPTIONS_H

typedef struct trafo_tokenizer_options {
  size_t struct_size;
  int64_t vocabulary; /* Tokens: special, byte and learned ones. Default 8000. */
  double character_coverage; /* Share of the characters that become tokens, 0.98 to 1. Default 1. */
  int32_t bpe; /* 1: it learns by byte-pair encoding; otherwise it learns a unigram model. Default 0. */
  int32_t byte_fallback; /* 1: unknown characters are spelled in byte tokens; otherwise they become <unk>. Default 0. */
  int32_t soft_limit; /* 1: the vocabulary may be smaller if the text has too few subwords. Default 0. */
  int32_t normalization; /* TRAFO_NORMALIZATION_*. The normal form of text. Default TRAFO_NORMALIZATION_NMT_NFKC. */
  /* Texts without white space that are one token each, wherever they are, and not normalised. Default none. */
  const trafo_string_view *user_symbols;
  size_t user_symbol_count;
  /* A kind by its name, such as "sentencepiece". docs/guide/vocabularies.md lists the kinds and the fields that each takes; the
   * other fields keep their defaults. Default sentencepiece. */
  trafo_string_view kind;
} trafo_tokenizer_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_options_init(trafo_tokenizer_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_TOKENIZER_OPTIONS_H */

/* Trains a tokenizer on lines of text. The same lines and options give the same one. Without options the defaults apply. A new
 * SentencePiece model has the special tokens TRAFO_TOKEN_*. cancel may be NULL. CANCELLED: soon after it is set. SentencePiece cannot
 * be stopped once it has read the lines: its training goes on unseen, and the next training, like the end of the process, waits for it.
 * INVALID_ARGUMENT: an option, an unknown kind among them; text that is not UTF-8 or has a NUL byte, and a vocabulary that the text
 * cannot fill; the message names the largest size. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_train(const trafo_string_view *lines, size_t count,
                                                            const trafo_tokenizer_options *options,
                                                            const trafo_cancel *cancel, trafo_tokenizer **out);
/* Loads a tokenizer from its file, whose content tells its kind, or from a directory as trafo_find_vocabulary does. A file with
 * the name tokenizer.json is read with tokenizer_config.json, special_tokens_map.json and generation_config.json beside it, which name
 * special tokens. NOT_FOUND, IO, CORRUPT_FILE; UNSUPPORTED: a tokenizer.json with a part that is not done here. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_load(const char *path, size_t path_length, trafo_tokenizer **out);
/* A tokenizer from the bytes of its file. CORRUPT_FILE, UNSUPPORTED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_load_buffer(const uint8_t *data, size_t bytes,
                                                                  trafo_tokenizer **out);
/* Writes its file, which appears whole or not at all. Of a directory, the file that trafo_find_vocabulary finds there. A tokenizer.json
 * is written with the files that came with it, such as tokenizer_config.json, beside it; in a file of another name it is alone. IO;
 * INVALID_ARGUMENT: such files of another vocabulary are there. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_save(const trafo_tokenizer *tokenizer, const char *path,
                                                           size_t path_length);
/* The vocabulary in the directory of a run or a model: vocab.spm or the file of another kind (docs/guide/vocabularies.md). The caller frees
 * *out_path with trafo_string_free. NOT_FOUND: it has no vocabulary. INVALID_ARGUMENT: it has two. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_find_vocabulary(const char *directory, size_t directory_length, char **out_path);
/* The kind of a tokenizer, by the names of trafo_tokenizer_options, and the name of its file in such a directory. Both are static;
 * out_file may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_kind(const trafo_tokenizer *tokenizer, const char **out_kind,
                                                               const char **out_file);
/* The number of tokens, of targets if sources have another vocabulary. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_vocabulary(const trafo_tokenizer *tokenizer, int64_t *out);
/* The number of tokens of the vocabulary of sources, or 0 if they have that of targets. Only the kind marian may have two vocabularies.
 * Then trafo_tokenizer_encode returns ids of sources, and every other call is about ids of targets. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_source_vocabulary(const trafo_tokenizer *tokenizer, int64_t *out);

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_SPECIAL_TOKENS_H
#define TRAFO_GENERATED_SPECIAL_TOKENS_H

/* Ids of special tokens. */
typedef struct trafo_special_tokens {
  int32_t unk; /* Stands for unknown text. */
  /* The decoder of an encoder-decoder begins with it, or with the end token where there is none. Negative: the vocabulary has
   * none. */
  int32_t bos;
  int32_t eos; /* Ends a text. */
  int32_t pad; /* Padding. Negative: the vocabulary has none. */
} trafo_special_tokens;

#endif /* TRAFO_GENERATED_SPECIAL_TOKENS_H */

/* Token ids of the program, such as trafo_tokenizer_encode gives. */
typedef struct trafo_ids_view {
  const int32_t *ids;
  size_t count;
} trafo_ids_view;

/* The special tokens of a vocabulary. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_special(const trafo_tokenizer *tokenizer, trafo_special_tokens *out);
/* The token ids of a text, without bos and eos; free them with trafo_ids_free. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_encode(const trafo_tokenizer *tokenizer, const char *text,
                                                             size_t text_length, int32_t **out_ids, size_t *out_count);
/* The same of a text on the target side. A vocabulary of the kind marian may have a second model for it. A tokenizer of two languages
 * begins it with the target language, where trafo_tokenizer_encode begins with the source language. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_encode_target(const trafo_tokenizer *tokenizer, const char *text,
                                                                    size_t text_length, int32_t **out_ids,
                                                                    size_t *out_count);
/* The same vocabulary as another tokenizer, for which the name of a special token in a text, such as "</s>" or "[INST]", is that token, in
 * trafo_tokenizer_encode and every call that takes a tokenizer and text; the longest name goes before. A SentencePiece model has
 * its control tokens (user-defined ones are read in any text), a tokenizer.json the special tokens of its file, and a byte
 * vocabulary none. Other tokenizers never make such a token of a text. Use
 * it for texts of the program alone: in text of its users, a name would be a token as well. A run resumes only with a tokenizer of the
 * same sort. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_parse_special(const trafo_tokenizer *tokenizer, trafo_tokenizer **out);
/* The same vocabulary as another tokenizer, for texts of two languages, as M2M100 and NLLB-200 have them: trafo_tokenizer_encode and
 * every call that takes a tokenizer and text put the token of the source language in front of a source, and that of the target language
 * in front of a target; a translation begins with it. A language is the name of a special token of the vocabulary, such as "eng_Latn",
 * or what "__" surrounds in it, such as "en". INVALID_ARGUMENT: the vocabulary has no such language; the message lists some. A run
 * resumes only with the same languages. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_with_languages(const trafo_tokenizer *tokenizer, const char *source,
                                                                     size_t source_length, const char *target,
                                                                     size_t target_length, trafo_tokenizer **out);
/* The same vocabulary as another tokenizer, with this chat template in place of the one that it came with. source: the text of a
 * Jinja template, or "chatml", which needs the tokens <|im_start|> and <|im_end|>. trafo_tokenizer_save writes it beside the vocabulary as
 * chat_template.jinja. CORRUPT_FILE, UNSUPPORTED: the template has a fault, or a construct that is not supported; the message names
 * the line. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_with_chat_template(const trafo_tokenizer *tokenizer, const char *source,
                                                                         size_t source_length, trafo_tokenizer **out);
/* The text of the chat template. NOT_FOUND: the vocabulary came without one. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_chat_template(const trafo_tokenizer *tokenizer, char **out_text,
                                                                        size_t *out_length);
/* A conversation as the text that the model reads, by the chat template of the tokenizer. conversation: a JSON object; "messages" is a
 * list of objects with "role" and "content", other members, such as "tools", and those of an object "chat_template_kwargs" are variables
 * of the template. "strftime_now" is the day of that function, as "2026-11-29". add_generation_prompt 1: the text ends with the beginning of an answer. NOT_FOUND: the tokenizer has
 * no chat template. INVALID_ARGUMENT: the template refuses the conversation. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_chat_render(const trafo_tokenizer *tokenizer, const char *conversation,
                                                        size_t conversation_length, int32_t add_generation_prompt,
                                                        char **out_text, size_t *out_length);
/* The token ids of that text, in which names of special tokens are those tokens. out_answers may be NULL; otherwise it has out_count
 * numbers, 1 for each token of an answer of the assistant, which training learns, and 0 for others. Free both with trafo_ids_free.
 * INVALID_ARGUMENT: answers cannot be found in the text, see docs/guide/chat.md. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_chat_encode(const trafo_tokenizer *tokenizer, const char *conversation,
                                                        size_t conversation_length, int32_t add_generation_prompt,
                                                        int32_t **out_ids, size_t *out_count, int32_t **out_answers);
/* The text of token ids. Special tokens give no text. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_decode(const trafo_tokenizer *tokenizer, const int32_t *ids,
                                                             size_t count, char **out_text, size_t *out_length);
/* The name of a token, such as "the", "<s>" or "<0x41>". since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_get_token(const trafo_tokenizer *tokenizer, int32_t id, char **out_subword,
                                                            size_t *out_length);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_tokenizer_free(trafo_tokenizer *tokenizer);

/* ---- Parallel corpora ----------------------------------------------------------------------------------------------- */

typedef struct trafo_corpus trafo_corpus;

/* Two files of equal line count, plain or gzip. cancel may be NULL. NOT_FOUND, IO, CORRUPT_FILE, INVALID_ARGUMENT: the message names
 * file, line and reason. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_load(const char *source_path, size_t source_length,
                                                        const char *target_path, size_t target_length,
                                                        const trafo_cancel *cancel, trafo_corpus **out);
/* One file with lines of source, TAB, target, plain or gzip; "-" is standard input. cancel may be NULL. Otherwise as trafo_corpus_load.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_load_tsv(const char *path, size_t path_length, const trafo_cancel *cancel,
                                                            trafo_corpus **out);
/* Pairs from memory, which are copied. They are checked like files; messages count lines from 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_new(const trafo_string_view *source, const trafo_string_view *target,
                                                       size_t count, trafo_corpus **out);

/* Preference pairs from memory, for TRAFO_OBJECTIVE_DPO, _ORPO and _KTO: answers chosen[i] and rejected[i] to prompts[i]. Otherwise
 * as trafo_corpus_new. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_new_preferences(const trafo_string_view *prompts,
                                                                   const trafo_string_view *chosen,
                                                                   const trafo_string_view *rejected, size_t count,
                                                                   trafo_corpus **out);

/* Labelled answers from memory, for TRAFO_OBJECTIVE_KTO: answers[i] to prompts[i] is desirable if labels[i] is 1, and not if it is
 * 0. In the corpus they are preference pairs with one answer; the other one is empty. Otherwise as trafo_corpus_new. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_new_labelled(const trafo_string_view *prompts,
                                                                const trafo_string_view *answers, const int32_t *labels,
                                                                size_t count, trafo_corpus **out);

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CORPUS_INFO_H
#define TRAFO_GENERATED_CORPUS_INFO_H

/* Sizes of a corpus. */
typedef struct trafo_corpus_info {
  int64_t lines; /* Lines of one side. */
  int64_t pairs; /* Pairs of the corpus. */
  int64_t dropped_empty; /* Pairs left out because a side is empty or white space. */
  /* Texts of a pair: 1: text without a source; 2: source and target; 3: a preference pair or a labelled answer. */
  int32_t texts;
  int32_t json_lines; /* 1: the files are JSON lines; in a mixture, the files of the first corpus. */
  int32_t chats; /* 1: the texts are conversations, as JSON: {"messages": ...}. */
  int32_t labelled; /* 1: preferences are labelled answers: of a pair, the chosen answer is empty, or the rejected one. */
  int32_t csv; /* 1: the files are CSV; in a mixture, the files of the first corpus. */
  int32_t ids; /* 1: the rows are token ids and no text. */
} trafo_corpus_info;

#endif /* TRAFO_GENERATED_CORPUS_INFO_H */

/* How many lines and pairs the corpus has, and how many were left out. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_info(const trafo_corpus *corpus, trafo_corpus_info *out);
/* Views of pair `index`, borrowed from the corpus. INVALID_ARGUMENT: the corpus has token ids and no text. If its text is on disk (more than 256 MiB) or comes from a function, they are
 * valid until the next call of this function on the thread. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_pair(const trafo_corpus *corpus, int64_t index,
                                                            trafo_string_view *out_source,
                                                            trafo_string_view *out_target);
/* The rejected answer of preference pair `index`, whose prompt and chosen answer are source and target of trafo_corpus_get_pair; a view
 * like those. INVALID_ARGUMENT: the corpus has no preference pairs. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_rejected(const trafo_corpus *corpus, int64_t index,
                                                                trafo_string_view *out_rejected);
/* The line of pair `index` in its file, counted from 0, through all files one after the other where the corpus is a mix. Lines with an
 * empty side are no pairs. Of held-out pairs and of pairs from a function it is the index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_get_line(const trafo_corpus *corpus, int64_t index, int64_t *out_line);
/* Trains one tokenizer on both sides, as trafo_tokenizer_train does. cancel may be NULL. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_train_tokenizer(const trafo_corpus *corpus,
                                                                   const trafo_tokenizer_options *options,
                                                                   const trafo_cancel *cancel, trafo_tokenizer **out);
/* Pairs of token ids from memory, which are copied. A trainer reads the rows as they are: it adds no token to them, and needs no tokenizer.
 * A target should end with </s>, which the model then learns to predict; a source of an encoder-decoder ends with it, too. An empty source
 * is for a decoder-lm, which reads </s> in its place: the target is plain text. source may be NULL: all are empty. Pairs with an empty
 * target are dropped and counted. INVALID_ARGUMENT: no pair is left, or an id is negative. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_new_ids(const trafo_ids_view *source, const trafo_ids_view *target,
                                                           size_t count, trafo_corpus **out);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_corpus_free(trafo_corpus *corpus);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_TEXT_H */
/*
 * Trafo: models and training. Include trafo.h; its rules hold here.
 *
 * A token is an id of the vocabulary, which represents a piece of text. Lengths in tokens count the final </s>.
 */
#ifndef TRAFO_MODELS_H
#define TRAFO_MODELS_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ------------------------------------------------------------------------------------------------------------ */

typedef struct trafo_model trafo_model;

#define TRAFO_TIED_LAYERS 32 /* the most layers of a stack that shares parameters */

/* Written by scripts/generate_options.py from schema/model.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MODEL_CONFIG_H
#define TRAFO_GENERATED_MODEL_CONFIG_H

/* Kinds of models. */
#define TRAFO_ENCODER_DECODER 0 /* Encoder and decoder with cross-attention. */
#define TRAFO_DECODER_LM      1 /* `source <eos> target <eos>` in one causal stream. */
/* A bidirectional stream of one text, or of two, with a head for labels or masked tokens, as BERT. */
#define TRAFO_ENCODER         2

/* The norm of a model. */
#define TRAFO_NORM_LAYER 0 /* Layer norm. */
#define TRAFO_NORM_RMS   1 /* RMS norm, without biases. */

/* How a model knows the position of a token. */
#define TRAFO_POSITIONS_STANDARD 0 /* Sinusoidal (encoder-decoder) or learned (decoder-lm). */
#define TRAFO_POSITIONS_ROTARY   1 /* Rotary position embedding of queries and keys. A decoder-lm only. */

/* The feed-forward blocks of a model. */
#define TRAFO_FFN_PLAIN  0 /* Two linear layers with an activation between them. */
#define TRAFO_FFN_SWIGLU 1 /* A gated unit with SiLU. */
#define TRAFO_FFN_GEGLU  2 /* A gated unit with the tanh form of GELU, as in Gemma and T5 1.1. */

/* The norm of queries and keys of self-attention. */
#define TRAFO_QK_NORM_NONE              0 /* There is none. */
/* RMS norm of each head before the rotary positions, with one vector of weights for queries and one for keys, as in Qwen3. A
 * decoder-lm only. */
#define TRAFO_QK_NORM_HEAD              1
#define TRAFO_QK_NORM_HEAD_AFTER_ROTARY 2 /* The same after the rotary positions, as in Hunyuan. */
/* RMS norm of all queries and of all keys of a token before the rotary positions, as in OLMo 2. A decoder-lm only. */
#define TRAFO_QK_NORM_WHOLE             3

/* How rotary positions are stretched from a number of original positions. */
#define TRAFO_ROPE_SCALING_LLAMA3 0 /* By the turns of a pair in the original positions, as in Llama 3.1. */
/* By the number of a pair, and queries and keys grow (YaRN, Peng et al., arXiv 2309.00071). */
#define TRAFO_ROPE_SCALING_YARN   1

/* The classes of transformers that an encoder is imported from and exported to. The first three compute the same. The names of their weights and the first position differ. */
#define TRAFO_ENCODER_CLASS_BERT        0 /* BertModel and its heads. */
#define TRAFO_ENCODER_CLASS_ROBERTA     1 /* RobertaModel and its heads. */
#define TRAFO_ENCODER_CLASS_XLM_ROBERTA 2 /* XLMRobertaModel and its heads. */
/* ModernBertModel and its heads: pre-norm, rotary positions, gated feed-forward blocks, a window in most layers. */
#define TRAFO_ENCODER_CLASS_MODERNBERT  3

/* Layers on top of the hidden states of an encoder. */
#define TRAFO_ENCODER_HEAD_NONE      0 /* Nothing. */
#define TRAFO_ENCODER_HEAD_MASKED_LM 1 /* Logits over the vocabulary, one row for each token. */
#define TRAFO_ENCODER_HEAD_SEQUENCE  2 /* Logits over the labels, one row for each text. */
#define TRAFO_ENCODER_HEAD_TOKEN     3 /* Logits over the labels, one row for each token. */

/* Formats of the frozen matrices of linear layers in a model that trains an adapter (QLoRA, Dettmers et al., arXiv 2305.14314). */
#define TRAFO_BASE_PRECISION_NONE 0 /* Floating point, as the other parameters. */
/* NormalFloat in 4 bits, in blocks of 64 with scales in 8 bits (double quantization); 4.13 bits a weight. */
#define TRAFO_BASE_PRECISION_NF4  1
#define TRAFO_BASE_PRECISION_INT8 2 /* Integers in 8 bits with a scale for each row. */
#define TRAFO_BASE_PRECISION_INT4 3 /* Integers in 4 bits with a float16 scale for 32 columns of a row; 4.5 bits a weight. */

typedef struct trafo_model_config {
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
  /* Factor of rotated queries and keys with the rope_scaling yarn; other models have none. Default 0: 0.1 ln(rope_factor) + 1.
   * */
  double rope_magnitude;
  /* The layers whose number, from 1, is a multiple of it have no rotary positions (SmolLM3: 4). Default 0: all layers have
   * them. */
  int64_t no_rope_interval;
  /* Factor of the embeddings of a decoder-lm (Granite), or of a model with learned_positions or relative_buckets. Default 0: 1,
   * in an encoder-decoder the root of width. */
  double embedding_scale;
  /* Factor of the scores of attention in a decoder-lm (Granite), or with relative_buckets (T5: 1). Default 0: 1 / the root of
   * head_width. */
  double attention_scale;
  /* Factor of the output of each block before the residual connection adds it, in a decoder-lm with RMS norm (Granite). Default
   * 1. */
  double residual_scale;
  /* The logits of a decoder-lm are divided by it (Granite), or with relative_buckets (T5: the root of width). The last hidden
   * states are divided, too. Default 1. */
  double logits_divisor;
  /* Tokens that a token of a decoder-lm attends to at most, itself included, as in Mistral 7B v0.1. In an encoder it attends to
   * as many on either side (ModernBERT: 65). Default 0: all. */
  int64_t sliding_window;
  /* The layers whose number, from 1, is a multiple of it attend to all tokens before, without sliding_window (Gemma 2: 2, Gemma
   * 3: 6). In an encoder the first layer and every such one after it do (ModernBERT: 3). Default 0: all layers have the window.
   * */
  int64_t full_attention_interval;
  /* Base of the angles of rotary positions in the layers with sliding_window, where rope_factor does not divide them (Gemma 3,
   * ModernBERT). Default 0: the angles of the other layers. */
  double rope_local_theta;
  /* A scaled score s of attention in a decoder-lm becomes c tanh(s / c), c being the number (Gemma 2: 50). Default 0: none. */
  double attention_soft_cap;
  /* A logit z of a decoder-lm becomes c tanh(z / c), c being the number (Gemma 2: 30). Default 0: none. */
  double logits_soft_cap;
  /* Buckets of distances of an encoder-decoder with relative position biases, as in T5: each stack learns a bias of attention
   * scores for each bucket and head, which its layers share, and has no other positions. Such a model may have RMS norm, no
   * biases, a gated ffn, embedding_scale, attention_scale and logits_divisor. Default 0: none. */
  int64_t relative_buckets;
  /* Distance in tokens from which on all keys have the last bucket, with relative_buckets; above half of them. Default 128. */
  int64_t relative_distance;
  int64_t labels; /* Labels of an encoder with a head for texts or tokens. Default 0. */
  /* Rows of the table of token types of an encoder. The first row is added to the embeddings of a text, the second one to the
   * embeddings of the second text of a pair. 0: no table. Default 0. */
  int64_t token_types;
  double classifier_dropout; /* Dropout of the vectors that the classifier of an encoder reads. Default 0. */
  /* Rotated queries of a token at position p, from 0, are multiplied by 1 + c ln(1 + floor(p / rope_original_positions)), c
   * being the number (Ministral 3: 0.1). Default 0: none. */
  double rope_query_growth;
  /* Tokens of the vocabulary of sources, if it is another one than that of targets. vocabulary is then of targets, sources have
   * their own embedding matrix, and tied_embeddings is about target and output. Default 0: sources have the vocabulary of
   * targets. */
  int64_t source_vocabulary;
  int32_t architecture; /* Kind of model. Default TRAFO_ENCODER_DECODER. */
  int32_t activation; /* Activation of the feed-forward layers. Default TRAFO_RELU. */
  int32_t pre_norm; /* 1: the norm precedes each block instead of following it. Default 1. */
  /* 1: source, target and output share one embedding matrix. Otherwise there are three, two in a decoder-lm. Default 1. */
  int32_t tied_embeddings;
  /* TRAFO_NORM_*. Norm of a decoder-lm, or with relative_buckets; other encoder-decoders have layer norm. Default
   * TRAFO_NORM_LAYER. */
  int32_t norm;
  /* TRAFO_POSITIONS_*. Positions of a decoder-lm or of an encoder of the encoder_class modernbert. Default
   * TRAFO_POSITIONS_STANDARD. */
  int32_t positions;
  /* 1: an encoder-decoder has the sinusoidal positions of fairseq, M2M100 and NLLB-200: the first one is 2, and the lowest
   * frequency is 1/10000. Default 0. */
  int32_t fairseq_positions;
  /* 1: both stacks of an encoder-decoder have learned positions, and a norm of the embeddings with their positions, as in
   * mBART. Default 0. */
  int32_t learned_positions;
  /* TRAFO_FFN_*. Feed-forward blocks of a decoder-lm or an encoder (modernbert), or with relative_buckets. Default
   * TRAFO_FFN_PLAIN. */
  int32_t ffn;
  /* 1: all linear layers have biases. A model with RMS norm may have qkv_biases, attention_output_bias and ffn_biases instead.
   * Default 1. */
  int32_t biases;
  /* 1: the initial weights of layer l are divided by the root of l (Zhang et al., arXiv 1908.11365). Deep models begin better.
   * Default 0. */
  int32_t depth_scaled_init;
  int32_t output_bias; /* 1: the output layer has a bias, in a model with biases or an encoder. GPT-2 has none. Default 1. */
  /* 1: queries, keys and values have biases in a model that has no others (biases is 0), as in Qwen2. Default 0. */
  int32_t qkv_biases;
  int32_t attention_output_bias; /* 1: the output of an attention has a bias in a model without biases. Default 0. */
  int32_t ffn_biases; /* 1: the feed-forward layers have biases in a model without biases. Default 0. */
  int32_t qk_norm; /* TRAFO_QK_NORM_*. Norm of queries and keys in a decoder-lm. Default TRAFO_QK_NORM_NONE. */
  /* TRAFO_ROPE_SCALING_*. How rope_factor divides the angles of a model with rope_original_positions. With yarn, the first pair
   * whose angle it divides is the one of rope_high_turns turns (usual: 32), and from the pair of rope_low_turns turns on it
   * divides them whole. Default TRAFO_ROPE_SCALING_LLAMA3. */
  int32_t rope_scaling;
  /* 1: the norm is that of the output of each block, before the residual connection adds it (OLMo 2), in a model with RMS norm
   * and pre_norm. Default 0. */
  int32_t norm_outputs;
  /* 1: the output of each block has a norm, before the residual connection adds it, in addition to the norm of its input
   * (Gemma), in a model with RMS norm and pre_norm. Default 0. */
  int32_t sandwich_norm;
  /* 1: a model with relative_buckets and tied_embeddings has an output matrix that is not the embedding of source and target,
   * as T5 1.1 and mT5 have. Default 0. */
  int32_t separate_output;
  int32_t encoder_class; /* TRAFO_ENCODER_CLASS_*. Class of an encoder that exports write. Default TRAFO_ENCODER_CLASS_BERT. */
  int32_t encoder_head; /* TRAFO_ENCODER_HEAD_*. Head of an encoder. Default TRAFO_ENCODER_HEAD_NONE. */
  /* TRAFO_POOLING_*. Vector of a text that the head of an encoder of the encoder_class modernbert for texts reads. Default
   * TRAFO_POOLING_FIRST. */
  int32_t classifier_pooling;
  /* 1: an encoder without head keeps the pooler, a linear layer of BertModel, which hidden states and embeddings do not go
   * through. A head for texts always has one, but in ModernBERT. Default 0. */
  int32_t pooler;
  /* TRAFO_BASE_PRECISION_*. Format of the matrices of linear layers. Except with `none`, all parameters are frozen until an
   * adapter is added or others are made trainable, and these matrices stay frozen. Embeddings, norms, biases and the output
   * projection keep precision. Default TRAFO_BASE_PRECISION_NONE. */
  int32_t base_precision;
  /* Type of the computation: float32; bfloat16 on CUDA, with float32 master copies of the parameters, which the optimizer works
   * on and files hold; float64 on the CPU, for gradient checks. A float32 model on the CPU can multiply in bfloat16:
   * matmul_precision of trafo_context_options. Not part of the model's file. Default TRAFO_FLOAT32. */
  int32_t precision;
} trafo_model_config;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_init(trafo_model_config *config, size_t struct_size);

#endif /* TRAFO_GENERATED_MODEL_CONFIG_H */

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
/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_QUANTIZE_OPTIONS_H
#define TRAFO_GENERATED_QUANTIZE_OPTIONS_H

typedef struct trafo_quantize_options {
  size_t struct_size;
  int32_t bits; /* 8: a scale for each row; 4: a scale for each 32 columns of a row. Default 8. */
  int32_t method; /* TRAFO_QUANTIZE_*. How weights are rounded. Default TRAFO_QUANTIZE_NEAREST. */
  /* Patterns of names as of trafo_model_freeze: matrices that stay float32. Default none. */
  const trafo_string_view *keep_float;
  size_t keep_float_count;
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; TRAFO_QUANTIZE_GPTQ needs them. Default NULL. */
} trafo_quantize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_quantize_options_init(trafo_quantize_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_QUANTIZE_OPTIONS_H */

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
/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_PRUNE_OPTIONS_H
#define TRAFO_GENERATED_PRUNE_OPTIONS_H

/* Sizes that trafo_model_prune leaves. A decoder-lm ignores the fields of the encoder. */
typedef struct trafo_prune_options {
  size_t struct_size;
  /* Share of the feed-forward columns of an encoder layer that stays, above 0 and at most 1; rounded up to a multiple of 8
   * columns. Default 1. */
  double encoder_ffn_share;
  double decoder_ffn_share; /* The same of the decoder. Default 1. */
  /* Share of the attention heads of an encoder layer that stays, above 0 and at most 1; at least one. Query heads that share
   * keys and values stay or go together. Default 1. */
  double encoder_head_share;
  double decoder_head_share; /* The same of the decoder. Default 1. */
  int64_t encoder_layers; /* Layers that stay; 0: all. Default 0. */
  int64_t decoder_layers; /* Layers that stay; 0: all. Default 0. */
} trafo_prune_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_prune_options_init(trafo_prune_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_PRUNE_OPTIONS_H */

/* Makes a smaller float32 model of a trained one by removing whole layers, attention heads and feed-forward columns. `calibration`
 * says which are needed least (docs/guide/pruning.md); pairs of more than 256 tokens a side are left out. The new model is on the
 * same context and is the caller's; `model` does not change. It has lost quality: fine-tune it. options may be NULL: all stays.
 * cancel may be NULL. INVALID_ARGUMENT: an option, or the model has an adapter. UNSUPPORTED: int8 weights. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_prune(const trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_corpus *calibration, const trafo_prune_options *options,
                                                        const trafo_cancel *cancel, trafo_model **out);
/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_SPARSIFY_OPTIONS_H
#define TRAFO_GENERATED_SPARSIFY_OPTIONS_H

typedef struct trafo_sparsify_options {
  size_t struct_size;
  double sparsity; /* Share of the weights of each linear layer that becomes zero, at least 0 and below 1. Default 0.5. */
  int32_t score; /* TRAFO_PRUNE_*. The score of a weight. Default TRAFO_PRUNE_MAGNITUDE. */
  int32_t pattern; /* TRAFO_SPARSITY_*. Which weights are compared with each other. Default TRAFO_SPARSITY_UNSTRUCTURED. */
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; TRAFO_PRUNE_WANDA needs them. Default NULL. */
} trafo_sparsify_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sparsify_options_init(trafo_sparsify_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_SPARSIFY_OPTIONS_H */

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
/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_FACTORIZE_OPTIONS_H
#define TRAFO_GENERATED_FACTORIZE_OPTIONS_H

/* How trafo_model_factorize makes matrices smaller: one of rank and ratio is given. */
typedef struct trafo_factorize_options {
  size_t struct_size;
  int64_t rank; /* Of all factors, at least 1; 0: ratio chooses the ranks. Default 0. */
  double ratio; /* Share of the weights of the matrices that stays, above 0 and below 1; 0: rank says. Default 0. */
  /* Patterns of names of matrices, '*' for any characters, '?' for one. None: all. Default none. */
  const trafo_string_view *layers;
  size_t layers_count;
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; needed. Default NULL. */
} trafo_factorize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_factorize_options_init(trafo_factorize_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_FACTORIZE_OPTIONS_H */

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

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_PARAMETER_INFO_H
#define TRAFO_GENERATED_PARAMETER_INFO_H

/* How a parameter of a model is trained. */
typedef struct trafo_parameter_info {
  size_t struct_size;
  const char *name; /* Its name in the file. Borrowed from the model. */
  const char *group; /* "matrices", "norms_and_biases", or a group that the model has declared. Borrowed from the model. */
  int64_t elements; /* Number of weights. */
  int32_t dtype; /* Type of the values: int8 of quantized weights. */
  int32_t trainable; /* 1: training changes it; otherwise it is frozen. */
  double lr_factor; /* Multiplied with the learning rate. */
  double weight_decay_factor; /* Multiplied with the weight decay. */
  int64_t rows; /* Rows of a matrix; 1: a vector. */
  int64_t columns; /* Elements of a row. */
  /* Bits of an element in files: 4 of an int4 matrix, whose dtype is int8, and 8 or 4 of a matrix in base_precision, whose
   * dtype is that of the computation. */
  int64_t bits;
  double signal_to_noise; /* Signal-to-noise ratio of a matrix after quantization, in dB; NaN: not known. */
} trafo_parameter_info;

#endif /* TRAFO_GENERATED_PARAMETER_INFO_H */

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

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MEMORY_PLAN_H
#define TRAFO_GENERATED_MEMORY_PLAN_H

/* Memory that training takes on a CUDA device, in bytes, known without training and without the device. */
typedef struct trafo_memory_plan {
  size_t struct_size;
  int64_t weights_bytes; /* Weights, with the float32 master weights of a bfloat16 model. */
  int64_t gradients_bytes; /* Gradients. */
  int64_t optimizer_bytes; /* The moments, and the EMA of the weights if ema_alpha is set. */
  int64_t activations_bytes; /* Activations and temporary memory of forward and backward. */
  int64_t total_bytes; /* Expected peak of the memory in use, the batch included. */
  int64_t batch_tokens; /* Target tokens of the batch: the given number, or the largest that fits. */
  int64_t limit_bytes; /* Memory that training may use; 0: unknown. */
  int64_t device_bytes; /* Total memory of the device; 0: the device was not asked. */
  int64_t free_bytes; /* Free memory of the device before training; 0: the device was not asked. */
  int64_t teacher_bytes; /* The weights of the teacher; 0 without one. */
} trafo_memory_plan;

#endif /* TRAFO_GENERATED_MEMORY_PLAN_H */

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

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_OBJECTIVE_METRIC_H
#define TRAFO_GENERATED_OBJECTIVE_METRIC_H

/* A number that the objective of a run computes beside its loss. */
typedef struct trafo_objective_metric {
  trafo_string_view name; /* Its name. Borrowed while the callback runs. */
  double value; /* Mean per unit of the objective since the last log event. */
} trafo_objective_metric;

#endif /* TRAFO_GENERATED_OBJECTIVE_METRIC_H */

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVENT_H
#define TRAFO_GENERATED_EVENT_H

/* A report of a training run. */
typedef struct trafo_event {
  size_t struct_size;
  int32_t kind; /* TRAFO_EVENT_*. Kind of the event. */
  int32_t stop; /* TRAFO_STOP_*. Why training ended; finished and stopped only. */
  int64_t update; /* Updates so far. */
  int64_t epoch; /* The current epoch, from 1; an epoch event has the completed one. */
  double epoch_fraction; /* Share of the current epoch that is done, 0 to 1. */
  double loss; /* Mean per label since the last log event, label smoothing included; of DPO per pair. */
  double nll; /* Negative log-likelihood per label since then, without smoothing; exp() is the perplexity. */
  double grad_norm; /* Global gradient norm. */
  double learning_rate; /* Learning rate. */
  int64_t target_tokens; /* Target tokens of the run so far. */
  int64_t source_tokens; /* Source tokens of the run so far. */
  double target_tokens_per_second; /* Speed since the last log event. */
  double source_tokens_per_second; /* Speed since the last log event. */
  double elapsed_seconds; /* Training time of the run, earlier processes included. */
  double eta_seconds; /* Time to the nearest limit. Negative: unknown. */
  int64_t memory_bytes; /* Bytes in use. */
  int64_t peak_memory_bytes; /* Most bytes in use. */
  int64_t skipped_updates; /* Updates left out because they were not finite. */
  int64_t stalled; /* Validations in a row without improvement, as early stopping counts them. */
  /* Of validated and averaged: the metrics that were asked for. Borrowed while the callback runs. */
  const trafo_metric_value *metrics;
  int64_t metric_count;
  double best_metric; /* Of validated: best value of the deciding metric so far. */
  int64_t best_update; /* Of validated: the update of the best value. */
  int32_t improved; /* Of validated and averaged: whether the deciding metric improved. */
  /* One bit TRAFO_METRIC_*. Of validated: the metric that decides: chrF or cross-entropy instead of a metric of words for
   * scripts without spaces. */
  int32_t deciding_metric;
  trafo_string_view message; /* As the kind says. Borrowed while the callback runs. */
  trafo_string_view path; /* As the kind says. Borrowed while the callback runs. */
  /* Metrics of the objective by name: means per unit of the objective since the last log event. There are none if it has none.
   * Borrowed while the callback runs. */
  const trafo_objective_metric *objective_metrics;
  int64_t objective_metric_count;
} trafo_event;

#endif /* TRAFO_GENERATED_EVENT_H */

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

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_STEP_RESULT_H
#define TRAFO_GENERATED_STEP_RESULT_H

/* One update. */
typedef struct trafo_step_result {
  int64_t update; /* The update that was done. */
  double loss; /* Mean per label, label smoothing included. */
  double nll; /* Mean per label, without smoothing. */
  double grad_norm; /* Global gradient norm before clipping. */
  double learning_rate; /* Learning rate. */
  int64_t labels; /* Labels of the batch. */
  int32_t skipped; /* 1: the update was not finite: nothing has changed. */
  int32_t reserved; /* 0 */
} trafo_step_result;

#endif /* TRAFO_GENERATED_STEP_RESULT_H */

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
/*
 * Trafo: translation, scoring and metrics. Include trafo.h; its rules hold here.
 */
#ifndef TRAFO_TRANSLATION_H
#define TRAFO_TRANSLATION_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- Translation --------------------------------------------------------------------------------------------------------- */

/* Translation probabilities of source and target tokens. Translation uses them to compute only the logits of likely tokens. */
typedef struct trafo_shortlist trafo_shortlist;

/* Learns the probabilities from pairs of lines with IBM model 1, and keeps the `best` targets of a source token (0: 100).
 * Pairs with a side of more than 256 tokens are left out; INVALID_ARGUMENT if there is no other. cancel may be NULL. CANCELLED.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_shortlist_learn(const trafo_tokenizer *tokenizer, const trafo_string_view *source,
                                                            const trafo_string_view *target, size_t count, int64_t best,
                                                            const trafo_cancel *cancel, trafo_shortlist **out);
/* Loads a text file with lines "TARGET SOURCE PROBABILITY" of subwords, like Marian's lex.s2t. NOT_FOUND, IO. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_shortlist_load(const trafo_tokenizer *tokenizer, const char *path,
                                                           size_t path_length, trafo_shortlist **out);
/* Writes such a file, which appears whole or not at all. IO. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_shortlist_save(const trafo_shortlist *shortlist, const char *path,
                                                           size_t path_length);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_shortlist_free(trafo_shortlist *shortlist);

/* Written by scripts/generate_options.py from schema/decoding.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_TRANSLATE_OPTIONS_H
#define TRAFO_GENERATED_TRANSLATE_OPTIONS_H

/* Whether a special token is beside a source or a prompt. */
#define TRAFO_FRAME_OFF      0 /* It is not there. */
#define TRAFO_FRAME_ON       1 /* It is there. */
#define TRAFO_FRAME_BY_MODEL 2 /* As the model was trained; of an imported decoder-lm, as its own files say. */

typedef struct trafo_translate_options {
  size_t struct_size;
  int64_t beam; /* Hypotheses kept of each sentence. 1 is greedy search. Default 5. */
  /* Hypotheses returned of each sentence, at most beam. With sampling: translations drawn of each sentence. Default 1. */
  int64_t n_best;
  /* The score of a hypothesis is log-probability / tokens^length_penalty, its end counted (Marian's --normalize). 0: no
   * normalisation. Default 1. */
  double length_penalty;
  /* Longest translation in tokens, its end counted and a given beginning not. Default 0: twice the source plus 10, at most 200.
   * */
  int64_t max_length;
  int64_t min_length; /* Tokens before a translation may end; a given beginning is not counted. Default 0. */
  int64_t batch_tokens; /* Source tokens times beam of the sentences that are decoded together. Default 4096. */
  /* The logit of each token that the translation already has is divided by it if it is positive, and multiplied otherwise
   * (Keskar et al., arXiv 1909.05858). 1: no penalty. Where a decoder-lm continues a text (no end_source), tokens of that text
   * count as well. Default 1. */
  double repetition_penalty;
  /* Subtracted from the logit of each token that was generated before, however often (OpenAI's presence_penalty). A negative
   * number makes such tokens more probable. Tokens of a prompt, a source or a given beginning do not count. Default 0. */
  double presence_penalty;
  /* Subtracted from the logit of a token for each time that it was generated before (OpenAI's frequency_penalty). Otherwise as
   * presence_penalty. Default 0. */
  double frequency_penalty;
  /* No token completes an n-gram of this many tokens that the translation already has. Where a decoder-lm continues a text (no
   * end_source), n-grams of that text count as well. Default 0: any may repeat. */
  int64_t no_repeat_ngram_size;
  /* Decoder layer whose cross-attention, the mean over its heads, is the alignment; counted from 1. Default 0: the last but
   * one. */
  int64_t alignment_layer;
  /* Tokens of a window of window_stride, from 2 to the model's limit: max_length of the training of a model that learned
   * windows. Default 0: the model's limit. */
  int64_t window_length;
  /* Of plain text that is scored under a decoder-lm: a text of more than window_length tokens is scored in windows of that many
   * tokens, each of which begins window_stride tokens after the one before, at most window_length. Each token is scored once,
   * in the first window that predicts it. Default 0: no windows, truncate holds. */
  int64_t window_stride;
  double temperature; /* Sampling: logits are divided by it. Default 1. */
  int64_t top_k; /* Sampling: only this many of the most probable tokens. Default 0: all. */
  /* Sampling: only the fewest tokens that have this share of the probability together (Holtzman et al., arXiv 1904.09751).
   * Default 1. */
  double top_p;
  /* Sampling: of the tokens that top_k and top_p leave, only those with at least this share of the probability of the most
   * probable token (transformers' MinPLogitsWarper; Nguyen et al., arXiv 2407.01082). Default 0: all. */
  double min_p;
  uint64_t seed; /* Sampling: seed of the draws. Default 1. */
  int64_t first_line; /* Sampling: number of the first line, so that a text in several calls is drawn as in one. Default 0. */
  const trafo_shortlist *shortlist; /* Only tokens of the list are chosen among. Default NULL: the whole vocabulary. */
  /* With a shortlist: this many tokens from the start of the vocabulary are chosen among as well. Default 100. */
  int64_t shortlist_first;
  /* With a shortlist: this many of the best translations of each source token are chosen among. Default 100. */
  int64_t shortlist_best;
  int32_t word_scores; /* 1: every hypothesis has the log-probability of each of its tokens. Default 0. */
  /* 1: every hypothesis has an alignment: for each of its tokens, the cross-attention to the source tokens. A decoder-lm has
   * none: UNSUPPORTED. Default 0. */
  int32_t alignment;
  /* 1: equal texts of a line are returned once, with the best score. A line then has fewer than n_best hypotheses if the search
   * or the samples have no more texts. Default 0. */
  int32_t distinct;
  int32_t truncate; /* 1: a source over the model's limit is cut. Otherwise it is INVALID_ARGUMENT. Default 1. */
  /* 1: every token is drawn instead of searching for the best; beam is not used then. The drawn tokens depend only on the
   * model's probabilities, the seed, and the numbers of the line, the sample and the token. */
  int32_t sampling;
  /* TRAFO_FRAME_*. Whether eos follows a source. Without it a decoder-lm continues the text, as base models do; a text over the
   * model's limit then loses its beginning. Default TRAFO_FRAME_BY_MODEL. */
  int32_t end_source;
  int32_t begin_source; /* TRAFO_FRAME_*. Whether bos precedes a source of a decoder-lm. Default TRAFO_FRAME_BY_MODEL. */
  int32_t reserved; /* 0 */
} trafo_translate_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate_options_init(trafo_translate_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_TRANSLATE_OPTIONS_H */

typedef struct trafo_translations trafo_translations;

/* Prepares the model for translation only. On the CPU the weights are packed, which takes as much memory again. Small batches are
 * then translated up to twice as fast, and a translation does not depend on the batch it is in, not in a single bit. The weights cannot
 * change any more: trafo_trainer_new, trafo_model_get_parameter and trafo_model_load_weights refuse the model from here on, and
 * tensors of its parameters must not be written. INVALID_ARGUMENT: the model has a trainer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_prepare_inference(trafo_model *model);

/* Translates lines, batched by length; the results are in the order of the lines. An empty line has an empty translation. options
 * and cancel may be NULL. INVALID_ARGUMENT: a line is not UTF-8 or too long, or the model was trained with another vocabulary (which a
 * call without lines finds out, too). UNSUPPORTED: an alignment of a decoder-lm. NON_FINITE: the logits of a line are NaN or
 * infinite. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                      const trafo_string_view *lines, size_t count,
                                                      const trafo_translate_options *options,
                                                      const trafo_cancel *cancel, trafo_translations **out);
/* The same with a given beginning of each translation: prefixes[i], which may be empty, belongs to lines[i]. options and cancel may be
 * NULL. A hypothesis contains its prefix, in text, tokens, scores, word scores and alignment; the search chooses the tokens after it.
 * INVALID_ARGUMENT also: an empty line has a prefix, or a prefix leaves no position of the model for another token. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate_with_prefixes(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                                    const trafo_string_view *lines,
                                                                    const trafo_string_view *prefixes, size_t count,
                                                                    const trafo_translate_options *options,
                                                                    const trafo_cancel *cancel, trafo_translations **out);
/* The same from token ids: row i is what the model reads, to which nothing is added. It ends with eos, unless end_source says
 * otherwise, and an empty one has an empty translation. prefixes, options and cancel may be NULL. tokenizer may be NULL: the special tokens
 * are the model's (trafo_model_set_special_tokens), and hypotheses have tokens (trafo_translations_get_tokens) and an empty text. With
 * begin_source, a row that is cut keeps its first token. INVALID_ARGUMENT also: an id is not in the vocabulary; without a tokenizer,
 * distinct, a shortlist, or a model that does not know its special tokens. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate_ids(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                          const trafo_ids_view *rows, const trafo_ids_view *prefixes,
                                                          size_t count, const trafo_translate_options *options,
                                                          const trafo_cancel *cancel, trafo_translations **out);
/* Hypothesis `rank` of line `index`, both counted from 0; rank 0 is the best. The text is borrowed; out_score may be NULL. NOT_FOUND:
 * the line has fewer hypotheses. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get(const trafo_translations *translations, size_t index,
                                                             size_t rank, trafo_string_view *out_text,
                                                             double *out_score);
/* The tokens of such a hypothesis, ids of the vocabulary without its end; borrowed. Errors as above. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_tokens(const trafo_translations *translations, size_t index,
                                                                    size_t rank, const int32_t **out_tokens,
                                                                    size_t *out_count);
/* The natural log-probability of each token of such a hypothesis, its end included, with the option word_scores; borrowed. They sum to
 * the log-probability, which is the score times length^length_penalty. A hypothesis that was cut off at its longest length has none of
 * an end. *out_count is 0 without the option, and for the translation of an empty line. Errors as above. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_word_scores(const trafo_translations *translations, size_t index,
                                                                         size_t rank, const double **out_scores,
                                                                         size_t *out_count);
/* The alignment of such a hypothesis, with the option alignment: *out_weights has target_tokens rows of source_tokens weights, borrowed.
 * A row sums to 1 and belongs to one of the tokens that have word scores. The columns are the source tokens that were translated, the
 * end included. Both counts are 0 without the option, and for the translation of an empty line. Errors as above. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_alignment(const trafo_translations *translations, size_t index,
                                                                       size_t rank, const float **out_weights,
                                                                       size_t *out_target_tokens,
                                                                       size_t *out_source_tokens);
/* Why such a hypothesis ends: TRAFO_FINISH_*. Errors as above. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_finish(const trafo_translations *translations, size_t index,
                                                                    size_t rank, int32_t *out);
/* The number of hypotheses of line `index`. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_count(const trafo_translations *translations, size_t index,
                                                                   size_t *out);
/* The tokens of source line `index`, and how many of them were used: fewer if the line was cut. Of a pair of trafo_force_decode, those of
 * both sides. out_tokens and out_used may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_source(const trafo_translations *translations, size_t index,
                                                                    int64_t *out_tokens, int64_t *out_used);
/* The number of lines that were cut. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translations_get_truncated(const trafo_translations *translations,
                                                                       size_t *out);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_translations_free(trafo_translations *translations);

/* The natural log-probability of each target given its source, and the number of its tokens, as arrays of `count`. out_tokens may be
 * NULL. INVALID_ARGUMENT: a line is not UTF-8 or too long, or the model was trained with another vocabulary. NON_FINITE: a
 * log-probability is not finite, because weights are not or products overflow. cancel may be NULL. CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_score(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                  const trafo_string_view *source, const trafo_string_view *target,
                                                  size_t count, const trafo_cancel *cancel, double *out_log_probability,
                                                  int64_t *out_tokens);
/* Forced decoding: each target as the one hypothesis of the source beside it, with its score, and with word scores and an alignment if
 * the options ask for them. length_penalty, batch_tokens, word_scores, alignment, alignment_layer and truncate of the options are used;
 * options and cancel may be NULL. With truncate, a pair that is too long is cut: each side keeps its first tokens and its end, and
 * trafo_translations_get_source, which counts the tokens of both sides here, tells it. Errors as for trafo_score; UNSUPPORTED: an
 * alignment of a decoder-lm; CANCELLED. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_force_decode(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                         const trafo_string_view *source, const trafo_string_view *target,
                                                         size_t count, const trafo_translate_options *options,
                                                         const trafo_cancel *cancel, trafo_translations **out);
/* The same with token ids, to which nothing is added: every token of a target is scored, and eos only where it is the last one. The empty
 * source of a decoder-lm is the token before its texts (eos or bos), so that the target is plain text. tokenizer may be NULL, as for
 * trafo_translate_ids; options and cancel may be NULL. With truncate, a source that does not end with eos loses its first tokens.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_force_decode_ids(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                             const trafo_ids_view *source, const trafo_ids_view *target,
                                                             size_t count, const trafo_translate_options *options,
                                                             const trafo_cancel *cancel, trafo_translations **out);
/* Plain text under a decoder-lm: each line as the one hypothesis of itself, with the log-probability of each of its tokens and of its end,
 * given </s> and the tokens before it, as in training on monolingual text. trafo_translations_get_tokens gives the tokens that are scored,
 * an end included. begin_source (<s> in place of the first </s>), end_source (off: the end is not scored), length_penalty, batch_tokens,
 * word_scores, truncate and window_stride of the options are used; options and cancel may be NULL. UNSUPPORTED: a model with an encoder.
 * Other errors as for trafo_force_decode. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_score_text(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                       const trafo_string_view *lines, size_t count,
                                                       const trafo_translate_options *options, const trafo_cancel *cancel,
                                                       trafo_translations **out);

/* The hidden states of every token of `count` lines and of the end after each line: *out_states [T, width]. With an encoder they are
 * its output, of a decoder-lm the last layer's, before the output projection. The lines follow each other: the states of line i are
 * rows cu_seqlens[i] to cu_seqlens[i + 1] - 1 of *out_cu_seqlens [count + 1] int32, as trafo_op_attention and trafo_op_segment_mean
 * take them. One pass over all lines, without dropout; the dtype is the model's. recorded: 0 or 1. With 1 the pass is recorded while
 * the context records (trafo_context_set_recording): a backward reaches the trainable parameters of the model, which
 * trafo_model_get_parameter gives. It is never recorded with 0, with a trainer, or after trafo_model_prepare_inference.
 * INVALID_ARGUMENT: no lines; a line is not UTF-8 or too long; the model was trained with another vocabulary. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_hidden_states(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                                const trafo_string_view *lines, size_t count,
                                                                int32_t recorded, trafo_tensor **out_states,
                                                                trafo_tensor **out_cu_seqlens);
/* The same of rows of token ids, to which nothing is added. No row may be empty. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_hidden_states_ids(trafo_model *model, const trafo_ids_view *rows, size_t count,
                                                                    int32_t recorded, trafo_tensor **out_states,
                                                                    trafo_tensor **out_cu_seqlens);
/* One vector for each of `count` texts, *out [count, width] float32, of the hidden states of its tokens: pooling is TRAFO_POOLING_MEAN (of
 * all tokens, the special ones included) or TRAFO_POOLING_FIRST. normalize: 0 or 1; with 1 each vector is divided by its Euclidean norm.
 * One pass over all texts, recorded as trafo_model_hidden_states is. Errors as there; INVALID_ARGUMENT also: pooling. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_embed(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                        const trafo_string_view *texts, size_t count, int32_t pooling,
                                                        int32_t normalize, int32_t recorded, trafo_tensor **out);
/* The same of rows of token ids, to which nothing is added. No row may be empty. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_embed_ids(trafo_model *model, const trafo_ids_view *rows, size_t count,
                                                            int32_t pooling, int32_t normalize, int32_t recorded,
                                                            trafo_tensor **out);
/* The logits of the head of an encoder for `count` texts: *out_logits [count, labels] of a head for texts, [W, labels] of a head for tokens
 * (a row for the first token of each word; there is white space between words), [T, vocabulary] of a head for masked tokens. The rows of
 * text i are cu_seqlens[i] to cu_seqlens[i + 1] - 1 of *out_cu_seqlens [count + 1] int32. second: NULL, or the second text of each pair. One
 * pass, recorded as trafo_model_hidden_states is. Errors as there; UNSUPPORTED also: the model is no encoder with a head; pairs for a head
 * for tokens. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_classify(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                           const trafo_string_view *texts, const trafo_string_view *second,
                                                           size_t count, int32_t recorded, trafo_tensor **out_logits,
                                                           trafo_tensor **out_cu_seqlens);
/* The same of rows of token ids, to which nothing is added; a head for tokens gives a row for each. No row may be empty. types: NULL (all are
 * 0), or the token type of each token. INVALID_ARGUMENT also: types that do not fit the rows or the model. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_classify_ids(trafo_model *model, const trafo_ids_view *rows,
                                                               const trafo_ids_view *types, size_t count, int32_t recorded,
                                                               trafo_tensor **out_logits, trafo_tensor **out_cu_seqlens);
/* The name of label `index` (from 0) of an encoder's head; borrowed, valid as long as the model. NOT_FOUND: the head has fewer labels.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_get_label(const trafo_model *model, int64_t index, trafo_string_view *out);
/* A new model of the same context: the encoder `model` with another head, TRAFO_ENCODER_HEAD_*. labels: `count` different names for a head for
 * texts or tokens; none for the others. Weights that the model does not have are drawn from `seed`, all others are copied.
 * INVALID_ARGUMENT: the model is no encoder, or has an adapter or int8 weights; names that do not fit the head. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_with_head(const trafo_model *model, int32_t head, const trafo_string_view *labels,
                                                            size_t count, uint64_t seed, trafo_model **out);

/* The logits of every target token and of the end of every target, given its source and the target tokens before: *out_logits
 * [T, vocabulary]. *out_labels [T] int32 are the tokens that they predict, as trafo_op_cross_entropy takes them. In a decoder-lm the
 * tokens of the source are rows as well, with the label -100, which is ignored. One pass, recorded as trafo_model_hidden_states is.
 * Errors as there. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_logits(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                         const trafo_string_view *source, const trafo_string_view *target,
                                                         size_t count, int32_t recorded, trafo_tensor **out_logits,
                                                         trafo_tensor **out_labels);

/* The same of token ids, as trafo_force_decode_ids takes them; tokenizer may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_logits_ids(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                             const trafo_ids_view *source, const trafo_ids_view *target,
                                                             size_t count, int32_t recorded, trafo_tensor **out_logits,
                                                             trafo_tensor **out_labels);

/* ---- Generation ---------------------------------------------------------------------------------------------------------- */

/* Texts that a decoder-lm continues, token by token. A generator keeps the keys and values of what it has read: a prompt that begins like
 * a sequence that has ended, such as a conversation with a further message, is not computed from its beginning again. */
typedef struct trafo_generator trafo_generator;

/* A number that is added to the logit of a token. */
typedef struct trafo_token_bias {
  int32_t token;
  int32_t reserved; /* 0 */
  double bias;      /* finite */
} trafo_token_bias;

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GENERATION_OPTIONS_H
#define TRAFO_GENERATED_GENERATION_OPTIONS_H

/* Options of a generation that a translation does not have. */
typedef struct trafo_generation_options {
  size_t struct_size;
  /* Texts that end a sequence, also where tokens divide them. The sequence's text ends before the one that is complete first.
   * None may be empty. Default none. */
  const trafo_string_view *stop;
  size_t stop_count;
  const int32_t *stop_tokens; /* Tokens that end a sequence, beside the model's own. Default none. */
  size_t stop_token_count;
  const int32_t *banned_tokens; /* Tokens that are never generated. A stop token may not be among them. Default none. */
  size_t banned_token_count;
  /* Numbers that are added to the logits of tokens, each token once (OpenAI's logit_bias, which is -100 to 100). Default none.
   * */
  const trafo_token_bias *logit_bias;
  size_t logit_bias_count;
  /* A JSON Schema in UTF-8: only texts of JSON values that it allows are generated, and then an end. The schema true allows
   * every value. docs/guide/generating.md lists the keys that a schema may have; another one is INVALID_ARGUMENT, naming its
   * path. Empty: any text. Default empty. */
  trafo_string_view json_schema;
  /* Most probable tokens of each step that trafo_generator_get_alternatives gives (OpenAI's top_logprobs); 0 to 1024. Default
   * 0. */
  int64_t alternatives;
  /* Tokens that the draft model (trafo_generator_load_draft) proposes in a step, at most; 0 to 64. 0: it proposes none. Default
   * 0. */
  int64_t draft_tokens;
} trafo_generation_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generation_options_init(trafo_generation_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_GENERATION_OPTIONS_H */
/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GENERATION_PIECE_H
#define TRAFO_GENERATED_GENERATION_PIECE_H

/* What a token adds to a sequence that is being generated. */
typedef struct trafo_generation_piece {
  size_t struct_size;
  int64_t sequence; /* Number of the sequence; -1: no sequence is left, and the other members are zero. */
  /* Whole characters that no later token changes. It may be empty: a token can be a part of a character, or the text may become
   * a stop string. Without a tokenizer it is empty. Borrowed until the next call on the generator. */
  trafo_string_view text;
  /* The token, ids of the vocabulary; also the one that ends the sequence, which has no text. -1: none was allowed to follow.
   * */
  int32_t token;
  int32_t finished; /* 1: this is the last piece of the sequence. */
  int32_t finish; /* TRAFO_FINISH_*. Why the sequence ends; 0 until then. */
  int32_t reserved; /* 0 */
  /* With word_scores: natural log-probability that the model gives to the token, before penalties, biases, bans and
   * temperature. Otherwise NaN. */
  double log_probability;
  int64_t prompt_tokens; /* Tokens of the prompt. */
  int64_t cached_tokens; /* Of them, those whose keys and values were taken from an earlier sequence. */
  int64_t generated_tokens; /* Tokens that were generated so far, the one that ends the sequence included. */
  int64_t drafted_tokens; /* Tokens that the draft model has proposed so far. */
  int64_t accepted_tokens; /* Of them, those that were generated. */
} trafo_generation_piece;

#endif /* TRAFO_GENERATED_GENERATION_PIECE_H */

/* A generator of the model, which must be prepared (trafo_model_prepare_inference). It may outlive both handles. Several generators of a
 * model may be used by several threads: their steps take turns. tokenizer may be NULL: prompts are ids and pieces have no text.
 * kept_sequences: the KV cache of so many ended sequences stays, the newest ones; 0 or more. UNSUPPORTED: the model has an encoder.
 * INVALID_ARGUMENT: it is not prepared, was trained with another vocabulary, or, without a tokenizer, does not know its special tokens.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_new(trafo_model *model, const trafo_tokenizer *tokenizer,
                                                          int64_t kept_sequences, trafo_generator **out);
/* Loads a draft model, for speculative decoding: it proposes the tokens of sequences that are started with draft_tokens, and the model
 * reads those of a step in one pass. Tokens, texts and log-probabilities are the same as without it; on a GPU rounding may, in rare cases,
 * change a token. path: model.safetensors, or the directory of a run, of a smaller model of the same vocabulary. It computes in the
 * precision of the generator's model, with int8 weights if that has them, and replaces a draft model that was loaded. A text that is longer
 * than its positions is generated without it from there. UNSUPPORTED: it has an encoder. INVALID_ARGUMENT: it was trained with another
 * vocabulary. Otherwise as trafo_model_load; the generator is as before then. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_load_draft(trafo_generator *generator, const char *path, size_t path_length);
/* Adds sequences that continue the prompts: n_best of each, which needs sampling if it is not 1. Sequence i * n_best + j after *out_first
 * is sample j of prompt i. Sequences that are in flight go on beside them, each with the options that it was started with. Both options
 * may be NULL. Of `options`, max_length (0: as far as the model has positions), min_length, repetition_penalty, presence_penalty,
 * frequency_penalty, no_repeat_ngram_size, word_scores, sampling with all that belongs to it, begin_source and end_source (by model: no
 * end) are used. Without sampling each token is the most probable one. An empty prompt is the token in front of texts. first_line is the
 * number of the first prompt: drawn tokens depend only on the seed and the numbers of prompt, sample and token. INVALID_ARGUMENT: a prompt
 * is not UTF-8 or leaves no position of the model for a token; alignment, distinct or a shortlist; draft_tokens without a draft model; an
 * option that is out of range. Nothing is added then. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_start(trafo_generator *generator, const trafo_string_view *prompts,
                                                            size_t count, const trafo_translate_options *options,
                                                            const trafo_generation_options *generation, int64_t *out_first);
/* The same with token ids, such as trafo_chat_encode gives. Nothing is added to a row, and none may be empty. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_start_ids(trafo_generator *generator, const trafo_ids_view *prompts,
                                                                size_t count, const trafo_translate_options *options,
                                                                const trafo_generation_options *generation,
                                                                int64_t *out_first);
/* The next piece. If each sequence has given its piece of a step, the next step computes a token of all sequences in flight, and the
 * prompts of new ones. cancel may be NULL. CANCELLED: it was set before a step; the sequences stay as they are. NON_FINITE: the logits of a
 * sequence are NaN or infinite; all sequences have ended. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_next(trafo_generator *generator, const trafo_cancel *cancel,
                                                           trafo_generation_piece *out, size_t struct_size);
/* With the option alternatives: the most probable tokens in place of the token of the last piece, the most probable first, and their natural
 * log-probabilities, as log_probability of the piece; arrays of *out_count, borrowed until the next call on the generator. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_get_alternatives(const trafo_generator *generator,
                                                                       const int32_t **out_tokens,
                                                                       const double **out_log_probabilities,
                                                                       size_t *out_count);
/* Ends a sequence, which has no further pieces. A sequence that has ended is passed over. INVALID_ARGUMENT: the generator has not given
 * this number. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generator_end(trafo_generator *generator, int64_t sequence);
/* Frees the handle. since 0.1 */
TRAFO_API void trafo_generator_free(trafo_generator *generator);

/* ---- Metrics -------------------------------------------------------------------------------------------------------------- */

/* Written by scripts/generate_options.py from schema/evaluation.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVALUATION_OPTIONS_H
#define TRAFO_GENERATED_EVALUATION_OPTIONS_H

/* How BLEU cuts a line into words: tokenizers of sacreBLEU, with the same numbers. */
#define TRAFO_TOKENIZE_13A       0 /* That of mteval-v13a: ASCII punctuation is set apart. For languages with spaces. */
#define TRAFO_TOKENIZE_NONE      1 /* Words are separated by white space. */
#define TRAFO_TOKENIZE_ZH        2 /* Every Chinese character is a word, the rest as in 13a. For Chinese. */
#define TRAFO_TOKENIZE_INTL      3 /* That of mteval-v14: punctuation and symbols of every script are set apart. */
#define TRAFO_TOKENIZE_CHAR      4 /* Every code point is a word. For Japanese, Thai and others without spaces. */
/* Subwords of a SentencePiece model that the user gives, usually the FLORES-200 model (spBLEU). */
#define TRAFO_TOKENIZE_FLORES200 5
#define TRAFO_TOKENIZE_JA_MECAB  6 /* Japanese words as MeCab finds them with IPADIC. Both have to be installed. */

typedef struct trafo_evaluation_options {
  size_t struct_size;
  const trafo_tokenizer *tokenizer; /* The SentencePiece model of tokenize flores200, which needs one. Default NULL. */
  /* Number of bootstrap samples. Each sample draws as many lines as the corpus has, with replacement. Default 1000. */
  int64_t resamples;
  /* Seed of the resampling. The same seed draws the same lines for every system and both scores. Default 12345. */
  uint64_t seed;
  /* TRAFO_TOKENIZE_*. How BLEU cuts lines into words. Scores are comparable only where it is the same. Default
   * TRAFO_TOKENIZE_13A. */
  int32_t tokenize;
  int32_t lowercase; /* 1: BLEU is computed without case. chrF keeps it. Default 0. */
  /* 1: lines are resampled for the mean and the 95 % interval of both scores. With a baseline they always are. Default 0. */
  int32_t confidence;
  int32_t reserved; /* 0 */
} trafo_evaluation_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_evaluation_options_init(trafo_evaluation_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_EVALUATION_OPTIONS_H */

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_RESAMPLED_SCORE_H
#define TRAFO_GENERATED_RESAMPLED_SCORE_H

/* A corpus score, 0 to 100. */
typedef struct trafo_resampled_score {
  double score; /* Of the whole corpus. */
  double mean; /* The mean of the resamples. NaN: nothing was resampled. */
  double half_width; /* 95 % of the resamples lie in an interval of twice this width. NaN: nothing was resampled. */
  /* Paired bootstrap test (Koehn, EMNLP 2004): how probable so large a difference from the baseline would be if both were
   * equal. NaN: there is no baseline, or nothing was resampled. */
  double p_value;
} trafo_resampled_score;

#endif /* TRAFO_GENERATED_RESAMPLED_SCORE_H */

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVALUATION_H
#define TRAFO_GENERATED_EVALUATION_H

/* Corpus scores with their parts. */
typedef struct trafo_evaluation {
  size_t struct_size;
  trafo_resampled_score bleu; /* Corpus BLEU. */
  trafo_resampled_score chrf; /* Corpus chrF2. */
  trafo_resampled_score baseline_bleu; /* BLEU of the baseline. NaN: there is no baseline. */
  trafo_resampled_score baseline_chrf; /* chrF2 of the baseline. NaN: there is no baseline. */
  double bleu_precisions[4]; /* BLEU's precisions of n-grams of 1 to 4 tokens, per cent, smoothed. */
  double bleu_brevity_penalty; /* BLEU's brevity penalty. */
  int64_t bleu_matches[4]; /* n-grams of the hypotheses that a reference has. */
  int64_t bleu_totals[4]; /* n-grams of the hypotheses. */
  int64_t hypothesis_tokens; /* Tokens of the hypotheses. */
  int64_t reference_tokens; /* Tokens of the references; with several, of the one of each line that is nearest in length. */
  /* References in scripts without spaces (Chinese, Japanese, Thai, ...), of which the tokenizers 13a, intl and none take whole
   * phrases for words: their BLEU says little then. */
  int64_t unspaced_references;
  char bleu_signature[128]; /* sacreBLEU's signature; only scores with equal signatures are comparable. */
  char chrf_signature[128]; /* The same for chrF2. */
} trafo_evaluation;

#endif /* TRAFO_GENERATED_EVALUATION_H */

/* Corpus BLEU and chrF2 of `count` translations as sacreBLEU computes them, with their parts. `references` has reference_sets
 * references of every line, one set of `count` lines after the other. `baseline`, which may be NULL, are other translations of the
 * same lines: both are then resampled and compared. options and cancel may be NULL. CANCELLED. INVALID_ARGUMENT: no lines or no references; tokenize
 * flores200 without a tokenizer, or a line that it cannot encode (no UTF-8). UNSUPPORTED: tokenize ja-mecab without MeCab
 * (libmecab.so.2) or IPADIC, whose folder TRAFO_MECAB_DICTIONARY names if it is not where Debian has it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_evaluate(const trafo_string_view *hypotheses, const trafo_string_view *references,
                                                     size_t count, size_t reference_sets,
                                                     const trafo_string_view *baseline,
                                                     const trafo_evaluation_options *options,
                                                     const trafo_cancel *cancel, trafo_evaluation *out,
                                                     size_t struct_size);

/* BLEU and chrF2 of every translation by itself against its one reference, 0 to 100, as sacreBLEU's sentence scores: BLEU leaves out
 * orders longer than the translation. They choose among translations of a line; their mean is no corpus score. Of the options,
 * tokenize, tokenizer and lowercase are used. options may be NULL. out_bleu and out_chrf, arrays of `count`, get the scores. out_bleu
 * and out_chrf may be NULL, but not both: that score is not computed then. INVALID_ARGUMENT: no lines; the tokenizer as for trafo_evaluate.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sentence_scores(const trafo_string_view *hypotheses,
                                                            const trafo_string_view *references, size_t count,
                                                            const trafo_evaluation_options *options, double *out_bleu,
                                                            double *out_chrf);

/* Corpus BLEU, 0 to 100, as sacreBLEU computes it by default (13a tokenisation, exponential smoothing). out_signature may be NULL; it gets
 * sacreBLEU's signature, freed with trafo_string_free. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_bleu(const trafo_string_view *hypotheses, const trafo_string_view *references,
                                                 size_t count, int32_t lowercase, double *out_score,
                                                 char **out_signature);
/* Corpus chrF2, 0 to 100, as sacreBLEU computes it by default. out_signature may be NULL, as for trafo_bleu. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_chrf(const trafo_string_view *hypotheses, const trafo_string_view *references,
                                                 size_t count, double *out_score, char **out_signature);
/* The corpus score of one metric: a bit TRAFO_METRIC_* (trafo_models.h) of one that needs translations. `references` as for
 * trafo_evaluate. INVALID_ARGUMENT: no lines; another metric. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_metric_score(int32_t metric, const trafo_string_view *hypotheses,
                                                         const trafo_string_view *references, size_t count,
                                                         size_t reference_sets, double *out_score);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_TRANSLATION_H */
/*
 * Trafo, training data: corpora larger than memory, monolingual text, preference pairs, mixtures. Include trafo.h; its rules hold here.
 */
#ifndef TRAFO_DATA_H
#define TRAFO_DATA_H


#ifdef __cplusplus
extern "C" {
#endif

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CORPUS_OPTIONS_H
#define TRAFO_GENERATED_CORPUS_OPTIONS_H

typedef struct trafo_corpus_options {
  size_t struct_size;
  /* Bytes. A larger file (gzip: larger than a quarter of it) stays on disk and is read as batches need it, with 16 bytes of
   * memory a pair. So does a corpus whose pairs take more once they are unpacked, with 72 bytes a pair beside their text. Does
   * not change training. 0: all text stays on disk. Default 256 MiB. */
  int64_t memory_bytes;
  /* Directory for gzip files and standard input that stay on disk: they are unpacked into unnamed files. It is created if
   * missing. Empty: the system's directory for temporary files. Default empty. */
  trafo_string_view unpack_directory;
  /* Files of llm.c and nanoGPT: the token that ends a document, such as 50256 of GPT-2. Without it a file is one document.
   * Default -1: none. */
  int64_t document_end;
  /* 1: it is one file of text without a source, for a decoder-lm. The members of JSON lines say it themselves. Default 0. */
  int32_t monolingual;
  /* 1: it is preferences for DPO, ORPO or KTO: three files of prompts, chosen and rejected answers, or one file of JSON lines
   * or of TSV with three columns. Default 0. */
  int32_t preferences;
  int32_t format; /* TRAFO_CORPUS_*. Format of the files. Default TRAFO_CORPUS_AUTO. */
  int32_t reserved; /* 0 */
} trafo_corpus_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_options_init(trafo_corpus_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_CORPUS_OPTIONS_H */

/* A corpus from two files of equal line count, from one TSV file, with options->monolingual from one text file, or with
 * options->preferences from three files or one TSV file of three columns. Or from one file of JSON lines or CSV: its members or
 * columns choose text, pairs or preferences. Or from one file of token ids of llm.c, nanoGPT or Megatron: text without a source, whose
 * rows are those of trafo_corpus_new_ids. CORRUPT_FILE: a line is no such object or record, or a file of token ids is damaged. "-" is
 * standard input. IO: a file that stays on disk has changed. If the text is on disk, the views of trafo_corpus_get_pair are valid until
 * the next call of it on the thread. options and cancel may be NULL. CANCELLED: nothing is left of what was unpacked. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_open(const trafo_string_view *paths, size_t count,
                                                        const trafo_corpus_options *options,
                                                        const trafo_cancel *cancel, trafo_corpus **out);
/* Writes text without a source as a file of token ids that trafo_corpus_open reads, in the format TRAFO_CORPUS_LLM_C, _NANOGPT or
 * _MEGATRON: the ids of each text and the tokenizer's end, which is the document_end to read it with. llm.c's file is that of Llama 3 if
 * the vocabulary has more than 65,536 tokens. The path of Megatron's is NAME.bin, and NAME.idx is written too. out_documents, out_tokens:
 * how many were written. INVALID_ARGUMENT: the corpus has no text, pairs, preferences or conversations; a number outside the three
 * formats. UNSUPPORTED: the vocabulary is too large for nanoGPT, the text for llm.c. cancel may be NULL. CANCELLED and other errors: the
 * path has what it had before. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_write_ids(const trafo_corpus *corpus, const trafo_tokenizer *tokenizer,
                                                             int32_t format, const char *path, size_t path_length,
                                                             const trafo_cancel *cancel, int64_t *out_documents,
                                                             int64_t *out_tokens);
/* A mixture of corpora, which may be freed. An epoch has every pair of corpora[i] weights[i] times. Weight 3: three times. Weight
 * 0.25: a quarter of the pairs, another quarter in each of four epochs. INVALID_ARGUMENT: a weight is not above 0, or so small
 * that an epoch has no pair of that corpus. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_mix(const trafo_corpus *const *corpora, const double *weights,
                                                       size_t count, trafo_corpus **out);
/* Splits `count` pairs off for validation, chosen by a hash of their text. *out_held has them; *out_rest has the other pairs,
 * without copies of those in *out_held. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_hold_out(const trafo_corpus *corpus, int64_t count,
                                                            trafo_corpus **out_rest, trafo_corpus **out_held);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DATA_H */
/*
 * Trafo, tensors shared with other libraries without copies: DLPack 1.x. Include trafo.h; its rules hold here. The struct is the
 * one of dlpack.h, which need not be installed.
 *
 * Streams    On CUDA no stream is passed. Export waits until the elements are written. An imported tensor must be complete when
 *            it is passed: synchronise the stream that writes it. Its deleter runs after Trafo's work on it. The consumer of an
 *            exported tensor calls the deleter after its own work on it.
 * Threads    The deleter of an exported tensor may be called on any thread, also after the context was freed. The deleter of an
 *            imported tensor is called at the end of the call that frees the last tensor over the memory, or, if another thread
 *            is in a call on the context, at the end of that call, on its thread. No lock is held.
 */
#ifndef TRAFO_DLPACK_H
#define TRAFO_DLPACK_H


#ifdef __cplusplus
extern "C" {
#endif

/* uint32_t major, minor (1.x); void *manager_ctx; void (*deleter)(struct DLManagedTensorVersioned *); uint64_t flags (1: read-only,
 * 2: copied); void *data; int32_t device_type (1: host, 2: CUDA, 3: host memory of CUDA, 13: managed by CUDA), device_id; int32_t
 * ndim; uint8_t code (0: integer, 2: float, 4: bfloat), bits; uint16_t lanes; int64_t *shape; int64_t *strides (in elements; NULL:
 * row-major); uint64_t byte_offset. */
struct DLManagedTensorVersioned;

#define TRAFO_COPY_IF_NEEDED 0 /* memory is shared where it can be, else copied */
#define TRAFO_COPY_NEVER 1     /* UNSUPPORTED says why memory cannot be shared */
#define TRAFO_COPY_ALWAYS 2

/* A leaf over the memory of `managed`: float32, float64, bfloat16 or int32. On success Trafo owns `managed` and calls its deleter
 * once: when the last tensor over the memory is freed, or before this returns if the elements were copied. After a failure it still
 * belongs to the caller. Memory is shared if it is on the context's device (on the CPU: in host memory). It has to be copied if it
 * is read-only, not aligned to its elements, has strides that are negative or 0, or is host memory for a CUDA context. VERSION:
 * another major version of DLPack. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_from_dlpack(trafo_context *context,
                                                               struct DLManagedTensorVersioned *managed, int32_t copy,
                                                               trafo_tensor **out);
/* Exports the tensor's memory with its strides. The memory lives until the consumer calls the deleter. Both sides see writes, and no
 * gradient flows through it. After a write of the consumer between forward and backward, call trafo_tensor_mark_written: the library
 * cannot see it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_to_dlpack(const trafo_tensor *tensor,
                                                             struct DLManagedTensorVersioned **out);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DLPACK_H */
/*
 * Trafo, training inside a program: learning rates, pairs and batches from functions of the program, and models and whole runs
 * written to streams of the program. Include trafo.h; its rules hold here.
 *
 * user_data_free (may be NULL) is called once, when the function will not be called again, also if the call that got it fails.
 */
#ifndef TRAFO_CALLBACKS_H
#define TRAFO_CALLBACKS_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- Learning rates ----------------------------------------------------------------------------------------------- */

/* Returns the learning rate of an update, counted from 1. `scheduled` is the rate of the schedule in the options. */
typedef double (*trafo_rate_fn)(void *user_data, int64_t update, double scheduled);

/* Replaces the schedule from the next call that trains. rate may be NULL: the schedule of the options again. It is called on the thread
 * that trains, hundreds of updates ahead and several times for an update, so it must depend on its arguments alone. Checkpoints do
 * not contain it: set it again before a run resumes. A rate that is negative or non-finite ends the call that trains with
 * INVALID_ARGUMENT. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_set_rate(trafo_trainer *trainer, trafo_rate_fn rate, void *user_data,
                                                             void (*user_data_free)(void *));

/* ---- Pairs from a function ------------------------------------------------------------------------------------------ */

/* Writes views of pair `index`, counted from 0, and returns 0. The views must stay valid until the next call. If it returns
 * non-zero, the call that needed the pair returns TRAFO_IO and may be repeated. It is never called twice at a time, but also on
 * threads of the library. It must not read the corpus that it belongs to, and not wait for a thread that reads it: that thread waits
 * until the function returns, and neither would go on. */
typedef int32_t (*trafo_pair_fn)(void *user_data, int64_t index, trafo_string_view *out_source,
                                 trafo_string_view *out_target);

/* A corpus whose `pairs` pairs (1 to 2^31 - 1) come from a function. It is called as batches need the pairs, some windows of the
 * shuffle ahead, and again in every epoch, as long as the corpus or a trainer made from it lives. Pairs with an empty side are
 * dropped and counted. Text that is not UTF-8 or has a NUL byte is INVALID_ARGUMENT. A run resumes with the same bits if the same
 * index gives the same pair. Checkpoints keep `identity` and `pairs`; a run with other ones is refused. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_from_function(int64_t pairs, uint64_t identity, trafo_pair_fn function,
                                                                 void *user_data, void (*user_data_free)(void *),
                                                                 trafo_corpus **out);

/* ---- Batches from a function ---------------------------------------------------------------------------------------- */

/* A batch as padded rows of token ids. Row i of the source begins at source[i * source_width] and has source_lengths[i] ids; the rest of
 * the row is not read. The target has the same form. The encoder reads the source; a decoder-lm reads it as a prompt without loss. The
 * model learns to predict every id of the target, after <s> or, in a decoder-lm, after the source. Nothing is added to a row: where
 * texts end with </s>, the last id of the row is </s>, and a row that is a piece of a longer text has none. A source of a decoder-lm may
 * have the length 0: the target is then plain text, before which the model reads </s>. Without any source, source is NULL and its width
 * is 0. */
typedef struct trafo_batch {
  size_t struct_size; /* set by the library, the rest is 0 */
  int64_t sentences;  /* number of rows */
  const int32_t *source;
  int64_t source_width;
  const int32_t *source_lengths;
  const int32_t *target;
  int64_t target_width;
  const int32_t *target_lengths;
} trafo_batch;

/* Fills in micro-batch `index` of the run, counted from 0, and returns 0. Its memory must stay valid until the next call. If it
 * returns non-zero, the call that trains returns TRAFO_IO and may be repeated. */
typedef int32_t (*trafo_batch_fn)(void *user_data, int64_t index, trafo_batch *out);

/* Takes batches from `batches` from the next call that trains. batches may be NULL: from the corpus again. It is called on the thread
 * that trains. Such a run has no epochs. It resumes with the same bits if the same index gives the same batch; checkpoints do not
 * contain the function. A batch that does not fit the model ends the call with INVALID_ARGUMENT, and the next call asks for the
 * same index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_set_batches(trafo_trainer *trainer, trafo_batch_fn batches, void *user_data,
                                                                void (*user_data_free)(void *));

/* ---- Writers and readers -------------------------------------------------------------------------------------------- */

/* Takes all bytes and returns 0. If it returns non-zero, the call that writes returns TRAFO_IO. */
typedef int32_t (*trafo_write_fn)(void *user_data, const uint8_t *data, size_t bytes);
/* Writes 1 to `capacity` of the next bytes to `data`, or none at the end, and returns 0. If it returns non-zero, the call that
 * reads returns TRAFO_IO. */
typedef int32_t (*trafo_read_fn)(void *user_data, uint8_t *data, size_t capacity, size_t *out_bytes);

/* Writes the bytes of the file that trafo_model_save makes. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_write(const trafo_model *model, trafo_write_fn write, void *user_data);
/* A model from such bytes, read to their end. `precision`: see trafo_model_load_as. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_read(trafo_context *context, trafo_read_fn read, void *user_data,
                                                       int32_t precision, trafo_model **out);
/* Writes the bytes of the file that trafo_tokenizer_save makes; trafo_tokenizer_load_buffer reads them. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_write(const trafo_tokenizer *tokenizer, trafo_write_fn write,
                                                            void *user_data);
/* Writes a checkpoint as one sequence of bytes with checksums: weights, optimizer moments, position in the data, counters. Needs
 * host memory of the same size. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_write(trafo_trainer *trainer, trafo_write_fn write, void *user_data);
/* Restores the trainer and its model from such bytes. Training resumes with the bits that the trainer which wrote them would have
 * had. Architecture, tokenizer, corpus and options must be the same, as in trafo_trainer_new. CORRUPT_FILE: the bytes are
 * damaged. An error changes nothing. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_read(trafo_trainer *trainer, trafo_read_fn read, void *user_data);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_CALLBACKS_H */
/*
 * Trafo, several ranks that train one model. Include trafo.h; its rules hold here.
 *
 * The batches of an update are dealt to `lanes` of the trainer's options. Each rank computes some of the lanes. The sums of the lanes
 * are added in a fixed order, so the bits of a run depend on the number of lanes and not on the number of ranks. Each rank has the
 * optimizer states of a shard of the weights.
 *
 * A rank is a separate context, model, group and trainer, used by one thread. All ranks make the same calls of a trainer in the
 * same order: trafo_trainer_run, _step, _validate and _save wait for each other. An error that the ranks agree on (a batch, a validation
 * or a save has failed on one of them) is returned by all, and names the rank; the trainers may go on. After any other error the rank
 * has left its group, and the calls of the others return PEER_LOST.
 */
#ifndef TRAFO_DISTRIBUTED_H
#define TRAFO_DISTRIBUTED_H


#ifdef __cplusplus
extern "C" {
#endif

#define TRAFO_GROUP_ID_BYTES 128

/* One rank of a group. */
typedef struct trafo_group trafo_group;

/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GROUP_OPTIONS_H
#define TRAFO_GENERATED_GROUP_OPTIONS_H

/* One rank of a group. */
typedef struct trafo_group_options {
  size_t struct_size;
  int32_t rank; /* 0 to size - 1. Default 0. */
  int32_t size; /* Number of ranks. With MPI, rank -1 and size 0 mean MPI_COMM_WORLD's. Default 1. */
  int32_t transport; /* TRAFO_TRANSPORT_*. The transport of the id. Default TRAFO_TRANSPORT_LOCAL. */
  int32_t reserved; /* 0 */
  double start_timeout_s; /* Seconds to wait until all ranks have joined. Default 300. */
  double timeout_s; /* Seconds that ranks wait for the slowest one in a call, saving included. Default 600. */
} trafo_group_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_options_init(trafo_group_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_GROUP_OPTIONS_H */

/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GROUP_INFO_H
#define TRAFO_GENERATED_GROUP_INFO_H

typedef struct trafo_group_info {
  size_t struct_size;
  int32_t rank; /* The number of this rank, counted from 0. */
  int32_t size; /* The number of ranks. */
  int32_t transport; /* TRAFO_TRANSPORT_*. */
  int32_t reserved; /* 0 */
} trafo_group_info;

#endif /* TRAFO_GENERATED_GROUP_INFO_H */

/* The name of a new group, which the program gives to all its ranks. id has room for id_bytes, which must be TRAFO_GROUP_ID_BYTES. With MPI
 * the group is the job, and each process makes the same id by itself.
 * TRAFO_TRANSPORT_NCCL: the first call loads NCCL, 2.19.1 or newer: the file that TRAFO_NCCL_LIBRARY in the environment names by an absolute
 * path, or else libnccl.so.2 beside libtrafo_cuda.so or on the loader's path. It sets NCCL_NVLS_ENABLE=0 in the environment unless it is
 * set. UNSUPPORTED: there is none, and where it was looked for. The id is for threads of this process.
 * TRAFO_TRANSPORT_TCP: trafo_group_id_of_master at 127.0.0.1:0 with a new token, for the processes of this host. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_id_new(int32_t transport, uint8_t *id, size_t id_bytes);

/* The name of a group of processes that meet at `master`, "HOST:PORT" or "[IPv6]:PORT" of at most 79 bytes of HOST, where rank 0 listens.
 * Either every process makes the id from the same master and token, or one makes it and gives its bytes to the others, by any means.
 * token: a secret of 32 to 4096 bytes from a generator of random numbers (openssl rand -hex 32). Who can guess it can join; bytes of which
 * fewer than 10 differ are refused. NULL and 0: a new random one, which is in the id.
 * PORT 0, only without a token: this process takes a free port at once and keeps it until rank 0 joins, which must be in this process.
 * HOST localhost, 127.* or ::1: nobody listens for other hosts. Any other HOST: all ranks listen at all addresses of their hosts, rank 0
 * at PORT, the others at free ports. Traffic between ranks is not encrypted. The ranks of a group trust each other.
 * The id is for TRAFO_TRANSPORT_TCP, and for TRAFO_TRANSPORT_NCCL, which exchanges over NCCL and all else over TCP.
 * INVALID_ARGUMENT: no such master or token. UNSUPPORTED: PORT 0, and libtrafo_tcp.so was not found (the message names the files;
 * TRAFO_TCP_LIBRARY in the environment names another one). IO: there is no free port. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_id_of_master(const char *master, size_t master_length, const uint8_t *token,
                                                               size_t token_length, uint8_t *id, size_t id_bytes);

/* Joins the group as one rank and waits for the others, each of which calls this with the same id on a separate thread. `context` is that
 * of the rank's model; nothing else may use it meanwhile. options may be NULL: a group of one rank. INVALID_ARGUMENT: the id names no group
 * that this process can join, the rank has joined already, or another rank gave another size. PEER_LOST: not all ranks have joined within
 * start_timeout_s. UNSUPPORTED: the context is not on a GPU, with TRAFO_TRANSPORT_NCCL.
 * TRAFO_TRANSPORT_TCP: ranks are processes or threads. INVALID_ARGUMENT also: what answers at the master has another token or is no rank.
 * IO: rank 0 cannot listen at its port. VERSION: a rank has another release. UNSUPPORTED: libtrafo_tcp.so was not found. A rank whose
 * process or host dies ends the group of all, at once or after about 45 seconds.
 * TRAFO_TRANSPORT_MPI: each process is one rank, in one group at a time. INVALID_ARGUMENT: rank or size differ from MPI's.
 * UNSUPPORTED: libtrafo_mpi.so was not found or cannot be loaded (the message names the files; TRAFO_MPI_LIBRARY in the environment names
 * another one), MPI has been finalised, or the program has initialised it below MPI_THREAD_SERIALIZED. The first call initialises MPI unless
 * the program has. Trafo calls MPI on a separate thread, and only during calls of the group. After PEER_LOST no group of the job can be
 * joined any more: the program should end, and its launcher start all processes again. TRAFO_TRANSPORT_NCCL takes an id of MPI or TCP as well:
 * the processes exchange over NCCL, and all else over MPI or TCP. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_new(trafo_context *context, const trafo_group_options *options,
                                                      const uint8_t *id, size_t id_bytes, trafo_group **out);
/* The rank, the number of ranks and the transport. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_get_info(const trafo_group *group, trafo_group_info *out, size_t struct_size);
/* Leaves the group: calls that wait in it, on this rank and on the others, return PEER_LOST with `reason`. May be called from any thread
 * while another one trains. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_abort(trafo_group *group, const char *reason, size_t reason_length);
/* Ends MPI, if Trafo has initialised it. Each process calls this when it will join no other group; it waits for the other processes, no
 * longer than the timeout_s of the last group. exit() and a return from main do this by themselves; a program that ends in another way (Go's
 * os.Exit) makes this call. PEER_LOST: another process has failed or did not come, or a call of a group is running. MPI is not finalised
 * then, and the launcher ends the other processes when this one ends. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_mpi_finalize(void);
/* Frees the handle. A trainer of the group keeps what it needs; the rank has left the group once both are freed. since 0.1 */
TRAFO_API void trafo_group_free(trafo_group *group);

/* trafo_trainer_new for one rank of a group; all ranks call it. valid may be NULL. The model, the corpora, the tokenizer and the options
 * must be the same on all ranks; INVALID_ARGUMENT names a rank that differs, and in what, or two ranks on one GPU. Rank 0 alone reads and
 * writes the run directory, which all ranks give. Its files equal the files of a trainer without a group that has the same lanes. lanes 1 becomes
 * the number of ranks, or the lanes of the run that resumes. A run may resume with any number of ranks up to its lanes. Not with a group of
 * several ranks (UNSUPPORTED): trafo_trainer_write and trafo_trainer_read. cancel may be NULL. CANCELLED: this rank has left the call, and
 * the others wait for it until trafo_group_abort or the timeout of the group. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_new_in_group(trafo_group *group, trafo_model *model,
                                                                 const trafo_tokenizer *tokenizer, const trafo_corpus *train,
                                                                 const trafo_corpus *valid, const trafo_trainer_options *options,
                                                                 const char *run_directory, size_t run_directory_length,
                                                                 const trafo_cancel *cancel, trafo_trainer **out);

/* trafo_plan_training for rank `rank` of a group of `size`: with its shard of the optimizer's states, the sums of lanes that it keeps and
 * those that it receives. The ranks are on `hosts` hosts, equally many on each, host by host: several hosts exchange gradients beside the
 * backward pass or in two levels, which takes other memory than on one host. options may be NULL. lanes 1 is planned as one for each rank.
 * With batch_fit the batch fits this rank; a group takes the smallest batch of all its ranks. INVALID_ARGUMENT also: there is no such rank,
 * hosts is below 1 or `size` is no multiple of it, or lanes is above 1 and below `size`. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_training_of_rank(const trafo_model_config *config,
                                                                  const trafo_trainer_options *options,
                                                                  const trafo_string_view *frozen, size_t frozen_count,
                                                                  int32_t rank, int32_t size, int32_t hosts, int64_t sentences,
                                                                  int64_t source_tokens, int64_t target_tokens,
                                                                  trafo_memory_plan *out, size_t struct_size);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DISTRIBUTED_H */

#endif /* TRAFO_H */
