// MPI in this process: its calls, on a thread of their own, and what the processes tell each other
// when one of them fails. Used by engine/dist/mpi_group.cc alone.
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
#include <vector>

#include "engine/core/status.h"
#include "engine/dist/mpi/plugin_api.h"

namespace trafo::mpi {

inline constexpr const char* kMpiOrigin = "mpi";

using Clock = std::chrono::steady_clock;
Clock::time_point after(double seconds);

// Runs functions one after the other. MPI may block inside a call when a process is dead or hung,
// so nobody waits for this thread without a limit.
class MpiThread {
 public:
  void post(std::function<void()> work);
  // Returns when `work` has ended, and rethrows what it threw; false: it has not ended in time.
  // Then it may still run, so it must own what it uses.
  bool run(std::function<void()> work, double seconds);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool begun_ = false;
};

// Waits a little longer each time.
class Pause {
 public:
  void operator()();

 private:
  int times_ = 0;
};

enum Tag : int32_t { kHostTag = 1, kDataTag = 2, kNoticeTag = 3 };

// What a process tells all others, once, when it stops.
struct Notice {
  enum Kind : uint8_t {
    freed,      // its group was freed; it may join another one
    ended,      // its group has failed: it joins no more
    suspicion,  // the same, because another rank has not come: `text` names it
    goodbye,    // it is about to end MPI
  };
  Kind kind = ended;
  uint32_t group = 0;  // the number of the group, counted from 1
  uint64_t calls = 0;  // that it has completed in the group: it will not complete the next one
  std::string text;
  int from = 0;
};

// All functions but the(), thread(), fail_if_ended() and end() are for the thread.
class MpiWorld {
 public:
  static MpiWorld& the();  // never destroyed

  MpiThread& thread() { return thread_; }
  // Why no group can be joined any more; empty: there is no such reason.
  std::string why_ended();
  void fail_if_ended();  // PEER_LOST
  void end(std::string_view reason);

  void start();  // once; loads the plugin before
  bool has_started() const { return size_ > 0; }
  bool is_ours() const { return is_ours_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  Request* send(const void* data, size_t bytes, int peer, Tag tag);
  Request* receive(void* data, size_t bytes, int peer, Tag tag);
  // True if the request is done, which frees it. INTERNAL if a receive is not of `expected` bytes.
  bool test(Request* request, size_t expected, bool is_receive);
  // The size of a message of `peer` that has come; below 0: none.
  int64_t probe(int peer, Tag tag);

  // Begins to send a notice to all others.
  void tell(const Notice& notice);
  // Takes in what others have told.
  void progress();
  // The same until what tell() sends is on its way, for a short time.
  void flush();
  const std::vector<Notice>& notices() const { return notices_; }
  void finish() { check(table_.finish(why_.why())); }

 private:
  void check(int32_t result);  // PEER_LOST with the plugin's reason

  struct WhyText {
    char text[512] = "";
    Why why() { return {text, sizeof text}; }
  };
  struct Outgoing {
    std::shared_ptr<const std::string> bytes;
    Request* request;
  };

  MpiThread thread_;
  std::mutex mutex_;
  std::string ended_;  // under the mutex

  PluginTable table_{};
  WhyText why_;
  int32_t rank_ = 0, size_ = 0, is_ours_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Notice> notices_;
};

}  // namespace trafo::mpi
