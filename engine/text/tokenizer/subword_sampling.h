// Subword regularisation: a text is segmented at random, anew in every epoch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/core/numeric/shuffle.h"

namespace trafo {

struct SubwordSampling {
  // 0: no sampling. The kind of the vocabulary gives other values their meaning. A unigram model
  // draws segmentation x with the probability p(x)^alpha / sum of all p^alpha: 1 is the model's own
  // distribution, smaller values are more uniform. A BPE model leaves out every merge with
  // probability alpha.
  double source_alpha = 0, target_alpha = 0;
  uint64_t seed = 1;
};

// Uniform in [0, 1).
inline double uniform(ShuffleRng& rng) {
  return static_cast<double>(rng.next() >> 11) * 0x1p-53;
}

// Immutable: any number of threads may use one.
class SubwordSampler {
 public:
  virtual ~SubwordSampler() = default;

  // Replaces ids by a segmentation of the text, drawn with `rng`. INVALID_ARGUMENT: invalid UTF-8
  // or a NUL byte.
  virtual void sample(std::string_view text, double alpha, ShuffleRng& rng,
                      std::vector<int32_t>& ids) const = 0;
};

}  // namespace trafo
