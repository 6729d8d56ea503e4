#include "engine/backend/plan/plan_backend.h"

#include <sys/mman.h>

#include <cstring>
#include <unordered_map>
#include <vector>

namespace trafo {
namespace {

int32_t do_nothing(void*, const void*) {
  return 0;
}

// Addresses that nothing lies behind until it is written to; read, it is zero.
class AddressRange {
 public:
  static constexpr size_t kBytes = size_t{1} << 42;

  AddressRange() {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, ErrorCode::out_of_memory, "memory plan",
            "the system gives no address range to plan in");
    begin_ = static_cast<std::byte*>(memory);
  }
  ~AddressRange() { munmap(begin_, kBytes); }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  void* take(size_t bytes) {
    const size_t step = (bytes + ArenaPlan::kAlignment - 1) / ArenaPlan::kAlignment;
    require(step <= (kBytes - used_) / ArenaPlan::kAlignment, ErrorCode::out_of_memory,
            "memory plan", "the step allocates more than ", kBytes, " bytes");
    void* at = begin_ + used_;
    used_ += step * ArenaPlan::kAlignment;
    return at;
  }
  // Everything that was taken is gone, contents included.
  void clear() {
    madvise(begin_, used_, MADV_DONTNEED);
    used_ = 0;
  }

 private:
  std::byte* begin_ = nullptr;
  size_t used_ = 0;
};

class NotingBackend final : public PlanBackend {
 public:
  NotingBackend(Device device, int kernels)
      : device_(device), kernels_(static_cast<size_t>(kernels), &do_nothing) {
    set_kernels(kernels_);
  }

  Device device() const override { return device_; }
  MemoryStats memory_stats() const override { return stats_; }
  void reset_peak_memory() override { stats_.peak_bytes = stats_.allocated_bytes; }
  void release_cached_memory() override {}

  void* stream() override { return nullptr; }
  // Indices have to be there, because front doors read them; what a kernel computes with need not.
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    if (bytes > 0 && bytes <= kIndexBytes) std::memcpy(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void copy(void*, const void*, size_t) override {}
  void fill_zero(void*, size_t) override {}
  void synchronize() override {}
  void gemm(const GemmParams&) override {}
  int threads() const override { return 1; }
  void set_threads(int) override {}

  AllocationTrace take_trace() override {
    if (living_.empty()) addresses_.clear();
    living_.clear();
    return std::exchange(trace_, {});
  }

 protected:
  void* allocate_block(size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* at = addresses_.take(bytes);
    living_[at] = trace_.born(bytes);
    stats_.allocated_bytes += static_cast<int64_t>(bytes);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
    return at;
  }
  void release_block(void* pointer, size_t bytes) noexcept override {
    if (!pointer) return;
    stats_.allocated_bytes -= static_cast<int64_t>(bytes);
    const auto found = living_.find(pointer);
    if (found == living_.end()) return;  // older than the trace
    trace_.died(found->second);
    living_.erase(found);
  }
  void* allocate_exactly(size_t bytes) override { return allocate_block(bytes); }
  void release_exactly(void* pointer, size_t bytes) noexcept override {
    release_block(pointer, bytes);
  }

 private:
  static constexpr size_t kIndexBytes = size_t{1} << 24;

  Device device_;
  std::vector<KernelFn> kernels_;
  AddressRange addresses_;
  AllocationTrace trace_;
  std::unordered_map<void*, size_t> living_;
  MemoryStats stats_;
};

}  // namespace

std::shared_ptr<PlanBackend> make_plan_backend(Device device, int kernels) {
  return std::make_shared<NotingBackend>(device, kernels);
}

}  // namespace trafo
