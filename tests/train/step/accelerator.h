// Devices for tests: the CPU's kernels, presented to the engine as an accelerator.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/side_stream.h"
#include "engine/backend/tf32.h"
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
  std::function<void(OpKernel, const void* params)> on_launch;  // sees what a kernel is given

 protected:
  virtual void run(int kernel, const void* params) {
    ++launches;
    if (on_launch) on_launch(static_cast<OpKernel>(kernel), params);
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
class StreamAccelerator : public Accelerator,
                          public StreamDevice,
                          public SideStream,
                          public Tf32Device {
 public:
  Tf32Device* tf32_device() override { return this; }
  void set_tf32(bool on) override { tf32 = on; }
  void gemm(const GemmParams& params) override {
    note_overlaps(params);
    ++gemms;
    gemms_in_tf32 += tf32;
    Accelerator::gemm(params);
  }
  bool groups_gemms(DType) const override { return grouping; }
  bool sums_in_gemm(const GemmParams& params, bool /*alone*/) const override {
    return summing && params.dtype == DType::f32 && params.trans_a;
  }
  void grouped_gemm(std::span<const GemmParams> group) override {
    for (const GemmParams& params : group) {
      gemm(params);
      if (!params.a_sums) continue;
      ++sums_in_gemms;
      const auto* a = static_cast<const float*>(params.a);
      auto* sums = static_cast<float*>(params.a_sums);
      for (int64_t i = 0; i < params.m; ++i) {
        float sum = params.accumulate_a_sums ? sums[i] : 0;
        for (int64_t l = 0; l < params.k; ++l) sum += a[l * params.lda + i];
        sums[i] = sum;
      }
    }
  }
  StreamDevice* stream_device() override { return this; }
  void* allocate_pinned(size_t bytes) override {
    void* memory = std::malloc(bytes);
    pinned_.emplace(static_cast<std::byte*>(memory), bytes);
    return memory;
  }
  void release_pinned(void* pointer) noexcept override {
    arrive(started_);
    pinned_.erase(static_cast<std::byte*>(pointer));
    std::free(pointer);
  }
  void copy_async(void* target, const void* source, size_t bytes) override {
    if (!late) {
      std::memcpy(target, source, bytes);
      return;
    }
    const auto* from = static_cast<const std::byte*>(source);
    Copy copy{static_cast<std::byte*>(target), from, {from, from + bytes}, is_pinned(target)};
    for (Copy& other : in_flight_) note_if_changed(other);
    if (copy.to_host)
      std::memset(target, 0xff, bytes);
    else
      std::memcpy(target, source, bytes);
    in_flight_.push_back(std::move(copy));
    ++started_;
  }
  void record(int event) override { marks_.at(static_cast<size_t>(event)) = started_; }
  void wait(int event) override {
    require(!lost, ErrorCode::device_lost, "accelerator", "the device is lost");
    arrive(marks_.at(static_cast<size_t>(event)));
  }
  void synchronize() override {
    arrive(started_);
    Accelerator::synchronize();
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    arrive(started_);
    Accelerator::copy_to_host(host, device, bytes);
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
  // Work on the second stream runs at once. The memory that its GEMMs read and write is noted until
  // it is awaited.
  SideStream* side_stream() override { return this; }
  void enter_side() override { on_side = true; }
  void leave_side(int slot) override {
    on_side = false;
    side_gemms.emplace_back(slot, std::exchange(entered_, {}));
    most_pending = std::max(most_pending, side_gemms.size());
  }
  void await_side(int slot) override {
    const auto awaited = std::find_if(side_gemms.begin(), side_gemms.end(),
                                      [&](const auto& work) { return work.first == slot; });
    require(awaited != side_gemms.end(), ErrorCode::internal, "accelerator", "slot ", slot,
            " is awaited, and nothing has it");
    side_gemms.erase(side_gemms.begin(), awaited + 1);
  }
  // Its kernels have one stage. The memory for partial sums must be there.
  void begin_partials(void* memory, size_t bytes) override { std::memset(memory, 0xff, bytes); }
  void end_partials() override {}
  void add_partials() override {}
  // Its time is the host's, from a separate zero.
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

  bool tf32 = false;
  bool grouping = false;  // groups_gemms()
  bool summing = false;   // sums_in_gemm()
  int64_t sums_in_gemms = 0;
  int64_t gemms = 0, gemms_in_tf32 = 0;

  bool on_side = false;
  // Memory of a GEMM: [begin, end) of its operands and its result.
  struct GemmMemory {
    const std::byte *a, *a_end, *b, *b_end, *c, *c_end;
  };
  std::vector<std::pair<int, std::vector<GemmMemory>>> side_gemms;  // pending, oldest first
  size_t most_pending = 0;
  int overlaps = 0;  // GEMMs of the first stream that wrote to memory of pending work

  // A copy to the host arrives only when it is waited for; until then what is copied from the host
  // must stay as it is.
  bool late = false;
  int overwritten = 0;   // late copies whose source the host has changed
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
  static GemmMemory memory_of(const GemmParams& p) {
    const auto range = [](const void* at, int64_t rows, int64_t ld, size_t size) {
      const auto* begin = static_cast<const std::byte*>(at);
      return std::pair{begin, begin + static_cast<size_t>(rows * ld) * size};
    };
    const size_t size = dtype_size(p.dtype);
    const auto [a, a_end] = range(p.a, p.trans_a ? p.k : p.m, p.lda, size);
    const auto [b, b_end] = range(p.b, p.trans_b ? p.n : p.k, p.ldb, size);
    const auto [c, c_end] = range(p.c, p.m, p.ldc, p.c_is_f32 ? sizeof(float) : size);
    return {a, a_end, b, b_end, c, c_end};
  }
  void note_overlaps(const GemmParams& params) {
    const GemmMemory mine = memory_of(params);
    if (on_side) return entered_.push_back(mine);
    const auto meets = [&](const std::byte* begin, const std::byte* end) {
      return mine.c < end && begin < mine.c_end;
    };
    for (const auto& [slot, gemms_of_work] : side_gemms)
      for (const GemmMemory& other : gemms_of_work)
        overlaps += meets(other.a, other.a_end) || meets(other.b, other.b_end) ||
                    meets(other.c, other.c_end);
  }

  // As the GPU's kernels count the passes.
  template <class Params>
  void run_at_step(int kernel, const void* params) {
    Params moved = *static_cast<const Params*>(params);
    if (dropout_step_) moved.dropout.step += *dropout_step_;
    Accelerator::run(kernel, &moved);
  }

  struct Copy {
    std::byte* target;
    const std::byte* source;
    std::vector<std::byte> bytes;
    bool to_host;
    bool noted = false;
  };

  bool is_pinned(const void* at) const {
    const auto* byte = static_cast<const std::byte*>(at);
    for (const auto& [begin, size] : pinned_)
      if (byte >= begin && byte < begin + size) return true;
    return false;
  }
  void note_if_changed(Copy& copy) {
    if (copy.to_host || copy.noted || !is_pinned(copy.source)) return;
    copy.noted = std::memcmp(copy.source, copy.bytes.data(), copy.bytes.size()) != 0;
    overwritten += copy.noted;
  }
  // The first `count` copies of all that were ever started.
  void arrive(int64_t count) {
    for (; arrived_ < count; ++arrived_) {
      Copy& copy = in_flight_.front();
      note_if_changed(copy);
      if (copy.to_host) std::memcpy(copy.target, copy.bytes.data(), copy.bytes.size());
      in_flight_.pop_front();
    }
  }

  std::vector<GemmMemory> entered_;
  const uint32_t* dropout_step_ = nullptr;
  std::map<std::byte*, size_t> pinned_;
  std::deque<Copy> in_flight_;
  int64_t started_ = 0, arrived_ = 0;
  std::array<int64_t, kEvents> marks_{};
};

// A stand-in for a GPU without captured graphs.
inline std::unique_ptr<Context> stand_in() {
  auto context = std::make_unique<Context>(std::make_shared<StreamAccelerator>());
  context->set_graphs(false);
  return context;
}

// A parameter of tests; `make` gives null where the device is missing.
struct TestDevice {
  const char* name;
  std::unique_ptr<Context> (*make)();
};

}  // namespace trafo::testing
