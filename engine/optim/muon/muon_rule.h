// The constants of the first half of Muon; muon.h has the second one.
#pragma once

#include "engine/optim/adamw/adamw_rule.h"

namespace trafo {

// Elements of matrices (UpdateFactors::whole_matrix):
// m = momentum m + (1-momentum) g; grad = m, or with nesterov momentum m + (1-momentum) g.
// Their parameters stay as they are until apply_direction. All other elements follow AdamWRule.
// The states are m and v; v of matrices stays 0.
struct MuonRule {
  AdamWRule adamw;
  double momentum;
  bool nesterov;
};

}  // namespace trafo
