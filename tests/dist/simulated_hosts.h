// A group whose ranks say that they are on several hosts.
#pragma once

#include "tests/dist/group_support.h"

namespace trafo::testing {

// On hosts with `per_host` ranks each. Counts the bytes that this rank sends.
class SimulatedHosts final : public Communicator {
 public:
  SimulatedHosts(Communicator& group, int per_host)
      : Communicator(group.rank(), group.size()), group_(group), per_host_(per_host) {}
  const char* transport() const override { return group_.transport(); }
  void attach(Backend& backend) override { group_.attach(backend); }
  int ranks_per_host() const override { return per_host_; }
  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override {
    for (const SendPiece& piece : sends) {
      sent += piece.bytes;
      if (piece.to / per_host_ != rank() / per_host_) sent_between += piece.bytes;
    }
    group_.exchange(sends, receives);
  }
  std::vector<std::string> host_all_gather(std::string_view bytes) override {
    return group_.host_all_gather(bytes);
  }
  void abort(std::string_view reason) noexcept override { group_.abort(reason); }
  void check() override { group_.check(); }

  size_t sent = 0, sent_between = 0;

 private:
  Communicator& group_;
  int per_host_;
};

}  // namespace trafo::testing
