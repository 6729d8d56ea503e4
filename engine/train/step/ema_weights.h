// The EMA of the weights in place of the weights, for validation.
#pragma once

#include "engine/nn/parameter_store.h"

namespace trafo {

class Trainer;

// Lets a model compute with the EMA of its weights, which has the layout of
// ParameterStore::master().
class EmaSwap {
 public:
  // `ema`: undefined if there is none. Context and parameters must outlive it.
  EmaSwap(Context& context, ParameterStore& parameters, const Tensor& ema);
  void use_ema();
  void use_weights();  // with the same bits as before

 private:
  void exchange();

  Context& context_;
  ParameterStore& parameters_;
  Tensor ema_;
  Tensor buffer_;  // scratch, for weights without masters
};

// During its lifetime the model computes with Trainer::ema_weights(). No update may be in flight or
// submitted, and nothing may be saved.
class EmaWeights {
 public:
  explicit EmaWeights(Trainer& trainer);
  ~EmaWeights();
  EmaWeights(const EmaWeights&) = delete;
  EmaWeights& operator=(const EmaWeights&) = delete;

 private:
  EmaSwap* swap_;  // null: the weights are used as they are
};

}  // namespace trafo
