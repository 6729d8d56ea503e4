#include <cstdio>
#include <vector>

#include "capi/src/handles.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/os/memory.h"
#include "engine/quant/int8_kernel.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// One entry for each device of a kind; `why` says what is missing when no device is found.
std::vector<trafo_device_info> devices_of(const Call& call, int32_t device, std::string& why) {
  if (device == TRAFO_DEVICE_CPU) {
    trafo_device_info cpu{};
    cpu.memory_bytes = os::machine_memory();
    std::snprintf(cpu.name, sizeof cpu.name, "CPU");
    std::snprintf(cpu.int8_kernel, sizeof cpu.int8_kernel, "%s", best_int8_kernel().name);
    return {cpu};
  }
  if (device != TRAFO_DEVICE_CUDA)
    call.refuse_argument("device", " must be TRAFO_DEVICE_CPU (0) or TRAFO_DEVICE_CUDA (1), got ",
                         device);
  std::vector<trafo_device_info> devices;
  for (const CudaDeviceInfo& found : cuda_devices(&why)) {
    trafo_device_info info{};
    info.memory_bytes = found.memory_bytes;
    info.compute_major = found.compute_major;
    info.compute_minor = found.compute_minor;
    std::snprintf(info.name, sizeof info.name, "%s", found.name.c_str());
    devices.push_back(info);
  }
  return devices;
}

}  // namespace

trafo_error* trafo_device_count(int32_t device, int32_t* out, char** out_why) {
  return api(__func__, [&](const Call& call) {
    if (out_why) *out_why = nullptr;
    call.out(out);
    std::string why;
    const auto devices = devices_of(call, device, why);
    if (out_why) *out_why = copy_string(devices.empty() ? why : "");
    *out = static_cast<int32_t>(devices.size());
  });
}

trafo_error* trafo_device_get_info(int32_t device, int32_t index, trafo_device_info* out,
                                   size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    std::string why;
    const auto devices = devices_of(call, device, why);
    const auto count = static_cast<int32_t>(devices.size());
    if (index < 0 || index >= count)
      fail(ErrorCode::unsupported, call.function(), "there is no device ", index, ": ",
           count > 0 ? concat("the last one is number ", count - 1) : why);
    init_options(call, out, struct_size, devices[static_cast<size_t>(index)]);
  });
}
