// Ranks that train a model with a teacher: each has a copy of it.
#include "engine/models/model_io.h"
#include "tests/dist/group_support.h"

namespace trafo {
namespace {

using namespace testing;

// A rank whose model has a teacher; an empty path: none.
struct TaughtRank {
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  TaughtRank(TrainingData data, const TrainOptions& options, Communicator* group,
             const std::filesystem::path& directory, const std::filesystem::path& teacher)
      : context(make_context(device_of_rank(group ? group->rank() : 0), 1)),
        model(make_model(*context, group_config(), 5)) {
    if (!teacher.empty()) data.frozen = load_frozen_model(*context, *model, teacher);
    run = std::make_unique<TrainingRun>(*context, *model, data, options, directory, group);
  }
};

class TeacherRanks : public ::testing::Test {
 protected:
  TeacherRanks() {
    options_.lanes = 3;
    options_.after_updates = 7;
    options_.teacher_weight = 0.6;
    options_.teacher_temperature = 2;
    options_.keep_best = false;
  }
  std::filesystem::path teacher(uint64_t seed) const {
    const auto path = folder_ / ("teacher" + std::to_string(seed) + ".safetensors");
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    save_model(path, *context, *make_model(*context, group_config(), seed));
    return path;
  }

  TemporaryDirectory folder_;
  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
};

TEST_F(TeacherRanks, CheckpointsAreTheSameFilesOnAnyNumberOfRanks) {
  const auto file = teacher(1);
  const TemporaryDirectory one;
  for_each_rank(1, [&](int, Communicator* group) {
    TaughtRank(data_, options_, group, one.path(), file).run->run();
  });
  const TemporaryDirectory alone;
  TaughtRank(data_, options_, nullptr, alone.path(), file).run->run();
  expect_same_files(one.path(), alone.path(), 7, "without a group");
  for (const int size : {2, 3}) {
    if (!has_room_for(size)) continue;
    const TemporaryDirectory many;
    for_each_rank(size, [&](int, Communicator* group) {
      TaughtRank(data_, options_, group, many.path(), file).run->run();
    });
    expect_same_files(one.path(), many.path(), 7, std::to_string(size) + " ranks");
  }
}

TEST_F(TeacherRanks, AnotherTeacherOnOneRankIsNamed) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  const auto first = teacher(1), second = teacher(2);
  for (const std::filesystem::path& other : {second, std::filesystem::path()}) {
    const auto errors = errors_of_ranks(2, [&](int rank, Communicator* group) {
      TaughtRank(data_, options_, group, folder_ / "run", rank == 0 ? first : other);
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error->what()).find("the teacher (the checksum of its weights)"),
                std::string::npos)
          << error->what();
    }
  }
}

}  // namespace
}  // namespace trafo
