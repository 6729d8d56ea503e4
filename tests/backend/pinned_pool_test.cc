#include "engine/backend/pinned_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "engine/core/status.h"

namespace trafo {
namespace {

// A device that counts its pinned blocks. Nothing is copied from it.
class PinnedBlocks final : public StreamDevice {
 public:
  void* allocate_pinned(size_t bytes) override {
    require(!full, ErrorCode::out_of_memory, "test", "no pinned memory");
    blocks_.push_back(std::make_unique<std::byte[]>(bytes));
    alive.insert(blocks_.back().get());
    return blocks_.back().get();
  }
  void release_pinned(void* pointer) noexcept override {
    EXPECT_EQ(alive.erase(static_cast<std::byte*>(pointer)), 1u);
  }
  void copy_async(void*, const void*, size_t) override {}
  void record(int) override {}
  void wait(int) override {}
  void begin_capture() override {}
  void* end_capture(char*, size_t) override { return nullptr; }
  void launch_graph(void*) override {}
  void release_graph(void*) noexcept override {}
  void set_dropout_step(const uint32_t*) override {}
  int64_t record_time() override { return 0; }
  double elapsed(int64_t, int64_t) override { return 0; }
  void forget_times() noexcept override {}
  bool annotates() override { return false; }
  void push_name(const char*, const char*) override {}
  void pop_name() noexcept override {}

  bool full = false;
  std::set<std::byte*> alive;

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

TEST(PinnedPool, UsesReleasedBuffersOfTheSameSizeAgain) {
  PinnedBlocks device;
  PinnedPool pool(&device);
  std::byte* first = nullptr;
  {
    const HostBuffer a = pool.take(100), b = pool.take(100);
    EXPECT_EQ(a.size(), 100u);
    EXPECT_NE(a.data(), b.data());
    first = a.data();
  }
  EXPECT_EQ(device.alive.size(), 2u);
  const HostBuffer again = pool.take(100), more = pool.take(100), other = pool.take(50);
  EXPECT_TRUE(again.data() == first || more.data() == first);
  EXPECT_EQ(device.alive.size(), 3u);
}

TEST(PinnedPool, ReleasesItsBlocksWithTheLastBuffer) {
  PinnedBlocks device;
  {
    HostBuffer last;
    {
      PinnedPool pool(&device);
      pool.take(100);
      last = pool.take(200);
    }
    EXPECT_EQ(device.alive.size(), 2u);
    last.data()[199] = std::byte{1};
  }
  EXPECT_TRUE(device.alive.empty());
}

TEST(PinnedPool, BeyondItsLimitAndWithoutPinnedMemoryBuffersArePlain) {
  PinnedBlocks device;
  PinnedPool pool(&device);
  const HostBuffer large = pool.take(PinnedPool::kMostBytes + 1);
  EXPECT_EQ(large.size(), PinnedPool::kMostBytes + 1);
  device.full = true;
  const HostBuffer small = pool.take(100);
  EXPECT_NE(small.data(), nullptr);
  EXPECT_TRUE(device.alive.empty());
  PinnedPool of_the_cpu(nullptr);
  EXPECT_EQ(of_the_cpu.take(10).size(), 10u);
  EXPECT_EQ(of_the_cpu.take(0).size(), 0u);
}

}  // namespace
}  // namespace trafo
