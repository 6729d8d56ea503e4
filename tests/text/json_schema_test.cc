// Grammars of JSON Schemas: which texts they take, which schemas are refused, and the tokens that
// may follow a text.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "engine/core/strings/json.h"
#include "engine/text/json_schema/json_grammar.h"
#include "engine/text/json_schema/token_constraint.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

bool takes(std::string_view schema, std::string_view text) {
  ByteMatcher matcher(json_grammar(schema));
  return matcher.push(text) && matcher.complete();
}

void expect_texts(std::string_view schema, const std::vector<std::string>& good,
                  const std::vector<std::string>& bad) {
  for (const std::string& text : good) EXPECT_TRUE(takes(schema, text)) << schema << ": " << text;
  for (const std::string& text : bad) EXPECT_FALSE(takes(schema, text)) << schema << ": " << text;
}

TEST(JsonSchema, AnyValue) {
  const std::vector<std::string> good{"null",
                                      "true",
                                      "false",
                                      "0",
                                      "-0",
                                      "12.5e-3",
                                      "1E+2",
                                      "1234567890123456",
                                      "\"\"",
                                      "[]",
                                      "{}",
                                      "[ ]",
                                      "[1,2]",
                                      " [1]",
                                      "[1, [2, {\"a\": null}]]",
                                      "{\"a\":1, \"a\": 2}",
                                      "{\n  \"a\": [\n    1,\n    2\n  ]\n}"};
  const std::vector<std::string> bad{"",        "nul",        "01",
                                     "1.",      ".5",         "+1",
                                     "1e",      "1e123",      "12345678901234567",
                                     "[1,]",    "[,1]",       "{a:1}",
                                     "{\"a\"}", "{\"a\" :1}", "[1]]",
                                     "\"",      "  1",        "1 ",
                                     "\t1",     "[1\n\n]",    "TRUE"};
  for (const char* schema : {"true", "{}", "{\"title\": \"any\", \"description\": \"value\"}"})
    expect_texts(schema, good, bad);
}

TEST(JsonSchema, StringsAreUtf8WithEscapesInPairs) {
  expect_texts("{\"type\": \"string\"}",
               {"\"a\"", "\"\\n\\\\\\/\\\"\"", "\"\\u00e9\"", "\"\\ud83d\\ude00\"",
                "\"\\uD83D\\uDE00\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\""},
               {"\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\"",
                "\"\n\"", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                "\"\x80\"", "\"a\"b\"", "a"});
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  expect_texts(R"({"type": "object", "required": ["b"], "additionalProperties": false,
                   "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"},
                                  "c/\"": {"type": ["null", "number"]}}})",
               {R"({"a":1,"b":true})", R"({"b": false})", R"({"b":true, "c/\"":1.5})",
                R"({"a":-7,"b":true,"c/\"":null})", "{\n\"b\": true\n}"},
               {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"a":1.5,"b":true})",
                R"({"b":true,"d":1})", R"({"b":true,})", R"({"a":1"b":true})", R"({,"b":true})"});
  expect_texts(R"({"properties": {"a": true, "b": true}})",
               {"{}", "{ }", R"({"a":[1]})", R"({"b":{}})", R"({"a":1,"b":2})"},
               {R"({"b":1,"a":2})", R"({"c":1})", "[]"});
  expect_texts(R"({"type": "object", "additionalProperties": {"type": "string"}})",
               {"{}", R"({"x":"y"})", R"({"x":"y", "z": ""})"}, {R"({"x":1})", R"({x:"y"})"});
  expect_texts(R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"x":1})"});
}

TEST(JsonSchema, ArraysConstantsAndChoices) {
  expect_texts(R"({"type": "array", "items": {"enum": ["a", "ab", 1, null, {"x": [1, 2]}]}})",
               {"[]", R"(["a","ab"])", R"([1, null])", R"([{"x":[1,2]}])"},
               {R"(["b"])", R"(["abc"])", "[2]", R"([{"x": [1,2]}])", "[11]"});
  expect_texts(R"({"const": "\u00e9\n"})", {"\"\xc3\xa9\\n\""}, {"\"\xc3\xa9\"", "1"});
  expect_texts(R"({"type": "string", "enum": ["x"]})", {"\"x\""}, {"\"y\"", "\"\""});
  expect_texts(R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]})",
               {"12", "[null, null]"}, {"1.5", "[1]", "null"});
}

TEST(JsonSchema, ReferencesMayBeRecursive) {
  const char* tree = R"({"$defs": {"a/b": {"type": "object", "required": ["v"], "properties":
      {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/a~1b"}, {"type": "null"}]},
       "children": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}}}},
      "$ref": "#/$defs/a~1b"})";
  expect_texts(tree,
               {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":null}})",
                R"({"v":1,"children":[{"v":2,"children":[]}, {"v":3}]})"},
               {R"({"v":1,"next":{"next":null}})", R"({"v":1,"children":[1]})"});
  expect_texts(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
}

// At the depth, what would need more of it is no longer taken, and an end still is.
TEST(JsonSchema, TheDepthIsBounded) {
  for (const bool any : {true, false}) {
    ByteMatcher matcher(json_grammar(
        any ? "true" : R"({"type": "object", "required": ["a"], "properties": {"a": {"anyOf":
                           [{"$ref": "#"}, {"type": "string"}]}}})"));
    const std::string open = any ? "[" : "{\"a\":", close = any ? "]" : "}";
    int32_t depth = 0;
    while (matcher.push(open)) ++depth;
    EXPECT_GT(depth, 100);
    EXPECT_LE(depth, ByteGrammar::kMostDepth);
    EXPECT_EQ(matcher.push("\"x\""), !any);
    for (; depth > 0; --depth) ASSERT_TRUE(matcher.push(close));
    EXPECT_TRUE(matcher.complete());
  }
}

TEST(JsonSchema, WhatIsNotSupportedIsRefusedByItsPath) {
  const auto refused = [](const char* schema, const char* message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { json_grammar(schema); });
  };
  refused("{", "json_schema is no JSON");
  refused("3", "json_schema: # is neither an object nor true");
  refused("false", "json_schema: # is false, which allows no value");
  refused(R"({"type": "string", "minLength": 3})", "#/minLength: this key is not supported");
  refused(R"({"properties": {"a/b": {"items": {"pattern": "x"}}}})",
          "#/properties/a~1b/items/pattern: this key is not supported");
  refused(R"({"anyOf": [true, {"oneOf": []}]})", "#/anyOf/1/oneOf: this key");
  refused(R"({"anyOf": []})", "#/anyOf is no list of schemas");
  refused(R"({"anyOf": [true], "type": "object"})", "#/type: this key");
  refused(R"({"$ref": "#/$defs/x"})", "#/$ref: there is no '#/$defs/x' in the schema");
  refused(R"({"$ref": "other.json"})", "#/$ref: only references inside the schema");
  refused(R"({"$ref": "#"})", "# refers to itself alone");
  refused(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "# refers to itself alone");
  refused(R"({"required": ["a"], "properties": {"a": {"$ref": "#"}}})",
          "# allows no value of less");
  refused(R"({"type": "float"})", "#/type: \"float\" is no type");
  refused(R"({"type": ["null", "null"]})", "#/type: \"null\" is no type, or is there twice");
  refused(R"({"type": []})", "#/type is an empty list");
  refused(R"({"type": "string", "items": true})", "#/items is for the type array");
  refused(R"({"type": "array", "properties": {}})", "#/properties is for the type object");
  refused(R"({"properties": {"a": true}, "required": ["b"]})", "\"b\" is none of the properties");
  refused(R"({"properties": [], "required": []})", "#/properties is no object");
  refused(R"({"properties": {}, "required": 1})", "#/required is no list");
  refused(R"({"properties": {"a": true}, "additionalProperties": true})",
          "#/additionalProperties: beside properties, only false");
  refused(R"({"enum": []})", "#/enum is no list of values");
  refused(R"({"enum": [1], "const": 1})", "# has enum and const");
  refused(R"({"type": "string", "enum": ["a", 1]})", "#: 1 does not have the type");
  std::string many = R"({"enum": [0)";
  for (int i = 0; i < 9000; ++i) many += ",\"" + std::to_string(i) + std::string(20, 'a') + "\"";
  refused((many + "]}").c_str(), "the schema is too large");
}

// Every token of bytes, and texts as tokens, decided by the sets and by trying each.
void expect_masks(const std::string& schema, const Tokenizer& tokenizer, uint32_t seed) {
  const auto grammar = json_grammar(schema);
  TokenConstraint constraint(grammar, std::make_shared<TokenTrie>(tokenizer));
  std::mt19937 random(seed);
  for (int text = 0; text < 5; ++text) {
    ByteMatcher matcher = constraint.begin();
    for (int step = 0; step < 60; ++step) {
      const TokenSet allowed = constraint.allowed(matcher);
      std::vector<int32_t> tokens;
      for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string bytes = tokenizer.token_bytes(id);
        ByteMatcher copy = matcher;
        ASSERT_EQ(allowed.has(id), !bytes.empty() && copy.push(bytes)) << schema << ", " << bytes;
        if (allowed.has(id)) tokens.push_back(id);
      }
      ASSERT_TRUE(matcher.complete() || !tokens.empty());
      if (tokens.empty()) break;
      const int32_t token = tokens[random() % tokens.size()];
      ASSERT_TRUE(matcher.push(tokenizer.token_bytes(token)));
    }
  }
}

TEST(JsonSchema, TokensAreThoseThatTheTextTakes) {
  for (const char* schema :
       {"true", R"({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"},
                   {"type": "integer"}, {"enum": ["ab", "abc"]}]}})",
        R"({"type": "object", "properties": {"name": {"type": "string"}, "n": {"$ref": "#"}}})"})
    expect_masks(schema, byte_vocabulary(false), 3);
}

}  // namespace
}  // namespace trafo
