// The plugin's side of profiles: marks in the stream's time, and names for Nsight (NVTX).
#include <cstdio>

#include "engine/backend/cuda/device_state.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TRAFO_NVTX 1
#endif

namespace trafo::cuda {
namespace {

int32_t record_time(void* device, int64_t* mark, Why why) {
  DeviceState& state = enter(device);
  if (state.time_marks == state.time_events.size()) {
    cudaEvent_t event = nullptr;  // with times, and waited for without going to sleep
    const cudaError_t error = cudaEventCreate(&event);
    if (error != cudaSuccess) return checked(device, error, "cudaEventCreate", why);
    state.time_events.push_back(event);
  }
  *mark = static_cast<int64_t>(state.time_marks);
  const cudaError_t error = cudaEventRecord(state.time_events[state.time_marks], state.stream);
  if (error == cudaSuccess) ++state.time_marks;
  return checked(device, error, "cudaEventRecord", why);
}

int32_t elapsed(void* device, int64_t from, int64_t to, double* milliseconds, Why why) {
  DeviceState& state = enter(device);
  const cudaEvent_t first = state.time_events[static_cast<size_t>(from)];
  const cudaEvent_t last = state.time_events[static_cast<size_t>(to)];
  cudaError_t error = cudaEventSynchronize(last);
  float between = 0;
  if (error == cudaSuccess && first != last) error = cudaEventElapsedTime(&between, first, last);
  *milliseconds = between;
  return checked(device, error, "reading the time of an event", why);
}

void forget_times(void* device) {
  static_cast<DeviceState*>(device)->time_marks = 0;
}

#ifdef TRAFO_NVTX

// Null if no tool is attached: NVTX then makes no domains.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("trafo");
  return ours;
}

int32_t annotates() {
  return domain() != nullptr ? 1 : 0;
}

void push_name(const char* name, const char* kind) {
  char text[128];
  std::snprintf(text, sizeof text, "%s %s", name, kind);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  nvtxDomainRangePushEx(domain(), &attributes);
}

void pop_name() {
  nvtxDomainRangePop(domain());
}

#else

int32_t annotates() {
  return 0;
}
void push_name(const char*, const char*) {}
void pop_name() {}

#endif

}  // namespace

void fill_profile_functions(PluginTable& table) {
  table.record_time = &record_time;
  table.elapsed = &elapsed;
  table.forget_times = &forget_times;
  table.annotates = &annotates;
  table.push_name = &push_name;
  table.pop_name = &pop_name;
}

}  // namespace trafo::cuda
