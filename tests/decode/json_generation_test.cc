// Generation under JSON Schemas: texts of random models parse and follow their schemas, whatever
// the vocabulary, and do not depend on the batch, on samples or on the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/core/strings/utf8.h"
#include "engine/decode/generator.h"
#include "engine/text/json_schema/json_grammar.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using Value = nlohmann::json;

constexpr const char* kRecord = R"({"type": "object", "additionalProperties": false,
  "required": ["name", "tags", "kind"], "properties": {
    "name": {"type": "string"}, "age": {"type": ["integer", "null"]}, "score": {"type": "number"},
    "tags": {"type": "array", "items": {"enum": ["red", "green", 3, "re\"d"]}},
    "kind": {"anyOf": [{"const": true}, {"$ref": "#/$defs/pair"}]}},
  "$defs": {"pair": {"type": "object", "properties": {"left": {"type": "boolean"},
                     "right": {"anyOf": [{"$ref": "#/$defs/pair"}, {"type": "null"}]}}}}})";

bool is_pair(const Value& value) {
  if (!value.is_object()) return false;
  for (const auto& [key, member] : value.items()) {
    if (key == "left" && member.is_boolean()) continue;
    if (key == "right" && (member.is_null() || is_pair(member))) continue;
    return false;
  }
  return true;
}

bool is_record(const Value& value) {
  if (!value.is_object()) return false;
  for (const char* key : {"name", "tags", "kind"})
    if (!value.contains(key)) return false;
  const Value allowed = {"red", "green", 3, "re\"d"};
  for (const auto& [key, member] : value.items()) {
    const bool good =
        key == "name"    ? member.is_string()
        : key == "age"   ? member.is_number_integer() || member.is_null()
        : key == "score" ? member.is_number()
        : key == "tags"
            ? member.is_array() &&
                  std::ranges::all_of(member,
                                      [&](const Value& tag) {
                                        return std::ranges::find(allowed, tag) != allowed.end();
                                      })
        : key == "kind" ? member == true || is_pair(member)
                        : false;
    if (!good) return false;
  }
  return true;
}

std::vector<std::string> json_lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i)
    lines.push_back(
        "{\"name\": \"n" + std::to_string(i * 37) + "\", \"age\": " + std::to_string(i) +
        ", \"tags\": [\"red\", \"green\"], \"kind\": {\"left\": true, \"right\": null}}");
  return lines;
}

// Of bytes, byte-level BPE, and SentencePiece with byte tokens.
std::vector<Tokenizer> vocabularies() {
  const std::vector<std::string> lines = json_lines();
  TokenizerTrainOptions options;
  options.vocab_size = 400;
  options.hard_vocab_limit = false;
  options.kind = "byte-bpe";
  const Tokenizer bpe = Tokenizer::train(std::span<const std::string>(lines), options);
  options.kind = "sentencepiece";
  options.model = TokenizerModel::bpe;
  options.byte_fallback = true;
  return {byte_vocabulary(false), bpe,
          Tokenizer::train(std::span<const std::string>(lines), options)};
}

struct JsonText {
  std::string text;
  FinishReason finish = FinishReason::end;
};

class JsonGeneration : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.translate.decode.sampling.on = true;
    options_.translate.decode.max_length = 300;
    options_.json_schema = kRecord;
  }
  Generator generator(const Tokenizer& tokenizer, int64_t kept = 0) {
    ModelConfig config = decode_config(Architecture::decoder_lm, tokenizer.vocab_size());
    config.max_positions = 400;
    model_ = random_model(*context_, config, 7, DType::f32);
    return {*context_, *model_, tokenizer, nullptr, kept};
  }
  static std::map<int64_t, JsonText> finish(Generator& generator) {
    std::map<int64_t, JsonText> all;
    for (GenerationPiece piece; (piece = generator.next()).sequence >= 0;) {
      EXPECT_TRUE(is_valid_utf8(piece.text));
      all[piece.sequence].text += piece.text;
      all[piece.sequence].finish = piece.finish;
    }
    return all;
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  GenerationOptions options_;
};

TEST_F(JsonGeneration, AThousandTextsFollowTheirSchema) {
  int64_t ended = 0, all = 0;
  const auto expect_all = [&](Generator& one, const char* schema, bool (*follows)(const Value&)) {
    options_.json_schema = schema;
    options_.translate.decode.n_best = 60;
    const std::vector<std::string_view> prompts{"{", "Answer:", "x"};
    one.start(prompts, options_);
    for (const auto& [number, result] : finish(one)) {
      ++all;
      ByteMatcher matcher(json_grammar(schema));
      EXPECT_TRUE(matcher.push(result.text)) << result.text;
      EXPECT_EQ(matcher.complete(),
                result.finish == FinishReason::end ||
                    (result.finish == FinishReason::length && Value::accept(result.text)));
      if (result.finish != FinishReason::end) continue;
      ++ended;
      const Value value = Value::parse(result.text, nullptr, false);
      EXPECT_FALSE(value.is_discarded()) << result.text;
      EXPECT_TRUE(follows(value)) << result.text;
    }
    options_.translate.decode.sampling.seed += 1;
  };
  for (const Tokenizer& tokenizer : vocabularies()) {
    Generator one = generator(tokenizer);
    for (int round = 0; round < 2; ++round) {
      expect_all(one, kRecord, is_record);
      expect_all(one, "true", [](const Value&) { return true; });
    }
  }
  EXPECT_EQ(all, 2160);
  EXPECT_GE(ended, 1000);
}

TEST_F(JsonGeneration, DoesNotDependOnTheBatchAndTheCache) {
  const std::vector<std::string_view> prompts{"One", "{\"name\"", "A third prompt"};
  options_.translate.decode.n_best = 3;
  options_.translate.decode.max_length = 60;
  for (const Tokenizer& tokenizer : vocabularies()) {
    Generator together = generator(tokenizer);
    together.start(prompts, options_);
    const auto expected = finish(together);
    Generator cached(*context_, *model_, tokenizer, nullptr, 8);
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < prompts.size(); ++i) {
        GenerationOptions options = options_;
        options.translate.decode.sampling.first_line = static_cast<int64_t>(i);
        const int64_t first = cached.start({&prompts[i], 1}, options);
        for (const auto& [number, result] : finish(cached))
          EXPECT_EQ(result.text, expected.at(static_cast<int64_t>(3 * i) + number - first).text);
      }
  }
}

// Beside sequences without a schema; stop strings cut; the rules apply before the mask.
TEST_F(JsonGeneration, GoesWithOtherSettings) {
  const Tokenizer tokenizer = vocabularies()[1];
  Generator one = generator(tokenizer, 4);
  const std::vector<std::string_view> prompt{"One"};
  GenerationOptions free = options_;
  free.json_schema.clear();
  free.translate.decode.max_length = 10;
  options_.translate.decode.sampling.on = false;
  options_.translate.decode.repetition_penalty = 1.3;
  options_.json_schema = R"({"enum": ["abc", "abd"]})";
  one.start(prompt, free);
  const int64_t number = one.start(prompt, options_);
  const std::string text = finish(one).at(number).text;
  EXPECT_TRUE(text == "\"abc\"" || text == "\"abd\"" || text == " \"abc\"" || text == " \"abd\"");
  options_.stop = {"b"};
  one.start(prompt, options_);
  const auto stopped = finish(one);
  EXPECT_EQ(stopped.begin()->second.text, text.substr(0, text.find('b')));
  EXPECT_EQ(stopped.begin()->second.finish, FinishReason::stop);
}

TEST_F(JsonGeneration, ErrorsNameTheOptionAndAddNothing) {
  Generator one = generator(byte_vocabulary(false));
  const std::vector<std::string_view> prompt{"One"};
  options_.json_schema = R"({"type": "string", "pattern": "a"})";
  expect_error(ErrorCode::invalid_argument, "json_schema: #/pattern: this key",
               [&] { one.start(prompt, options_); });
  EXPECT_EQ(one.next().sequence, -1);
  model_->set_tokens(VocabularyTokens{});
  options_.json_schema = "true";
  expect_error(ErrorCode::invalid_argument, "json_schema needs a tokenizer", [&] {
    Generator without(*context_, *model_, std::nullopt, nullptr, 0);
    without.start_ids({{4}}, options_);
  });
}

}  // namespace
}  // namespace trafo::testing
