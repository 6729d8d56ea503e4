// The kernel experiment this project grew from: softmax and layer norm, forward and backward, at
// the shapes that the assignment's tests draw; the fused kernels against the same op composed of
// elementwise and reduction ops.
//
//   bench_seed [threads] [runs]     default: 1 thread, 15 runs; runs >= 5
//
// Times are medians in microseconds; the error is the largest difference between both forms.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/philox.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/softmax/softmax.h"

namespace trafo {
namespace {

using Clock = std::chrono::steady_clock;
using Forward = std::function<Tensor(Context&, const std::vector<Tensor>&)>;

struct Timing {
  double forward_us = 0, backward_us = 0;  // medians
  Tensor output;
  std::vector<Tensor> grads;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double microseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

Tensor uniform(Context& context, const Shape& shape, uint64_t seed) {
  PhiloxStream random(seed, 1);
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& v : values) v = static_cast<float>(random.uniform(-1, 1));
  return context.from_values<float>(values, shape);
}

// One warm-up, then `runs` timed passes.
Timing time_op(Context& context, bool fused, const Forward& forward, std::vector<Tensor> inputs,
               const Tensor& upstream, int runs) {
  context.set_fused_kernels(fused);
  for (Tensor& input : inputs)
    if (is_floating(input.dtype())) set_requires_grad(input, true);
  Timing timing;
  std::vector<double> forward_us, backward_us;
  for (int run = 0; run <= runs; ++run) {
    for (const Tensor& input : inputs) zero_grad(input);
    const auto begin = Clock::now();
    Tensor y = forward(context, inputs);
    const auto middle = Clock::now();
    context.backward(y, upstream);
    const auto end = Clock::now();
    if (run > 0) {
      forward_us.push_back(microseconds(begin, middle));
      backward_us.push_back(microseconds(middle, end));
    }
    timing.output = y.detach();
  }
  timing.forward_us = median(forward_us);
  timing.backward_us = median(backward_us);
  for (const Tensor& input : inputs)
    if (requires_grad(input)) timing.grads.push_back(grad_of(input));
  return timing;
}

double max_error(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double error = std::abs(static_cast<double>(a.data<float>()[i]) - b.data<float>()[i]);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

struct Summary {
  double log_ratio = 0;
  int rows = 0;
};

void print_row(const char* op, const Shape& shape, double composed_us, double fused_us,
               double error, Summary& summary) {
  const double ratio = composed_us / fused_us;
  std::printf("%-14s %-20s %12.1f %12.1f %8.2fx   %.1e\n", op, shape.str().c_str(), composed_us,
              fused_us, ratio, error);
  summary.log_ratio += std::log(ratio);
  ++summary.rows;
}

void print_mean(const char* op, const Summary& summary) {
  std::printf("%-14s %-20s %12s %12s %8.2fx\n", op, "geometric mean", "", "",
              std::exp(summary.log_ratio / summary.rows));
}

// Forward with a padding mask (the last quarter of the keys of every other sentence is hidden),
// backward without one, as the assignment does.
void bench_softmax(Context& context, int runs) {
  const Shape forward_shapes[] = {
      {1, 8, 115, 282}, {2, 8, 229, 105}, {10, 8, 90, 55}, {1, 8, 430, 460}, {1, 8, 285, 164}};
  const Shape backward_shapes[] = {
      {1, 8, 115, 282}, {2, 8, 251, 143}, {9, 8, 105, 12}, {1, 8, 433, 31}, {4, 8, 96, 120}};
  for (const bool masked : {true, false}) {
    Summary summary;
    const char* name = masked ? "softmax fw" : "softmax bw";
    for (const Shape& shape : masked ? forward_shapes : backward_shapes) {
      ops::SoftmaxOptions options;
      if (masked) {
        const int64_t batch = shape[0], keys = shape[3];
        std::vector<int32_t> hidden(static_cast<size_t>(batch * keys), 0);
        for (int64_t b = 0; b < batch; b += 2)
          std::fill_n(hidden.begin() + b * keys + keys - keys / 4, keys / 4, 1);
        options.padding_mask = context.from_values<int32_t>(hidden, {batch, keys});
      }
      const Forward forward = [&](Context& c, const std::vector<Tensor>& in) {
        return ops::softmax(c, in[0], options);
      };
      const Tensor upstream = uniform(context, shape, 2);
      const Timing composed =
          time_op(context, false, forward, {uniform(context, shape, 1)}, upstream, runs);
      const Timing fused =
          time_op(context, true, forward, {uniform(context, shape, 1)}, upstream, runs);
      if (masked)
        print_row(name, shape, composed.forward_us, fused.forward_us,
                  max_error(composed.output, fused.output), summary);
      else
        print_row(name, shape, composed.backward_us, fused.backward_us,
                  max_error(composed.grads[0], fused.grads[0]), summary);
    }
    print_mean(name, summary);
  }
}

void bench_layer_norm(Context& context, int runs) {
  const Shape shapes[] = {{115, 32}, {502, 32}, {945, 32}, {433, 32}, {384, 32}, {4096, 512}};
  const Forward forward = [](Context& c, const std::vector<Tensor>& in) {
    return ops::layer_norm(c, in[0], in[1], in[2], 1e-8);
  };
  for (const bool backward : {false, true}) {
    Summary summary;
    const char* name = backward ? "layer norm bw" : "layer norm fw";
    for (const Shape& shape : shapes) {
      const Shape width{shape[1]};
      const auto inputs = [&] {
        return std::vector<Tensor>{uniform(context, shape, 1), uniform(context, width, 3),
                                   uniform(context, width, 4)};
      };
      const Tensor upstream = uniform(context, shape, 2);
      const Timing composed = time_op(context, false, forward, inputs(), upstream, runs);
      const Timing fused = time_op(context, true, forward, inputs(), upstream, runs);
      double error = max_error(composed.output, fused.output);
      if (backward) {
        error = 0;
        for (size_t i = 0; i < 3; ++i)
          error = std::max(error, max_error(composed.grads[i], fused.grads[i]));
      }
      Summary extra;  // the last shape is a training size, not one of the assignment's
      print_row(name, shape, backward ? composed.backward_us : composed.forward_us,
                backward ? fused.backward_us : fused.forward_us, error,
                shape[0] == 4096 ? extra : summary);
    }
    print_mean(name, summary);
  }
}

}  // namespace
}  // namespace trafo

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 15;
  if (threads < 1 || runs < 5) {
    std::fprintf(stderr, "usage: bench_seed [threads >= 1] [runs >= 5]\n");
    return 2;
  }
  try {
    const auto context = trafo::make_context({trafo::DeviceKind::cpu, 0}, threads);
    std::printf("float32, %d thread(s), median of %d runs, microseconds\n", threads, runs);
    std::printf("%-14s %-20s %12s %12s %9s   %s\n", "op", "shape", "composed", "fused", "speed-up",
                "max error");
    trafo::bench_softmax(*context, runs);
    trafo::bench_layer_norm(*context, runs);
  } catch (const trafo::Error& error) {
    std::fprintf(stderr, "bench_seed: %s\n", error.what());
    return 1;
  }
  return 0;
}
