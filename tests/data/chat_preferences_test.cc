// Preference pairs of conversations: the forms of their records, their tokens, and files with
// faults.
#include <fstream>

#include "engine/data/text_corpus.h"
#include "engine/data/text_pairs.h"
#include "engine/data/tokenized_corpus.h"
#include "tests/support/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

namespace trafo {
namespace {

using namespace testing;

class ChatPreferences : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const auto path = folder_ / "p.jsonl";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // In memory and on disk.
  std::vector<TextCorpus> corpora(const std::string& text,
                                  CorpusFormat format = CorpusFormat::automatic) const {
    const std::string path = write(text);
    LoadOptions memory, disk;
    memory.format = disk.format = format;
    disk.memory_bytes = 0;
    return {load_preferences({&path, 1}, memory), load_preferences({&path, 1}, disk)};
  }
  void expect_parts(const std::string& text, const std::vector<std::string>& parts,
                    CorpusFormat format = CorpusFormat::automatic) const {
    for (const TextCorpus& corpus : corpora(text, format)) {
      EXPECT_TRUE(corpus.has_chats());
      EXPECT_EQ(corpus.form(), CorpusForm::preferences);
      PairBuffers buffers;
      const PairView pair = corpus.view(0, buffers);
      EXPECT_EQ(pair.source, parts[0]) << text;
      EXPECT_EQ(pair.target, parts[1]) << text;
      EXPECT_EQ(pair.rejected, parts[2]) << text;
    }
  }
  void expect_refused(const std::string& text, const std::string& part) const {
    expect_error(ErrorCode::corrupt_file, part, [&] { corpora(text); });
  }

  TemporaryDirectory folder_;
};

constexpr const char* kUser = R"({"role":"user","content":"q"})";
constexpr const char* kGood = R"({"role":"assistant","content":"hi"})";
constexpr const char* kBad = R"({"role":"assistant","content":"no"})";

std::string list(std::initializer_list<const char*> messages) {
  std::string all;
  for (const char* message : messages) all += (all.empty() ? "[" : ",") + std::string(message);
  return all + "]";
}
std::string record(const std::string& chosen, const std::string& rejected,
                   const std::string& more = "") {
  return R"({"chosen":)" + chosen + R"(,"rejected":)" + rejected + more + "}\n";
}

TEST_F(ChatPreferences, APromptIsGivenOrIsWhatBothAnswersBeginWith) {
  const std::vector<std::string> parts = {concat(R"({"messages":)", list({kUser}), "}"),
                                          list({kGood}), list({kBad})};
  expect_parts(record(list({kGood}), list({kBad}), concat(R"(,"prompt":)", list({kUser}))), parts);
  expect_parts(record(list({kUser, kGood}), list({kUser, kBad})), parts);
  // A prompt that is a text beside lists, and members in another order.
  expect_parts(record(list({R"({"content":"q","role":"user"})", kGood}), list({kUser, kBad}),
                      R"(,"prompt":"q")"),
               {R"({"messages":[{"content":"q","role":"user"}]})", parts[1], parts[2]});
  // Texts, where the caller says that they are conversations.
  expect_parts(R"({"prompt":"q","chosen":"hi","rejected":"no"})", parts, CorpusFormat::chats);
  // The last message of the shorter list stays, as in trl.
  expect_parts(record(list({kUser, kGood}), list({kUser, kGood, kUser, kBad})),
               {parts[0], parts[1], list({kGood, kUser, kBad})});
  expect_parts(
      record(list({kGood}), list({kBad}),
             concat(R"(,"prompt":)", list({kUser}), R"(,"tools":[1],"other":2)",
                    R"(,"chat_template_kwargs":{"k":3})")),
      {concat(R"({"messages":)", list({kUser}), R"(,"tools":[1],"k":3})"), parts[1], parts[2]});
}

TEST_F(ChatPreferences, AnswersThatSayNothingAreDropped) {
  const std::string silent = R"([{"role":"assistant","content":" "}])";
  const std::string prompt = concat(R"(,"prompt":)", list({kUser}));
  for (const TextCorpus& corpus : corpora(
           record(silent, list({kBad}), prompt) + record(list({kGood}), "[]", prompt) + "\n" +
           record(list({kUser, kGood}), list({kUser, kBad})) + record("[]", list({kUser, kBad})))) {
    EXPECT_EQ(corpus.size(), 1);
    EXPECT_EQ(corpus.report().dropped_empty, 4);
    EXPECT_EQ(corpus.line(0), 3);
  }
}

TEST_F(ChatPreferences, FaultsNameFileAndLine) {
  const std::string good = record(list({kUser, kGood}), list({kUser, kBad}));
  expect_refused(good + record(list({kGood}), list({kBad})),
                 "p.jsonl:2: chosen and rejected begin with different messages");
  expect_refused(good + record(list({kGood}), list({kBad}), R"(,"prompt":[])"),
                 "p.jsonl:2: prompt has no messages");
  expect_refused(good + record(list({kGood}), list({"{}"}), concat(R"(,"prompt":)", list({kUser}))),
                 "p.jsonl:2: rejected: message 1 has no text 'role'");
  expect_refused(good + record(list({kUser, kGood}), "7"), "p.jsonl:2: rejected is not a text");
  expect_refused(good + R"({"chosen":[]})", "p.jsonl:2: there is no rejected");
  expect_refused(good + record(list({kGood}), list({kBad}), R"(,"prompt":7)"),
                 "p.jsonl:2: prompt is not a text");
  // Texts are another kind of file.
  expect_refused(R"({"prompt":"a","chosen":"b","rejected":"c"})"
                 "\n" +
                     good,
                 "p.jsonl:2: there is no prompt");
  expect_error(ErrorCode::invalid_argument, "the records have messages; preferences are",
               [&] { corpora(R"({"messages":[]})"); });
  const TextCorpus chats = corpora(good)[0];
  expect_error(ErrorCode::invalid_argument, "cannot be mixed", [&] {
    TextCorpus::mix({{chats, 1}, {make_preferences({"a"}, {"b"}, {"c"}), 1}});
  });
  expect_error(ErrorCode::invalid_argument,
               "p.jsonl:1: chat_template.jinja:1: the template refuses", [&] {
                 const Tokenizer tokenizer =
                     with_chat_template(chat_tokenizer(), "{{ raise_exception('x') }}", "t");
                 const TokenizedCorpus corpus(chats, PairEncoding(tokenizer),
                                              {.form = SequenceForm::decoder_only});
               });
}

// The tokens of a row of pair 0, in memory and made as needed: the prompt, and both answers.
std::vector<std::string> row_of(const TextCorpus& corpus, const char* source) {
  const PairEncoding encoding(with_chat_template(chat_tokenizer(), source, "t"));
  const TokenizedCorpusOptions options{.form = SequenceForm::decoder_only};
  const TokenizedCorpus kept(corpus, encoding, options);
  const TextPairs made(corpus, encoding, options, {}, 2);
  EXPECT_EQ(kept.fingerprint(), made.fingerprint());
  PairBlock block;
  const uint32_t first = 0;
  made.read({&first, 1}, 0, block, nullptr);
  EXPECT_TRUE(std::ranges::equal(block.tokens[0].source, kept.source(0)));
  EXPECT_TRUE(std::ranges::equal(block.tokens[0].target, kept.target(0)));
  EXPECT_TRUE(std::ranges::equal(block.tokens[0].rejected, kept.rejected(0)));
  EXPECT_TRUE(kept.learned(0).empty());  // all of an answer is learned
  std::vector<std::string> texts;
  for (const auto ids : {kept.source(0), kept.target(0), kept.rejected(0)}) {
    texts.emplace_back();
    for (const int32_t id : ids)
      texts.back() +=
          id >= 258 ? encoding.tokenizer->token(id) : encoding.tokenizer->decode({&id, 1});
  }
  return texts;
}

TEST_F(ChatPreferences, TheTemplateWritesPromptAndAnswers) {
  const std::string text = record(list({kUser, kGood}), list({kUser, kBad}));
  for (const TextCorpus& corpus : corpora(text)) {
    EXPECT_EQ(row_of(corpus, kPlainChatMl),
              (std::vector<std::string>{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
                                        "hi<|im_end|>\n", "no<|im_end|>\n"}));
    // "hi" is one token: the h that the prompt ends with is in the answers.
    EXPECT_EQ(row_of(corpus,
                     "{% for m in messages %}{{ m.role + '\\n' }}{% if m.role == 'assistant' %}"
                     "{{ 'h' + m.content[1:] }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
                     "{% if add_generation_prompt %}{{ 'assistant\\nh' }}{% endif %}"),
              (std::vector<std::string>{"user\nqassistant\n", "hi", "ho"}));
    expect_error(ErrorCode::invalid_argument, "p.jsonl:1: the template writes the first token",
                 [&] {
                   row_of(corpus,
                          "{{ messages|length }}{% for m in messages %}{{ m.content }}"
                          "{% endfor %}");
                 });
  }
}

}  // namespace
}  // namespace trafo
