// Conditions under which ops run, beside their arguments. An op reads them from Context::step();
// StepScope of context.h sets one for a time. Most ops read none.
#pragma once

#include "engine/core/generated/option_enums.h"

namespace trafo {

class Tape;
class SideWork;
class LeafWatch;
class GradientObserver;
class Fp8Weights;
namespace ops {
class Fp8Magnitudes;
}

struct StepContext {
  Tape* tape = nullptr;   // takes the nodes of ops; never null in a Context
  bool recording = true;  // whether ops record nodes at all
  Recompute recompute = Recompute::none;
  LeafWatch* leaves = nullptr;              // is told of trainable leaves that ops use
  GradientObserver* observer = nullptr;     // is told when backward has completed gradients
  SideWork* side_work = nullptr;            // takes work beside the main order; null: no op has any
  const Fp8Weights* fp8_weights = nullptr;  // copies that linear layers multiply with
  ops::Fp8Magnitudes* magnitudes = nullptr;  // takes the largest magnitudes that kernels find
};

}  // namespace trafo
