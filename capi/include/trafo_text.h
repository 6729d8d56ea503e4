/*
 * Trafo: tokenizers and parallel corpora. Include trafo.h; its rules hold here.
 *
 * A token is an id of the vocabulary, which represents a piece of text. Lengths in tokens count the final </s>.
 */
#ifndef TRAFO_TEXT_H
#define TRAFO_TEXT_H

#include "trafo.h"

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

#include "trafo/generated/tokenizer_options.h"

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

#include "trafo/generated/special_tokens.h"

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

#include "trafo/generated/corpus_info.h"

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
