// What an accelerator offers for steps that the host does not wait for: memory that copies run
// from while the host goes on, events, and recorded graphs of work.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trafo {

class StreamDevice {
 public:
  virtual ~StreamDevice() = default;

  // Page-locked host memory. Throws OUT_OF_MEMORY.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* pointer) noexcept = 0;  // may be null
  // In stream order; the host side is pinned memory, left alone until an event after it has passed.
  virtual void copy_async(void* target, const void* source, size_t bytes) = 0;

  // Event number `event`, 0 to kEvents - 1, passes when all work issued so far is done.
  static constexpr int kEvents = 64;
  virtual void record(int event) = 0;
  virtual void wait(int event) = 0;  // at once if it was never recorded

  // Work issued between the two is recorded and not run. end_capture() ends it in any case; it
  // returns null and says why in `reason` (of `size` bytes) if the work cannot be recorded.
  virtual void begin_capture() = 0;
  virtual void* end_capture(char* reason, size_t size) = 0;
  virtual void launch_graph(void* graph) = 0;
  virtual void release_graph(void* graph) noexcept = 0;  // may be null

  // While it is set, dropout masks are those of forward pass `*step` (device memory) plus the
  // pass that a kernel was given; null: of the pass given.
  virtual void set_dropout_step(const uint32_t* step) = 0;

  // --- for profiles ---
  // Marks what has been issued so far; marks count from 0 after forget_times(). Not while work is
  // recorded.
  virtual int64_t record_time() = 0;
  // Milliseconds between the moments in which the work before two marks, `from` not after `to`, was
  // done; waits for both.
  virtual double elapsed(int64_t from, int64_t to) = 0;
  virtual void forget_times() noexcept = 0;
  // True if a tool looks on that wants to know what is issued between push_name() and pop_name();
  // they may only be called then.
  virtual bool annotates() = 0;
  virtual void push_name(const char* name, const char* kind) = 0;
  virtual void pop_name() noexcept = 0;
};

}  // namespace trafo
