#include "engine/ops/rotary/rotary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/core/argument_error.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace ops {
namespace {

constexpr const char* kRotaryOp = "rotary";

void check(const Context& context, const Tensor& x, const Tensor& positions,
           const RotaryOptions& o) {
  check_compute_input(context, kRotaryOp, "x", x);
  check_input(context, kRotaryOp, "positions", positions);
  require(positions.dtype() == DType::i32, ErrorCode::dtype_mismatch, kRotaryOp,
          "positions must be int32, they are ", dtype_name(positions.dtype()));
  require_argument(o.head_dim >= 2 && o.head_dim % 2 == 0, kRotaryOp, "head_dim",
                   " must be even and at least 2, got ", o.head_dim);
  require_argument(o.heads >= 1 && o.kv_heads >= 0, kRotaryOp, "heads",
                   " must be at least 1 and kv_heads at least 0, got ", o.heads, " and ",
                   o.kv_heads);
  const RotaryAngles& a = o.angles;
  require_argument(std::isfinite(a.theta) && a.theta > 0, kRotaryOp, "theta",
                   " must be above 0, got ", a.theta);
  require_argument(std::isfinite(a.factor) && a.factor >= 1 && a.original_positions >= 0, kRotaryOp,
                   "factor", " must be at least 1 and original_positions at least 0, got ",
                   a.factor, " and ", a.original_positions);
  require(a.low_turns >= 0 && a.low_turns < a.high_turns && std::isfinite(a.high_turns),
          ErrorCode::invalid_argument, kRotaryOp, "low_turns must be 0 to below high_turns, got ",
          a.low_turns, " and ", a.high_turns);
  require_argument(std::isfinite(a.magnitude) && a.magnitude > 0, kRotaryOp, "magnitude",
                   " must be above 0, got ", a.magnitude);
  require_argument(a.query_growth == 0 || (a.query_growth > 0 && std::isfinite(a.query_growth) &&
                                           a.original_positions > 0),
                   kRotaryOp, "query_growth",
                   " must be 0, or above 0 with original_positions, got ", a.query_growth);
  const int64_t columns =
      checked_mul(checked_add(o.heads, checked_mul(int64_t{2}, o.kv_heads, kRotaryOp), kRotaryOp),
                  o.head_dim, kRotaryOp);
  require(x.rank() == 2 && x.dim(1) == columns, ErrorCode::shape_mismatch, kRotaryOp,
          "x must be [T, ", columns, "], its shape is ", x.shape());
  require(positions.rank() == 1 && positions.dim(0) == x.dim(0), ErrorCode::shape_mismatch,
          kRotaryOp, "positions must be [", x.dim(0), "], one a row of x; their shape is ",
          positions.shape());
}

// x with the columns of a row side by side. Rows may be apart, as in a slice of a packed
// projection.
Tensor row_view(Context& context, const Tensor& x) {
  return x.strides()[1] == 1 ? x : contiguous(context, x);
}

// heads [T, heads, head_dim] rotated by cosines and sines [T, 1, head_dim / 2].
Tensor rotate(Context& context, const Tensor& heads, const Tensor& cosine, const Tensor& sine) {
  const int64_t half = heads.dim(2) / 2;
  const Tensor a = slice(context, heads, 2, 0, half), b = slice(context, heads, 2, half, 2 * half);
  const std::array<Tensor, 2> rotated = {
      subtract(context, multiply(context, a, cosine), multiply(context, b, sine)),
      add(context, multiply(context, b, cosine), multiply(context, a, sine))};
  return ops::concat(context, rotated, 2);
}

// Queries of `rotated` [T, queries and keys, head_dim] times the factor of their position.
Tensor grow_queries(Context& context, const Tensor& rotated, const HostInts& positions,
                    const RotaryOptions& options) {
  if (options.angles.query_growth == 0) return rotated;
  const int64_t rows = rotated.dim(0), count = rotated.dim(1);
  std::vector<double> factors;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < count; ++head)
      factors.push_back(head < options.heads
                            ? options.angles.query_factor(positions[static_cast<size_t>(row)])
                            : 1);
  return multiply(context, rotated,
                  context.from_doubles(factors, {rows, count, 1}, rotated.dtype()));
}

}  // namespace

Tensor rotary_reference(Context& context, const Tensor& x, const Tensor& positions,
                        const RotaryOptions& options) {
  const int64_t rows = x.dim(0), half = options.head_dim / 2;
  std::vector<double> cosines(static_cast<size_t>(rows * half)), sines(cosines.size());
  const Tensor flat_positions = contiguous(context, positions);
  const HostInts at(context, flat_positions);
  for (size_t i = 0; i < cosines.size(); ++i) {
    const auto pair = static_cast<int64_t>(i % static_cast<size_t>(half));
    const double angle =
        at[i / static_cast<size_t>(half)] * options.angles.of_pair(pair, options.head_dim);
    cosines[i] = options.angles.magnitude * portable_cos(angle);
    sines[i] = options.angles.magnitude * portable_sin(angle);
  }
  const Tensor cosine = context.from_doubles(cosines, {rows, 1, half}, x.dtype());
  const Tensor sine = context.from_doubles(sines, {rows, 1, half}, x.dtype());
  const int64_t count = options.heads + options.kv_heads, width = count * options.head_dim;
  const Tensor heads =
      reshape(context, slice(context, x, 1, 0, width), {rows, count, options.head_dim});
  const Tensor grown = grow_queries(context, rotate(context, heads, cosine, sine), at, options);
  const Tensor rotated = reshape(context, grown, {rows, width});
  if (options.kv_heads == 0) return rotated;
  const std::array<Tensor, 2> parts = {rotated, slice(context, x, 1, width, x.dim(1))};
  return ops::concat(context, parts, 1);
}

Tensor rotary(Context& context, const Tensor& x, const Tensor& positions,
              const RotaryOptions& options) {
  const OpRange range(context, kRotaryOp, x, positions);
  check(context, x, positions, options);
  if (!context.fused_kernels()) return rotary_reference(context, x, positions, options);

  const Tensor in = row_view(context, x);
  const Tensor at = contiguous(context, positions);
  const bool in_place = options.in_place && in.is_contiguous();
  if (in_place) in.mark_written();
  Tensor y = in_place ? in.detach() : context.empty(x.shape(), x.dtype());
  RotaryForwardParams p{};
  p.dtype = x.dtype();
  p.angles = options.angles;
  p.ramp = ramp_of(options.angles, options.head_dim);
  p.rows = x.dim(0);
  p.head_dim = options.head_dim;
  p.heads = options.heads;
  p.kv_heads = options.kv_heads;
  p.positions = static_cast<const int32_t*>(at.raw());
  p.x = in.raw();
  p.y = y.raw();
  p.x_stride = in.strides()[0];
  p.y_stride = x.dim(1);
  launch(context, OpKernel::rotary_forward, kRotaryOp, p);
  if (!context.needs_grad({in})) return y;

  context.record(kRotaryOp, {in}, {&y}, {{"positions", at}},
                 [at = at.detach(), options](Backward& b) {
                   const Tensor dy = b.grad_output();
                   const GradTarget dx = b.target(0);
                   RotaryBackwardParams q{};
                   q.dtype = dy.dtype();
                   q.angles = options.angles;
                   q.ramp = ramp_of(options.angles, options.head_dim);
                   q.rows = dy.dim(0);
                   q.head_dim = options.head_dim;
                   q.heads = options.heads;
                   q.kv_heads = options.kv_heads;
                   q.accumulate = dx.accumulate;
                   q.positions = static_cast<const int32_t*>(at.raw());
                   q.dy = dy.raw();
                   q.dx = dx.buffer.raw();
                   q.dy_stride = dy.dim(1);
                   q.dx_stride = dx.buffer.dim(1);
                   launch(b.context(), OpKernel::rotary_backward, kRotaryOp, q);
                 });
  return y;
}

}  // namespace ops

double RotaryAngles::of_pair(int64_t pair, int64_t head_dim) const {
  const double angle =
      portable_pow(theta, -2 * static_cast<double>(pair) / static_cast<double>(head_dim));
  if (factor == 1) return angle;
  const RotaryRamp ramp = ramp_of(*this, head_dim);
  const double at = ramp.by_pair
                        ? -static_cast<double>(pair)
                        : static_cast<double>(original_positions) * angle / (2 * std::numbers::pi);
  const double kept = std::clamp((at - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return angle * ((1 - kept) / factor + kept);
}

double RotaryAngles::query_factor(int64_t position) const {
  if (query_growth == 0 || position < original_positions) return 1;
  const auto stretches = static_cast<double>(position / original_positions);
  return 1 + query_growth * portable_log(1 + stretches);
}

RotaryRamp ramp_of(const RotaryAngles& angles, int64_t head_dim) {
  if (angles.scaling != RopeScaling::yarn || angles.original_positions == 0)
    return {angles.low_turns, angles.high_turns, false};
  const auto pair_of = [&](double turns) {
    const auto positions = static_cast<double>(angles.original_positions);
    return static_cast<double>(head_dim) *
           portable_log(positions / (turns * 2 * std::numbers::pi)) /
           (2 * portable_log(angles.theta));
  };
  const double first = std::max(std::floor(pair_of(angles.high_turns)), 0.0);
  double last = std::min(std::ceil(pair_of(angles.low_turns)), static_cast<double>(head_dim - 1));
  if (first == last) last += 0.001;
  return {-last, -first, true};
}

double yarn_magnitude(double factor, double mscale) {
  return 0.1 * mscale * portable_log(factor) + 1;
}

}  // namespace trafo
