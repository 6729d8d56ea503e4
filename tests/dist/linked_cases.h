// Common parts of the tests of groups over links between devices.
#pragma once

#include <array>

#include "tests/dist/group_support.h"

namespace trafo::testing {

using LinkedBody = std::function<void(int rank, Communicator* group, Backend& backend)>;

// The error of each rank, attached to a separate backend. join(rank) returns its group.
inline std::vector<std::optional<Error>> errors_over_links(
    int size, const std::function<std::unique_ptr<Communicator>(int rank)>& join,
    const LinkedBody& body) {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      try {
        const auto group = join(rank);
        try {
          group->attach(context->backend());
          body(rank, group.get(), context->backend());
        } catch (const AgreedError& error) {
          errors[static_cast<size_t>(rank)] = error;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::peer_lost) group->abort(error.what());
          errors[static_cast<size_t>(rank)] = error;
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_none(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}
// PEER_LOST, with these words.
inline void expect_lost(const std::optional<Error>& error, const std::string& words) {
  ASSERT_TRUE(error) << words;
  EXPECT_EQ(error->code(), ErrorCode::peer_lost);
  EXPECT_NE(error->message().find(words), std::string::npos) << error->message();
}

// Each rank sends two numbers to each other rank: they must arrive in the order they were sent in.
// exchange(sends, receives) is the group's.
template <class Exchange>
void expect_pieces_in_order(int rank, int size, int round, const Exchange& exchange) {
  const auto first_of = [round](int of_rank) { return 1000 * of_rank + round; };
  const int first = first_of(rank), second = -first;
  std::vector<std::array<int, 2>> received(static_cast<size_t>(size));
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    for (const int* number : {&first, &second}) sends.push_back({peer, number, sizeof(int)});
    for (int& place : received[static_cast<size_t>(peer)])
      receives.push_back({peer, &place, sizeof(int)});
  }
  exchange(sends, receives);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    EXPECT_EQ(received[static_cast<size_t>(peer)],
              (std::array<int, 2>{first_of(peer), -first_of(peer)}));
  }
}

// The data of rank `root` reaches all.
inline void expect_broadcast(int rank, Communicator* group, int root) {
  std::vector<int> values(100, rank);
  group->broadcast(values.data(), values.size() * sizeof(int), root);
  EXPECT_EQ(values, std::vector<int>(100, root));
}

}  // namespace trafo::testing
