#include "engine/dist/mpi_group.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "engine/backend/backend.h"
#include "engine/core/version.h"
#include "engine/dist/mpi_world.h"

namespace trafo {
namespace {

using mpi::after;
using mpi::Clock;
using mpi::kMpiOrigin;
using mpi::MpiWorld;
using mpi::Notice;

constexpr std::string_view kMpiMagic = "trafo mpi world";
// After a rank has run out of time it listens this long to others, one of which may know better who
// is missing.
constexpr double kGrace = 1;
// Beyond its own limits, a call may wait this long for MPI.
constexpr double kStuckSeconds = 10;

// What the group's own thread, the thread that calls MPI and those that call abort() share.
struct GroupState {
  uint32_t number = 0;  // of the group in this process
  double timeout = 0;
  uint64_t calls = 0;                   // completed; of the thread that calls MPI
  std::atomic<bool> abandoned = false;  // nobody waits for the call any more
  std::mutex mutex;
  bool left = false, told = false;  // under the mutex
  std::string why_left;
};

// The process is in one group at a time.
std::atomic<bool> in_group{false};
std::atomic<bool> in_call{false};
// The last group that it joined. Groups are joined and MPI is ended one after the other.
std::shared_ptr<GroupState>& last_group() {
  static auto* const last = new std::shared_ptr<GroupState>;  // used at exit
  return *last;
}

// Ends every group of this process: tells the others why, and throws.
[[noreturn]] void leave(GroupState& state, Notice::Kind kind, const std::string& reason) {
  MpiWorld& world = MpiWorld::the();
  world.end(reason);
  bool tells = false;
  {
    const std::lock_guard lock(state.mutex);
    tells = !std::exchange(state.told, true);
  }
  if (tells) {
    world.tell({kind, state.number, state.calls, reason, world.rank()});
    world.flush();
  }
  fail(ErrorCode::peer_lost, kMpiOrigin, reason);
}

// Waits in a call of a group. On the thread that calls MPI.
class CallWait {
 public:
  CallWait(GroupState& state, double seconds, const char* absent)
      : state_(state), seconds_(seconds), absent_(absent), deadline_(after(seconds)) {}

  // Returns when step() is true. missing(): the lowest rank that has not done its part.
  template <class Step, class Missing>
  void until(Step step, Missing missing) {
    for (mpi::Pause pause; !step(); pause()) {
      MpiWorld::the().progress();
      leave_if_aborted();
      leave_if_told();
      if (!grace_ && Clock::now() > deadline_) {
        suspicion_ = concat("rank ", missing(), " ", absent_, " within ", seconds_, " seconds");
        calls_ = state_.calls;
        tell_suspicion();
        grace_ = after(kGrace);
      }
      if (grace_ && Clock::now() > *grace_) leave(state_, Notice::ended, suspicion_);
    }
    if (grace_) leave(state_, Notice::ended, suspicion_);
  }

 private:
  void leave_if_aborted() {
    require(!state_.abandoned, ErrorCode::peer_lost, kMpiOrigin, "the call has ended");
    std::string reason;
    {
      const std::lock_guard lock(state_.mutex);
      if (!state_.left) return;
      reason = state_.why_left;
    }
    leave(state_, Notice::ended, reason);
  }

  // Somebody who has left will not complete this call. One that has completed it may have left
  // since.
  void leave_if_told() {
    for (const Notice& notice : MpiWorld::the().notices()) {
      const bool of_this_group = notice.group == state_.number;
      if (notice.group > state_.number || (of_this_group && notice.calls > state_.calls)) continue;
      if (notice.kind == Notice::freed && !of_this_group) continue;
      const uint64_t calls = of_this_group ? notice.calls : 0;
      if (notice.kind == Notice::suspicion) {
        // The rank that waits in the earliest call knows who has not come to it.
        if (!grace_ || calls < calls_) suspicion_ = notice.text, calls_ = calls;
        if (!grace_) grace_ = after(kGrace);
        continue;
      }
      leave(state_, Notice::ended, notice.text);
    }
  }

  void tell_suspicion() {
    {
      const std::lock_guard lock(state_.mutex);
      if (std::exchange(state_.told, true)) return;
    }
    MpiWorld& world = MpiWorld::the();
    world.tell({Notice::suspicion, state_.number, state_.calls, suspicion_, world.rank()});
  }

  GroupState& state_;
  const double seconds_;
  const char* const absent_;
  const Clock::time_point deadline_;
  std::optional<Clock::time_point> grace_;
  std::string suspicion_;
  uint64_t calls_ = 0;  // of the rank that suspects
};

// The sends and receives of a call. Those of a call that fails stay open. MPI is not called any
// more then, so that it does not write to their memory.
class Requests {
 public:
  void send(const void* data, size_t bytes, int peer, mpi::Tag tag) {
    open_.push_back({MpiWorld::the().send(data, bytes, peer, tag), peer, bytes, false});
  }
  void receive(void* data, size_t bytes, int peer, mpi::Tag tag) {
    open_.push_back({MpiWorld::the().receive(data, bytes, peer, tag), peer, bytes, true});
  }
  bool test_all() {
    std::erase_if(open_, [](const Open& each) {
      return MpiWorld::the().test(each.request, each.bytes, each.is_receive);
    });
    return open_.empty();
  }
  int lowest_peer() const {
    int lowest = MpiWorld::the().size();
    for (const Open& each : open_) lowest = std::min(lowest, each.peer);
    return lowest;
  }

 private:
  struct Open {
    mpi::Request* request;
    int peer;
    size_t bytes;
    bool is_receive;
  };
  std::vector<Open> open_;
};

void exchange_pieces(GroupState& state, std::span<const SendPiece> sends,
                     std::span<const ReceivePiece> receives) {
  constexpr auto kMost = static_cast<size_t>(mpi::kMostBytes);
  Requests requests;
  for (const ReceivePiece& piece : receives)
    for (size_t at = 0; at < piece.bytes; at += kMost)
      requests.receive(static_cast<std::byte*>(piece.data) + at, std::min(kMost, piece.bytes - at),
                       piece.from, mpi::kDataTag);
  for (const SendPiece& piece : sends)
    for (size_t at = 0; at < piece.bytes; at += kMost)
      requests.send(static_cast<const std::byte*>(piece.data) + at,
                    std::min(kMost, piece.bytes - at), piece.to, mpi::kDataTag);
  CallWait(state, state.timeout, "has not come")
      .until([&] { return requests.test_all(); }, [&] { return requests.lowest_peer(); });
  ++state.calls;
}

void gather_texts(GroupState& state, double seconds, const char* absent, const std::string& own,
                  std::vector<std::string>& all) {
  MpiWorld& world = MpiWorld::the();
  require(own.size() <= static_cast<size_t>(mpi::kMostBytes), ErrorCode::unsupported, kMpiOrigin,
          "a rank may gather ", mpi::kMostBytes, " bytes, not ", own.size());
  Requests requests;
  all.resize(static_cast<size_t>(world.size()));
  all[static_cast<size_t>(world.rank())] = own;
  std::vector<int> awaited;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    requests.send(own.data(), own.size(), peer, mpi::kHostTag);
    awaited.push_back(peer);
  }
  const auto step = [&] {
    std::erase_if(awaited, [&](int peer) {
      const int64_t size = world.probe(peer, mpi::kHostTag);
      if (size < 0) return false;
      std::string& text = all[static_cast<size_t>(peer)];
      text.resize(static_cast<size_t>(size));
      requests.receive(text.data(), text.size(), peer, mpi::kHostTag);
      return true;
    });
    return requests.test_all() && awaited.empty();
  };
  CallWait(state, seconds, absent).until(step, [&] {
    return awaited.empty() ? requests.lowest_peer() : awaited.front();
  });
  ++state.calls;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(int rank, int size, std::shared_ptr<GroupState> state)
      : Communicator(rank, size), state_(std::move(state)) {}
  ~MpiCommunicator() override {
    try {
      leave_now(Notice::freed, concat("rank ", rank(), " has left: its group was freed"));
    } catch (const std::exception&) {  // MPI fails, or no memory: the others run out of time
    }
    in_group = false;
  }

  const char* transport() const override { return "mpi"; }

  void attach(Backend& backend) override {
    require(backend.device().kind == DeviceKind::cpu, ErrorCode::unsupported, kMpiOrigin,
            "the transport MPI moves memory of the CPU, and rank ", rank(), " trains on ",
            device_name(backend.device()), "; train on the CPU, or choose another transport");
  }

  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override {
    in_mpi(
        [state = state_, out = std::vector(sends.begin(), sends.end()),
         in = std::vector(receives.begin(), receives.end())] { exchange_pieces(*state, out, in); });
  }

  std::vector<std::string> host_all_gather(std::string_view bytes) override {
    return gather(bytes, state_->timeout, "has not come");
  }

  std::vector<std::string> gather(std::string_view bytes, double seconds, const char* absent) {
    const auto all = std::make_shared<std::vector<std::string>>();
    in_mpi([state = state_, all, seconds, absent, own = std::string(bytes)] {
      gather_texts(*state, seconds, absent, own, *all);
    });
    return std::move(*all);
  }

  void abort(std::string_view reason) noexcept override {
    try {
      leave_now(Notice::ended, concat("rank ", rank(), " has left: ", reason));
    } catch (const std::exception&) {  // no memory for the words
      MpiWorld::the().end("this rank left");
    }
  }

 private:
  // An error of MPI, or of a call that others do not share, ends the group.
  void in_mpi(std::function<void()> work) {
    MpiWorld& world = MpiWorld::the();
    world.fail_if_ended();
    const double most = state_->timeout + kGrace + kStuckSeconds;
    struct InCall {
      InCall() { in_call = true; }
      ~InCall() { in_call = false; }
    } const here;
    try {
      if (world.thread().run(std::move(work), most)) return;
    } catch (const Error& error) {
      leave_now(Notice::ended, concat("rank ", rank(), " has left: ", error.message()));
      throw;
    } catch (const std::exception& error) {
      leave_now(Notice::ended, concat("rank ", rank(), " has left: ", error.what()));
      throw;
    }
    state_->abandoned = true;
    world.end("MPI has not returned from a call");
    world.fail_if_ended();
  }

  // Tells the others, unless they have been told, and waits a short time for that.
  void leave_now(Notice::Kind kind, const std::string& reason) {
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->left) return;
      state_->left = true;
      state_->why_left = reason;
    }
    MpiWorld& world = MpiWorld::the();
    if (kind != Notice::freed) world.end(reason);
    world.thread().run(
        [state = state_, kind, reason] {
          {
            const std::lock_guard lock(state->mutex);
            if (std::exchange(state->told, true)) return;
          }
          MpiWorld& all = MpiWorld::the();
          all.tell({kind, state->number, state->calls, reason, all.rank()});
          all.flush();
        },
        kGrace);
  }

  std::shared_ptr<GroupState> state_;
};

// At the end of the process, from exit().
void finalize_at_exit() {
  try {
    finalize_mpi();
  } catch (const std::exception&) {
    // The launcher sees that MPI was not finalised, and ends the others. They have a moment to say
    // why they stop.
    std::this_thread::sleep_for(std::chrono::duration<double>(kGrace));
  }
}

void start_world(double seconds) {
  MpiWorld& world = MpiWorld::the();
  const bool started = world.thread().run(
      [&world] {
        if (!world.has_started()) world.start();
      },
      seconds);
  if (!started) {
    world.end(concat("MPI_Init has not ended within ", seconds,
                     " seconds: not every process of the job has called it"));
    world.fail_if_ended();
  }
  static const bool registered = world.is_ours() && std::atexit(finalize_at_exit) == 0;
  (void)registered;
}

}  // namespace

GroupId mpi_group_id() {
  GroupId id{};
  std::memcpy(id.data(), kMpiMagic.data(), kMpiMagic.size());
  return id;
}

std::unique_ptr<Communicator> join_mpi_group(const GroupId& id, int rank, int size,
                                             const GroupTimeouts& timeouts) {
  const bool from_mpi = rank == -1 && size == 0;
  if (!from_mpi) require_rank(rank, size);
  require(id == mpi_group_id(), ErrorCode::invalid_argument, kMpiOrigin,
          "the id is not that of a group of MPI");
  MpiWorld& world = MpiWorld::the();
  world.fail_if_ended();
  require(!in_group.exchange(true), ErrorCode::invalid_argument, kMpiOrigin,
          "this process has joined a group of MPI already");
  try {
    start_world(timeouts.start);
    require(from_mpi || size == world.size(), ErrorCode::invalid_argument, kMpiOrigin,
            "the group has ", size, " ranks, the job of MPI ", world.size(), " processes");
    require(from_mpi || rank == world.rank(), ErrorCode::invalid_argument, kMpiOrigin,
            "the rank is ", rank, ", that of MPI is ", world.rank());
    static uint32_t groups = 0;  // one at a time: in_group
    const auto state = std::make_shared<GroupState>();
    state->number = ++groups;
    state->timeout = std::max(timeouts.start, timeouts.wait);
    last_group() = state;
    auto group = std::make_unique<MpiCommunicator>(world.rank(), world.size(), state);
    const std::vector<std::string> releases =
        group->gather(kVersion, timeouts.start, "has not joined");
    state->timeout = timeouts.wait;
    for (size_t peer = 0; peer < releases.size(); ++peer)
      require(releases[peer] == releases.front(), ErrorCode::version, kMpiOrigin, "rank ", peer,
              " has release ", releases[peer], ", rank 0 has ", releases.front());
    return group;
  } catch (...) {
    in_group = false;
    throw;
  }
}

void finalize_mpi() {
  MpiWorld& world = MpiWorld::the();
  world.fail_if_ended();
  if (!world.has_started() || !world.is_ours()) return;
  if (in_call) world.end("the process ends while a rank is in a call");
  world.fail_if_ended();
  const std::shared_ptr<GroupState> last = last_group();
  const double seconds = last ? last->timeout : GroupTimeouts{}.wait;
  const bool ended = world.thread().run(
      [&world, seconds, last] {
        world.tell({Notice::goodbye, last ? last->number : 0, last ? last->calls : 0,
                    concat("rank ", world.rank(), " has left: it has ended MPI"), world.rank()});
        const auto deadline = after(seconds);
        int missing = 0;
        const auto all_say_goodbye = [&] {
          world.progress();
          std::vector<bool> gone(static_cast<size_t>(world.size()));
          gone[static_cast<size_t>(world.rank())] = true;
          for (const Notice& notice : world.notices()) {
            if (notice.kind == Notice::goodbye) gone[static_cast<size_t>(notice.from)] = true;
            require(notice.kind == Notice::goodbye || notice.kind == Notice::freed,
                    ErrorCode::peer_lost, kMpiOrigin, notice.text);
          }
          missing = static_cast<int>(std::find(gone.begin(), gone.end(), false) - gone.begin());
          return missing == world.size();
        };
        for (mpi::Pause pause; !all_say_goodbye(); pause())
          require(Clock::now() < deadline, ErrorCode::peer_lost, kMpiOrigin, "rank ", missing,
                  " has not ended MPI within ", seconds, " seconds");
        world.flush();
        world.end("MPI has been finalised");
        world.finish();
      },
      seconds + kStuckSeconds);
  if (!ended) world.end("MPI_Finalize has not ended");
  require(ended, ErrorCode::peer_lost, kMpiOrigin, "MPI_Finalize has not ended within ",
          seconds + kStuckSeconds, " seconds");
}

}  // namespace trafo
