// Memory, the process and shared libraries, on every system that engine/os supports.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "engine/os/memory.h"
#include "engine/os/process.h"
#include "engine/os/shared_library.h"
#include "engine/os/threads.h"
#include "tests/os/test_folder.h"

namespace trafo {
namespace {

TEST(OsMemory, BlocksAreAligned) {
  for (const size_t alignment : {size_t{64}, size_t{2} << 20}) {
    void* block = os::allocate_aligned(alignment, 2 * alignment);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
    os::prefer_huge_pages(block, 2 * alignment);
    std::memset(block, 1, 2 * alignment);
    os::free_aligned(block);
  }
}

TEST(OsMemory, PagesAreZeroAlsoAfterTheyWereCleared) {
  constexpr size_t kBytes = size_t{1} << 20;
  for (const os::Pages kind : {os::Pages::memory, os::Pages::addresses}) {
    auto* bytes = static_cast<unsigned char*>(os::map_pages(kBytes, kind));
    ASSERT_NE(bytes, nullptr);
    const auto is_zero = [&] {
      return std::all_of(bytes, bytes + kBytes, [](unsigned char byte) { return byte == 0; });
    };
    EXPECT_TRUE(is_zero());
    std::memset(bytes, 7, kBytes);
    os::clear_pages(bytes, kBytes);
    EXPECT_TRUE(is_zero());
    os::unmap_pages(bytes, kBytes);
  }
  EXPECT_EQ(os::map_pages(SIZE_MAX / 4, os::Pages::memory), nullptr);
}

TEST(OsMemory, ANamelessFileIsMemoryAndLeavesNothing) {
  const TestFolder folder;
  constexpr size_t kBytes = size_t{3} << 16;
  auto* bytes = static_cast<unsigned char*>(os::map_nameless_file(folder / "seen-", kBytes));
  ASSERT_NE(bytes, nullptr) << errno;
  EXPECT_EQ(bytes[kBytes - 1], 0);
  bytes[kBytes - 1] = 1;
  os::unmap_file_pages(bytes, kBytes);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(os::map_nameless_file(folder / "missing/seen-", kBytes), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OsMemory, TheMachineHasSome) {
  EXPECT_GT(os::machine_memory(), int64_t{1} << 20);
  EXPECT_LE(os::free_machine_memory(), os::machine_memory());
}

TEST(OsProcess, KnowsWhoIsAlive) {
  EXPECT_GT(os::process_id(), 0);
  EXPECT_TRUE(os::process_is_alive(os::process_id()));
  EXPECT_FALSE(os::process_is_alive(os::kLargestProcessId));
  EXPECT_FALSE(os::host_name().empty());
  EXPECT_FALSE(os::user_name().empty());
  EXPECT_TRUE(std::filesystem::is_directory(os::user_folder()));
  EXPECT_EQ(os::trusted_environment("TRAFO_NO_SUCH_VARIABLE"), nullptr);
}

TEST(OsProcess, RandomBytesDiffer) {
  std::array<unsigned char, 32> one{}, other{};
  EXPECT_TRUE(os::random_bytes(one.data(), one.size()));
  EXPECT_TRUE(os::random_bytes(other.data(), other.size()));
  EXPECT_NE(one, other);
}

TEST(OsLibrary, AMissingOneIsNamed) {
  std::string why;
  EXPECT_EQ(os::open_library("libtrafo_no_such_library" TRAFO_LIBRARY_SUFFIX, why), nullptr);
  EXPECT_TRUE(why.starts_with("libtrafo_no_such_library" TRAFO_LIBRARY_SUFFIX ":")) << why;
  EXPECT_TRUE(std::filesystem::is_directory(os::own_folder()));
}

TEST(OsThreads, ThreadsInheritTheName) {
  const std::string name = "trafo-test";
  std::thread([&] {
    os::name_threads(name.c_str());
    bool inherited = false;
    std::thread([&] { inherited = os::threads_have_name(name.c_str()); }).join();
    EXPECT_TRUE(inherited);
  }).join();
}

// Of the thread that ran last. A thread_local variable of a simple type must outlive the
// destructors of others: MinGW keeps all of them in memory that it frees when a thread ends.
std::atomic<int> seen_at_end = -1;
thread_local int mark_of_thread = 0;
struct ReadsMarkAtEnd {
  ~ReadsMarkAtEnd() { seen_at_end = mark_of_thread; }
};

TEST(OsThreads, LocalVariablesAreThereUntilDestructorsHaveRun) {
  for (const int mark : {42, 43}) {
    std::thread([mark] {
      mark_of_thread = mark;
      thread_local ReadsMarkAtEnd at_end;
      static_cast<void>(&at_end);
    }).join();
    EXPECT_EQ(seen_at_end, mark);
  }
}

}  // namespace
}  // namespace trafo
