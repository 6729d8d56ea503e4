/*
 * Trafo, training data: corpora larger than memory, monolingual text, preference pairs, mixtures. Include trafo.h; its rules hold here.
 */
#ifndef TRAFO_DATA_H
#define TRAFO_DATA_H

#include "trafo_models.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "trafo/generated/corpus_options.h"

/* A corpus from two files of equal line count, from one TSV file, with options->monolingual from one text file, or with
 * options->preferences from three files or one TSV file of three columns. Or from one file of JSON lines or CSV: its members or
 * columns choose text, pairs or preferences. CORRUPT_FILE: a line is no such object or record. "-" is standard input. IO: a file that stays on
 * disk has changed. If the text is on disk, the views of trafo_corpus_get_pair are valid until the next call of it on the thread.
 * options and cancel may be NULL. CANCELLED: nothing is left of what was unpacked. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_open(const trafo_string_view *paths, size_t count,
                                                        const trafo_corpus_options *options,
                                                        const trafo_cancel *cancel, trafo_corpus **out);
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
