// How much memory a device has, and how much of it nobody has taken.
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

// None if the device is not there, or does not say. On the CPU the machine's, or that of the
// smallest control group the process is in.
std::optional<DeviceMemory> device_memory(Device device);

// The host's, as the system's files below `root` say: proc/meminfo, proc/self/cgroup and
// sys/fs/cgroup.
std::optional<DeviceMemory> host_memory(const std::filesystem::path& root = "/");

}  // namespace trafo
