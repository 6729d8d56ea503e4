// Whether ops use leaves whose gradient is wanted.
#pragma once

namespace trafo {

// While one of these lives, used() says whether an op on this thread was given a tensor that wants
// a gradient, recorded or not. Under NoGrad that can only be a leaf, such as a trainable parameter.
class LeafWatch {
 public:
  LeafWatch();
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;
  bool used() const { return used_; }

  static bool active();
  static void note();  // by Context, for every such op

 private:
  LeafWatch* outer_;
  bool used_ = false;
};

}  // namespace trafo
