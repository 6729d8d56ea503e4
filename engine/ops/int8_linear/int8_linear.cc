#include "engine/ops/int8_linear/int8_linear.h"

#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/core/function_ref.h"
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
          dtype_name(x.dtype()), ", beside quantized weights it must be float32");
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

using Product = FunctionRef<void(ThreadPool&, const float*, int64_t, const float*, float*)>;

// product(pool, x, rows, bias, y) of a weight [out, in].
Tensor product_with_codes(Context& context, const char* op, const Tensor& x, int64_t out,
                          int64_t in, const Tensor& bias, Product product) {
  const OpRange range(context, op, x, bias);
  ThreadPool& pool = pool_of(context, op);
  check_float(context, op, "x", x);
  require(x.rank() >= 1 && x.dim(-1) == in, ErrorCode::shape_mismatch, op, "x ", x.shape(),
          " does not end in the ", in, " columns of weight [", out, ", ", in, "]");
  if (bias.defined()) {
    check_float(context, op, "bias", bias);
    require(bias.shape() == Shape{out}, ErrorCode::shape_mismatch, op, "bias must be [", out,
            "], its shape is ", bias.shape());
  }
  const Tensor input = contiguous(context, x);
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  Tensor y = context.empty(shape, DType::f32);
  product(pool, input.data<float>(), rows, offset.defined() ? offset.data<float>() : nullptr,
          y.data<float>());
  context.record(op, {input, offset.defined() ? offset : input}, {&y}, {}, nullptr);
  return y;
}

using ReadRow = FunctionRef<void(int64_t, float, const float*, float*)>;

// read(id, factor, addend, y) of a table [entries, width].
[[gnu::cold]] Tensor embedding_with_codes(Context& context, const char* op, const Tensor& ids,
                                          int64_t entries, int64_t width,
                                          const EmbeddingOptions& options, ReadRow read) {
  const OpRange range(context, op, ids, options.positions, options.position_table);
  ThreadPool& pool = pool_of(context, op);
  require(!options.dropout.active(), ErrorCode::unsupported, op,
          "quantized weights are for inference, which has no dropout");
  const int64_t tokens = ids.defined() ? ids.numel() : 0;
  const Tensor tokens_of = contiguous(context, ids);
  check_indices(context, op, "id", tokens_of, entries);
  const bool positioned = options.position_table.defined();
  require_argument(positioned == options.positions.defined(), op, "positions",
                   " and position_table go together: one of them is missing");
  Tensor positions, position_table;
  if (positioned) {
    check_float(context, op, "position table", options.position_table);
    require(options.position_table.rank() == 2 && options.position_table.dim(1) == width,
            ErrorCode::shape_mismatch, op, "the position table is ", options.position_table.shape(),
            ", the width of the table is ", width);
    position_table = contiguous(context, options.position_table);
    positions = contiguous(context, options.positions);
    check_indices(context, op, "position", positions, position_table.dim(0));
    require(positions.numel() == tokens, ErrorCode::shape_mismatch, op, "there are ",
            positions.numel(), " positions for ", tokens, " ids");
  }
  Tensor y = context.empty({tokens, width}, DType::f32);
  const int32_t* id = tokens_of.data<int32_t>();
  parallel_for_range(
      pool, tokens, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)),
      [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t)
          read(id[t], static_cast<float>(options.scale),
               positioned ? position_table.data<float>() + positions.data<int32_t>()[t] * width
                          : nullptr,
               y.data<float>() + t * width);
      });
  context.record(op, {position_table.defined() ? position_table : y}, {&y}, {}, nullptr);
  return y;
}

}  // namespace

Tensor int8_linear(Context& context, const Tensor& x, const Int8Matrix& weight,
                   const Tensor& bias) {
  return product_with_codes(
      context, "int8_linear", x, weight.rows(), weight.columns(), bias,
      [&](ThreadPool& pool, const float* from, int64_t rows, const float* offset, float* y) {
        int8_gemm(pool, best_int8_kernel(), weight, from, rows, weight.columns(), offset, y,
                  weight.rows());
      });
}

Tensor int4_linear(Context& context, const Tensor& x, const Int4Panels& weight,
                   const Tensor& bias) {
  return product_with_codes(
      context, "int4_linear", x, weight.rows(), weight.columns(), bias,
      [&](ThreadPool& pool, const float* from, int64_t rows, const float* offset, float* y) {
        int4_gemm(pool, best_int8_kernel(), weight, from, rows, weight.columns(), offset, y,
                  weight.rows());
      });
}

Tensor int8_embedding(Context& context, const Tensor& ids, const Int8Matrix& table,
                      const EmbeddingOptions& options) {
  const Int8Kernel& kernel = best_int8_kernel();
  return embedding_with_codes(context, "int8_embedding", ids, table.rows(), table.columns(),
                              options,
                              [&](int64_t id, float factor, const float* addend, float* y) {
                                kernel.dequantize(table.row(id), table.columns(),
                                                  factor * table.padded_scales()[id], addend, y);
                              });
}

Tensor int4_embedding(Context& context, const Tensor& ids, const Int4Panels& table,
                      const EmbeddingOptions& options) {
  return embedding_with_codes(context, "int4_embedding", ids, table.rows(), table.columns(),
                              options,
                              [&](int64_t id, float factor, const float* addend, float* y) {
                                table.dequantize(id, factor, addend, y);
                              });
}

}  // namespace trafo::ops
