#include <algorithm>
#include <limits>
#include <vector>

#include "engine/ops/attention/attention_checks.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/masks/masks.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

// out[i] = x[from[i]] for x [rows, columns]. Row r has the gradient of out[to[r]]. Padding rows of
// `out` repeat a row and give it no gradient.
Tensor moved_rows(Context& context, const Tensor& x, const Tensor& from, const Tensor& to) {
  const auto move = [](Context& ctx, const Tensor& source, const Tensor& index, void* target) {
    GatherRowsParams p{};
    p.dtype = source.dtype();
    p.x_rows = source.dim(0);
    p.rows = index.numel();
    p.width = p.out_stride = source.dim(1);
    p.x_stride = source.dim(0) > 1 ? source.strides()[0] : source.dim(1);
    p.x = source.raw();
    p.index = index.data<int32_t>();
    p.out = target;
    launch(ctx, OpKernel::gather_rows, "attention", p);
  };
  const bool dense = x.dim(1) <= 1 || x.strides()[1] == 1;
  const Tensor source = dense && x.strides()[0] >= x.dim(1) ? x : contiguous(context, x);
  const OpRange range(context, "moved_rows", source, from);
  Tensor out = context.empty({from.numel(), x.dim(1)}, x.dtype());
  move(context, source, from, out.raw());
  if (context.needs_grad({source}))
    context.record("moved_rows", {source}, {&out}, {}, [move, to, shape = x.shape()](Backward& b) {
      const Tensor dy = b.grad_output();
      const Tensor dx = b.context().empty(shape, dy.dtype());
      move(b.context(), dy, to, dx.raw());
      b.add(0, dx);
    });
  return out;
}

// One side of the scores: its heads, and the sequences in rows of one length.
struct Side {
  int64_t heads, sequences, length;
  PaddedRows rows;
};

// [sequences * heads, length, head_dim], with the side's number of heads.
Tensor heads_of(Context& context, const AttentionInput& input, const Side& side,
                const AttentionOptions& options) {
  const int64_t width = side.heads * options.head_dim;
  const Tensor columns = slice(context, input.tensor, 1, input.column, input.column + width);
  const Tensor padded = reshape(context, moved_rows(context, columns, side.rows.from, side.rows.to),
                                {side.sequences, side.length, side.heads, options.head_dim});
  return reshape(context, transpose(context, padded, 1, 2),
                 {side.sequences * side.heads, side.length, options.head_dim});
}

// The dropout mask that the fused kernel applies, [sequences, heads, queries, keys].
Tensor padded_mask(Context& context, const Side& queries, int64_t rows, int64_t keys,
                   int64_t max_keys, DType dtype, const AttentionOptions& options) {
  const int64_t stride = dropout_key_stride(max_keys);
  const Tensor mask = dropout_mask(context, {rows, options.heads * stride}, dtype, options.dropout);
  const Tensor padded = reshape(context, gather_rows(context, mask, queries.rows.from),
                                {queries.sequences, queries.length, options.heads, stride});
  return slice(context, transpose(context, padded, 1, 2), 3, 0, keys);
}

// A mask of the options in two parts: which keys a query sees, and what is added to their scores.
struct MaskParts {
  Tensor visible;  // 1 or 0, of the dtype of q
  Tensor bias;     // undefined: nothing
};

MaskParts parts_of(Context& context, const Tensor& mask, DType dtype) {
  MaskParts parts;
  Tensor hidden = mask;  // int32
  if (mask.dtype() != DType::i32) {
    hidden = compare(context, mask.detach(), -std::numeric_limits<double>::infinity(),
                     Comparison::equal);
    // An infinite number in a sum would make NaN of the softmax's gradient.
    parts.bias = masked_fill(context, mask, hidden, 0);
  }
  parts.visible = cast(context, compare(context, hidden, 0, Comparison::equal), dtype);
  return parts;
}

// [sequences, heads, queries, keys], of `bias` [heads, columns].
Tensor padded_bias(Context& context, const Tensor& bias, const AttentionRanges& ranges,
                   const AttentionRows& rows, int64_t queries, int64_t keys) {
  const auto host = [&](const int32_t* values) {
    std::vector<int32_t> copy(static_cast<size_t>(ranges.sequences));
    context.backend().copy_to_host(copy.data(), values, copy.size() * sizeof(int32_t));
    return copy;
  };
  const std::vector<int32_t> query_begin = host(rows.query_begin), query_end = host(rows.query_end),
                             key_begin = host(rows.key_begin), key_end = host(rows.key_end);
  const int64_t last = bias.dim(1) - 1;
  std::vector<int32_t> columns;
  for (size_t s = 0; s < query_begin.size(); ++s) {
    const int64_t more = key_end[s] - key_begin[s] - (query_end[s] - query_begin[s]);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j)
        columns.push_back(
            static_cast<int32_t>(std::clamp<int64_t>(last / 2 + j - i - more, 0, last)));
  }
  const Tensor picked =
      embedding(context, context.from_values<int32_t>(columns, {std::ssize(columns)}),
                contiguous(context, transpose(context, bias, 0, 1)));
  const Tensor by_pair = reshape(context, picked, {ranges.sequences, queries, keys, bias.dim(0)});
  return transpose(context, transpose(context, by_pair, 1, 3), 2, 3);
}

}  // namespace

Tensor attention_padded(Context& context, const AttentionInput& q, const AttentionInput& k,
                        const AttentionInput& v, const AttentionRanges& ranges,
                        const AttentionRows& rows, const AttentionOptions& options) {
  const int64_t query_rows = q.tensor.dim(0), key_rows = k.tensor.dim(0);
  // A length that was given does not count where there are no rows.
  const int64_t length = query_rows > 0 ? ranges.max_queries : 0;
  const int64_t keys = key_rows > 0 ? ranges.max_keys : 0;
  const bool recorded = context.needs_grad({k.tensor, v.tensor});
  const int64_t heads = options.heads, kv_heads = options.key_heads();
  const Side of_queries{heads, ranges.sequences, length,
                        padded_rows(context, rows.query_begin, rows.query_end, ranges.sequences,
                                    length, query_rows, true)};
  const Side of_keys{kv_heads, ranges.sequences, keys,
                     padded_rows(context, rows.key_begin, rows.key_end, ranges.sequences, keys,
                                 key_rows, recorded)};
  VisibleKeysParams mask{};
  mask.dtype = q.tensor.dtype();
  mask.causal = options.causal;
  mask.window = options.window;
  mask.sequences = ranges.sequences;
  mask.queries = length;
  mask.keys = keys;
  mask.query_begin = rows.query_begin;
  mask.query_end = rows.query_end;
  mask.key_begin = rows.key_begin;
  mask.key_end = rows.key_end;
  Tensor visible = visible_keys(context, mask, {ranges.sequences, 1, length, keys});
  MaskParts given;
  if (options.mask.defined() && query_rows > 0 && key_rows > 0) {
    given = parts_of(context, options.mask, q.tensor.dtype());
    visible = multiply(context, visible, given.visible);
  }

  // The queries of the heads that share a head of keys are neighbours: one GEMM takes them all.
  const Shape grouped{ranges.sequences * kv_heads, heads / kv_heads * length, options.head_dim};
  const Tensor scores =
      matmul(context, reshape(context, heads_of(context, q, of_queries, options), grouped),
             heads_of(context, k, of_keys, options), {.transpose_b = true});
  const Shape by_head{ranges.sequences, heads, length, keys};
  Tensor scaled = reshape(context, scale(context, scores, attention_scale(options)), by_head);
  if (options.soft_cap > 0) scaled = soft_cap(context, scaled, options.soft_cap);
  if (given.bias.defined()) scaled = add(context, scaled, given.bias);
  if (options.distance_bias.defined())
    scaled = add(context, scaled,
                 padded_bias(context, options.distance_bias, ranges, rows, length, keys));
  Tensor probabilities = masked_softmax(context, scaled, visible);
  if (options.dropout.active())
    probabilities = multiply(context, probabilities,
                             padded_mask(context, of_queries, query_rows, keys, ranges.max_keys,
                                         q.tensor.dtype(), options));
  const Tensor mixed = matmul(context, reshape(context, probabilities, scores.shape()),
                              heads_of(context, v, of_keys, options));
  const Tensor by_row = transpose(
      context, reshape(context, mixed, {ranges.sequences, heads, length, options.head_dim}), 1, 2);
  return moved_rows(context,
                    reshape(context, by_row, {ranges.sequences * length, heads * options.head_dim}),
                    of_queries.rows.to, of_queries.rows.from);
}

Tensor attention_reference(Context& context, const AttentionInput& q, const AttentionInput& k,
                           const AttentionInput& v, const Tensor& cu_seqlens_q,
                           const Tensor& cu_seqlens_k, const AttentionOptions& options) {
  check_attention_inputs(context, "attention", q, k, v, options);
  const AttentionRanges ranges = packed_ranges(context, "attention", cu_seqlens_q, q.tensor.dim(0),
                                               cu_seqlens_k, k.tensor.dim(0), options);
  check_attention_mask(context, "attention", q.tensor.dtype(), ranges, options);
  check_distance_bias(context, "attention", q.tensor.dtype(), ranges, options);
  const int32_t* queries = cu_seqlens_q.data<int32_t>();
  const int32_t* keys = cu_seqlens_k.data<int32_t>();
  return attention_padded(context, q, k, v, ranges, {queries, queries + 1, keys, keys + 1},
                          options);
}

}  // namespace trafo::ops
