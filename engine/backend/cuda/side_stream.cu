// The plugin's side of SideStream. While a graph is captured, the second stream is a branch of it:
// it begins and ends with events. Otherwise its work is issued to the first stream. Both use the
// same memory, which therefore has its size before a step is captured.
#include "engine/backend/side_stream.h"

#include <utility>

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/gemm.h"

namespace trafo::cuda {
namespace {

static_assert(SideLane::kSlots == SideStream::kSlots);

cudaError_t make_lane(SideLane& lane) {
  // Lower than the first stream's: its blocks fill what the others leave free.
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  const auto make_event = [&](cudaEvent_t& event) {
    if (error == cudaSuccess && !event)
      error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  };
  make_event(lane.fork);
  for (cudaEvent_t& event : lane.done) make_event(event);
  if (error == cudaSuccess && !lane.blas_workspace)
    error = cudaMalloc(&lane.blas_workspace, kBlasWorkspaceBytes);
  if (error == cudaSuccess)
    error = cudaStreamCreateWithPriority(&lane.stream, cudaStreamNonBlocking, least);
  return error;
}

bool capturing(const DeviceState& state) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(state.stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

void swap_memory(DeviceState& state) {
  std::swap(state.blas_workspace, state.side.blas_workspace);
  std::swap(state.scratch_memory, state.side.scratch_memory);
  std::swap(state.scratch_bytes, state.side.scratch_bytes);
}

int32_t enter_side(void* device, Why why) {
  DeviceState& state = enter(device);
  SideLane& lane = state.side;
  if (!lane.stream) {
    const cudaError_t error = make_lane(lane);
    if (error != cudaSuccess) return checked(device, error, "making the second stream", why);
  }
  lane.forked = capturing(state);
  if (lane.forked) {
    cudaError_t error = cudaEventRecord(lane.fork, state.stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(lane.stream, lane.fork);
    if (error != cudaSuccess) {
      lane.forked = false;
      return checked(device, error, "beginning work on the second stream", why);
    }
    std::swap(state.stream, lane.stream);
  }
  swap_memory(state);
  return kSuccess;
}

int32_t leave_side(void* device, int32_t slot, Why why) {
  DeviceState& state = enter(device);
  SideLane& lane = state.side;
  swap_memory(state);
  if (!lane.forked) return kSuccess;
  std::swap(state.stream, lane.stream);
  lane.forked = false;
  return checked(device, cudaEventRecord(lane.done[slot], lane.stream),
                 "ending work on the second stream", why);
}

int32_t await_side(void* device, int32_t slot, Why why) {
  DeviceState& state = enter(device);
  if (!capturing(state)) return kSuccess;
  return checked(device, cudaStreamWaitEvent(state.stream, state.side.done[slot]),
                 "waiting for the second stream", why);
}

void begin_partials(void* device, void* memory, size_t bytes) {
  PendingPartials& partials = static_cast<DeviceState*>(device)->partials;
  partials = {};
  partials.memory = memory;
  partials.bytes = bytes;
}

void end_partials(void* device) {
  static_cast<DeviceState*>(device)->partials.memory = nullptr;
}

int32_t add_partials(void* device, Why why) {
  DeviceState& state = enter(device);
  const PendingPartials p = std::exchange(state.partials, {});
  if (!p.pending) return kSuccess;
  const int32_t result = launch_sum_partials(state, p.partials, p.parts, p.sums, p.width, p.to);
  return result == kSuccess ? kSuccess : tell(why, result, state.error.c_str());
}

}  // namespace

void free_side_lane(DeviceState& device) {
  SideLane& lane = device.side;
  if (lane.stream) cudaStreamDestroy(lane.stream);
  if (lane.fork) cudaEventDestroy(lane.fork);
  for (const cudaEvent_t event : lane.done)
    if (event) cudaEventDestroy(event);
  if (lane.blas_workspace) cudaFree(lane.blas_workspace);
  if (lane.scratch_memory) cudaFree(lane.scratch_memory);
  lane = {};
}

void fill_side_stream_functions(PluginTable& table) {
  table.enter_side = &enter_side;
  table.leave_side = &leave_side;
  table.await_side = &await_side;
  table.begin_partials = &begin_partials;
  table.end_partials = &end_partials;
  table.add_partials = &add_partials;
}

}  // namespace trafo::cuda
