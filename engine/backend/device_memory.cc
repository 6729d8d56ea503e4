#include "engine/backend/device_memory.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/os/file.h"
#include "engine/os/memory.h"

namespace trafo {
namespace {

// Calls `each` with the lines of a file of the kernel until it returns true.
template <class Each>
void for_each_line(const std::string& file, Each each) {
  const std::string text = os::read_system_file(file.c_str());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (each(std::string_view(text).substr(at, end - at))) return;
    at = end + 1;
  }
}

// The number at the start of a text, after spaces; no value for "max".
std::optional<int64_t> number_at_start(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
    return std::nullopt;
  return value;
}

// The number after `key` in lines like "MemAvailable:   123 kB" or "inactive_file 123".
std::optional<int64_t> field_of(const std::string& file, std::string_view key) {
  std::optional<int64_t> value;
  for_each_line(file, [&](std::string_view line) {
    const bool found = line.starts_with(key) && line.size() > key.size() &&
                       (line[key.size()] == ' ' || line[key.size()] == '\t');
    if (found) value = number_at_start(line.substr(key.size()));
    return found;
  });
  return value;
}

std::optional<int64_t> number_in(const std::string& file) {
  return number_at_start(os::read_system_file(file.c_str()));
}

// Lowers `memory` to the limits of a control group. Cached file pages count as free, because the
// kernel drops them when memory is needed.
void limit_by_group(const std::string& limit, const std::string& used,
                    const std::string& statistics, const std::string& cached,
                    DeviceMemory& memory) {
  const auto most = number_in(limit), taken = number_in(used);
  if (!most || !taken || *most < 0) return;
  memory.total = std::min(memory.total, *most);
  const int64_t in_use = *taken - std::min(*taken, field_of(statistics, cached).value_or(0));
  memory.free = std::min(memory.free, std::max<int64_t>(0, *most - in_use));
}

// A group and its ancestors. The lowest may not be visible, because a container sees its own group
// as the root. Strings instead of std::filesystem::path, whose growth does not survive a failed
// allocation.
void limit_by_groups(const std::string& mount, std::string group, bool unified,
                     DeviceMemory& memory) {
  while (true) {
    const std::string folder = mount + (group.starts_with('/') ? "" : "/") + group + "/";
    if (unified)
      limit_by_group(folder + "memory.max", folder + "memory.current", folder + "memory.stat",
                     "inactive_file", memory);
    else
      limit_by_group(folder + "memory.limit_in_bytes", folder + "memory.usage_in_bytes",
                     folder + "memory.stat", "total_inactive_file", memory);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos || group == "/") return;
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

}  // namespace

std::optional<DeviceMemory> host_memory(const std::filesystem::path& root) {
  const std::string base = root.string() + "/";
  const std::string meminfo = base + "proc/meminfo";
  const auto total = field_of(meminfo, "MemTotal:"), free = field_of(meminfo, "MemAvailable:");
  if (!total || !free) {  // a system without /proc
    const int64_t unused = os::free_machine_memory();
    if (unused == 0) return std::nullopt;
    return DeviceMemory{os::machine_memory(), unused};
  }
  DeviceMemory memory{*total * 1024, *free * 1024};
  // Lines are NUMBER:CONTROLLERS:GROUP; version 2 has no controllers.
  for_each_line(base + "proc/self/cgroup", [&](std::string_view line) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return false;
    const std::string controllers = std::string(line.substr(first, second - first)) + ",";
    const std::string group(line.substr(second + 1));
    if (controllers == ":,")
      limit_by_groups(base + "sys/fs/cgroup", group, true, memory);
    else if (controllers.find(":memory,") != std::string::npos ||
             controllers.find(",memory,") != std::string::npos)
      limit_by_groups(base + "sys/fs/cgroup/memory", group, false, memory);
    return false;
  });
  return memory;
}

std::optional<DeviceMemory> device_memory(Device device) {
  if (device.kind == DeviceKind::cpu) return host_memory();
  DeviceMemory memory;
  if (!cuda_device_memory(device.index, memory.total, memory.free)) return std::nullopt;
  return memory;
}

}  // namespace trafo
