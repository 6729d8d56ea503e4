// Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon): momentum that is orthogonalized
// matrix by matrix. Parameters that are not in `matrices` follow AdamW.
//
// For a matrix of r rows and c columns, with the direction D of MuonRule:
// X = D / (|D| + 1e-7), |D| its Frobenius norm; five times X = 3.4445 X - 4.775 A X + 2.0315 A A X,
// A = X X^T; p = (1 - lr decay) p - lr 0.2 sqrt(max(r, c)) X.
// Coefficients, epsilon and steps are Keller Jordan's and torch.optim.Muon's. 0.2 sqrt(max(r, c))
// is the latter's adjust_lr_fn "match_rms_adamw" (Liu et al., arXiv 2502.16982): updates have the
// size of AdamW's, so both use one learning rate. X is bfloat16 on a GPU and of the parameters'
// dtype on a CPU.
#pragma once

#include "engine/optim/adamw/adamw.h"

namespace trafo {

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  AdamWOptions adamw = {};  // of the other parameters; its weight decay applies to all
};

class Muon final : public Optimizer {
 public:
  // The cells of `matrices` have separate groups in target.groups, with whole_matrix 1. A
  // matrix begins at a multiple of kGroupElements. It may be in several shards: each rank then
  // computes its direction and updates its own elements.
  Muon(Context& context, const UpdateTarget& target, std::span<const MatrixPart> matrices,
       const MuonOptions& options = {});

  OptimizerKind kind() const override { return OptimizerKind::muon; }
  void finish(const UpdateRecord* record, double learning_rate, int64_t step) override;

 private:
  void set_rule(UpdateRules& rules) const override;
  int64_t buffer_bytes() const override;
  void reserve();
  Tensor orthogonalized(const MatrixPart& matrix) const;

  MuonOptions options_;
  std::vector<MatrixPart> matrices_;  // with elements in the shard
  Tensor reserved_;                   // buffer_bytes() of memory for finish()
};

}  // namespace trafo
