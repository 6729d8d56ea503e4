// Checkpoints that are written while training continues.
#include "engine/train/checkpoint/background_save.h"

#include <algorithm>
#include <map>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class BackgroundSaves : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = quick_options();
    options_.background_saves = true;
    options_.after_updates = 23;
    options_.keep_last = 9;
  }

  // The files of the checkpoints, but for times, and the pointers.
  static std::map<std::string, std::string> files_of(const fs::path& run) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      const std::string name = fs::relative(entry.path(), run).string();
      if (!entry.is_regular_file() || name == ".lock" || name.ends_with("manifest.json")) continue;
      files[name] = name.ends_with(kStateFile)
                        ? timeless(decode_state(slurp(entry.path()), name).state)
                        : slurp(entry.path());
    }
    return files;
  }

  TrainingData data_ = copy_data();
  TrainOptions options_;
  TemporaryDirectory directory_;
};

TEST_F(BackgroundSaves, HaveTheFilesOfOthers) {
  for (const double ema : {0.0, 0.01}) {
    options_.ema_alpha = ema;
    const TemporaryDirectory in_place, beside;
    options_.background_saves = false;
    Process(data_, options_, in_place.path()).run->run();
    options_.background_saves = true;
    std::vector<int64_t> saved;
    Process process(data_, options_, beside.path());
    process.run->run([&](const TrainEvent& event) {
      if (event.kind != TrainEventKind::saved) return 0;
      saved.push_back(event.update);
      EXPECT_EQ(event.path, (beside / "ckpt" / std::to_string(event.update)).string());
      CheckpointDirectory(beside.path()).verify(event.update);
      return 0;
    });
    const auto expected = files_of(in_place.path());
    EXPECT_GT(expected.size(), 15u);
    EXPECT_EQ(files_of(beside.path()), expected);
    EXPECT_EQ(saved, CheckpointDirectory(beside.path()).list());
  }
}

TEST_F(BackgroundSaves, ARunResumesFromThem) {
  const Reference reference = uncut(data_, options_, 23);
  for (int updates : {5, 1, 7, 0}) {
    Process process(data_, options_, directory_.path());
    process.run->run({}, nullptr, updates);
    process.run->save();
    if (updates > 0) continue;
    EXPECT_TRUE(process.weights() == reference.weights);
    EXPECT_EQ(timeless(process.run->state()), reference.state);
  }
}

TEST_F(BackgroundSaves, AFailedOneIsReportedAndTheRunGoesOn) {
  const Reference reference = uncut(data_, options_, 23);
  const fs::path elsewhere = directory_ / "elsewhere", run = directory_ / "run";
  Process process(data_, options_, run);
  bool moved = false;
  const TrainCallback move_away = [&](const TrainEvent& event) {
    if (event.update == 4 && !moved) {
      fs::rename(run, elsewhere);
      moved = true;
    }
    return 0;
  };
  const Error error = error_of([&] { process.run->run(move_away); });
  EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  EXPECT_TRUE(mentions(error, "was moved or removed")) << error.what();
  ASSERT_TRUE(moved);
  EXPECT_LT(process.run->state().trainer.update, 23);
  fs::rename(elsewhere, run);
  EXPECT_EQ(process.run->run().reason, StopReason::limit);
  EXPECT_TRUE(process.weights() == reference.weights);
  EXPECT_EQ(CheckpointDirectory(run).newest_valid().update, 23);
}

// A save after one that failed, before or after that is known.
TEST_F(BackgroundSaves, TheNextOneSavesWhatAFailedOneLost) {
  options_.log_freq = {1, PeriodUnit::updates};
  const fs::path elsewhere = directory_ / "elsewhere", run = directory_ / "run";
  Process process(data_, options_, run);
  const TrainCallback spoil = [&](const TrainEvent& event) {
    if (event.update == 4 && fs::exists(run)) fs::rename(run, elsewhere);
    if (event.update == 6) throw std::runtime_error("from the callback");
    return 0;
  };
  EXPECT_THROW(process.run->run(spoil), std::exception);
  fs::rename(elsewhere, run);
  try {
    process.run->save();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  }
  const int64_t update = process.run->state().trainer.update;
  EXPECT_GE(update, 5);
  EXPECT_EQ(CheckpointDirectory(run).newest_valid().update, update);
}

// A device without host memory left, from when `runs_out` is set.
class OutOfHostMemory final : public StreamAccelerator {
 public:
  void* allocate_pinned(size_t bytes) override {
    if (!runs_out) return StreamAccelerator::allocate_pinned(bytes);
    ++refused;
    throw std::bad_alloc();
  }
  bool runs_out = false;
  int refused = 0;
};

TEST_F(BackgroundSaves, WithoutMemoryForACopyTheSaveIsInPlace) {
  options_.log_freq = {1, PeriodUnit::updates};
  const std::vector<int64_t> expected{5, 7, 10, 14, 15, 20, 21, 23};  // every fifth, and new bests
  const TemporaryDirectory without, with;
  for (const bool runs_out : {false, true}) {
    const fs::path run = runs_out ? without.path() : with.path();
    const auto device = std::make_shared<OutOfHostMemory>();
    Context context(device);
    context.set_graphs(false);
    const auto model = make_model(context, tiny_config(), 5);
    std::vector<int64_t> saved;
    TrainingRun(context, *model, data_, options_, run).run([&](const TrainEvent& event) {
      // Of an update with a save: between its log and the event of the save nothing else needs it.
      if (event.kind == TrainEventKind::log)
        device->runs_out = runs_out && std::ranges::count(expected, event.update) > 0;
      if (event.kind != TrainEventKind::saved) return 0;
      device->runs_out = false;
      saved.push_back(event.update);
      CheckpointDirectory(run).verify(event.update);
      return 0;
    });
    EXPECT_EQ(saved, expected);
    EXPECT_EQ(device->refused, runs_out ? static_cast<int>(expected.size()) : 0);
  }
  EXPECT_EQ(files_of(without.path()), files_of(with.path()));
}

// The run ends by another error while the save is in flight, which fails as well.
TEST_F(BackgroundSaves, TheErrorThatEndsTheRunTellsWhatWasNotSaved) {
  options_.log_freq = {1, PeriodUnit::updates};
  const fs::path elsewhere = directory_ / "elsewhere", run = directory_ / "run";
  Process process(data_, options_, run);
  const Error error = error_of([&] {
    process.run->run([&](const TrainEvent& event) -> int {
      if (event.update == 4 && fs::exists(run)) fs::rename(run, elsewhere);
      if (event.update == 6) fail(ErrorCode::non_finite, "test", "the loss is not finite");
      return 0;
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::non_finite) << error.what();
  EXPECT_TRUE(error.message().starts_with(
      "the loss is not finite; the checkpoint of update 5 was not saved: "))
      << error.what();
  EXPECT_TRUE(mentions(error, "was moved or removed")) << error.what();
  fs::rename(elsewhere, run);
  process.run->save();
  EXPECT_EQ(CheckpointDirectory(run).newest_valid().update, process.run->state().trainer.update);
}

// The run ends while a checkpoint may still be in flight.
TEST_F(BackgroundSaves, AreWholeWhenTheRunIsDestroyed) {
  options_.log_freq = {1, PeriodUnit::updates};
  for (int64_t update = 6; update < 10; ++update) {
    const TemporaryDirectory directory;
    {
      Process process(data_, options_, directory.path());
      EXPECT_THROW(process.run->run([&](const TrainEvent& event) -> int {
        if (event.update == update) throw std::runtime_error("from the callback");
        return 0;
      }),
                   std::runtime_error);
    }
    const NewestValid newest = CheckpointDirectory(directory.path()).newest_valid();
    EXPECT_GE(newest.update, 5) << update;
    EXPECT_TRUE(newest.refused.empty());
    for (const auto& entry : fs::directory_iterator(directory / "ckpt"))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
}

TEST(BackgroundSave, RunsItsWorkOnAnotherThreadAndRethrows) {
  BackgroundSave save(nullptr);
  EXPECT_FALSE(save.in_flight());
  EXPECT_FALSE(save.done());
  std::thread::id worker;
  save.start([&] { worker = std::this_thread::get_id(); });
  EXPECT_TRUE(save.in_flight());
  EXPECT_EQ(error_of([&] { save.start([] {}); }).code(), ErrorCode::internal);
  save.await();
  EXPECT_FALSE(save.in_flight());
  EXPECT_NE(worker, std::this_thread::get_id());
  save.start([] { throw std::runtime_error("from the work"); });
  EXPECT_THROW(save.await(), std::runtime_error);
  EXPECT_FALSE(save.in_flight());
}

}  // namespace
}  // namespace trafo
