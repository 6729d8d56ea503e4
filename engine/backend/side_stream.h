// A second stream of an accelerator, for work that the rest of a step does not wait for.
#pragma once

#include <cstddef>

namespace trafo {

class SideWork;

// A backend may run the work of the second stream on the first one, in the order in which it was
// issued. Outside graph capture, CUDA's does.
class SideStream {
 public:
  virtual ~SideStream() = default;

  // Work issued until leave_side() goes to the second stream. It starts after all work issued so
  // far to either stream.
  virtual void enter_side() = 0;
  // The work of the second stream so far gets a number, `slot`, 0 to kSlots - 1. An earlier one of
  // this number must have been awaited. Work goes to the first stream again.
  virtual void leave_side(int slot) = 0;
  // Work issued from now on to the first stream starts after the work with this number.
  virtual void await_side(int slot) = 0;
  static constexpr int kSlots = 8;

  // Some kernels sum over rows in two stages: blocks leave partial sums, and a second kernel adds
  // them up. The second kernel of a launch between the first two calls waits for add_partials(), if
  // the partial sums fit into `memory`. One launch, on the first stream.
  virtual void begin_partials(void* memory, size_t bytes) = 0;
  virtual void end_partials() = 0;
  virtual void add_partials() = 0;  // nothing if nothing waits

 private:
  friend class SideWork;
  bool in_use_ = false;  // by the SideWork of a step that runs
};

}  // namespace trafo
