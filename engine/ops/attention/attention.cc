#include "engine/ops/attention/attention.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/ops/attention/attention_checks.h"
#include "engine/ops/attention/attention_kernels.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/packed_rows.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kAttentionOp = "attention";

// Kernels need the columns of a row side by side. A column window of a wider tensor is fine.
Tensor with_dense_rows(Context& context, const Tensor& tensor) {
  const bool dense = tensor.dim(1) <= 1 || tensor.strides()[1] == 1;
  return dense && tensor.strides()[0] >= 0 ? tensor : ops::contiguous(context, tensor);
}

const void* first_column(const Tensor& tensor, int64_t column) {
  return static_cast<const std::byte*>(tensor.raw()) +
         column * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

// The names of the kernels whose bits are set, for profiles; of static storage duration.
const char* kernel_names(uint32_t bits) {
  constexpr size_t kSets = size_t{1} << kAttentionKernelCount;
  static const std::array<std::string, kSets> names = [] {
    std::array<std::string, kSets> all;
    for (size_t set = 0; set < kSets; ++set)
      for (size_t kernel = 0; kernel < kAttentionKernelCount; ++kernel)
        if (set >> kernel & 1)
          all[set] += concat(all[set].empty() ? "" : ", ",
                             attention_kernel_name(static_cast<AttentionKernel>(kernel)));
    return all;
  }();
  return names[bits].c_str();
}

// Launches, and tells a profile which kernels ran. Their bits, 1 << AttentionKernel.
template <class Params>
uint32_t launch_noting(Context& context, OpKernel kernel, const char* op, Params& p) {
  uint32_t kernels = 0;
  p.kernels = &kernels;
  launch(context, kernel, op, p);
  if (Profiler* const profiler = context.profiler()) profiler->set_kernel(kernel_names(kernels));
  return kernels;
}

bool same_gradient(const Tensor& a, const Tensor& b) {
  return same_tensor(a, b) || (a.variable() && a.variable() == b.variable());
}

// Where the gradients of q, k and v go: the distinct tensors that hold them, and the tensor of
// each.
struct Sources {
  std::vector<Tensor> tensors;
  std::array<size_t, 3> of{};
  std::array<int64_t, 3> column{};
  std::array<int64_t, 3> width{};  // columns each of them uses

  void add(size_t role, const ops::AttentionInput& input) {
    column[role] = input.column;
    for (of[role] = 0; of[role] < tensors.size(); ++of[role])
      if (same_gradient(tensors[of[role]], input.tensor)) return;
    tensors.push_back(input.tensor);
  }
  // True if another one of the same tensor uses some of the same columns.
  bool overlaps(size_t role) const {
    for (size_t other = 0; other < 3; ++other)
      if (other != role && of[other] == of[role] && column[other] < column[role] + width[role] &&
          column[role] < column[other] + width[other])
        return true;
    return false;
  }
  bool any_overlap(size_t source) const {
    for (size_t role = 0; role < 3; ++role)
      if (of[role] == source && overlaps(role)) return true;
    return false;
  }
  // Without overlaps: columns of `source` that are used at all.
  int64_t used_columns(size_t source) const {
    int64_t used = 0;
    for (size_t role = 0; role < 3; ++role) used += of[role] == source ? width[role] : 0;
    return used;
  }
};

struct GradColumns {
  Tensor buffer;
  void* data = nullptr;
  int64_t stride = 0;
  bool accumulate = false;
};

template <class Params>
void fill_common(Params& p, const ops::AttentionOptions& options, const AttentionRanges& ranges,
                 const std::array<Tensor, 3>& tensors, const std::array<int64_t, 3>& column) {
  p.dtype = tensors[0].dtype();
  p.dropout = options.dropout;
  p.scale = attention_scale(options);
  p.soft_cap = options.soft_cap;
  p.causal = options.causal;
  p.window = options.window;
  p.sequences = ranges.sequences;
  p.heads = options.heads;
  p.kv_heads = options.key_heads();
  p.head_dim = options.head_dim;
  p.query_rows = tensors[0].dim(0);
  p.key_rows = tensors[1].dim(0);
  p.max_queries = ranges.max_queries;
  p.max_keys = ranges.max_keys;
  p.q = first_column(tensors[0], column[0]);
  p.k = first_column(tensors[1], column[1]);
  p.v = first_column(tensors[2], column[2]);
  p.q_stride = tensors[0].strides()[0];
  p.k_stride = tensors[1].strides()[0];
  p.v_stride = tensors[2].strides()[0];
}

void set_bias(auto& p, const Tensor& bias) {
  if (!bias.defined()) return;
  p.bias = bias.raw();
  p.bias_columns = bias.dim(1);
}

const int32_t* ints(const Tensor& tensor, int64_t offset = 0) {
  return static_cast<const int32_t*>(tensor.raw()) + offset;
}

// target[:, column .. column + width] += part.
void add_columns(Context& context, const Tensor& part, const GradTarget& target, int64_t column) {
  CopyStridedParams p{};
  p.dtype = part.dtype();
  p.accumulate = true;
  p.rank = 2;
  p.shape[0] = part.dim(0);
  p.shape[1] = part.dim(1);
  p.src_strides[0] = part.dim(1);
  p.dst_strides[0] = target.buffer.dim(1);
  p.src_strides[1] = p.dst_strides[1] = 1;
  p.src = part.raw();
  p.dst = const_cast<void*>(first_column(target.buffer, column));
  launch(context, OpKernel::copy_strided, kAttentionOp, p);
}

// Saved for backward; no tensor in it has a gradient history.
struct Saved {
  Sources sources;
  std::array<Tensor, 3> tensors;
  Tensor out, lse, cu_q, cu_k, bias;
  AttentionRanges ranges;
  ops::AttentionOptions options;
};

// Where kernels leave the parts of the gradient of `bias`.
Tensor zero_bias_parts(Context& context, const Saved& saved) {
  const Tensor& bias = saved.bias;
  const int64_t parts = attention_bias_parts(context.device().kind, saved.options.head_dim,
                                             saved.ranges.sequences, saved.ranges.max_queries);
  const Tensor zeros = context.empty({parts, bias.numel()}, stat_dtype(bias.dtype()));
  context.backend().fill_zero(zeros.raw(), zeros.bytes());
  return zeros;
}

// The sum of the parts is the gradient of input number `input`.
void sum_bias_parts(Backward& b, size_t input, const Tensor& parts) {
  const GradTarget target = b.target(input, parts.dtype());
  ColumnSumParams p{};
  p.dtype = parts.dtype();
  p.accumulate = target.accumulate;
  p.rows = parts.dim(0);
  p.width = parts.dim(1);
  p.x = parts.raw();
  p.out = target.buffer.raw();
  launch(b.context(), OpKernel::column_sum, kAttentionOp, p);
}

void attention_backward(Backward& b, const Saved& saved) {
  Context& context = b.context();
  const Sources& sources = saved.sources;
  const Tensor dout = b.grad_output();
  const size_t count = sources.tensors.size();
  std::vector<GradTarget> targets(count);
  for (size_t s = 0; s < count; ++s) {
    if (!b.needs(s)) continue;
    targets[s] = b.target(s);
    const Tensor& buffer = targets[s].buffer;
    const bool complete = !sources.any_overlap(s) && sources.used_columns(s) == buffer.dim(1);
    if (!targets[s].accumulate && !complete)
      context.backend().fill_zero(buffer.raw(), buffer.bytes());
  }
  std::array<GradColumns, 3> grads;
  for (size_t role = 0; role < 3; ++role) {
    const GradTarget& target = targets[sources.of[role]];
    if (!target.buffer.defined()) continue;
    GradColumns& grad = grads[role];
    if (sources.overlaps(role)) {  // through a separate matrix, added below
      grad.buffer =
          context.empty({target.buffer.dim(0), sources.width[role]}, target.buffer.dtype());
      grad.data = grad.buffer.raw();
      grad.stride = sources.width[role];
    } else {
      grad.data = const_cast<void*>(first_column(target.buffer, sources.column[role]));
      grad.stride = target.buffer.dim(1);
      grad.accumulate = target.accumulate;
    }
  }

  AttentionBackwardParams p{};
  fill_common(p, saved.options, saved.ranges, saved.tensors, sources.column);
  p.query_begin = ints(saved.cu_q);
  p.query_end = p.query_begin + 1;
  p.key_begin = ints(saved.cu_k);
  p.key_end = p.key_begin + 1;
  set_bias(p, saved.bias);
  Tensor bias_parts;
  if (saved.bias.defined() && b.needs(count)) {
    bias_parts = zero_bias_parts(context, saved);
    p.bias_parts = bias_parts.raw();
  }
  p.out = saved.out.raw();
  p.lse = saved.lse.raw();
  p.dout = dout.raw();
  p.dq = grads[0].data;
  p.dk = grads[1].data;
  p.dv = grads[2].data;
  p.dq_stride = grads[0].stride;
  p.dk_stride = grads[1].stride;
  p.dv_stride = grads[2].stride;
  p.accumulate_dq = grads[0].accumulate;
  p.accumulate_dk = grads[1].accumulate;
  p.accumulate_dv = grads[2].accumulate;
  Tensor dk_by_head, dv_by_head;
  if (p.kv_heads < p.heads && context.device().kind != DeviceKind::cpu) {
    const Shape shape{p.key_rows, p.heads * p.head_dim};
    if (p.dk) dk_by_head = context.empty(shape, p.dtype);
    if (p.dv) dv_by_head = context.empty(shape, p.dtype);
    p.dk_by_head = p.dk ? dk_by_head.raw() : nullptr;
    p.dv_by_head = p.dv ? dv_by_head.raw() : nullptr;
  }
  // Part of a gradient that holds the gradients of q, k and v side by side.
  const bool whole = count == 1 && !sources.any_overlap(0) && p.kv_heads == p.heads &&
                     targets[0].buffer.defined() &&
                     sources.used_columns(0) == targets[0].buffer.dim(1);
  if (whole) p.largest = ops::Fp8Magnitudes::place(context, targets[0]);
  const uint32_t kernels = launch_noting(context, OpKernel::attention_backward, kAttentionOp, p);
  if (p.largest && (kernels >> static_cast<int>(AttentionKernel::cuda_cores) & 1) != 0)
    ops::Fp8Magnitudes::forget(context, targets[0].buffer);
  if (bias_parts.defined()) sum_bias_parts(b, count, bias_parts);
  for (size_t role = 0; role < 3; ++role)
    if (grads[role].buffer.defined())
      add_columns(context, grads[role].buffer, targets[sources.of[role]], sources.column[role]);
}

}  // namespace

namespace ops {

Tensor attention(Context& context, const AttentionInput& q, const AttentionInput& k,
                 const AttentionInput& v, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                 const AttentionOptions& options) {
  const OpRange range(context, kAttentionOp, q.tensor, k.tensor, v.tensor);
  if (!context.fused_kernels() || options.mask.defined())
    return attention_reference(context, q, k, v, cu_seqlens_q, cu_seqlens_k, options);
  check_attention_inputs(context, kAttentionOp, q, k, v, options);

  Saved saved;
  saved.options = options;
  saved.ranges = packed_ranges(context, kAttentionOp, cu_seqlens_q, q.tensor.dim(0), cu_seqlens_k,
                               k.tensor.dim(0), options);
  check_distance_bias(context, kAttentionOp, q.tensor.dtype(), saved.ranges, options);
  Tensor bias = options.distance_bias;
  if (bias.defined()) {
    bias = contiguous(context, bias);
    saved.bias = bias.detach();
    saved.options.distance_bias = {};
  }
  // A window that no sequence fills changes nothing.
  if (saved.options.window >= std::max(saved.ranges.max_keys, saved.ranges.max_queries))
    saved.options.window = 0;
  saved.cu_q = cu_seqlens_q.detach();
  saved.cu_k = cu_seqlens_k.detach();
  Sources& sources = saved.sources;
  const int64_t width = options.heads * options.head_dim;
  const int64_t kv_width = options.key_heads() * options.head_dim;
  sources.width = {width, kv_width, kv_width};
  // Inputs that are one tensor must stay one, also when it has to be copied.
  const std::array<Tensor, 3> given{q.tensor, k.tensor, v.tensor};
  std::array<AttentionInput, 3> inputs{q, k, v};
  for (size_t role = 0; role < 3; ++role) {
    const auto same = static_cast<size_t>(
        std::ranges::find_if(given,
                             [&](const Tensor& each) { return same_tensor(each, given[role]); }) -
        given.begin());
    inputs[role].tensor = same < role ? inputs[same].tensor : with_dense_rows(context, given[role]);
    sources.add(role, inputs[role]);
    saved.tensors[role] = inputs[role].tensor.detach();
  }
  const bool wanted =
      context.needs_grad({inputs[0].tensor, inputs[1].tensor, inputs[2].tensor, bias});

  const int64_t rows = q.tensor.dim(0);
  Tensor out = context.empty({rows, width}, q.tensor.dtype());
  if (wanted) saved.lse = context.empty({rows, options.heads}, stat_dtype(q.tensor.dtype()));
  AttentionForwardParams p{};
  fill_common(p, saved.options, saved.ranges, saved.tensors, sources.column);
  p.query_begin = ints(saved.cu_q);
  p.query_end = p.query_begin + 1;
  p.key_begin = ints(saved.cu_k);
  p.key_end = p.key_begin + 1;
  set_bias(p, saved.bias);
  p.out = out.raw();
  p.lse = wanted ? saved.lse.raw() : nullptr;
  launch_noting(context, OpKernel::attention_forward, kAttentionOp, p);
  if (!wanted) return out;

  saved.out = out.detach();
  std::vector<Tensor> tensors = sources.tensors;
  if (bias.defined()) tensors.push_back(bias);
  for (Tensor& tensor : sources.tensors) tensor = tensor.detach();
  Tensor* const outputs[] = {&out};
  context.record(kAttentionOp, tensors, outputs,
                 {{"q", inputs[0].tensor},
                  {"k", inputs[1].tensor},
                  {"v", inputs[2].tensor},
                  {"cu_seqlens_q", cu_seqlens_q},
                  {"cu_seqlens_k", cu_seqlens_k},
                  {"distance_bias", bias},
                  {kResult, out}},
                 [saved = std::move(saved)](Backward& b) { attention_backward(b, saved); });
  return out;
}

Tensor attention_decode(Context& context, const AttentionInput& q, const AttentionInput& k,
                        const AttentionInput& v, const Tensor& key_begin, const Tensor& key_end,
                        const AttentionOptions& options, const Tensor& cu_seqlens_q) {
  constexpr const char* op = "attention_decode";
  const OpRange range(context, op, q.tensor, k.tensor, v.tensor);
  check_attention_inputs(context, op, q, k, v, options);
  require(!context.needs_grad({q.tensor, k.tensor, v.tensor}), ErrorCode::unsupported, op,
          "decoding has no backward; run it under no-grad or detach its inputs");
  require(!options.mask.defined(), ErrorCode::unsupported, op, "decoding takes no mask");
  const int64_t rows = q.tensor.dim(0);
  Tensor queries = cu_seqlens_q;
  if (!queries.defined()) {
    std::vector<int32_t> numbers(static_cast<size_t>(rows + 1));
    std::iota(numbers.begin(), numbers.end(), 0);
    queries = context.from_values<int32_t>(numbers, {rows + 1});
  }
  const AttentionRanges ranges =
      decode_ranges(context, op, rows, queries, key_begin, key_end, k.tensor.dim(0), options);
  check_distance_bias(context, op, q.tensor.dtype(), ranges, options);
  if (!context.fused_kernels())
    return attention_padded(context, q, k, v, ranges,
                            {ints(queries), ints(queries, 1), ints(key_begin), ints(key_end)},
                            options);

  const std::array<Tensor, 3> tensors{with_dense_rows(context, q.tensor),
                                      with_dense_rows(context, k.tensor),
                                      with_dense_rows(context, v.tensor)};
  Tensor bias = options.distance_bias;
  if (bias.defined()) bias = contiguous(context, bias);
  Tensor out = context.empty({rows, options.heads * options.head_dim}, q.tensor.dtype());
  AttentionForwardParams p{};
  fill_common(p, options, ranges, tensors, {q.column, k.column, v.column});
  p.query_begin = ints(queries);
  p.query_end = p.query_begin + 1;
  p.key_begin = ints(key_begin);
  p.key_end = ints(key_end);
  set_bias(p, bias);
  p.out = out.raw();
  launch_noting(context, OpKernel::attention_forward, op, p);
  return out;
}

}  // namespace ops
}  // namespace trafo
