#include "engine/train/step/ema_weights.h"

#include <algorithm>

#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr int64_t kSwapElements = 1 << 20;  // swapped at a time

}  // namespace

EmaSwap::EmaSwap(Context& context, ParameterStore& parameters, const Tensor& ema)
    : context_(context), parameters_(parameters), ema_(ema) {
  if (ema.defined() && !parameters.has_master())
    buffer_ =
        context.empty({std::min(kSwapElements, parameters.flat().numel())}, parameters.dtype());
}

// With master weights, the model's values are their rounding and can be restored from them.
void EmaSwap::use_ema() {
  if (parameters_.has_master())
    parameters_.follow(context_, ema_);
  else
    exchange();
}

void EmaSwap::use_weights() {
  if (parameters_.has_master())
    parameters_.follow_master(context_);
  else
    exchange();
}

// Copies only, so that the weights come back with the same bits.
void EmaSwap::exchange() {
  Backend& backend = context_.backend();
  auto* weights = static_cast<std::byte*>(parameters_.master().raw());
  auto* ema = static_cast<std::byte*>(ema_.raw());
  const size_t bytes = ema_.bytes();
  for (size_t at = 0; at < bytes; at += buffer_.bytes()) {
    const size_t piece = std::min(buffer_.bytes(), bytes - at);
    backend.copy(buffer_.raw(), weights + at, piece);
    backend.copy(weights + at, ema + at, piece);
    backend.copy(ema + at, buffer_.raw(), piece);
  }
  parameters_.master().mark_written();
}

EmaWeights::EmaWeights(Trainer& trainer) : swap_(trainer.ema_swap()) {
  if (swap_) swap_->use_ema();
}

EmaWeights::~EmaWeights() {
  if (!swap_) return;
  try {
    swap_->use_weights();
  } catch (const Error&) {  // the device is lost, and the weights with it
  }
}

}  // namespace trafo
