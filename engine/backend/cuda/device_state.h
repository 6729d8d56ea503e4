// The argument of kernel launchers: the device they run on. CUDA side only.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/cuda/cards.h"
#include "engine/backend/cuda/plugin_api.h"

namespace trafo::cuda {

struct GemmPlans;  // gemm_plans.h
struct DeviceState;

// Kernels of ops for GEMMs with an epilogue, bf16.
struct GemmEpilogues {
  // All in one kernel, if `taken`.
  int32_t (*fused)(DeviceState&, const GemmParams& p, bool& taken);
  // The epilogue on its own, after a GEMM that has written A B to `product`, which may be C.
  int32_t (*alone)(DeviceState&, const GemmParams& p, const void* product);
  // A GEMM and its term of low rank in one kernel, if `taken`.
  int32_t (*with_term)(DeviceState&, const GemmParams& p, bool& taken);
};

// The second stream, with separate memory for the kernels that run there.
struct SideLane {
  static constexpr int kSlots = 8;  // SideStream::kSlots
  cudaStream_t stream = nullptr;    // made on first use
  void* blas_workspace = nullptr;
  void* scratch_memory = nullptr;
  size_t scratch_bytes = 0;
  cudaEvent_t fork = nullptr;
  cudaEvent_t done[kSlots] = {};
  bool forked = false;  // kernels that are being captured go to the second stream
};

// Up to three vectors that partial sums are added up to; null ones are skipped.
struct ColumnSums {
  float* out[3] = {};
  bool accumulate[3] = {};
};

// Partial sums [parts, sums, width] of a launch that are added up later (SideStream).
struct PendingPartials {
  void* memory = nullptr;  // between begin_partials() and end_partials()
  size_t bytes = 0;
  bool pending = false;
  const float* partials = nullptr;
  int64_t parts = 0, width = 0;
  int sums = 0;
  ColumnSums to;
};

// Work is ordered on `stream`. Between enter_side() and leave_side() that is the second one, with
// its workspace and scratch memory; launchers need not know. `index` is made current by every entry
// of the plugin before a launcher runs.
struct DeviceState {
  int32_t index = 0;
  int32_t multiprocessors = 0;
  int32_t compute_major = 0;
  size_t shared_memory_per_block = 0;  // cudaDevAttrMaxSharedMemoryPerBlockOptin
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  void* blas_workspace = nullptr;
  GemmPlans* gemm_plans = nullptr;
  const GemmEpilogues* epilogues = nullptr;
  std::string error;  // newest failure, in words

  // Scratch for partial sums, reused by every kernel in stream order; grows when it must. Null if
  // the device has no memory left.
  void* scratch(size_t bytes);

  void* scratch_memory = nullptr;
  size_t scratch_bytes = 0;
  std::vector<void*> outgrown_scratch;  // graphs that were recorded before still use it

  std::vector<cudaEvent_t> events;
  std::vector<cudaEvent_t> time_events;  // marks of a profile, kept for the next one
  size_t time_marks = 0;                 // in use
  // Added to the forward pass of every dropout mask when a kernel runs; may be null.
  const uint32_t* dropout_step = nullptr;
  SideLane side;
  PendingPartials partials;
};

// gemm_tuning.cu
void fill_tuning_functions(PluginTable& table);
// streams.cu
void fill_stream_functions(PluginTable& table);
// side_stream.cu
void fill_side_stream_functions(PluginTable& table);
void free_side_lane(DeviceState& device);
// profile.cu
void fill_profile_functions(PluginTable& table);
// Writes the text and returns `result`.
int32_t tell(Why why, int32_t result, const char* text);
// Text and code of a failed call; for every entry of the plugin.
int32_t checked(void* device, cudaError_t error, const char* what, Why why);
DeviceState& enter(void* device);

// Records what went wrong and says which kind it is: kOutOfMemory, kDeviceLost (sticky errors) or
// kFailed.
int32_t report(DeviceState& device, cudaError_t error, const char* what);

// After every launch.
inline int32_t launched(DeviceState& device, const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? kSuccess : report(device, error, kernel);
}

// The gradient of a parameter [width] (float32) when there are no rows to sum: zeros, unless it is
// added to or not wanted.
inline int32_t clear_gradient(DeviceState& device, void* gradient, bool accumulate, int64_t width) {
  if (!gradient || accumulate) return kSuccess;
  const cudaError_t error =
      cudaMemsetAsync(gradient, 0, static_cast<size_t>(width) * sizeof(float), device.stream);
  return error == cudaSuccess ? kSuccess : report(device, error, "clearing a gradient");
}

inline int32_t unsupported(DeviceState& device, const char* what) {
  device.error = what;
  return kUnsupported;
}

}  // namespace trafo::cuda
