// Sixteen ranks, more than tests of each part have: no part assumes a smaller number.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <deque>

#include "tests/dist/linked_cases.h"
#include "tests/dist/process_cases.h"
#include "tests/dist/simulated_hosts.h"
#include "tests/dist/tcp_stranger.h"

namespace trafo {
namespace {

using namespace testing;

constexpr int kMany = 16;

TEST(ManyRanks, ALocalGroupMovesBytes) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  for_each_rank(kMany, [](int, Communicator* group) { move_all_sorts(*group); });
}

TEST(ManyRanks, AGroupOverTcpMovesBytes) {
  for_each_rank(
      kMany,
      [](int, Communicator* group) {
        EXPECT_STREQ(group->transport(), "tcp");
        move_all_sorts(*group);
      },
      kGenerous, tcp_group());
}

TEST(ManyRanks, ARankThatLeavesEndsFifteenOthers) {
  for (const GroupId& id : {new_local_group(), tcp_group()}) {
    const auto errors = errors_of_ranks(
        kMany,
        [](int rank, Communicator* group) {
          group->barrier();
          if (rank == 13) return group->abort("the test says so");
          group->barrier();
        },
        kGenerous, id);
    for (int rank = 0; rank < kMany; ++rank)
      if (rank != 13)
        expect_lost(errors[static_cast<size_t>(rank)], "rank 13 has left: the test says so");
  }
}

// The process may open no more descriptors while it is there, but those that release() frees.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    taken_.push_back(dup(STDERR_FILENO));
    few.rlim_cur = static_cast<rlim_t>(taken_.front()) + 1;  // the lowest that was free
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoDescriptors() {
    setrlimit(RLIMIT_NOFILE, &before_);
    while (!taken_.empty()) release();
  }
  void release() {
    close(taken_.back());
    taken_.pop_back();
  }

 private:
  rlimit before_{};
  std::deque<int> taken_;
};

void expect_no_descriptor(const Error& error, const std::string& doing) {
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(error.message().find(doing) != std::string::npos &&
              error.message().find("Too many open files; each rank has a connection to each other "
                                   "rank, so raise the limit of the process (ulimit -n)") !=
                  std::string::npos)
      << error.message();
}

// Waiting for a descriptor would take as long as for a rank that does not come.
TEST(ManyRanks, ACallerWithoutADescriptorSaysSo) {
  const tcp::Address place = tcp::resolve("127.0.0.1", 1).front();
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Error> error;
  {
    const NoDescriptors none;
    try {
      tcp::connect_to(place, tcp::after(5));
    } catch (const Error& failed) {
      error = failed;
    } catch (const tcp::Transient&) {
    }
  }
  ASSERT_TRUE(error);
  expect_no_descriptor(*error, "cannot connect to 127.0.0.1:1");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

// Who has joined already is told, and does not wait for a rank that has gone.
TEST(ManyRanks, AHostWithoutADescriptorTellsItsCallers) {
  const Sha256 key{1, 2, 3};
  tcp::Socket listener = tcp::listen_at("127.0.0.1", 0);
  const tcp::Address place = tcp::resolve("127.0.0.1", tcp::port_of(listener)).front();
  tcp::Host host(std::move(listener), key, 0, kMany, "0.1.0");
  std::optional<Error> error;
  std::thread waits([&] {
    try {
      host.receive_guests(tcp::after(30), 30);
    } catch (const Error& failed) {
      error = failed;
    }
  });
  const Stranger first(place);
  first.prove(key, {1, 0, kMany, 1, "0.1.0"});  // before it accepts another one, the host keeps it
  {
    NoDescriptors none;
    none.release();
    const tcp::Socket second = tcp::connect_to(place, tcp::after(5));
    waits.join();
  }
  ASSERT_TRUE(error);
  expect_no_descriptor(*error, "cannot accept a connection: ");
  const std::string head = first.receive(8);  // a code, and the size of a text
  EXPECT_EQ(head[0], static_cast<char>(ErrorCode::peer_lost));
  EXPECT_EQ(first.receive(static_cast<uint8_t>(head[4])), "rank 0 has left: " + error->message());
}

struct ManyForm {
  const char* name;
  ModelConfig config;
  OptimizerStates states;
  double smoothing;
  CommunicationDType communication;
};

class ManyRanksTest : public ::testing::TestWithParam<ManyForm> {
 protected:
  ManyRanksTest() {
    options_.lanes = kMany;
    options_.optimizer_states = GetParam().states;
    options_.ema_alpha = GetParam().smoothing;
    options_.communication_dtype = GetParam().communication;
    options_.valid_freq = {2, PeriodUnit::updates};  // most ranks have no batch of it
    options_.keep_last = 1;
    options_.keep_best = false;
  }

  void train(int size, const std::filesystem::path& directory, int64_t updates, int per_host = 1) {
    TrainOptions options = options_;
    options.after_updates = updates;
    for_each_rank(size, [&](int, Communicator* group) {
      SimulatedHosts hosts(*group, per_host);
      Rank rank(data_, options, per_host > 1 ? &hosts : group, directory, GetParam().config);
      EXPECT_EQ(rank.run->run().state.trainer.update, updates);
    });
  }

  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
};

// With five shards of weights most of the ranks update none.
INSTANTIATE_TEST_SUITE_P(
    Forms, ManyRanksTest,
    ::testing::Values(ManyForm{"AShardEach", sixteen_shards(), OptimizerStates::float32, 0,
                               CommunicationDType::float32},
                      ManyForm{"FewShards", group_config(), OptimizerStates::eight_bit, 0.05,
                               CommunicationDType::bfloat16}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(ManyRanksTest, CheckpointsAreTheSameFilesAndResumeOnFewerRanks) {
  const int most = has_room_for(kMany) ? kMany : 8;
  if (!has_room_for(most)) GTEST_SKIP() << kNoRoom;
  constexpr int64_t kFirst = 2, kUpdates = 4;
  const TemporaryDirectory one, eight, hosts, first;
  train(1, one.path(), kUpdates);
  train(8, eight.path(), kUpdates);
  expect_same_files(one.path(), eight.path(), kUpdates, "8 ranks");
  train(most, hosts.path(), kUpdates, most / 2);
  expect_same_files(one.path(), hosts.path(), kUpdates, concat(most, " ranks on two hosts"));
  train(most, first.path(), kFirst);
  for (const int size : {1, 8, most}) {
    const TemporaryDirectory second;
    const std::filesystem::path run = second / "run";
    std::filesystem::copy(first.path(), run, std::filesystem::copy_options::recursive);
    train(size, run, kUpdates);
    expect_same_files(one.path(), run, kUpdates, concat(most, " ranks, then ", size));
  }
}

}  // namespace
}  // namespace trafo
