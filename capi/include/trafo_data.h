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
