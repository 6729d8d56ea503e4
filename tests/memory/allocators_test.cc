#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>

#include "engine/backend/meta/meta_backend.h"
#include "engine/core/status.h"
#include "engine/memory/arena.h"
#include "engine/memory/arena_plan.h"
#include "engine/memory/caching_allocator.h"

namespace trafo {
namespace {

// No two allocations that live at the same time share a byte.
void expect_disjoint(const AllocationTrace& trace, const ArenaPlan& plan) {
  const auto& lives = trace.lifetimes();
  for (size_t a = 0; a < lives.size(); ++a) {
    EXPECT_LE(plan.places[a].offset + lives[a].bytes, plan.bytes);
    EXPECT_EQ(plan.places[a].offset % ArenaPlan::kAlignment, 0u);
    for (size_t b = 0; b < a; ++b) {
      if (lives[a].freed < lives[b].allocated || lives[b].freed < lives[a].allocated) continue;
      const bool apart = plan.places[a].offset + lives[a].bytes <= plan.places[b].offset ||
                         plan.places[b].offset + lives[b].bytes <= plan.places[a].offset;
      EXPECT_TRUE(apart) << a << " and " << b;
    }
  }
}

TEST(ArenaPlan, ReusesWhatIsFree) {
  AllocationTrace trace;
  const size_t a = trace.allocated(1000);
  trace.freed(a);
  const size_t b = trace.allocated(900), c = trace.allocated(100);
  trace.freed(b);
  trace.freed(c);
  const ArenaPlan plan = plan_arena(trace);
  expect_disjoint(trace, plan);
  EXPECT_EQ(plan.bytes, 1024u + 256u);
  EXPECT_EQ(plan.places[a].offset, 0u);
  EXPECT_EQ(plan.places[b].offset, 0u);
  EXPECT_EQ(plan_arena(AllocationTrace{}).bytes, 0u);
}

TEST(ArenaPlan, LivesOfAnySortDoNotMeet) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    AllocationTrace trace;
    std::vector<std::pair<size_t, size_t>> living;  // allocation, bytes
    size_t now = 0, peak = 0;
    for (int i = 0; i < 300; ++i) {
      if (living.empty() || random() % 5 < 3) {
        const size_t bytes = 1 + random() % 5000;
        living.emplace_back(trace.allocated(bytes), bytes);
        now += (bytes + 255) / 256 * 256;
        peak = std::max(peak, now);
      } else {
        const size_t at = random() % living.size();
        trace.freed(living[at].first);
        now -= (living[at].second + 255) / 256 * 256;
        living.erase(living.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const ArenaPlan plan = plan_arena(trace);
    expect_disjoint(trace, plan);
    EXPECT_GE(plan.bytes, peak);
    EXPECT_LE(plan.bytes, peak + peak / 4) << "far from the least that any plan needs";
  }
}

TEST(Arena, ServesThePlanAndNothingElse) {
  AllocationTrace trace;
  trace.allocated(10);
  trace.allocated(20);
  const ArenaPlan plan = plan_arena(trace);
  std::vector<std::byte> memory(plan.bytes);
  Arena arena(memory.data(), plan);
  EXPECT_EQ(arena.take(10), memory.data() + plan.places[0].offset);
  EXPECT_THROW(arena.take(21), Error);
  EXPECT_EQ(arena.take(20), memory.data() + plan.places[1].offset);
  EXPECT_THROW(arena.take(20), Error);
}

TEST(FittingArena, ServesSmallerStepsOfTheSameCourse) {
  AllocationTrace trace;
  const size_t a = trace.allocated(1000), b = trace.allocated(1000);
  trace.freed(a);
  const size_t c = trace.allocated(1000);  // in the place of a
  trace.freed(b);
  trace.freed(c);
  const ArenaPlan plan = plan_arena(trace);
  ASSERT_EQ(plan.places[2].offset, plan.places[0].offset);
  std::vector<std::byte> memory(plan.bytes);
  FittingArena arena;
  arena.begin(memory.data(), plan);
  void *first = arena.take(1000), *second = arena.take(10);
  EXPECT_NE(first, second);
  arena.released(first);
  EXPECT_EQ(arena.take(999), first);
  EXPECT_EQ(arena.living(), 2u);
  EXPECT_THROW(arena.begin(memory.data(), plan), Error) << "two tensors are still there";
  arena.released(first);
  arena.released(second);

  // An allocation that should be freed is not: its memory is not given away, now or later.
  arena.begin(memory.data(), plan);
  first = arena.take(1000);
  second = arena.take(1000);
  EXPECT_EQ(arena.take(1000), nullptr);
  arena.released(first);
  EXPECT_EQ(arena.take(1000), nullptr);
  EXPECT_EQ(arena.refused(), 2);
  arena.released(second);

  arena.begin(memory.data(), plan);  // larger than planned, or more
  EXPECT_EQ(arena.take(1001), nullptr);
  EXPECT_EQ(arena.living(), 0u);
}

TEST(MetaBackend, NotesWhatAStepAllocates) {
  const auto backend = make_meta_backend({DeviceKind::cuda, 0}, 3);
  void* kept = backend->allocate(100);
  const int32_t words[2] = {7, 8};
  backend->copy_from_host(kept, words, sizeof words);
  backend->take_trace();
  void* big = backend->allocate(size_t{40} << 30);  // nothing follows it
  void* small = backend->allocate(5);
  backend->launch(2, "test", nullptr);
  backend->release(big, size_t{40} << 30);
  void* late = backend->allocate(6);
  backend->release(kept, 100);  // older than the trace
  int32_t back[2];
  backend->copy_to_host(back, kept, sizeof back);
  EXPECT_EQ(back[1], 8);
  const AllocationTrace trace = backend->take_trace();
  ASSERT_EQ(trace.lifetimes().size(), 3u);
  EXPECT_EQ(trace.lifetimes()[0].bytes, size_t{40} << 30);
  EXPECT_LT(trace.lifetimes()[0].freed, trace.lifetimes()[2].allocated);
  EXPECT_EQ(trace.lifetimes()[1].freed, INT64_MAX);
  EXPECT_THROW(backend->allocate(size_t{1} << 60), Error);
  backend->release(small, 5);
  backend->release(late, 6);
}

constexpr size_t kMiB = size_t{1} << 20;

class CachedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    touch(64);
    keeps_blocks_ = allocator_.stats().reserved_bytes != 0;  // not with the address sanitizer
  }
  void touch(size_t bytes) { allocator_.release(allocator_.allocate(bytes), bytes); }
  int64_t reserved() const { return allocator_.stats().reserved_bytes; }
  int64_t system_calls() const { return allocator_.stats().system_calls; }
  static int64_t bound(int64_t most_in_use) {
    return most_in_use + most_in_use / 4 + static_cast<int64_t>(CachingAllocator::kSpare);
  }

  CachingAllocator allocator_;
  bool keeps_blocks_ = false;
};

TEST_F(CachedMemory, OfEverOtherSizesDoesNotAddUp) {
  std::mt19937 random(1);
  std::deque<std::pair<void*, size_t>> blocks;
  for (int i = 0; i < 2000; ++i) {
    // Sizes of a server's requests: 40 kB to 10 MB, up to eight at once.
    const size_t bytes = size_t{40'000} << random() % 8;
    blocks.emplace_back(nullptr, bytes + random() % bytes);
    blocks.back().first = allocator_.allocate(blocks.back().second);
    while (blocks.size() > 1 + random() % 8) {
      allocator_.release(blocks.front().first, blocks.front().second);
      blocks.pop_front();
    }
    // A block may be twice as large as asked for.
    ASSERT_LE(reserved(), bound(2 * allocator_.stats().peak_bytes)) << "after " << i << " blocks";
  }
  for (const auto& [block, bytes] : blocks) allocator_.release(block, bytes);
}

TEST_F(CachedMemory, ServesTheSameSizesWithoutTheSystem) {
  const auto step = [this] {
    std::deque<std::pair<void*, size_t>> blocks;
    for (size_t bytes = 1000; bytes < 20 * kMiB; bytes += bytes / 3)
      blocks.emplace_back(allocator_.allocate(bytes), bytes);
    for (const auto& [block, bytes] : blocks) allocator_.release(block, bytes);
  };
  step();
  const int64_t calls = system_calls();
  for (int i = 0; i < 100; ++i) step();
  if (keeps_blocks_) {
    EXPECT_EQ(system_calls(), calls);
  }
}

TEST_F(CachedMemory, FallsAfterABurst) {
  touch(400 * kMiB);
  const auto few = [this] {
    for (int64_t i = 0; i < CachingAllocator::kPeriod; ++i) touch(1000);
  };
  few();  // of the burst's period: its blocks may be needed again
  if (keeps_blocks_) {
    EXPECT_GE(reserved(), static_cast<int64_t>(400 * kMiB));
  }
  few();
  few();
  EXPECT_LE(reserved(), bound(static_cast<int64_t>(kMiB)));
}

TEST_F(CachedMemory, LosesTheSizesOfLongAgo) {
  const size_t often = 7 * kMiB;
  for (size_t bytes = 5 * kMiB; bytes < 20 * kMiB; bytes += bytes / 8) {
    touch(often);
    touch(bytes);
  }
  const int64_t calls = system_calls();
  touch(often);
  if (keeps_blocks_) {
    EXPECT_EQ(system_calls(), calls);
  }
  EXPECT_LE(reserved(), bound(20 * kMiB));
}

TEST_F(CachedMemory, TakesALargerBlockRatherThanTheSystem) {
  constexpr size_t kLarge = 112 * kMiB, kSmaller = 96 * kMiB;
  touch(kLarge);
  const int64_t calls = system_calls();
  for (int i = 0; i < 3; ++i) {
    void* const block = allocator_.allocate(kSmaller);
    EXPECT_EQ(allocator_.stats().allocated_bytes, static_cast<int64_t>(kSmaller));
    allocator_.release(block, kSmaller);
  }
  touch(kLarge);
  if (keeps_blocks_) {
    EXPECT_EQ(system_calls(), calls);
    EXPECT_EQ(reserved(), static_cast<int64_t>(kLarge + 64));
  }
}

// A training step without a plan beside an arena may keep as much as one without an arena.
TEST_F(CachedMemory, BesideAnArenaIsKept) {
  void* const arena = allocator_.allocate_exactly(200 * kMiB);
  touch(30 * kMiB);
  const int64_t calls = system_calls();
  touch(10 * kMiB);
  touch(30 * kMiB);
  if (keeps_blocks_) {
    EXPECT_EQ(system_calls(), calls + 1);
  }
  allocator_.release_exactly(arena, 200 * kMiB);
  EXPECT_LE(reserved(), static_cast<int64_t>(48 * kMiB));
}

}  // namespace
}  // namespace trafo
