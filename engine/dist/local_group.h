// A transport between threads of one process, on the CPU or on GPUs of one host.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "engine/dist/communicator.h"

namespace trafo {

// Names a local group: ranks that join with the same id, size and process are one.
using GroupId = std::array<std::byte, 128>;

// A new name. Never the same twice in a process.
GroupId new_local_group();

// Waits for the other ranks, each on a separate thread. INVALID_ARGUMENT: the id names no local
// group of this process, the rank has joined already, or another rank gave another size. PEER_LOST:
// not all have joined within timeouts.start.
std::unique_ptr<Communicator> join_local_group(const GroupId& id, int rank, int size,
                                               const GroupTimeouts& timeouts);

}  // namespace trafo
