// Chat templates of tokenizers: conversations as text, and the tokens of answers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/chat_template/chat_template.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "tests/support/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using namespace testing;

Json chat_json(const std::string& text) {
  return parse_json(text, "test", "conversation");
}
const char* const kTwoTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "b"}, {"role": "assistant", "content": "\n hi"}]})";

Tokenizer byte_tokenizer() {
  TokenizerTrainOptions options;
  options.kind = "byte";
  return Tokenizer::train(std::vector<std::string>(), options);
}

// The text of the tokens that are marked, with '|' where one is not.
std::string marked_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                        const std::vector<uint8_t>& marked) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (marked[i] == 0)
      text += text.empty() || text.back() == '|' ? "" : "|";
    else
      text += ids[i] >= 258 ? tokenizer.token(ids[i]) : tokenizer.decode({&ids[i], 1});
  }
  return text;
}

std::string answers_of(const Tokenizer& tokenizer, const std::string& conversation) {
  const RenderedChat chat = ChatTemplate::of(tokenizer)->render_answers(chat_json(conversation));
  std::vector<int32_t> ids;
  std::vector<uint8_t> marked;
  tokenizer.encode_marked(chat.text, chat.answers, ids, marked);
  EXPECT_EQ(ids, tokenizer.parsing_special().encode(chat.text));
  EXPECT_EQ(ids.size(), marked.size());
  return marked_text(tokenizer, ids, marked);
}

TEST(ChatTemplate, IsTheFileOrAKeyOfTheConfiguration) {
  EXPECT_FALSE(ChatTemplate::of(chat_tokenizer()));
  const auto source = [](std::vector<CompanionFile> files) {
    return ChatTemplate::of(chat_tokenizer().with_companion(std::move(files[0])))->source();
  };
  EXPECT_EQ(source({{"tokenizer_config.json", R"({"chat_template": "x{{ 1 }}"})"}}), "x{{ 1 }}");
  EXPECT_EQ(source({{"tokenizer_config.json",
                     R"({"chat_template": [{"name": "tool_use", "template": "t"},
                         {"name": "default", "template": "d"}]})"}}),
            "d");
  EXPECT_EQ(source({{"chat_template.jinja", "file"}}), "file");
  const Tokenizer both = chat_tokenizer()
                             .with_companion({"tokenizer_config.json", R"({"chat_template": "k"})"})
                             .with_companion({"chat_template.jinja", "file"});
  EXPECT_EQ(ChatTemplate::of(both)->source(), "file");
  EXPECT_EQ(both.companions().size(), 2u);
}

// Configurations list every added token, so they are larger than other JSON files may be.
TEST(ChatTemplate, OfALargeConfiguration) {
  const std::string config =
      R"({"chat_template": "x", "names": ")" + std::string(3 << 19, 'a') + "\"}";
  EXPECT_EQ(ChatTemplate::of(chat_tokenizer().with_companion({"tokenizer_config.json", config}))
                ->source(),
            "x");
}

TEST(ChatTemplate, HasSpecialTokensAndMembersAsVariables) {
  const ChatTemplate chat(
      "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ tools is none }}{{ more }}"
      "{{ add_generation_prompt }}{{ messages | length }}{{ strftime_now is defined }}",
      "t", chat_tokenizer());
  const std::string one = R"("messages": [{"role": "user"}])";
  EXPECT_EQ(chat.render(chat_json("{" + one + "}")).text, "<s><|im_end|>TrueFalse1False");
  EXPECT_EQ(chat.render(chat_json(R"({"tools": [1], "more": "m", "strftime_now": "2026-11-29", )" +
                                  one + "}"),
                        {.add_generation_prompt = true})
                .text,
            "<s><|im_end|>FalsemTrue1True");
  // As rows of datasets have them.
  EXPECT_EQ(
      chat.render(chat_json(
                      R"({"more": "m", "chat_template_kwargs": {"more": "of the row", "tools": [],
                          "strftime_now": "2026-11-29"}, )" +
                      one + "}"))
          .text,
      "<s><|im_end|>Falseof the rowFalse1True");
  expect_error(ErrorCode::invalid_argument, "chat_template_kwargs is no object",
               [&] { chat.render(chat_json(R"({"chat_template_kwargs": 1, )" + one + "}")); });
  expect_error(ErrorCode::invalid_argument, "strftime_now is no day",
               [&] { chat.render(chat_json(R"({"strftime_now": "today", )" + one + "}")); });
  for (const char* wrong : {"{}", "[]", R"({"messages": []})", R"({"messages": "x"})",
                            R"({"messages": [1]})", R"({"messages": [{"role": 1}]})"})
    expect_error(ErrorCode::invalid_argument, "message", [&] { chat.render(chat_json(wrong)); });
}

TEST(ChatTemplate, AnswersAreFoundWithAndWithoutGenerationBlocks) {
  const Tokenizer tokenizer = chat_tokenizer();
  const Tokenizer plain = with_chat_template(tokenizer, kPlainChatMl, "t");
  EXPECT_EQ(answers_of(plain, kTwoTurns), "hi<|im_end|>\n|\n\n hi<|im_end|>\n");
  // The built-in template does not learn the line feed after an answer. The token of two line feeds
  // is at the border of the last answer and belongs to it.
  EXPECT_EQ(answers_of(with_chat_template(tokenizer, "chatml", "t"), kTwoTurns),
            "hi<|im_end|>|\n\n hi<|im_end|>|");
  const RenderedChat text = ChatTemplate::of(plain)->render(chat_json(kTwoTurns));
  EXPECT_EQ(ChatTemplate::of(with_chat_template(tokenizer, "chatml", "t"))
                ->render(chat_json(kTwoTurns), {.add_generation_prompt = true})
                .text,
            text.text + "<|im_start|>assistant\n");
}

TEST(ChatTemplate, RefusesPrefixesThatChange) {
  const Tokenizer tokenizer =
      with_chat_template(chat_tokenizer(),
                         "{% for m in messages %}{{ m.role }}{% if loop.last %}!{% endif %}{{ "
                         "m.content }}{% endfor %}",
                         "t");
  expect_error(ErrorCode::invalid_argument, "the template writes message 2",
               [&] { answers_of(tokenizer, kTwoTurns); });
  expect_error(ErrorCode::invalid_argument, "no token <|im_start|>",
               [] { with_chat_template(byte_tokenizer(), "chatml", "t"); });
  expect_error(ErrorCode::unsupported, "given:2: the tag 'include' is not supported",
               [&] { with_chat_template(tokenizer, "\n{% include 'x' %}", "given"); });
}

// The file of chat_tokenizer() with other text at one place.
Tokenizer edited_tokenizer(const std::string& from, const std::string& to) {
  std::string file(chat_tokenizer().serialized());
  const size_t at = file.find(from);
  EXPECT_NE(at, std::string::npos) << file.substr(0, 400);
  return Tokenizer::from_bytes(file.replace(at, from.size(), to), "tokenizer.json");
}

TEST(ChatTemplate, ABuiltInTemplateTakesTheFirstTokenToo) {
  const Tokenizer tokenizer =
      edited_tokenizer("\"content\":\"<|im_start|>\"", "\"content\":\"<start>\"");
  expect_error(ErrorCode::invalid_argument, "has no token <|im_start|>",
               [&] { with_chat_template(tokenizer, "chatml", "t"); });
  std::string file(tokenizer.serialized());
  const std::string first = "\"" + to_byte_letters(std::string(1, '\0')) + "\":0";
  ASSERT_NE(file.find(first), std::string::npos);
  file.replace(file.find(first), first.size(), "\"<|im_start|>\":0");
  const Tokenizer renamed = Tokenizer::from_bytes(file, "tokenizer.json");
  EXPECT_EQ(renamed.id("<|im_start|>"), 0);
  EXPECT_TRUE(ChatTemplate::of(with_chat_template(renamed, "chatml", "t")));
}

// The normal form of the text in front is a byte shorter.
TEST(EncodeMarked, PartsOfATextWithANormalForm) {
  const Tokenizer tokenizer =
      edited_tokenizer("\"added_tokens\"", "\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\"");
  const std::string text = "e\u0301hi\n\n";
  const TextSpan part{3, 5};
  std::vector<int32_t> ids;
  std::vector<uint8_t> marked;
  tokenizer.encode_marked(text, {&part, 1}, ids, marked);
  ASSERT_EQ(tokenizer.decode(ids), "\u00e9hi\n\n");
  EXPECT_EQ(marked, (std::vector<uint8_t>{0, 0, 1, 0}));
}

TEST(ChatTemplate, IsKeptBesideAVocabulary) {
  const TemporaryDirectory folder;
  const Tokenizer byte = with_chat_template(byte_tokenizer(), "{{ messages }}", "t");
  ASSERT_EQ(byte.companions().size(), 1u);
  const Tokenizer again = Tokenizer::from_bytes(byte.serialized(), "vocab.byte", byte.companions());
  EXPECT_EQ(ChatTemplate::of(again)->source(), "{{ messages }}");
}

// Every token against the bytes that it has.
TEST(EncodeMarked, MarksTokensWithABytesOfAPart) {
  const Tokenizer tokenizer = chat_tokenizer();
  const std::string text = "<s>hi\n\n ü<|im_end|>hi";
  std::vector<int32_t> ids;
  std::vector<uint8_t> marked;
  const std::vector<std::string> tokens = {"<s>",  "hi",   "\n\n",       " ",
                                           "\xc3", "\xbc", "<|im_end|>", "hi"};
  for (size_t begin = 0; begin <= text.size(); ++begin)
    for (size_t end = begin; end <= text.size(); ++end) {
      // Parts are of whole characters.
      if ((begin < text.size() && (text[begin] & 0xC0) == 0x80) ||
          (end < text.size() && (text[end] & 0xC0) == 0x80))
        continue;
      const TextSpan part{begin, end};
      tokenizer.encode_marked(text, {&part, 1}, ids, marked);
      ASSERT_EQ(marked.size(), tokens.size());
      size_t at = 0;
      for (size_t i = 0; i < tokens.size(); at += tokens[i++].size()) {
        const bool expected = begin < end && at < end && at + tokens[i].size() > begin;
        EXPECT_EQ(marked[i], expected) << begin << " to " << end << ": token " << i;
      }
    }
}

}  // namespace
}  // namespace trafo
