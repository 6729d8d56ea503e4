#include "engine/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "engine/backend/cuda/plugin_api.h"
#include "engine/backend/cuda/priority_api.h"
#include "engine/backend/side_stream.h"
#include "engine/backend/tf32.h"
#include "engine/core/call_priority.h"
#include "engine/core/plugin_library.h"
#include "engine/memory/cached_blocks.h"

namespace trafo {
namespace {

constexpr const char* kCudaBackendOrigin = "cuda";

struct Plugin {
  cuda::PluginTable table{};
  OpenPlugin file;
};

const char* hint_of(const std::string& reasons) {
  return reasons.find("libcublas") == std::string::npos
             ? ""
             : "\nlibcublasLt.so.13 comes with the CUDA 13 toolkit or with \"pip install "
               "nvidia-cublas\"; put its folder on LD_LIBRARY_PATH";
}

constexpr PluginLibrary kCudaPlugin{kCudaBackendOrigin, "CUDA plugin", "libtrafo_cuda.so",
                                    "TRAFO_CUDA_LIBRARY", hint_of};

const Plugin& load_plugin() {
  static std::mutex mutex;
  static std::map<std::string, Plugin>* loaded = new std::map<std::string, Plugin>;
  std::lock_guard lock(mutex);
  const OpenPlugin open = open_plugin(kCudaPlugin);
  const auto found = loaded->find(open.path);
  if (found != loaded->end()) return found->second;
  const auto entry =
      reinterpret_cast<cuda::PluginEntry>(plugin_symbol(kCudaPlugin, open, cuda::kPluginEntryName));
  Plugin plugin{{}, open};
  entry(cuda::kPluginVersion, &plugin.table);  // fails if the versions differ
  require_same_release(kCudaPlugin, open, plugin.table.version, cuda::kPluginVersion,
                       plugin.table.engine_version);
  require(std::string_view(plugin.table.kernel_abi) == TRAFO_KERNEL_ABI, ErrorCode::version,
          kCudaBackendOrigin, open.path,
          " was built from other sources than this engine; build both again");
  return loaded->emplace(open.path, std::move(plugin)).first->second;
}

// Text the plugin writes its reasons into.
struct WhyText {
  char text[512] = "";
  cuda::Why why() { return {text, sizeof text}; }
};

ErrorCode code_of(int32_t result) {
  switch (result) {
    case cuda::kOutOfMemory:
      return ErrorCode::out_of_device_memory;
    case cuda::kDeviceLost:
      return ErrorCode::device_lost;
    case cuda::kUnsupported:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::internal;
  }
}

class CudaBackend final : public Backend,
                          public StreamDevice,
                          public SideStream,
                          public GemmTuner,
                          public Tf32Device {
 public:
  CudaBackend(const Plugin& plugin, int32_t index, std::span<const char* const> kernel_names)
      : table_(plugin.table), index_(index) {
    WhyText why;
    int32_t count = 0;
    const int32_t counted = table_.device_count(&count, why.why());
    require(counted == 0 && count > 0, ErrorCode::unsupported, kCudaBackendOrigin, "the plugin ",
            plugin.file.path, " is there, but there is no CUDA device: ",
            why.text[0] ? why.text : "the driver reports none");
    require(index >= 0 && index < count, ErrorCode::unsupported, kCudaBackendOrigin,
            "there is no device cuda:", index, "; the driver reports ", count,
            count == 1 ? " device" : " devices");
    match_kernels(kernel_names);
    check(table_.open(index, &device_, why.why()), kCudaBackendOrigin, why);
    set_kernels(kernels_);
  }

  ~CudaBackend() override {
    release_arena_memory();
    release_cached_memory();
    table_.close(device_);
  }

  Device device() const override { return {DeviceKind::cuda, index_}; }

  MemoryStats memory_stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak_memory() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.allocated_bytes;
  }
  void release_cached_memory() override {
    std::lock_guard lock(mutex_);
    release_cached_locked();
  }

  // Every kernel is issued with it.
  void* stream() override {
    give_way();
    return device_;
  }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    WhyText why;
    if (bytes) check(table_.copy_from_host(device_, device, host, bytes, why.why()), "copy", why);
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    WhyText why;
    if (bytes) check(table_.copy_to_host(device_, host, device, bytes, why.why()), "copy", why);
  }
  void copy(void* target, const void* source, size_t bytes) override {
    WhyText why;
    if (bytes) check(table_.copy(device_, target, source, bytes, why.why()), "copy", why);
  }
  void fill_zero(void* target, size_t bytes) override {
    WhyText why;
    if (bytes) check(table_.fill_zero(device_, target, bytes, why.why()), "fill", why);
  }
  void synchronize() override {
    WhyText why;
    check(table_.synchronize(device_, why.why()), "synchronize", why);
  }
  void gemm(const GemmParams& params) override {
    WhyText why;
    check(table_.gemm(device_, &params, why.why()), "gemm", why);
  }
  void grouped_gemm(std::span<const GemmParams> gemms) override {
    WhyText why;
    check(table_.grouped_gemm(device_, gemms.data(), static_cast<int64_t>(gemms.size()), why.why()),
          "gemm", why);
  }

  int threads() const override { return 1; }
  void set_threads(int) override {}

  bool gemm_epilogues(DType dtype) const override { return dtype == DType::bf16; }
  bool groups_gemms(DType dtype) const override {
    return dtype == DType::bf16 && table_.groups_gemms(device_) != 0;
  }
  bool sums_in_gemm(const GemmParams& params, bool alone) const override {
    return table_.sums_in_gemm(device_, &params, alone ? 1 : 0) != 0;
  }

  // --- Tf32Device ---
  Tf32Device* tf32_device() override { return this; }
  void set_tf32(bool on) override { table_.set_gemm_tf32(device_, on ? 1 : 0); }

  // --- GemmTuner ---
  GemmTuner* gemm_tuner() override { return this; }
  std::vector<float> measure(const GemmParams& params) override {
    WhyText why;
    cuda::GemmTimes times{};
    check(table_.measure_gemm(device_, &params, &times, why.why()), "GEMM autotuning", why);
    return {times.us, times.us + times.count};
  }
  void set_tuning(bool on) override { table_.set_gemm_tuning(device_, on ? 1 : 0); }
  void set_tuning_budget(double seconds) override {
    table_.set_gemm_tuning_budget(device_, seconds);
  }
  GemmTuningCost tuning_cost() const override {
    GemmTuningCost cost;
    table_.gemm_tuning_cost(device_, &cost);
    return cost;
  }
  std::string library() const override {
    WhyText text;
    table_.gemm_library(device_, text.why());
    return text.text;
  }
  std::string kernel_abi() const override { return TRAFO_KERNEL_ABI; }
  std::vector<GemmChoice> choices() const override {
    std::vector<GemmChoice> found(static_cast<size_t>(table_.gemm_choices(device_, nullptr, 0)));
    table_.gemm_choices(device_, found.data(), static_cast<int32_t>(found.size()));
    return found;
  }
  void set_choices(std::span<const GemmChoice> choices, RefusedChoice refused) override {
    table_.set_gemm_choices(device_, choices.data(), static_cast<int32_t>(choices.size()),
                            refused == RefusedChoice::fails ? 1 : 0);
  }

  void set_background(bool background) {
    if (background == background_) return;
    const auto set_priority = reinterpret_cast<cuda::PriorityFunction>(
        cuda_plugin_symbol(cuda::kPriorityFunctionName).address);
    WhyText why;
    check(set_priority(device_, background ? 1 : 0, why.why()), "priority", why);
    background_ = background;
  }

  void choose_as_on(const cuda::Card* card) {
    WhyText why;
    check(table_.choose_as_on(device_, card, why.why()), kCudaBackendOrigin, why);
  }

  // --- StreamDevice ---
  StreamDevice* stream_device() override { return this; }
  void* allocate_pinned(size_t bytes) override {
    WhyText why;
    void* pointer = nullptr;
    const int32_t result = table_.allocate_pinned(device_, bytes, &pointer, why.why());
    require(result != cuda::kOutOfMemory, ErrorCode::out_of_memory, kCudaBackendOrigin, "no ",
            bytes, " bytes of pinned host memory: ", why.text);
    check(result, "pinned memory", why);
    return pointer;
  }
  void release_pinned(void* pointer) noexcept override {
    if (pointer) table_.release_pinned(device_, pointer);
  }
  void copy_async(void* target, const void* source, size_t bytes) override {
    WhyText why;
    check(table_.copy_async(device_, target, source, bytes, why.why()), "copy", why);
  }
  void record(int event) override {
    WhyText why;
    check(table_.record(device_, event, why.why()), "event", why);
  }
  void wait(int event) override {
    WhyText why;
    check(table_.wait(device_, event, why.why()), "event", why);
  }
  void begin_capture() override {
    WhyText why;
    check(table_.begin_capture(device_, why.why()), "graph", why);
    capturing_ = true;
  }
  void* end_capture(char* reason, size_t size) override {
    capturing_ = false;
    void* graph = nullptr;
    const int32_t result = table_.end_capture(device_, &graph, {reason, size});
    return result == cuda::kSuccess ? graph : nullptr;
  }
  void launch_graph(void* graph) override {
    give_way();
    const auto began = Clock::now();
    WhyText why;
    check(table_.launch_graph(device_, graph, why.why()), "graph", why);
    if (!CallPriority::background() || !BackgroundShare::others_compute()) return;
    synchronize();  // a whole training step: no other one waits behind it
    const Clock::duration least{0};
    beyond_ = std::max(Clock::now() - began - BackgroundShare::kSlice, least);
  }
  void release_graph(void* graph) noexcept override {
    if (graph) table_.release_graph(device_, graph);
  }
  void set_dropout_step(const uint32_t* step) override { table_.set_dropout_step(device_, step); }
  int64_t record_time() override {
    WhyText why;
    int64_t mark = 0;
    check(table_.record_time(device_, &mark, why.why()), "profile", why);
    return mark;
  }
  double elapsed(int64_t from, int64_t to) override {
    WhyText why;
    double milliseconds = 0;
    check(table_.elapsed(device_, from, to, &milliseconds, why.why()), "profile", why);
    return milliseconds;
  }
  void forget_times() noexcept override { table_.forget_times(device_); }
  bool annotates() override { return table_.annotates() != 0; }
  void push_name(const char* name, const char* kind) override { table_.push_name(name, kind); }
  void pop_name() noexcept override { table_.pop_name(); }

  // --- SideStream ---
  SideStream* side_stream() override { return this; }
  void enter_side() override {
    WhyText why;
    check(table_.enter_side(device_, why.why()), "second stream", why);
  }
  void leave_side(int slot) override {
    WhyText why;
    check(table_.leave_side(device_, slot, why.why()), "second stream", why);
  }
  void await_side(int slot) override {
    WhyText why;
    check(table_.await_side(device_, slot, why.why()), "second stream", why);
  }
  void begin_partials(void* memory, size_t bytes) override {
    table_.begin_partials(device_, memory, bytes);
  }
  void end_partials() override { table_.end_partials(device_); }
  void add_partials() override {
    WhyText why;
    check(table_.add_partials(device_, why.why()), "partial sums", why);
  }

 protected:
  void* allocate_block(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t size = CachedBlocks::rounded(bytes);
    std::lock_guard lock(mutex_);
    void* block = cached_.take(size);
    if (!block) block = from_device(size);
    count(static_cast<int64_t>(size));
    return block;
  }
  // All work is on one stream, so a block may be reused as soon as it is released.
  void release_block(void* pointer, size_t bytes) noexcept override {
    if (!pointer) return;
    const size_t size = CachedBlocks::rounded(bytes);
    std::lock_guard lock(mutex_);
    count(-static_cast<int64_t>(size));
    if (cached_.keep(size, pointer)) return;
    table_.release(device_, pointer);
    stats_.reserved_bytes -= static_cast<int64_t>(size);
  }
  void* allocate_exactly(size_t bytes) override {
    std::lock_guard lock(mutex_);
    void* block = from_device(bytes);
    count(static_cast<int64_t>(bytes));
    return block;
  }
  void release_exactly(void* pointer, size_t bytes) noexcept override {
    std::lock_guard lock(mutex_);
    table_.release(device_, pointer);
    count(-static_cast<int64_t>(bytes));
    stats_.reserved_bytes -= static_cast<int64_t>(bytes);
  }
  void kernel_failed(const char* op, int32_t result) override {
    fail(code_of(result), op, "the kernel failed on ", device_name(device()), ": ",
         table_.last_error(device_));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // A call in the background pauses before it issues work, when all that it has issued is done.
  void give_way() {
    BackgroundShare* const share = CallPriority::background();
    if (!share || capturing_ || !share->must_give_way()) return;
    synchronize();
    share->give_way(std::exchange(beyond_, {}));
  }

  void check(int32_t result, const char* origin, const WhyText& why) const {
    require(result == cuda::kSuccess, code_of(result), origin, device_name(device()), ": ",
            why.text);
  }

  void match_kernels(std::span<const char* const> kernel_names) {
    std::map<std::string_view, KernelFn> there;
    for (int32_t i = 0; i < table_.kernel_count; ++i)
      there[table_.kernel_names[i]] = table_.kernels[i];
    for (const char* name : kernel_names) {
      const auto found = there.find(name);
      kernels_.push_back(found == there.end() ? nullptr : found->second);
    }
  }

  void* from_device(size_t size) {
    WhyText why;
    void* block = nullptr;
    int32_t result = table_.allocate(device_, size, &block, why.why());
    if (result == cuda::kOutOfMemory) {
      release_cached_locked();
      result = table_.allocate(device_, size, &block, why.why());
    }
    check(result, "allocate", why);
    stats_.reserved_bytes += static_cast<int64_t>(size);
    return block;
  }
  void count(int64_t bytes) {
    stats_.allocated_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  }

  void release_cached_locked() noexcept {
    cached_.drain([&](void* block, size_t size) {
      table_.release(device_, block);
      stats_.reserved_bytes -= static_cast<int64_t>(size);
    });
  }

  cuda::PluginTable table_;
  int32_t index_;
  void* device_ = nullptr;
  std::vector<KernelFn> kernels_;
  mutable std::mutex mutex_;
  CachedBlocks cached_;
  MemoryStats stats_;
  bool background_ = false, capturing_ = false;
  Clock::duration beyond_{0};  // time of the newest graph over a slice of the background
};

}  // namespace

std::shared_ptr<Backend> make_cuda_backend(int32_t index,
                                           std::span<const char* const> kernel_names) {
  return std::make_shared<CudaBackend>(load_plugin(), index, kernel_names);
}

std::vector<CudaDeviceInfo> cuda_devices(std::string* why) {
  std::vector<CudaDeviceInfo> devices;
  try {
    const cuda::PluginTable& table = load_plugin().table;
    WhyText text;
    int32_t count = 0;
    if (table.device_count(&count, text.why()) != 0) count = 0;
    if (count == 0 && why) *why = text.text[0] ? text.text : "the driver reports no device";
    for (int32_t i = 0; i < count; ++i) {
      cuda::DeviceInfo info{};
      require(table.device_info(i, &info, text.why()) == 0, ErrorCode::internal, kCudaBackendOrigin,
              text.text);
      devices.push_back({info.name, info.compute_major, info.compute_minor, info.memory_bytes});
    }
  } catch (const Error& error) {
    if (why) *why = error.message();
    devices.clear();
  }
  return devices;
}

PluginSymbol cuda_plugin_symbol(const char* name) {
  const Plugin& plugin = load_plugin();
  return {plugin_symbol(kCudaPlugin, plugin.file, name), plugin.file.path};
}

void set_background(Backend& backend, bool background) {
  if (auto* cuda = dynamic_cast<CudaBackend*>(&backend)) cuda->set_background(background);
}

void choose_kernels_as_on(Backend& backend, const cuda::Card* card) {
  auto* cuda = dynamic_cast<CudaBackend*>(&backend);
  require(cuda != nullptr, ErrorCode::unsupported, kCudaBackendOrigin,
          device_name(backend.device()), " has no choice of kernels by card");
  cuda->choose_as_on(card);
}

bool cuda_device_memory(int32_t index, int64_t& total, int64_t& free) {
  try {
    WhyText why;
    return load_plugin().table.device_memory(index, &total, &free, why.why()) == 0;
  } catch (const Error&) {  // no plugin, or one of another build
    return false;
  }
}

}  // namespace trafo
