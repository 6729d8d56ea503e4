// The special tokens around the sources of a run.
#include "engine/models/model_io.h"
#include "engine/train/run/training_data.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo::testing {
namespace {

TEST(TrainingFrame, OptionsGiveTheModelAnother) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
  TokenizerTrainOptions vocabulary;
  vocabulary.vocab_size = 60;
  vocabulary.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(lines), vocabulary);
  ModelConfig config = tiny_config(Architecture::decoder_lm);
  config.vocabulary = tokenizer.vocab_size();
  const auto model = make_model(*context, config, 1);
  TrainOptions options;
  const PairEncoding usual = training_encoding(*model, tokenizer, options);
  EXPECT_EQ(usual.tokens, tokenizer.tokens());
  EXPECT_EQ(usual.vocabulary, tokenizer.vocab_size());
  ASSERT_TRUE(usual.tokenizer.has_value());
  EXPECT_FALSE(model->tokens().has_value());

  options.begin_source = FrameToken::on;
  options.end_source = FrameToken::off;
  EXPECT_EQ(training_encoding(*model, tokenizer, options).tokens.frame, (TextFrame{true, false}));
  ASSERT_TRUE(model->tokens().has_value());
  EXPECT_EQ(model->tokens()->frame, (TextFrame{true, false}));
  // The model keeps it, with and without a tokenizer.
  EXPECT_EQ(training_encoding(*model, tokenizer, {}).tokens.frame, (TextFrame{true, false}));
  EXPECT_EQ(training_encoding(*model, {}, {}).tokens.frame, (TextFrame{true, false}));
  options.begin_source = FrameToken::off;
  EXPECT_EQ(training_encoding(*model, tokenizer, options).tokens.frame, (TextFrame{false, false}));

  // A vocabulary without bos, and an encoder.
  TokenizerTrainOptions bytes;
  bytes.kind = "byte";
  bytes.vocab_size = 259;
  const Tokenizer byte = Tokenizer::train(std::span<const std::string>(lines), bytes);
  config.vocabulary = byte.vocab_size();
  const auto other = make_model(*context, config, 1);
  options.begin_source = FrameToken::on;
  EXPECT_TRUE(mentions(error_of([&] { training_encoding(*other, byte, options); }),
                       "begin_source is on, which only a decoder-lm"));
  ModelConfig pairs = tiny_config(Architecture::encoder_decoder);
  pairs.vocabulary = tokenizer.vocab_size();
  const auto encoder = make_model(*context, pairs, 1);
  for (const bool begin : {true, false}) {
    TrainOptions wrong;
    (begin ? wrong.begin_source : wrong.end_source) = begin ? FrameToken::on : FrameToken::off;
    EXPECT_TRUE(mentions(error_of([&] { training_encoding(*encoder, tokenizer, wrong); }),
                         begin ? "begin_source" : "end_source"));
    EXPECT_FALSE(encoder->tokens().has_value());
  }
}

// A program that gives the batches makes them in the frame of the model, of which the run has no
// corpus as a witness.
TEST(TrainingFrame, ARunWithGivenBatchesResumesInItsOwn) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const ModelConfig config = tiny_config(Architecture::decoder_lm);
  const std::vector<PackedBatchHost> batches = copy_batches(Architecture::decoder_lm, 4);
  const TemporaryDirectory directory;
  TrainOptions options = quick_options();
  struct Given {
    std::unique_ptr<Model> model;
    std::unique_ptr<TrainingRun> run;
  };
  const auto make_run = [&](FrameToken begin, FrameToken end) {
    options.begin_source = begin;
    options.end_source = end;
    Given given{make_model(*context, config, 1), nullptr};
    VocabularyTokens tokens;
    tokens.special = kTokens;
    given.model->set_tokens(tokens);
    const PairEncoding encoding = training_encoding(*given.model, {}, options);
    TrainingData data =
        prepare_data(nullptr, nullptr, encoding, given.model->spec(), options, 1, nullptr);
    given.run = std::make_unique<TrainingRun>(*context, *given.model, std::move(data), options,
                                              directory.path(), nullptr);
    given.run->set_batches([&batches](int64_t index, PackedBatchHost& batch) {
      batch = batches[static_cast<size_t>(index) % batches.size()];
    });
    return given;
  };
  const auto refusal = [&](FrameToken begin, FrameToken end) {
    return error_of([&] { make_run(begin, end); });
  };
  {
    const Given first = make_run(FrameToken::on, FrameToken::off);
    first.run->run({}, nullptr, 2);
    first.run->save();
  }
  EXPECT_TRUE(mentions(refusal(FrameToken::by_model, FrameToken::off),
                       "begin_source was on and is off now"));
  EXPECT_TRUE(
      mentions(refusal(FrameToken::on, FrameToken::on), "end_source was off and is on now"));
  options.phase = 2;  // which may have other data
  EXPECT_EQ(make_run(FrameToken::off, FrameToken::on).run->state().trainer.update, 2);
  options.phase = 1;
  const Given second = make_run(FrameToken::on, FrameToken::off);
  EXPECT_EQ(second.run->state().trainer.update, 2);
  second.run->run({}, nullptr, 1);
  EXPECT_EQ(second.run->state().trainer.update, 3);
}

}  // namespace
}  // namespace trafo::testing
