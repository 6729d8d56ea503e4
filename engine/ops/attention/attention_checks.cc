#include "engine/ops/attention/attention_checks.h"

#include <cmath>

#include "engine/ops/dropout/dropout.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

void check_input(const Context& context, std::string_view op, const ops::AttentionInput& input,
                 const char* name, int64_t columns) {
  const Tensor& tensor = input.tensor;
  require(tensor.defined(), ErrorCode::invalid_argument, op, name, " is undefined");
  require(tensor.device() == context.device(), ErrorCode::invalid_argument, op, name, " is on ",
          device_name(tensor.device()), ", the context on ", device_name(context.device()));
  require(tensor.rank() == 2, ErrorCode::shape_mismatch, op, name, " must be [rows, width], got ",
          tensor.shape().str());
  require(is_compute(tensor.dtype()), ErrorCode::dtype_mismatch, op, name, " is ",
          dtype_name(tensor.dtype()),
          "; cast to float32 first: bfloat16 is a storage type on the CPU");
  require(input.column >= 0 && input.column <= tensor.dim(1) - columns, ErrorCode::shape_mismatch,
          op, name, " needs columns ", input.column, " to ", input.column + columns,
          " (heads * head_dim of them), its tensor has ", tensor.dim(1));
}

std::vector<int32_t> host_copy(const Context& context, std::string_view op, const Tensor& tensor,
                               const char* name) {
  require(tensor.defined(), ErrorCode::invalid_argument, op, name, " is undefined");
  require(tensor.device() == context.device(), ErrorCode::invalid_argument, op, name, " is on ",
          device_name(tensor.device()), ", the context on ", device_name(context.device()));
  require(tensor.dtype() == DType::i32, ErrorCode::dtype_mismatch, op, name, " must be int32, got ",
          dtype_name(tensor.dtype()));
  require(tensor.rank() == 1 && tensor.is_contiguous(), ErrorCode::shape_mismatch, op, name,
          " must be a contiguous vector, got ", tensor.shape().str());
  const HostInts values(context, tensor);
  return {values.span().begin(), values.span().end()};
}

// Splits [B + 1] row numbers into starts and ends; returns the longest sequence.
int64_t split(std::string_view op, const std::vector<int32_t>& bounds, const char* name,
              int64_t rows, std::vector<int32_t>& begin, std::vector<int32_t>& end) {
  require(!bounds.empty() && bounds.front() == 0 && bounds.back() == rows,
          ErrorCode::invalid_argument, op, name, " must start with 0 and end with ", rows,
          ", the number of rows");
  int64_t longest = 0;
  for (size_t b = 0; b + 1 < bounds.size(); ++b) {
    require(bounds[b] <= bounds[b + 1], ErrorCode::invalid_argument, op, name,
            " must not fall, but goes from ", bounds[b], " to ", bounds[b + 1], " at entry ",
            b + 1);
    longest = std::max<int64_t>(longest, bounds[b + 1] - bounds[b]);
  }
  begin.assign(bounds.begin(), bounds.end() - 1);
  end.assign(bounds.begin() + 1, bounds.end());
  return longest;
}

}  // namespace

void check_attention_inputs(const Context& context, std::string_view op,
                            const ops::AttentionInput& q, const ops::AttentionInput& k,
                            const ops::AttentionInput& v, const ops::AttentionOptions& options) {
  require(options.heads >= 1 && options.head_dim >= 1, ErrorCode::invalid_argument, op,
          "heads and head_dim must be at least 1, got ", options.heads, " and ", options.head_dim);
  require(std::isfinite(options.scale), ErrorCode::invalid_argument, op,
          "scale must be finite, or 0 for 1 / sqrt(head_dim)");
  const int64_t columns = checked_mul(options.heads, options.head_dim, op);
  check_input(context, op, q, "q", columns);
  check_input(context, op, k, "k", columns);
  check_input(context, op, v, "v", columns);
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
                              const Tensor& cu_seqlens_k, int64_t key_rows) {
  const auto queries = host_copy(context, op, cu_seqlens_q, "cu_seqlens_q");
  const auto keys = host_copy(context, op, cu_seqlens_k, "cu_seqlens_k");
  require(queries.size() == keys.size(), ErrorCode::shape_mismatch, op, "cu_seqlens_q has ",
          queries.size(), " entries, cu_seqlens_k has ", keys.size());
  AttentionRanges ranges;
  ranges.max_queries =
      split(op, queries, "cu_seqlens_q", query_rows, ranges.query_begin, ranges.query_end);
  ranges.max_keys = split(op, keys, "cu_seqlens_k", key_rows, ranges.key_begin, ranges.key_end);
  return ranges;
}

AttentionRanges decode_ranges(const Context& context, std::string_view op, int64_t rows,
                              const Tensor& key_begin, const Tensor& key_end, int64_t key_rows) {
  AttentionRanges ranges;
  ranges.key_begin = host_copy(context, op, key_begin, "key_begin");
  ranges.key_end = host_copy(context, op, key_end, "key_end");
  const size_t count = static_cast<size_t>(rows);
  require(ranges.key_begin.size() == count && ranges.key_end.size() == count,
          ErrorCode::shape_mismatch, op,
          "key_begin and key_end must have an entry for each of the ", rows, " query rows, got ",
          ranges.key_begin.size(), " and ", ranges.key_end.size());
  ranges.max_queries = rows > 0 ? 1 : 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t begin = ranges.key_begin[i], end = ranges.key_end[i];
    require(begin >= 0 && begin <= end && end <= key_rows, ErrorCode::invalid_argument, op,
            "the keys of row ", i, " are ", begin, " to ", end, ", but there are ", key_rows);
    ranges.max_keys = std::max<int64_t>(ranges.max_keys, end - begin);
    ranges.query_begin.push_back(static_cast<int32_t>(i));
    ranges.query_end.push_back(static_cast<int32_t>(i + 1));
  }
  return ranges;
}

double attention_scale(const ops::AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(options.head_dim));
}

}  // namespace trafo
