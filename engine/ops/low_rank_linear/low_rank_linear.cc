#include "engine/ops/low_rank_linear/low_rank_linear.h"

#include <algorithm>
#include <optional>

#include "engine/ops/checks.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kLowRankLinearOp = "low_rank_linear";
constexpr int64_t kMostTermColumns = 64;  // of D, in one GEMM with the product of W

// Data that backward needs. x may have to be computed again.
struct SavedLayer {
  SavedTensor x;
  FrozenMatrix weight;
  Tensor a, b;  // `down` and `up` of the update
  Tensor d;     // scale x A^T
  double scale;
  std::shared_ptr<const std::vector<ColumnRange>> ranges;
  int64_t tokens, in, out;
  int64_t columns() const { return a.dim(0); }  // of D
};

Tensor values_of(Context& context, const FrozenMatrix& weight, DType dtype) {
  return weight.coded ? dequantized(context, *weight.coded, dtype)
                      : contiguous(context, weight.values);
}

// [out, R r]: B of each range in its rows and its r columns.
Tensor blocks_of(Context& context, const Tensor& up, const std::vector<ColumnRange>& ranges,
                 int64_t out, int64_t columns) {
  const int64_t rank = up.dim(1), size = static_cast<int64_t>(dtype_size(up.dtype()));
  if (ranges.size() == 1 && ranges[0].count == out) return up;
  const Tensor blocks = context.zeros({out, columns}, up.dtype());
  int64_t row = 0;  // of `up`
  for (size_t i = 0; i < ranges.size(); ++i) {
    CopyStridedParams p{};
    p.dtype = up.dtype();
    p.rank = 2;
    p.shape[0] = ranges[i].count;
    p.shape[1] = rank;
    p.src_strides[0] = rank;
    p.dst_strides[0] = columns;
    p.src_strides[1] = p.dst_strides[1] = 1;
    p.src = static_cast<const std::byte*>(up.raw()) + row * rank * size;
    p.dst = static_cast<std::byte*>(blocks.raw()) +
            (ranges[i].first * columns + static_cast<int64_t>(i) * rank) * size;
    if (ranges[i].count > 0) launch(context, OpKernel::copy_strided, kLowRankLinearOp, p);
    row += ranges[i].count;
  }
  return blocks;
}

// c [m, n] = a [m, k] b + term_a [m, columns] term_b, with both second factors stored [n, k] for
// `trans_b`, else [k, n].
GemmParams with_term(const Tensor& a, const Tensor& b, const Tensor& term_a, const Tensor& term_b,
                     const Tensor& c, bool trans_b, int64_t n, int64_t k) {
  GemmParams p;
  p.dtype = a.dtype();
  p.trans_b = trans_b;
  p.m = a.dim(0);
  p.n = n;
  p.k = k;
  p.a = a.raw();
  p.lda = std::max<int64_t>(k, 1);
  p.b = b.raw();
  p.ldb = std::max<int64_t>(trans_b ? k : n, 1);
  p.c = c.raw();
  p.ldc = std::max<int64_t>(n, 1);
  p.term_k = term_a.dim(1);
  p.term_a = term_a.raw();
  p.term_lda = p.term_k;
  p.term_b = term_b.raw();
  p.term_ldb = trans_b ? p.term_k : p.ldb;
  return p;
}

// Whether the kernel that reads the codes of W also adds the update: by shape and device alone.
bool in_coded_rows(const Context& context, const Tensor& x, const FrozenMatrix& weight,
                   const LowRankUpdate& update) {
  return weight.coded &&
         takes_coded_rows(context.device().kind, x.dtype(), x.dim(0), weight.coded->columns) &&
         std::ssize(*update.ranges) <= CodedTerm::kMostRanges;
}

// The term of `d`, x A^T.
CodedTerm coded_term(const Tensor& d, const Tensor& up, const LowRankUpdate& update) {
  CodedTerm term;
  term.d = d.raw();
  term.up = up.raw();
  term.scale = static_cast<float>(update.scale);
  term.rank = up.dim(1);
  for (const ColumnRange& range : *update.ranges) {
    term.first[term.ranges] = range.first;
    term.count[term.ranges++] = range.count;
  }
  return term;
}

// y = x W^T + bias + d blocks^T.
void product_with_term(Context& context, const Tensor& x, const FrozenMatrix& weight,
                       const Tensor& bias, const Tensor& d, const Tensor& blocks, const Tensor& y) {
  const Tensor values = values_of(context, weight, x.dtype());
  GemmParams p = with_term(x, values, d, blocks, y, true, y.dim(1), x.dim(1));
  p.bias = raw_or_null(bias);
  context.backend().gemm(p);
}

// dx (+)= dy W + dD A. The backend takes the term in the same GEMM where that overwrites dx.
void gradient_of_x(Context& context, const SavedLayer& saved, const Tensor& dy, const Tensor& dd,
                   const GradTarget& dx) {
  const Tensor weight = values_of(context, saved.weight, dy.dtype());
  GemmParams p = with_term(dy, weight, dd, saved.a, dx.buffer, false, saved.in, saved.out);
  if (!dx.accumulate && dx.buffer.dtype() == dy.dtype()) return context.backend().gemm(p);
  GemmParams term = p;
  p.term_k = term.term_k = 0;
  p.accumulate = dx.accumulate;
  term.accumulate = true;
  p.c_is_f32 = term.c_is_f32 = dx.buffer.dtype() != dy.dtype();
  term.k = term.lda = dd.dim(1);
  term.a = dd.raw();
  term.b = saved.a.raw();
  context.backend().gemm(p);
  context.backend().gemm(term);
}

const std::byte* element(const Tensor& tensor, int64_t index) {
  return static_cast<const std::byte*>(tensor.raw()) +
         index * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

// dD / scale = dy_i B_i in R r columns, if `dd` is defined, and dB_i (+)= dy_i^T D_i, if there is
// `db`. Both of a range follow each other, so that a backend can read dy_i once for both.
void thin_gradients(Context& context, const SavedLayer& saved, const Tensor& dy, const Tensor& dd,
                    const GradTarget* db) {
  const int64_t rank = saved.b.dim(1);
  std::vector<GemmParams> gemms;
  int64_t row = 0;  // of B
  for (size_t i = 0; i < saved.ranges->size(); ++i) {
    const ColumnRange& range = (*saved.ranges)[i];
    const int64_t column = static_cast<int64_t>(i) * rank;
    GemmParams p;
    p.dtype = dy.dtype();
    p.a = element(dy, range.first);
    p.lda = saved.out;
    p.n = rank;
    if (dd.defined()) {
      p.m = saved.tokens;
      p.k = range.count;
      p.b = element(saved.b, row * rank);
      p.ldb = rank;
      p.c = const_cast<std::byte*>(element(dd, column));
      p.ldc = saved.columns();
      gemms.push_back(p);
    }
    if (db) {
      p.trans_a = true;
      p.accumulate = db->accumulate;
      p.c_is_f32 = dy.dtype() == DType::bf16 && db->buffer.dtype() == DType::f32;
      p.m = range.count;
      p.k = saved.tokens;
      p.b = element(saved.d, column);
      p.ldb = saved.columns();
      p.c = const_cast<std::byte*>(element(db->buffer, row * rank));
      p.ldc = rank;
      gemms.push_back(p);
    }
    row += range.count;
  }
  context.backend().grouped_gemm(gemms);
}

// Inputs: x, the place of W, bias, A, B.
void backward_with_terms(Backward& b, SavedLayer& saved) {
  Context& context = b.context();
  const Tensor dy = b.grad_output();
  weight_and_bias_gradient(b, 1, 2, dy, saved.out, saved.tokens, {}, [](const GradTarget&) {});
  std::optional<GradTarget> db;
  if (b.needs(4)) db = b.target(4, b.grad_dtype(4));
  const bool wants_dd = b.needs(0) || b.needs(3);
  const Tensor raw = wants_dd ? context.empty(saved.d.shape(), dy.dtype()) : Tensor{};
  thin_gradients(context, saved, dy, raw, db ? &*db : nullptr);
  if (!wants_dd) return;
  const Tensor dd = scale(context, raw, saved.scale);
  if (b.needs(3))
    weight_and_bias_gradient(b, 3, std::nullopt, dd, saved.columns(),
                             {saved.x.get(context), false, saved.in, saved.tokens, saved.in});
  if (b.needs(0)) gradient_of_x(context, saved, dy, dd, b.target(0, b.grad_dtype(0)));
}

// Whether one GEMM can have the term of the update. With and without gradients alike, so that a
// region that is computed again gives the same bits.
bool in_one_product(const Context& context, const Tensor& x, const FrozenMatrix& weight,
                    const LowRankUpdate& update) {
  const int64_t columns = update.down.rank() == 2 ? update.down.dim(0) : 0;
  return context.gemm_epilogues() && context.fused_kernels() &&
         context.backend().gemm_epilogues(x.dtype()) && x.rank() == 2 && x.dim(0) > 0 &&
         columns > 0 && columns <= kMostTermColumns &&
         (weight.coded || !requires_grad(weight.values));
}

void check_shapes(const Tensor& x, int64_t out, int64_t in, const LowRankUpdate& update) {
  int64_t rows = 0;
  for (const ColumnRange& range : *update.ranges) {
    require(range.first >= 0 && range.count >= 0 && range.count <= out - range.first,
            ErrorCode::shape_mismatch, kLowRankLinearOp, "columns ", range.first, " to ",
            range.first + range.count, " are not inside of a weight [", out, ", ", in, "]");
    rows += range.count;
  }
  const auto count = static_cast<int64_t>(update.ranges->size());
  require(x.dim(1) == in && update.down.dim(1) == in && update.up.rank() == 2 &&
              update.up.dim(0) == rows && update.down.dim(0) == count * update.up.dim(1),
          ErrorCode::shape_mismatch, kLowRankLinearOp, "x ", x.shape(), ", down ",
          update.down.shape(), " and up ", update.up.shape(), " do not fit a weight [", out, ", ",
          in, "] and ", count, " ranges of ", rows, " columns");
}

}  // namespace

Tensor add_low_rank(Context& context, const Tensor& x, const LowRankUpdate& update,
                    const std::function<Tensor()>& product) {
  const Tensor down = scale(context, linear(context, x, update.down), update.scale);
  const Tensor y = product();
  // In place: a GEMM does not keep its output for backward.
  return low_rank_add(context, y, down, update.up, *update.ranges, true);
}

Tensor low_rank_linear(Context& context, const Tensor& x, const FrozenMatrix& weight,
                       const Tensor& bias, const LowRankUpdate& update) {
  if (!in_one_product(context, x, weight, update))
    return add_low_rank(context, x, update, [&] {
      return weight.coded ? quantized_linear(context, x, *weight.coded, bias)
                          : linear(context, x, weight.values, bias);
    });
  const OpRange range(context, kLowRankLinearOp, x, bias, update.down, update.up);
  for (const Tensor* const input : {&x, &update.down, &update.up})
    check_compute_input(context, kLowRankLinearOp, "x, down or up", *input);
  const int64_t out = weight.coded ? weight.coded->rows : weight.values.dim(0),
                in = weight.coded ? weight.coded->columns : weight.values.dim(1);
  check_shapes(x, out, in, update);

  const Tensor input = contiguous(context, x), a = contiguous(context, update.down),
               up = contiguous(context, update.up),
               offset = bias.defined() ? contiguous(context, bias) : bias;
  const int64_t tokens = x.dim(0), columns = a.dim(0);
  const Tensor product = linear(context, input.detach(), a.detach());
  const bool records = context.needs_grad({input, offset, a, up}),
             coded = in_coded_rows(context, input, weight, update);
  const Tensor d = records || !coded ? scale(context, product, update.scale) : Tensor{};
  Tensor y = context.empty({tokens, out}, x.dtype());
  if (coded)
    coded_product(context, input, *weight.coded, offset, tokens, y,
                  coded_term(product, up, update));
  else
    product_with_term(context, input, weight, offset, d,
                      blocks_of(context, up.detach(), *update.ranges, out, columns), y);
  if (!records) return y;
  SavedLayer saved{requires_grad(a) ? SavedTensor(input) : SavedTensor(),
                   weight,
                   a.detach(),
                   up.detach(),
                   d,
                   update.scale,
                   update.ranges,
                   tokens,
                   in,
                   out};
  const bool keeps_x = saved.x.is_kept();
  context.record(
      kLowRankLinearOp, {input, Tensor{}, offset, a, up}, {&y},
      {{"x", input, keeps_x},
       {"weight", weight.values, requires_grad(input)},
       {"down", a},
       {"up", up}},
      [saved = std::move(saved)](Backward& b) mutable { backward_with_terms(b, saved); });
  return y;
}

}  // namespace trafo::ops
