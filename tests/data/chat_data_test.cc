// Conversations as rows of a corpus: their forms, their labels, and files with faults.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/data/batcher.h"
#include "engine/data/text_corpus.h"
#include "engine/data/text_pairs.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/data/train_tokenizer.h"
#include "tests/support/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kChatLines =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "hi"}]}
{"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": " "}]}

{"id": 3, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]}
)";

class ChatData : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "c.jsonl") const {
    const auto path = folder_.path() / name;
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
    return {load_tsv(path, memory), load_monolingual(path, disk)};
  }
  static std::string target_of(const TextCorpus& corpus, int64_t pair) {
    PairBuffers buffers;
    return std::string(corpus.view(pair, buffers).target);
  }
  void expect_refused(const std::string& text, const std::string& part,
                      CorpusFormat format = CorpusFormat::automatic) const {
    expect_error(ErrorCode::corrupt_file, part, [&] { corpora(text, format); });
  }

  TemporaryDirectory folder_;
};

PairEncoding encoding_of(const char* source, ChatLoss loss = ChatLoss::answers) {
  PairEncoding encoding(with_chat_template(chat_tokenizer(), source, "t"));
  encoding.chat_loss = loss;
  return encoding;
}
const TokenizedCorpusOptions kChatForm{.form = SequenceForm::decoder_only};

TEST_F(ChatData, AliasesBecomeMessages) {
  const std::string expected =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})";
  struct {
    const char* line;
    CorpusFormat format;
  } const cases[] = {
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       CorpusFormat::automatic},
      {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})",
       CorpusFormat::automatic},
      {R"({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       CorpusFormat::chats},
      {R"({"prompt": "a", "completion": "b"})", CorpusFormat::chats},
      {R"({"instruction": "a", "input": "", "output": "b"})", CorpusFormat::chats},
      {R"({"instruction": "a", "output": "b", "input": null})", CorpusFormat::chats},
  };
  for (const auto& each : cases)
    for (const TextCorpus& corpus : corpora(each.line, each.format)) {
      EXPECT_TRUE(corpus.has_chats());
      EXPECT_EQ(corpus.form(), CorpusForm::monolingual);
      EXPECT_EQ(corpus.format(), CorpusFormat::json_lines);
      EXPECT_EQ(target_of(corpus, 0), expected) << each.line;
    }
  for (const TextCorpus& corpus :
       corpora(R"({"instruction": "a", "input": "i", "output": "b"})", CorpusFormat::chats))
    EXPECT_NE(target_of(corpus, 0).find(R"("a\n\ni")"), std::string::npos);
  // Without the format, Alpaca's members are a pair.
  for (const TextCorpus& corpus : corpora(R"({"instruction": "a", "output": "b"})"))
    EXPECT_EQ(corpus.form(), CorpusForm::parallel);
  for (
      const TextCorpus& corpus : corpora(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [1]}], "tools": [2], "chat_template_kwargs": {"k": 3}, "other": 4})"))
    EXPECT_EQ(
        target_of(corpus, 0),
        R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[1]}],"tools":[2],"k":3})");
}

TEST_F(ChatData, FaultsNameFileAndLine) {
  expect_refused(R"({"messages": "x"})", "c.jsonl:1: messages is no list");
  expect_refused(
      "\n"
      R"({"messages": [1]})",
      "c.jsonl:2: message 1 is no object");
  expect_refused(R"({"messages": [{"role": "user"}, {"content": "x"}]})",
                 "c.jsonl:1: message 2 has no text 'role'");
  expect_refused(R"({"messages": [{"role": "user", "content": 3}]})",
                 "c.jsonl:1: message 1: content is no text");
  expect_refused(R"({"conversations": [{"from": "martian", "value": "x"}]})",
                 "c.jsonl:1: message 1: from is 'martian', and no role is known for it");
  expect_refused(R"({"conversations": [{"from": "human"}]})", "message 1 has no text 'value'");
  expect_refused(
      R"({"conversations": [{"role": 1, "content": "x"}, {"from": "gpt", "value": "y"}]})",
      "c.jsonl:1: message 1 has no text 'role'");
  expect_refused(R"({"conversations": [{"role": "user", "content": 5}]})",
                 "c.jsonl:1: message 1: content is no text");
  expect_refused(R"({"conversations": [7]})", "c.jsonl:1: message 1 has no text 'from'");
  expect_refused(R"({"text": "x"})", "conversations are these", CorpusFormat::chats);
  expect_error(ErrorCode::invalid_argument, "no usable sentence pair",
               [&] { corpora(R"({"messages": [{"role": "user", "content": "x"}]})"); });
  const TextCorpus chats = corpora(kChatLines)[0], text = load_monolingual(write("x\n", "t.txt"));
  expect_error(ErrorCode::invalid_argument, "cannot be mixed", [&] {
    TextCorpus::mix({{chats, 1}, {text, 1}});
  });
  expect_error(ErrorCode::invalid_argument, "the corpus has conversations",
               [&] { train_tokenizer(chats, TokenizerTrainOptions()); });
  expect_error(ErrorCode::invalid_argument, "--chat-template", [&] {
    const TokenizedCorpus corpus(chats, PairEncoding(chat_tokenizer()), kChatForm);
  });
  expect_error(
      ErrorCode::invalid_argument, "c.jsonl:4: chat_template.jinja:1: the template refuses", [&] {
        const TokenizedCorpus corpus(
            chats,
            encoding_of("{% if messages|length > 2 %}{{ raise_exception('x') }}{% endif %}"
                        "{% for m in messages %}{% generation %}{{ m.content }}b{% endgeneration %}"
                        "{% endfor %}"),
            kChatForm);
      });
}

// As many bars, and a text. GCC 12 warns of the sum of the two.
std::string bars(size_t count, std::string_view text) {
  std::string both(count, '|');
  both.append(text);
  return both;
}

// The tokens of a row that the loss counts, with '|' for others.
std::string learned_text(const Tokenizer& tokenizer, const PackedBatchHost& batch, size_t begin,
                         size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const int32_t id = batch.target_out[i];
    if (batch.target_weights[i] == 0)
      text += '|';
    else
      text += id >= 258 ? tokenizer.token(id) : tokenizer.decode({&id, 1});
  }
  return text;
}

TEST_F(ChatData, AnswersAreLearned) {
  for (const TextCorpus& corpus : corpora(kChatLines)) {
    EXPECT_EQ(corpus.size(), 2);
    EXPECT_EQ(corpus.report().dropped_empty, 2);  // an empty answer and an empty line
    EXPECT_EQ(corpus.place(1).substr(corpus.place(1).size() - 9), "c.jsonl:4");
    const PairEncoding encoding = encoding_of("chatml");
    const TokenizedCorpus kept(corpus, encoding, kChatForm);
    const TextPairs made(corpus, encoding, kChatForm, {}, 2);
    EXPECT_EQ(kept.fingerprint(), made.fingerprint());
    for (const PairSource* source :
         {static_cast<const PairSource*>(&kept), static_cast<const PairSource*>(&made)}) {
      Batcher batcher(*source, {.shuffle = false});
      PackedBatchHost batch;
      batcher.next(batch);
      ASSERT_EQ(batch.sentences(), 2);
      ASSERT_EQ(batch.target_weights.size(), batch.target_out.size());
      EXPECT_EQ(batch.target_in[0], kImStart);
      EXPECT_EQ(batch.label_count, 2 + 4);
      const auto first = static_cast<size_t>(batch.target_cu_seqlens[1]);
      // <|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n
      EXPECT_EQ(learned_text(*encoding.tokenizer, batch, 0, first), bars(19, "hi<|im_end|>|"));
      EXPECT_EQ(learned_text(*encoding.tokenizer, batch, first, batch.target_out.size()),
                bars(30, "hi<|im_end|>").append(bars(21, "e<|im_end|>|")));
    }
  }
}

TEST_F(ChatData, AllTokensAreLearnedIfAsked) {
  const TextCorpus corpus = corpora(kChatLines)[0];
  const TokenizedCorpus all(corpus, encoding_of(kPlainChatMl, ChatLoss::all), kChatForm);
  const TokenizedCorpus answers(corpus, encoding_of(kPlainChatMl), kChatForm);
  const auto labels = [](const TokenizedCorpus& rows, int64_t i) {
    const PairTokens pair{.source = {}, .target = rows.target(i), .learned = rows.learned(i)};
    return pair.labels();
  };
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(labels(all, i), std::ssize(all.target(i)));
    EXPECT_LT(labels(answers, i), std::ssize(all.target(i)));
  }
  EXPECT_NE(all.fingerprint(), answers.fingerprint());
  EXPECT_NE(answers.fingerprint(),
            TokenizedCorpus(corpus, encoding_of("chatml"), kChatForm).fingerprint());
  expect_error(ErrorCode::unsupported, "subwords are not sampled", [&] {
    const TextPairs pairs(corpus, encoding_of("chatml"), kChatForm, {.target_alpha = 0.1}, 1);
  });
}

// A lane that is counted has the labels of one that is packed.
TEST_F(ChatData, CountedBatchesHaveTheLabelsOfPackedOnes) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines +=
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ")" +
        std::string(static_cast<size_t>(1 + i % 7), 'x') + "\"}]}\n";
  const TextCorpus corpus = corpora(lines)[0];
  TokenizedCorpusOptions options = kChatForm;
  options.batch_tokens = 64;
  const TokenizedCorpus rows(corpus, encoding_of("chatml"), options);
  Batcher packed(rows, {}), counted(rows, {.lanes = 2, .own = {1, 2}});
  PackedBatchHost a, b;
  for (int i = 0; i < 12; ++i) {
    packed.next(a);
    counted.next(b);
    EXPECT_EQ(a.label_count, b.label_count);
    EXPECT_EQ(b.elsewhere.has_value(), i % 2 == 0);
  }
}

}  // namespace
}  // namespace trafo
