// tests/golden/tokenizers/byte_bpe.json: files of tokenizers and what the library gives for them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/core/numeric/shuffle.h"
#include "engine/core/strings/json.h"
#include "engine/text/tokenizer/companion_file.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer.h"

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

// An element of added_tokens.
inline Json added_token(Json id, Json content, Json special) {
  return Json(Json::Object{{"id", std::move(id)},
                           {"content", std::move(content)},
                           {"single_word", false},
                           {"lstrip", false},
                           {"rstrip", false},
                           {"normalized", false},
                           {"special", std::move(special)}});
}

inline void expect_different_names(const Tokenizer& tokenizer) {
  std::set<std::string> names;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    names.insert(tokenizer.token(id));
    EXPECT_EQ(tokenizer.id(tokenizer.token(id)), id);
  }
  EXPECT_EQ(std::ssize(names), tokenizer.vocab_size());
}

// The ids of a text whose middle character has four tokens: none of them alone gives text.
inline TokenIds expect_whole_characters(const Tokenizer& tokenizer) {
  TokenIds ids = tokenizer.encode("a\U0001F600b");
  EXPECT_EQ(ids.size(), 6u);
  if (ids.size() != 6) return ids;
  for (size_t count = 1; count < 5; ++count)
    EXPECT_EQ(tokenizer.decode(std::span(ids).first(count)), "a");
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(5)), "a\U0001F600");
  EXPECT_EQ(tokenizer.continuation(std::span(ids).first(3), std::span(ids).subspan(3)),
            "\U0001F600b");
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(tokenizer.continues_character(ids[i]), i >= 2 && i <= 4) << i;
  return ids;
}

// Sampled segmentations give the text back and differ; with probability 1 there are `most` tokens.
inline void expect_merges_left_out(const Tokenizer& tokenizer, size_t most) {
  const auto sampler = tokenizer.sampler();
  ShuffleRng rng(1, 0);
  std::set<TokenIds> seen;
  TokenIds ids;
  for (int i = 0; i < 200; ++i) {
    sampler->sample("running the world", 0.5, rng, ids);
    EXPECT_EQ(tokenizer.decode(ids), "running the world");
    seen.insert(ids);
  }
  EXPECT_GT(seen.size(), 20u);
  sampler->sample("running the world", 0, rng, ids);
  EXPECT_EQ(ids, tokenizer.encode("running the world"));
  sampler->sample("running the world", 1, rng, ids);
  EXPECT_EQ(ids.size(), most);
}

}  // namespace trafo
