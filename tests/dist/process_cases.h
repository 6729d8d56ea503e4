// Work of ranks of a group of processes in tests, over any transport.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/dist/communicator.h"

namespace trafo::testing {

inline void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

inline void check(bool holds, const char* what) {
  require(holds, ErrorCode::internal, "test", what);
}

// Pieces of all sizes in both directions, in their order.
inline void exchange(Communicator& group, size_t count) {
  std::vector<int> first(count, 100 * group.rank() + 1), second(1, -group.rank());
  std::vector<std::vector<int>> received(static_cast<size_t>(2 * group.size()));
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    auto& a = received[static_cast<size_t>(2 * peer)];
    auto& b = received[static_cast<size_t>(2 * peer) + 1];
    a.resize(first.size());
    b.resize(second.size());
    sends.push_back({peer, first.data(), first.size() * sizeof(int)});
    sends.push_back({peer, second.data(), second.size() * sizeof(int)});
    receives.push_back({peer, a.data(), a.size() * sizeof(int)});
    receives.push_back({peer, b.data(), b.size() * sizeof(int)});
  }
  group.exchange(sends, receives);
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    const auto& a = received[static_cast<size_t>(2 * peer)];
    check(a == std::vector<int>(count, 100 * peer + 1), "the first piece is that of its rank");
    check(received[static_cast<size_t>(2 * peer) + 1].front() == -peer, "the second piece follows");
  }
}

// Every function of a communicator that moves bytes. Many ranks move less each.
inline void move_all_sorts(Communicator& group) {
  const auto size = static_cast<size_t>(group.size());
  for (const size_t count : {1, 1000, 100'000, 3'000'000})
    if (count * size <= 12'000'000) exchange(group, count);

  const std::vector<std::string> texts =
      group.host_all_gather(std::string(static_cast<size_t>(group.rank()) * 50'000, 'x'));
  for (size_t peer = 0; peer < texts.size(); ++peer)
    check(texts[peer] == std::string(peer * 50'000, 'x'), "texts come by rank");

  std::vector<size_t> begins{0, 3};  // ranks after rank 1 have nothing
  while (begins.size() < static_cast<size_t>(group.size()) + 1) begins.push_back(10);
  std::vector<uint8_t> whole(10, 0xff);
  const auto own = static_cast<size_t>(group.rank());
  for (size_t i = begins[own]; i < begins[own + 1]; ++i) whole[i] = static_cast<uint8_t>(i);
  group.all_gather(whole.data(), begins);
  for (size_t i = 0; i < begins[static_cast<size_t>(group.size())]; ++i)
    check(whole[i] == i, "parts are gathered");

  std::vector<int> values(100'000, group.rank());
  group.broadcast(values.data(), values.size() * sizeof(int), group.size() - 1);
  check(values.front() == group.size() - 1 && values.back() == group.size() - 1,
        "all have what the root has");
  for (size_t i = 0; i < (size > 4 ? 50 : 200); ++i) group.barrier();
}

// A call of ranks 0 and 1 that rank 2 does not come to, while rank 0 is in the next call.
inline void wait_in_different_calls(Communicator& group, double seconds = 8) {
  int mine = group.rank(), theirs = -1;
  if (group.rank() == 0) {
    const SendPiece send{1, &mine, sizeof mine};
    const ReceivePiece receive{1, &theirs, sizeof theirs};
    group.exchange({&send, 1}, {&receive, 1});
  } else if (group.rank() == 1) {
    int other = -1;
    const SendPiece sends[] = {{0, &mine, sizeof mine}, {2, &mine, sizeof mine}};
    const ReceivePiece receives[] = {{0, &theirs, sizeof theirs}, {2, &other, sizeof other}};
    group.exchange(sends, receives);
  } else {
    sleep_for(seconds);
  }
  group.barrier();
}

}  // namespace trafo::testing
