// A transport between devices that does not pass through the host.
#pragma once

#include <memory>

#include "engine/backend/peer_link.h"
#include "engine/dist/communicator.h"

namespace trafo {

// Exchanges device memory over links between the devices, which attach() makes, and everything else
// over `host`. An exchange returns once it is in the stream, so that the host does not wait for the
// device. The group ends if a rank has not issued its part of an exchange, or a device has not
// finished it, within timeouts.wait of this rank's call.
//
// Exchanges beside a backward pass may take multiprocessors from it. Between two H200 with NVLink a
// step was slower with them over NCCL (docs/lab/distributed-notes.md), so that by default ranks of
// one host exchange after it.
enum class Overlap { between_hosts, always };

// Communicator::least_part(): 8 MiB take 0.03 ms on NVLink.
inline constexpr size_t kLeastPart = size_t{8} << 20;

// Communicator::ranks_per_host() of ranks on these hosts, by rank.
int ranks_per_host_of(const std::vector<std::string>& hosts);

std::unique_ptr<Communicator> join_linked_group(std::unique_ptr<Communicator> host,
                                                std::unique_ptr<LinkMaker> links,
                                                const GroupTimeouts& timeouts,
                                                Overlap overlap = Overlap::between_hosts,
                                                size_t least_part = kLeastPart);

}  // namespace trafo
