// A CUDA plugin for tests, whose device memory runs out on demand. TRAFO_FAULTS_BEFORE names the
// plugin that it wraps; without one it is a separate device, on the CPU's kernels. Programs load it
// as TRAFO_CUDA_LIBRARY and find its three functions with dlsym.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "engine/backend/cuda/plugin_api.h"
#include "engine/core/version.h"
#include "tests/train/step/accelerator.h"

namespace trafo {
namespace {

using cuda::PluginTable;
using cuda::Why;
using testing::StreamAccelerator;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> seen{0}, fails_at{kNever};
std::atomic<bool> persistent_faults{false}, fired{false};

bool refuse() {
  const int64_t number = seen.fetch_add(1) + 1;
  const int64_t from = fails_at;
  if (number != from && !(number > from && persistent_faults)) return false;
  fired = true;
  return true;
}

int32_t say(Why why, const char* text) {
  if (why.text) std::snprintf(why.text, why.size, "%s", text);
  return cuda::kOutOfMemory;
}

// --- before another plugin ---

PluginTable real{};

int32_t allocate_before(void* device, size_t bytes, void** pointer, Why why) {
  return refuse() ? say(why, "no memory, by a test") : real.allocate(device, bytes, pointer, why);
}
int32_t allocate_pinned_before(void* device, size_t bytes, void** pointer, Why why) {
  return refuse() ? say(why, "no pinned memory, by a test")
                  : real.allocate_pinned(device, bytes, pointer, why);
}

int32_t stand_before(const char* path, int32_t version, PluginTable* table) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto entry =
      library ? reinterpret_cast<cuda::PluginEntry>(dlsym(library, cuda::kPluginEntryName))
              : nullptr;
  if (!entry) return cuda::kFailed;
  const int32_t result = entry(version, &real);
  *table = real;
  table->allocate = allocate_before;
  table->allocate_pinned = allocate_pinned_before;
  return result;
}

// --- a separate device ---

// The engine passes kernels, as their stream, the accelerator they run on.
StreamAccelerator& of(void* device) {
  return *static_cast<StreamAccelerator*>(static_cast<testing::Accelerator*>(device));
}
// Nothing is thrown through the plugin's table.
template <class Body>
int32_t guarded(Why why, Body&& body) {
  try {
    body();
    return cuda::kSuccess;
  } catch (const std::exception& error) {
    if (why.text) std::snprintf(why.text, why.size, "%s", error.what());
    return cuda::kFailed;
  }
}

std::array<const char*, kOpKernelCount> kernel_names() {
  std::array<const char*, kOpKernelCount> names{};
  for (int i = 0; i < kOpKernelCount; ++i)
    names[static_cast<size_t>(i)] = op_kernel_name(static_cast<OpKernel>(i));
  return names;
}

int32_t own_device(int32_t version, PluginTable* table) {
  static const auto kernels = testing::Accelerator::all_kernels();
  static const auto names = kernel_names();
  PluginTable t{};
  t.version = cuda::kPluginVersion;
  t.engine_version = kVersion;
  t.kernel_abi = TRAFO_KERNEL_ABI;
  t.kernel_count = static_cast<int32_t>(kernels.size());
  t.kernel_names = names.data();
  t.kernels = kernels.data();
  t.device_count = [](int32_t* count, Why) -> int32_t { return *count = 1, cuda::kSuccess; };
  t.device_info = [](int32_t, cuda::DeviceInfo* info, Why) -> int32_t {
    *info = {"stand-in", 9, 0, int64_t{4} << 30};
    return cuda::kSuccess;
  };
  t.device_memory = [](int32_t, int64_t* total, int64_t* free, Why) -> int32_t {
    *total = *free = int64_t{4} << 30;
    return cuda::kSuccess;
  };
  t.open = [](int32_t, void** device, Why why) -> int32_t {
    return guarded(why,
                   [&] { *device = static_cast<testing::Accelerator*>(new StreamAccelerator); });
  };
  t.close = [](void* device) { delete &of(device); };
  t.allocate = [](void*, size_t bytes, void** pointer, Why why) -> int32_t {
    *pointer = refuse() ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *pointer ? cuda::kSuccess : say(why, "no memory, by a test");
  };
  t.release = [](void*, void* pointer) { std::free(pointer); };
  const auto move = [](void*, void* target, const void* source, size_t bytes, Why) -> int32_t {
    std::memcpy(target, source, bytes);
    return cuda::kSuccess;
  };
  t.copy_from_host = t.copy_to_host = t.copy = t.copy_async = move;
  t.fill_zero = [](void*, void* target, size_t bytes, Why) -> int32_t {
    std::memset(target, 0, bytes);
    return cuda::kSuccess;
  };
  t.synchronize = [](void*, Why) -> int32_t { return cuda::kSuccess; };
  t.gemm = [](void* device, const GemmParams* params, Why why) -> int32_t {
    return guarded(why, [&] { of(device).gemm(*params); });
  };
  t.grouped_gemm = [](void* device, const GemmParams* gemms, int64_t count, Why why) -> int32_t {
    return guarded(why, [&] { of(device).grouped_gemm({gemms, static_cast<size_t>(count)}); });
  };
  t.groups_gemms = [](void*) -> int32_t { return 1; };
  t.sums_in_gemm = [](void*, const GemmParams*, int32_t) -> int32_t { return 0; };
  t.set_gemm_tf32 = [](void*, int32_t) {};
  t.measure_gemm = [](void*, const GemmParams*, cuda::GemmTimes* times, Why) -> int32_t {
    times->count = 0;
    return cuda::kSuccess;
  };
  t.set_gemm_tuning = [](void*, int32_t) {};
  t.set_gemm_tuning_budget = [](void*, double) {};
  t.gemm_tuning_cost = [](void*, GemmTuningCost* cost) { *cost = {}; };
  t.gemm_library = [](void*, Why text) { say(text, "stand-in"); };
  t.gemm_choices = [](void*, GemmChoice*, int32_t) -> int32_t { return 0; };
  t.set_gemm_choices = [](void*, const GemmChoice*, int32_t, int32_t) {};
  t.allocate_pinned = [](void*, size_t bytes, void** pointer, Why why) -> int32_t {
    *pointer = refuse() ? nullptr : std::malloc(bytes);
    return *pointer ? cuda::kSuccess : say(why, "no pinned memory, by a test");
  };
  t.release_pinned = [](void*, void* pointer) { std::free(pointer); };
  t.record = t.wait = [](void*, int32_t, Why) -> int32_t { return cuda::kSuccess; };
  t.begin_capture = [](void*, Why) -> int32_t { return cuda::kSuccess; };
  t.end_capture = [](void*, void**, Why why) -> int32_t {
    say(why, "this device has no graphs");
    return cuda::kUnsupported;
  };
  t.launch_graph = [](void*, void*, Why) -> int32_t { return cuda::kUnsupported; };
  t.release_graph = [](void*, void*) {};
  t.set_dropout_step = [](void* device, const uint32_t* step) {
    of(device).set_dropout_step(step);
  };
  t.enter_side = [](void*, Why) -> int32_t { return cuda::kSuccess; };
  t.leave_side = t.await_side = [](void*, int32_t, Why) -> int32_t { return cuda::kSuccess; };
  t.begin_partials = [](void*, void*, size_t) {};
  t.end_partials = [](void*) {};
  t.add_partials = [](void*, Why) -> int32_t { return cuda::kSuccess; };
  t.record_time = [](void*, int64_t* mark, Why) -> int32_t { return *mark = 0, cuda::kSuccess; };
  t.elapsed = [](void*, int64_t, int64_t, double* milliseconds, Why) -> int32_t {
    return *milliseconds = 0, cuda::kSuccess;
  };
  t.forget_times = [](void*) {};
  t.annotates = []() -> int32_t { return 0; };
  t.push_name = [](const char*, const char*) {};
  t.pop_name = [] {};
  t.choose_as_on = [](void*, const cuda::Card*, Why) -> int32_t { return cuda::kUnsupported; };
  t.last_error = [](void*) { return "a kernel of the stand-in failed"; };
  *table = t;
  return version == cuda::kPluginVersion ? cuda::kSuccess : cuda::kUnsupported;
}

}  // namespace
}  // namespace trafo

#define TRAFO_EXPORTED __attribute__((visibility("default")))

extern "C" {

TRAFO_EXPORTED int32_t trafo_cuda_plugin(int32_t version, trafo::cuda::PluginTable* table) {
  const char* other = std::getenv("TRAFO_FAULTS_BEFORE");
  return other ? trafo::stand_before(other, version, table) : trafo::own_device(version, table);
}
TRAFO_EXPORTED void trafo_fault_arm(int64_t nth, bool persistent) {
  trafo::seen = 0;
  trafo::fired = false;
  trafo::persistent_faults = persistent;
  trafo::fails_at = nth;
}
TRAFO_EXPORTED bool trafo_fault_disarm() {
  trafo::fails_at = trafo::kNever;
  trafo::persistent_faults = false;
  return trafo::fired;
}
TRAFO_EXPORTED int64_t trafo_fault_seen() {
  return trafo::seen;
}

}  // extern "C"
