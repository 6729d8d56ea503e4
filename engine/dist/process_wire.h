// How the processes of a job send each other messages. Used by engine/dist/process_world.h alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace trafo::process {

// Messages of one tag between two ranks come in the order in which they were sent.
enum Tag : int32_t { kHostTag = 1, kDataTag = 2, kNoticeTag = 3 };

struct Request;  // of a send or a receive that may be in flight

inline constexpr int kAnyPeer = -1;
inline constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a message

// One rank's end. All functions are called on one thread. They throw PEER_LOST if the wire itself
// fails. None waits for another rank, but for the destructor, a short time.
class ProcessWire {
 public:
  virtual ~ProcessWire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send or to receive. The memory must stay until test() says that it is done.
  virtual Request* send(const void* data, size_t bytes, int peer, Tag tag) = 0;
  virtual Request* receive(void* data, size_t bytes, int peer, Tag tag) = 0;
  // Whether it is done; then frees the request. received: the bytes of a receive, may be null.
  virtual bool test(Request* request, int64_t* received) = 0;
  struct Message {
    int from;
    int64_t bytes;
  };
  // The first message with this tag that has come from `peer`, which may be kAnyPeer, and that
  // nobody has begun to receive. Not for kDataTag.
  virtual std::optional<Message> probe(int peer, Tag tag) = 0;
  // Moves bytes, or waits a short time until there are some. `times`: how often the caller has
  // waited for the same thing.
  virtual void wait(int times) = 0;

  // The memory of requests that are not done may go away now: no call of a group comes any more.
  virtual void abandon() noexcept = 0;

  struct Lost {
    int peer;
    std::string reason;
  };
  // A rank whose messages have ended, once each. Those that came before can still be received. A
  // wire that does not know, because a launcher ends the job, returns nothing.
  virtual std::optional<Lost> next_lost() { return std::nullopt; }

  ProcessWire(const ProcessWire&) = delete;
  ProcessWire& operator=(const ProcessWire&) = delete;

 protected:
  ProcessWire() = default;
};

}  // namespace trafo::process
