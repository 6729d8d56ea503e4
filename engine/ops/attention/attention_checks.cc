#include "engine/ops/attention/attention_checks.h"

#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/packed_rows.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

void check_columns(const Context& context, std::string_view op, const ops::AttentionInput& input,
                   const char* name, int64_t columns) {
  const Tensor& tensor = input.tensor;
  check_compute_input(context, op, name, tensor);
  require(tensor.rank() == 2, ErrorCode::shape_mismatch, op, name, " must be [rows, width], got ",
          tensor.shape());
  require(input.column >= 0 && input.column <= tensor.dim(1) - columns, ErrorCode::shape_mismatch,
          op, name, " needs ", columns, " columns from number ", input.column,
          " on; its tensor has ", tensor.dim(1));
}

// Whether the lengths must be read from the tensors, because they are cheap to read or unknown.
bool must_read(const Context& context, bool lengths_given) {
  return context.device().kind == DeviceKind::cpu || !lengths_given;
}

void check_length(std::string_view op, const char* name, int64_t given, int64_t longest) {
  require(given == 0 || given == longest, ErrorCode::invalid_argument, op, name, " is ", given,
          ", the longest sequence has ", longest);
}

}  // namespace

void check_attention_inputs(const Context& context, std::string_view op,
                            const ops::AttentionInput& q, const ops::AttentionInput& k,
                            const ops::AttentionInput& v, const ops::AttentionOptions& options) {
  require_argument(options.heads >= 1 && options.head_dim >= 1, op, "heads",
                   " and head_dim must be at least 1, got ", options.heads, " and ",
                   options.head_dim);
  require_argument(options.kv_heads >= 0 && options.heads % options.key_heads() == 0, op,
                   "kv_heads", " must be 0 or a divisor of heads = ", options.heads, ", got ",
                   options.kv_heads);
  require_argument(options.window >= 0, op, "window", " must be 0, for none, or more, got ",
                   options.window);
  require_argument(std::isfinite(options.scale), op, "scale",
                   " must be finite, or 0 for 1 / sqrt(head_dim)");
  require_argument(std::isfinite(options.soft_cap) && options.soft_cap >= 0, op, "soft_cap",
                   " must be 0, for none, or a finite number above it, got ", options.soft_cap);
  require(options.soft_cap == 0 || !options.distance_bias.defined(), ErrorCode::unsupported, op,
          "a soft cap of scores does not go with biases of distances");
  const int64_t kv_columns = checked_mul(options.key_heads(), options.head_dim, op);
  check_columns(context, op, q, "q", checked_mul(options.heads, options.head_dim, op));
  check_columns(context, op, k, "k", kv_columns);
  check_columns(context, op, v, "v", kv_columns);
  require(q.tensor.dtype() == k.tensor.dtype() && q.tensor.dtype() == v.tensor.dtype(),
          ErrorCode::dtype_mismatch, op, "q, k and v must have one dtype, got ",
          dtype_name(q.tensor.dtype()), ", ", dtype_name(k.tensor.dtype()), " and ",
          dtype_name(v.tensor.dtype()));
  require(k.tensor.dim(0) == v.tensor.dim(0), ErrorCode::shape_mismatch, op, "k has ",
          k.tensor.dim(0), " rows, v has ", v.tensor.dim(0));
  check_dropout(options.dropout, std::string(op).c_str());
}

AttentionRanges packed_ranges(const Context& context, std::string_view op,
                              const Tensor& cu_seqlens_q, int64_t query_rows,
                              const Tensor& cu_seqlens_k, int64_t key_rows,
                              const ops::AttentionOptions& options) {
  check_row_numbers(context, op, cu_seqlens_q, "cu_seqlens_q");
  check_row_numbers(context, op, cu_seqlens_k, "cu_seqlens_k");
  require(cu_seqlens_q.numel() == cu_seqlens_k.numel(), ErrorCode::shape_mismatch, op,
          "cu_seqlens_q has ", cu_seqlens_q.numel(), " entries, cu_seqlens_k has ",
          cu_seqlens_k.numel());
  AttentionRanges ranges;
  ranges.sequences = std::max<int64_t>(cu_seqlens_q.numel() - 1, 0);
  ranges.max_queries = options.max_queries;
  ranges.max_keys = options.max_keys;
  if (!must_read(context, options.max_queries > 0 && options.max_keys > 0)) return ranges;
  const HostInts queries(context, cu_seqlens_q), keys(context, cu_seqlens_k);
  ranges.max_queries = longest_sequence_of(op, queries.span(), "cu_seqlens_q", query_rows);
  ranges.max_keys = longest_sequence_of(op, keys.span(), "cu_seqlens_k", key_rows);
  check_length(op, "max_queries", options.max_queries, ranges.max_queries);
  check_length(op, "max_keys", options.max_keys, ranges.max_keys);
  return ranges;
}

AttentionRanges decode_ranges(const Context& context, std::string_view op, int64_t query_rows,
                              const Tensor& cu_seqlens_q, const Tensor& key_begin,
                              const Tensor& key_end, int64_t key_rows,
                              const ops::AttentionOptions& options) {
  check_row_numbers(context, op, cu_seqlens_q, "cu_seqlens_q");
  check_row_numbers(context, op, key_begin, "key_begin");
  check_row_numbers(context, op, key_end, "key_end");
  const int64_t sequences = cu_seqlens_q.numel() - 1;
  require(key_begin.numel() == sequences && key_end.numel() == sequences, ErrorCode::shape_mismatch,
          op, "key_begin and key_end must have an entry for each of the ", sequences,
          " sequences of queries, got ", key_begin.numel(), " and ", key_end.numel());
  const bool one_each = options.max_queries <= 1;
  require(!one_each || sequences == query_rows, ErrorCode::shape_mismatch, op, "there are ",
          query_rows, " query rows for ", sequences, " sequences, which have one query each");
  AttentionRanges ranges;
  ranges.sequences = sequences;
  ranges.max_queries = query_rows > 0 ? std::max<int64_t>(1, options.max_queries) : 0;
  ranges.max_keys = options.max_keys;
  if (!must_read(context, options.max_keys > 0)) return ranges;
  if (!one_each) {
    const HostInts queries(context, cu_seqlens_q);
    const int64_t most = longest_sequence_of(op, queries.span(), "cu_seqlens_q", query_rows);
    require(most <= options.max_queries, ErrorCode::invalid_argument, op, "max_queries is ",
            options.max_queries, ", the longest sequence has ", most);
  }
  const HostInts begins(context, key_begin), ends(context, key_end);
  int64_t longest = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int32_t begin = begins[i], end = ends[i];
    require(begin >= 0 && begin <= end && end <= key_rows, ErrorCode::invalid_argument, op,
            "the keys of row ", i, " are ", begin, " to ", end, ", but there are ", key_rows);
    longest = std::max<int64_t>(longest, end - begin);
  }
  // Only a bound: finished hypotheses may have been the longest.
  require(options.max_keys == 0 || options.max_keys >= longest, ErrorCode::invalid_argument, op,
          "max_keys is ", options.max_keys, ", the longest range has ", longest);
  ranges.max_keys = longest;
  return ranges;
}

void check_attention_mask(const Context& context, std::string_view op, DType dtype,
                          const AttentionRanges& ranges, const ops::AttentionOptions& options) {
  if (!options.mask.defined()) return;
  const Tensor& mask = options.mask;
  check_input(context, op, "mask", mask);
  require(mask.dtype() == DType::i32 || mask.dtype() == dtype, ErrorCode::dtype_mismatch, op,
          "the mask must be int32 or ", dtype_name(dtype), " as q, got ", dtype_name(mask.dtype()));
  const Shape whole{ranges.sequences, options.heads, ranges.max_queries, ranges.max_keys};
  bool fits = mask.rank() == whole.rank();
  for (int d = 0; fits && d < whole.rank(); ++d) fits = mask.dim(d) == 1 || mask.dim(d) == whole[d];
  require(fits, ErrorCode::shape_mismatch, op, "the mask must be ", whole,
          ", where each may be 1, got ", mask.shape());
}

void check_distance_bias(const Context& context, std::string_view op, DType dtype,
                         const AttentionRanges& ranges, const ops::AttentionOptions& options) {
  if (!options.distance_bias.defined()) return;
  const Tensor& bias = options.distance_bias;
  check_input(context, op, "distance_bias", bias);
  require(bias.dtype() == dtype, ErrorCode::dtype_mismatch, op, "distance_bias must be ",
          dtype_name(dtype), " as q, got ", dtype_name(bias.dtype()));
  const int64_t longest = std::max<int64_t>({1, ranges.max_queries, ranges.max_keys});
  require(bias.rank() == 2 && bias.dim(0) == options.heads && bias.dim(1) % 2 == 1 &&
              bias.dim(1) >= 2 * longest - 1,
          ErrorCode::shape_mismatch, op, "distance_bias must be [", options.heads, ", 2 n - 1], n ",
          longest, " or more, got ", bias.shape());
}

double attention_scale(const ops::AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(options.head_dim));
}

}  // namespace trafo
