/*
 * Trafo, training inside a program: its own learning rates, its own source of pairs, models and whole runs written to where it keeps
 * them. Programs include trafo.h, whose beginning says what holds for every call here as well.
 *
 * user_data_free (may be NULL) is called once, when the function will not be called any more, also if the call that was given it
 * fails.
 */
#ifndef TRAFO_CALLBACKS_H
#define TRAFO_CALLBACKS_H

#include "trafo_models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Learning rates ----------------------------------------------------------------------------------------------- */

/* The learning rate of an update, counted from 1; `scheduled` is what the options say of it. */
typedef double (*trafo_rate_fn)(void *user_data, int64_t update, double scheduled);

/* Asks `rate` (NULL: the options' schedule again) from the next call that trains on, on the thread that trains: for hundreds of updates
 * ahead, and more than once, so that it must depend on its arguments alone. Not part of checkpoints: give a run that is continued
 * the same function before it goes on. A rate that is negative or not finite ends that call with INVALID_ARGUMENT. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_set_rate(trafo_trainer *trainer, trafo_rate_fn rate, void *user_data,
                                                             void (*user_data_free)(void *));

/* ---- Pairs from a function ------------------------------------------------------------------------------------------ */

/* Writes views of pair `index` (from 0), valid until it is called again, and returns 0. Non-zero: the call that needed the pair
 * returns TRAFO_IO and may be made again. One call at a time, on threads of the library too; it cannot read its own corpus. */
typedef int32_t (*trafo_pair_fn)(void *user_data, int64_t index, trafo_string_view *out_source,
                                 trafo_string_view *out_target);

/* A corpus of `pairs` pairs (1 to 2^31 - 1) that are asked for as batches need them, some windows of an epoch's shuffle ahead, and
 * in every epoch again; sides that are empty are dropped and counted, what is not UTF-8 or has a NUL byte is INVALID_ARGUMENT. A run
 * continues bitwise if the same index gives the same pair; `identity` stands for the pairs in checkpoints: a run whose corpus has
 * another one, or another number of pairs, is refused. The function is used while the corpus or a trainer made from it lives.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_from_function(int64_t pairs, uint64_t identity, trafo_pair_fn function,
                                                                 void *user_data, void (*user_data_free)(void *),
                                                                 trafo_corpus **out);

/* ---- Batches from a function ---------------------------------------------------------------------------------------- */

/* Rows of token ids: row i of the source is source[i * source_width], with source_lengths[i] ids of which the last is </s>; the rest
 * of it is not read. The source is what the encoder reads (of a decoder-lm: what comes first and is not to be learnt), the target what
 * is to be predicted: from <s>, or from the source's last id. */
typedef struct trafo_batch {
  size_t struct_size; /* set by the library, the rest is 0 */
  int64_t sentences;  /* rows */
  const int32_t *source;
  int64_t source_width;
  const int32_t *source_lengths;
  const int32_t *target;
  int64_t target_width;
  const int32_t *target_lengths;
} trafo_batch;

/* Fills in micro-batch `index` of the run, counted from 0, from memory that is valid until it is called again, and returns 0.
 * Non-zero: the call that trains returns TRAFO_IO and may be made again. */
typedef int32_t (*trafo_batch_fn)(void *user_data, int64_t index, trafo_batch *out);

/* Trains on batches of `batches` (NULL: of the corpus again) from the next call that trains on, on the thread that trains. There
 * are no epochs then. The same index must give the same batch for a run to continue bitwise; not part of checkpoints, as set_rate.
 * What is no batch of the model ends that call with INVALID_ARGUMENT, and the next asks for it again. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_set_batches(trafo_trainer *trainer, trafo_batch_fn batches, void *user_data,
                                                                void (*user_data_free)(void *));

/* ---- Writers and readers -------------------------------------------------------------------------------------------- */

/* Takes all bytes and returns 0; otherwise the call that writes returns TRAFO_IO. */
typedef int32_t (*trafo_write_fn)(void *user_data, const uint8_t *data, size_t bytes);
/* Gives 1 to `capacity` of the next bytes, 0 at the end, and returns 0; otherwise the call that reads returns TRAFO_IO. */
typedef int32_t (*trafo_read_fn)(void *user_data, uint8_t *data, size_t capacity, size_t *out_bytes);

/* The bytes of trafo_model_save. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_write(const trafo_model *model, trafo_write_fn write, void *user_data);
/* A model from such bytes, read to their end, computing in `precision` as in trafo_model_load_as. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_read(trafo_context *context, trafo_read_fn read, void *user_data,
                                                       int32_t precision, trafo_model **out);
/* The bytes of trafo_tokenizer_save; trafo_tokenizer_load_buffer takes them. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_write(const trafo_tokenizer *tokenizer, trafo_write_fn write,
                                                            void *user_data);
/* What a checkpoint in a run directory holds - weights, moments, position in the data, counters - as one sequence of bytes with
 * checksums. Needs as much host memory. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_write(trafo_trainer *trainer, trafo_write_fn write, void *user_data);
/* Gives the trainer, and its model, what such bytes hold; it goes on bitwise as the one that wrote them would have. Architecture,
 * tokenizer, corpus and options must be those of that trainer, as in trafo_trainer_new. CORRUPT_FILE: they are damaged. Nothing has
 * changed after an error. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_read(trafo_trainer *trainer, trafo_read_fn read, void *user_data);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_CALLBACKS_H */
