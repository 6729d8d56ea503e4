// Follows when the gradients of leaves are complete, while a backward pass runs.
#pragma once

#include "engine/autograd/variable.h"

namespace trafo {

// Told while it is StepContext::observer. It sees the tape that a pass begins with, not tapes of
// regions that are recomputed (checkpoint.h).
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  // Before the first backward function of a pass, for each use of a leaf in its tape.
  virtual void will_add(const Variable& leaf) = 0;
  // After the backward function of such a use.
  virtual void added(const Variable& leaf) = 0;
  // Called by who runs the pass, when all gradients are complete.
  virtual void finished() = 0;
};

}  // namespace trafo
