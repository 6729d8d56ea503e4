// Moves bytes between the ranks of a group that trains one model. A communicator adds nothing up,
// so no result depends on its transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/status.h"

namespace trafo {

class Backend;

struct SendPiece {
  int to;
  const void* data;
  size_t bytes;
};
struct ReceivePiece {
  int from;
  void* data;
  size_t bytes;
};

// How long ranks wait for each other, in seconds.
struct GroupTimeouts {
  double start = 300;  // for all of them to join
  double wait = 600;   // for the slowest one in any later call
};

// An error that every rank of a group throws at the same place. The group can go on.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// All functions but abort() are collective: each rank calls them in the same order. They throw
// PEER_LOST, naming the rank where it is known, if a rank has aborted, has died, or does not come
// within the timeout. After that every call throws it. One thread at a time, but for abort(),
// end(), why_ended() and rank_behind().
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual const char* transport() const = 0;  // "local", "nccl"
  // exchange() moves memory of this backend, which outlives the calls.
  virtual void attach(Backend& backend) = 0;

  // Above 1: ranks are numbered host by host, so many on each of several hosts, and what they
  // exchange inside a host is faster than between hosts. Known once a device is attached.
  virtual int ranks_per_host() const { return 1; }

  // Sends and receives pieces of device memory, in the order of the device's stream. Between two
  // ranks, piece i that one sends is piece i that the other receives, of the same size. No rank
  // sends to itself. On the CPU, and in a local group, all pieces are there when it returns.
  // Elsewhere the device may still wait for them; check() says whether they came.
  virtual void exchange(std::span<const SendPiece> sends,
                        std::span<const ReceivePiece> receives) = 0;

  // --- exchanges beside the computation ---
  // Marks, numbered from 0; none: the three functions below may not be called.
  virtual int marks() const { return 0; }
  // The mark passes when all work issued to the device's stream so far is done. Inside a graph that
  // is captured, the mark is set anew by each run of the graph.
  virtual void set_mark(int) {}
  // exchange() on a second stream, once the mark has passed and earlier ones are done. Work that is
  // issued to the device's stream later runs at the same time. It waits for the exchange only after
  // a call of join().
  virtual void exchange_after(int, std::span<const SendPiece>, std::span<const ReceivePiece>) {}
  virtual void join() {}
  // Fewer bytes between two ranks are not worth a separate exchange.
  virtual size_t least_part() const { return 0; }
  // Whether exchanges beside a backward pass make a step faster. Only with marks.
  virtual bool overlaps_backward() const { return false; }

  // The bytes of every rank, which may differ in length, by rank. Host memory.
  virtual std::vector<std::string> host_all_gather(std::string_view bytes) = 0;
  // This rank leaves: the calls of other ranks end with PEER_LOST and `reason`. From any thread.
  virtual void abort(std::string_view reason) noexcept = 0;
  // Not collective. To be called after the host has waited for the device, before it uses what was
  // exchanged until then: throws PEER_LOST if some of that did not come.
  virtual void check() {}

  // For communicators that are built on this one. The defaults are of one that does not know.
  // Why the group has ended; empty: it has not.
  virtual std::string why_ended() { return {}; }
  // All ranks get PEER_LOST with these very words.
  virtual void end(std::string_view reason) noexcept { abort(reason); }
  // This rank has come to its exchange number `exchange`.
  virtual void come_to(uint64_t) {}
  // The first rank that has not come to it; -1: none, or not known.
  virtual int rank_behind(uint64_t) { return -1; }

  // `whole` consists of a part for each rank. The part of rank r has bytes [begins[r], begins[r +
  // 1]). Each rank has its own part; afterwards each has all. Device memory. With several ranks a
  // host, a part goes to one rank of each other host, which passes it on.
  void all_gather(void* whole, std::span<const size_t> begins);
  // Of each rank's part, these bytes [begin, end) of `whole` alone, with exchange_after().
  using ByteRange = std::pair<size_t, size_t>;
  void all_gather_after(int mark, void* whole, std::span<const ByteRange> ranges);
  // Device memory of rank `root` to all others.
  void broadcast(void* data, size_t bytes, int root);
  // Returns when every rank has called it.
  void barrier() { host_all_gather({}); }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

// INVALID_ARGUMENT unless 0 <= rank < size.
void require_rank(int64_t rank, int64_t size);

// Collective. Throws, on every rank, the error of the lowest rank that has one, with its number:
// "rank 3: ...".
void agree(Communicator& group, const std::optional<Error>& error);
// Runs action() on this rank and agrees on whether it failed. Errors of other types than Error are
// INTERNAL.
template <class Action>
void agree_after(Communicator& group, Action action) {
  std::optional<Error> error;
  try {
    action();
  } catch (const Error& failed) {
    if (failed.code() == ErrorCode::peer_lost) throw;
    error = failed;
  } catch (const std::exception& failed) {
    error = Error(ErrorCode::internal, "group", failed.what());
  }
  agree(group, error);
}

// Collective. Compares what must be the same on all ranks. INVALID_ARGUMENT names the lowest rank
// that differs from rank 0, the first field that differs, and both values.
using GroupField = std::pair<std::string, std::string>;  // name and value
void require_same(Communicator& group, std::span<const GroupField> fields);

}  // namespace trafo
