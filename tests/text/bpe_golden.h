// tests/golden/tokenizers/byte_bpe.json: files of tokenizers and what the library gives for them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/tokenizer/companion_file.h"

namespace trafo {

using TokenIds = std::vector<int32_t>;

// Written by tests/golden/tokenizers/make_byte_bpe_golden.py with the `tokenizers` library.
inline const Json& bpe_golden() {
  static const Json json = [] {
    std::ifstream file(TRAFO_GOLDEN_BYTE_BPE);
    std::stringstream text;
    text << file.rdbuf();
    return parse_json(text.str(), "test", TRAFO_GOLDEN_BYTE_BPE);
  }();
  return json;
}

// The file of a case.
inline Json golden_file(const Json& golden_case) {
  Json file = *bpe_golden().find("base");
  for (const Json::Member& change : *golden_case.find("changes")->as<Json::Object>())
    file[change.key] = change.value;
  return file;
}

// With another value at a key; "model: vocab" is the key inside another.
inline void change_file(Json& file, const std::string& path, const Json& value) {
  const size_t colon = path.find(": ");
  if (colon == std::string::npos)
    file[path] = value;
  else
    file[path.substr(0, colon)][path.substr(colon + 2)] = value;
}

inline std::vector<CompanionFile> bpe_end(const char* name = "<|end|>") {
  return {{"tokenizer_config.json", std::string("{\"eos_token\": \"") + name + "\"}"}};
}

}  // namespace trafo
