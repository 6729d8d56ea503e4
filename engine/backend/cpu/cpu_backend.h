#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

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
// Has GEMMs of float32 multiply float32, as at first, or bfloat16 (gemm_cpu). UNSUPPORTED:
// bfloat16 on another device than the CPU, or on a processor without it.
void set_matmul_precision(Backend& backend, DType precision, std::string_view origin);

// Has tensors of at least CachingAllocator::kFileBlock bytes lie in files of this directory, for
// models that are larger than the memory (engine/core/file_memory.h). NOT_FOUND: there is no such
// directory. UNSUPPORTED: another device than the CPU.
void set_memory_directory(Backend& backend, const std::filesystem::path& directory,
                          std::string_view origin);
bool has_memory_directory(const Backend& backend);

// During its lifetime, GEMMs of float32 multiply float32: for values that are kept, such as merged
// weights. Does nothing on another device than the CPU.
class ExactGemms {
 public:
  explicit ExactGemms(Backend& backend);
  ~ExactGemms();
  ExactGemms(const ExactGemms&) = delete;
  ExactGemms& operator=(const ExactGemms&) = delete;

 private:
  Backend* backend_;  // null: another device
  DType before_ = DType::f32;
};

}  // namespace trafo
