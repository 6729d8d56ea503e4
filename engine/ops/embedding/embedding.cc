#include "engine/ops/embedding/embedding.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/checks.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/side_work.h"

namespace trafo {
namespace ops {
namespace {

constexpr const char* kEmbeddingOp = "embedding";

void check_table(const Context& context, const Tensor& table, const char* name) {
  check_compute_input(context, kEmbeddingOp, name, table);
  require(table.rank() == 2, ErrorCode::shape_mismatch, kEmbeddingOp, "the ", name,
          " must be [entries, width], got ", table.shape());
}

void validate_indices(const Context& context, const Tensor& indices, int64_t limit,
                      const char* name, bool checked) {
  check_input(context, kEmbeddingOp, name, indices);
  require(indices.rank() == 1, ErrorCode::shape_mismatch, kEmbeddingOp, "the ", name,
          "s must be [tokens], got ", indices.shape());
  require(indices.dtype() == DType::i32, ErrorCode::dtype_mismatch, kEmbeddingOp, "the ", name,
          "s must be int32, got ", dtype_name(indices.dtype()));
  // On the CPU looking costs next to nothing; elsewhere it would wait for the device.
  if (checked && context.device().kind != DeviceKind::cpu) return;
  const HostInts host(context, indices);
  for (size_t t = 0; t < host.size(); ++t)
    require(host[t] >= 0 && host[t] < limit, ErrorCode::invalid_argument, kEmbeddingOp, name, " ",
            host[t], " of token ", t, " is outside the table: it has entries 0 to ", limit - 1);
}

// Data of one table that backward needs. Sorting depends on nothing but the batch, so an
// accelerator does it beside the forward pass.
struct SortedTokens {
  Tensor order;  // [2, tokens] int32: entry and token of SortTokensParams; undefined: not wanted
  int64_t entries = 0;

  SortedTokens() = default;
  SortedTokens(Context& context, const Tensor& indices, const Tensor& table)
      : entries(table.dim(0)) {
    if (!context.needs_grad({table})) return;
    const int64_t tokens = indices.numel();
    order = context.empty({2, tokens}, DType::i32);
    const SortTokensParams params{tokens, entries, static_cast<const int32_t*>(indices.raw()),
                                  entry(), token()};
    const auto issue = [&] { launch(context, OpKernel::sort_tokens, kEmbeddingOp, params); };
    if (SideWork* side = context.step().side_work)
      side->run({indices}, {order}, issue);
    else
      issue();
  }
  int32_t* entry() const { return static_cast<int32_t*>(order.raw()); }
  int32_t* token() const { return entry() + order.dim(1); }
};

// `keep` [T, 1], of the dtype of dy: 0 for tokens that give no gradient; undefined: all do.
void table_gradient(Backward& backward, size_t input, const SortedTokens& sorted,
                    const Dropout& dropout, double scale, const Tensor& keep = {}) {
  if (!backward.needs(input)) return;
  Context& context = backward.context();
  SideWork::settle(context, sorted.order);
  Tensor dy = backward.grad_output();
  if (keep.defined()) dy = select(context, dy, keep);
  const GradTarget target = backward.target(input, stat_dtype(dy.dtype()));
  EmbeddingBackwardParams p{};
  p.dtype = dy.dtype();
  p.dropout = dropout;
  p.scale = scale;
  p.tokens = dy.dim(0);
  p.width = dy.dim(1);
  p.entries = sorted.entries;
  p.accumulate = target.accumulate;
  p.entry = sorted.entry();
  p.token = sorted.token();
  p.dy = dy.raw();
  p.dtable = target.buffer.raw();
  launch(context, OpKernel::embedding_backward, kEmbeddingOp, p);
}

// Checked inputs, contiguous ids and positions.
Tensor embed_checked(Context& context, const Tensor& ids, const Tensor& table,
                     const EmbeddingOptions& options);

// Rows picked from each table on its own, and everything else by other ops.
Tensor embedding_reference(Context& context, const Tensor& ids, const Tensor& table,
                           const EmbeddingOptions& options) {
  EmbeddingOptions of_table;
  of_table.padding_id = options.padding_id;
  Tensor y = scale(context, embed_checked(context, ids, table, of_table), options.scale);
  if (options.position_table.defined())
    y = add(context, y, embed_checked(context, options.positions, options.position_table, {}));
  return dropout(context, y, options.dropout);
}

Tensor embed_checked(Context& context, const Tensor& ids, const Tensor& table,
                     const EmbeddingOptions& options) {
  const bool positioned = options.position_table.defined();
  const Tensor rows = contiguous(context, table);
  const Tensor positions_table =
      positioned ? contiguous(context, options.position_table) : Tensor{};
  const int64_t tokens = ids.numel(), width = table.dim(1);
  Tensor y = context.empty({tokens, width}, table.dtype());
  EmbeddingForwardParams params{};
  params.dtype = table.dtype();
  params.dropout = options.dropout;
  params.scale = options.scale;
  params.tokens = tokens;
  params.width = width;
  params.ids = static_cast<const int32_t*>(ids.raw());
  params.positions = positioned ? static_cast<const int32_t*>(options.positions.raw()) : nullptr;
  params.table = rows.raw();
  params.position_table = positioned ? positions_table.raw() : nullptr;
  params.y = y.raw();
  launch(context, OpKernel::embedding_forward, kEmbeddingOp, params);

  if (!context.needs_grad({rows, positions_table})) return y;
  const SortedTokens by_id(context, ids, rows),
      by_position =
          positioned ? SortedTokens(context, options.positions, positions_table) : SortedTokens();
  Tensor keep;
  if (options.padding_id >= 0)
    keep = reshape(
        context,
        cast(context,
             compare(context, ids, static_cast<double>(options.padding_id), Comparison::not_equal),
             y.dtype()),
        {tokens, 1});
  // One after the other: should both be one tensor, the second one adds to what the first has
  // written.
  context.record(
      kEmbeddingOp, {rows, positions_table}, {&y}, {},
      [by_id, by_position, keep, dropout = options.dropout, scale = options.scale](Backward& b) {
        table_gradient(b, 0, by_id, dropout, scale, keep);
        table_gradient(b, 1, by_position, dropout, 1);
      });
  return y;
}

}  // namespace

Tensor embedding(Context& context, const Tensor& ids, const Tensor& table,
                 const EmbeddingOptions& options) {
  const OpRange range(context, kEmbeddingOp, ids, table, options.positions, options.position_table);
  check_table(context, table, "table");
  check_input(context, kEmbeddingOp, "ids", ids);
  check_dropout(options.dropout, kEmbeddingOp);
  const bool positioned = options.position_table.defined();
  require_argument(positioned == options.positions.defined(), kEmbeddingOp, "positions",
                   " and position_table go together: one of them is missing");
  const Tensor ids_flat = contiguous(context, ids);
  validate_indices(context, ids_flat, table.dim(0), "id", options.indices_validated);
  require_argument(options.padding_id >= -1 && options.padding_id < table.dim(0), kEmbeddingOp,
                   "padding_id", " ", options.padding_id, " is neither -1 nor one of 0 to ",
                   table.dim(0) - 1);
  EmbeddingOptions flat = options;
  if (positioned) {
    check_table(context, options.position_table, "position table");
    require(options.position_table.dtype() == table.dtype(), ErrorCode::dtype_mismatch,
            kEmbeddingOp, "the position table is ", dtype_name(options.position_table.dtype()),
            ", the table ", dtype_name(table.dtype()), "; they must be the same");
    require(options.position_table.dim(1) == table.dim(1), ErrorCode::shape_mismatch, kEmbeddingOp,
            "the position table has width ", options.position_table.dim(1), ", the table ",
            table.dim(1));
    flat.positions = contiguous(context, options.positions);
    require(flat.positions.shape() == ids.shape(), ErrorCode::shape_mismatch, kEmbeddingOp,
            "there are ", flat.positions.numel(), " positions for ", ids.numel(), " ids");
    validate_indices(context, flat.positions, options.position_table.dim(0), "position",
                     options.indices_validated);
  }
  return context.fused_kernels() ? embed_checked(context, ids_flat, table, flat)
                                 : embedding_reference(context, ids_flat, table, flat);
}

}  // namespace ops

namespace {

// sin(t * frequency(i)) in column i and cos in column sines + i, t from `first`.
template <class Frequency>
Tensor sines_and_cosines(Context& context, const char* origin, int64_t first, const Shape& shape,
                         DType dtype, Frequency&& frequency) {
  require(is_floating(dtype), ErrorCode::dtype_mismatch, origin,
          "dtype must be a floating-point one, got ", dtype_name(dtype));
  if (!context.backend().keeps_data()) return context.empty(shape, dtype);
  const int64_t positions = shape[0], width = shape[1], sines = (width + 1) / 2;
  std::vector<double> wide(static_cast<size_t>(element_count(shape)));
  for (int64_t c = 0; c < width; ++c) {
    const double turn = frequency(c < sines ? c : c - sines);
    for (int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(first + t) * turn;
      wide[static_cast<size_t>(t * width + c)] =
          c < sines ? portable_sin(angle) : portable_cos(angle);
    }
  }
  return context.from_doubles(wide, shape, dtype);
}

}  // namespace

Tensor sinusoidal_positions(Context& context, int64_t positions, int64_t width, DType dtype) {
  constexpr const char* origin = "sinusoidal_positions";
  require(positions >= 0 && width >= 1, ErrorCode::invalid_argument, origin,
          "needs positions >= 0 ", "and width >= 1, got ", positions, " and ", width);
  return sines_and_cosines(context, origin, 0, {positions, width}, dtype, [width](int64_t i) {
    return portable_pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  });
}

Tensor fairseq_positions(Context& context, int64_t positions, int64_t width, DType dtype) {
  constexpr const char* origin = "fairseq_positions";
  require(positions >= 0 && width >= 4 && width % 2 == 0, ErrorCode::invalid_argument, origin,
          "needs positions >= 0 and an even width >= 4, got ", positions, " and ", width);
  constexpr int64_t kFirst = 2;  // after the padding id, 1
  return sines_and_cosines(context, origin, kFirst, {positions, width}, dtype, [width](int64_t i) {
    return portable_pow(10000.0, -static_cast<double>(i) / static_cast<double>(width / 2 - 1));
  });
}

}  // namespace trafo
