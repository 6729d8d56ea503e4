// Cross-entropy with label smoothing on given logits, and the vocabulary projection with its loss.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/autograd/variable.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/fp8/fp8.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr double kSmoothing = 0.1;
constexpr int64_t kCheckedRows = 8;

// --- cross-entropy ---

// loss_t = lse_t - <q_t, x_t> with q = (1 - e) onehot + e / V, mean over rows; `hit` is onehot.
Tensor reference_loss(Context& context, const Tensor& given, const Tensor& hit) {
  const Tensor x = given.dtype() == DType::bf16 ? ops::cast(context, given, DType::f32) : given;
  const Tensor highest = ops::max(context, x.detach(), -1, true);
  const Tensor total =
      ops::sum(context, ops::exp(context, ops::subtract(context, x, highest)), -1, true);
  const Tensor lse = ops::add(context, ops::log(context, total), highest);
  const Tensor label = ops::sum(context, ops::multiply(context, x, hit), -1, true);
  const Tensor spread_mass = ops::mean(context, x, -1, true);
  const Tensor expected = ops::add(context, ops::scale(context, label, 1 - kSmoothing),
                                   ops::scale(context, spread_mass, kSmoothing));
  return ops::mean(context, ops::subtract(context, lse, expected));
}

void cross_entropy_case(OpBench& bench, DType dtype, const Shape& shape) {
  const auto elements = static_cast<double>(element_count(shape));
  if (!bench.takes("cross_entropy", shape, elements)) return;
  Context& context = bench.context;
  const int64_t rows = shape[0], classes = shape[1];
  const RandomTensor logits = random_tensor(context, shape, dtype, 2);
  const std::vector<int32_t> host_labels = random_labels(rows, classes);
  const Tensor labels = context.from_values<int32_t>(host_labels, {rows});
  const Tensor dlogits = context.empty(shape, dtype);
  Tensor hit;
  if (bench.reference) {
    std::vector<float> values(static_cast<size_t>(rows * classes), 0.0f);
    for (int64_t t = 0; t < rows; ++t)
      values[static_cast<size_t>(t * classes + host_labels[static_cast<size_t>(t)])] = 1;
    hit = context.from_values<float>(values, shape);
  }
  ops::CrossEntropyOptions options;
  options.label_smoothing = kSmoothing;
  options.labels_validated = true;
  options.weight_sum = static_cast<double>(rows);

  OpRun run;
  run.section = "cross_entropy";
  run.dtype = dtype;
  run.shape = shape;
  run.full = true;
  // Logits in; and out as well, as gradients.
  run.forward_bytes = elements * static_cast<double>(dtype_size(dtype));
  run.backward_bytes = 2 * run.forward_bytes;
  run.upstream = {context.scalar(1, {1}, stat_dtype(dtype))};
  run.forward = [&] { ops::cross_entropy(context, logits.tensor, labels, options); };
  run.record = [&] {
    return std::vector{
        ops::cross_entropy(context, make_leaf(logits.tensor, dlogits), labels, options).loss};
  };
  run.reference_forward = [&] { reference_loss(context, logits.tensor, hit); };
  run.reference_record = [&] {
    return std::vector{reference_loss(context, make_leaf(logits.tensor, dlogits), hit)};
  };
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    ops::CrossEntropyOptions each = options;
    each.reduction = Reduction::none;
    const Tensor losses = ops::cross_entropy(context, logits.tensor, labels, each).loss;
    for (const int64_t row : spread(rows, kCheckedRows)) {
      const int64_t label = host_labels[static_cast<size_t>(row)];
      double total = 0, sum = 0;
      for (int64_t v = 0; v < classes; ++v) {
        total += std::exp(logits.at(row * classes + v));
        sum += logits.at(row * classes + v);
      }
      const double lse = std::log(total), v_count = static_cast<double>(classes);
      forward.add(
          read_values(context, losses, row, 1)[0],
          lse - (1 - kSmoothing) * logits.at(row * classes + label) - kSmoothing * sum / v_count);
      const auto gradients = read_values(context, dlogits, row * classes, classes);
      for (int64_t v = 0; v < classes; ++v) {
        const double target = (v == label ? 1 - kSmoothing : 0) + kSmoothing / v_count;
        backward.add(
            gradients[static_cast<size_t>(v)],
            (std::exp(logits.at(row * classes + v) - lse) - target) / static_cast<double>(rows));
      }
    }
  };
  measure(bench, run);
}

// --- vocabulary projection with loss ---

struct Projection {
  Context& context;
  DType dtype;
  int64_t rows, width, classes;
  RandomTensor x, weight;
  std::vector<int32_t> host_labels;
  Tensor labels;
  ops::LinearCrossEntropyOptions options;
  bool fp8 = false;  // the weight becomes FP8 in every step

  Projection(Context& c, DType type, const Shape& shape)
      : context(c),
        dtype(type),
        rows(shape[0]),
        width(shape[1]),
        classes(shape[2]),
        x(random_tensor(c, {rows, width}, type)),
        weight(random_tensor(c, {classes, width}, type, 0.02)),
        host_labels(random_labels(rows, classes)),
        labels(c.from_values<int32_t>(host_labels, {rows})) {
    options.loss.labels_validated = true;
    options.loss.weight_sum = static_cast<double>(rows);
  }

  // Loss and both gradients. x is an activation: its gradient has its own dtype.
  struct Result {
    Tensor loss, dx, dweight;
  };
  Result step(bool fused) const {
    const TapeScope tape(context);
    Tensor in = x.tensor.detach(), table = weight.tensor.detach();
    set_requires_grad(in, true);
    set_requires_grad(table, true);
    in.variable()->grad_dtype = dtype;
    ops::LinearCrossEntropyOptions with = options;
    std::optional<ops::Fp8Matrix> narrow;
    if (fp8)
      with.fp8_weight = &narrow.emplace(
          ops::to_fp8(context, "flce", weight.tensor, Fp8Format::e4m3, ops::Fp8Copies::both));
    const Tensor loss =
        fused ? ops::linear_cross_entropy(context, in, table, {}, labels, with).loss
              : ops::cross_entropy(context, ops::linear(context, in, table), labels, options.loss)
                    .loss;
    context.backward(loss);
    return {loss, grad_of(in), grad_of(table)};
  }
  double peak_mib(bool fused) const {
    context.backend().synchronize();
    context.backend().reset_peak_memory();
    const int64_t before = context.backend().memory_stats().allocated_bytes;
    step(fused);
    return static_cast<double>(context.backend().memory_stats().peak_bytes - before) / 1048576.0;
  }
  // Of dx in some rows, against float64.
  double gradient_error(const Tensor& dx) const;
};

double Projection::gradient_error(const Tensor& dx) const {
  const std::vector<int64_t> checked = spread(rows, 2);
  std::vector<std::vector<double>> logits(checked.size());
  for (auto& row : logits) row.resize(static_cast<size_t>(classes));
  parallel_rows(classes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v)
      for (int64_t k = 0; k < width; ++k) {
        const double w = weight.at(v * width + k);
        for (size_t r = 0; r < checked.size(); ++r)
          logits[r][static_cast<size_t>(v)] += w * x.at(checked[r] * width + k);
      }
  });
  std::vector<std::vector<double>> expected(checked.size());
  for (size_t r = 0; r < checked.size(); ++r) {
    double total = 0;
    for (double& value : logits[r]) total += value = std::exp(value);
    for (double& value : logits[r]) value /= total * static_cast<double>(rows);
    logits[r][static_cast<size_t>(host_labels[static_cast<size_t>(checked[r])])] -=
        1 / static_cast<double>(rows);
    expected[r].resize(static_cast<size_t>(width));
  }
  std::mutex mutex;
  parallel_rows(classes, [&](int64_t begin, int64_t end) {
    auto part = expected;
    for (auto& row : part) std::fill(row.begin(), row.end(), 0.0);
    for (int64_t v = begin; v < end; ++v)
      for (int64_t k = 0; k < width; ++k) {
        const double w = weight.at(v * width + k);
        for (size_t r = 0; r < checked.size(); ++r)
          part[r][static_cast<size_t>(k)] += w * logits[r][static_cast<size_t>(v)];
      }
    const std::lock_guard lock(mutex);
    for (size_t r = 0; r < checked.size(); ++r)
      for (size_t k = 0; k < part[r].size(); ++k) expected[r][k] += part[r][k];
  });
  ErrorMeter error;
  for (size_t r = 0; r < checked.size(); ++r) {
    const auto values = read_values(context, dx, checked[r] * width, width);
    for (size_t k = 0; k < values.size(); ++k) error.add(values[k], expected[r][k]);
  }
  return error.relative();
}

bool has_fp8(const Context& context, DType dtype) {
  if (context.device().kind == DeviceKind::cpu || dtype != DType::bf16) return false;
  try {
    ops::require_fp8_device(context, "flce");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void projection_case(OpBench& bench, DType dtype, const Shape& shape) {
  const double operations = 6.0 * static_cast<double>(element_count(shape));
  if (!bench.takes("flce", shape, static_cast<double>(shape[2] * shape[1]), operations)) return;
  Json row{{"sec", "flce"}, {"dt", dtype_name(dtype)}};
  row["shape"] = std::vector<int64_t>(shape.begin(), shape.end());
  row["device"] = device_name(bench.context.device());
  if (bench.on_cpu()) row["threads"] = bench.context.backend().threads();
  guarded(bench, row, [&] {
    Projection projection(bench.context, dtype, shape);
    projection.step(true);
    row["peak_MiB"] = projection.peak_mib(true);
    row["ms"] = time_calls(bench.context, bench.sampling, [&] { projection.step(true); }) / 1e3;
    row["TF"] = operations / row["ms"].get<double>() / 1e9;
    row["grad_error"] = projection.gradient_error(projection.step(true).dx);
    if (bench.reference) {  // linear, then cross_entropy on all logits
      projection.step(false);
      row["reference_peak_MiB"] = projection.peak_mib(false);
      row["reference_ms"] =
          time_calls(bench.context, bench.sampling, [&] { projection.step(false); }) / 1e3;
      row["ratio"] = row["reference_ms"].get<double>() / row["ms"].get<double>();
      bench.report.add_ratio(std::string("flce ") + dtype_name(dtype), true,
                             row["ratio"].get<double>());
    }
    std::fprintf(stderr, "flce %-8s %-22s %9.3f ms %9.1f MiB %7.1f TF, error %.1e",
                 dtype_name(dtype), shape.str().c_str(), row["ms"].get<double>(),
                 row["peak_MiB"].get<double>(), row["TF"].get<double>(),
                 row["grad_error"].get<double>());
    if (bench.reference)
      std::fprintf(stderr, "; all logits: %9.3f ms %9.1f MiB", row["reference_ms"].get<double>(),
                   row["reference_peak_MiB"].get<double>());
    if (has_fp8(bench.context, dtype)) {
      projection.fp8 = true;
      projection.step(true);
      row["fp8_peak_MiB"] = projection.peak_mib(true);
      row["fp8_ms"] =
          time_calls(bench.context, bench.sampling, [&] { projection.step(true); }) / 1e3;
      row["fp8_grad_error"] = projection.gradient_error(projection.step(true).dx);
      std::fprintf(stderr, "; FP8: %9.3f ms %9.1f MiB, error %.1e", row["fp8_ms"].get<double>(),
                   row["fp8_peak_MiB"].get<double>(), row["fp8_grad_error"].get<double>());
    }
    std::fprintf(stderr, "\n");
    bench.report.add(row);
  });
}

}  // namespace

void bench_cross_entropy(OpBench& bench) {
  std::vector<Shape> shapes{{8192, 10000}, {8192, 50304}};
  if (bench.quick) shapes = {{256, 4000}};
  for (const DType dtype : bench.dtypes_or(bench.on_cpu() ? std::vector{DType::f32}
                                                          : std::vector{DType::f32, DType::bf16}))
    for (const Shape& shape : shapes)
      guarded(bench, {{"sec", "cross_entropy"}, {"dt", dtype_name(dtype)}},
              [&] { cross_entropy_case(bench, dtype, shape); });
}

void bench_linear_cross_entropy(OpBench& bench) {
  std::vector<Shape> shapes{{8192, 768, 50304}, {8192, 2048, 128256}, {4096, 512, 32000}};
  if (bench.quick) shapes = {{256, 64, 4000}};
  for (const DType dtype : bench.dtypes_or({bench.on_cpu() ? DType::f32 : DType::bf16}))
    for (const Shape& shape : shapes) projection_case(bench, dtype, shape);
}

}  // namespace trafo::bench
