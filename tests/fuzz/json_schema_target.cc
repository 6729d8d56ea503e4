// JSON Schemas of strangers, and texts under them.
#include <optional>

#include "engine/core/status.h"
#include "engine/text/json_schema/json_grammar.h"
#include "engine/text/json_schema/token_constraint.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace trafo::fuzz {
namespace {

constexpr size_t kTextBytes = 200;  // at each of them all tokens are tried

// The tokens that the constraint allows are the bytes that the text takes; one is there unless the
// text is complete.
void check_tokens(TokenConstraint& constraint, const Tokenizer& vocabulary,
                  const ByteMatcher& matcher) {
  const TokenSet allowed = constraint.allowed(matcher);
  bool any = matcher.complete();
  for (int32_t id = 0; id < vocabulary.vocab_size(); ++id) {
    const std::string bytes = vocabulary.token_bytes(id);
    ByteMatcher after = matcher;
    expect(allowed.has(id) == (!bytes.empty() && after.push(bytes)),
           "a mask and its grammar agree");
    any = any || allowed.has(id);
  }
  expect(any, "a text that has no end");
}

}  // namespace

// A schema, and a text.
void run_json_schema(Bytes input) {
  Parts parts(input);
  const std::string_view schema = parts.part();
  std::shared_ptr<const ByteGrammar> grammar;
  if (!attempt([&] { grammar = json_grammar(schema); })) return;
  static const Tokenizer vocabulary = byte_vocabulary(false);
  static const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  TokenConstraint constraint(grammar, trie);
  ByteMatcher matcher = constraint.begin();
  for (const char byte : parts.rest().substr(0, kTextBytes)) {
    check_tokens(constraint, vocabulary, matcher);
    if (!matcher.push({&byte, 1})) break;
  }
  check_tokens(constraint, vocabulary, matcher);
}

std::vector<Seed> json_schema_seeds() {
  const auto seed = [](const char* name, std::string_view schema, std::string_view text) {
    return Seed{name, concat(schema, "\xff", text)};
  };
  return {
      seed("any", "true", R"({"a": [1.5e-3, "\ud83d\ude00é", null, true, {}], "b": -0})"),
      seed("object",
           R"({"type":"object","required":["b"],"additionalProperties":false,"properties":)"
           R"({"a/b":{"type":["integer","null"]},"b":{"enum":["x","xy",1,{"c":[]}]}}})",
           R"({"a/b":12,"b":"xy"})"),
      seed(
          "tree",
          R"({"$defs":{"t":{"properties":{"v":{"const":"é\n"},"next":{"anyOf":[{"$ref":"#/$defs/t"},)"
          R"({"type":"null"}]}},"required":["next"]}},"type":"array","items":{"$ref":"#/$defs/t"}})",
          R"([{"next":{"v":"é\n","next":null}}])"),
      seed("names", R"({"additionalProperties":{"anyOf":[{"type":"string"},{"type":"number"}]}})",
           "{\n  \"x\": \"y\",\n  \"z\": 1.0\n}"),
      seed("loop", R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},true]}},"$ref":"#/$defs/a"})",
           "1"),
      seed("endless", R"({"required":["a"],"properties":{"a":{"$ref":"#"}}})", "{"),
  };
}

}  // namespace trafo::fuzz
