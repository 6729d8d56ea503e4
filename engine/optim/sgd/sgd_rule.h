// The constants of SGD.
#pragma once

namespace trafo {

// torch.optim.SGD with dampening 0: d = g + decay p; v = momentum v + d; p -= lr v, or with
// nesterov p -= lr (d + momentum v). The state is v, or nothing without momentum.
struct SgdRule {
  double momentum;
  bool nesterov;
};

}  // namespace trafo
