// The models of a run directory: best, last, averaged.
#include "engine/train/checkpoint/run_models.h"

#include <fstream>

#include "engine/models/model_io.h"
#include "engine/train/checkpoint/run_directory.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class RunModels : public ::testing::Test {
 protected:
  // A run of 20 updates that validates at 7, 14 and the end.
  TrainOptions options() const {
    TrainOptions options = quick_options();
    options.after_updates = 20;
    options.valid_metrics = {"ce-mean-words"};
    return options;
  }
  int64_t train(const TrainOptions& options, const TrainingData& data = copy_data()) {
    Process process(data, options, run_);
    process.run->run();
    const auto& best = process.run->state().best;
    return best.empty() || !best.front().second ? -1 : best.front().second->update;
  }
  // A checkpoint that a run with these best metrics would write.
  void save(int64_t update, std::vector<std::pair<std::string, std::optional<BestMetric>>> best) {
    RunState state;
    state.trainer.update = update;
    state.best = std::move(best);
    RunIdentity identity;
    identity.options = "{}";
    const CheckpointFile files[] = {
        {kModelFile, [&](ByteSink& sink) { write_model(sink, *context_, *model_); }},
        {kStateFile, [&](ByteSink& sink) { sink.write(encode_state(state, identity)); }}};
    CheckpointDirectory(run_).save(update, files);
  }
  fs::path model_of(int64_t update) const {
    return run_ / "ckpt" / std::to_string(update) / kModelFile;
  }
  void expect_missing(RunModel which, const std::string& text) {
    expect_error(ErrorCode::not_found, text, [&] { run_model_file(run_, which); });
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model_ = make_model(*context_, tiny_config(), 1);
  TemporaryDirectory directory_;
  fs::path run_ = directory_ / "run";
};

TEST_F(RunModels, BestIsByTheFirstMetricAndLastIsTheNewest) {
  save(5, {{"bleu", BestMetric{30, 5}}, {"ce-mean-words", BestMetric{2, 5}}});
  save(10, {{"bleu", BestMetric{30, 5}}, {"ce-mean-words", BestMetric{1, 10}}});
  save(15, {{"bleu", BestMetric{30, 5}}, {"ce-mean-words", BestMetric{1, 10}}});
  EXPECT_EQ(run_model_file(run_, RunModel::best), model_of(5));
  EXPECT_EQ(run_model_file(run_, RunModel::last), model_of(15));
  save(20, {{"ce-mean-words", BestMetric{1, 10}}, {"bleu", BestMetric{30, 5}}});
  EXPECT_EQ(run_model_file(run_, RunModel::best), model_of(10));
  // A process was killed before it wrote the pointer.
  fs::remove(run_ / "latest");
  EXPECT_EQ(run_model_file(run_, RunModel::last), model_of(20));
  fs::remove_all(run_ / "ckpt/10");
  expect_missing(RunModel::best, "update 10 was the best by ce-mean-words");
  // BLEU has judged nothing, as for scripts without spaces.
  save(22, {{"bleu", std::nullopt}, {"chrf", BestMetric{40, 15}}});
  EXPECT_EQ(run_model_file(run_, RunModel::best), model_of(15));
  save(25, {{"bleu", std::nullopt}});
  expect_missing(RunModel::best, "had not validated when update 25 was saved");
}

TEST_F(RunModels, WhatIsMissingIsSaid) {
  expect_missing(RunModel::last, "there is no such directory");
  fs::create_directory(run_);
  for (const RunModel which : {RunModel::best, RunModel::last})
    expect_missing(which, "has no checkpoint");
  TrainingData data = copy_data();
  data.valid = nullptr;
  train(options(), data);
  expect_missing(RunModel::best, "had not validated when update 20 was saved");
  EXPECT_EQ(run_model_file(run_, RunModel::last), model_of(20));
  expect_missing(RunModel::averaged, "has no averaged model");
}

TEST_F(RunModels, TheAverageIsThatOfTheRun) {
  TrainOptions options = this->options();
  options.average_last = 2;
  train(options);
  const fs::path file = run_model_file(run_, RunModel::averaged);
  EXPECT_EQ(file, run_ / "ckpt/averaged" / kModelFile);
  EXPECT_NO_THROW(load_model(*context_, file));
}

TEST_F(RunModels, DamageIsFound) {
  const int64_t best = train(options());
  const auto damage = [](const fs::path& file) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-1, std::ios::end);
    out.put('\x7f');
  };
  EXPECT_NO_THROW(load_model(*context_, run_model_file(run_, RunModel::best)));
  damage(model_of(best));
  expect_error(ErrorCode::corrupt_file, kModelFile,
               [&] { load_model(*context_, run_model_file(run_, RunModel::best)); });
  // As a run that resumes, it passes over a damaged state.
  damage(run_ / "ckpt/20" / kStateFile);
  EXPECT_EQ(run_model_file(run_, RunModel::best), model_of(14));  // the best before update 20
  for (const auto& checkpoint : fs::directory_iterator(run_ / "ckpt"))
    if (fs::exists(checkpoint.path() / kStateFile) && checkpoint.path().filename() != "20")
      damage(checkpoint.path() / kStateFile);
  expect_error(ErrorCode::corrupt_file, kStateFile, [&] { run_model_file(run_, RunModel::best); });
}

TEST_F(RunModels, ADirectoryThatNoRunHasUsedIsNotOverwritten) {
  for (const char* name : {"latest", "best-bleu", "gemm-cache", "valid/7.hyp", "ckpt/20/notes",
                           "ckpt/averaged/model.safetensors", ".lock"}) {
    const fs::path file = run_ / name;
    fs::remove_all(run_);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "of my own\n";
    const Error error = error_of([&] { RunDirectory directory(run_); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << name << ": " << error.what();
    EXPECT_TRUE(mentions(error, "move it away")) << name << ": " << error.what();
    std::ifstream in(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "of my own\n") << name;
  }
  // Other files are nobody's business, and a directory that a run has used is a run's.
  fs::remove_all(run_);
  fs::create_directories(run_ / "valid");
  std::ofstream(run_ / "notes.txt") << "of my own\n";
  std::ofstream(run_ / "valid/notes.hyp") << "of my own\n";
  { RunDirectory directory(run_); }
  std::ofstream(run_ / "valid/7.hyp") << "of a run that was killed\n";
  EXPECT_NO_THROW(RunDirectory{run_});
}

}  // namespace
}  // namespace trafo
