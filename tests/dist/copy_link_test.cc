// Links that copy between the GPUs of one process. The copies of these tests are in host memory,
// and done at once.
#include "engine/backend/cuda/copy_link.h"

#include <atomic>
#include <set>

#include "tests/dist/linked_cases.h"

namespace trafo {
namespace {

using namespace testing;

struct HostEnd {
  std::atomic<uint64_t> done{0};
  int offers = 0;
  std::vector<int> taken;  // by rank: takes from it
  std::set<int> marks;
};

struct HostCopies {
  std::atomic<int> open{0}, finished{0};
  std::atomic<bool> fails{false};
};
HostCopies host_copies;

HostEnd& host_end(void* end) {
  return *static_cast<HostEnd*>(end);
}

const cuda::CopyTable& host_table() {
  static const cuda::CopyTable table = [] {
    cuda::CopyTable t{};
    t.streams.set_mark = [](void* end, int32_t mark, cuda::Why) {
      EXPECT_TRUE(mark >= 0 && mark < cuda::kLinkMarks) << mark;
      host_end(end).marks.insert(mark);
      return cuda::kSuccess;
    };
    t.streams.join = [](void*, cuda::Why) { return cuda::kSuccess; };
    t.streams.mark = [](void* end, uint64_t number, int32_t, cuda::Why) {
      host_end(end).done = number;
      return cuda::kSuccess;
    };
    t.streams.done = [](void* end) { return host_end(end).done.load(); };
    t.open_end = [](void*, int32_t size, void** end, cuda::Why) {
      auto* made = new HostEnd;
      made->taken.resize(static_cast<size_t>(size));
      *end = made;
      ++host_copies.open;
      return cuda::kSuccess;
    };
    t.reach = [](void*, const void*, cuda::Why) { return cuda::kSuccess; };
    t.offer = [](void* end, int32_t after, cuda::Why) {
      EXPECT_TRUE(after < 0 || host_end(end).marks.contains(after));
      ++host_end(end).offers;
      return cuda::kSuccess;
    };
    t.take = [](void* end, int32_t rank, const void* peer, const cuda::CopyPiece* pieces,
                int32_t count, cuda::Why why) {
      if (host_copies.fails) {
        std::snprintf(why.text, why.size, "%s", "the cable is cut");
        return cuda::kFailed;
      }
      const int taken = ++host_end(end).taken[static_cast<size_t>(rank)];
      EXPECT_LE(taken, static_cast<const HostEnd*>(peer)->offers);
      for (int32_t i = 0; i < count; ++i)
        std::memcpy(pieces[i].to, pieces[i].from, pieces[i].bytes);
      return cuda::kSuccess;
    };
    t.await_taken = [](void*, int32_t own, const void* peer, cuda::Why) {
      EXPECT_GT(static_cast<const HostEnd*>(peer)->taken[static_cast<size_t>(own)], 0);
      return cuda::kSuccess;
    };
    t.finish = [](void* end, int32_t from) {
      EXPECT_GT(host_end(end).taken[static_cast<size_t>(from)], 0);
      ++host_copies.finished;
    };
    t.close_end = [](void* end) {
      delete &host_end(end);
      --host_copies.open;
    };
    return t;
  }();
  return table;
}

std::vector<std::optional<Error>> errors_over_copies(
    int size, const std::function<void(int, Communicator*)>& body,
    const GroupTimeouts& timeouts = kGenerous, Overlap overlap = Overlap::between_hosts) {
  const GroupId id = new_local_group();
  const auto errors = errors_over_links(
      size,
      [&](int rank) {
        return join_linked_group(join_local_group(id, rank, size, kGenerous),
                                 make_copy_links(host_table()), timeouts, overlap, 1);
      },
      [&](int rank, Communicator* group, Backend&) { body(rank, group); });
  EXPECT_EQ(host_copies.open, 0);
  return errors;
}

TEST(CopyLinks, PiecesArriveInTheirOrder) {
  expect_none(errors_over_copies(3, [](int rank, Communicator* group) {
    EXPECT_STREQ(group->transport(), "local");
    for (int round = 0; round < 200; ++round)
      expect_pieces_in_order(rank, 3, round, [&](const auto& sends, const auto& receives) {
        if (round % 2 == 0) {
          group->exchange(sends, receives);
        } else {
          group->set_mark(round % 3);
          group->exchange_after(round % 3, sends, receives);
          group->join();
        }
        group->check();
      });
    expect_broadcast(rank, group, 2);  // not all ranks send
    group->barrier();                  // nothing is exchanged once a rank has left
  }));
  EXPECT_GT(host_copies.finished, 0);
}

// 240 links, each of which is used in every exchange, with every mark.
TEST(CopyLinks, SixteenRanksExchangeWithEachOther) {
  expect_none(errors_over_copies(16, [](int rank, Communicator* group) {
    ASSERT_EQ(group->marks(), cuda::kLinkMarks);
    for (int round = 0; round < 2 * cuda::kLinkMarks; ++round)
      expect_pieces_in_order(rank, 16, round, [&](const auto& sends, const auto& receives) {
        const int mark = round % cuda::kLinkMarks;
        group->set_mark(mark);
        group->exchange_after(mark, sends, receives);
        group->join();
        group->check();
      });
    expect_broadcast(rank, group, 15);
    group->barrier();
  }));
}

TEST(CopyLinks, ARankThatLeavesEndsTheOthers) {
  const auto errors = errors_over_copies(3, [](int rank, Communicator* group) {
    std::vector<int> values(3, rank);
    for (int round = 0;; ++round) {
      if (rank == 2 && round == 5) fail(ErrorCode::io, "test", "the disk is full");
      group->broadcast(values.data(), sizeof(int), 0);
    }
  });
  for (const size_t rank : {size_t{0}, size_t{1}})
    expect_lost(errors[rank], "rank 2 has left: [test] the disk is full");
}

TEST(CopyLinks, ARankThatDoesNotComeIsNamed) {
  const auto errors =
      errors_over_copies(2,
                         [](int rank, Communicator* group) {
                           if (rank == 1)
                             std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                           int mine = rank, theirs = 0;
                           const SendPiece send{1 - rank, &mine, sizeof mine};
                           const ReceivePiece receive{1 - rank, &theirs, sizeof theirs};
                           group->exchange({&send, 1}, {&receive, 1});
                           group->check();
                         },
                         {.start = 60, .wait = 0.5});
  for (const auto& error : errors) expect_lost(error, "rank 1 has not come within 0.5 seconds");
}

TEST(CopyLinks, ACopyThatFailsEndsAllRanks) {
  host_copies.fails = true;
  const auto errors =
      errors_over_copies(2, [](int, Communicator*) { ADD_FAILURE() << "a rank has joined"; });
  host_copies.fails = false;
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_NE(error->message().find("the cable is cut"), std::string::npos) << error->message();
  }
}

TEST(CopyLinks, PiecesOfDifferentSizesAreAnError) {
  const auto errors = errors_over_copies(2, [](int rank, Communicator* group) {
    int mine[2] = {}, theirs[2] = {};
    const SendPiece send{1 - rank, mine, rank == 0 ? sizeof(int) : sizeof mine};
    const ReceivePiece receive{1 - rank, theirs, sizeof theirs};
    group->exchange({&send, 1}, {&receive, 1});
  });
  ASSERT_TRUE(errors[1]);
  EXPECT_NE(errors[1]->message().find("rank 0 and rank 1 exchange different pieces"),
            std::string::npos)
      << errors[1]->message();
  EXPECT_TRUE(errors[0]);
}

// The shards are exchanged in parts, or parts of the gradient beside the backward pass.
TEST(CopyLinks, SixteenRanksHaveTheBitsOfOne) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.after_updates = 2;
  options.lanes = 16;
  const TemporaryDirectory one;
  Rank(data, options, nullptr, one.path(), sixteen_shards()).run->run();
  for (const Overlap overlap : {Overlap::between_hosts, Overlap::always}) {
    const TemporaryDirectory many;
    expect_none(errors_over_copies(
        16,
        [&](int, Communicator* group) {
          Rank rank(data, options, group, many.path(), sixteen_shards());
          EXPECT_EQ(rank.run->run().reason, StopReason::limit);
          EXPECT_EQ(group->overlaps_backward(), overlap == Overlap::always);
          group->barrier();
        },
        kGenerous, overlap));
    expect_same_files(one.path(), many.path(), 2, overlap == Overlap::always ? "beside" : "after");
  }
}

// The shards are exchanged in parts.
TEST(CopyLinks, TrainingHasTheBitsOfOneRank) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.after_updates = 9;
  for (const int size : {2, 3})
    for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16}) {
      options.lanes = size;
      options.communication_dtype = communication;
      const TemporaryDirectory one, many;
      Rank(data, options, nullptr, one.path()).run->run();
      const auto errors = errors_over_copies(size, [&](int, Communicator* group) {
        Rank rank(data, options, group, many.path());
        EXPECT_EQ(rank.run->run().reason, StopReason::limit);
        EXPECT_GT(TrainingGroup(group).shard_parts(1 << 20), 1);
        group->barrier();
      });
      expect_none(errors);
      expect_same_files(one.path(), many.path(), 9,
                        concat(size, " ranks, ", enum_name(communication)));
    }
}

}  // namespace
}  // namespace trafo
