// The constants of AdamW (Loshchilov & Hutter, arXiv 1711.05101).
#pragma once

namespace trafo {

// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// p -= lr * (mhat / (sqrt(vhat) + epsilon) + decay p), mhat = m / (1 - b1^step), vhat = v / (1 -
// b2^step).
struct AdamWRule {
  double beta1, beta2, epsilon;
  // False: the states are m and v. True: the parameters are float32, and the states are the codes
  // of m, their scales, the codes of v and their scales, as in state_code.h: codes are one byte an
  // element of whole blocks, scales one float a block. Every update decodes the moments and codes
  // the new ones; `step` is part of the random numbers of the rounding.
  bool eight_bit;
};

}  // namespace trafo
