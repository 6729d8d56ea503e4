#include "engine/backend/device_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

class HostMemory : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  TemporaryDirectory root_;
};

TEST_F(HostMemory, IsWhatTheKernelCallsAvailable) {
  EXPECT_FALSE(host_memory(root_.path()).has_value());
  put("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  600 kB\n");
  const auto memory = host_memory(root_.path());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total, 1000 * 1024);
  EXPECT_EQ(memory->free, 600 * 1024);
}

TEST_F(HostMemory, IsLimitedByEveryControlGroupAbove) {
  put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  put("proc/self/cgroup", "0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("sys/fs/cgroup/outer/inner/memory.current", "1000\n");
  put("sys/fs/cgroup/outer/memory.max", "300000\n");
  put("sys/fs/cgroup/outer/memory.current", "200000\n");
  put("sys/fs/cgroup/outer/memory.stat", "anon 150000\ninactive_file 50000\n");
  const auto memory = host_memory(root_.path());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total, 300000);
  EXPECT_EQ(memory->free, 150000);
}

TEST_F(HostMemory, IsLimitedByTheOldControlGroupsToo) {
  put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  put("proc/self/cgroup", "5:cpu,memory:/docker/abc\n4:pids:/\n");
  // A container sees its own group as the root.
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  const auto memory = host_memory(root_.path());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->free, 300000);
}

TEST(DeviceMemory, OfThisMachineIsKnown) {
  const auto memory = device_memory({DeviceKind::cpu, 0});
  ASSERT_TRUE(memory);
  EXPECT_GT(memory->free, 0);
  EXPECT_LE(memory->free, memory->total);
  EXPECT_FALSE(device_memory({DeviceKind::cuda, 99}).has_value());
}

}  // namespace
}  // namespace trafo
