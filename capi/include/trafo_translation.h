/*
 * Trafo: translation, scoring and metrics. Include trafo.h; its rules hold here.
 */
#ifndef TRAFO_TRANSLATION_H
#define TRAFO_TRANSLATION_H

#include "trafo_models.h"

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

#include "trafo/generated/translate_options.h"

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

#include "trafo/generated/generation_options.h"
#include "trafo/generated/generation_piece.h"

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

#include "trafo/generated/evaluation_options.h"

#include "trafo/generated/resampled_score.h"

#include "trafo/generated/evaluation.h"

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
