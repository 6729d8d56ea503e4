// Training on several ranks: the bits do not depend on their number, and what goes wrong on one of
// them ends on all of them.
#include <atomic>

#include "tests/dist/simulated_hosts.h"
#include "tests/train/long_text_support.h"

namespace trafo {
namespace {

using namespace testing;

struct RanksForm {
  const char* name;
  Architecture architecture;
  int64_t lanes, delay;
  OptimizerStates states = OptimizerStates::float32;
  double smoothing = 0;
  double weight_decay = 0;  // not of norms and biases: parameter groups
  double layer_drop = 0;
  double prune_sparsity = 0;
  CommunicationDType communication = CommunicationDType::float32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  LongLines long_lines = LongLines::drop;
};

class RanksTest : public ::testing::TestWithParam<RanksForm> {
 protected:
  RanksTest() {
    options_.lanes = GetParam().lanes;
    options_.gradient_accumulation = GetParam().delay;
    options_.optimizer_states = GetParam().states;
    options_.optimizer = GetParam().optimizer;
    options_.ema_alpha = GetParam().smoothing;
    options_.weight_decay = GetParam().weight_decay;
    options_.layer_drop = GetParam().layer_drop;
    options_.prune_sparsity = GetParam().prune_sparsity;
    options_.communication_dtype = GetParam().communication;
    options_.prune_start = 2;  // 2, 5 and 7: a run that resumes has done one of them
    options_.prune_end = 7;
    options_.prune_every = 3;
    options_.decay_norms_and_biases = GetParam().weight_decay == 0;
    options_.keep_last = 1;
    options_.keep_best = false;
    if (GetParam().long_lines == LongLines::drop) return;
    options_.long_lines = GetParam().long_lines;
    options_.window_stride = 20;
    data_ = long_text_data(options_);
  }

  // Trains on `size` ranks until `updates`.
  void train(int size, const std::filesystem::path& directory, int64_t updates,
             uint64_t model_seed = 5) {
    TrainOptions options = options_;
    options.after_updates = updates;
    for_each_rank(size, [&](int, Communicator* group) {
      Rank rank(data_, options, group, directory, config_, model_seed);
      const RunSummary summary = rank.run->run();
      EXPECT_EQ(summary.reason, StopReason::limit);
      EXPECT_EQ(summary.state.trainer.update, updates);
    });
  }

  ModelConfig config_ = group_config(GetParam().architecture);
  // Batches of an epoch are no multiple of lanes times delay: its last update has empty lanes.
  TrainingData data_ = copy_data(GetParam().architecture);
  TrainOptions options_ = quick_options();
};

INSTANTIATE_TEST_SUITE_P(
    Forms, RanksTest,
    ::testing::Values(
        RanksForm{"Float32", Architecture::encoder_decoder, 4, 1},
        RanksForm{"FiveLanesDelay2", Architecture::encoder_decoder, 5, 2},
        RanksForm{"EightBit", Architecture::encoder_decoder, 4, 1, OptimizerStates::eight_bit, 0,
                  0.1},
        RanksForm{"SmoothedGroups", Architecture::decoder_lm, 4, 1, OptimizerStates::float32, 0.05,
                  0.1},
        RanksForm{"SmoothedEightBit", Architecture::decoder_lm, 4, 2, OptimizerStates::eight_bit,
                  0.05},
        RanksForm{"LayerDrop", Architecture::decoder_lm, 4, 2, OptimizerStates::float32, 0, 0, 0.3},
        RanksForm{"Pruned", Architecture::encoder_decoder, 4, 1, OptimizerStates::eight_bit, 0.05,
                  0.1, 0, 0.8},
        RanksForm{"Communication", Architecture::encoder_decoder, 4, 1, OptimizerStates::float32, 0,
                  0.1, 0, 0, CommunicationDType::bfloat16},
        RanksForm{"CommunicationOfFiveLanes", Architecture::decoder_lm, 5, 2,
                  OptimizerStates::eight_bit, 0.05, 0, 0.3, 0, CommunicationDType::bfloat16},
        RanksForm{"Windows", Architecture::decoder_lm, 4, 1, OptimizerStates::float32, 0, 0, 0, 0,
                  CommunicationDType::float32, OptimizerKind::adamw, LongLines::window}),
    [](const auto& instance) { return instance.param.name; });

// Each optimizer but the default; one that works on whole matrices does not prune.
std::vector<RanksForm> forms_of_optimizers() {
  std::vector<RanksForm> forms;
  for (const OptimizerKind kind : kOptimizerKinds)
    if (kind != OptimizerKind::adamw)
      forms.push_back({enum_name(kind), Architecture::encoder_decoder, 4, 1,
                       OptimizerStates::float32, 0.05, 0.1, 0, needs_whole_matrices(kind) ? 0 : 0.8,
                       CommunicationDType::float32, kind});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, RanksTest, ::testing::ValuesIn(forms_of_optimizers()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(RanksTest, CheckpointsAreTheSameFilesOnAnyNumberOfRanks) {
  constexpr int64_t kUpdates = 9;
  const TemporaryDirectory one;
  train(1, one.path(), kUpdates);
  EXPECT_GE(saved_sizes(one.path())->lanes, 4);
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  for (const int size : {2, 3, 4}) {
    if (!has_room_for(size)) continue;
    const TemporaryDirectory many;
    train(size, many.path(), kUpdates);
    expect_same_files(one.path(), many.path(), kUpdates, std::to_string(size) + " ranks");
  }
}

TEST_P(RanksTest, ARunResumesOnAnyNumberOfRanks) {
  constexpr int64_t kFirst = 4, kUpdates = 9;
  const TemporaryDirectory reference;
  train(1, reference.path(), kUpdates);
  for (const int before : {1, 2, 4})
    for (const int after : {1, 2, 4}) {
      if (!has_room_for(std::max(before, after))) continue;
      const TemporaryDirectory directory;
      train(before, directory.path(), kFirst);
      train(after, directory.path(), kUpdates, 99);  // other weights, which the checkpoint replaces
      expect_same_files(reference.path(), directory.path(), kUpdates,
                        concat(before, " ranks, then ", after));
    }
}

// --- what is not by form ---

class GroupTest : public ::testing::Test {
 protected:
  GroupTest() { options_.lanes = 2; }

  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
  TemporaryDirectory directory_;
};

// The CPU has no bfloat16.
TEST_F(GroupTest, CheckpointsInBfloat16AreTheSameFilesOnGpus) {
  if (device_of_rank(0).kind != DeviceKind::cuda) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 9;
  const auto train = [&](int size, const std::filesystem::path& path) {
    for_each_rank(size, [&](int, Communicator* group) {
      Rank rank(data_, options_, group, path, group_config(), 5, DType::bf16);
      EXPECT_EQ(rank.run->run().state.trainer.update, 9);
    });
  };
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16})
    for (const int64_t lanes : {2, 4}) {
      options_.communication_dtype = communication;
      options_.lanes = lanes;
      const TemporaryDirectory one;
      train(1, one.path());
      for (const int size : {2, 4}) {
        if (size > lanes || !has_room_for(size)) continue;
        const TemporaryDirectory many;
        train(size, many.path());
        expect_same_files(one.path(), many.path(), 9,
                          concat(size, " ranks, ", lanes, " lanes, ", enum_name(communication)));
      }
    }
}

// Four ranks on two hosts: the ranks of a host add their lanes first.
TEST_F(GroupTest, CheckpointsOfSeveralHostsAreTheSameFiles) {
  if (!has_room_for(4)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 9;
  options_.ema_alpha = 0.05;
  options_.optimizer_states = OptimizerStates::eight_bit;
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16})
    for (const int64_t lanes : {4, 8}) {
      options_.communication_dtype = communication;
      options_.lanes = lanes;
      const TemporaryDirectory one, four;
      Rank(data_, options_, nullptr, one.path()).run->run();
      for_each_rank(4, [&](int, Communicator* group) {
        SimulatedHosts hosts(*group, 2);
        Rank rank(data_, options_, &hosts, four.path());
        EXPECT_EQ(rank.run->run().state.trainer.update, 9);
        EXPECT_GT(hosts.sent, hosts.sent_between);
      });
      expect_same_files(one.path(), four.path(), 9,
                        concat(lanes, " lanes, ", enum_name(communication)));
    }
}

// The gradient of one lane is rounded as well, so that a run may go on with more ranks.
TEST_F(GroupTest, OneLaneIsRoundedOnOneRank) {
  options_.lanes = 1;
  options_.after_updates = 3;
  const auto weights = [&](CommunicationDType communication) {
    options_.communication_dtype = communication;
    Rank rank(data_, options_, nullptr);
    rank.run->run();
    return weight_bytes(*rank.context, *rank.model);
  };
  const auto wide = weights(CommunicationDType::float32);
  const auto narrow = weights(CommunicationDType::bfloat16);
  ASSERT_EQ(wide.size(), narrow.size());
  EXPECT_NE(wide, narrow);
}

// Rounding is at most a part in 256 of a gradient, and of both signs.
TEST_F(GroupTest, RoundedLanesLearnAsOthersDo) {
  options_.lanes = 4;
  options_.after_updates = 80;
  options_.valid_freq = {40, PeriodUnit::updates};
  const auto losses = [&](CommunicationDType communication) {
    options_.communication_dtype = communication;
    std::vector<double> values;
    Rank rank(data_, options_, nullptr);
    rank.run->run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::validated) values.push_back(event.metrics.at(0).value);
      return 0;
    });
    return values;
  };
  const std::vector<double> wide = losses(CommunicationDType::float32);
  const std::vector<double> narrow = losses(CommunicationDType::bfloat16);
  ASSERT_EQ(wide.size(), 2u);
  ASSERT_EQ(narrow.size(), 2u);
  EXPECT_LT(wide[1], wide[0] - 0.1);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(narrow[i], wide[i], 0.01 * wide[i]);
}

TEST_F(GroupTest, ARunKeepsWhatItsGradientsTravelIn) {
  options_.after_updates = 6;
  options_.communication_dtype = CommunicationDType::bfloat16;
  Rank(data_, options_, nullptr, directory_.path()).run->run();
  options_.communication_dtype = CommunicationDType::float32;
  try {
    Rank(data_, options_, nullptr, directory_.path());
    FAIL() << "resumed in float32";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find(R"(communication_dtype was "bf16" and is "fp32" now)"),
              std::string::npos)
        << error.message();
  }
}

// The exact weights, of all parameters.
std::vector<float> exact_weights(const Rank& rank) {
  const ParameterStore& parameters = rank.model->parameters();
  std::vector<float> all;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    std::vector<float> one(static_cast<size_t>(element_count(parameters.shape(id))));
    parameters.get_value(*rank.context, id, one.data(), one.size() * sizeof(float));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST_F(GroupTest, CallbacksReadTheWholeWeights) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  const DType dtype = device_of_rank(0).kind == DeviceKind::cuda ? DType::bf16 : DType::f32;
  options_.after_updates = 5;
  options_.valid_freq = {};
  options_.log_first = 0;
  options_.log_freq = {2, PeriodUnit::updates};
  // Values that the callback of each rank reads, after updates 2, 4 and at the end.
  const auto train = [&](int size) {
    std::vector<std::vector<std::vector<float>>> read(static_cast<size_t>(size));
    for_each_rank(size, [&](int number, Communicator* group) {
      Rank rank(data_, options_, group, std::nullopt, group_config(), 5, dtype);
      rank.run->run([&](const TrainEvent& event) {
        if (event.kind == TrainEventKind::log || event.kind == TrainEventKind::finished)
          read[static_cast<size_t>(number)].push_back(exact_weights(rank));
        return 0;
      });
    });
    return read;
  };
  const auto alone = train(1), two = train(2);
  ASSERT_GE(alone[0].size(), 3u);
  EXPECT_NE(alone[0].front(), alone[0].back());
  EXPECT_TRUE(two[0] == alone[0]);
  EXPECT_TRUE(two[1] == alone[0]);
}

TEST_F(GroupTest, EachRankNeedsAGpuOfItsOwn) {
  if (device_of_rank(0).kind != DeviceKind::cuda) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  const auto gpus = static_cast<int>(cuda_devices(nullptr).size());
  options_.lanes = gpus + 1;
  const auto errors = errors_of_ranks(
      gpus + 1, [&](int, Communicator* group) { Rank(data_, options_, group, std::nullopt); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error->message(), concat("ranks 0 and ", gpus,
                                       " are both on cuda:0: each needs a "
                                       "GPU of its own"));
  }
}

TEST_F(GroupTest, LanesAreAsManyAsRanksUnlessSaid) {
  if (!has_room_for(3)) GTEST_SKIP() << kNoRoom;
  options_.lanes = 1;
  options_.after_updates = 4;
  for_each_rank(3, [&](int, Communicator* group) {
    Rank rank(data_, options_, group, directory_.path());
    EXPECT_EQ(rank.run->options().lanes, 3);
    rank.run->run();
  });
  options_.after_updates = 6;
  Rank alone(data_, options_, nullptr, directory_.path());
  EXPECT_EQ(alone.run->options().lanes, 3);
  EXPECT_EQ(alone.run->run().state.trainer.update, 6);
}

TEST_F(GroupTest, OneLaneIsTodaysTraining) {
  options_.lanes = 1;
  options_.after_updates = 7;
  const TemporaryDirectory other;
  Rank(data_, options_, nullptr, directory_.path()).run->run();
  for_each_rank(
      1, [&](int, Communicator* group) { Rank(data_, options_, group, other.path()).run->run(); });
  expect_same_files(directory_.path(), other.path(), 7, "a group of one rank");
}

TEST_F(GroupTest, EachRankHasAShardOfTheOptimizer) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  std::atomic<int64_t> bytes = 0;
  const auto context = make_context(device_of_rank(0), 1);
  const auto model = make_model(*context, group_config(), 5);
  const Trainer alone(*context, *model, options_);
  for_each_rank(2, [&](int rank, Communicator* group) {
    const auto own = make_context(device_of_rank(rank), 1);
    const auto same = make_model(*own, group_config(), 5);
    const Trainer trainer(*own, *same, options_, TrainingGroup(group));
    bytes += trainer.optimizer_bytes();
    EXPECT_LT(trainer.optimizer_bytes(), alone.optimizer_bytes() * 2 / 3);
    EXPECT_EQ(trainer.own_lanes(), (ElementRange{rank, rank + 1}));
  });
  EXPECT_EQ(bytes, alone.optimizer_bytes());
}

// The weights of the last rank are no numbers in updates 3 and 5, and are right again after them.
TEST_F(GroupTest, AnUpdateThatIsSkippedIsSkippedOnAllRanks) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 6;
  options_.valid_freq = {};
  options_.log_freq = {1, PeriodUnit::updates};
  const auto train = [&](int size, const std::filesystem::path& path) {
    for_each_rank(size, [&](int number, Communicator* group) {
      Rank rank(data_, options_, group, path);
      ParameterStore& parameters = rank.model->parameters();
      std::vector<std::byte> good;
      int skipped = 0;
      rank.run->run([&](const TrainEvent& event) {
        const bool before =
            event.kind == TrainEventKind::log && event.update == (skipped == 0 ? 2 : 4);
        if (before && skipped < 2 && number == size - 1) {
          good = bytes_of(*rank.context, parameters.value(0));
          const std::vector<float> bad(good.size() / sizeof(float), NAN);
          parameters.set_value(*rank.context, 0, bad.data(), good.size());
        }
        if (event.kind == TrainEventKind::skipped) {
          ++skipped;
          EXPECT_EQ(event.update, skipped == 1 ? 2 : 4);
          if (number == size - 1) parameters.set_value(*rank.context, 0, good.data(), good.size());
        }
        return 0;
      });
      EXPECT_EQ(skipped, 2);
      EXPECT_EQ(rank.run->state().trainer.skipped, 2);
    });
  };
  const TemporaryDirectory other;
  train(1, directory_.path());
  train(2, other.path());
  expect_same_files(directory_.path(), other.path(), 6, "skipped updates");
}

TEST_F(GroupTest, ACancelledRankStopsAllAtTheSameUpdate) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 12;
  options_.log_freq = {1, PeriodUnit::updates};
  const TemporaryDirectory reference;
  Rank(data_, options_, nullptr, reference.path()).run->run();
  for_each_rank(2, [&](int number, Communicator* group) {
    Rank rank(data_, options_, group, directory_.path());
    CancelToken cancel;
    const RunSummary summary = rank.run->run(
        [&](const TrainEvent& event) {
          if (number == 1 && event.kind == TrainEventKind::log && event.update == 5)
            cancel.cancel();
          return 0;
        },
        &cancel);
    EXPECT_EQ(summary.reason, StopReason::cancelled);
    EXPECT_EQ(summary.state.trainer.update, 5);
  });
  for_each_rank(2, [&](int number, Communicator* group) {
    Rank rank(data_, options_, group, directory_.path());
    EXPECT_TRUE(rank.run->resumed());
    const RunSummary summary = rank.run->run(
        [&](const TrainEvent& event) { return number == 0 && event.update == 8 ? 1 : 0; });
    EXPECT_EQ(summary.reason, StopReason::callback);
    EXPECT_EQ(summary.state.trainer.update, 8);
    EXPECT_EQ(rank.run->run().reason, StopReason::limit);  // in the same group
  });
  expect_same_files(reference.path(), directory_.path(), 12, "stopped twice");
}

TEST_F(GroupTest, EveryDifferenceAtJoiningIsNamed) {
  if (!has_room_for(3)) GTEST_SKIP() << kNoRoom;
  struct Difference {
    const char* field;
    std::function<void(TrainingData&, TrainOptions&, ModelConfig&, uint64_t&)> make;
  };
  const Difference differences[] = {
      {"seed is 43", [](auto&, auto& options, auto&, auto&) { options.seed = 43; }},
      {R"(communication_dtype is "bf16")",
       [](auto&, auto& options, auto&, auto&) {
         options.communication_dtype = CommunicationDType::bfloat16;
       }},
      {"lanes is 4", [](auto&, auto& options, auto&, auto&) { options.lanes = 4; }},
      {"save_freq is 6u", [](auto&, auto& options, auto&, auto&) { options.save_freq.value = 6; }},
      {"after_updates is 5", [](auto&, auto& options, auto&, auto&) { options.after_updates = 5; }},
      {"the training corpus",
       [](auto& data, auto&, auto&, auto&) {
         data.train = copy_corpus(Architecture::encoder_decoder, 60, 3);
       }},
      {"the validation corpus", [](auto& data, auto&, auto&, auto&) { data.valid = nullptr; }},
      {"the model's configuration", [](auto&, auto&, auto& config, auto&) { config.dropout = 0; }},
      {"the checksum of the model's weights", [](auto&, auto&, auto&, auto& seed) { seed = 6; }},
  };
  options_.after_updates = 3;
  for (const Difference& difference : differences) {
    const auto errors = errors_of_ranks(3, [&](int rank, Communicator* group) {
      TrainingData data = data_;
      TrainOptions options = options_;
      options.lanes = 3;
      ModelConfig config = group_config();
      uint64_t seed = 5;
      if (rank == 1) difference.make(data, options, config, seed);
      Rank(data, options, group, std::nullopt, config, seed);
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error) << difference.field;
      EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
      EXPECT_NE(error->message().find("rank 1 differs from rank 0: "), std::string::npos)
          << error->message();
      EXPECT_NE(error->message().find(difference.field), std::string::npos) << error->message();
    }
  }
}

TEST_F(GroupTest, AnUpdateOfTooManyBatchesIsRefused) {
  options_.lanes = 1024;
  options_.gradient_accumulation = 1025;
  try {
    validate(options_);
    FAIL() << "a million batches";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("got 1024 times 1025"), std::string::npos) << error.message();
  }
}

TEST_F(GroupTest, TooFewLanesAreRefused) {
  if (!has_room_for(3)) GTEST_SKIP() << kNoRoom;
  const auto errors = errors_of_ranks(
      3, [&](int, Communicator* group) { Rank(data_, options_, group, std::nullopt); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_NE(error->message().find("lanes is 2 and the group has 3 ranks"), std::string::npos);
  }
}

TEST_F(GroupTest, AnErrorOfOneRankIsThrownByAllAndTheRunGoesOn) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 6;
  options_.valid_freq = {};
  const auto batches = copy_batches(Architecture::encoder_decoder, 4);
  const auto good = [&](int64_t index, PackedBatchHost& batch) {
    batch = batches[static_cast<size_t>(index % 4)];
  };
  const TemporaryDirectory reference;
  {
    Rank alone(data_, options_, nullptr, reference.path());
    alone.run->set_batches(good);
    alone.run->run();
  }
  for_each_rank(2, [&](int number, Communicator* group) {
    Rank rank(data_, options_, group, directory_.path());
    // Update 4 has a token that the model does not know, in the lane of rank 1.
    rank.run->set_batches([&](int64_t index, PackedBatchHost& batch) {
      good(index, batch);
      if (index == 7) batch.target_in[0] = kVocabulary;
    });
    try {
      rank.run->run();
      ADD_FAILURE() << "rank " << number << " has not failed";
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(error.message().starts_with("rank 1: ")) << error.message();
    }
    EXPECT_EQ(rank.run->state().trainer.update, 3);
    rank.run->set_batches(good);
    EXPECT_EQ(rank.run->run().reason, StopReason::limit);
  });
  expect_same_files(reference.path(), directory_.path(), 6, "after an error");
}

TEST_F(GroupTest, ASaveThatFailsFailsOnAllRanks) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.after_updates = 8;
  const std::filesystem::path run = directory_ / "run", away = directory_ / "away";
  for_each_rank(2, [&](int number, Communicator* group) {
    Rank rank(data_, options_, group, run);
    group->barrier();
    if (number == 0) std::filesystem::rename(run, away);
    group->barrier();
    try {
      rank.run->run();
      ADD_FAILURE() << "rank " << number << " has saved";
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_TRUE(error.message().starts_with("rank 0: ")) << error.message();
    }
    group->barrier();
    if (number == 0) std::filesystem::rename(away, run);
    group->barrier();
    EXPECT_EQ(rank.run->run().reason, StopReason::limit);
  });
  EXPECT_TRUE(std::filesystem::exists(run / "ckpt/8/model.safetensors"));
}

TEST_F(GroupTest, ACallbackThatThrowsEndsAllRanks) {
  if (!has_room_for(3)) GTEST_SKIP() << kNoRoom;
  options_.log_freq = {1, PeriodUnit::updates};
  const auto errors = errors_of_ranks(3, [&](int number, Communicator* group) {
    TrainOptions options = options_;
    options.lanes = 3;
    Rank rank(data_, options, group);
    rank.run->run([&](const TrainEvent& event) {
      if (number == 2 && event.update == 3) fail(ErrorCode::io, "test", "no more events");
      return 0;
    });
  });
  for (const int number : {0, 1}) {
    const auto& error = errors[static_cast<size_t>(number)];
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_lost);
    EXPECT_NE(error->message().find("rank 2 has left: [test] no more events"), std::string::npos)
        << error->message();
  }
  EXPECT_EQ(errors[2]->code(), ErrorCode::io);
}

TEST_F(GroupTest, ARankThatHangsEndsAllRanksWithinTheTimeout) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.log_freq = {1, PeriodUnit::updates};
  const auto errors =
      errors_of_ranks(2,
                      [&](int number, Communicator* group) {
                        Rank rank(data_, options_, group);
                        rank.run->run([&](const TrainEvent& event) {
                          if (number == 1 && event.kind == TrainEventKind::log && event.update == 2)
                            std::this_thread::sleep_for(std::chrono::seconds(3));
                          return 0;
                        });
                      },
                      {.start = 60, .wait = 1});
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_lost);
    EXPECT_NE(error->message().find("rank 1 has not come within 1 seconds"), std::string::npos)
        << error->message();
  }
}

TEST_F(GroupTest, WhatNeedsOneRankIsRefused) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  for_each_rank(2, [&](int, Communicator* group) {
    Rank rank(data_, options_, group);
    MemorySink sink;
    EXPECT_THROW(rank.run->write_checkpoint(sink), Error);
    EXPECT_THROW(rank.run->read_checkpoint({}), Error);
  });
}

TEST_F(GroupTest, BatchesThatFitAreTheLeastOfAllRanks) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  options_.batch_fit = true;
  std::atomic<int64_t> chosen[2] = {0, 0};
  for_each_rank(2, [&](int number, Communicator* group) {
    TrainOptions options = options_;
    options.memory_limit = number == 0 ? 64 << 20 : 8 << 20;
    Rank rank(data_, options, group);
    chosen[number] = rank.run->options().batch_tokens;
    EXPECT_EQ(rank.run->run({}, nullptr, 2).reason, StopReason::paused);
  });
  EXPECT_EQ(chosen[0], chosen[1]);
}

}  // namespace
}  // namespace trafo
