#pragma once

#include <cstdint>
#include <string>

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class DeviceKind : int32_t { cpu = 0, cuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline std::string device_name(Device device) {  // "cpu", "cuda:0"
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace trafo
