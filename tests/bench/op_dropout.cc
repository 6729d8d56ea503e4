// The chains around dropout: bias + relu + dropout, bias + dropout + residual, and that with the
// layer norm after it. Reference: one kernel for each of these steps.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/core/numeric/philox.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kCheckedRows = 16;
constexpr int64_t kCheckedColumns = 8;
constexpr double kFullBytes = 16 << 20;
constexpr double kEpsilon = 1e-5;
constexpr Dropout kDropout{0.1f, 12345, 3, 7};

struct Chain {
  Context& context;
  DType dtype;
  Shape shape;  // [rows, width]
  int64_t rows, width;
  RandomTensor x, residual, bias, gamma, beta, dy, dsum;
  Tensor dx, dresidual, dbias, dgamma, dbeta;

  Chain(Context& c, DType type, const Shape& size)
      : context(c),
        dtype(type),
        shape(size),
        rows(size[0]),
        width(size[1]),
        x(random_tensor(c, size, type)),
        residual(random_tensor(c, size, type)),
        bias(random_tensor(c, {width}, type)),
        gamma(random_tensor(c, {width}, type)),
        beta(random_tensor(c, {width}, type)),
        dy(random_tensor(c, size, type)),
        dsum(random_tensor(c, size, type)),
        dx(c.empty(size, type)),
        dresidual(c.empty(size, type)),
        dbias(c.empty({width}, stat_dtype(type))),
        dgamma(c.empty({width}, stat_dtype(type))),
        dbeta(c.empty({width}, stat_dtype(type))) {}

  double factor(int64_t i) const { return dropout_keeps(kDropout, i) ? kDropout.scale() : 0; }
  double biased(int64_t i) const { return x.at(i) + bias.at(i % width); }
  OpRun run(const char* op, double forward_tensors, double backward_tensors) const {
    const double bytes =
        static_cast<double>(element_count(shape)) * static_cast<double>(dtype_size(dtype));
    OpRun made;
    made.section = "dropout";
    made.op = op;
    made.dtype = dtype;
    made.shape = shape;
    made.extra["fw_tensors"] = forward_tensors;
    made.extra["bw_tensors"] = backward_tensors;
    made.full = bytes >= kFullBytes;
    made.forward_bytes = forward_tensors * bytes;
    made.backward_bytes = backward_tensors * bytes;
    return made;
  }
  // Of `gradient` [width], the sum of term(flat index) over rows; some columns.
  double column_error(const Tensor& gradient, const std::function<double(int64_t)>& term) const {
    const std::vector<int64_t> columns = spread(width, kCheckedColumns);
    std::vector<double> sums(columns.size());
    std::mutex mutex;
    parallel_rows(rows, [&](int64_t begin, int64_t end) {
      std::vector<double> part(columns.size());
      for (int64_t row = begin; row < end; ++row)
        for (size_t i = 0; i < columns.size(); ++i) part[i] += term(row * width + columns[i]);
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < columns.size(); ++i) sums[i] += part[i];
    });
    ErrorMeter error;
    for (size_t i = 0; i < columns.size(); ++i)
      error.add(read_values(context, gradient, columns[i], 1)[0], sums[i]);
    return error.relative();
  }
};

// A chain of x and bias, fused(x, bias) and reference(x, bias): output element i should be
// value(i), the gradient of x gradient(i), where `checked` says that float32 must agree.
template <class Fused, class Reference, class Value, class Gradient, class Checked>
void measure_chain(OpBench& bench, const Chain& c, OpRun run, const Fused& fused,
                   const Reference& reference, const Value& value, const Gradient& gradient,
                   const Checked& checked) {
  Context& context = c.context;
  run.upstream = {c.dy.tensor};
  run.forward = [&] { fused(c.x.tensor, c.bias.tensor); };
  run.reference_forward = [&] { reference(c.x.tensor, c.bias.tensor); };
  run.record = [&] {
    return std::vector{fused(make_leaf(c.x.tensor, c.dx), make_leaf(c.bias.tensor, c.dbias))};
  };
  run.reference_record = [&] {
    return std::vector{reference(make_leaf(c.x.tensor, c.dx), make_leaf(c.bias.tensor, c.dbias))};
  };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    const Tensor y = fused(c.x.tensor, c.bias.tensor);
    for (const int64_t row : spread(c.rows, kCheckedRows)) {
      const auto values = read_values(context, y, row * c.width, c.width);
      const auto gradients = read_values(context, c.dx, row * c.width, c.width);
      for (int64_t k = 0; k < c.width; ++k) {
        const int64_t i = row * c.width + k;
        forward.add(values[static_cast<size_t>(k)], value(i));
        if (checked(i)) backward.add(gradients[static_cast<size_t>(k)], gradient(i));
      }
    }
    run.extra["column_error"] = c.column_error(c.dbias, gradient);
  };
  measure(bench, run);
}

void bias_relu_dropout(OpBench& bench, const Chain& c) {
  Context& context = c.context;
  measure_chain(
      bench, c, c.run("bias_relu_dropout", 2, 3),
      [&](const Tensor& x, const Tensor& bias) {
        return ops::bias_act_dropout(context, x, bias, Activation::relu, kDropout);
      },
      [&](const Tensor& x, const Tensor& bias) {
        const Tensor biased = ops::add(context, x, bias);
        return ops::dropout(context, ops::activation(context, biased, Activation::relu), kDropout);
      },
      [&](int64_t i) { return std::max(0.0, c.biased(i)) * c.factor(i); },
      [&](int64_t i) { return c.biased(i) > 0 ? c.factor(i) * c.dy.at(i) : 0; },
      // In the last digit of float32 the sign of x + bias may differ from that in float64.
      [&](int64_t i) { return std::abs(c.biased(i)) > 1e-6; });
}

// The residual's gradient is the one that arrives, so nothing is computed for it.
void bias_dropout_residual(OpBench& bench, const Chain& c) {
  Context& context = c.context;
  measure_chain(
      bench, c, c.run("bias_dropout_residual", 3, 2),
      [&](const Tensor& x, const Tensor& bias) {
        return ops::bias_dropout_residual(context, x, bias, c.residual.tensor, kDropout);
      },
      [&](const Tensor& x, const Tensor& bias) {
        return ops::add(context, c.residual.tensor,
                        ops::dropout(context, ops::add(context, x, bias), kDropout));
      },
      [&](int64_t i) { return c.residual.at(i) + c.biased(i) * c.factor(i); },
      [&](int64_t i) { return c.factor(i) * c.dy.at(i); }, [](int64_t) { return true; });
}

// Both outputs are used, as in a transformer with the norm before a block.
void bias_dropout_residual_norm(OpBench& bench, const Chain& c) {
  Context& context = c.context;
  OpRun run = c.run("bias_dropout_residual_norm", 4, 5);
  run.upstream = {c.dsum.tensor, c.dy.tensor};
  using Inputs = std::vector<Tensor>;  // x, bias, residual, gamma, beta
  const auto reference = [&](const Inputs& in) {
    const Tensor sum =
        ops::add(context, in[2], ops::dropout(context, ops::add(context, in[0], in[1]), kDropout));
    return std::vector{sum, ops::layer_norm_reference(context, sum, in[3], in[4], kEpsilon)};
  };
  const auto fused = [&](const Inputs& in) {
    const ops::ResidualNorm out = ops::bias_dropout_residual_norm(context, in[0], in[1], in[2],
                                                                  in[3], in[4], kEpsilon, kDropout);
    return std::vector{out.sum, out.normed};
  };
  const Inputs constants{c.x.tensor, c.bias.tensor, c.residual.tensor, c.gamma.tensor,
                         c.beta.tensor};
  const Inputs gradients{c.dx, c.dbias, c.dresidual, c.dgamma, c.dbeta};
  const auto leaves = [&] {
    Inputs made;
    for (size_t i = 0; i < constants.size(); ++i)
      made.push_back(make_leaf(constants[i], gradients[i]));
    return made;
  };
  run.forward = [&] { fused(constants); };
  run.reference_forward = [&] { reference(constants); };
  run.record = [&] { return fused(leaves()); };
  run.reference_record = [&] { return reference(leaves()); };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    const Tensor normed = fused(constants)[1];
    const auto n = static_cast<double>(c.width);
    for (const int64_t row : spread(c.rows, kCheckedRows)) {
      const auto values = read_values(context, normed, row * c.width, c.width);
      const auto dx = read_values(context, c.dx, row * c.width, c.width);
      const auto dresidual = read_values(context, c.dresidual, row * c.width, c.width);
      std::vector<double> xhat(static_cast<size_t>(c.width));
      double mean = 0, squares = 0, mean_g = 0, mean_gx = 0;
      for (int64_t k = 0; k < c.width; ++k) {
        const int64_t i = row * c.width + k;
        xhat[static_cast<size_t>(k)] = c.residual.at(i) + c.biased(i) * c.factor(i);
        mean += xhat[static_cast<size_t>(k)] / n;
      }
      for (double& value : xhat) value -= mean, squares += value * value;
      const double rstd = 1 / std::sqrt(squares / n + kEpsilon);
      for (int64_t k = 0; k < c.width; ++k) {
        const double g = c.dy.at(row * c.width + k) * c.gamma.at(k);
        xhat[static_cast<size_t>(k)] *= rstd;
        mean_g += g / n;
        mean_gx += g * xhat[static_cast<size_t>(k)] / n;
      }
      for (int64_t k = 0; k < c.width; ++k) {
        const int64_t i = row * c.width + k;
        const auto at = static_cast<size_t>(k);
        const double g = c.dy.at(i) * c.gamma.at(k);
        const double expected = c.dsum.at(i) + rstd * (g - mean_g - xhat[at] * mean_gx);
        forward.add(values[at], xhat[at] * c.gamma.at(k) + c.beta.at(k));
        backward.add(dresidual[at], expected);
        backward.add(dx[at], expected * c.factor(i));
      }
    }
    run.extra["column_error"] = c.column_error(c.dbeta, [&](int64_t i) { return c.dy.at(i); });
  };
  measure(bench, run);
}

}  // namespace

void bench_dropout(OpBench& bench) {
  const Shape shapes[] = {{5120, 256}, {8192, 1024}, {32768, 4096}};
  for (const DType dtype : bench.dtypes_or(bench.on_cpu() ? std::vector{DType::f32}
                                                          : std::vector{DType::f32, DType::bf16})) {
    for (const Shape& shape : shapes) {
      if (!bench.takes("dropout", shape, static_cast<double>(element_count(shape)))) continue;
      guarded(bench, {{"sec", "dropout"}, {"dt", dtype_name(dtype)}}, [&] {
        const Chain chain(bench.context, dtype, shape);
        bias_relu_dropout(bench, chain);
        bias_dropout_residual(bench, chain);
        bias_dropout_residual_norm(bench, chain);
      });
    }
  }
}

}  // namespace trafo::bench
