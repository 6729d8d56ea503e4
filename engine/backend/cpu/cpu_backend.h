#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/packed_weights.h"

namespace trafo {

// The CPU with its thread pool and caching allocator. Its stream is the pool.
std::shared_ptr<Backend> make_cpu_backend(int threads);

// Null: `backend` is another one.
ThreadPool* cpu_thread_pool(Backend& backend);
// The packed weights that GEMMs use from now on, null for none; returns those before. `backend`
// is a CPU's.
std::shared_ptr<const PackedWeights> exchange_packed_weights(
    Backend& backend, std::shared_ptr<const PackedWeights> weights);

}  // namespace trafo
