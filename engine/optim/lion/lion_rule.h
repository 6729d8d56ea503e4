// The constants of Lion (Chen et al., arXiv 2302.06675, algorithm 2).
#pragma once

namespace trafo {

// p -= lr * (sign(b1 m + (1-b1) g) + decay p); m = b2 m + (1-b2) g. The sign of 0 is 0. The state
// is m.
struct LionRule {
  double beta1, beta2;
};

}  // namespace trafo
