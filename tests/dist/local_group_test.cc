#include "engine/dist/local_group.h"

#include <chrono>
#include <cstdlib>
#include <numeric>

#include "engine/dist/mpi_group.h"
#include "tests/dist/group_support.h"

namespace trafo {
namespace {

using namespace testing;

TEST(LocalGroup, PiecesArriveInTheirOrder) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  for_each_rank(3, [](int rank, Communicator* group) {
    EXPECT_EQ(group->rank(), rank);
    EXPECT_EQ(group->size(), 3);
    for (int round = 0; round < 50; ++round) {
      const int first = 100 * rank + round, second = -first;
      int received[3][2] = {};
      std::vector<SendPiece> sends;
      std::vector<ReceivePiece> receives;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        sends.push_back({peer, &first, sizeof first});
        sends.push_back({peer, &second, sizeof second});
        receives.push_back({peer, &received[peer][0], sizeof(int)});
        receives.push_back({peer, &received[peer][1], sizeof(int)});
      }
      group->exchange(sends, receives);
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        EXPECT_EQ(received[peer][0], 100 * peer + round);
        EXPECT_EQ(received[peer][1], -100 * peer - round);
      }
    }
  });
}

TEST(LocalGroup, GathersPartsOfAnySize) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  for_each_rank(4, [](int rank, Communicator* group) {
    // Rank 2 has nothing.
    const std::vector<size_t> begins{0, 3, 10, 10, 16};
    std::vector<uint8_t> whole(16, 0xff);
    for (size_t i = begins[static_cast<size_t>(rank)]; i < begins[static_cast<size_t>(rank) + 1];
         ++i)
      whole[i] = static_cast<uint8_t>(i);
    group->all_gather(whole.data(), begins);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i], i);

    std::vector<int> values(100, rank);
    group->broadcast(values.data(), values.size() * sizeof(int), 2);
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 200);

    const std::vector<std::string> texts =
        group->host_all_gather(std::string(static_cast<size_t>(rank), 'x'));
    ASSERT_EQ(texts.size(), 4u);
    for (size_t peer = 0; peer < 4; ++peer) EXPECT_EQ(texts[peer], std::string(peer, 'x'));
    group->barrier();
  });
}

TEST(LocalGroup, ARankThatDoesNotComeIsNamed) {
  const auto errors =
      errors_of_ranks(3,
                      [](int rank, Communicator* group) {
                        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                        group->barrier();
                      },
                      {.start = 60, .wait = 0.3});
  for (const auto& error : errors) {  // rank 1 learns of it when it comes
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_lost);
    EXPECT_NE(error->message().find("rank 1 has not come within 0.3 seconds"), std::string::npos)
        << error->message();
  }
}

TEST(LocalGroup, ARankThatLeavesEndsTheOthers) {
  const auto errors = errors_of_ranks(3, [](int rank, Communicator* group) {
    group->barrier();
    if (rank == 2) return group->abort("the test says so");
    group->barrier();
  });
  for (const int rank : {0, 1}) {
    const auto& error = errors[static_cast<size_t>(rank)];
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_lost);
    EXPECT_NE(error->message().find("rank 2 has left: the test says so"), std::string::npos);
  }
}

TEST(LocalGroup, AllMustJoin) {
  const GroupId id = new_local_group();
  try {
    join_local_group(id, 0, 2, {.start = 0.1});
    FAIL() << "rank 1 has not joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_NE(error.message().find("rank 1 has not joined"), std::string::npos);
  }
}

TEST(LocalGroup, RefusesWhatIsNoGroup) {
  const auto code_of = [](const GroupId& id, int rank, int size) {
    try {
      join_local_group(id, rank, size, {.start = 0.1});
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code_of(GroupId{}, 0, 1), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(new_local_group(), 1, 1), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(new_local_group(), -1, 2), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(new_local_group(), 0, 0), ErrorCode::invalid_argument);
  const GroupId id = new_local_group();
  const auto alone = join_local_group(id, 0, 1, {});
  EXPECT_EQ(code_of(id, 0, 1), ErrorCode::invalid_argument);  // twice
  EXPECT_EQ(code_of(id, 0, 2), ErrorCode::invalid_argument);  // another size
}

// A program on a machine without MPI is told which file it lacks, and goes on.
TEST(LocalGroup, AMissingLibraryOfMpiIsNamed) {
  const char* old = std::getenv("TRAFO_MPI_LIBRARY");
  const std::string before = old ? old : "";
  for (const auto& [path, part] :
       {std::pair("/nonexistent/libtrafo_mpi.so", "/nonexistent/libtrafo_mpi.so"),
        std::pair("libtrafo_mpi.so", "must be an absolute path")}) {
    setenv("TRAFO_MPI_LIBRARY", path, 1);
    try {
      join_mpi_group(mpi_group_id(), -1, 0, kGenerous);
      ADD_FAILURE() << "joined with " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }
  if (old)
    setenv("TRAFO_MPI_LIBRARY", before.c_str(), 1);
  else
    unsetenv("TRAFO_MPI_LIBRARY");
  finalize_mpi();  // there is nothing to end
}

TEST(LocalGroup, AgreesOnTheErrorOfTheLowestRank) {
  const auto errors = errors_of_ranks(3, [](int rank, Communicator* group) {
    agree(*group, std::nullopt);
    std::optional<Error> mine;
    if (rank > 0) mine = Error(ErrorCode::io, "disk", rank == 1 ? "is full" : "is gone");
    agree(*group, mine);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::io);
    EXPECT_EQ(error->message(), "rank 1: is full");
  }
}

TEST(LocalGroup, NamesWhatDiffers) {
  const auto errors = errors_of_ranks(3, [](int rank, Communicator* group) {
    const std::vector<GroupField> same{{"seed", "1"}, {"width", "8"}};
    require_same(*group, same);
    require_same(*group, std::vector<GroupField>{{"seed", "1"}, {"width", rank == 2 ? "16" : "8"}});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error->message(), "rank 2 differs from rank 0: width is 16, on rank 0 it is 8");
  }
}

}  // namespace
}  // namespace trafo
