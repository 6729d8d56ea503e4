// A group of processes over a wire: its calls, the limits of their waiting, and who is named when
// a rank does not come. The transports MPI and TCP are made of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dist/communicator.h"
#include "engine/dist/process_world.h"

namespace trafo::process {

// After a rank has run out of time it listens this long to others, one of which may know better who
// is missing.
inline constexpr double kGrace = 1;
// Beyond its own limits, a call may wait this long for the wire.
inline constexpr double kStuckSeconds = 10;

// State that the group's own thread, the thread of the wire and callers of abort() share.
struct GroupState {
  GroupState(ProcessWorld& of, uint32_t count, const GroupTimeouts& timeouts)
      : world(of), number(count), timeout(std::max(timeouts.start, timeouts.wait)) {}

  ProcessWorld& world;
  const uint32_t number;  // of the group in this process, counted from 1
  double timeout;
  uint64_t calls = 0;                   // completed; of the thread of the wire
  std::atomic<bool> abandoned = false;  // nobody waits for the call any more
  std::atomic<bool> in_call = false;
  std::mutex mutex;
  bool left = false, told = false;  // under the mutex
  std::string why_left;
};

class ProcessCommunicator : public Communicator {
 public:
  // The wire of the state's world has begun. `name`: of the transport.
  ProcessCommunicator(const char* name, std::shared_ptr<GroupState> state);
  ~ProcessCommunicator() override;

  const char* transport() const override { return name_; }
  void attach(Backend& backend) override;
  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override;
  std::vector<std::string> host_all_gather(std::string_view bytes) override;
  void abort(std::string_view reason) noexcept override;

  std::string why_ended() override;
  void end(std::string_view reason) noexcept override;
  void come_to(uint64_t exchange) override;
  int rank_behind(uint64_t exchange) override;

  // Returns when all ranks have joined, within timeouts.start. VERSION: one has another release.
  void wait_for_all(const GroupTimeouts& timeouts);

 private:
  std::vector<std::string> gather(std::string_view bytes, double seconds, const char* absent);
  void on_wire(std::function<void()> work);
  void leave_now(Notice::Kind kind, const std::string& reason);

  const char* const name_;
  const std::shared_ptr<GroupState> state_;
};

}  // namespace trafo::process
