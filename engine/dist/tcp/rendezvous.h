// How the ranks of a group find and connect to each other.
#pragma once

#include <string>
#include <vector>

#include "engine/core/sha256.h"
#include "engine/dist/tcp/socket.h"

namespace trafo::tcp {

struct Meeting {
  std::string host;  // where rank 0 listens
  uint16_t port = 0;
  Socket listener;  // of rank 0, if it has one already
  Sha256 key{};
  uint32_t rank = 0, size = 1;
  double seconds = 0;  // for all ranks to come
  std::string release;
};

// A connection to each rank, and none at the own number. Rank 0 waits for the others at its port,
// and tells each where they all listen. Then each rank calls those below it.
// INVALID_ARGUMENT: a rank that has joined already, another size, another token, or something else
// at the port. VERSION: another release. IO: no port. PEER_LOST: not all have come in time.
std::vector<Socket> meet(Meeting meeting);

}  // namespace trafo::tcp
