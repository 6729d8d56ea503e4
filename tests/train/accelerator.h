// Devices for tests: the CPU's kernels behind what the engine takes for an accelerator.
#pragma once

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/rms_norm/rms_norm.h"

namespace trafo::testing {

// Counts how often the host waits for it, and what it launches.
class Accelerator : public Backend {
 public:
  Accelerator() : host_(make_context({DeviceKind::cpu, 0}, 1)) {
    static const auto kernels = all_kernels();
    set_kernels(kernels);
  }
  ~Accelerator() override { release_arena_memory(); }

  // Of any accelerator.
  static std::array<KernelFn, kOpKernelCount> all_kernels() {
    return kernels_of(std::make_integer_sequence<int, kOpKernelCount>());
  }

  Device device() const override { return {DeviceKind::cuda, 0}; }
  MemoryStats memory_stats() const override { return cpu().memory_stats(); }
  void reset_peak_memory() override { cpu().reset_peak_memory(); }
  void release_cached_memory() override { cpu().release_cached_memory(); }
  void* stream() override { return this; }
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
  int64_t launches = 0;

 protected:
  virtual void run(int kernel, const void* params) {
    ++launches;
    cpu().launch(kernel, "accelerator", params);
  }
  Backend& cpu() const { return host_->backend(); }

  void* allocate_block(size_t bytes) override { return cpu().allocate(bytes); }
  void release_block(void* pointer, size_t bytes) noexcept override {
    cpu().release(pointer, bytes);
  }
  void* allocate_exactly(size_t bytes) override { return cpu().allocate(bytes); }
  void release_exactly(void* pointer, size_t bytes) noexcept override {
    cpu().release(pointer, bytes);
  }

 private:
  template <int kernel>
  static int32_t launch_on(void* stream, const void* params) {
    static_cast<Accelerator*>(stream)->run(kernel, params);
    return 0;
  }
  template <int... kernel>
  static std::array<KernelFn, kOpKernelCount> kernels_of(std::integer_sequence<int, kernel...>) {
    return {&launch_on<kernel>...};
  }

  std::unique_ptr<Context> host_;
};

// With what steps that do not wait need, but for graphs: it has none, so contexts on it turn them
// off.
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
  void set_dropout_step(const uint32_t* step) override { dropout_step_ = step; }
  // Its time is the host's, from a zero of its own.
  int64_t record_time() override {
    require(!lost, ErrorCode::device_lost, "accelerator", "the device is lost");
    times.push_back(std::chrono::steady_clock::now());
    return static_cast<int64_t>(times.size()) - 1;
  }
  double elapsed(int64_t from, int64_t to) override {
    ++times_read;
    return std::chrono::duration<double, std::milli>(times.at(static_cast<size_t>(to)) -
                                                     times.at(static_cast<size_t>(from)))
        .count();
  }
  void forget_times() noexcept override { times.clear(); }
  bool annotates() override { return watched; }
  void push_name(const char* name, const char* kind) override {
    names.push_back(std::string(name) + " " + kind);
    ++open_names;
  }
  void pop_name() noexcept override { --open_names; }

  std::array<bool, kEvents> recorded{}, waited{};
  bool lost = false;     // every wait fails
  bool records = false;  // graphs, of nothing
  int graphs = 0;        // that have not been released
  std::vector<std::chrono::steady_clock::time_point> times;
  int64_t times_read = 0;
  bool watched = false;            // a tool looks on
  std::vector<std::string> names;  // that it was told
  int open_names = 0;

 protected:
  void run(int kernel, const void* params) override {
    switch (static_cast<OpKernel>(kernel)) {
      case OpKernel::dropout_forward:
        return run_at_step<DropoutForwardParams>(kernel, params);
      case OpKernel::dropout_backward:
        return run_at_step<DropoutBackwardParams>(kernel, params);
      case OpKernel::embedding_forward:
        return run_at_step<EmbeddingForwardParams>(kernel, params);
      case OpKernel::embedding_backward:
        return run_at_step<EmbeddingBackwardParams>(kernel, params);
      case OpKernel::attention_forward:
        return run_at_step<AttentionForwardParams>(kernel, params);
      case OpKernel::attention_backward:
        return run_at_step<AttentionBackwardParams>(kernel, params);
      case OpKernel::bias_act_dropout_forward:
        return run_at_step<BiasActDropoutForwardParams>(kernel, params);
      case OpKernel::bias_act_dropout_backward:
        return run_at_step<BiasActDropoutBackwardParams>(kernel, params);
      case OpKernel::bias_dropout_residual_forward:
        return run_at_step<BiasDropoutResidualForwardParams>(kernel, params);
      case OpKernel::bias_dropout_residual_backward:
        return run_at_step<BiasDropoutResidualBackwardParams>(kernel, params);
      case OpKernel::rms_norm_forward:
        return run_at_step<RmsNormForwardParams>(kernel, params);
      case OpKernel::rms_norm_backward:
        return run_at_step<RmsNormBackwardParams>(kernel, params);
      default:
        return Accelerator::run(kernel, params);
    }
  }

 private:
  // As the GPU's kernels count the passes.
  template <class Params>
  void run_at_step(int kernel, const void* params) {
    Params moved = *static_cast<const Params*>(params);
    if (dropout_step_) moved.dropout.step += *dropout_step_;
    Accelerator::run(kernel, &moved);
  }

  const uint32_t* dropout_step_ = nullptr;
};

}  // namespace trafo::testing
