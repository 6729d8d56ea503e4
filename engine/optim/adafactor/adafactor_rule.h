// The constants of Adafactor (Shazeer & Stern, arXiv 1804.04235), as in transformers' Adafactor
// without a first moment.
#pragma once

namespace trafo {

// The first half of an update scales the gradient: grad = g. The second one (FactoredUpdateParams)
// changes a parameter P [n, m] along its gradient G. In update t, with b = 1 - t^decay_rate:
//   R[i] = b R[i] + (1-b) (mean over j of G[i,j]^2 + square_epsilon)
//   C[j] = b C[j] + (1-b) (mean over i of G[i,j]^2 + square_epsilon)
//   U[i,j] = G[i,j] / sqrt(R[i] C[j] / mean(R))
//   a = lr, with scale_parameter times max(scale_epsilon, rms(P))
//   P = (1 - a decay) P - a U / max(1, rms(U) / clip_threshold)
// With one row, as of a vector, R[0] / mean(R) is 1, and C is the whole second moment.
struct AdafactorRule {
  double decay_rate, clip_threshold, square_epsilon, scale_epsilon;
  bool scale_parameter;
};

}  // namespace trafo
