#include "engine/ops/int8_linear/int8_linear.h"

#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/view/view.h"
#include "engine/quant/int8_kernel.h"

namespace trafo::ops {
namespace {

ThreadPool& pool_of(Context& context, const char* op) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::unsupported, op, "int8 weights are for the CPU, not for ",
          context.device());
  return *pool;
}

void check_float(const Context& context, const char* op, const char* name, const Tensor& x) {
  check_input(context, op, name, x);
  require(x.dtype() == DType::f32, ErrorCode::dtype_mismatch, op, name, " is ",
          dtype_name(x.dtype()), ", beside int8 weights it must be float32");
}

void check_indices(const Context& context, const char* op, const char* name, const Tensor& indices,
                   int64_t limit) {
  check_input(context, op, name, indices);
  require(indices.rank() == 1 && indices.dtype() == DType::i32, ErrorCode::shape_mismatch, op,
          "the ", name, "s must be int32 [tokens], got ", dtype_name(indices.dtype()), " ",
          indices.shape());
  const std::span<const int32_t> values(indices.data<int32_t>(),
                                        static_cast<size_t>(indices.numel()));
  for (size_t t = 0; t < values.size(); ++t)
    require(values[t] >= 0 && values[t] < limit, ErrorCode::invalid_argument, op, name, " ",
            values[t], " of token ", t, " is outside the table: it has entries 0 to ", limit - 1);
}

}  // namespace

Tensor int8_linear(Context& context, const Tensor& x, const Int8Matrix& weight,
                   const Tensor& bias) {
  constexpr const char* kOp = "int8_linear";
  const OpRange range(context, kOp, x, bias);
  ThreadPool& pool = pool_of(context, kOp);
  check_float(context, kOp, "x", x);
  const int64_t in = weight.columns(), out = weight.rows();
  require(x.rank() >= 1 && x.dim(-1) == in, ErrorCode::shape_mismatch, kOp, "x ", x.shape(),
          " does not end in the ", in, " columns of weight [", out, ", ", in, "]");
  if (bias.defined()) {
    check_float(context, kOp, "bias", bias);
    require(bias.shape() == Shape{out}, ErrorCode::shape_mismatch, kOp, "bias must be [", out,
            "], its shape is ", bias.shape());
  }
  const Tensor input = contiguous(context, x);
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  Tensor y = context.empty(shape, DType::f32);
  int8_gemm(pool, best_int8_kernel(), weight, input.data<float>(), rows, in,
            offset.defined() ? offset.data<float>() : nullptr, y.data<float>(), out);
  context.record(kOp, {input, offset.defined() ? offset : input}, {&y}, {}, nullptr);
  return y;
}

Tensor int8_embedding(Context& context, const Tensor& ids, const Int8Matrix& table,
                      const EmbeddingOptions& options) {
  constexpr const char* kOp = "int8_embedding";
  const OpRange range(context, kOp, ids, options.positions, options.position_table);
  ThreadPool& pool = pool_of(context, kOp);
  require(!options.dropout.active(), ErrorCode::unsupported, kOp,
          "int8 weights are for inference, which has no dropout");
  const int64_t width = table.columns(), tokens = ids.defined() ? ids.numel() : 0;
  const Tensor tokens_of = contiguous(context, ids);
  check_indices(context, kOp, "id", tokens_of, table.rows());
  const bool positioned = options.position_table.defined();
  require_argument(positioned == options.positions.defined(), kOp, "positions",
                   " and position_table go together: one of them is missing");
  Tensor positions, position_table;
  if (positioned) {
    check_float(context, kOp, "position table", options.position_table);
    require(options.position_table.rank() == 2 && options.position_table.dim(1) == width,
            ErrorCode::shape_mismatch, kOp, "the position table is ",
            options.position_table.shape(), ", the width of the table is ", width);
    position_table = contiguous(context, options.position_table);
    positions = contiguous(context, options.positions);
    check_indices(context, kOp, "position", positions, position_table.dim(0));
    require(positions.numel() == tokens, ErrorCode::shape_mismatch, kOp, "there are ",
            positions.numel(), " positions for ", tokens, " ids");
  }
  Tensor y = context.empty({tokens, width}, DType::f32);
  const Int8Kernel& kernel = best_int8_kernel();
  const auto scale = static_cast<float>(options.scale);
  const int32_t* id = tokens_of.data<int32_t>();
  parallel_for_range(pool, tokens, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t)
                         kernel.dequantize(table.row(id[t]), width,
                                           scale * table.padded_scales()[id[t]],
                                           positioned ? position_table.data<float>() +
                                                            positions.data<int32_t>()[t] * width
                                                      : nullptr,
                                           y.data<float>() + t * width);
                     });
  context.record(kOp, {position_table.defined() ? position_table : y}, {&y}, {}, nullptr);
  return y;
}

}  // namespace trafo::ops
