// A byte-level BPE vocabulary with the tokens of ChatML.
#pragma once

#include <string>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::testing {

inline constexpr int32_t kImStart = 259, kImEnd = 260, kTwoLines = 256, kHi = 257;

// Tokens 0 to 255 are bytes, 256 is two line feeds, 257 "hi", 258 "<s>".
inline Tokenizer chat_tokenizer(std::vector<CompanionFile> companions = {}) {
  Json vocabulary, added;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[to_byte_letters(std::string(1, static_cast<char>(byte)))] = byte;
  const std::string line = to_byte_letters("\n");
  vocabulary[line + line] = kTwoLines;
  vocabulary["hi"] = kHi;
  Json::List tokens;
  for (const char* name : {"<s>", "<|im_start|>", "<|im_end|>"}) {
    Json token;
    token["id"] = 258 + tokens.size();
    token["content"] = name;
    token["special"] = true;
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token[flag] = false;
    tokens.push_back(std::move(token));
  }
  Json level, model, file;
  level["type"] = "ByteLevel";
  level["add_prefix_space"] = false;
  level["trim_offsets"] = true;
  level["use_regex"] = true;
  model["type"] = "BPE";
  model["vocab"] = std::move(vocabulary);
  model["merges"] = Json::List{line + " " + line, "h i"};
  file["added_tokens"] = std::move(tokens);
  file["pre_tokenizer"] = level;
  file["decoder"] = level;
  file["model"] = std::move(model);
  companions.push_back(
      {"tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"<|im_end|>\"}"});
  return Tokenizer::from_bytes(file.dump(), "tokenizer.json", std::move(companions));
}

// ChatML as Qwen2.5 writes it, without generation blocks.
inline constexpr const char* kPlainChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace trafo::testing
