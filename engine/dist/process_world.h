// The processes of a job as one of them sees them: their wire, on a separate thread, and the
// notices that they send each other when one of them fails. Used by engine/dist/process_group.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/core/status.h"
#include "engine/dist/process_wire.h"

namespace trafo::process {

using Clock = std::chrono::steady_clock;
Clock::time_point after(double seconds);

// Runs functions one after the other. A wire may block inside a call when a process is dead or
// hung, so nobody waits for this thread without a limit.
class WorkThread {
 public:
  // Calls idle() in between, about twenty times a second, if there is one.
  explicit WorkThread(std::function<void()> idle = nullptr) : idle_(std::move(idle)) {}
  ~WorkThread() { stop(); }

  void post(std::function<void()> work);
  // Returns when `work` has ended, and rethrows what it threw; false: it has not ended in time.
  // Then it may still run, so it must own what it uses.
  bool run(std::function<void()> work, double seconds);
  // Waits for the work that was posted, and ends the thread.
  void stop() noexcept;

 private:
  void loop();

  const std::function<void()> idle_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

// A message of a process to all others.
struct Notice {
  enum Kind : uint8_t {
    freed,      // its group was freed; it may join another one
    ended,      // its group has failed: it joins no more
    suspicion,  // the same, because another rank has not come: `text` names it
    goodbye,    // it is about to end MPI
    came,       // its device has come to exchange number `calls`; it goes on
  };
  Kind kind = ended;
  uint32_t group = 0;  // the number of the group, counted from 1; 0: all groups
  uint64_t calls = 0;  // that it has completed in the group: it will not complete the next one
  std::string text;
  int from = 0;
};

// All functions but thread(), why_ended(), fail_if_ended(), end(), why_left() and rank_behind() are
// for the thread.
class ProcessWorld {
 public:
  // `origin` of errors. A wire that works `in_background` is served between calls.
  ProcessWorld(const char* origin, bool in_background);
  ~ProcessWorld();

  const char* origin() const { return origin_; }
  WorkThread& thread() { return thread_; }
  // Why no group can be joined any more; empty: there is no such reason.
  std::string why_ended();
  void fail_if_ended();  // PEER_LOST
  void end(std::string_view reason);

  void begin(std::unique_ptr<ProcessWire> wire);  // once
  bool has_begun() const { return wire_ != nullptr; }
  int rank() const { return wire_->rank(); }
  int size() const { return wire_->size(); }

  Request* send(const void* data, size_t bytes, int peer, Tag tag);
  Request* receive(void* data, size_t bytes, int peer, Tag tag);
  // True if the request is done, which frees it. INTERNAL if a receive is not of `expected` bytes.
  bool test(Request* request, size_t expected, bool is_receive);
  // The size of a message of `peer` that has come; below 0: none.
  int64_t probe(int peer, Tag tag);
  void wait(int times) { wire_->wait(times); }
  void abandon() noexcept { wire_->abandon(); }

  // Begins to send a notice to all others.
  void tell(const Notice& notice);
  // Takes in what others have told.
  void progress();
  // The same until what tell() sends is on its way, for a short time.
  void flush();
  const std::vector<Notice>& notices() const { return notices_; }

  // Notices of the others so far. Up to date only if the wire works in the background.
  std::string why_left(uint32_t group);  // the reason of the first that has left; empty: none has
  // The first rank that has not come to this exchange; -1: none.
  int rank_behind(uint64_t exchange);
  void come_to(uint64_t exchange);  // this rank

 private:
  struct Outgoing {
    std::shared_ptr<const std::string> bytes;
    Request* request;
  };
  void take_in(Notice notice);

  const char* const origin_;
  std::mutex mutex_;
  std::string ended_;                                   // under the mutex
  std::vector<uint64_t> came_;                          // under the mutex
  std::vector<std::pair<uint32_t, std::string>> left_;  // under the mutex: group and reason

  std::vector<Outgoing> outgoing_;
  std::vector<Notice> notices_;
  std::unique_ptr<ProcessWire> wire_;
  WorkThread thread_;
};

}  // namespace trafo::process
