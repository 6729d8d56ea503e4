// Training on conversations: the loss counts the answers.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/train/run/training_data.h"
#include "tests/support/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// Questions of random letters, and one answer.
TextCorpus random_questions(int count) {
  PhiloxStream random(3, 1);
  ParallelCorpus corpus;
  corpus.form = CorpusForm::monolingual;
  corpus.has_chats = true;
  for (int i = 0; i < count; ++i) {
    std::string question;
    for (int j = 0; j < 6; ++j) question += static_cast<char>('a' + random.next_u32() % 26);
    corpus.source.emplace_back();
    corpus.target.push_back(R"({"messages":[{"role":"user","content":")" + question +
                            R"("},{"role":"assistant","content":"hi"}]})");
    corpus.line.push_back(i + 1);
  }
  corpus.report.lines = corpus.report.pairs = count;
  corpus.fingerprint = 7;
  return TextCorpus(std::move(corpus));
}

ModelConfig chat_config() {
  ModelConfig config = tiny_config(Architecture::decoder_lm, 0);
  config.vocabulary = kImEnd + 1;
  config.max_positions = 64;
  return config;
}

TrainOptions chat_options(ChatLoss loss = ChatLoss::answers) {
  TrainOptions options = quick_options();
  options.max_length = 64;
  options.batch_tokens = 256;
  options.chat_loss = loss;
  options.label_smoothing = 0;
  return options;
}

TrainingData chat_data(const TrainOptions& options, const Tokenizer& tokenizer) {
  const TextCorpus corpus = random_questions(40);
  PairEncoding encoding(tokenizer);
  encoding.chat_loss = options.chat_loss;
  return prepare_data(&corpus, nullptr, encoding, spec_of(chat_config()), options, 1);
}

TEST(ChatTraining, TheLossCountsAnswers) {
  const Tokenizer tokenizer = with_chat_template(chat_tokenizer(), "chatml", "t");
  double losses[2] = {};
  for (const ChatLoss loss : {ChatLoss::answers, ChatLoss::all}) {
    TrainOptions options = chat_options(loss);
    options.after_epochs = 60;
    const TrainingData data = chat_data(options, tokenizer);
    const auto& rows = dynamic_cast<const TokenizedCorpus&>(*data.train);
    int64_t labels = 0;
    for (int64_t i = 0; i < rows.size(); ++i) {
      const auto learned = rows.learned(i);
      labels += std::count(learned.begin(), learned.end(), 1);
    }
    Process process(data, options, std::nullopt, 1, chat_config());
    const RunSummary summary = process.run->run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::log) losses[loss == ChatLoss::all] = event.loss;
      return 0;
    });
    EXPECT_EQ(summary.state.target_tokens, 60 * labels);
    EXPECT_EQ(labels, loss == ChatLoss::all ? 40 * 27 : 40 * 2);
  }
  // The answer can be known, the letters of a question cannot.
  EXPECT_LT(losses[0], 0.5);
  EXPECT_GT(losses[1], 0.7);
}

TEST(ChatTraining, WhatConversationsCannotBeIsRefused) {
  const Tokenizer tokenizer = with_chat_template(chat_tokenizer(), "chatml", "t");
  TrainOptions options = chat_options();
  expect_error(ErrorCode::invalid_argument, "--chat-template",
               [&] { chat_data(options, chat_tokenizer()); });
  options.long_lines = LongLines::window;
  expect_error(ErrorCode::invalid_argument, "conversations, which are read whole",
               [&] { chat_data(options, tokenizer); });
  const TextCorpus corpus = random_questions(4);
  expect_error(ErrorCode::invalid_argument, "conversations train a decoder-lm", [&] {
    prepare_data(&corpus, nullptr, PairEncoding(tokenizer), spec_of(tiny_config()), chat_options(),
                 1);
  });
}

}  // namespace
}  // namespace trafo
