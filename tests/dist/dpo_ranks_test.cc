// Ranks that train with DPO or KTO: each has a copy of the reference, and the metrics of the
// objective are those of all ranks.
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "tests/dist/group_support.h"
#include "tests/train/preference_support.h"

namespace trafo {
namespace {

using namespace testing;

using ObjectiveMetrics = std::vector<std::vector<std::pair<std::string, double>>>;

struct PreferenceRun {
  const char* name;
  ObjectiveKind objective;
  bool adapted;
};

class DpoRanks : public ::testing::TestWithParam<PreferenceRun> {
 protected:
  DpoRanks() {
    options_.lanes = 3;
    options_.after_updates = 7;
    options_.keep_best = false;
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    reference_ = folder_ / "reference.safetensors";
    save_model(reference_, *context, *make_model(*context, group_config(), 6));
  }
  bool adapted() const { return GetParam().adapted; }
  bool of_kto() const { return GetParam().objective == ObjectiveKind::kto; }

  // Trains one rank and returns the metrics of its log events.
  ObjectiveMetrics train(Communicator* group, const std::filesystem::path& directory) const {
    const auto context = make_context(device_of_rank(group ? group->rank() : 0), 1);
    const auto model = make_model(*context, group_config(), 5);
    TrainingData data = data_;
    if (adapted())
      add_adapter(*context, *model, {.rank = 4, .alpha = 8}, 4);
    else
      data.frozen = load_frozen_model(*context, *model, reference_, FrozenRole::reference);
    TrainingRun run(*context, *model, data, options_, directory, group);
    ObjectiveMetrics metrics;
    run.run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::log) metrics.push_back(event.objective_metrics);
      return 0;
    });
    return metrics;
  }

  TemporaryDirectory folder_;
  std::filesystem::path reference_;
  TrainingData data_ = preference_data(Architecture::encoder_decoder, of_kto());
  TrainOptions options_ = preference_options(GetParam().objective);
};

INSTANTIATE_TEST_SUITE_P(References, DpoRanks,
                         ::testing::Values(PreferenceRun{"OfAnAdapter", ObjectiveKind::dpo, true},
                                           PreferenceRun{"OfAFile", ObjectiveKind::dpo, false},
                                           PreferenceRun{"KtoOfAFile", ObjectiveKind::kto, false}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(DpoRanks, CheckpointsAndMetricsAreTheSameOnAnyNumberOfRanks) {
  const TemporaryDirectory alone;
  const ObjectiveMetrics expected = train(nullptr, alone.path());
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected[0].size(), of_kto() ? 6u : 4u);
  for (const int size : {1, 2, 3}) {
    if (!has_room_for(size)) continue;
    const TemporaryDirectory many;
    for_each_rank(size, [&](int rank, Communicator* group) {
      EXPECT_EQ(train(group, many.path()), expected) << "rank " << rank << " of " << size;
    });
    expect_same_files(alone.path(), many.path(), 7, std::to_string(size) + " ranks");
  }
}

}  // namespace
}  // namespace trafo
