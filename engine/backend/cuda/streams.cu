// The plugin's side of StreamDevice: pinned memory, events, recorded graphs.
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/stream_device.h"

namespace trafo::cuda {
namespace {

int32_t allocate_pinned(void* device, size_t bytes, void** pointer, Why why) {
  enter(device);
  *pointer = nullptr;
  return checked(device, cudaMallocHost(pointer, bytes), "cudaMallocHost", why);
}

void release_pinned(void* device, void* pointer) {
  enter(device);
  cudaFreeHost(pointer);
}

int32_t copy_async(void* device, void* target, const void* source, size_t bytes, Why why) {
  return checked(device,
                 cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, enter(device).stream),
                 "copy", why);
}

int32_t record(void* device, int32_t event, Why why) {
  DeviceState& state = enter(device);
  if (state.events.empty()) state.events.resize(StreamDevice::kEvents);
  cudaEvent_t& at = state.events[static_cast<size_t>(event)];
  if (!at) {
    const cudaError_t error =
        cudaEventCreateWithFlags(&at, cudaEventDisableTiming | cudaEventBlockingSync);
    if (error != cudaSuccess) return checked(device, error, "cudaEventCreate", why);
  }
  return checked(device, cudaEventRecord(at, state.stream), "cudaEventRecord", why);
}

int32_t wait(void* device, int32_t event, Why why) {
  DeviceState& state = enter(device);
  if (state.events.empty() || !state.events[static_cast<size_t>(event)]) return kSuccess;
  return checked(device, cudaEventSynchronize(state.events[static_cast<size_t>(event)]),
                 "waiting for an event", why);
}

int32_t begin_capture(void* device, Why why) {
  // Other threads may use the device meanwhile: thread-local.
  return checked(device,
                 cudaStreamBeginCapture(enter(device).stream, cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture", why);
}

int32_t end_capture(void* device, void** graph, Why why) {
  *graph = nullptr;
  cudaGraph_t recorded = nullptr;
  cudaError_t error = cudaStreamEndCapture(enter(device).stream, &recorded);
  if (error != cudaSuccess) return checked(device, error, "cudaStreamEndCapture", why);
  cudaGraphExec_t instance = nullptr;
  // Nodes keep the priorities of the streams on which they were captured.
  error = cudaGraphInstantiate(&instance, recorded, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(recorded);
  *graph = instance;
  return checked(device, error, "cudaGraphInstantiate", why);
}

int32_t launch_graph(void* device, void* graph, Why why) {
  return checked(device, cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), enter(device).stream),
                 "cudaGraphLaunch", why);
}

void release_graph(void* device, void* graph) {
  enter(device);
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void set_dropout_step(void* device, const uint32_t* step) {
  static_cast<DeviceState*>(device)->dropout_step = step;
}

}  // namespace

void fill_stream_functions(PluginTable& table) {
  table.allocate_pinned = &allocate_pinned;
  table.release_pinned = &release_pinned;
  table.copy_async = &copy_async;
  table.record = &record;
  table.wait = &wait;
  table.begin_capture = &begin_capture;
  table.end_capture = &end_capture;
  table.launch_graph = &launch_graph;
  table.release_graph = &release_graph;
  table.set_dropout_step = &set_dropout_step;
}

}  // namespace trafo::cuda
