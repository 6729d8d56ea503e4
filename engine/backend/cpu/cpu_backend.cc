#include "engine/backend/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/argument_error.h"
#include "engine/memory/caching_allocator.h"

namespace trafo {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : pool_(threads) {}
  ~CpuBackend() override { release_arena_memory(); }

  Device device() const override { return {DeviceKind::cpu, 0}; }
  MemoryStats memory_stats() const override { return allocator_.stats(); }
  void reset_peak_memory() override { allocator_.reset_peak(); }
  void release_cached_memory() override { allocator_.release_cached(); }

  void* stream() override { return &pool_; }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    copy(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    copy(host, device, bytes);
  }
  void copy(void* target, const void* source, size_t bytes) override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  void fill_zero(void* target, size_t bytes) override {
    if (bytes) std::memset(target, 0, bytes);
  }
  void synchronize() override {}

  void gemm(const GemmParams& params) override {
    if (!packed_weights_ || !packed_weights_->run(pool_, params))
      gemm_cpu(pool_, params, matmul_precision_);
  }
  std::shared_ptr<const PackedWeights> exchange(std::shared_ptr<const PackedWeights> weights) {
    packed_weights_.swap(weights);
    return weights;
  }
  DType exchange(DType matmul_precision) {
    return std::exchange(matmul_precision_, matmul_precision);
  }
  ThreadPool& pool() { return pool_; }
  CachingAllocator& allocator() { return allocator_; }
  const CachingAllocator& allocator() const { return allocator_; }

  int threads() const override { return pool_.threads(); }
  void set_threads(int threads) override { pool_.set_threads(threads); }

 protected:
  void* allocate_block(size_t bytes) override { return allocator_.allocate(bytes); }
  void release_block(void* pointer, size_t bytes) noexcept override {
    allocator_.release(pointer, bytes);
  }
  void* allocate_exactly(size_t bytes) override { return allocator_.allocate_exactly(bytes); }
  void release_exactly(void* pointer, size_t bytes) noexcept override {
    allocator_.release_exactly(pointer, bytes);
  }

 private:
  CachingAllocator allocator_;
  ThreadPool pool_;
  std::shared_ptr<const PackedWeights> packed_weights_;
  DType matmul_precision_ = DType::f32;
};

}  // namespace

std::shared_ptr<Backend> make_cpu_backend(int threads) {
  return std::make_shared<CpuBackend>(threads);
}

ThreadPool* cpu_thread_pool(Backend& backend) {
  auto* cpu = dynamic_cast<CpuBackend*>(&backend);
  return cpu ? &cpu->pool() : nullptr;
}

std::shared_ptr<const PackedWeights> exchange_packed_weights(
    Backend& backend, std::shared_ptr<const PackedWeights> weights) {
  return static_cast<CpuBackend&>(backend).exchange(std::move(weights));
}

void set_matmul_precision(Backend& backend, DType precision, std::string_view origin) {
  auto* cpu = dynamic_cast<CpuBackend*>(&backend);
  const auto refuse = [&](const std::string& reason) {
    throw ArgumentError(ErrorCode::unsupported, std::string(origin), "matmul_precision", reason);
  };
  if (precision == DType::bf16 && cpu == nullptr)
    refuse(concat(" bfloat16 is for the CPU; models on ", device_name(backend.device()),
                  " compute in bfloat16"));
  if (precision == DType::bf16 && !has_bf16_gemm()) refuse(concat(" bfloat16: ", kNoBf16Gemm));
  if (cpu) cpu->exchange(precision);
}

void set_memory_directory(Backend& backend, const std::filesystem::path& directory,
                          std::string_view origin) {
  auto* cpu = dynamic_cast<CpuBackend*>(&backend);
  const auto refuse = [&](ErrorCode code, const std::string& reason) {
    throw ArgumentError(code, std::string(origin), "memory_directory", reason);
  };
  if (cpu == nullptr) refuse(ErrorCode::unsupported, " is for the memory of a CPU");
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    refuse(ErrorCode::not_found, concat(": ", directory.string(), " is no directory"));
  cpu->allocator().set_directory(directory);
}

bool has_memory_directory(const Backend& backend) {
  const auto* cpu = dynamic_cast<const CpuBackend*>(&backend);
  return cpu != nullptr && !cpu->allocator().directory().empty();
}

ExactGemms::ExactGemms(Backend& backend)
    : backend_(dynamic_cast<CpuBackend*>(&backend) ? &backend : nullptr) {
  if (backend_) before_ = static_cast<CpuBackend*>(backend_)->exchange(DType::f32);
}

ExactGemms::~ExactGemms() {
  if (backend_) static_cast<CpuBackend*>(backend_)->exchange(before_);
}

}  // namespace trafo
