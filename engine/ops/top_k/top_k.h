// The k most probable classes of each row of logits [R, V]: their log-probabilities, x - log sum_v
// exp x_v, and numbers, most probable first, equal ones by lower number. Outside autodiff: what
// beam search and sampling start from.
#pragma once

#include <span>

#include "engine/runtime/context.h"

namespace trafo {

inline constexpr int kMaxBannedClasses = 8;

struct TopKParams {
  DType dtype;
  int32_t banned_count;
  int32_t banned[kMaxBannedClasses];  // classes that are never chosen, but keep their share of the
                                      // probability
  int64_t rows, classes, k;
  const void* logits;       // [rows, classes]
  void* log_probabilities;  // [rows, k], stat_dtype(dtype); all NaN for a row with a NaN, an
                            // infinity, or nothing but -infinity
  int32_t* ids;             // [rows, k]; in such a row, the lowest classes that are not banned
};

namespace ops {

struct TopK {
  Tensor log_probabilities;  // [R, k], dtype of the logits, float32 for bfloat16
  Tensor ids;                // [R, k] int32
};

// 1 <= k <= V less the classes in `banned` (at most kMaxBannedClasses; negative numbers name no
// class and are passed over). UNSUPPORTED when a gradient of the logits is wanted.
TopK top_k(Context& context, const Tensor& logits, int64_t k, std::span<const int32_t> banned = {});

}  // namespace ops
}  // namespace trafo
