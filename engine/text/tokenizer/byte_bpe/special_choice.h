// Which tokens of a tokenizer.json are special for a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/tokenizer/companion_file.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

struct SpecialChoice {
  SpecialTokens tokens{-1, -1, -1, -1};
  std::vector<int32_t> further_ends;
  int32_t text_begin = -1;  // see Tokenizer::Model::text_begin()
};

// The files of a transformers directory that may lie beside a tokenizer.json. The first three name
// special tokens, the others are kept for an export.
inline constexpr std::string_view kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr std::string_view kSpecialTokensFile = "special_tokens_map.json";
inline constexpr std::string_view kGenerationFile = "generation_config.json";
inline constexpr std::string_view kChatTemplateFile = "chat_template.jinja";
inline constexpr uint64_t kCompanionBytes = 2u << 20;  // of each
inline constexpr std::string_view kTokenizerCompanions[] = {
    kTokenizerConfigFile, kSpecialTokensFile, kGenerationFile, kChatTemplateFile};

// The tokens that the post-processor of a tokenizer.json adds before and after a text.
struct AddedAround {
  std::vector<int32_t> before, after;
};
// CORRUPT_FILE: an id is not 0 to size - 1. UNSUPPORTED: another type.
AddedAround read_post_processor(const JsonPart& file, int32_t size);

struct VocabularyLookup {
  std::function<int32_t(std::string_view name)> id;          // -1: there is no such token
  std::function<int32_t(std::string_view name)> special_id;  // of special tokens alone
  int32_t size;
};

// A key of tokenizer_config.json counts first, then special_tokens_map.json, generation_config.json
// and the post-processor of the file; last come names that are usual. The ends of a text are those
// of generation_config.json; the one that tokenizer_config.json names is the first of them. If that
// file has decoder_start_token_id, the vocabulary is of an encoder-decoder: this token is bos, and
// texts begin with the one that the post-processor adds before them.
// CORRUPT_FILE names file and key: a token that the vocabulary lacks. UNSUPPORTED: no token ends a
// text, and the post-processor is of a type that is not supported.
SpecialChoice choose_special_tokens(const JsonPart& file, std::span<const CompanionFile> companions,
                                    const VocabularyLookup& vocabulary);

}  // namespace trafo
