// An accelerator's asynchronous interface: pinned memory, asynchronous copies, events, and graphs
// of captured work.
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
  // In stream order. The host side is pinned memory. It must not change until an event recorded
  // after the copy has passed.
  virtual void copy_async(void* target, const void* source, size_t bytes) = 0;

  // Records event number `event`, 0 to kEvents - 1. It passes when all work issued so far is done.
  static constexpr int kEvents = 64;
  virtual void record(int event) = 0;
  virtual void wait(int event) = 0;  // returns at once if it was never recorded

  // Work issued between the two calls is captured instead of run. end_capture() returns the graph.
  // If the work cannot be captured it returns null and writes the reason to `reason`, of `size`
  // bytes.
  virtual void begin_capture() = 0;
  virtual void* end_capture(char* reason, size_t size) = 0;
  virtual void launch_graph(void* graph) = 0;
  virtual void release_graph(void* graph) noexcept = 0;  // may be null

  // While `step` is set, kernels add `*step` (device memory) to the forward pass number that they
  // were given. A captured graph thus draws new dropout masks at each replay. Null: nothing is
  // added.
  virtual void set_dropout_step(const uint32_t* step) = 0;

  // --- for profiles ---
  // Issues a time mark and returns its number, counted from 0 since forget_times(). Not during
  // graph capture.
  virtual int64_t record_time() = 0;
  // Milliseconds on the device between two marks; `from` is not after `to`. Waits for both.
  virtual double elapsed(int64_t from, int64_t to) = 0;
  virtual void forget_times() noexcept = 0;
  // True if a profiling tool is attached that takes names of ranges. push_name() and pop_name() may
  // only be called then.
  virtual bool annotates() = 0;
  virtual void push_name(const char* name, const char* kind) = 0;
  virtual void pop_name() noexcept = 0;
};

}  // namespace trafo
