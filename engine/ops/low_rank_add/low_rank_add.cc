#include "engine/ops/low_rank_add/low_rank_add.h"

#include <algorithm>
#include <vector>

#include "engine/ops/binary/binary.h"
#include "engine/ops/checks.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kLowRankAddOp = "low_rank_add";

void check(const Context& context, const Tensor& base, const Tensor& down, const Tensor& up,
           std::span<const ColumnRange> ranges) {
  check_compute_input(context, kLowRankAddOp, "base", base);
  check_compute_input(context, kLowRankAddOp, "down", down);
  check_compute_input(context, kLowRankAddOp, "up", up);
  check_same_dtype(kLowRankAddOp, "base", base, "down", down);
  check_same_dtype(kLowRankAddOp, "base", base, "up", up);
  require(base.rank() == 2 && down.rank() == 2 && up.rank() == 2 && base.dim(0) == down.dim(0),
          ErrorCode::shape_mismatch, kLowRankAddOp,
          "base must be [T, n], down [T, ranges * r] and up [rows, r], got ", base.shape(), ", ",
          down.shape(), " and ", up.shape());
  const auto count = static_cast<int64_t>(ranges.size());
  require(count > 0 && down.dim(1) == count * up.dim(1), ErrorCode::shape_mismatch, kLowRankAddOp,
          "down ", down.shape(), " does not have ", up.dim(1), " columns for each of ", count,
          " ranges");
  int64_t rows = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ColumnRange& range = ranges[i];
    require(range.first >= 0 && range.count >= 0 && range.count <= base.dim(1) - range.first,
            ErrorCode::shape_mismatch, kLowRankAddOp, "range ", i, ", columns ", range.first,
            " to ", range.first + range.count, ", is not inside of base ", base.shape());
    for (size_t j = 0; j < i; ++j)
      require(range.first + range.count <= ranges[j].first ||
                  ranges[j].first + ranges[j].count <= range.first,
              ErrorCode::invalid_argument, kLowRankAddOp, "the ranges ", j, " and ", i, " overlap");
    rows += range.count;
  }
  require(rows == up.dim(0), ErrorCode::shape_mismatch, kLowRankAddOp, "the ranges have ", rows,
          " columns, up has the shape ", up.shape());
}

const std::byte* at(const Tensor& tensor, int64_t element) {
  return static_cast<const std::byte*>(tensor.raw()) +
         element * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

// The GEMMs of the ranges. `matrix` fills in what is not common to all.
struct Ranges {
  std::vector<ColumnRange> columns;
  int64_t tokens, width, rank;  // T, n, r

  template <class Fill>
  void multiply(Context& context, DType dtype, Fill fill) const {
    int64_t row = 0;  // of `up`
    for (size_t i = 0; i < columns.size(); ++i) {
      GemmParams p;
      p.dtype = dtype;
      fill(p, columns[i], static_cast<int64_t>(i) * rank, row * rank);
      context.backend().gemm(p);
      row += columns[i].count;
    }
  }
  int64_t down_width() const { return static_cast<int64_t>(columns.size()) * rank; }
};

void forward(Context& context, const Ranges& ranges, const Tensor& down, const Tensor& up,
             const Tensor& y) {
  ranges.multiply(context, y.dtype(),
                  [&](GemmParams& p, const ColumnRange& range, int64_t column, int64_t row) {
                    p.trans_b = true;
                    p.accumulate = true;
                    p.m = ranges.tokens;
                    p.n = range.count;
                    p.k = ranges.rank;
                    p.a = at(down, column);
                    p.lda = ranges.down_width();
                    p.b = at(up, row);
                    p.ldb = ranges.rank;
                    p.c = const_cast<std::byte*>(at(y, range.first));
                    p.ldc = ranges.width;
                  });
}

void backward_of_down(Backward& b, const Ranges& ranges, const Tensor& dy, const Tensor& up) {
  const GradTarget to = b.target(1, b.grad_dtype(1));
  ranges.multiply(b.context(), dy.dtype(),
                  [&](GemmParams& p, const ColumnRange& range, int64_t column, int64_t row) {
                    p.accumulate = to.accumulate;
                    p.c_is_f32 = dy.dtype() == DType::bf16 && to.buffer.dtype() == DType::f32;
                    p.m = ranges.tokens;
                    p.n = ranges.rank;
                    p.k = range.count;
                    p.a = at(dy, range.first);
                    p.lda = ranges.width;
                    p.b = at(up, row);
                    p.ldb = ranges.rank;
                    p.c = const_cast<std::byte*>(at(to.buffer, column));
                    p.ldc = ranges.down_width();
                  });
}

void backward_of_up(Backward& b, const Ranges& ranges, const Tensor& dy, const Tensor& down) {
  const GradTarget to = b.target(2, b.grad_dtype(2));
  ranges.multiply(b.context(), dy.dtype(),
                  [&](GemmParams& p, const ColumnRange& range, int64_t column, int64_t row) {
                    p.trans_a = true;
                    p.accumulate = to.accumulate;
                    p.c_is_f32 = dy.dtype() == DType::bf16 && to.buffer.dtype() == DType::f32;
                    p.m = range.count;
                    p.n = ranges.rank;
                    p.k = ranges.tokens;
                    p.a = at(dy, range.first);
                    p.lda = ranges.width;
                    p.b = at(down, column);
                    p.ldb = ranges.down_width();
                    p.c = const_cast<std::byte*>(at(to.buffer, row));
                    p.ldc = ranges.rank;
                  });
}

}  // namespace

Tensor low_rank_add_reference(Context& context, const Tensor& base, const Tensor& down,
                              const Tensor& up, std::span<const ColumnRange> ranges) {
  // The columns from left to right; `up` has its rows in the order of the ranges.
  const int64_t rank = up.dim(1);
  std::vector<size_t> order;
  std::vector<int64_t> rows;
  int64_t row = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    order.push_back(i);
    rows.push_back(row);
    row += ranges[i].count;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(ranges[a].first, ranges[a].count) <
           std::pair(ranges[b].first, ranges[b].count);
  });
  std::vector<Tensor> parts;
  int64_t column = 0;
  const auto keep_to = [&](int64_t end) {
    if (end > column) parts.push_back(slice(context, base, 1, column, end));
    column = end;
  };
  for (const size_t i : order) {
    const ColumnRange& range = ranges[i];
    keep_to(range.first);
    column = range.first + range.count;
    const auto first = static_cast<int64_t>(i) * rank;
    const Tensor product =
        matmul(context, slice(context, down, 1, first, first + rank),
               slice(context, up, 0, rows[i], rows[i] + range.count), {.transpose_b = true});
    parts.push_back(add(context, slice(context, base, 1, range.first, column), product));
  }
  keep_to(base.dim(1));
  return ops::concat(context, parts, 1);
}

Tensor low_rank_add(Context& context, const Tensor& base, const Tensor& down, const Tensor& up,
                    std::span<const ColumnRange> ranges, bool in_place) {
  const OpRange range(context, kLowRankAddOp, base, down, up);
  check(context, base, down, up, ranges);
  if (!context.fused_kernels()) return low_rank_add_reference(context, base, down, up, ranges);

  const Tensor from = contiguous(context, base), d = contiguous(context, down),
               u = contiguous(context, up);
  const bool reuse = in_place && base.is_contiguous();
  if (reuse) from.mark_written();
  Tensor y = reuse ? from.detach() : context.empty(base.shape(), base.dtype());
  if (!reuse) context.backend().copy(y.raw(), from.raw(), y.bytes());
  const Ranges parts{{ranges.begin(), ranges.end()}, base.dim(0), base.dim(1), up.dim(1)};
  if (base.dim(0) > 0) forward(context, parts, d, u, y);
  if (!context.needs_grad({from, d, u})) return y;

  context.record(kLowRankAddOp, {from, d, u}, {&y},
                 {{"down", d, requires_grad(u)}, {"up", u, requires_grad(d)}},
                 [parts, d = d.detach(), u = u.detach()](Backward& b) {
                   const Tensor dy = b.grad_output();
                   if (b.needs(2)) backward_of_up(b, parts, dy, d);
                   if (b.needs(1)) backward_of_down(b, parts, dy, u);
                   if (b.needs(0)) b.add(0, dy);
                 });
  return y;
}

}  // namespace trafo::ops
