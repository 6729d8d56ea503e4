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
