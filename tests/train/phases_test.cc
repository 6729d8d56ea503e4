// Settings that a resumed run may change: its validation, with a phase its data and rates; the
// model that it starts from.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/models/model_io.h"
#include "engine/train/checkpoint/run_models.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class PhasesTest : public ::testing::Test {
 protected:
  PhasesTest() {
    options_.after_updates = 10;
    options_.valid_freq = {2, PeriodUnit::updates};
  }
  void expect_refused(const TrainingData& data, const TrainOptions& options,
                      const std::string& text) {
    const Error error = error_of([&] { Process(data, options, run_); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
  }
  // Other pairs, and other validation text.
  static TrainingData other_corpus() {
    TrainingData data = copy_data();
    data.train = copy_corpus(Architecture::encoder_decoder, 45, 9);
    return data;
  }
  static TrainingData other_validation() {
    TrainingData data = copy_data();
    data.valid = copy_corpus(Architecture::encoder_decoder, 20, 11);
    return data;
  }
  TrainOptions second_phase() const {
    TrainOptions options = options_;
    options.phase = 2;
    options.after_updates = 6;
    options.learning_rate = 1e-4;
    options.warmup = 3;
    options.schedule = ScheduleKind::linear;
    options.schedule_updates = 6;
    return options;
  }
  static std::vector<TrainEvent> events_of(TrainingRun& run, TrainEventKind kind,
                                           int64_t updates = 0) {
    std::vector<TrainEvent> events;
    run.run(
        [&](const TrainEvent& event) {
          if (event.kind == kind) events.push_back(event);
          return 0;
        },
        nullptr, updates);
    return events;
  }
  std::optional<BestMetric> best_of(const Process& process) const {
    return process.run->state().best.front().second;
  }

  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
  TemporaryDirectory directory_;
  fs::path run_ = directory_ / "run";
};

TEST_F(PhasesTest, AnotherValidationTextIsRefusedOrScoresStartAnew) {
  {
    Process process(data_, options_, run_);
    process.run->run();
    ASSERT_TRUE(best_of(process).has_value());
  }
  options_.after_updates = 12;
  expect_refused(other_validation(), options_, "the checksum of the validation text was \"");
  expect_refused(other_validation(), options_,
                 "restart_validation would start best scores and patience anew");
  TrainOptions other_beam = options_;
  other_beam.valid_beam = 4;
  expect_refused(data_, other_beam, "valid_beam was 1 and is 4 now");
  TrainOptions other_normalize = options_;
  other_normalize.valid_normalize = 0.5;
  expect_refused(data_, other_normalize, "valid_normalize was 1");
  // Without validation for a while, the old text's scores stay.
  TrainingData none = data_;
  none.valid = nullptr;
  Process(none, options_, run_).run->run();
  expect_refused(other_validation(), options_, "the checksum of the validation text was \"");
  const int64_t best_update = best_of(Process(data_, options_, run_)).value().update;

  options_.after_updates = 20;
  options_.restart_validation = true;
  {
    Process process(other_validation(), options_, run_);
    EXPECT_FALSE(best_of(process).has_value());
    EXPECT_EQ(process.run->state().stalled, 0);
    EXPECT_FALSE(fs::exists(run_ / "best-ce-mean-words"));
    EXPECT_TRUE(fs::exists(run_ / "ckpt" / std::to_string(best_update)));
    process.run->run();
    ASSERT_TRUE(best_of(process).has_value());
    EXPECT_GT(best_of(process)->update, 12);
  }
  options_.restart_validation = false;
  Process(other_validation(), options_, run_);
  expect_refused(data_, options_, "the checksum of the validation text was \"");
}

// Of the same tokens: a vocabulary may have one token for several texts.
TEST_F(PhasesTest, AnotherReferenceOfTheSameTokensIsAnotherText) {
  data_.valid_sources = {"a b", "b a"};
  data_.valid_references = {"a b", "b a"};
  Process(data_, options_, run_).run->run();
  options_.after_updates = 12;
  TrainingData other = data_;
  other.valid_references.back() = "b  a";
  expect_refused(other, options_, "the checksum of the validation text was \"");
  Process(data_, options_, run_);
}

TEST_F(PhasesTest, ARunThatHasNotValidatedMayHaveAnyText) {
  options_.valid_freq = {0, PeriodUnit::updates};
  Process process(data_, options_, run_);
  process.run->run({}, nullptr, 4);
  process.run->save();
  process.run.reset();
  Process(other_validation(), options_, run_);
}

TEST_F(PhasesTest, AnotherMetricOrRuleOfStoppingCountsAnew) {
  const std::vector<std::string> lines{"ein hund sieht", "eine katze", "das haus ist rot",
                                       "hund und katze", "ein baum",   "rot und gut"};
  const ParallelCorpus text = make_parallel(lines, lines);
  TokenizerTrainOptions vocabulary;
  vocabulary.vocab_size = 40;
  vocabulary.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(lines, vocabulary);
  ModelConfig config = tiny_config();
  config.vocabulary = tokenizer.vocab_size();
  config.max_positions = 64;
  options_.learning_rate = 1e-300;  // no validation is better than the first
  options_.after_updates = 0;
  const TrainingData data = prepare_data(text, &text, tokenizer, spec_of(config), options_, 1);
  {
    Process process(data, options_, run_, 1, config);
    process.run->run({}, nullptr, 8);
    EXPECT_EQ(process.run->state().stalled, 3);  // at 4, 6 and 8
    process.run->save();
  }
  const auto stalled = [&](std::vector<std::string> metrics, StoppingMetrics on) {
    TrainOptions options = options_;
    options.valid_metrics = std::move(metrics);
    options.early_stopping_on = on;
    return Process(data, options, run_, 1, config).run->state().stalled;
  };
  EXPECT_EQ(stalled({"ce-mean-words", "chrf"}, StoppingMetrics::first), 3);
  EXPECT_EQ(stalled({"ce-mean-words", "chrf"}, StoppingMetrics::any), 3);
  EXPECT_EQ(stalled({"ce-mean-words", "chrf"}, StoppingMetrics::all), 0);
  EXPECT_EQ(stalled({"ter", "ce-mean-words"}, StoppingMetrics::first), 0);
  EXPECT_EQ(stalled({"ter", "ce-mean-words"}, StoppingMetrics::any), 3);
}

TEST_F(PhasesTest, APhaseHasItsOwnDataRatesAndLimits) {
  int64_t best = 0;
  {
    Process process(data_, options_, run_);
    process.run->run();
    ASSERT_TRUE(best_of(process).has_value());
    best = best_of(process)->update;
  }
  TrainOptions options = second_phase();
  options.phase = 1;
  expect_refused(data_, options, "phase 2 may have other values");
  expect_refused(other_corpus(), options_, "phase 2 may have another corpus");
  options.phase = 3;
  expect_refused(data_, options, "a run resumes its phase or begins the next one");
  // Settings that the moments of the optimizer depend on stay.
  options = second_phase();
  options.optimizer_states = OptimizerStates::eight_bit;
  expect_refused(other_corpus(), options, "optimizer_states was \"fp32\"");

  options = second_phase();
  Process process(other_corpus(), options, run_);
  EXPECT_EQ(process.run->state().phase_update, 10);
  EXPECT_EQ(process.run->state().position, (BatcherState{options.seed}));
  EXPECT_FALSE(best_of(process).has_value());
  EXPECT_EQ(process.run->state().stalled, 0);
  std::vector<double> rates;
  std::vector<int64_t> validated;
  const RunSummary summary = process.run->run([&](const TrainEvent& event) {
    if (event.kind == TrainEventKind::validated) {
      validated.push_back(event.update);
      if (event.update > 10) rates.push_back(event.learning_rate);
    }
    return 0;
  });
  EXPECT_EQ(summary.reason, StopReason::limit);
  EXPECT_EQ(summary.state.trainer.update, 16);
  EXPECT_EQ(validated, (std::vector<int64_t>{10, 12, 14, 16}));
  ASSERT_EQ(rates.size(), 3u);  // of updates 2, 4 and 6 of the phase
  EXPECT_NEAR(rates[0], 1e-4 * 2 / 3, 1e-12);
  EXPECT_NEAR(rates[1], 1e-4 * 2 / 3, 1e-12);
  EXPECT_NEAR(rates[2], 0, 1e-12);
  // The best model of the first phase is kept, and no pointer names it any longer.
  EXPECT_TRUE(fs::exists(run_ / "ckpt" / std::to_string(best) / kModelFile));
  EXPECT_EQ(run_model_file(run_, RunModel::best),
            run_ / "ckpt" / std::to_string(best_of(process)->update) / kModelFile);
  EXPECT_GT(best_of(process)->update, 10);
}

TEST_F(PhasesTest, APhaseThatIsInterruptedEndsWithTheSameBits) {
  Process(data_, options_, run_).run->run();
  const fs::path copy = directory_ / "copy";
  fs::copy(run_, copy, fs::copy_options::recursive);
  const TrainOptions options = second_phase();
  Process whole(other_corpus(), options, run_);
  whole.run->run();
  StopReason reason = StopReason::none;
  for (int i = 0; i < 10 && reason != StopReason::limit; ++i) {
    Process process(other_corpus(), options, copy);
    reason = process.run->run({}, nullptr, 2).reason;
    process.run->save();
    if (reason != StopReason::limit) continue;
    EXPECT_EQ(process.weights(), whole.weights());
    EXPECT_EQ(timeless(process.run->state()), timeless(whole.run->state()));
  }
  EXPECT_EQ(reason, StopReason::limit);
  // Resumed with the options of the phase, nothing is left to do.
  Process again(other_corpus(), options, copy);
  EXPECT_EQ(again.run->run().state.trainer.update, 16);
}

TEST_F(PhasesTest, APhaseNeedsACheckpointOfTheOneBefore) {
  Process process(data_, second_phase(), run_);
  const Error error = error_of([&] { process.run->run(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "no checkpoint of phase 1")) << error.what();
}

TEST_F(PhasesTest, AModelFromAFileIsMeasuredBeforeItsFirstUpdate) {
  const fs::path file = directory_ / "start.safetensors";
  {
    TrainOptions long_run = options_;
    long_run.after_updates = 60;
    Process process(data_, long_run);
    EXPECT_EQ(events_of(*process.run, TrainEventKind::validated).front().update, 2);
    save_model(file, *process.context, *process.model);
  }
  const auto fine_tune = [&](const TrainOptions& options, const fs::path& run) {
    auto context = make_context({DeviceKind::cpu, 0}, 1);
    auto model = load_model(*context, file, DType::f32);
    const double before = mean_cross_entropy(*context, *model, *data_.valid, kTokens);
    TrainingRun training(*context, *model, data_, options, run);
    std::vector<TrainEvent> validated, warnings;
    training.run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::validated) validated.push_back(event);
      if (event.kind == TrainEventKind::warning) warnings.push_back(event);
      return 0;
    });
    EXPECT_EQ(validated.front().update, 0);
    EXPECT_EQ(validated.front().message, "before the first update");
    EXPECT_NEAR(validated.front().metrics.at(0).value, before, 1e-6);
    EXPECT_FALSE(validated.front().metrics.at(0).improved);
    EXPECT_EQ(validated.at(1).message, "");
    EXPECT_EQ(training.state().start.at(0),
              std::pair(std::string("ce-mean-words"), validated.front().metrics.at(0).value));
    // The model that it starts from is no candidate.
    EXPECT_TRUE(training.state().best.at(0).second &&
                training.state().best.at(0).second->update > 0);
    return warnings;
  };
  EXPECT_TRUE(fine_tune(options_, run_).empty());
  {  // A run that resumes does not measure the start again, and remembers it.
    TrainOptions longer = options_;
    longer.after_updates = 12;
    Process process(data_, longer, run_);
    EXPECT_EQ(process.run->state().start.size(), 1u);
    EXPECT_EQ(events_of(*process.run, TrainEventKind::validated).front().update, 12);
  }
  TrainOptions ruinous = options_;
  ruinous.learning_rate = 1;
  ruinous.warmup = 1;
  const std::vector<TrainEvent> warnings = fine_tune(ruinous, directory_ / "ruined");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].message.find("training has not made the model better: ce-mean-words was"),
            std::string::npos)
      << warnings[0].message;
}

TEST_F(PhasesTest, EventsTellTheLossWithAndWithoutSmoothing) {
  // One batch is the whole corpus, and nothing is dropped.
  data_.train = copy_corpus(Architecture::encoder_decoder, 6, 1, 400);
  options_.batch_tokens = 400;
  options_.label_smoothing = 0.2;
  options_.log_freq = {1, PeriodUnit::updates};
  options_.after_updates = 1;
  const ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  Process process(data_, options_, std::nullopt, 1, config);
  const double expected =
      mean_cross_entropy(*process.context, *process.model,
                         dynamic_cast<const TokenizedCorpus&>(*data_.train), kTokens);
  const TrainEvent event = events_of(*process.run, TrainEventKind::log).at(0);
  EXPECT_NEAR(event.nll, expected, 1e-5);
  EXPECT_NEAR(event.perplexity, std::exp(expected), 1e-3);
  EXPECT_GT(std::abs(event.loss - event.nll), 1e-3);
}

}  // namespace
}  // namespace trafo
