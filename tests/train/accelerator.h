// Devices for tests: the CPU's kernels behind what the engine takes for an accelerator.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/op_kernel.h"

namespace trafo::testing {

template <int kernel>
int32_t forward_launch(void* stream, const void* params) {
  static_cast<Backend*>(stream)->launch(kernel, "accelerator", params);
  return 0;
}

template <int... kernel>
std::array<KernelFn, kOpKernelCount> forwarding_kernels(std::integer_sequence<int, kernel...>) {
  return {&forward_launch<kernel>...};
}

// Counts how often the host waits for it.
class Accelerator : public Backend {
 public:
  Accelerator() : host_(make_context({DeviceKind::cpu, 0}, 1)) {
    static const auto kernels =
        forwarding_kernels(std::make_integer_sequence<int, kOpKernelCount>());
    set_kernels(kernels);
  }
  ~Accelerator() override { release_arena_memory(); }

  Device device() const override { return {DeviceKind::cuda, 0}; }
  MemoryStats memory_stats() const override { return cpu().memory_stats(); }
  void reset_peak_memory() override { cpu().reset_peak_memory(); }
  void release_cached_memory() override { cpu().release_cached_memory(); }
  void* stream() override { return &cpu(); }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    cpu().copy_from_host(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    ++waits;
    cpu().copy_to_host(host, device, bytes);
  }
  void copy(void* target, const void* source, size_t bytes) override {
    cpu().copy(target, source, bytes);
  }
  void fill_zero(void* target, size_t bytes) override { cpu().fill_zero(target, bytes); }
  void synchronize() override { ++waits; }
  void gemm(const GemmParams& params) override { cpu().gemm(params); }
  int threads() const override { return 1; }
  void set_threads(int) override {}

  int64_t waits = 0;

 protected:
  void* allocate_block(size_t bytes) override { return cpu().allocate(bytes); }
  void release_block(void* pointer, size_t bytes) noexcept override {
    cpu().release(pointer, bytes);
  }
  void* allocate_exactly(size_t bytes) override { return cpu().allocate(bytes); }
  void release_exactly(void* pointer, size_t bytes) noexcept override {
    cpu().release(pointer, bytes);
  }

 private:
  Backend& cpu() const { return host_->backend(); }
  std::unique_ptr<Context> host_;
};

// With what steps that do not wait need, but for graphs: it has none, so contexts on it turn them
// off, and models have no dropout.
class StreamAccelerator final : public Accelerator, public StreamDevice {
 public:
  StreamDevice* stream_device() override { return this; }
  void* allocate_pinned(size_t bytes) override { return std::malloc(bytes); }
  void release_pinned(void* pointer) noexcept override { std::free(pointer); }
  void copy_async(void* target, const void* source, size_t bytes) override {
    std::memcpy(target, source, bytes);
  }
  void record(int event) override { recorded.at(static_cast<size_t>(event)) = true; }
  void wait(int event) override {
    require(!lost, ErrorCode::device_lost, "accelerator", "the device is lost");
    waited.at(static_cast<size_t>(event)) = true;
  }
  void begin_capture() override {}
  void* end_capture(char* reason, size_t size) override {
    if (!records) std::snprintf(reason, size, "this device has no graphs");
    graphs += records;
    return records ? this : nullptr;
  }
  void launch_graph(void*) override {}
  void release_graph(void* graph) noexcept override { graphs -= graph != nullptr; }
  void set_dropout_step(const uint32_t*) override {}

  std::array<bool, kEvents> recorded{}, waited{};
  bool lost = false;     // every wait fails
  bool records = false;  // graphs, of nothing
  int graphs = 0;        // that have not been released
};

}  // namespace trafo::testing
