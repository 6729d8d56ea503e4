// AdamW (Loshchilov & Hutter, arXiv 1711.05101) over one flat workspace: one kernel an update.
#pragma once

#include "engine/optim/optimizer.h"
#include "engine/runtime/context.h"

namespace trafo {

// What the moments are kept in. Values are part of the C ABI: never renumber, only append.
enum class OptimizerStates : int32_t {
  float32 = 0,   // the dtype of the parameters: float64 for those
  eight_bit = 1  // codes of a byte in blocks (engine/optim/state_code.h)
};

// "fp32", "8bit"; "unknown" for a value that is none.
const char* optimizer_states_name(OptimizerStates states);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  double weight_decay =
      0;  // decoupled: parameters shrink by learning_rate * weight_decay an update
  OptimizerStates states = OptimizerStates::float32;  // eight_bit: of float32 parameters only
  // Share of every update's parameters in their running mean (smoothing_share); 0: none is kept.
  double smoothing = 0;
};

class AdamW {
 public:
  // Both are contiguous, of one shape and dtype, float32 or float64, and must stay where they are.
  // The moments start at zero. `rounded`: undefined, or bfloat16 copies of float32 parameters,
  // which every update writes as well. `context` must outlive this.
  AdamW(Context& context, const Tensor& parameters, const Tensor& gradients,
        const AdamWOptions& options = {}, const Tensor& rounded = {});

  // One update with grad_scale * gradients (clipping and averaging). Not for gradients that are not
  // finite: they would stay in the moments for good.
  void step(double learning_rate, double grad_scale = 1);

  // Fills in what is updated and how: the fields that every update kernel's params have.
  template <class Params>
  void describe(Params& p) const {
    p.dtype = parameters_.dtype();
    p.count = parameters_.numel();
    p.beta1 = options_.beta1;
    p.beta2 = options_.beta2;
    p.epsilon = options_.epsilon;
    p.weight_decay = options_.weight_decay;
    p.param = parameters_.raw();
    p.grad = gradients_.raw();
    p.m = m_.raw();
    p.v = v_.raw();
    p.param_bf16 = rounded_.defined() ? rounded_.raw() : nullptr;
    p.m_scale = m_scale_.defined() ? m_scale_.data<float>() : nullptr;
    p.v_scale = v_scale_.defined() ? v_scale_.data<float>() : nullptr;
    p.mean = mean_.defined() ? mean_.raw() : nullptr;
    p.smoothing = options_.smoothing;
  }

  const AdamWOptions& options() const { return options_; }
  int64_t steps() const { return steps_; }  // updates so far

  DType dtype() const { return parameters_.dtype(); }
  int64_t state_bytes() const;  // of the moments and the running mean

  // For checkpoints: the moments are read and written in place, the count is set. 8-bit moments are
  // int32 [blocks, 64], a block's 256 codes in the order of their bytes, with float32 scales
  // [blocks]; others have no scales.
  const Tensor& first_moment() const { return m_; }
  const Tensor& second_moment() const { return v_; }
  const Tensor& first_scale() const { return m_scale_; }
  const Tensor& second_scale() const { return v_scale_; }
  // Of the parameters, like them; not defined without smoothing, means nothing before an update.
  const Tensor& mean() const { return mean_; }
  void set_steps(int64_t steps);

 private:
  Context& context_;
  Tensor parameters_, gradients_, rounded_, m_, v_, m_scale_, v_scale_, mean_;
  AdamWOptions options_;
  int64_t steps_ = 0;
};

}  // namespace trafo
