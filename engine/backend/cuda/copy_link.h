// Links between the GPUs of one process: copy engines move the bytes, in the order of the streams.
#pragma once

#include <memory>

#include "engine/backend/cuda/copy_api.h"
#include "engine/backend/peer_link.h"

namespace trafo {

// For ranks that are threads of this process. Copies take no multiprocessors from what runs beside
// them. They are fast where the GPUs can read each other's memory, and pass through the host
// elsewhere.
std::unique_ptr<LinkMaker> make_copy_links();

// The same through these functions, for tests without a GPU. The table must outlive the links.
std::unique_ptr<LinkMaker> make_copy_links(const cuda::CopyTable& table);

}  // namespace trafo
