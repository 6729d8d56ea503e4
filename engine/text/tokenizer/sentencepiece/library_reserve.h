// Memory for calls of the SentencePiece library, which does not survive a failed allocation: its
// protobuf lists are destroyed with an element that was never made, and nothing can catch what is
// thrown on the threads of its trainer.
#pragma once

#include <array>
#include <cstddef>
#include <thread>

#include "engine/os/threads.h"

namespace trafo {

// Around calls of the library and the lives of its objects: holds memory in a few parts. Where
// operator new fails on a thread that the reserve is for, one part is freed and operator new tries
// again. Other threads get std::bad_alloc as ever. It throws std::bad_alloc itself, before the
// library is called, if the memory is not there.
//
// This relies on std::set_new_handler: the program's own handler is back when no reserve is left.
// The limit: the call needs more than `bytes` after the first failure, or another thread takes all
// parts, each between its return and the next try.
class LibraryReserve {
 public:
  // started_threads_too: gives the calling thread a name, which they inherit.
  enum class For { this_thread, started_threads_too };
  explicit LibraryReserve(size_t bytes, For threads = For::this_thread);
  ~LibraryReserve();
  LibraryReserve(const LibraryReserve&) = delete;
  LibraryReserve& operator=(const LibraryReserve&) = delete;

 private:
  static void on_failed_allocation();
  bool serves_this_thread() const;
  bool find_memory() noexcept;
  bool free_part() noexcept;

  // State of a thread when its last allocation failed.
  struct Failure {
    std::thread::id thread;
    size_t parts_freed;
  };

  std::array<void*, 8> parts_{};
  size_t part_bytes_;
  size_t parts_freed_ = 0;
  std::array<Failure, 32> failures_{};
  size_t failed_threads_ = 0;
  LibraryReserve* next_ = nullptr;
  std::thread::id thread_;
  char name_[os::kThreadNameBytes] =
      {};  // of the thread and of those that it starts, if the reserve is for them
};

}  // namespace trafo
