// One process of an MPI job, which tests/dist/mpi_test.cc starts with mpirun: mpi_ranks CASE.
// Prints one line: "rank 0: ok" or the error.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/dist/mpi_group.h"

namespace trafo {
namespace {

constexpr GroupTimeouts kGenerous{.start = 60, .wait = 60};
constexpr GroupTimeouts kShort{.start = 60, .wait = 2};

std::unique_ptr<Communicator> join(const GroupTimeouts& timeouts = kGenerous) {
  return join_mpi_group(mpi_group_id(), -1, 0, timeouts);
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void check(bool holds, const char* what) {
  require(holds, ErrorCode::internal, "test", what);
}

// Pieces of all sizes in both directions, in their order.
void exchange(Communicator& group, size_t count) {
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

void move_bytes() {
  for (int round = 0; round < 3; ++round) {  // a process may join one group after the other
    const auto group = join();
    check(std::string_view(group->transport()) == "mpi", "the transport is named");
    for (const size_t count : {1, 1000, 100'000, 3'000'000}) exchange(*group, count);

    const std::vector<std::string> texts =
        group->host_all_gather(std::string(static_cast<size_t>(group->rank()) * 50'000, 'x'));
    for (size_t peer = 0; peer < texts.size(); ++peer)
      check(texts[peer] == std::string(peer * 50'000, 'x'), "texts come by rank");

    std::vector<size_t> begins{0, 3};  // ranks behind rank 1 have nothing
    while (begins.size() < static_cast<size_t>(group->size()) + 1) begins.push_back(10);
    std::vector<uint8_t> whole(10, 0xff);
    const auto own = static_cast<size_t>(group->rank());
    for (size_t i = begins[own]; i < begins[own + 1]; ++i) whole[i] = static_cast<uint8_t>(i);
    group->all_gather(whole.data(), begins);
    for (size_t i = 0; i < begins[static_cast<size_t>(group->size())]; ++i)
      check(whole[i] == i, "parts are gathered");

    std::vector<int> values(100'000, group->rank());
    group->broadcast(values.data(), values.size() * sizeof(int), group->size() - 1);
    check(values.front() == group->size() - 1 && values.back() == group->size() - 1,
          "all have what the root has");
    for (int i = 0; i < 200; ++i) group->barrier();
  }
}

void refuse_what_is_wrong() {
  const auto code_of = [](const GroupId& id, int rank, int size) {
    try {
      join_mpi_group(id, rank, size, kGenerous);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  check(code_of(GroupId{}, -1, 0) == ErrorCode::invalid_argument, "the id is checked");
  check(code_of(mpi_group_id(), 0, 7) == ErrorCode::invalid_argument, "the size is that of MPI");
  const auto group = join();
  check(code_of(mpi_group_id(), -1, 0) == ErrorCode::invalid_argument, "one group at a time");
  check(code_of(mpi_group_id(), (group->rank() + 1) % group->size(), group->size()) ==
            ErrorCode::invalid_argument,
        "the rank is that of MPI");
  group->barrier();
}

// The lowest rank with an error is named, and the group goes on.
void agree_on_errors() {
  const auto group = join();
  try {
    agree_after(*group, [&] {
      if (group->rank() > 0) fail(ErrorCode::io, "disk", "is full");
    });
  } catch (const AgreedError& error) {
    check(error.message() == "rank 1: is full", "the rank is named");
    return group->barrier();
  }
  check(false, "the error is everybody's");
}

// A call of ranks 0 and 1 that rank 2 does not come to, while rank 0 is in the next call.
void wait_in_different_calls(Communicator& group) {
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
    sleep_for(8);
  }
  group.barrier();
}

void run(const std::string& name) {
  if (name == "bytes") return move_bytes();
  if (name == "refusals") return refuse_what_is_wrong();
  if (name == "agreement") return agree_on_errors();
  if (name == "program's MPI") {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    move_bytes();
    finalize_mpi();  // does nothing: MPI is the program's
    MPI_Finalize();
    return;
  }
  if (name == "program's MPI of one thread") {
    MPI_Init(nullptr, nullptr);
    std::optional<Error> error;
    try {
      join();
    } catch (const Error& refused) {
      error = refused;
    }
    MPI_Finalize();
    if (error) throw *error;
    return;
  }
  if (name == "absent") {
    if (std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")) == 1) return sleep_for(20);
    join({.start = 1, .wait = 1});
    return;
  }
  const auto group = join(name == "late" || name == "calls" || name == "hung" ? kShort : kGenerous);
  group->barrier();
  if (name == "late") {
    if (group->rank() == 1) sleep_for(6);
    group->barrier();
  } else if (name == "calls") {
    wait_in_different_calls(*group);
  } else if (name == "hung") {
    if (group->rank() == 1) raise(SIGSTOP);
    std::vector<int> data(1'000'000, 1);
    group->broadcast(data.data(), data.size() * sizeof(int), 0);
    group->barrier();
  } else if (name == "killed") {
    if (group->rank() == 1) raise(SIGKILL);
    group->barrier();
  } else if (name == "leaves") {
    if (group->rank() == 2) return group->abort("the test says so");
    group->barrier();
  } else if (name == "aborted in a call") {  // by another thread, while the others do not come
    std::thread other([&] {
      sleep_for(0.5);
      if (group->rank() == 0) group->abort("the test says so");
    });
    try {
      if (group->rank() == 0) group->barrier();
      other.join();
    } catch (const Error&) {
      other.join();
      throw;
    }
    group->barrier();  // rank 0 may have done its part of this call
    group->barrier();
  } else if (name == "freed") {
    if (group->rank() == 0) return;
    group->barrier();
  } else {
    fail(ErrorCode::invalid_argument, "test", "there is no case ", name);
  }
}

}  // namespace
}  // namespace trafo

int main(int argc, char** argv) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string who = "rank " + std::string(rank ? rank : "?") + ": ";
  try {
    trafo::run(argc > 1 ? argv[1] : "");
    std::puts((who + "ok").c_str());
    return 0;
  } catch (const trafo::Error& error) {
    std::puts((who + trafo::error_code_name(error.code()) + " " + error.message()).c_str());
    std::fflush(stdout);
    return 0;  // mpirun ends the others when a process fails, before they can say what they saw
  }
}
