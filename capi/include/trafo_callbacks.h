/*
 * Trafo, training inside a program: learning rates, pairs and batches from functions of the program, and models and whole runs
 * written to streams of the program. Include trafo.h; its rules hold here.
 *
 * user_data_free (may be NULL) is called once, when the function will not be called again, also if the call that got it fails.
 */
#ifndef TRAFO_CALLBACKS_H
#define TRAFO_CALLBACKS_H

#include "trafo_models.h"

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
