// A transport between processes that find each other by the address of one of them: no launcher
// and no library of the system is needed. They train on the CPU, or exchange over links between
// their devices (engine/dist/linked_group.h).
#pragma once

#include <memory>
#include <string_view>

#include "engine/dist/local_group.h"

namespace trafo {

// Names the group of the processes that meet at `master`, "HOST:PORT" or "[IPv6]:PORT", where rank
// 0 listens. Every process may make it from the same master and token; or one makes it and gives it
// to the others. The token is a secret of at least 16 bytes: who does not know it cannot join.
// Empty: a new random one. Port 0: this process takes a free one at once, and rank 0 must join in
// it; only with a new token, because no other process makes the same id. INVALID_ARGUMENT: no such
// master or token. UNSUPPORTED: port 0, and there is no libtrafo_tcp.so. IO: there is no free port.
GroupId tcp_group_id(std::string_view master, std::string_view token);
// Of this host alone, with a free port and a new token.
GroupId new_tcp_group();
// Whether an id is one of these.
bool is_tcp_group_id(const GroupId& id);

// Joins as one rank and waits for the others. Opens libtrafo_tcp.so at the first call.
// INVALID_ARGUMENT: the id is another one, the rank has joined already, another rank has another
// size or token, or something else listens at the port of rank 0. UNSUPPORTED: there is no
// libtrafo_tcp.so. IO: rank 0 cannot listen at its port. PEER_LOST: not all have joined within
// timeouts.start.
std::unique_ptr<Communicator> join_tcp_group(const GroupId& id, int rank, int size,
                                             const GroupTimeouts& timeouts);

}  // namespace trafo
