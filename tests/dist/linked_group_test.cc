// Groups over links between devices. The links of these tests are threads that copy host memory.
#include "engine/dist/linked_group.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "engine/backend/cuda/nccl_link.h"
#include "tests/dist/linked_cases.h"

namespace trafo {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// State that the links of a group share, and their behaviour.
struct Wire {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> sent;  // from, to
  int joined = 0;

  std::atomic<int> opened{0}, aborted{0};
  std::atomic<bool> asynchronous{false};  // exchanges are issued before they are done
  std::atomic<int> delay_ms{0};           // of each piece that is received
  std::atomic<int> broken_rank{-1};       // whose link reports an error
  std::atomic<int> absent_rank{-1};       // who never finishes joining
  std::atomic<int> refused_rank{-1};      // who has no links
  std::atomic<int> unopened_rank{-1};     // whose link cannot be opened
  std::atomic<int> starved_rank{-1};      // whose link finds no memory when an exchange begins
};

// A device that works on its own, in order. The ranks of a test begin their exchanges in the same
// order, but not at the same time.
class WireLink final : public PeerLink {
 public:
  WireLink(Wire& wire, int rank, int size) : wire_(wire), rank_(rank), size_(size) {
    ++wire_.opened;
    {
      const std::lock_guard lock(wire_.mutex);
      if (rank != wire_.absent_rank) ++wire_.joined;
    }
    device_ = std::thread([this] { work(); });
  }
  ~WireLink() override {
    abort();
    device_.join();
  }

  void begin_exchange(std::span<const PeerPiece> pieces, int after) override {
    if (rank_ == wire_.starved_rank) throw std::bad_alloc();
    EXPECT_TRUE(after < 0 || marked_.contains(after));
    const std::lock_guard lock(wire_.mutex);
    stream_.push_back({{pieces.begin(), pieces.end()}, 0});
    ++begun_;
    wire_.changed.notify_all();
  }
  bool issued() override {
    require(rank_ != wire_.broken_rank, ErrorCode::internal, "wire", "the cable is cut");
    const std::lock_guard lock(wire_.mutex);
    return wire_.joined >= size_ && (wire_.asynchronous || finished_ == begun_);
  }
  // The work that a mark waits for is done already: the tests compute on the CPU.
  int marks() const override { return 6; }
  void set_mark(int mark) override { marked_.insert(mark); }
  void join() override {}
  void mark(uint64_t number, bool) override {
    const std::lock_guard lock(wire_.mutex);
    if (finished_ == begun_)
      done_ = number;
    else
      stream_.push_back({{}, number});
    wire_.changed.notify_all();
  }
  uint64_t done() const override { return done_; }
  void abort() noexcept override {
    {
      const std::lock_guard lock(wire_.mutex);
      if (!ended_) ++wire_.aborted;
      ended_ = true;
    }
    wire_.changed.notify_all();
  }

  // As a stream is waited for: until the work is done, or the link aborted.
  void wait(uint64_t number) {
    std::unique_lock lock(wire_.mutex);
    wire_.changed.wait(lock, [&] { return ended_ || done_ >= number; });
  }

 private:
  struct Work {
    std::vector<PeerPiece> pieces;
    uint64_t mark;
  };

  void work() {
    std::unique_lock lock(wire_.mutex);
    while (true) {
      wire_.changed.wait(lock, [this] { return ended_ || !stream_.empty(); });
      if (ended_) return;
      const Work next = stream_.front();
      stream_.pop_front();
      for (const PeerPiece& piece : next.pieces)
        if (!piece.receive)
          wire_.sent[{rank_, piece.peer}].emplace_back(static_cast<const char*>(piece.data),
                                                       piece.bytes);
      wire_.changed.notify_all();
      for (const PeerPiece& piece : next.pieces) {
        if (!piece.receive) continue;
        auto& from = wire_.sent[{piece.peer, rank_}];
        wire_.changed.wait(lock, [&] { return ended_ || !from.empty(); });
        if (ended_) return;
        if (wire_.delay_ms > 0) {
          lock.unlock();
          std::this_thread::sleep_for(milliseconds(wire_.delay_ms));
          lock.lock();
          if (ended_) return;
        }
        EXPECT_EQ(from.front().size(), piece.bytes);
        std::memcpy(piece.data, from.front().data(), piece.bytes);
        from.pop_front();
      }
      if (next.mark != 0)
        done_ = next.mark;
      else
        ++finished_;
      wire_.changed.notify_all();
    }
  }

  Wire& wire_;
  const int rank_, size_;
  std::deque<Work> stream_;
  std::atomic<uint64_t> done_{0};
  std::set<int> marked_;
  int begun_ = 0, finished_ = 0;
  bool ended_ = false;
  std::thread device_;
};

class WireLinks final : public LinkMaker {
 public:
  WireLinks(Wire& wire, int rank) : wire_(wire), rank_(rank) {}
  const char* name() const override { return "wire"; }
  void prepare(const Backend&) override {
    require(rank_ != wire_.refused_rank, ErrorCode::unsupported, "wire", "there is no wire");
  }
  std::string new_id() override { return "the wire"; }
  std::unique_ptr<PeerLink> open(Backend&, std::string_view id, int rank, int size) override {
    EXPECT_EQ(id, "the wire");
    require(rank != wire_.unopened_rank, ErrorCode::out_of_device_memory, "wire", "no memory");
    auto link = std::make_unique<WireLink>(wire_, rank, size);
    newest = link.get();
    return link;
  }
  static thread_local WireLink* newest;

 private:
  Wire& wire_;
  const int rank_;
};
thread_local WireLink* WireLinks::newest = nullptr;

// The parameter says whether the ranks meet over TCP, as processes do, or in this process.
class LinkedGroup : public ::testing::TestWithParam<bool> {
 protected:
  static GroupId new_group() { return GetParam() ? tcp_group() : new_local_group(); }

  std::vector<std::optional<Error>> errors_of(int size, const LinkedBody& body,
                                              const GroupTimeouts& timeouts = kGenerous) {
    const GroupId id = new_group();
    return errors_over_links(
        size,
        [&](int rank) {
          return join_linked_group(join_group(id, rank, size, kGenerous),
                                   std::make_unique<WireLinks>(wire_, rank), timeouts, overlap_, 1);
        },
        body);
  }
  static void swap_numbers(int rank, Communicator* group, int& mine, int& theirs) {
    const SendPiece send{1 - rank, &mine, sizeof mine};
    const ReceivePiece receive{1 - rank, &theirs, sizeof theirs};
    group->exchange({&send, 1}, {&receive, 1});
  }

  Wire wire_;
  Overlap overlap_ = Overlap::always;
};

TEST_P(LinkedGroup, PiecesArriveInTheirOrder) {
  expect_none(errors_of(3, [](int rank, Communicator* group, Backend&) {
    EXPECT_STREQ(group->transport(), "wire");
    for (int round = 0; round < 50; ++round)
      expect_pieces_in_order(rank, 3, round, [&](const auto& sends, const auto& receives) {
        group->exchange(sends, receives);
        group->check();
      });
    expect_broadcast(rank, group, 2);
    group->exchange({}, {});
    EXPECT_EQ(group->host_all_gather("x").size(), 3u);
  }));
  EXPECT_EQ(wire_.opened, 3);
}

TEST_P(LinkedGroup, SixteenRanksExchangeWithEachOther) {
  expect_none(errors_of(16, [](int rank, Communicator* group, Backend&) {
    for (int round = 0; round < 8; ++round)
      expect_pieces_in_order(rank, 16, round, [&](const auto& sends, const auto& receives) {
        group->exchange(sends, receives);
        group->check();
      });
    EXPECT_EQ(group->host_all_gather("x").size(), 16u);
  }));
}

TEST_P(LinkedGroup, AnExchangeNeedsADevice) {
  const GroupId id = new_group();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = join_linked_group(join_group(id, rank, 2, kGenerous),
                                           std::make_unique<WireLinks>(wire_, rank), kGenerous);
      int mine = rank, theirs = -1;
      try {
        swap_numbers(rank, group.get(), mine, theirs);
        ADD_FAILURE() << "nothing was attached";
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("a device must be attached"), std::string::npos)
            << error.message();
      }
      group->barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(LinkedGroup, AnExchangeDoesNotWaitForTheDevice) {
  wire_.delay_ms = 300;
  expect_none(errors_of(2, [this](int rank, Communicator* group, Backend&) {
    group->barrier();
    wire_.asynchronous = true;
    int mine = 7 + rank, theirs = 0;
    const auto begin = std::chrono::steady_clock::now();
    swap_numbers(rank, group, mine, theirs);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(150));
    WireLinks::newest->wait(2);  // the first one came from attach()
    group->check();
    EXPECT_EQ(theirs, 8 - rank);
  }));
}

// The rank that is done first frees its group, while the other one still receives.
TEST_P(LinkedGroup, ARankThatIsDoneDoesNotTakeFromTheOthers) {
  wire_.delay_ms = 200;
  int numbers[2][2] = {{10, 0}, {11, 0}};
  expect_none(errors_of(2, [&](int rank, Communicator* group, Backend&) {
    group->barrier();
    wire_.asynchronous = true;
    swap_numbers(rank, group, numbers[rank][0], numbers[rank][1]);
    if (rank == 0) return;
    WireLinks::newest->wait(2);
    std::this_thread::sleep_for(milliseconds(100));
    group->check();
    EXPECT_EQ(numbers[1][1], 10);
  }));
}

TEST_P(LinkedGroup, ARankThatLeavesFreesTheOthersDevices) {
  const auto errors = errors_of(2, [this](int rank, Communicator* group, Backend&) {
    group->barrier();
    wire_.asynchronous = true;
    if (rank == 1) fail(ErrorCode::io, "test", "the disk is full");
    int mine = 1, theirs = 0;
    swap_numbers(rank, group, mine, theirs);
    const auto begin = std::chrono::steady_clock::now();
    WireLinks::newest->wait(2);  // returns although the piece never comes
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    group->check();
  });
  expect_lost(errors[0], "rank 1 has left: [test] the disk is full");
  EXPECT_EQ(errors[1]->code(), ErrorCode::io);
  EXPECT_EQ(wire_.aborted, 2);
}

TEST_P(LinkedGroup, ARankThatDoesNotComeIsNamed) {
  const auto errors = errors_of(3,
                                [this](int rank, Communicator* group, Backend&) {
                                  group->barrier();
                                  wire_.asynchronous = true;
                                  if (rank == 1) std::this_thread::sleep_for(milliseconds(2500));
                                  std::vector<int> values(3, rank);
                                  group->broadcast(values.data(), sizeof(int), 1);
                                  WireLinks::newest->wait(2);
                                  group->check();
                                  group->barrier();
                                },
                                {.start = 60, .wait = 1});
  for (const auto& error : errors) expect_lost(error, "rank 1 has not come within 1 seconds");
}

// All ranks have come, but the devices do not finish.
TEST_P(LinkedGroup, AnExchangeThatHangsEndsAllRanks) {
  const auto errors = errors_of(2,
                                [this](int rank, Communicator* group, Backend&) {
                                  group->barrier();
                                  wire_.asynchronous = true;
                                  wire_.delay_ms = 5000;
                                  int mine = 1, theirs = 0;
                                  swap_numbers(rank, group, mine, theirs);
                                  WireLinks::newest->wait(2);
                                  group->check();
                                },
                                {.start = 60, .wait = 1});
  for (const auto& error : errors)
    expect_lost(error, "an exchange over wire has not ended within 1 seconds");
}

TEST_P(LinkedGroup, AnErrorOfTheLinkEndsAllRanks) {
  int numbers[2][2] = {};  // the devices may write to them until the links are gone
  const auto errors = errors_of(2, [&](int rank, Communicator* group, Backend&) {
    group->barrier();
    wire_.broken_rank = 1;
    while (true) {
      swap_numbers(rank, group, numbers[rank][0], numbers[rank][1]);
      group->check();
    }
  });
  expect_lost(errors[0], "rank 1 has left: [wire] the cable is cut");
  ASSERT_TRUE(errors[1]);
  EXPECT_NE(errors[1]->message().find("the cable is cut"), std::string::npos);
}

// The rank that has no memory continues: the group has ended at once, with the reason.
TEST_P(LinkedGroup, ALackOfMemoryEndsAllRanks) {
  int numbers[2][2] = {};  // the devices may write to them until the links are gone
  const auto errors = errors_of(2, [&](int rank, Communicator* group, Backend&) {
    group->barrier();
    wire_.asynchronous = true;
    wire_.starved_rank = 1;
    if (rank == 1) {
      EXPECT_THROW(swap_numbers(rank, group, numbers[rank][0], numbers[rank][1]), std::bad_alloc);
      EXPECT_EQ(group->why_ended(), std::bad_alloc().what());
      return group->check();
    }
    for (int round = 0; round < 5000; ++round) {
      swap_numbers(rank, group, numbers[rank][0], numbers[rank][1]);
      group->check();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  expect_lost(errors[0], concat("rank 1 has left: ", std::bad_alloc().what()));
  expect_lost(errors[1], std::bad_alloc().what());
}

TEST_P(LinkedGroup, JoiningEndsWithinItsTimeout) {
  wire_.absent_rank = 1;
  const auto errors =
      errors_of(2, [](int, Communicator*, Backend&) { ADD_FAILURE(); }, {.start = 1, .wait = 60});
  for (const auto& error : errors) expect_lost(error, "within 1 seconds");
}

TEST_P(LinkedGroup, ARankWithoutLinksIsNamedByAll) {
  wire_.refused_rank = 1;
  const auto errors = errors_of(3, [](int, Communicator*, Backend&) { ADD_FAILURE(); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::unsupported);
    EXPECT_NE(error->message().find("rank 1: there is no wire"), std::string::npos)
        << error->message();
  }
}

// The ranks that have a link already give it up, with no thread that watches it.
TEST_P(LinkedGroup, ALinkThatCannotBeOpenedIsNamedByAll) {
  wire_.unopened_rank = 1;
  const auto errors = errors_of(3, [](int, Communicator*, Backend&) { ADD_FAILURE(); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::out_of_device_memory);
    EXPECT_NE(error->message().find("rank 1: no memory"), std::string::npos) << error->message();
  }
}

TEST_P(LinkedGroup, ANewBackendGetsANewLink) {
  expect_none(errors_of(2, [this](int rank, Communicator* group, Backend& backend) {
    group->attach(backend);
    EXPECT_EQ(wire_.opened, 2);
    group->barrier();
    const auto other = make_context({DeviceKind::cpu, 0}, 1);
    group->attach(rank == 0 ? other->backend() : backend);  // one that is new is enough
    EXPECT_EQ(wire_.opened, 4);
    int mine = rank, theirs = 5;
    swap_numbers(rank, group, mine, theirs);
    EXPECT_EQ(theirs, 1 - rank);
    group->barrier();
  }));
}

// With a lane for each rank, parts of the gradient are exchanged as they are complete, or the same
// part of each shard after the backward pass.
TEST_P(LinkedGroup, TrainingHasTheBitsOfOneRank) {
  if (on_gpus()) GTEST_SKIP() << kOfHostMemory;
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.lanes = 3;
  options.gradient_accumulation = 2;  // the last update of an epoch has lanes without batches
  options.after_updates = 9;
  options.ema_alpha = 0.1;
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16}) {
    options.communication_dtype = communication;
    if (communication == CommunicationDType::bfloat16) {
      options.optimizer_states = OptimizerStates::eight_bit;
      options.weight_decay = 0.1;  // not of norms and biases: parameter groups
      options.decay_norms_and_biases = false;
    }
    const TemporaryDirectory one;
    Rank(data, options, nullptr, one.path()).run->run();
    for (const Overlap overlap : {Overlap::always, Overlap::between_hosts}) {
      overlap_ = overlap;
      const TemporaryDirectory three;
      expect_none(errors_of(3, [&](int, Communicator* group, Backend&) {
        Rank rank(data, options, group, three.path());
        EXPECT_EQ(rank.run->run().reason, StopReason::limit);
        EXPECT_EQ(group->overlaps_backward(), overlap == Overlap::always);
        EXPECT_GT(TrainingGroup(group).shard_parts(1 << 20), 1);
        group->barrier();
      }));
      expect_same_files(one.path(), three.path(), 9, enum_name(communication));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, LinkedGroup, ::testing::Bool(),
                         [](const auto& form) { return form.param ? "Tcp" : "Local"; });

TEST(Nccl, TheEnvironmentNamesItByAnAbsolutePath) {
  ASSERT_EQ(setenv("TRAFO_NCCL_LIBRARY", "libnccl.so.2", 1), 0);
  std::string message;
  try {
    load_nccl();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    message = error.message();
  }
  ASSERT_EQ(unsetenv("TRAFO_NCCL_LIBRARY"), 0);
  // Without a plugin this is the first that is missing.
  EXPECT_TRUE(message.find("must be an absolute path") != std::string::npos ||
              message.find("CUDA plugin") != std::string::npos)
      << message;
}

}  // namespace
}  // namespace trafo
