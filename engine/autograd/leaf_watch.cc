#include "engine/autograd/leaf_watch.h"

namespace trafo {
namespace {

thread_local LeafWatch* innermost = nullptr;

}  // namespace

LeafWatch::LeafWatch() : outer_(innermost) {
  innermost = this;
}

LeafWatch::~LeafWatch() {
  innermost = outer_;
}

bool LeafWatch::active() {
  return innermost != nullptr;
}

void LeafWatch::note() {
  for (LeafWatch* watch = innermost; watch; watch = watch->outer_) watch->used_ = true;
}

}  // namespace trafo
