// The files of token ids of llm.c, nanoGPT and Megatron. All numbers are little endian.
//
//   llm.c      256 int32, of which the first three are magic, version and number of tokens, and
//              then the tokens. Magic 20240520, version 1 (GPT-2): uint16. Magic 20240801, version
//              7 (Llama 3): uint32.
//   nanoGPT    uint16 tokens.
//   Megatron   NAME.bin: tokens. NAME.idx: the 9 bytes MMIDIDX 0 0, uint64 version 1, uint8 type (4
//              int32, 8 uint16), uint64 sequences, uint64 documents + 1; then for each sequence its
//              tokens (int32) and where it begins (int64, bytes), one after the other; then the
//              numbers of the sequences with which the documents begin, and their number (int64).
//
// llm.c and nanoGPT have a token between documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

constexpr bool is_token_format(CorpusFormat format) {
  return format >= CorpusFormat::llm_c && format <= CorpusFormat::megatron;
}

enum class TokenType : uint8_t { uint16, uint32, int32 };
constexpr size_t bytes_of(TokenType type) {
  return type == TokenType::uint16 ? 2 : 4;
}

inline constexpr uint64_t kLlmcHeader = 1024;  // bytes
struct LlmcKind {
  int32_t magic, version;
  TokenType type;
};
inline constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, TokenType::uint16},
                                          {20240801, 7, TokenType::uint32}};

inline constexpr char kMegatronMagic[] = "MMIDIDX\0";  // with the zero at its end
inline constexpr uint64_t kMegatronVersion = 1;
inline constexpr uint64_t kMegatronHeader = 34;  // bytes
inline constexpr uint8_t kMegatronInt32 = 4, kMegatronUint16 = 8;
// NAME.idx of NAME.bin. INVALID_ARGUMENT: the path ends otherwise.
std::string megatron_index(const std::string& path);

// Where the tokens of a file are.
struct TokenLayout {
  TokenType type = TokenType::uint16;
  uint64_t begin = 0;  // bytes before the first token
  int64_t tokens = 0;
  // Megatron: of each document, the number of tokens up to its end.
  std::vector<int64_t> ends = {};
};

class ReadOnlyFile;
// Of an open file. Memory: 8 bytes a document of Megatron. CORRUPT_FILE, naming the file: the
// header is damaged, or sizes do not fit. Megatron's index is opened beside it: NOT_FOUND, IO.
TokenLayout read_token_layout(const ReadOnlyFile& file, CorpusFormat format);

}  // namespace trafo
