// generate: prompts in, texts out, in their order; conversations and JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

using Json = nlohmann::json;

class Generate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const demo::Corpus corpus = demo::make_corpus(5, 200, 5);
    std::string text;
    for (const demo::Pair& pair : corpus.train) text += pair.english + "\n";
    write_file(folder_->file("text"), text);
    write_file(folder_->file("template"), "{% for m in messages %}{{ m.content }} {% endfor %}");
    TinyModel model;
    model.decoder_only = true;
    const Outcome trained =
        run_program(folder_->path(),
                    with_tiny_model({"train", "--train-sets", "text", "--model", "run", "--after",
                                     "20u", "--cpu-threads", "1", "--chat-template", "template"},
                                    model));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static void TearDownTestSuite() { delete folder_; }
  static Outcome run(const std::string& flags, const std::string& input = "") {
    Arguments arguments = {"generate", "--device", "cpu", "--quiet"};
    for (const std::string& word : words_of(flags)) arguments.push_back(word);
    if (flags.find("-m ") == std::string::npos) arguments = arguments + words_of("--model run");
    return run_program(folder_->path(), arguments, input);
  }
  static std::vector<std::string> generated(const std::string& flags, const std::string& input) {
    const Outcome outcome = run(flags, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return lines_of(outcome.out);
  }

  inline static TemporaryFolder* folder_ = nullptr;
};

constexpr const char* kPrompts = "The dog\nA\nThe cat sees the\nIt\n";

TEST_F(Generate, TextsComeInTheOrderOfTheirPrompts) {
  const auto together = generated("--max-length 8 --seed 3", kPrompts);
  EXPECT_EQ(together.size(), 4u);
  EXPECT_EQ(generated("--max-length 8 --seed 3 --parallel 1", kPrompts), together);
  EXPECT_NE(generated("--max-length 8 --seed 4", kPrompts), together);
  const auto one = generated("--max-length 8 -p A", "");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0], generated("--max-length 8", kPrompts)[1]);
}

TEST_F(Generate, JsonTellsEverything) {
  const auto lines = generated("--json --samples 2 --max-length 5 --log-probs 3", kPrompts);
  ASSERT_EQ(lines.size(), 8u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line["prompt"], i / 2);
    EXPECT_EQ(line["sample"], i % 2);
    EXPECT_TRUE(line["finish"] == "length" || line["finish"] == "end");
    EXPECT_EQ(line["tokens"].size(), line["generated_tokens"]);
    EXPECT_EQ(line["log_probabilities"].size(), line["tokens"].size());
    for (const Json& token : line["log_probabilities"]) {
      EXPECT_LT(token["log_probability"], 0);
      EXPECT_EQ(token["alternatives"].size(), 3u);
    }
  }
}

TEST_F(Generate, StopsAndTakesIds) {
  const Json whole = Json::parse(generated("--json --max-length 12 -p The", "")[0]);
  const std::string text = whole["text"];
  ASSERT_GE(text.size(), 3u);
  const std::string stop = text.substr(text.size() - 1);
  const Json stopped =
      Json::parse(generated("--json --max-length 12 -p The --stop " + stop, "")[0]);
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["finish"], "stop");
  const std::string token = whole["tokens"][0].dump();
  EXPECT_EQ(Json::parse(generated("--json -p The --stop-tokens " + token, "")[0])["finish"],
            "stop");
  const auto ids = generated("--ids --max-length 4", "5 6 7\n8\n");
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0].find_first_not_of("0123456789 "), std::string::npos);
}

TEST_F(Generate, WritesValuesOfASchema) {
  TinyModel model;
  model.decoder_only = true;
  model.vocabulary = 0;
  const Outcome trained =
      run_program(folder_->path(),
                  with_tiny_model({"train", "--train-sets", "text", "--model", "bytes", "--after",
                                   "5u", "--cpu-threads", "1", "--vocab-kind", "byte"},
                                  model));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  write_file(folder_->file("schema.json"),
             "{\"type\": \"object\", \"required\": [\"a\"],\n"
             " \"properties\": {\"a\": {\"enum\": [1, true]}}}\n");
  const Json value = Json::parse(generated("--json-schema schema.json -p The -m bytes", "")[0]);
  EXPECT_TRUE(value == Json({{"a", 1}}) || value == Json({{"a", true}})) << value;
  for (const std::string& line : generated("--any-json --json --samples 4 -p The -m bytes", "")) {
    const Json answer = Json::parse(line);
    if (answer["finish"] != "end") continue;
    EXPECT_TRUE(Json::accept(answer["text"].get<std::string>())) << line;
  }
  write_file(folder_->file("schema.json"), "{\"type\": \"string\", \"format\": \"date\"}");
  expect_refused(run("--json-schema schema.json -p The"),
                 "error: schema.json: --json-schema: #/format: this key");
  expect_refused(run("--json-schema schema.json --any-json -p The"), "--any-json: --json-schema");
  expect_refused(run("--json-schema missing.json -p The"), "missing.json");
}

// The model is its own draft, so that every proposed token is accepted.
TEST_F(Generate, ADraftModelChangesNoText) {
  for (const std::string flags : {"--max-length 8", "--max-length 8 --seed 3 --samples 2"}) {
    const auto expected = generated(flags, kPrompts);
    EXPECT_EQ(generated(flags + " --draft-model run --draft-tokens 3", kPrompts), expected);
  }
  const Json line = Json::parse(generated("--json --max-length 8 -p The --draft-model run", "")[0]);
  EXPECT_GT(line["drafted_tokens"], 0);
  EXPECT_EQ(line["accepted_tokens"], line["drafted_tokens"]);
  expect_refused(run("--draft-tokens 3 -p The"), "--draft-tokens requires --draft-model");
  expect_refused(run("--draft-model missing -p The"), "missing: no such file");
  TinyModel model;
  model.decoder_only = true;
  model.vocabulary = 0;
  const Outcome trained =
      run_program(folder_->path(),
                  with_tiny_model({"train", "--train-sets", "text", "--model", "other", "--after",
                                   "1u", "--cpu-threads", "1", "--vocab-kind", "byte"},
                                  model));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  expect_refused(run("--draft-model other -p The"), "is another vocabulary than run/");
}

TEST_F(Generate, AnswersConversations) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "The dog"}]})";
  const Json answer = Json::parse(generated("--chat --json --max-length 6", chat + "\n")[0]);
  EXPECT_EQ(answer["message"]["role"], "assistant");
  EXPECT_LE(answer["generated_tokens"], 6);
  EXPECT_FALSE(answer["message"]["content"].get<std::string>().empty());
  const Outcome wrong = run("--chat --max-length 6", chat + "\n{}\n");
  expect_refused(wrong, "standard input:2: a conversation is an object with messages");
  EXPECT_EQ(lines_of(wrong.out).size(), 1u);
}

TEST_F(Generate, SaysWhatIsWrong) {
  expect_refused(run("--chat --ids"), "--chat: conversations are text");
  expect_refused(run("--logit-bias 5"), "--logit-bias: wants TOKEN=NUMBER");
  expect_refused(run("--log-probs 2", "A\n"), "--log-probs: only --json writes them");
  expect_refused(run("--presence-penalty 3", "A\n"), "--presence-penalty");
  expect_refused(run("--banned-tokens 99999", "A\n"), "--banned-tokens has token 99999");
  std::string longest;
  for (int i = 0; i < 3000; ++i) longest += "dog ";
  expect_refused(run("", longest + "\n"), "standard input:1: prompt 1 has");
}

}  // namespace
}  // namespace translate_train::testing
