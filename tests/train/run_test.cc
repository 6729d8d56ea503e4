// The run level: limits, events, validation, early stopping, damaged and foreign run directories.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "engine/models/model_io.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class RunTest : public ::testing::Test {
 protected:
  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
  TemporaryDirectory directory_;
};

TEST_F(RunTest, EpochsAreWholePassesAndLimitsHold) {
  options_.gradient_accumulation = 4;
  options_.after_epochs = 3;
  Process process(data_, options_);
  int64_t epochs = 0;
  process.run->run([&](const TrainEvent& event) {
    if (event.kind == TrainEventKind::epoch) {
      EXPECT_EQ(event.epoch, ++epochs);
      EXPECT_EQ(event.epoch_fraction, 1);
      EXPECT_EQ(event.target_tokens, epochs * target_tokens(data_));
    }
    return 0;
  });
  EXPECT_EQ(epochs, 3);
  EXPECT_EQ(process.run->state().position, (BatcherState{options_.seed, 3, 0}));

  options_.after_epochs = 1;
  Process one(data_, options_);
  EXPECT_EQ(one.run->run().reason, StopReason::limit);
  EXPECT_EQ(one.run->state().position.epoch, 1);

  options_.after_epochs = 0;
  options_.after_tokens = 500;
  Process by_tokens(data_, options_);
  EXPECT_EQ(by_tokens.run->run().reason, StopReason::limit);
  EXPECT_GE(by_tokens.run->state().target_tokens, 500);
  EXPECT_LT(by_tokens.run->state().target_tokens, 500 + 4 * 40);
}

TEST_F(RunTest, EventsComeWhenTheyAreDue) {
  options_.after_updates = 20;
  options_.log_first = 2;
  std::map<TrainEventKind, std::vector<int64_t>> seen;
  int64_t tokens_before = 0;
  Process process(data_, options_, directory_.path());
  process.run->run([&](const TrainEvent& event) {
    seen[event.kind].push_back(event.update);
    if (event.kind == TrainEventKind::log) {
      // The tokens since the last log, in a part of the time.
      EXPECT_GE(event.target_tokens_per_second * event.elapsed_seconds,
                static_cast<double>(event.target_tokens - tokens_before));
      tokens_before = event.target_tokens;
      EXPECT_GT(event.loss, 0);
      EXPECT_DOUBLE_EQ(event.perplexity, std::exp(event.nll));
      EXPECT_GT(event.grad_norm, 0);
      EXPECT_GT(event.target_tokens_per_second, 0);
      EXPECT_GT(event.memory_bytes, 0);
      EXPECT_GT(event.learning_rate, 0);
      EXPECT_GE(event.eta_seconds, 0);
    }
    return 0;
  });
  using Updates = std::vector<int64_t>;
  EXPECT_EQ(seen[TrainEventKind::started], Updates{0});
  EXPECT_EQ(seen[TrainEventKind::log], (Updates{1, 2, 4, 8, 12, 16, 20}));
  EXPECT_EQ(seen[TrainEventKind::validating], (Updates{7, 14, 20}));
  EXPECT_EQ(seen[TrainEventKind::validated], (Updates{7, 14, 20}));
  EXPECT_EQ(seen[TrainEventKind::finished], Updates{20});
  const Updates& saved = seen[TrainEventKind::saved];
  for (const int64_t update : {5, 10, 15, 20})
    EXPECT_TRUE(std::count(saved.begin(), saved.end(), update)) << update;
  EXPECT_EQ(slurp(directory_ / "latest"), "20\n");
  // A finished run is finished.
  process.run.reset();
  Process again(data_, options_, directory_.path());
  EXPECT_EQ(again.run->run().reason, StopReason::limit);
  EXPECT_EQ(again.run->state().trainer.update, 20);
}

TEST_F(RunTest, TheTimeOfASaveCounts) {
  options_.after_updates = 5;
  Process process(data_, options_, directory_.path());
  int saved = 0;
  process.run->run([&](const TrainEvent& event) {
    if (event.kind != TrainEventKind::saved) return 0;
    ++saved;
    const std::string file = slurp(fs::path(event.path) / kStateFile);
    EXPECT_GT(event.elapsed_seconds, decode_state(file, "state").state.train_seconds);
    return 0;
  });
  EXPECT_GT(saved, 0);
}

TEST_F(RunTest, TheCallbackStopsTheRunAndItIsSaved) {
  const auto stop_at_8 = [](const TrainEvent& event) { return event.update == 8 ? 1 : 0; };
  Process process(data_, options_, directory_.path());
  EXPECT_EQ(process.run->run(stop_at_8).reason, StopReason::callback);
  EXPECT_EQ(process.run->state().trainer.update, 8);
  EXPECT_EQ(slurp(directory_ / "latest"), "8\n");
}

TEST_F(RunTest, AThrowingCallbackLeavesTheRunUsable) {
  const Reference reference = uncut(data_, options_, 12);
  options_.after_updates = 12;
  Process process(data_, options_, directory_.path());
  int throws = 0;
  const TrainCallback callback = [&](const TrainEvent&) -> int {
    if (++throws % 2 == 1) throw std::runtime_error("from the callback");
    return 0;
  };
  bool done = false;
  for (int i = 0; i < 60 && !done; ++i) {
    try {
      done = process.run->run(callback).reason == StopReason::limit;
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_TRUE(done);
  EXPECT_GT(throws, 5);
  EXPECT_TRUE(process.weights() == reference.weights);
  EXPECT_EQ(timeless(process.run->state()), reference.state);
}

// No weight changes at this rate, so that no validation is better than the first.
TEST_F(RunTest, EarlyStoppingAndTheBestSurviveResuming) {
  options_.learning_rate = 1e-300;
  options_.valid_freq = {2, PeriodUnit::updates};
  options_.early_stopping = 4;
  options_.keep_last = 1;
  int64_t stopped_at = 0;
  {
    Process process(data_, options_);
    EXPECT_EQ(process.run->run().reason, StopReason::early_stopping);
    stopped_at = process.run->state().trainer.update;
    EXPECT_EQ(stopped_at, 10);  // the best at 2, then four that are no better
  }
  for (const int64_t step : {3, 4}) {
    const TemporaryDirectory directory;
    StopReason reason = StopReason::none;
    for (int i = 0; i < 20 && reason != StopReason::early_stopping; ++i) {
      Process process(data_, options_, directory.path());
      reason = process.run->run({}, nullptr, step).reason;
      process.run->save();
      if (reason != StopReason::early_stopping) continue;
      EXPECT_EQ(process.run->state().trainer.update, stopped_at);
      ASSERT_TRUE(process.run->state().best[0].second.has_value());
      EXPECT_EQ(process.run->state().best[0].second->update, 2);
    }
    EXPECT_EQ(reason, StopReason::early_stopping);
    // The best is kept beside the last.
    EXPECT_EQ(slurp(directory / "best-ce-mean-words"), "2\n");
    EXPECT_TRUE(fs::exists(directory / "ckpt/2"));
    EXPECT_TRUE(fs::exists(directory / "ckpt/10"));
    EXPECT_FALSE(fs::exists(directory / "ckpt/5"));
  }
}

// As a process leaves it that is killed between a save and what follows it.
TEST_F(RunTest, AResumedRunMendsThePointersAndDeletesOldCheckpoints) {
  options_.valid_freq = {2, PeriodUnit::updates};
  options_.keep_last = 1;
  options_.after_updates = 4;
  const TemporaryDirectory directory;
  int64_t best = 0;
  {
    Process process(data_, options_, directory.path());
    process.run->run();
    ASSERT_TRUE(process.run->state().best[0].second.has_value());
    best = process.run->state().best[0].second->update;
  }
  ASSERT_EQ(slurp(directory / "best-ce-mean-words"), std::to_string(best) + "\n");
  std::ofstream(directory / "best-ce-mean-words") << "1\n";
  std::ofstream(directory / "latest") << "1\n";
  fs::copy(directory / "ckpt/4", directory / "ckpt/1", fs::copy_options::recursive);
  { Process process(data_, options_, directory.path()); }
  EXPECT_EQ(slurp(directory / "best-ce-mean-words"), std::to_string(best) + "\n");
  EXPECT_EQ(slurp(directory / "latest"), "4\n");
  EXPECT_FALSE(fs::exists(directory / "ckpt/1"));
  EXPECT_TRUE(fs::exists(directory / "ckpt/4"));
  // A pointer that holds no update is written anew as well.
  std::ofstream(directory / "latest") << "none\n";
  { Process process(data_, options_, directory.path()); }
  EXPECT_EQ(slurp(directory / "latest"), "4\n");
}

// Otherwise a run whose limit is raised would stop earlier than one that had it from the start.
TEST_F(RunTest, TheValidationAtTheEndDoesNotCountForEarlyStopping) {
  options_.learning_rate = 1e-300;  // no validation is better than the first
  options_.valid_freq = {6, PeriodUnit::updates};
  options_.early_stopping = 3;
  int64_t stopped_at = 0;
  {
    Process process(data_, options_);
    EXPECT_EQ(process.run->run().reason, StopReason::early_stopping);
    stopped_at = process.run->state().trainer.update;
    EXPECT_EQ(stopped_at, 24);
  }
  const TemporaryDirectory directory;
  StopReason reason = StopReason::limit;
  for (int64_t limit = 8; reason == StopReason::limit; limit += 3) {
    ASSERT_LT(limit, 60);
    options_.after_updates = limit;
    Process process(data_, options_, directory.path());
    int64_t validated = -1;
    reason = process.run
                 ->run([&](const TrainEvent& event) {
                   if (event.kind == TrainEventKind::validated) validated = event.update;
                   return 0;
                 })
                 .reason;
    const int64_t update = process.run->state().trainer.update;
    EXPECT_EQ(validated, update);
    EXPECT_EQ(process.run->state().stalled, std::max<int64_t>(0, update / 6 - 1)) << update;
    EXPECT_TRUE(reason != StopReason::early_stopping || update == stopped_at) << update;
  }
}

// Each file fits the manifest, but the state belongs to another update.
TEST_F(RunTest, AStateOfAnotherUpdateIsRefused) {
  const TemporaryDirectory directory;
  options_.after_updates = 10;
  options_.keep_last = 9;
  Process(data_, options_, directory.path()).run->run();
  CheckpointDirectory checkpoints(directory.path());
  std::vector<CheckpointFile> files;
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    const std::string text = slurp(directory / "ckpt" / (name == kStateFile ? "5" : "10") / name);
    files.push_back({name, [text](ByteSink& sink) { sink.write(text); }});
  }
  checkpoints.save(10, files);
  checkpoints.verify(10);
  const Error error = error_of([&] { Process(data_, options_, directory.path()); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
  EXPECT_TRUE(mentions(error, "holds the state of update 5")) << error.what();
}

TEST_F(RunTest, AnInterruptedValidationIsDoneAfterResuming) {
  options_.log_freq = {7, PeriodUnit::updates};
  options_.keep_best = false;
  const Reference reference = uncut(data_, options_, 20);
  options_.after_updates = 20;
  for (const bool same_process : {true, false}) {
    const TemporaryDirectory directory;
    auto process = std::make_unique<Process>(data_, options_, directory.path());
    CancelToken cancel;
    std::vector<int64_t> validated;
    // The display of an update comes before its validation.
    const TrainCallback callback = [&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::log && event.update == 14) cancel.cancel();
      if (event.kind == TrainEventKind::validated) validated.push_back(event.update);
      return 0;
    };
    EXPECT_EQ(process->run->run(callback, &cancel).reason, StopReason::cancelled);
    EXPECT_EQ(validated, std::vector<int64_t>{7});
    EXPECT_TRUE(process->run->state().validation_due);
    if (!same_process) {
      process.reset();
      process = std::make_unique<Process>(data_, options_, directory.path(), 1, tiny_config(), 99);
      EXPECT_TRUE(process->run->state().validation_due);
    }
    cancel.reset();
    EXPECT_EQ(process->run->run(callback, nullptr).reason, StopReason::limit);
    EXPECT_EQ(validated, (std::vector<int64_t>{7, 14, 20}));
    EXPECT_TRUE(process->weights() == reference.weights);
    EXPECT_EQ(timeless(process->run->state()), reference.state);
  }
}

// Poisons the weights after update 6 for `count` updates.
struct Poison {
  Process& process;
  int count;
  std::vector<std::byte> good = {};
  int skipped = 0;

  int operator()(const TrainEvent& event) {
    ParameterStore& parameters = process.model->parameters();
    const bool start =
        event.kind == TrainEventKind::log && event.update == 6 && good.empty() && count > 0;
    if (start) {
      good = bytes_of(*process.context, parameters.value(0));
      const std::vector<float> bad(good.size() / sizeof(float), NAN);
      parameters.set_value(*process.context, 0, bad.data(), good.size());
    }
    if (event.kind == TrainEventKind::skipped) {
      EXPECT_TRUE(std::isnan(event.loss));
      EXPECT_EQ(event.update, 6);
      if (++skipped == count) parameters.set_value(*process.context, 0, good.data(), good.size());
    }
    return 0;
  }
};

TEST_F(RunTest, SkippedUpdatesAreReportedAndResumedBehind) {
  options_.log_freq = {1, PeriodUnit::updates};
  options_.save_freq = {2, PeriodUnit::updates};
  options_.after_updates = 12;
  Process straight(data_, options_);
  Poison poison{straight, 3};
  straight.run->run(std::ref(poison));
  EXPECT_EQ(poison.skipped, 3);
  EXPECT_EQ(straight.run->state().trainer.skipped, 3);

  {
    Process process(data_, options_, directory_.path());
    Poison same{process, 3};
    CancelToken cancel;
    process.run->run(
        [&](const TrainEvent& event) {
          same(event);
          // At update 6, which has a checkpoint from before the skipped updates.
          if (same.skipped == 3) cancel.cancel();
          return 0;
        },
        &cancel);
    EXPECT_EQ(process.run->state().trainer.update, 6);
  }
  Process process(data_, options_, directory_.path(), 1, tiny_config(), 99);
  EXPECT_EQ(process.run->state().trainer.skipped_in_a_row, 3);
  process.run->run();
  EXPECT_TRUE(process.weights() == straight.weights());
  EXPECT_EQ(process.run->state().trainer, straight.run->state().trainer);
  EXPECT_EQ(process.run->state().position, straight.run->state().position);
}

TEST_F(RunTest, ADivergedRunIsAnErrorAndKeepsItsLastGoodCheckpoint) {
  options_.log_freq = {1, PeriodUnit::updates};
  options_.after_updates = 12;
  options_.max_non_finite_steps = 4;
  Process process(data_, options_, directory_.path());
  Poison poison{process, 100};
  const Error error = error_of([&] { process.run->run(std::ref(poison)); });
  EXPECT_EQ(error.code(), ErrorCode::non_finite);
  EXPECT_EQ(poison.skipped, 3);
  EXPECT_EQ(slurp(directory_ / "latest"), "5\n");
}

TEST_F(RunTest, OldCheckpointsGoAndTheBestStays) {
  options_.after_updates = 40;
  options_.keep_last = 2;
  options_.valid_freq = {};
  Process process(data_, options_, directory_.path());
  process.run->run();
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(directory_ / "ckpt"))
    left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"35", "40"}));
}

TEST_F(RunTest, WhatDoesNotFitTheCheckpointIsNamed) {
  options_.after_updates = 5;
  Process(data_, options_, directory_.path()).run->run();
  const auto refused = [&](const TrainingData& data, const TrainOptions& options,
                           const ModelConfig& config, const char* text) {
    const Error error = error_of([&] { Process(data, options, directory_.path(), 1, config); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  ModelConfig wider = tiny_config();
  wider.width = 32;
  refused(data_, options_, wider, "width is 16 in the checkpoint, 32 here");
  const Architecture lm = Architecture::decoder_lm;
  refused(copy_data(lm), options_, tiny_config(lm), "architecture is \"encoder-decoder\"");
  TrainOptions other = options_;
  other.seed = 43;
  refused(data_, other, tiny_config(), "seed was 42 and is 43 now");
  other = options_;
  other.learning_rate = 1;
  refused(data_, other, tiny_config(), "learning_rate was 0.003");
  TrainingData larger = data_;
  larger.train = copy_corpus(Architecture::encoder_decoder, 61, 1);
  refused(larger, options_, tiny_config(), "the training corpus has changed");
  // Settings that may change do not keep a run from resuming.
  other = options_;
  other.after_updates = 8;
  other.valid_freq = {3, PeriodUnit::updates};
  Process process(data_, other, directory_.path());
  EXPECT_TRUE(process.run->resumed());
  EXPECT_EQ(process.run->run().state.trainer.update, 8);
}

TEST_F(RunTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  options_.after_updates = 20;
  const Reference reference = uncut(data_, options_, 20);
  Process(data_, options_, directory_.path()).run->run();
  int damaged = 0;
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) {
    const fs::path path = directory_ / "ckpt/20" / file;
    const std::string whole = slurp(path);
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
    for (const std::string& bad : {whole.substr(0, whole.size() / 2), std::string(), flipped}) {
      spill(path, bad);
      Process process(data_, options_, directory_.path(), 1, tiny_config(), 99);
      EXPECT_TRUE(process.run->resumed());
      EXPECT_EQ(process.run->state().trainer.update, 15);
      std::string message;
      process.run->run([&](const TrainEvent& event) {
        if (event.kind == TrainEventKind::checkpoint_refused) message = event.message;
        return 0;
      });
      EXPECT_NE(message.find(file), std::string::npos) << message;
      // Checkpoint 20 is made anew, the same as before.
      EXPECT_TRUE(process.weights() == reference.weights);
      EXPECT_TRUE(std::string(file) == kStateFile || slurp(path) == whole);
      ++damaged;
    }
  }
  EXPECT_EQ(damaged, 9);
}

TEST_F(RunTest, WithoutAWholeCheckpointItIsAnErrorAndNothingIsOverwritten) {
  options_.after_updates = 5;
  Process(data_, options_, directory_.path()).run->run();
  spill(directory_ / "ckpt/5" / kModelFile, "not a model");
  const Error error = error_of([&] { Process(data_, options_, directory_.path()); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
  EXPECT_TRUE(mentions(error, "none is whole")) << error.what();
  EXPECT_EQ(slurp(directory_ / "ckpt/5" / kModelFile), "not a model");
}

TEST_F(RunTest, TwoRunsDoNotShareADirectory) {
  Process process(data_, options_, directory_.path());
  const Error error = error_of([&] { Process(data_, options_, directory_.path()); });
  EXPECT_EQ(error.code(), ErrorCode::io);
}

TEST_F(RunTest, AFailedSaveIsAnErrorAndTheRunGoesOn) {
  options_.keep_last = 100;
  const Reference reference = uncut(data_, options_, 12);
  options_.after_updates = 12;
  Process process(data_, options_, directory_.path());
  EXPECT_EQ(process.run->run({}, nullptr, 4).reason, StopReason::paused);
  // A file where the directory of checkpoints should be: nobody, not even root, can write there.
  spill(directory_ / "ckpt", "in the way");
  const Error error = error_of([&] { process.run->run(); });
  EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  EXPECT_EQ(process.run->state().trainer.update, 5);
  fs::remove(directory_ / "ckpt");
  EXPECT_EQ(process.run->run().reason, StopReason::limit);
  EXPECT_TRUE(process.weights() == reference.weights);
  EXPECT_EQ(timeless(process.run->state()), reference.state);
  EXPECT_TRUE(fs::exists(directory_ / "ckpt/5"));
}

TEST_F(RunTest, ADirectoryThatCannotBeMadeIsAnError) {
  spill(directory_ / "file", "x");
  EXPECT_EQ(error_of([&] { Process(data_, options_, directory_ / "file"); }).code(), ErrorCode::io);
  EXPECT_EQ(error_of([&] { Process(data_, options_, directory_ / "file/run"); }).code(),
            ErrorCode::io);
  if (geteuid() == 0) return;  // root may write anywhere
  fs::create_directory(directory_ / "locked");
  fs::permissions(directory_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(error_of([&] { Process(data_, options_, directory_ / "locked"); }).code(),
            ErrorCode::io);
}

TEST_F(RunTest, TextIsPreparedTranslatedAndMeasured) {
  std::vector<std::string> source, target;
  const char* words[] = {"ein", "hund", "katze", "haus", "sieht", "rot", "und", "baum"};
  PhiloxStream random(3, 1);
  for (int i = 0; i < 80; ++i) {
    std::string text;
    for (uint32_t j = 0; j < 2 + random.next_u32() % 4; ++j)
      text.append(words[random.next_u32() % 8]).append(" ");
    source.push_back(text);
    target.push_back(text);
  }
  const ParallelCorpus train = make_parallel(source, target);
  const ParallelCorpus valid =
      make_parallel({source.begin(), source.begin() + 10}, {target.begin(), target.begin() + 10});
  TokenizerTrainOptions vocabulary;
  vocabulary.vocab_size = 60;
  vocabulary.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(source, vocabulary);
  options_.valid_metrics = {"bleu", "chrf", "ce-mean-words"};
  options_.after_updates = 14;
  for (const Architecture architecture :
       {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    ModelConfig config = tiny_config(architecture);
    config.vocabulary = tokenizer.vocab_size();
    config.max_positions = 64;
    const TemporaryDirectory directory;
    const TrainingData data = prepare_data(train, &valid, tokenizer, spec_of(config), options_, 1);
    Process process(data, options_, directory.path(), 1, config);
    int validations = 0;
    process.run->run([&](const TrainEvent& event) {
      if (event.kind != TrainEventKind::validated) return 0;
      ++validations;
      EXPECT_EQ(event.metrics.size(), 3u);
      EXPECT_EQ(event.metrics[0].name, "bleu");
      const std::string hypotheses = slurp(event.path);
      EXPECT_EQ(std::count(hypotheses.begin(), hypotheses.end(), '\n'), 10);
      return 0;
    });
    EXPECT_EQ(validations, 2);
    EXPECT_TRUE(fs::exists(directory / "best-bleu"));
    const auto reader = SafetensorsReader::open(directory / "ckpt/14" / kModelFile);
    EXPECT_EQ(reader.metadata().at(kTokenizerKey).size(), 8u);
    // Another vocabulary of the same size is another run.
    TrainingData other = data;
    vocabulary.model = TokenizerModel::bpe;
    vocabulary.vocab_size = tokenizer.vocab_size();
    other.tokenizer = Tokenizer::train(source, vocabulary);
    vocabulary.model = TokenizerModel::unigram;
    if (other.tokenizer->vocab_size() != config.vocabulary) continue;
    process.run.reset();
    const Error error = error_of([&] { Process(other, options_, directory.path(), 1, config); });
    EXPECT_TRUE(mentions(error, "the vocabulary has changed")) << error.what();
  }
}

}  // namespace
}  // namespace trafo
