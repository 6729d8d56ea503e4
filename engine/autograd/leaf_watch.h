// Detects whether ops use trainable leaves.
#pragma once

namespace trafo {

// used() is true if an op on this thread has had an input that requires a gradient during the
// lifetime of this object, recorded or not. Under NoGrad such an input is a leaf, for example a
// trainable parameter.
class LeafWatch {
 public:
  LeafWatch();
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;
  bool used() const { return used_; }

  static bool active();
  static void note();  // called by Context for every such op

 private:
  LeafWatch* outer_;
  bool used_ = false;
};

}  // namespace trafo
