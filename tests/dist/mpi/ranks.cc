// One process of an MPI job, which tests/dist/mpi_test.cc starts with mpirun: mpi_ranks CASE.
// Prints one line: "rank 0: ok" or the error.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/dist/mpi_group.h"
#include "tests/dist/process_cases.h"

namespace trafo {
namespace {

using namespace testing;

constexpr GroupTimeouts kGenerous{.start = 60, .wait = 60};
constexpr GroupTimeouts kShort{.start = 60, .wait = 2};

std::unique_ptr<Communicator> join(const GroupTimeouts& timeouts = kGenerous) {
  return join_mpi_group(mpi_group_id(), -1, 0, timeouts);
}

void move_bytes() {
  for (int round = 0; round < 3; ++round) {  // a process may join one group after the other
    const auto group = join();
    check(std::string_view(group->transport()) == "mpi", "the transport is named");
    move_all_sorts(*group);
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
  if (name == "notices") {
    for (uint64_t exchange = 1; group->rank_behind(1) >= 0; ++exchange) {
      check(exchange < 3000, "notices of other ranks are received");
      group->come_to(exchange);
      sleep_for(0.001);
    }
    group->barrier();
  } else if (name == "late") {
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
