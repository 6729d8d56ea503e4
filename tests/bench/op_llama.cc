// Ops of a Llama besides GEMMs and attention: RMS norm alone and after a residual connection,
// rotary positions on a packed projection, the gate of SwiGLU.
#include <array>
#include <cmath>

#include "engine/core/numeric/philox.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/rotary/rotary.h"
#include "engine/ops/swiglu/swiglu.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kCheckedRows = 16;
constexpr double kFullBytes = 16 << 20;
constexpr double kEpsilon = 1e-6;

using Values = std::vector<double>;
// One row: outputs and the gradient of x from x and the gradient of the (last) output.
using RowFn =
    std::function<void(int64_t row, const Values& x, const Values& dy, Values& y, Values& dx)>;

// `tensors`: of `in` columns that forward and backward must at least move.
OpRun run_of(const char* op, DType dtype, const Shape& shape, double bytes, double forward_tensors,
             double backward_tensors) {
  OpRun run;
  run.section = "llama";
  run.op = op;
  run.dtype = dtype;
  run.shape = shape;
  run.full = bytes >= kFullBytes;
  run.forward_bytes = forward_tensors * bytes;
  run.backward_bytes = backward_tensors * bytes;
  return run;
}

Values row_of(const RandomTensor& tensor, int64_t row, int64_t width) {
  Values values(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) values[static_cast<size_t>(i)] = tensor.at(row * width + i);
  return values;
}

// Rows of y and dx, computed by `expected`, against what the device has.
void check_rows(Context& context, const RandomTensor& x, const RandomTensor& dy, const Tensor& y,
                const Tensor& dx, const RowFn& expected, ErrorMeter& forward,
                ErrorMeter& backward) {
  const int64_t rows = x.tensor.dim(0), in = x.tensor.dim(1), out = y.dim(1);
  for (const int64_t row : spread(rows, kCheckedRows)) {
    Values of_y(static_cast<size_t>(out)), of_dx(static_cast<size_t>(in));
    expected(row, row_of(x, row, in), row_of(dy, row, out), of_y, of_dx);
    const Values values = read_values(context, y, row * out, out),
                 gradients = read_values(context, dx, row * in, in);
    for (size_t i = 0; i < of_y.size(); ++i) forward.add(values[i], of_y[i]);
    for (size_t i = 0; i < of_dx.size(); ++i) backward.add(gradients[i], of_dx[i]);
  }
}

void rms_norms(OpBench& bench, DType dtype, const Shape& shape) {
  Context& context = bench.context;
  const int64_t width = shape[1];
  const RandomTensor x = random_tensor(context, shape, dtype),
                     gamma = random_tensor(context, {width}, dtype),
                     dy = random_tensor(context, shape, dtype),
                     residual = random_tensor(context, shape, dtype),
                     dsum = random_tensor(context, shape, dtype);
  const Tensor dx = context.empty(shape, dtype), dresidual = context.empty(shape, dtype),
               dgamma = context.empty({width}, stat_dtype(dtype));
  const double bytes =
      static_cast<double>(element_count(shape) * static_cast<int64_t>(dtype_size(dtype)));
  const auto norm = [&](const Values& in, const Values& gradient, Values& y, Values& total) {
    double square = 0, product = 0;
    for (const double v : in) square += v * v;
    const double rstd = 1 / std::sqrt(square / static_cast<double>(width) + kEpsilon);
    for (size_t i = 0; i < in.size(); ++i)
      product += gradient[i] * gamma.at(static_cast<int64_t>(i)) * in[i] * rstd;
    product /= static_cast<double>(width);
    for (size_t i = 0; i < in.size(); ++i) {
      const double weight = gamma.at(static_cast<int64_t>(i));
      y[i] = in[i] * rstd * weight;
      total[i] = rstd * (gradient[i] * weight - in[i] * rstd * product);
    }
  };

  OpRun alone = run_of("rms_norm", dtype, shape, bytes, 2, 3);
  alone.upstream = {dy.tensor};
  const auto leaves = [&](auto&& op) {
    return std::vector<Tensor>{op(make_leaf(x.tensor, dx), make_leaf(gamma.tensor, dgamma))};
  };
  alone.forward = [&] { ops::rms_norm(context, x.tensor, gamma.tensor, kEpsilon); };
  alone.record = [&] {
    return leaves(
        [&](const Tensor& a, const Tensor& g) { return ops::rms_norm(context, a, g, kEpsilon); });
  };
  alone.reference_forward = [&] {
    ops::rms_norm_reference(context, x.tensor, gamma.tensor, kEpsilon);
  };
  alone.reference_record = [&] {
    return leaves([&](const Tensor& a, const Tensor& g) {
      return ops::rms_norm_reference(context, a, g, kEpsilon);
    });
  };
  alone.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    check_rows(
        context, x, dy, ops::rms_norm(context, x.tensor, gamma.tensor, kEpsilon), dx,
        [&](int64_t, const Values& in, const Values& gradient, Values& y, Values& total) {
          norm(in, gradient, y, total);
        },
        forward, backward);
  };
  measure(bench, alone);

  // Forward reads x and the residual and writes the sum and its norm; backward reads the sum and
  // both gradients and writes one, which in a model is the gradient of x and of the residual. x is
  // a constant here, as leaves would get copies.
  OpRun add_norm = run_of("residual_rms_norm", dtype, shape, bytes, 4, 4);
  add_norm.upstream = {dsum.tensor, dy.tensor};
  const auto fused = [&](const Tensor& a, const Tensor& r, const Tensor& g) {
    const auto out = ops::residual_rms_norm(context, a, r, g, kEpsilon, {});
    return std::vector<Tensor>{out.sum, out.normed};
  };
  const auto reference = [&](const Tensor& a, const Tensor& r, const Tensor& g) {
    const Tensor sum = ops::bias_dropout_residual_reference(context, a, {}, r, {});
    return std::vector<Tensor>{sum, ops::rms_norm_reference(context, sum, g, kEpsilon)};
  };
  const auto add_norm_leaves = [&](auto&& op) {
    return op(x.tensor, make_leaf(residual.tensor, dresidual), make_leaf(gamma.tensor, dgamma));
  };
  add_norm.forward = [&] { fused(x.tensor, residual.tensor, gamma.tensor); };
  add_norm.record = [&] { return add_norm_leaves(fused); };
  add_norm.reference_forward = [&] { reference(x.tensor, residual.tensor, gamma.tensor); };
  add_norm.reference_record = [&] { return add_norm_leaves(reference); };
  add_norm.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    const Tensor normed = fused(x.tensor, residual.tensor, gamma.tensor)[1];
    check_rows(
        context, x, dy, normed, dresidual,
        [&](int64_t row, const Values& in, const Values& gradient, Values& y, Values& total) {
          Values sum = in;
          for (size_t i = 0; i < sum.size(); ++i)
            sum[i] += residual.at(row * width + static_cast<int64_t>(i));
          norm(sum, gradient, y, total);
          for (size_t i = 0; i < sum.size(); ++i)
            total[i] += dsum.at(row * width + static_cast<int64_t>(i));
        },
        forward, backward);
  };
  measure(bench, add_norm);
}

void rotary_positions(OpBench& bench, DType dtype, int64_t rows, int64_t heads, int64_t dim) {
  Context& context = bench.context;
  const Shape shape{rows, 3 * heads * dim};
  const RandomTensor x = random_tensor(context, shape, dtype),
                     dy = random_tensor(context, shape, dtype);
  const Tensor dx = context.empty(shape, dtype);
  std::vector<int32_t> at(static_cast<size_t>(rows));
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i % 256);
  const Tensor positions = context.from_values<int32_t>(at, {rows});
  ops::RotaryOptions options;
  options.heads = options.kv_heads = heads;
  options.head_dim = dim;
  const double bytes =
      static_cast<double>(element_count(shape) * static_cast<int64_t>(dtype_size(dtype)));
  OpRun run = run_of("rotary", dtype, shape, bytes, 2, 2);
  run.extra["heads"] = heads;
  run.upstream = {dy.tensor};
  run.forward = [&] { ops::rotary(context, x.tensor, positions, options); };
  run.record = [&] {
    return std::vector{ops::rotary(context, make_leaf(x.tensor, dx), positions, options)};
  };
  run.reference_forward = [&] { ops::rotary_reference(context, x.tensor, positions, options); };
  run.reference_record = [&] {
    return std::vector{ops::rotary_reference(context, make_leaf(x.tensor, dx), positions, options)};
  };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    check_rows(
        context, x, dy, ops::rotary(context, x.tensor, positions, options), dx,
        [&](int64_t row, const Values& in, const Values& gradient, Values& y, Values& total) {
          const auto half = static_cast<size_t>(dim / 2);
          for (size_t first = 0; first < in.size(); first += 2 * half)
            for (size_t i = first; i < first + half; ++i) {
              const bool turned = first < static_cast<size_t>(2 * heads * dim);
              const double angle = turned ? at[static_cast<size_t>(row)] *
                                                std::pow(options.angles.theta,
                                                         -2.0 * static_cast<double>(i - first) /
                                                             static_cast<double>(dim))
                                          : 0;
              const double c = std::cos(angle), s = std::sin(angle);
              y[i] = in[i] * c - in[i + half] * s;
              y[i + half] = in[i + half] * c + in[i] * s;
              total[i] = gradient[i] * c + gradient[i + half] * s;
              total[i + half] = gradient[i + half] * c - gradient[i] * s;
            }
        },
        forward, backward);
  };
  measure(bench, run);
}

void gates(OpBench& bench, DType dtype, int64_t rows, int64_t ffn) {
  Context& context = bench.context;
  const Shape shape{rows, 2 * ffn};
  const RandomTensor x = random_tensor(context, shape, dtype),
                     dy = random_tensor(context, {rows, ffn}, dtype);
  const Tensor dx = context.empty(shape, dtype);
  const double bytes = static_cast<double>(rows * ffn * static_cast<int64_t>(dtype_size(dtype)));
  OpRun run = run_of("swiglu", dtype, shape, bytes, 3, 5);
  run.upstream = {dy.tensor};
  run.forward = [&] { ops::swiglu(context, x.tensor); };
  run.record = [&] { return std::vector{ops::swiglu(context, make_leaf(x.tensor, dx))}; };
  run.reference_forward = [&] { ops::swiglu_reference(context, x.tensor); };
  run.reference_record = [&] {
    return std::vector{ops::swiglu_reference(context, make_leaf(x.tensor, dx))};
  };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    check_rows(
        context, x, dy, ops::swiglu(context, x.tensor), dx,
        [&](int64_t, const Values& in, const Values& gradient, Values& y, Values& total) {
          const size_t n = y.size();
          for (size_t i = 0; i < n; ++i) {
            const double s = 1 / (1 + std::exp(-in[i]));
            y[i] = in[i] * s * in[n + i];
            total[i] = gradient[i] * in[n + i] * (s + in[i] * s * (1 - s));
            total[n + i] = gradient[i] * in[i] * s;
          }
        },
        forward, backward);
  };
  measure(bench, run);
}

}  // namespace

void bench_llama(OpBench& bench) {
  const std::vector<DType> defaults =
      bench.on_cpu() ? std::vector{DType::f32} : std::vector{DType::f32, DType::bf16};
  for (const DType dtype : bench.dtypes_or(defaults)) {
    for (const Shape& shape :
         {Shape{4096, 512}, Shape{8192, 768}, Shape{8192, 2048}, Shape{16384, 4096}})
      if (bench.takes("llama", shape, static_cast<double>(element_count(shape))))
        rms_norms(bench, dtype, shape);
    for (const auto& [rows, heads, dim] :
         {std::array<int64_t, 3>{4096, 8, 64}, {8192, 12, 64}, {8192, 16, 128}, {16384, 32, 128}})
      if (bench.takes("llama", {rows, 3 * heads * dim},
                      static_cast<double>(3 * rows * heads * dim)))
        rotary_positions(bench, dtype, rows, heads, dim);
    for (const auto& [rows, ffn] :
         {std::array<int64_t, 2>{4096, 1376}, {8192, 2048}, {8192, 5632}, {16384, 11008}})
      if (bench.takes("llama", {rows, 2 * ffn}, static_cast<double>(2 * rows * ffn)))
        gates(bench, dtype, rows, ffn);
  }
}

}  // namespace trafo::bench
