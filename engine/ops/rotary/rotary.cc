#include "engine/ops/rotary/rotary.h"

#include <array>
#include <cmath>
#include <vector>

#include "engine/ops/binary/binary.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kOp = "rotary";

int64_t repeats_of(const RotaryOptions& options) {
  return options.kv_heads > 0 ? options.heads / options.kv_heads : 1;
}

void check(const Context& context, const Tensor& x, const Tensor& positions,
           const RotaryOptions& o) {
  check_compute_input(context, kOp, "x", x);
  check_input(context, kOp, "positions", positions);
  require(positions.dtype() == DType::i32, ErrorCode::dtype_mismatch, kOp,
          "positions must be int32, they are ", dtype_name(positions.dtype()));
  require(o.head_dim >= 2 && o.head_dim % 2 == 0, ErrorCode::invalid_argument, kOp,
          "head_dim must be even and at least 2, got ", o.head_dim);
  require(o.heads >= 1 && o.kv_heads >= 0, ErrorCode::invalid_argument, kOp,
          "heads must be at least 1 and kv_heads at least 0, got ", o.heads, " and ", o.kv_heads);
  require(o.kv_heads == 0 || o.heads % o.kv_heads == 0, ErrorCode::invalid_argument, kOp, "the ",
          o.heads, " heads are not a multiple of the ", o.kv_heads, " key and value heads");
  require(std::isfinite(o.theta) && o.theta > 0, ErrorCode::invalid_argument, kOp,
          "theta must be above 0, got ", o.theta);
  const int64_t columns = checked_mul(
      checked_add(o.heads, checked_mul(int64_t{2}, o.kv_heads, kOp), kOp), o.head_dim, kOp);
  require(x.rank() == 2 && x.dim(1) == columns, ErrorCode::shape_mismatch, kOp, "x must be [T, ",
          columns, "], its shape is ", x.shape().str());
  require(positions.rank() == 1 && positions.dim(0) == x.dim(0), ErrorCode::shape_mismatch, kOp,
          "positions must be [", x.dim(0), "], one a row of x; their shape is ",
          positions.shape().str());
}

// x with columns next to each other; rows may be apart, as those of a part of a packed product are.
Tensor row_view(Context& context, const Tensor& x) {
  return x.strides()[1] == 1 ? x : contiguous(context, x);
}

// Both halves of heads [T, heads, head_dim] turned by cosines and sines [T, 1, head_dim / 2].
Tensor turn(Context& context, const Tensor& heads, const Tensor& cosine, const Tensor& sine) {
  const int64_t half = heads.dim(2) / 2;
  const Tensor a = slice(context, heads, 2, 0, half), b = slice(context, heads, 2, half, 2 * half);
  const std::array<Tensor, 2> turned = {
      subtract(context, multiply(context, a, cosine), multiply(context, b, sine)),
      add(context, multiply(context, b, cosine), multiply(context, a, sine))};
  return ops::concat(context, turned, 2);
}

// [T, heads, head_dim] -> [T, heads * repeats * head_dim], a head's copies one after the other.
Tensor repeat(Context& context, const Tensor& heads, int64_t repeats) {
  const int64_t rows = heads.dim(0), count = heads.dim(1), dim = heads.dim(2);
  const std::vector<Tensor> copies(static_cast<size_t>(repeats),
                                   reshape(context, heads, {rows, count, 1, dim}));
  return reshape(context, ops::concat(context, copies, 2), {rows, count * repeats * dim});
}

}  // namespace

Tensor rotary_reference(Context& context, const Tensor& x, const Tensor& positions,
                        const RotaryOptions& options) {
  const int64_t rows = x.dim(0), half = options.head_dim / 2;
  std::vector<double> cosines(static_cast<size_t>(rows * half)), sines(cosines.size());
  const Tensor flat_positions = contiguous(context, positions);
  const HostInts at(context, flat_positions);
  for (size_t i = 0; i < cosines.size(); ++i) {
    const auto pair = static_cast<double>(i % static_cast<size_t>(half));
    const double angle = at[i / static_cast<size_t>(half)] *
                         std::pow(options.theta, -2 * pair / static_cast<double>(options.head_dim));
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
  const Tensor cosine = context.from_doubles(cosines, {rows, 1, half}, x.dtype());
  const Tensor sine = context.from_doubles(sines, {rows, 1, half}, x.dtype());
  const auto heads_of = [&](int64_t first, int64_t count) {
    const Tensor part =
        slice(context, x, 1, first * options.head_dim, (first + count) * options.head_dim);
    return reshape(context, part, {rows, count, options.head_dim});
  };
  const int64_t heads = options.heads, kv = options.kv_heads, repeats = repeats_of(options);
  const Tensor queries = reshape(context, turn(context, heads_of(0, heads), cosine, sine),
                                 {rows, heads * options.head_dim});
  if (kv == 0) return queries;
  const std::array<Tensor, 3> parts = {
      queries, repeat(context, turn(context, heads_of(heads, kv), cosine, sine), repeats),
      repeat(context, heads_of(heads + kv, kv), repeats)};
  return ops::concat(context, parts, 1);
}

Tensor rotary(Context& context, const Tensor& x, const Tensor& positions,
              const RotaryOptions& options) {
  const OpRange range(context, kOp, x, positions);
  check(context, x, positions, options);
  if (!context.fused_kernels()) return rotary_reference(context, x, positions, options);

  const int64_t repeats = repeats_of(options);
  const Tensor in = row_view(context, x);
  const Tensor at = contiguous(context, positions);
  const int64_t columns = (options.heads + 2 * options.kv_heads * repeats) * options.head_dim;
  const bool in_place = options.in_place && repeats == 1 && in.is_contiguous();
  Tensor y = in_place ? in.detach() : context.empty({x.dim(0), columns}, x.dtype());
  RotaryForwardParams p{};
  p.dtype = x.dtype();
  p.theta = options.theta;
  p.rows = x.dim(0);
  p.head_dim = options.head_dim;
  p.heads = options.heads;
  p.kv_heads = options.kv_heads;
  p.repeats = repeats;
  p.positions = static_cast<const int32_t*>(at.raw());
  p.x = in.raw();
  p.y = y.raw();
  p.x_stride = in.strides()[0];
  p.y_stride = columns;
  launch(context, OpKernel::rotary_forward, kOp, p);
  if (!context.needs_grad({in})) return y;

  context.record(kOp, {in}, {&y}, [at = at.detach(), options, repeats](Backward& b) {
    const Tensor dy = b.grad_output();
    const GradTarget dx = b.target(0);
    RotaryBackwardParams q{};
    q.dtype = dy.dtype();
    q.theta = options.theta;
    q.rows = dy.dim(0);
    q.head_dim = options.head_dim;
    q.heads = options.heads;
    q.kv_heads = options.kv_heads;
    q.repeats = repeats;
    q.accumulate = dx.accumulate;
    q.positions = static_cast<const int32_t*>(at.raw());
    q.dy = dy.raw();
    q.dx = dx.buffer.raw();
    q.dy_stride = dy.dim(1);
    q.dx_stride = dx.buffer.dim(1);
    launch(b.context(), OpKernel::rotary_backward, kOp, q);
  });
  return y;
}

}  // namespace trafo::ops
