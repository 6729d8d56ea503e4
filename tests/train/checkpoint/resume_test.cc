// Continuing gives the same bits as never having stopped.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

struct ResumeForm {
  Architecture architecture;
  int64_t delay;
  OptimizerStates states = OptimizerStates::float32;
  double smoothing = 0;
  int64_t quantize_bits = 0;
  double layer_drop = 0;
  double prune_sparsity = 0;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double momentum = 0.95;
};

class ResumeTest : public ::testing::TestWithParam<ResumeForm> {
 protected:
  ResumeTest() {
    options_.gradient_accumulation = GetParam().delay;
    options_.optimizer_states = GetParam().states;
    options_.optimizer = GetParam().optimizer;
    options_.momentum = GetParam().momentum;
    options_.ema_alpha = GetParam().smoothing;
    options_.quantize_bits = GetParam().quantize_bits;
    options_.layer_drop = GetParam().layer_drop;
    // Updates 3, 7, 11, 15: the runs below stop before, between and at them.
    options_.prune_sparsity = GetParam().prune_sparsity;
    options_.prune_start = 3;
    options_.prune_end = 15;
    options_.prune_every = 4;
  }

  ModelConfig config_ = tiny_config(GetParam().architecture);
  TrainingData data_ = copy_data(GetParam().architecture);
  TrainOptions options_ = quick_options();
};

INSTANTIATE_TEST_SUITE_P(
    Forms, ResumeTest,
    ::testing::Values(
        ResumeForm{Architecture::encoder_decoder, 1}, ResumeForm{Architecture::encoder_decoder, 3},
        ResumeForm{Architecture::decoder_lm, 1}, ResumeForm{Architecture::decoder_lm, 2},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::eight_bit},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::eight_bit},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::float32, 0.05},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::eight_bit, 0.05},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::float32, 0.05, 8},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::eight_bit, 0, 4},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::float32, 0.05, 0, 0.4},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::float32, 0, 0, 0.4},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::float32, 0.05, 0, 0, 0.8},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::eight_bit, 0, 8, 0, 0.8},
        ResumeForm{Architecture::decoder_lm, 1, OptimizerStates::float32, 0, 0, 0, 0,
                   OptimizerKind::sgd, 0},
        ResumeForm{Architecture::encoder_decoder, 2, OptimizerStates::float32, 0.05, 8, 0, 0,
                   OptimizerKind::muon}),
    [](const auto& instance) {
      return std::string(instance.param.architecture == Architecture::decoder_lm
                             ? "DecoderLm"
                             : "EncoderDecoder") +
             "Delay" + std::to_string(instance.param.delay) +
             (instance.param.states == OptimizerStates::eight_bit ? "EightBit" : "") +
             (instance.param.smoothing > 0 ? "Smoothed" : "") +
             (instance.param.quantize_bits > 0
                  ? "Bits" + std::to_string(instance.param.quantize_bits)
                  : "") +
             (instance.param.layer_drop > 0 ? "LayerDrop" : "") +
             (instance.param.prune_sparsity > 0 ? "Pruned" : "") +
             (instance.param.optimizer != OptimizerKind::adamw ? enum_name(instance.param.optimizer)
                                                               : "") +
             (instance.param.momentum == 0 ? "Plain" : "");
    });

// Each optimizer but the default; one that works on whole matrices does not prune.
std::vector<ResumeForm> forms_of_optimizers() {
  std::vector<ResumeForm> forms;
  for (const OptimizerKind kind : kOptimizerKinds)
    if (kind != OptimizerKind::adamw)
      forms.push_back({Architecture::encoder_decoder, 1, OptimizerStates::float32, 0.05, 0, 0,
                       needs_whole_matrices(kind) ? 0 : 0.8, kind});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeTest, ::testing::ValuesIn(forms_of_optimizers()),
                         [](const auto& instance) { return enum_name(instance.param.optimizer); });

TEST_P(ResumeTest, AKilledRunEndsWithTheSameBits) {
  constexpr int64_t kUpdates = 23;
  const Reference reference = uncut(data_, options_, kUpdates, 1, config_);
  options_.after_updates = kUpdates;
  for (const int64_t cut : {1, 4, 6, 7, 9, 13, 18, 22}) {
    const TemporaryDirectory directory;
    {
      // Dropped without saving, as by SIGKILL: what is after the last checkpoint is lost.
      Process process(data_, options_, directory.path(), 1, config_);
      EXPECT_EQ(process.run->run({}, nullptr, cut).reason, StopReason::paused);
      EXPECT_EQ(process.run->state().trainer.update, cut);
    }
    Process process(data_, options_, directory.path(), 1, config_, 99);
    const bool has_checkpoint = cut >= 5;  // save_freq; a best metric saves at 7
    EXPECT_EQ(process.run->resumed(), has_checkpoint);
    if (!has_checkpoint) continue;  // starts anew, from other weights
    EXPECT_EQ(process.run->run().reason, StopReason::limit);
    EXPECT_TRUE(process.weights() == reference.weights) << "cut at " << cut;
    EXPECT_EQ(timeless(process.run->state()), reference.state) << "cut at " << cut;
  }
}

TEST_P(ResumeTest, ARunStoppedManyTimesEndsWithTheSameBits) {
  constexpr int64_t kUpdates = 20;
  const Reference reference = uncut(data_, options_, kUpdates, 1, config_);
  options_.after_updates = kUpdates;
  const TemporaryDirectory directory;
  int processes = 0;
  for (StopReason reason = StopReason::none; reason != StopReason::limit; ++processes) {
    ASSERT_LT(processes, 40);
    Process process(data_, options_, directory.path(), 1, config_, processes == 0 ? 5 : 99);
    reason = process.run->run({}, nullptr, 1).reason;
    process.run->save();
    if (reason == StopReason::limit) {
      EXPECT_TRUE(process.weights() == reference.weights);
      EXPECT_EQ(timeless(process.run->state()), reference.state);
    }
  }
  EXPECT_GE(processes, 20);
}

TEST_P(ResumeTest, TheNumberOfThreadsDoesNotMatter) {
  const Reference reference = uncut(data_, options_, 12, 1, config_);
  for (const int threads : {2, 3, 7}) {
    const Reference other = uncut(data_, options_, 12, threads, config_);
    EXPECT_TRUE(other.weights == reference.weights) << threads << " threads";
    EXPECT_EQ(other.state, reference.state) << threads << " threads";
  }
}

TEST_P(ResumeTest, CancellingAndGoingOnChangesNothing) {
  constexpr int64_t kUpdates = 23;
  const Reference reference = uncut(data_, options_, kUpdates, 1, config_);
  options_.after_updates = kUpdates;
  const TemporaryDirectory directory;
  auto process = std::make_unique<Process>(data_, options_, directory.path(), 1, config_);
  CancelToken cancel;
  int cancellations = 0;
  // At every third event, so that it also falls into validations and right after saves.
  int events = 0;
  const TrainCallback callback = [&](const TrainEvent& event) {
    if (event.kind != TrainEventKind::stopped && ++events % 3 == 0) cancel.cancel();
    return 0;
  };
  while (process->run->run(callback, &cancel).reason == StopReason::cancelled) {
    ASSERT_LT(++cancellations, 50);
    cancel.reset();
    if (cancellations % 2 == 0) {  // the other times in the same process
      process.reset();
      process = std::make_unique<Process>(data_, options_, directory.path(), 1, config_, 99);
      EXPECT_TRUE(process->run->resumed());
    }
  }
  EXPECT_GE(cancellations, 3);
  EXPECT_TRUE(process->weights() == reference.weights);
  EXPECT_EQ(timeless(process->run->state()), reference.state);
}

TEST_P(ResumeTest, ACheckpointIsTheSameFilesHoweverTheRunGotThere) {
  options_.after_updates = 15;
  const TemporaryDirectory one, two;
  Process straight(data_, options_, one.path(), 1, config_);
  straight.run->run();
  {
    Process cut(data_, options_, two.path(), 1, config_);
    cut.run->run({}, nullptr, 11);
  }
  Process continued(data_, options_, two.path(), 1, config_, 99);
  continued.run->run();
  std::vector<const char*> files{kModelFile, kOptimizerFile};
  if (GetParam().smoothing > 0) files.push_back(kUnsmoothedFile);
  for (const char* file : files)
    EXPECT_TRUE(slurp(one / "ckpt/15" / file) == slurp(two / "ckpt/15" / file)) << file;
}

// The report of a child process about its updates, so that the parent can kill it at one of them.
void train_in_child(const TrainingData& data, const TrainOptions& options,
                    const std::filesystem::path& path, int reports) {
  Process process(data, options, path);
  process.run->run([&](const TrainEvent& event) {
    const auto update = static_cast<uint8_t>(event.update);
    return write(reports, &update, 1) == 1 ? 0 : 1;
  });
}

class KillTest : public ::testing::TestWithParam<OptimizerStates> {};

INSTANTIATE_TEST_SUITE_P(States, KillTest,
                         ::testing::Values(OptimizerStates::float32, OptimizerStates::eight_bit),
                         [](const auto& instance) {
                           return instance.param == OptimizerStates::eight_bit ? "EightBit"
                                                                               : "Float32";
                         });

TEST_P(KillTest, KilledProcessesEndWithTheSameBits) {
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.optimizer_states = GetParam();
  const TemporaryDirectory directory;
  options.save_freq = {3, PeriodUnit::updates};
  const Reference reference = uncut(data, options, 60);
  options.after_updates = 60;
  options.log_freq = {1, PeriodUnit::updates};
  PhiloxStream random(11, 0);
  int killed = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      try {
        train_in_child(data, options, directory.path(), pipe_ends[1]);
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    close(pipe_ends[1]);
    const uint32_t events = killed < 10 ? 4 + random.next_u32() % 12 : 10000;
    uint8_t update = 0;
    uint32_t seen = 0;
    while (seen < events && read(pipe_ends[0], &update, 1) == 1) ++seen;
    if (seen == events) {
      usleep(random.next_u32() % 3000);  // anywhere in an update, a validation or a save
      kill(child, SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    close(pipe_ends[0]);
    if (WIFSIGNALED(status)) {
      ++killed;
      continue;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    break;
  }
  EXPECT_GE(killed, 3);
  Process process(data, options, directory.path(), 1, tiny_config(), 99);
  EXPECT_EQ(process.run->state().trainer.update, 60);
  EXPECT_TRUE(process.weights() == reference.weights);
}

}  // namespace
}  // namespace trafo
