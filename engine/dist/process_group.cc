#include "engine/dist/process_group.h"

#include <algorithm>

#include "engine/backend/backend.h"
#include "engine/core/version.h"

namespace trafo::process {
namespace {

// Ends every group of this process: tells the others why, and throws.
[[noreturn]] void leave(GroupState& state, Notice::Kind kind, std::string reason) {
  ProcessWorld& world = state.world;
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
  fail(ErrorCode::peer_lost, state.world.origin(), reason);
}

// Waits in a call of a group. On the thread of the wire.
class CallWait {
 public:
  CallWait(GroupState& state, double seconds, const char* absent)
      : state_(state), seconds_(seconds), absent_(absent), deadline_(after(seconds)) {}

  // Returns when step() is true. missing(): the lowest rank that has not done its part.
  template <class Step, class Missing>
  void until(Step step, Missing missing) {
    for (int times = 0; !step(); state_.world.wait(times++)) {
      state_.world.progress();
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
    require(!state_.abandoned, ErrorCode::peer_lost, state_.world.origin(), "the call has ended");
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
    for (const Notice& notice : state_.world.notices()) {
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
    ProcessWorld& world = state_.world;
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

// The sends and receives of a call. Those of a call that fails stay open, and the wire forgets
// their memory.
class Requests {
 public:
  explicit Requests(ProcessWorld& world) : world_(world) {}
  ~Requests() {
    if (!open_.empty()) world_.abandon();
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  void send(const void* data, size_t bytes, int peer, Tag tag) {
    open_.push_back({world_.send(data, bytes, peer, tag), peer, bytes, false});
  }
  void receive(void* data, size_t bytes, int peer, Tag tag) {
    open_.push_back({world_.receive(data, bytes, peer, tag), peer, bytes, true});
  }
  bool test_all() {
    std::erase_if(open_, [this](const Open& each) {
      return world_.test(each.request, each.bytes, each.is_receive);
    });
    return open_.empty();
  }
  int lowest_peer() const {
    int lowest = world_.size();
    for (const Open& each : open_) lowest = std::min(lowest, each.peer);
    return lowest;
  }

 private:
  struct Open {
    Request* request;
    int peer;
    size_t bytes;
    bool is_receive;
  };
  ProcessWorld& world_;
  std::vector<Open> open_;
};

void exchange_pieces(GroupState& state, std::span<const SendPiece> sends,
                     std::span<const ReceivePiece> receives) {
  constexpr auto kMost = static_cast<size_t>(kMostBytes);
  Requests requests(state.world);
  for (const ReceivePiece& piece : receives)
    for (size_t at = 0; at < piece.bytes; at += kMost)
      requests.receive(static_cast<std::byte*>(piece.data) + at, std::min(kMost, piece.bytes - at),
                       piece.from, kDataTag);
  for (const SendPiece& piece : sends)
    for (size_t at = 0; at < piece.bytes; at += kMost)
      requests.send(static_cast<const std::byte*>(piece.data) + at,
                    std::min(kMost, piece.bytes - at), piece.to, kDataTag);
  CallWait(state, state.timeout, "has not come")
      .until([&] { return requests.test_all(); }, [&] { return requests.lowest_peer(); });
  ++state.calls;
}

void gather_texts(GroupState& state, double seconds, const char* absent, const std::string& own,
                  std::vector<std::string>& all) {
  ProcessWorld& world = state.world;
  require(own.size() <= static_cast<size_t>(kMostBytes), ErrorCode::unsupported,
          state.world.origin(), "a rank may gather ", kMostBytes, " bytes, not ", own.size());
  Requests requests(world);
  all.resize(static_cast<size_t>(world.size()));
  all[static_cast<size_t>(world.rank())] = own;
  std::vector<int> awaited;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    requests.send(own.data(), own.size(), peer, kHostTag);
    awaited.push_back(peer);
  }
  const auto step = [&] {
    std::erase_if(awaited, [&](int peer) {
      const int64_t size = world.probe(peer, kHostTag);
      if (size < 0) return false;
      std::string& text = all[static_cast<size_t>(peer)];
      text.resize(static_cast<size_t>(size));
      requests.receive(text.data(), text.size(), peer, kHostTag);
      return true;
    });
    return requests.test_all() && awaited.empty();
  };
  CallWait(state, seconds, absent).until(step, [&] {
    return awaited.empty() ? requests.lowest_peer() : awaited.front();
  });
  ++state.calls;
}

}  // namespace

ProcessCommunicator::ProcessCommunicator(const char* name, std::shared_ptr<GroupState> state)
    : Communicator(state->world.rank(), state->world.size()),
      name_(name),
      state_(std::move(state)) {}

ProcessCommunicator::~ProcessCommunicator() {
  try {
    leave_now(Notice::freed, concat("rank ", rank(), " has left: its group was freed"));
  } catch (const std::exception&) {  // the wire fails, or no memory: the others run out of time
  }
}

void ProcessCommunicator::attach(Backend& backend) {
  require(backend.device().kind == DeviceKind::cpu, ErrorCode::unsupported, state_->world.origin(),
          "the transport ", name_, " moves memory of the CPU, and rank ", rank(), " trains on ",
          device_name(backend.device()),
          "; train on the CPU, or join the same id with the transport NCCL");
}

void ProcessCommunicator::exchange(std::span<const SendPiece> sends,
                                   std::span<const ReceivePiece> receives) {
  on_wire(
      [state = state_, out = std::vector(sends.begin(), sends.end()),
       in = std::vector(receives.begin(), receives.end())] { exchange_pieces(*state, out, in); });
}

std::vector<std::string> ProcessCommunicator::host_all_gather(std::string_view bytes) {
  return gather(bytes, state_->timeout, "has not come");
}

std::vector<std::string> ProcessCommunicator::gather(std::string_view bytes, double seconds,
                                                     const char* absent) {
  const auto all = std::make_shared<std::vector<std::string>>();
  on_wire([state = state_, all, seconds, absent, own = std::string(bytes)] {
    gather_texts(*state, seconds, absent, own, *all);
  });
  return std::move(*all);
}

void ProcessCommunicator::wait_for_all(const GroupTimeouts& timeouts) {
  const std::vector<std::string> releases = gather(kVersion, timeouts.start, "has not joined");
  state_->timeout = timeouts.wait;
  for (size_t peer = 0; peer < releases.size(); ++peer)
    require(releases[peer] == releases.front(), ErrorCode::version, state_->world.origin(), "rank ",
            peer, " has release ", releases[peer], ", rank 0 has ", releases.front());
}

void ProcessCommunicator::abort(std::string_view reason) noexcept {
  try {
    end(concat("rank ", rank(), " has left: ", reason));
  } catch (const std::exception&) {  // no memory for the words
    end("a rank left");
  }
}

void ProcessCommunicator::end(std::string_view reason) noexcept {
  try {
    leave_now(Notice::ended, std::string(reason));
  } catch (const std::exception&) {
    state_->world.end("this rank left");
  }
}

std::string ProcessCommunicator::why_ended() {
  const std::string reason = state_->world.why_ended();
  return reason.empty() ? state_->world.why_left(state_->number) : reason;
}

void ProcessCommunicator::come_to(uint64_t exchange) {
  ProcessWorld& world = state_->world;
  world.come_to(exchange);
  world.thread().post([state = state_, exchange] {
    ProcessWorld& all = state->world;
    try {
      all.tell({Notice::came, state->number, exchange, "", all.rank()});
      all.progress();  // frees earlier ones: no other call may come for thousands of exchanges
    } catch (const std::exception& error) {
      all.end(error.what());
    }
  });
}

int ProcessCommunicator::rank_behind(uint64_t exchange) {
  return state_->world.rank_behind(exchange);
}

// An error of the wire, or of a call that others do not share, ends the group.
void ProcessCommunicator::on_wire(std::function<void()> work) {
  ProcessWorld& world = state_->world;
  world.fail_if_ended();
  const double most = state_->timeout + kGrace + kStuckSeconds;
  struct InCall {
    explicit InCall(std::atomic<bool>& flag) : here(flag) { here = true; }
    ~InCall() { here = false; }
    std::atomic<bool>& here;
  } const here(state_->in_call);
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
  world.end(concat("the transport ", name_, " has not returned from a call"));
  world.fail_if_ended();
}

// Tells the others, unless they have been told, and waits a short time for that.
void ProcessCommunicator::leave_now(Notice::Kind kind, const std::string& reason) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->left) return;
    state_->left = true;
    state_->why_left = reason;
  }
  ProcessWorld& world = state_->world;
  if (kind != Notice::freed) world.end(reason);
  world.thread().run(
      [state = state_, kind, reason] {
        {
          const std::lock_guard lock(state->mutex);
          if (std::exchange(state->told, true)) return;
        }
        ProcessWorld& all = state->world;
        all.tell({kind, state->number, state->calls, reason, all.rank()});
        all.flush();
      },
      kGrace);
}

}  // namespace trafo::process
