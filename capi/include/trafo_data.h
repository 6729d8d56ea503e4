/*
 * Trafo, training data: corpora larger than memory, monolingual text, mixtures. Programs include trafo.h, whose beginning says
 * what holds for every call here as well.
 */
#ifndef TRAFO_DATA_H
#define TRAFO_DATA_H

#include "trafo_models.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trafo_corpus_options {
  size_t struct_size;
  /* Files with more text than this stay on disk (.gz: with more than a quarter of it), and are trained on as batches need them:
   * 16 bytes of memory a pair. Never changes what is trained. Default 256 MiB; 0: all text stays on disk */
  int64_t memory_bytes;
  /* Where .gz files and standard input that stay on disk are unpacked, into files without a name; made if need be. Default: empty,
   * the system's directory for temporary files */
  trafo_string_view unpack_directory;
  int32_t monolingual; /* 1: one file of text without a source, for a decoder-lm; default 0 */
  int32_t reserved;    /* 0 */
} trafo_corpus_options;

/* since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_options_init(trafo_corpus_options *options, size_t struct_size);
/* Two paths: files of equal line count; one: a TSV file, or text if options say so; "-" is standard input. Files that stay on disk
 * must not change while they are trained on (IO). options may be NULL. Views of trafo_corpus_get_pair hold until the thread's
 * next call of it if the text is on disk. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_open(const trafo_string_view *paths, size_t count,
                                                        const trafo_corpus_options *options, trafo_corpus **out);
/* One corpus of several, which may be freed. An epoch draws weights[i] times every pair of corpora[i]: 3 is each three times, 0.25 a
 * quarter of them, another one each epoch until all have been drawn. INVALID_ARGUMENT: a weight not above 0, or that leaves an
 * epoch without a pair of a corpus. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_mix(const trafo_corpus *const *corpora, const double *weights,
                                                       size_t count, trafo_corpus **out);
/* Takes `count` pairs out, chosen by a hash of their text, with all copies of them: *out_rest is the corpus without, *out_held what
 * was taken. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_hold_out(const trafo_corpus *corpus, int64_t count,
                                                            trafo_corpus **out_rest, trafo_corpus **out_held);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DATA_H */
