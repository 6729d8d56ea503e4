// Detects which trainable leaves ops use.
#pragma once

#include <memory>
#include <vector>

#include "engine/core/tensor.h"

namespace trafo {

// leaves() is the memory of every input that requires a gradient and that an op on this thread has
// had during the lifetime of this object, recorded or not. Under NoGrad such an input is a leaf,
// for example a trainable parameter.
class LeafWatch {
 public:
  struct Leaf {
    std::shared_ptr<Storage> storage;
    uint64_t version;  // when an op first used it
  };

  LeafWatch();
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;
  const std::vector<Leaf>& leaves() const { return leaves_; }

  static bool active();
  static void note(const Tensor& input);  // called by Context for every such input

 private:
  LeafWatch* outer_;
  std::vector<Leaf> leaves_;
};

}  // namespace trafo
