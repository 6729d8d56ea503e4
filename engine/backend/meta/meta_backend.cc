#include "engine/backend/meta/meta_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/backend/side_stream.h"
#include "engine/memory/cached_blocks.h"
#include "engine/os/memory.h"

namespace trafo {
namespace {

int32_t do_nothing(void*, const void*) {
  return 0;
}

// Address space without memory. Pages are zero when read and get memory when written.
class AddressRanges {
 public:
  AddressRanges() = default;
  ~AddressRanges() {
    for (const Range& range : ranges_) os::unmap_pages(range.begin, range.bytes);
  }
  AddressRanges(const AddressRanges&) = delete;
  AddressRanges& operator=(const AddressRanges&) = delete;

  void* take(size_t bytes) {
    require(bytes <= SIZE_MAX / 2, ErrorCode::out_of_memory, "memory plan", bytes,
            " bytes were asked for");
    const size_t step =
        (bytes + ArenaPlan::kAlignment - 1) / ArenaPlan::kAlignment * ArenaPlan::kAlignment;
    if (ranges_.empty() || step > ranges_.back().bytes - used_) map(step);
    void* at = ranges_.back().begin + used_;
    used_ += step;
    return at;
  }
  // Frees everything, contents included.
  void clear() {
    if (ranges_.empty()) return;
    std::swap(ranges_.front(), ranges_.back());  // the last is the largest
    for (; ranges_.size() > 1; ranges_.pop_back())
      os::unmap_pages(ranges_.back().begin, ranges_.back().bytes);
    os::clear_pages(ranges_.front().begin, ranges_.front().bytes);
    used_ = 0;
  }

 private:
  // Bytes of the first range, and of later ones at most, unless an allocation is larger. Each range
  // has twice the size of the one before it: a process may have few addresses (ulimit -v).
  static constexpr size_t kFirstBytes = size_t{16} << 20, kMostBytes = size_t{1} << 30;
  struct Range {
    std::byte* begin;
    size_t bytes;
  };

  void map(size_t least) {
    ranges_.reserve(ranges_.size() + 1);
    size_t bytes = ranges_.empty() ? kFirstBytes : std::min(2 * ranges_.back().bytes, kMostBytes);
    bytes = std::max(bytes, least);
    void* memory = os::map_pages(bytes, os::Pages::addresses);
    if (!memory) memory = os::map_pages(bytes = least, os::Pages::addresses);
    require(memory != nullptr, ErrorCode::out_of_memory, "memory plan",
            "the system gives no range of ", bytes, " addresses to plan in");
    ranges_.push_back({static_cast<std::byte*>(memory), bytes});
    used_ = 0;
  }

  std::vector<Range> ranges_;  // allocations come from the last one
  size_t used_ = 0;            // bytes of the last range
};

class RecordingBackend final : public MetaBackend, public StreamDevice, public SideStream {
 public:
  RecordingBackend(Device device, int kernels, const Backend* real)
      : device_(device), real_(real), kernels_(static_cast<size_t>(kernels), &do_nothing) {
    set_kernels(kernels_);
  }

  Device device() const override { return device_; }
  MemoryStats memory_stats() const override { return stats_; }
  void reset_peak_memory() override { stats_.peak_bytes = stats_.allocated_bytes; }
  void release_cached_memory() override {}

  void* stream() override { return nullptr; }
  // Public op functions read indices on the host, so small tensors get their contents. Larger ones
  // are only read by kernels.
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
  // As on the device that it represents.
  bool gemm_epilogues(DType dtype) const override {
    return device_.kind == DeviceKind::cuda && dtype == DType::bf16;
  }
  bool groups_gemms(DType dtype) const override {
    return real_ ? real_->groups_gemms(dtype) : gemm_epilogues(dtype);
  }
  int threads() const override { return 1; }
  void set_threads(int) override {}

  bool keeps_data() const override { return false; }
  StreamDevice* stream_device() override {
    return device_.kind == DeviceKind::cpu ? nullptr : this;
  }
  void* allocate_pinned(size_t bytes) override {
    void* memory = std::malloc(bytes);
    require(memory != nullptr, ErrorCode::out_of_memory, "memory plan", "no ", bytes, " bytes");
    return memory;
  }
  void release_pinned(void* pointer) noexcept override { std::free(pointer); }
  void copy_async(void*, const void*, size_t) override {}
  void record(int) override {}
  void wait(int) override {}
  void begin_capture() override {}
  void* end_capture(char* reason, size_t size) override {
    std::snprintf(reason, size, "the meta device has no graphs");
    return nullptr;
  }
  void launch_graph(void*) override {}
  void release_graph(void*) noexcept override {}
  void set_dropout_step(const uint32_t*) override {}
  // Tensors live as long as in a step with a second stream.
  SideStream* side_stream() override { return device_.kind == DeviceKind::cpu ? nullptr : this; }
  void enter_side() override {}
  void leave_side(int) override {}
  void await_side(int) override {}
  void begin_partials(void*, size_t) override {}
  void end_partials() override {}
  void add_partials() override {}
  int64_t record_time() override { return 0; }
  double elapsed(int64_t, int64_t) override { return 0; }
  void forget_times() noexcept override {}
  bool annotates() override { return false; }
  void push_name(const char*, const char*) override {}
  void pop_name() noexcept override {}

  AllocationTrace take_trace() override {
    if (living_.empty()) addresses_.clear();
    living_.clear();
    return std::exchange(trace_, {});
  }

 protected:
  void* allocate_block(size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* at = addresses_.take(bytes);
    living_[at] = trace_.allocated(bytes);
    count(static_cast<int64_t>(CachedBlocks::rounded(bytes)));
    return at;
  }
  void release_block(void* pointer, size_t bytes) noexcept override {
    if (!pointer) return;
    count(-static_cast<int64_t>(CachedBlocks::rounded(bytes)));
    const auto found = living_.find(pointer);
    if (found == living_.end()) return;  // allocated before this trace
    trace_.freed(found->second);
    living_.erase(found);
  }
  // Arenas are not part of a step's allocation sequence.
  void* allocate_exactly(size_t bytes) override {
    count(static_cast<int64_t>(bytes));
    return addresses_.take(bytes);
  }
  void release_exactly(void*, size_t bytes) noexcept override {
    count(-static_cast<int64_t>(bytes));
  }

 private:
  void count(int64_t bytes) {
    stats_.allocated_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  }

  static constexpr size_t kIndexBytes = size_t{1} << 24;

  Device device_;
  const Backend* real_;
  std::vector<KernelFn> kernels_;
  AddressRanges addresses_;
  AllocationTrace trace_;
  std::unordered_map<void*, size_t> living_;
  MemoryStats stats_;
};

}  // namespace

std::shared_ptr<MetaBackend> make_meta_backend(Device device, int kernels, const Backend* real) {
  return std::make_shared<RecordingBackend>(device, kernels, real);
}

}  // namespace trafo
