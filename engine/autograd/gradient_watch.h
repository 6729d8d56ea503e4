// Follows when the gradients of leaves are complete, while a backward pass runs.
#pragma once

#include "engine/autograd/variable.h"

namespace trafo {

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

// During its lifetime backward passes on this thread tell the observer. It sees the tape that they
// begin with, not tapes of regions that are recomputed (checkpoint.h).
class GradientWatch {
 public:
  explicit GradientWatch(GradientObserver* observer);  // null: nobody
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  static GradientObserver* active();

 private:
  GradientObserver* outer_;
};

}  // namespace trafo
