#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace trafo {

// The CPU with a thread pool and a caching allocator of its own. Its stream is the pool.
std::shared_ptr<Backend> make_cpu_backend(int threads);

}  // namespace trafo
