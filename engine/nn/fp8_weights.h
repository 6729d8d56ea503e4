// The weights of a model in FP8, for the GEMMs of training.
#pragma once

#include <vector>

#include "engine/nn/parameter_store.h"
#include "engine/ops/fp8/fp8.h"

namespace trafo {

// Both copies of the matrices that multiply in FP8: the output projection, and linear layers with
// `elements` weights or more, both of whose sizes are multiples of kFp8Multiple. They are made once
// an update, so that all its micro-batches, and what is recomputed, read the same bits. Parameters
// are looked up by number: the store must keep its layout.
class Fp8Weights {
 public:
  // INVALID_ARGUMENT if the output projection has a width that FP8 GEMMs do not have.
  Fp8Weights(Context& context, const ParameterStore& parameters, ParamId output, int64_t elements);
  // Makes the copies of the present values.
  void refresh(const Context& context);
  // Null: the parameter does not multiply in FP8.
  const ops::Fp8Matrix* find(ParamId id) const;
  // Whether there are linear layers beside the output projection.
  bool has_linear_layers() const { return ids_.size() > 1; }
  int64_t bytes() const;

 private:
  const ParameterStore& parameters_;
  std::vector<ParamId> ids_;
  std::vector<ops::Fp8Matrix> matrices_;
  std::vector<int32_t> places_;  // of each parameter in `matrices_`; -1: none
};

// Until it is destroyed, weights of the store come with their FP8 copies. Null: without.
class Fp8Scope {
 public:
  Fp8Scope(ParameterStore& parameters, const Fp8Weights* weights) : parameters_(parameters) {
    parameters.set_fp8_weights(weights);
  }
  ~Fp8Scope() { parameters_.set_fp8_weights(nullptr); }
  Fp8Scope(const Fp8Scope&) = delete;
  Fp8Scope& operator=(const Fp8Scope&) = delete;

 private:
  ParameterStore& parameters_;
};

}  // namespace trafo
