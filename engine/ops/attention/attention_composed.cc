#include "engine/ops/attention/attention_checks.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

Tensor window(Context& context, const AttentionInput& input, int64_t begin, int64_t end,
              int64_t head, int64_t head_dim) {
  const int64_t column = input.column + head * head_dim;
  return slice(context, slice(context, input.tensor, 0, begin, end), 1, column, column + head_dim);
}

// The factors of the fused kernel for one head of one sequence.
Tensor dropout_mask(Context& context, const Dropout& dropout, int64_t first_row, int64_t queries,
                    int64_t keys, int64_t max_keys, DType dtype) {
  const Shape shape{queries, keys};
  std::vector<double> wide(static_cast<size_t>(queries * keys));
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      wide[static_cast<size_t>(i * keys + j)] =
          dropout_keeps(dropout, (first_row + i) * max_keys + j) ? dropout.scale() : 0;
  return context.from_doubles(wide, shape, dtype);
}

}  // namespace

Tensor attention_from_ranges(Context& context, const AttentionInput& q, const AttentionInput& k,
                             const AttentionInput& v, const AttentionRanges& ranges,
                             const AttentionOptions& options) {
  SoftmaxOptions masks;
  masks.scale = attention_scale(options);
  masks.causal = options.causal;
  std::vector<Tensor> sequences;
  // A batch of no sequences still depends on its (empty) inputs.
  const auto count = static_cast<size_t>(std::max<int64_t>(1, ranges.sequences));
  for (size_t b = 0; b < count; ++b) {
    const bool none = ranges.sequences == 0;
    const int64_t q0 = none ? 0 : ranges.query_begin[b], q1 = none ? 0 : ranges.query_end[b];
    const int64_t k0 = none ? 0 : ranges.key_begin[b], k1 = none ? 0 : ranges.key_end[b];
    std::vector<Tensor> heads;
    for (int64_t h = 0; h < options.heads; ++h) {
      const Tensor queries = window(context, q, q0, q1, h, options.head_dim);
      const Tensor keys = window(context, k, k0, k1, h, options.head_dim);
      const Tensor values = window(context, v, k0, k1, h, options.head_dim);
      const Tensor scores = matmul(context, queries, keys, {.transpose_b = true});
      Tensor probabilities = softmax(context, scores, masks);
      if (options.dropout.active())
        probabilities = multiply(context, probabilities,
                                 dropout_mask(context, options.dropout, h * q.tensor.dim(0) + q0,
                                              q1 - q0, k1 - k0, ranges.max_keys, q.tensor.dtype()));
      heads.push_back(matmul(context, probabilities, values));
    }
    sequences.push_back(ops::concat(context, heads, 1));
  }
  return ops::concat(context, sequences, 0);
}

Tensor attention_composed(Context& context, const AttentionInput& q, const AttentionInput& k,
                          const AttentionInput& v, const Tensor& cu_seqlens_q,
                          const Tensor& cu_seqlens_k, const AttentionOptions& options) {
  check_attention_inputs(context, "attention", q, k, v, options);
  const AttentionRanges ranges = packed_ranges(context, "attention", cu_seqlens_q, q.tensor.dim(0),
                                               cu_seqlens_k, k.tensor.dim(0), options);
  return attention_from_ranges(context, q, k, v, ranges, options);
}

}  // namespace trafo::ops
