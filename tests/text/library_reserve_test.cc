// The memory in reserve for a library that cannot bear std::bad_alloc. operator new calls the new
// handler when it fails, so these tests call it too. tests/reliability/tokenizer_memory has real
// failures.
#include "engine/text/tokenizer/sentencepiece/library_reserve.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <future>
#include <new>
#include <thread>

namespace trafo {
namespace {

// Whether operator new would try again after a failure on this thread.
bool tries_again() {
  try {
    std::get_new_handler()();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// How often operator new could fail on this thread.
int failures_borne() {
  int count = 0;
  while (count < 1000 && tries_again()) ++count;
  return count;
}

class LibraryReserveTest : public ::testing::Test {
 protected:
  // For::started_threads_too renames the thread.
  void SetUp() override { pthread_getname_np(pthread_self(), name_, sizeof name_); }
  void TearDown() override { pthread_setname_np(pthread_self(), name_); }
  char name_[16] = {};
};

TEST_F(LibraryReserveTest, EndsAfterItsParts) {
  for (const size_t bytes : {size_t{100}, size_t{4} << 20}) {
    const LibraryReserve reserve(bytes);
    const int parts = failures_borne();
    EXPECT_GT(parts, 1);
    EXPECT_LE(parts, 8);
    EXPECT_FALSE(tries_again());
    const LibraryReserve another(bytes);
    EXPECT_EQ(failures_borne(), parts);
  }
}

TEST_F(LibraryReserveTest, TheHandlerOfTheProgramIsBack) {
  static int called = 0;
  const auto own = [] {
    ++called;
    throw std::bad_alloc();
  };
  const std::new_handler before = std::set_new_handler(own);
  {
    const LibraryReserve reserve(1000);
    EXPECT_TRUE(tries_again());
    EXPECT_EQ(called, 0);
    failures_borne();
    EXPECT_EQ(called, 1);
  }
  EXPECT_EQ(std::set_new_handler(before), std::new_handler(own));
}

TEST_F(LibraryReserveTest, ServesOtherThreadsOnlyIfTheyInheritItsName) {
  std::promise<void> begin;
  std::future<bool> earlier;
  std::thread older([&, promise = std::promise<bool>()]() mutable {
    earlier = promise.get_future();
    begin.get_future().wait();
    promise.set_value(tries_again());
  });
  {
    const LibraryReserve own(1000);
    std::async(std::launch::async, [] { EXPECT_FALSE(tries_again()); }).get();
    EXPECT_TRUE(tries_again());
  }
  const LibraryReserve shared(1000, LibraryReserve::For::started_threads_too);
  std::async(std::launch::async, [] { EXPECT_TRUE(tries_again()); }).get();
  begin.set_value();
  older.join();
  EXPECT_FALSE(earlier.get());
}

// A thread that failed before the last part was freed takes no separate part.
TEST_F(LibraryReserveTest, OnePartIsEnoughForThreadsThatFailTogether) {
  const LibraryReserve reserve(1000, LibraryReserve::For::started_threads_too);
  EXPECT_TRUE(tries_again());
  std::async(std::launch::async, [] { EXPECT_TRUE(tries_again()); }).get();  // knows of no part
  const int more = failures_borne();
  const LibraryReserve other(1000, LibraryReserve::For::started_threads_too);
  EXPECT_EQ(failures_borne(), more + 1);
}

}  // namespace
}  // namespace trafo
