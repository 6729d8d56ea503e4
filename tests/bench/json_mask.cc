// bench_json_mask: the time of a mask of JSON generation for each token, with vocabularies of
// 32,000 and 128,000 tokens. Texts are drawn from the allowed tokens.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <string>

#include "engine/core/strings/json.h"
#include "engine/text/json_schema/json_grammar.h"
#include "engine/text/json_schema/token_constraint.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"

namespace trafo::bench {
namespace {

constexpr const char* kSchema = R"({"type": "object", "required": ["title", "tags", "authors"],
  "properties": {"title": {"type": "string"}, "year": {"type": "integer"},
  "tags": {"type": "array", "items": {"enum": ["fiction", "history", "science"]}},
  "authors": {"type": "array", "items": {"type": "object", "required": ["name"], "properties":
    {"name": {"type": "string"}, "born": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}}})";

// Bytes, and words of syllables: with a space in front or without, some with punctuation of JSON.
Tokenizer vocabulary_of(size_t size) {
  std::mt19937 random(3);
  const auto letter = [&](std::string_view from) { return from[random() % from.size()]; };
  std::set<std::string> words;
  for (const char* text :
       {"\": ", "\": \"", "\", \"", "\"}", "\"]", "\"}]", "},", "], ", "{\"", "[\"", "[{\""})
    words.insert(text);
  while (words.size() < size - 259) {
    std::string word = random() % 2 == 0 ? " " : "";
    for (size_t i = 1 + random() % 4; i > 0; --i) {
      word += letter("bcdfghklmnprstvwz");
      word += letter("aeiou");
      if (random() % 3 == 0) word += letter("nrst");
    }
    if (random() % 50 == 0) word += letter("\",:}]\n");
    words.insert(word);
  }
  Json level, model, file, token;
  Json::Object entries;
  for (int byte = 0; byte < 256; ++byte)
    entries.push_back({to_byte_letters(std::string(1, static_cast<char>(byte))), byte});
  for (const std::string& word : words) entries.push_back({to_byte_letters(word), entries.size()});
  Json::List tokens;
  for (const char* name : {"<s>", "</s>"}) {
    token["id"] = words.size() + 256 + tokens.size();
    token["content"] = name;
    token["special"] = true;
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token[flag] = false;
    tokens.push_back(token);
  }
  level["type"] = "ByteLevel";
  level["add_prefix_space"] = false;
  level["trim_offsets"] = true;
  level["use_regex"] = true;
  model["type"] = "BPE";
  model["vocab"] = std::move(entries);
  model["merges"] = Json::List{};
  file["added_tokens"] = std::move(tokens);
  file["pre_tokenizer"] = level;
  file["decoder"] = level;
  file["model"] = std::move(model);
  return Tokenizer::from_bytes(
      file.dump(), "tokenizer.json",
      {{"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})"}});
}

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Of a text that begins with a schema that is new, and of texts after it.
void measure(const std::shared_ptr<const TokenTrie>& trie, const Tokenizer& tokenizer,
             const char* name, const char* schema) {
  std::mt19937 random(5);
  TokenConstraint constraint(json_grammar(schema), trie);
  std::vector<double> first, later;
  for (int text = 0; text < 40; ++text) {
    ByteMatcher matcher = constraint.begin();
    for (int step = 0; step < 100; ++step) {
      const auto begin = Clock::now();
      const TokenSet allowed = constraint.allowed(matcher);
      (text == 0 ? first : later).push_back(milliseconds(begin));
      std::vector<int32_t> tokens;
      for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
        if (allowed.has(id)) tokens.push_back(id);
      if (tokens.empty()) break;
      matcher.push(tokenizer.token_bytes(tokens[random() % tokens.size()]));
    }
  }
  for (auto* times : {&first, &later}) {
    std::ranges::sort(*times);
    double sum = 0;
    for (const double time : *times) sum += time;
    std::printf("  %-8s %s: mean %.3f ms, median %.3f, 99 %% %.3f, most %.3f (%zu tokens)\n", name,
                times == &first ? "first text " : "later texts",
                sum / static_cast<double>(times->size()), (*times)[times->size() / 2],
                (*times)[times->size() * 99 / 100], times->back(), times->size());
  }
}

}  // namespace
}  // namespace trafo::bench

int main() {
  using namespace trafo;
  for (const size_t size : {32000u, 128000u}) {
    const Tokenizer tokenizer = bench::vocabulary_of(size);
    const auto begin = bench::Clock::now();
    const auto trie = std::make_shared<const TokenTrie>(tokenizer);
    std::printf("%zu tokens: trie in %.1f ms\n", size, bench::milliseconds(begin));
    bench::measure(trie, tokenizer, "any JSON", "true");
    bench::measure(trie, tokenizer, "schema", bench::kSchema);
  }
}
