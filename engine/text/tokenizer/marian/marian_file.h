// The vocabulary file of the kind `marian`: the files of a MarianTokenizer of transformers, as they
// came, in one.
//
//   one line of JSON   {"tokenizer": "marian", "parts": {"tokens": N, "start": ID, "ends": [ID,
//   ...],
//                      "bytes": [of vocab.json, source.spm, target.spm, tokenizer_config.json]}}
//   the rest           the bytes of these files, one after another
//
// With "source_tokens" in "parts", their number, vocab.json is of sources, and a fifth file,
// target_vocab.json, has the ids of targets, which "tokens", "start" and "ends" are about.
//
// With "languages" in "parts", the codes of the languages in the order of their ids, it is of an
// M2M100Tokenizer, which has one SentencePiece model. Their tokens follow after vocab.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

enum MarianFile : size_t {
  kMarianIds,
  kMarianSource,
  kMarianTarget,
  kMarianConfig,
  kMarianTargetIds,
  kMarianFiles
};
inline constexpr std::string_view kMarianFileNames[kMarianFiles] = {
    "vocab.json", "source.spm", "target.spm", "tokenizer_config.json", "target_vocab.json"};

inline constexpr std::string_view kM2m100Model = "sentencepiece.bpe.model";

struct MarianParts {
  int32_t tokens = 0;         // the ids are 0 to tokens - 1, some may have no subword
  int32_t start = -1;         // the first token of the decoder
  std::vector<int32_t> ends;  // each ends a translation; the first is </s>
  // The bytes; empty for a tokenizer_config.json or target_vocab.json that there is not.
  std::array<std::string_view, kMarianFiles> files;
  std::string languages = {};  // of an M2M100Tokenizer: "af am ar"; else empty
  int32_t source_tokens = 0;   // ids of vocab.json with a target_vocab.json; else 0
};

bool is_marian_file(std::string_view file_bytes);
// Whether tokenizer_config.json, which may be empty, says that target_vocab.json has the ids of
// targets. CORRUPT_FILE, naming `label`.
bool has_separate_vocabs(std::string_view config, const std::string& label);
std::string serialize_marian(const MarianParts& parts);
// The files are views of `file_bytes`. CORRUPT_FILE, naming `label`.
MarianParts parse_marian(std::string_view file_bytes, std::string_view label);
// The names of the tokens of languages: "__af__" of "af".
std::vector<std::string> language_tokens(std::string_view codes);

// Of every id below `tokens` its subword in vocab.json, {"subword": id, ...}; empty without one.
// CORRUPT_FILE, naming `label`: an id is not below `tokens`, it has two subwords or a subword has
// two ids; or the file is too short for so many ids, none of which is allocated.
std::vector<std::string> read_marian_ids(std::string_view json, int64_t tokens,
                                         const std::string& label);

}  // namespace trafo
