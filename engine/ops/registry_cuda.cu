// The plugin's table: devices, memory, copies, and every kernel of op_list.def.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/gemm.h"
#include "engine/backend/cuda/gemm_plans.h"
#include "engine/backend/cuda/weight_gradients.h"
#include "engine/core/version.h"
#include "engine/ops/feed_forward/activation_gemm.h"
#include "engine/ops/low_rank_linear/low_rank_gemm.h"

namespace trafo {

#define TRAFO_OP(name, Name)                                                   \
  struct Name##ForwardParams;                                                  \
  struct Name##BackwardParams;                                                 \
  int32_t name##_forward_cuda(cuda::DeviceState&, const Name##ForwardParams&); \
  int32_t name##_backward_cuda(cuda::DeviceState&, const Name##BackwardParams&);
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) \
  struct Name##Params;           \
  int32_t name##_cuda(cuda::DeviceState&, const Name##Params&);
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE

namespace cuda {
int32_t tell(Why why, int32_t result, const char* text) {
  if (why.text && why.size > 0) std::snprintf(why.text, why.size, "%s", text);
  return result;
}

// The current device is a property of the calling host thread: every entry sets it.
DeviceState& enter(void* device) {
  auto& state = *static_cast<DeviceState*>(device);
  cudaSetDevice(state.index);
  return state;
}

int32_t checked(void* device, cudaError_t error, const char* what, Why why) {
  if (error == cudaSuccess) return kSuccess;
  auto& state = *static_cast<DeviceState*>(device);
  const int32_t result = report(state, error, what);
  return tell(why, result, state.error.c_str());
}

namespace {

template <class Params, int32_t (*kernel)(DeviceState&, const Params&)>
int32_t call(void* stream, const void* params) {
  return kernel(enter(stream), *static_cast<const Params*>(params));
}

constexpr const char* kNames[] = {
#define TRAFO_OP(name, Name) #name "_forward", #name "_backward",
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) #name,
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
};

constexpr KernelFn kKernels[] = {
#define TRAFO_OP(name, Name)                        \
  &call<Name##ForwardParams, &name##_forward_cuda>, \
      &call<Name##BackwardParams, &name##_backward_cuda>,
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) &call<Name##Params, &name##_cuda>,
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
};

constexpr GemmEpilogues kEpilogues{&activation_gemm, &activation_alone, &low_rank_gemm_wgmma};

int32_t device_count(int32_t* count, Why why) {
  *count = 0;
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  if (error == cudaErrorInsufficientDriver)
    return tell(why, kSuccess, "there is no NVIDIA driver, or it is older than CUDA 13.0 needs");
  if (error == cudaErrorNoDevice) return tell(why, kSuccess, "the driver reports no device");
  if (error != cudaSuccess) return tell(why, kFailed, cudaGetErrorString(error));
  *count = found;
  return kSuccess;
}

int32_t device_info(int32_t index, DeviceInfo* info, Why why) {
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return tell(why, kFailed, cudaGetErrorString(error));
  std::snprintf(info->name, sizeof info->name, "%.127s", properties.name);
  info->compute_major = properties.major;
  info->compute_minor = properties.minor;
  info->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return kSuccess;
}

int32_t device_memory(int32_t index, int64_t* total, int64_t* free, Why why) {
  int before = 0;
  size_t free_bytes = 0, total_bytes = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess) error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  cudaSetDevice(before);
  if (error != cudaSuccess) return tell(why, kFailed, cudaGetErrorString(error));
  *total = static_cast<int64_t>(total_bytes);
  *free = static_cast<int64_t>(free_bytes);
  return kSuccess;
}

void close_device(void* device) {
  DeviceState& state = enter(device);
  if (state.stream) cudaStreamSynchronize(state.stream);
  free_side_lane(state);
  free_gemm_plans(state.gemm_plans);
  if (state.blas) cublasLtDestroy(state.blas);
  if (state.blas_workspace) cudaFree(state.blas_workspace);
  if (state.scratch_memory) cudaFree(state.scratch_memory);
  for (void* memory : state.outgrown_scratch) cudaFree(memory);
  for (const cudaEvent_t event : state.events)
    if (event) cudaEventDestroy(event);
  for (const cudaEvent_t event : state.time_events) cudaEventDestroy(event);
  if (state.stream) cudaStreamDestroy(state.stream);
  delete &state;
}

int32_t open_device(int32_t index, void** device, Why why) {
  *device = nullptr;
  auto* state = new (std::nothrow) DeviceState;
  if (!state) return tell(why, kFailed, "no host memory");
  state->index = index;
  cudaDeviceProp properties{};
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  int least = 0, greatest = 0;
  if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess)
    error = cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, greatest);
  if (error == cudaSuccess) error = cudaMalloc(&state->blas_workspace, kBlasWorkspaceBytes);
  if (error != cudaSuccess) {
    const int32_t result = checked(state, error, "opening the device", why);
    close_device(state);
    return result;
  }
  if (cublasLtCreate(&state->blas) != CUBLAS_STATUS_SUCCESS) {
    close_device(state);
    return tell(why, kFailed, "cublasLtCreate failed");
  }
  state->epilogues = &kEpilogues;
  state->multiprocessors = properties.multiProcessorCount;
  state->compute_major = properties.major;
  state->shared_memory_per_block = properties.sharedMemPerBlockOptin;
  *device = state;
  return kSuccess;
}

int32_t allocate(void* device, size_t bytes, void** pointer, Why why) {
  enter(device);
  *pointer = nullptr;
  return checked(device, cudaMalloc(pointer, bytes), "cudaMalloc", why);
}

void release(void* device, void* pointer) {
  DeviceState& state = enter(device);
  cudaStreamSynchronize(state.stream);
  cudaFree(pointer);
}

// While `stream` is captured: a copy of `source` that the graph owns, because every launch reads it
// again. Otherwise `source` itself.
cudaError_t kept_for_launches(cudaStream_t stream, const void*& source, size_t bytes) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph);
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive) return error;
  void* const kept = std::malloc(bytes);
  if (!kept) return cudaErrorMemoryAllocation;
  std::memcpy(kept, source, bytes);
  cudaUserObject_t owner = nullptr;
  error = cudaUserObjectCreate(&owner, kept, &std::free, 1, cudaUserObjectNoDestructorSync);
  if (error != cudaSuccess) {
    std::free(kept);
    return error;
  }
  source = kept;
  error = cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove);
  if (error != cudaSuccess) cudaUserObjectRelease(owner);
  return error;
}

int32_t copy_from_host(void* device, void* target, const void* source, size_t bytes, Why why) {
  const cudaStream_t stream = enter(device).stream;
  cudaError_t error = kept_for_launches(stream, source, bytes);
  // From pageable memory the call returns when the source has been read.
  if (error == cudaSuccess)
    error = cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream);
  return checked(device, error, "copy to the device", why);
}

int32_t synchronize(void* device, Why why) {
  return checked(device, cudaStreamSynchronize(enter(device).stream), "waiting for the device",
                 why);
}

int32_t copy_to_host(void* device, void* target, const void* source, size_t bytes, Why why) {
  const cudaError_t error =
      cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, enter(device).stream);
  if (error != cudaSuccess) return checked(device, error, "copy to the host", why);
  return synchronize(device, why);
}

int32_t copy(void* device, void* target, const void* source, size_t bytes, Why why) {
  return checked(
      device,
      cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, enter(device).stream),
      "copy on the device", why);
}

int32_t fill_zero(void* device, void* target, size_t bytes, Why why) {
  return checked(device, cudaMemsetAsync(target, 0, bytes, enter(device).stream), "fill", why);
}

int32_t gemm_entry(void* device, const GemmParams* params, Why why) {
  DeviceState& state = enter(device);
  const int32_t result = gemm(state, *params);
  return result == kSuccess ? kSuccess : tell(why, result, state.error.c_str());
}

int32_t grouped_gemm_entry(void* device, const GemmParams* gemms, int64_t count, Why why) {
  DeviceState& state = enter(device);
  const int32_t result = grouped_gemm(state, {gemms, static_cast<size_t>(count)});
  return result == kSuccess ? kSuccess : tell(why, result, state.error.c_str());
}

int32_t groups_gemms_entry(void* device) {
  return groups_gemms(*static_cast<DeviceState*>(device)) ? 1 : 0;
}

int32_t sums_in_gemm_entry(void* device, const GemmParams* params, int32_t alone) {
  return sums_in_gemm(*static_cast<DeviceState*>(device), *params, alone != 0) ? 1 : 0;
}

void set_gemm_tf32(void* device, int32_t on) {
  plans_of(*static_cast<DeviceState*>(device)).tf32 = on != 0;
}

int32_t choose_as_on(void* device, const Card* card, Why why) {
  DeviceState& state = enter(device);
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, state.index);
  if (error != cudaSuccess) return checked(device, error, "cudaGetDeviceProperties", why);
  const Card own{properties.major, properties.minor,
                 static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
  const Card& wanted = card ? *card : own;
  if (wanted.shared_memory_per_block > own.shared_memory_per_block)
    return tell(why, kUnsupported,
                "the card has less shared memory than the one that is asked for");
  if (wanted.major == 9 && own.major != 9)
    return tell(why, kUnsupported, "the card has no wgmma instructions");
  state.compute_major = wanted.major;
  state.shared_memory_per_block = static_cast<size_t>(wanted.shared_memory_per_block);
  return kSuccess;
}

const char* last_error(void* device) {
  return static_cast<DeviceState*>(device)->error.c_str();
}

}  // namespace

void* DeviceState::scratch(size_t bytes) {
  if (partials.memory && bytes <= partials.bytes) return partials.memory;
  if (bytes <= scratch_bytes) return scratch_memory;
  void* larger = nullptr;
  const cudaError_t allocated = cudaMalloc(&larger, bytes * 2);
  if (allocated != cudaSuccess) {
    report(*this, allocated, "scratch memory");
    return nullptr;
  }
  // Kernels in flight and recorded graphs may still use the old block. It grows by factors, so all
  // old blocks together are smaller than the new one.
  if (scratch_memory) outgrown_scratch.push_back(scratch_memory);
  scratch_memory = larger;
  scratch_bytes = bytes * 2;
  return scratch_memory;
}

int32_t report(DeviceState& device, cudaError_t error, const char* what) {
  device.error = std::string(what) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: clear it
    return kOutOfMemory;
  }
  // A sticky error shows again on a call that is always valid; while work is recorded, on any but
  // a waiting one.
  cudaGetLastError();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t state = cudaStreamIsCapturing(device.stream, &capture);
  if (state != cudaSuccess) return kDeviceLost;
  if (capture != cudaStreamCaptureStatusNone) return kFailed;
  return cudaDeviceSynchronize() == cudaSuccess ? kFailed : kDeviceLost;
}

}  // namespace cuda
}  // namespace trafo

extern "C" __attribute__((visibility("default"))) int32_t trafo_cuda_plugin(
    int32_t version, trafo::cuda::PluginTable* table) {
  using namespace trafo::cuda;
  *table = {};
  table->version = kPluginVersion;
  table->engine_version = trafo::kVersion;
  table->kernel_abi = TRAFO_KERNEL_ABI;
  if (version != kPluginVersion) return kUnsupported;
  table->kernel_count = static_cast<int32_t>(sizeof kKernels / sizeof kKernels[0]);
  table->kernel_names = kNames;
  table->kernels = kKernels;
  table->device_count = &device_count;
  table->device_info = &device_info;
  table->device_memory = &device_memory;
  table->open = &open_device;
  table->close = &close_device;
  table->allocate = &allocate;
  table->release = &release;
  table->copy_from_host = &copy_from_host;
  table->copy_to_host = &copy_to_host;
  table->copy = &copy;
  table->fill_zero = &fill_zero;
  table->synchronize = &synchronize;
  table->gemm = &gemm_entry;
  table->grouped_gemm = &grouped_gemm_entry;
  table->groups_gemms = &groups_gemms_entry;
  table->sums_in_gemm = &sums_in_gemm_entry;
  table->set_gemm_tf32 = &set_gemm_tf32;
  table->choose_as_on = &choose_as_on;
  table->last_error = &last_error;
  fill_tuning_functions(*table);
  fill_stream_functions(*table);
  fill_side_stream_functions(*table);
  fill_profile_functions(*table);
  return kSuccess;
}
