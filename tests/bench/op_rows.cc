// Softmax and layer norm.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/ops/binary/binary.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/softmax/softmax.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kCheckedRows = 16;
constexpr int64_t kCheckedColumns = 8;
constexpr double kFullBytes = 16 << 20;  // of a tensor: every multiprocessor has work

double bytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(element_count(shape)) * static_cast<double>(dtype_size(dtype));
}

// A case of either op reads one tensor and writes one; backward reads two.
template <class Case>
OpRun run_of(const Case& c) {
  OpRun run;
  run.section = c.section;
  run.op = c.op;
  run.dtype = c.dtype;
  run.shape = c.shape;
  run.full = bytes_of(c.shape, c.dtype) >= kFullBytes;
  run.forward_bytes = 2 * bytes_of(c.shape, c.dtype);
  run.backward_bytes = 3 * bytes_of(c.shape, c.dtype);
  return run;
}

// --- softmax ---

struct SoftmaxCase {
  std::string section, op;
  DType dtype = DType::f32;
  Shape shape;              // [batch, heads, queries, keys]
  int64_t hidden = 0;       // last keys of a masked sentence that nobody may look at
  int64_t masked_each = 1;  // every how many sentences one is masked
  bool forward = true, backward = true;

  int64_t hidden_of(int64_t sentence) const { return sentence % masked_each == 0 ? hidden : 0; }
};

// Rows of the softmax in float64.
std::vector<double> softmax_row(const SoftmaxCase& c, const RandomTensor& x, int64_t row) {
  const int64_t keys = c.shape[3], visible = keys - c.hidden_of(row / (c.shape[1] * c.shape[2]));
  std::vector<double> y(static_cast<size_t>(keys), 0.0);
  double highest = -INFINITY, total = 0;
  for (int64_t k = 0; k < visible; ++k) highest = std::max(highest, x.at(row * keys + k));
  for (int64_t k = 0; k < visible; ++k)
    total += y[static_cast<size_t>(k)] = std::exp(x.at(row * keys + k) - highest);
  for (double& value : y) value /= total;
  return y;
}

void softmax_case(OpBench& bench, const SoftmaxCase& c) {
  Context& context = bench.context;
  const auto elements = static_cast<double>(element_count(c.shape));
  if (!bench.takes(c.section.c_str(), c.shape, elements)) return;
  const int64_t batch = c.shape[0], keys = c.shape[3], rows = element_count(c.shape) / keys;
  const RandomTensor x = random_tensor(context, c.shape, c.dtype);
  const RandomTensor dy = random_tensor(context, c.shape, c.dtype);
  const Tensor dx = context.empty(c.shape, c.dtype);
  ops::SoftmaxOptions options;
  Tensor penalty;  // the same mask for the reference form: added to the scores
  if (c.hidden > 0) {
    std::vector<int32_t> mask(static_cast<size_t>(batch * keys), 0);
    for (int64_t b = 0; b < batch; ++b)
      std::fill_n(mask.begin() + (b + 1) * keys - c.hidden_of(b), c.hidden_of(b), 1);
    options.padding_mask = context.from_values<int32_t>(mask, {batch, keys});
    std::vector<double> added(mask.size());
    std::transform(mask.begin(), mask.end(), added.begin(), [](int32_t m) { return m * -1e9; });
    penalty = context.from_doubles(added, {batch, 1, 1, keys}, c.dtype);
  }

  OpRun run = run_of(c);
  run.upstream = {dy.tensor};
  if (c.forward) {
    run.forward = [&] { ops::softmax(context, x.tensor, options); };
    run.reference_forward = [&] {
      const Tensor scores = penalty.defined() ? ops::add(context, x.tensor, penalty) : x.tensor;
      ops::softmax_reference(context, scores, {});
    };
  }
  if (c.backward) {
    run.record = [&] {
      return std::vector<Tensor>{ops::softmax(context, make_leaf(x.tensor, dx), options)};
    };
    run.reference_record = [&] {  // a mask that is added costs its backward nothing
      return std::vector<Tensor>{ops::softmax_reference(context, make_leaf(x.tensor, dx), {})};
    };
  }
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    const Tensor y = ops::softmax(context, x.tensor, options);
    for (const int64_t row : spread(rows, kCheckedRows)) {
      const std::vector<double> expected = softmax_row(c, x, row);
      const auto values = read_values(context, y, row * keys, keys);
      double dot = 0;
      for (int64_t k = 0; k < keys; ++k) {
        forward.add(values[static_cast<size_t>(k)], expected[static_cast<size_t>(k)]);
        dot += expected[static_cast<size_t>(k)] * dy.at(row * keys + k);
      }
      if (!c.backward) continue;
      const auto gradients = read_values(context, dx, row * keys, keys);
      for (int64_t k = 0; k < keys; ++k)
        backward.add(gradients[static_cast<size_t>(k)],
                     expected[static_cast<size_t>(k)] * (dy.at(row * keys + k) - dot));
    }
  };
  measure(bench, run);
}

// --- layer norm ---

struct RowStatistics {
  double mean = 0, rstd = 0;
};

RowStatistics statistics(const RandomTensor& x, int64_t row, int64_t width, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t c = 0; c < width; ++c) sum += x.at(row * width + c);
  const double mean = sum / static_cast<double>(width);
  for (int64_t c = 0; c < width; ++c) {
    const double centred = x.at(row * width + c) - mean;
    squares += centred * centred;
  }
  return {mean, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
}

struct NormCase {
  std::string section, op;
  DType dtype = DType::f32;
  Shape shape;  // [rows, width]
  double epsilon = 1e-5;
};

struct NormTensors {
  RandomTensor x, gamma, beta, dy;
  Tensor dx, dgamma, dbeta;
};

void check_norm_rows(Context& context, const NormCase& c, const NormTensors& t, const Tensor& y,
                     ErrorMeter& forward, ErrorMeter& backward) {
  const int64_t rows = c.shape[0], width = c.shape[1];
  for (const int64_t row : spread(rows, kCheckedRows)) {
    const RowStatistics s = statistics(t.x, row, width, c.epsilon);
    const auto values = read_values(context, y, row * width, width);
    const auto gradients = read_values(context, t.dx, row * width, width);
    double mean_g = 0, mean_gx = 0;
    for (int64_t k = 0; k < width; ++k) {
      const double xhat = (t.x.at(row * width + k) - s.mean) * s.rstd;
      const double g = t.dy.at(row * width + k) * t.gamma.at(k);
      mean_g += g / static_cast<double>(width);
      mean_gx += g * xhat / static_cast<double>(width);
    }
    for (int64_t k = 0; k < width; ++k) {
      const double xhat = (t.x.at(row * width + k) - s.mean) * s.rstd;
      const double g = t.dy.at(row * width + k) * t.gamma.at(k);
      forward.add(values[static_cast<size_t>(k)], xhat * t.gamma.at(k) + t.beta.at(k));
      backward.add(gradients[static_cast<size_t>(k)], s.rstd * (g - mean_g - xhat * mean_gx));
    }
  }
}

// dgamma and dbeta of some columns, over all rows.
double norm_column_error(Context& context, const NormCase& c, const NormTensors& t) {
  const int64_t rows = c.shape[0], width = c.shape[1];
  const std::vector<int64_t> columns = spread(width, kCheckedColumns);
  std::vector<double> dgamma(columns.size()), dbeta(columns.size());
  std::mutex mutex;
  parallel_rows(rows, [&](int64_t begin, int64_t end) {
    std::vector<double> gamma_sum(columns.size()), beta_sum(columns.size());
    for (int64_t row = begin; row < end; ++row) {
      const RowStatistics s = statistics(t.x, row, width, c.epsilon);
      for (size_t i = 0; i < columns.size(); ++i) {
        const int64_t at = row * width + columns[i];
        gamma_sum[i] += t.dy.at(at) * (t.x.at(at) - s.mean) * s.rstd;
        beta_sum[i] += t.dy.at(at);
      }
    }
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < columns.size(); ++i) {
      dgamma[i] += gamma_sum[i];
      dbeta[i] += beta_sum[i];
    }
  });
  ErrorMeter gamma_error, beta_error;
  for (size_t i = 0; i < columns.size(); ++i) {
    gamma_error.add(read_values(context, t.dgamma, columns[i], 1)[0], dgamma[i]);
    beta_error.add(read_values(context, t.dbeta, columns[i], 1)[0], dbeta[i]);
  }
  return std::max(gamma_error.relative(), beta_error.relative());
}

void norm_case(OpBench& bench, const NormCase& c) {
  Context& context = bench.context;
  if (!bench.takes(c.section.c_str(), c.shape, static_cast<double>(element_count(c.shape)))) return;
  const Shape width{c.shape[1]};
  const NormTensors t{
      random_tensor(context, c.shape, c.dtype), random_tensor(context, width, c.dtype),
      random_tensor(context, width, c.dtype),   random_tensor(context, c.shape, c.dtype),
      context.empty(c.shape, c.dtype),          context.empty(width, stat_dtype(c.dtype)),
      context.empty(width, stat_dtype(c.dtype))};
  const auto recorded = [&](bool fused) {
    const Tensor x = make_leaf(t.x.tensor, t.dx), gamma = make_leaf(t.gamma.tensor, t.dgamma),
                 beta = make_leaf(t.beta.tensor, t.dbeta);
    return std::vector<Tensor>{fused
                                   ? ops::layer_norm(context, x, gamma, beta, c.epsilon)
                                   : ops::layer_norm_reference(context, x, gamma, beta, c.epsilon)};
  };
  OpRun run = run_of(c);
  run.upstream = {t.dy.tensor};
  run.forward = [&] {
    ops::layer_norm(context, t.x.tensor, t.gamma.tensor, t.beta.tensor, c.epsilon);
  };
  run.record = [&] { return recorded(true); };
  run.reference_forward = [&] {
    ops::layer_norm_reference(context, t.x.tensor, t.gamma.tensor, t.beta.tensor, c.epsilon);
  };
  run.reference_record = [&] { return recorded(false); };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    const Tensor y = ops::layer_norm(context, t.x.tensor, t.gamma.tensor, t.beta.tensor, c.epsilon);
    check_norm_rows(context, c, t, y, forward, backward);
    run.extra["column_error"] = norm_column_error(context, c, t);
  };
  measure(bench, run);
}

}  // namespace

void bench_softmax(OpBench& bench) {
  const Shape shapes[] = {{128, 8, 40, 40},
                          {64, 8, 128, 128},
                          {32, 16, 512, 512},
                          {8, 16, 1024, 1024},
                          {4, 16, 2048, 2048}};
  for (const DType dtype : bench.dtypes_or(bench.on_cpu() ? std::vector{DType::f32}
                                                          : std::vector{DType::f32, DType::bf16}))
    for (const Shape& shape : shapes)
      softmax_case(bench, {"softmax", "", dtype, shape, shape[3] / 8});
}

void bench_layer_norm(OpBench& bench) {
  const Shape shapes[] = {{5120, 256},  {4096, 512},   {8192, 768},
                          {8192, 1024}, {16384, 1600}, {32768, 4096}};
  for (const DType dtype : bench.dtypes_or(bench.on_cpu() ? std::vector{DType::f32}
                                                          : std::vector{DType::f32, DType::bf16}))
    for (const Shape& shape : shapes) norm_case(bench, {"layernorm", "", dtype, shape});
}

// The cases that the tests of the assignment draw: forward with a padding mask (the last quarter of
// the keys of every other sentence is hidden), backward without one.
void bench_seed(OpBench& bench) {
  const Shape forward_shapes[] = {
      {1, 8, 115, 282}, {2, 8, 229, 105}, {10, 8, 90, 55}, {1, 8, 430, 460}, {1, 8, 285, 164}};
  const Shape backward_shapes[] = {
      {1, 8, 115, 282}, {2, 8, 251, 143}, {9, 8, 105, 12}, {1, 8, 433, 31}, {4, 8, 96, 120}};
  const Shape norm_shapes[] = {{115, 32}, {502, 32}, {945, 32}, {433, 32}, {384, 32}};
  for (const DType dtype : bench.dtypes_or({DType::f32})) {
    for (const Shape& shape : forward_shapes)
      softmax_case(bench, {"seed", "softmax", dtype, shape, shape[3] / 4, 2, true, false});
    for (const Shape& shape : backward_shapes)
      softmax_case(bench, {"seed", "softmax", dtype, shape, 0, 1, false, true});
    for (const Shape& shape : norm_shapes)
      norm_case(bench, {"seed", "layernorm", dtype, shape, 1e-8});
  }
}

}  // namespace trafo::bench
