// Where the engine and libtrafo_cuda.so meet: one C function that fills a table. Plain structs and
// pointers only; no C++ object and no exception crosses. Both sides compare the version of this
// header, the release they belong to and TRAFO_KERNEL_ABI, a hash of every header that declares a
// parameter struct (made by CMake), when they meet.
//
// bf16 kernels: activations, their gradients and parameters are bf16; gradients of parameters
// (gamma, beta, bias, tables), row statistics (mean, rstd, lse), losses and loss weights are
// float32; all sums run in float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cards.h"

namespace trafo::cuda {

// Raised with every change of this header.
inline constexpr int32_t kPluginVersion = 8;

// Result codes of the plugin's functions and kernels.
inline constexpr int32_t kSuccess = 0;
inline constexpr int32_t kOutOfMemory = 1;  // the device goes on working
inline constexpr int32_t kDeviceLost = 2;   // sticky: every later call on the device fails
inline constexpr int32_t kUnsupported = 3;  // dtype or shape this kernel has not
inline constexpr int32_t kFailed = 4;

struct DeviceInfo {
  char name[128];
  int32_t compute_major, compute_minor;
  int64_t memory_bytes;
};

// Text of what went wrong, NUL-terminated; may be null.
struct Why {
  char* text;
  size_t size;
};

// Microseconds of the kernels that were measured, the library's first proposal first.
struct GemmTimes {
  static constexpr int32_t kMost = 32;
  int32_t count;
  float us[kMost];
};

struct PluginTable {
  int32_t version;             // kPluginVersion
  const char* engine_version;  // of the release the plugin belongs to: "0.1.0"
  const char* kernel_abi;      // TRAFO_KERNEL_ABI

  // Kernels by name (engine/ops/op_list.def); an absent one is null.
  int32_t kernel_count;
  const char* const* kernel_names;
  const KernelFn* kernels;

  int32_t (*device_count)(int32_t* count, Why why);  // 0 devices without a driver, and why
  int32_t (*device_info)(int32_t index, DeviceInfo* info, Why why);
  int32_t (*device_memory)(int32_t index, int64_t* total, int64_t* free, Why why);  // bytes
  // A device handle with a stream, a cublasLt handle and its workspace; also the `stream` of every
  // kernel.
  int32_t (*open)(int32_t index, void** device, Why why);
  void (*close)(void* device);

  int32_t (*allocate)(void* device, size_t bytes, void** pointer, Why why);
  void (*release)(void* device, void* pointer);
  // In stream order. copy_to_host waits. Host memory may be reused when copy_from_host returns: a
  // graph that is captured keeps a copy.
  int32_t (*copy_from_host)(void* device, void* target, const void* source, size_t bytes, Why why);
  int32_t (*copy_to_host)(void* device, void* target, const void* source, size_t bytes, Why why);
  int32_t (*copy)(void* device, void* target, const void* source, size_t bytes, Why why);
  int32_t (*fill_zero)(void* device, void* target, size_t bytes, Why why);
  int32_t (*synchronize)(void* device, Why why);
  int32_t (*gemm)(void* device, const GemmParams* params, Why why);
  int32_t (*grouped_gemm)(void* device, const GemmParams* gemms, int64_t count, Why why);
  int32_t (*groups_gemms)(void* device);  // 1: of bf16
  int32_t (*sums_in_gemm)(void* device, const GemmParams* params, int32_t alone);

  // While on, GEMMs of float32 run in TF32 (engine/backend/tf32.h).
  void (*set_gemm_tf32)(void* device, int32_t on);

  // Functions for GemmTuner (engine/backend/gemm_tuner.h).
  int32_t (*measure_gemm)(void* device, const GemmParams* params, GemmTimes* times, Why why);
  void (*set_gemm_tuning)(void* device, int32_t on);
  void (*set_gemm_tuning_budget)(void* device, double seconds);
  void (*gemm_tuning_cost)(void* device, GemmTuningCost* cost);
  void (*gemm_library)(void* device, Why text);
  // At most `most` of them; returns how many there are.
  int32_t (*gemm_choices)(void* device, GemmChoice* choices, int32_t most);
  // `refused_fails`: a GEMM whose choice cuBLASLt refuses fails; otherwise the choice is dropped.
  void (*set_gemm_choices)(void* device, const GemmChoice* choices, int32_t count,
                           int32_t refused_fails);

  // Functions for StreamDevice (engine/backend/stream_device.h).
  int32_t (*allocate_pinned)(void* device, size_t bytes, void** pointer, Why why);
  void (*release_pinned)(void* device, void* pointer);
  int32_t (*copy_async)(void* device, void* target, const void* source, size_t bytes, Why why);
  int32_t (*record)(void* device, int32_t event, Why why);
  int32_t (*wait)(void* device, int32_t event, Why why);
  int32_t (*begin_capture)(void* device, Why why);
  int32_t (*end_capture)(void* device, void** graph, Why why);  // ends it in any case
  int32_t (*launch_graph)(void* device, void* graph, Why why);
  void (*release_graph)(void* device, void* graph);
  void (*set_dropout_step)(void* device, const uint32_t* step);
  // Functions for SideStream (engine/backend/side_stream.h).
  int32_t (*enter_side)(void* device, Why why);
  int32_t (*leave_side)(void* device, int32_t slot, Why why);
  int32_t (*await_side)(void* device, int32_t slot, Why why);
  void (*begin_partials)(void* device, void* memory, size_t bytes);
  void (*end_partials)(void* device);
  int32_t (*add_partials)(void* device, Why why);
  int32_t (*record_time)(void* device, int64_t* mark, Why why);
  int32_t (*elapsed)(void* device, int64_t from, int64_t to, double* milliseconds, Why why);
  void (*forget_times)(void* device);
  int32_t (*annotates)();  // 1: a tool is attached
  void (*push_name)(const char* name, const char* kind);
  void (*pop_name)();

  // Chooses kernels as on `card`; null: as on the card itself. For tests. kUnsupported: kernels for
  // that one do not run on the card.
  int32_t (*choose_as_on)(void* device, const Card* card, Why why);

  // The newest error of a kernel launch on this device, in words. Borrowed until the next call.
  const char* (*last_error)(void* device);
};

// The plugin's one exported symbol. Non-zero if it cannot serve `version`; the table's own version
// is filled in any case.
using PluginEntry = int32_t (*)(int32_t version, PluginTable* table);
inline constexpr const char* kPluginEntryName = "trafo_cuda_plugin";

}  // namespace trafo::cuda
