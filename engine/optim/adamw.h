// AdamW (Loshchilov & Hutter, arXiv 1711.05101) over one flat workspace: one kernel an update.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/core/element_range.h"
#include "engine/core/option_enums.generated.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/context.h"

namespace trafo {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  // Decoupled: an update multiplies parameters with 1 - learning_rate * weight_decay.
  double weight_decay = 0;
  OptimizerStates states = OptimizerStates::float32;  // eight_bit: of float32 parameters only
  double ema_alpha = 0;  // weight of an update in the EMA of the parameters (ema_weight); 0: no EMA
};

// Parameters that are updated with separate factors. Empty: every factor is 1.
struct UpdateGroups {
  std::vector<UpdateFactors> factors;  // at most 256
  // For every kGroupElements elements of the workspace, an index of `factors`.
  std::vector<uint8_t> group_of;
};

class AdamW {
 public:
  // Both are contiguous, of one shape and dtype, float32 or float64, and must stay where they are.
  // The moments start at zero. `rounded`: undefined, or bfloat16 copies of float32 parameters,
  // which every update writes as well. `shard`: the elements that updates change, all by default;
  // it begins at a multiple of kSquaresElements. There are moments of these alone. `context` must
  // outlive this.
  AdamW(Context& context, const Tensor& parameters, const Tensor& gradients,
        const AdamWOptions& options = {}, const Tensor& rounded = {},
        const UpdateGroups& groups = {}, const std::optional<ElementRange>& shard = {});

  // One update with grad_scale * gradients (clipping and averaging). The gradients must be finite:
  // the moments would keep anything else for good.
  void step(double learning_rate, double grad_scale = 1);

  AdamWState state() const { return state(shard_); }  // for the kernels
  // Of these elements of the shard, which begin at a multiple of kSquaresElements.
  AdamWState state(const ElementRange& range) const;
  // The parameters have changed (Storage::version).
  void mark_written() const;
  const AdamWOptions& options() const { return options_; }
  int64_t steps() const { return steps_; }  // updates so far

  DType dtype() const { return parameters_.dtype(); }
  const Tensor& gradients() const { return gradients_; }
  const ElementRange& shard() const { return shard_; }
  int64_t state_bytes() const;  // of the moments, the EMA and the table of groups

  // For checkpoints: the moments are read and written in place, the count is set. 8-bit moments are
  // int32 [blocks, 64], the 256 codes of a block in the order of their bytes, with float32 scales
  // [blocks]; others have no scales. With a shard, all are of its elements
  // alone.
  const Tensor& first_moment() const { return m_; }
  const Tensor& second_moment() const { return v_; }
  const Tensor& first_scale() const { return m_scale_; }
  const Tensor& second_scale() const { return v_scale_; }
  // Like the parameters, of which a shard changes its own part; undefined without ema_alpha, and
  // without meaning before an update.
  const Tensor& ema() const { return ema_; }
  void set_steps(int64_t steps);

 private:
  void set_groups(const UpdateGroups& groups);

  Context& context_;
  Tensor parameters_, gradients_, rounded_, m_, v_, m_scale_, v_scale_, ema_;
  Tensor group_of_, factors_;  // undefined, or AdamWState::group_of and factors as int32 words
  int32_t groups_ = 0;
  ElementRange shard_;
  AdamWOptions options_;
  int64_t steps_ = 0;
};

}  // namespace trafo
