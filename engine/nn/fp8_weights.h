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
  // Null: it does not multiply in FP8, or belongs to another store.
  const ops::Fp8Matrix* find(const Weight& weight) const;
  // Whether there are linear layers beside the output projection.
  bool has_linear_layers() const { return ids_.size() > 1; }
  int64_t bytes() const;

 private:
  const ParameterStore& parameters_;
  std::vector<ParamId> ids_;
  std::vector<ops::Fp8Matrix> matrices_;
  std::vector<int32_t> places_;  // of each parameter in `matrices_`; -1: none
};

// The copy that an op on the context multiplies with in place of the weight; null: none.
inline const ops::Fp8Matrix* fp8_copy(const Context& context, const Weight& weight) {
  const Fp8Weights* const copies = context.step().fp8_weights;
  return copies ? copies->find(weight) : nullptr;
}

}  // namespace trafo
