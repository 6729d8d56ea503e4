// Total and free memory of a device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/core/device.h"

namespace trafo {

struct DeviceMemory {
  int64_t total = 0;  // bytes
  int64_t free = 0;
};

// No value if the device is absent or does not report it. For the CPU: the machine's memory, or the
// limit of the process's control group if that is smaller.
std::optional<DeviceMemory> device_memory(Device device);

// The host's memory, read from proc/meminfo, proc/self/cgroup and sys/fs/cgroup below `root`.
std::optional<DeviceMemory> host_memory(const std::filesystem::path& root = "/");

}  // namespace trafo
