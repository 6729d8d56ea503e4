// Links between GPUs through NCCL, which libtrafo_cuda.so loads on first use.
#pragma once

#include <memory>

#include "engine/backend/peer_link.h"

namespace trafo {

// UNSUPPORTED if there is no plugin or no NCCL, and where they were looked for. If
// TRAFO_NCCL_LIBRARY is set, NCCL is the file that it names, by an absolute path. Otherwise it is
// libnccl.so.2 beside the plugin, or on the loader's path. Sets NCCL_NVLS_ENABLE=0 in the
// environment unless it is set.
void load_nccl();

std::unique_ptr<LinkMaker> make_nccl_links();

}  // namespace trafo
