// The sum of an update's lanes: its bits, and the bytes that ranks send for it.
#include "engine/train/parallel/lane_sums.h"

#include "tests/dist/simulated_hosts.h"

namespace trafo {
namespace {

using namespace testing;

class LaneSumsTest : public ::testing::Test {
 protected:
  explicit LaneSumsTest(const ModelConfig& config = group_config())
      : config_(config), elements_(make_model(*host_, config, 5)->parameters().flat().numel()) {}

  // The term that a lane adds to element i: of all magnitudes, so that every order has other bits.
  static float value_of(int64_t lane, int64_t i) {
    const auto mixed = static_cast<uint32_t>((lane + 1) * 2654435761u + i * 40503u);
    return static_cast<float>(mixed % 4001) / 1000 * static_cast<float>(1 << i % 11) - 7;
  }

  // The tree over lanes [begin, end), of which the right half may have fewer.
  static float tree(int64_t begin, int64_t end, int64_t i, bool rounds) {
    if (end - begin == 1) {
      const float value = value_of(begin, i);
      return rounds ? BFloat16::from_float(value).to_float() : value;
    }
    int64_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree(begin, begin + half, i, rounds) + tree(begin + half, end, i, rounds);
  }

  // Bytes that rank 0 sends in reduce().
  struct Sent {
    size_t all = 0, between_hosts = 0;
  };
  // Each rank adds its lanes. Compares the shards with the tree.
  Sent add(int size, int64_t lanes, CommunicationDType communication, int per_host = 1) {
    const bool rounds = communication == CommunicationDType::bfloat16;
    Sent sent;
    for_each_rank(size, [&](int rank, Communicator* group) {
      const auto context = make_context(device_of_rank(rank), 1);
      const auto model = make_model(*context, config_, 5);
      ParameterStore& parameters = model->parameters();
      const StepSums losses(*context, DType::f32);
      SimulatedHosts counted(*group, per_host);
      counted.attach(context->backend());
      TrainOptions options;
      options.lanes = lanes;
      options.communication_dtype = communication;
      LaneSums sums(*context, parameters, losses, options, TrainingGroup(&counted));
      for (int update = 0; update < 2; ++update) {  // the second finds memory as the first left it
        std::vector<float> gradient(static_cast<size_t>(elements_));
        for (int64_t lane = sums.own().begin; lane < sums.own().end; ++lane) {
          for (int64_t i = 0; i < elements_; ++i)
            gradient[static_cast<size_t>(i)] = value_of(lane, i + update);
          const Tensor& flat = parameters.flat_grad();
          context->backend().copy_from_host(flat.raw(), gradient.data(), flat.bytes());
          sums.add_lane(lane);
        }
        counted.sent = counted.sent_between = 0;
        sums.reduce(Vote::none);
        const std::vector<float> whole = context->values<float>(parameters.flat_grad().detach());
        int64_t wrong = 0;
        for (int64_t i = sums.shard().begin; i < sums.shard().end; ++i)
          wrong += whole[static_cast<size_t>(i)] != tree(0, lanes, i + update, rounds);
        EXPECT_EQ(wrong, 0) << "rank " << rank << " of " << size << ", " << lanes << " lanes, "
                            << (rounds ? "rounded" : "not rounded") << ", " << per_host
                            << " ranks a host";
      }
      if (rank == 0) sent = {counted.sent, counted.sent_between};
    });
    return sent;
  }

  std::unique_ptr<Context> host_ = make_context({DeviceKind::cpu, 0}, 1);
  const ModelConfig config_;
  const int64_t elements_;
};

class SixteenLaneSumsTest : public LaneSumsTest {
 protected:
  SixteenLaneSumsTest() : LaneSumsTest(sixteen_shards()) {}
};

TEST_F(LaneSumsTest, TheBitsAreThoseOfTheTreeOnAnyNumberOfRanks) {
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16})
    for (const int64_t lanes : {1, 2, 3, 5, 8})
      for (const int size : {1, 2, 3, 4})
        if (size <= lanes && has_room_for(size)) add(size, lanes, communication);
}

// Of five lanes on four ranks, the lanes of the second host are two nodes: one level.
TEST_F(LaneSumsTest, TwoLevelsHaveTheSameBits) {
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16}) {
    for (const int64_t lanes : {4, 5, 8, 12})
      if (has_room_for(4)) add(4, lanes, communication, 2);
    if (has_room_for(6)) add(6, 6, communication, 2);  // three hosts
    if (has_room_for(6)) add(6, 6, communication, 3);  // no nodes: one level
    if (has_room_for(8)) add(8, 16, communication, 4);
  }
}

// In one level, on four hosts of four and on two of eight. Of twenty lanes, none of the hosts has a
// node: one level.
TEST_F(SixteenLaneSumsTest, TheBitsAreThoseOfTheTreeInOneLevelAndInTwo) {
  if (!has_room_for(16)) GTEST_SKIP() << kNoRoom;
  ASSERT_GE(shard_of(0, 16, elements_).count(), kShardElements);
  for (const int per_host : {1, 4, 8}) {
    const Sent sent = add(16, 16, CommunicationDType::float32, per_host);
    EXPECT_EQ((sent.between_hosts < sent.all), (per_host > 1));
  }
  add(16, 16, CommunicationDType::bfloat16, 8);
  add(16, 20, CommunicationDType::bfloat16, 4);
}

// Between two hosts with two ranks each, half the bytes go.
TEST_F(LaneSumsTest, TwoLevelsSendLessBetweenHosts) {
  if (!has_room_for(4)) GTEST_SKIP() << kNoRoom;
  const auto count = [&](int rank) {
    return static_cast<size_t>(shard_of(rank, 4, elements_).count());
  };
  const size_t rows = 2 * 3 * sizeof(float);  // to two ranks
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16}) {
    const size_t element = communication == CommunicationDType::float32 ? 4 : 2;
    EXPECT_EQ(add(4, 4, communication, 1).all,
              (count(1) + count(2) + count(3)) * element + 3 * 3 * sizeof(float));
    // Sums of hosts are float32.
    const Sent two = add(4, 4, communication, 2);
    EXPECT_EQ(two.between_hosts, count(2) * 4 + rows);
    EXPECT_EQ(two.all - two.between_hosts, (count(1) + count(3)) * element + 3 * sizeof(float));
  }
}

TEST_F(LaneSumsTest, PartsAreGatheredOverHosts) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  for_each_rank(6, [&](int rank, Communicator* group) {
    for (const int per_host : {1, 2, 3}) {
      SimulatedHosts hosts(*group, per_host);
      const std::vector<size_t> begins{0, 10, 10, 25, 33, 40, 41};  // rank 1 has nothing
      std::vector<uint8_t> whole(41, 0xff);
      const auto own = static_cast<size_t>(rank);
      for (size_t i = begins[own]; i < begins[own + 1]; ++i) whole[i] = static_cast<uint8_t>(i);
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      hosts.attach(context->backend());
      hosts.all_gather(whole.data(), begins);
      for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i], i) << per_host;
      if (rank != 0 || per_host == 1) continue;
      const size_t others = 6 / static_cast<size_t>(per_host) - 1;
      EXPECT_EQ(hosts.sent_between, 10 * others);
    }
  });
}

TEST(RanksPerHost, HostsHaveEquallyManyOrTheyDoNotCount) {
  EXPECT_EQ(ranks_per_host_of({"a", "a", "b", "b"}), 2);
  EXPECT_EQ(ranks_per_host_of({"a", "a", "a", "b", "b", "b", "c", "c", "c"}), 3);
  const auto sixteen_on = [](size_t hosts) {
    std::vector<std::string> names;
    for (size_t rank = 0; rank < 16; ++rank) names.push_back(concat("host ", rank * hosts / 16));
    return ranks_per_host_of(names);
  };
  EXPECT_EQ(sixteen_on(2), 8);
  EXPECT_EQ(sixteen_on(4), 4);
  EXPECT_EQ(sixteen_on(8), 2);
  EXPECT_EQ(ranks_per_host_of({"a", "a", "a", "a"}), 1);  // one host
  EXPECT_EQ(ranks_per_host_of({"a", "b", "c"}), 1);       // one rank each
  EXPECT_EQ(ranks_per_host_of({"a", "b", "a", "b"}), 1);  // not one host after the other
  EXPECT_EQ(ranks_per_host_of({"a", "a", "b"}), 1);
  EXPECT_EQ(ranks_per_host_of({"a", "a", "b", "c"}), 1);
  EXPECT_EQ(ranks_per_host_of({"a", "a", "b", "b", "b", "b"}), 1);
}

// A lane that is a rank's only one travels in half the bytes, and so does the one of three that is
// not added to another. Sums of lanes are float32.
TEST_F(LaneSumsTest, ALaneInBfloat16IsHalfTheBytes) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  const ElementRange own = shard_of(0, 2, elements_);
  const auto outside = static_cast<size_t>(elements_ - own.count());
  const auto rows = [](size_t nodes) { return (1 + 2 * nodes) * sizeof(float); };
  const auto wide = CommunicationDType::float32, narrow = CommunicationDType::bfloat16;
  EXPECT_EQ(add(2, 2, wide).all, outside * 4 + rows(1));
  EXPECT_EQ(add(2, 2, narrow).all, outside * 2 + rows(1));
  EXPECT_EQ(add(2, 4, wide).all, outside * 4 + rows(1));
  EXPECT_EQ(add(2, 4, narrow).all, outside * 4 + rows(1));
  // Of six lanes rank 0 has 0 + 1 and 2, rank 1 has 3 and 4 + 5.
  EXPECT_EQ(add(2, 6, wide).all, outside * 8 + rows(2));
  EXPECT_EQ(add(2, 6, narrow).all, outside * 6 + rows(2));
}

TEST_F(LaneSumsTest, GradientsInFloat64AreRefused) {
  const auto model = make_model(*host_, group_config(), 5, DType::f64);
  TrainOptions options;
  options.communication_dtype = CommunicationDType::bfloat16;
  try {
    Trainer(*host_, *model, options);
    FAIL() << "float64 on a wire of bfloat16";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("communication_dtype is bf16, and the gradients of this model "
                                   "are float64"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace trafo
