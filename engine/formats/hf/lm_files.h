// The files that all decoder-only models of transformers have beside the weights.
#pragma once

#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/tokenizers/spm_subwords.h"

namespace trafo::interop {

// Sets bos_token_id, eos_token_id and pad_token_id. Tokens that the vocabulary lacks become eos.
void put_special_ids(const VocabularyTokens& tokens, Json& json);
// Sets torch_dtype and transformers_version, the version whose form config.json has. Without one,
// transformers 5.19 advises to set fix_mistral_regex for large vocabularies of every family, which
// changes their ids.
void put_type_and_version(Json& json);
// The tokens that decoding here never generates.
Json never_generated(const SpecialTokens& tokens);
// Writes generation_config.json: the longest translation, and never_generated() as suppressed
// tokens. Nothing if the tokenizer has the file as a companion.
void write_generation(const ExportVocabulary& vocabulary, const ModelSpec& spec,
                      const std::filesystem::path& directory);
// Writes tokenizer.model and, if there is a fast_tokenizer(), the files of AutoTokenizer. Of
// a vocabulary that is a tokenizer.json, that file and its companions as they came, apart from the
// post-processor if the model has another frame than that. Nothing without a tokenizer.
void write_lm_tokenizer(const ExportVocabulary& vocabulary, const ModelSpec& spec,
                        const std::filesystem::path& directory);
// The model that config.json of hf-llama describes. CORRUPT_FILE and UNSUPPORTED name the key.
ModelConfig read_llama_config(const std::filesystem::path& file);
// The eos_token_id of a configuration, a number or a list; empty if it has none. CORRUPT_FILE,
// naming the key, unless it is integers; negative ones are left out.
std::vector<int32_t> read_end_ids(const ConfigReader& config);
// The ids of special tokens in generation_config.json and config.json. The
// eos_token_id of generation_config.json goes before.
SpecialIds read_special_ids(const std::filesystem::path& directory, const ConfigReader& config);
// decoder_start_token_id of config.json: a token below `stored`. CORRUPT_FILE names the key if it
// is missing, unless the class has a default, which is 2.
int32_t read_decoder_start(const ConfigReader& config, int64_t stored, bool has_default);
// The settings with which transformers generates: generation_config.json or, without that file,
// config.json.
ConfigReader generation_options(const std::filesystem::path& directory, const ConfigReader& config);

// The special tokens of a model without a tokenizer: read_special_ids(), without unk; the start of
// an encoder-decoder is read_decoder_start(). None: there is no eos_token_id.
std::optional<VocabularyTokens> read_tokens(const std::filesystem::path& directory,
                                            const ConfigReader& config, const ModelSpec& spec);

// The frame of texts that the tokenizer of transformers gives a decoder-only model: the
// post-processor of tokenizer.json or, without that file, add_bos_token and add_eos_token of
// tokenizer_config.json. The usual one where the directory says nothing. UNSUPPORTED: the
// post-processor adds other tokens than bos and eos.
TextFrame read_frame(const std::filesystem::path& directory, const VocabularyTokens& tokens,
                     const std::optional<Tokenizer>& tokenizer);

struct ReadTokenizer {
  std::optional<Tokenizer> tokenizer;
  std::string note;  // why there is none, or what the user should know
};
// Reads tokenizer.model, with the eos_token_id of the configuration, or else tokenizer.json, or
// else a vocab.txt of WordPiece. None, with a note, if there is none of them or the second is
// neither BPE or WordPiece that is read as it is nor a SentencePiece model.
// CORRUPT_FILE if the tokenizer has more tokens than the `stored` rows of the embeddings; those
// that it lacks are rows that nobody needs.
ReadTokenizer read_lm_tokenizer(const std::filesystem::path& directory, const ConfigReader& config,
                                int64_t stored);
// With these ids of special tokens, for any architecture.
ReadTokenizer read_tokenizer_of(const std::filesystem::path& directory, const ConfigReader& config,
                                int64_t stored, const SpecialIds& ids);
// The tokenizer of a directory of M2M100 or NLLB-200, see m2m100.cc. UNSUPPORTED names the key.
ReadTokenizer read_m2m100_tokenizer(const std::filesystem::path& directory,
                                    const ConfigReader& config, int64_t stored);
// The part that the classes of M2M100 and NLLB-200 cannot express in a SentencePiece or `marian`
// vocabulary; empty if nothing.
std::string_view m2m100_fault(const Tokenizer& tokenizer);
// Writes the files of M2M100Tokenizer, which are in a vocabulary of the kind `marian`, or of
// NllbTokenizer. UNSUPPORTED: neither has these subwords, or <pad> is not token 1.
void write_m2m100_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                            const std::filesystem::path& directory);
// The same of mBART-50. None, with a note, if another class puts the language elsewhere.
ReadTokenizer read_mbart_tokenizer(const std::filesystem::path& directory,
                                   const ConfigReader& config, int64_t stored);
// The tokenizer of a directory of XLM-R: tokenizer.json, or else sentencepiece.bpe.model with the
// tokens that XLMRobertaTokenizer gives it.
ReadTokenizer read_xlm_roberta_tokenizer(const std::filesystem::path& directory,
                                         const ConfigReader& config, int64_t stored);
// Writes the files of MBart50Tokenizer. UNSUPPORTED: it does not have these tokens.
void write_mbart_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                           const std::filesystem::path& directory);
// The tokenizer of a directory of BART: byte-level BPE that puts a token in front of texts. None,
// with a note, if there is no such file.
ReadTokenizer read_bart_tokenizer(const std::filesystem::path& directory,
                                  const ConfigReader& config, int64_t stored);
// Writes tokenizer.json and its companions as they came. Returns the token in front of texts.
// UNSUPPORTED: they are not BART's.
int32_t write_bart_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);
// The note on rows of the embeddings that a tokenizer has no tokens for; empty if there are none.
std::string spare_rows_note(int64_t stored, int64_t tokens);

}  // namespace trafo::interop
