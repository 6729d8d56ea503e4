// Detects which trainable leaves ops use.
#pragma once

#include <memory>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

// leaves() is the memory of every input that requires a gradient and that an op on the context has
// had during the lifetime of this object, recorded or not. Under NoGrad such an input is a leaf,
// for example a trainable parameter.
class LeafWatch {
 public:
  struct Leaf {
    std::shared_ptr<Storage> storage;
    uint64_t version;  // when an op first used it
  };

  explicit LeafWatch(Context& context)
      : outer_(context.step().leaves), in_use_(context, &StepContext::leaves, this) {}
  const std::vector<Leaf>& leaves() const { return leaves_; }

  void note(const Tensor& input);  // called by the context for every such input

 private:
  LeafWatch* outer_;  // sees them as well
  std::vector<Leaf> leaves_;
  StepScope<LeafWatch*> in_use_;
};

}  // namespace trafo
