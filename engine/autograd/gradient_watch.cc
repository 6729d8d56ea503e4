#include "engine/autograd/gradient_watch.h"

#include <utility>

namespace trafo {
namespace {

thread_local GradientObserver* active_observer = nullptr;

}  // namespace

GradientWatch::GradientWatch(GradientObserver* observer)
    : outer_(std::exchange(active_observer, observer)) {}

GradientWatch::~GradientWatch() {
  active_observer = outer_;
}

GradientObserver* GradientWatch::active() {
  return active_observer;
}

}  // namespace trafo
