// Moves bytes between the devices of several ranks, in the order of their streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trafo {

class Backend;

// Device memory that goes to rank `peer`, or comes from it.
struct PeerPiece {
  int peer;
  bool receive;
  void* data;
  size_t bytes;
};

// One rank's end. No function waits for another rank. One call at a time, but for done(). Errors
// come from the link, which cannot be used after one.
class PeerLink {
 public:
  // Aborts.
  virtual ~PeerLink() = default;

  // Between two ranks, piece i that one sends is piece i that the other receives, of the same size.
  // `after`: in a second stream, once this mark has passed; negative: in the device's stream.
  virtual void begin_exchange(std::span<const PeerPiece> pieces, int after) = 0;
  // See Communicator. join(): the device's stream waits for the second one.
  virtual int marks() const = 0;
  virtual void set_mark(int mark) = 0;
  virtual void join() = 0;
  // True once the link is joined and all exchanges are in the stream. Until then nothing else may
  // be issued to the stream or exchanged.
  virtual bool issued() = 0;
  // done() is `number` or more once the device has finished the exchanges issued so far, of which
  // the newest is in the second stream if `beside`.
  virtual void mark(uint64_t number, bool beside) = 0;
  virtual uint64_t done() const = 0;
  // Ends what is in the stream, with whatever has been moved. Nothing else may be called after it
  // but done().
  virtual void abort() noexcept = 0;
};

// A way to make links.
class LinkMaker {
 public:
  virtual ~LinkMaker() = default;
  virtual const char* name() const = 0;  // "nccl"
  // UNSUPPORTED if it is not there, or not for this backend.
  virtual void prepare(const Backend& backend) = 0;
  // Of a new set of links: one rank makes it for all.
  virtual std::string new_id() = 0;
  // Begins to join as one rank; see PeerLink::issued(). The backend outlives all calls of the link
  // but the destructor.
  virtual std::unique_ptr<PeerLink> open(Backend& backend, std::string_view id, int rank,
                                         int size) = 0;
};

}  // namespace trafo
