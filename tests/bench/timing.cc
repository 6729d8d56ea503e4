#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/bench/bench.h"

namespace trafo::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Microseconds of `body`, with nothing in flight before and after.
double elapsed(Context& context, const std::function<void()>& body) {
  context.backend().synchronize();
  const auto begin = Clock::now();
  body();
  context.backend().synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int calls_for(const Sampling& sampling, double call_us) {
  const double wanted = sampling.sample_us / std::max(call_us, 1e-3);
  return static_cast<int>(std::clamp<double>(wanted, 1, sampling.max_calls));
}

// Forwards on the tape of the context. A root is kept as its place in the graph alone: an output
// that backward does not need gives its memory back.
class Graphs {
 public:
  Graphs(Context& context, const std::function<std::vector<Tensor>()>& record,
         const std::vector<Tensor>& upstream)
      : context_(context),
        record_(record),
        upstream_(upstream),
        place_(context.zeros({1}, DType::f32)) {}
  ~Graphs() { context_.tape().clear(); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void record(int count) {
    roots_.clear();
    gradients_.clear();
    for (int i = 0; i < count; ++i) {
      const std::vector<Tensor> roots = record_();
      for (size_t r = 0; r < roots.size(); ++r) {
        Tensor place = place_.detach();
        place.set_variable(roots[r].variable());
        roots_.push_back(place);
        gradients_.push_back(upstream_[r]);
      }
    }
  }
  double walk() {
    return elapsed(context_, [&] { context_.tape().backward(context_, roots_, gradients_); });
  }

 private:
  Context& context_;
  const std::function<std::vector<Tensor>()>& record_;
  const std::vector<Tensor>& upstream_;
  Tensor place_;
  std::vector<Tensor> roots_, gradients_;
};

}  // namespace

Sampling sampling_for(const Context& context, bool quick) {
  Sampling sampling;
  sampling.graph_bytes = int64_t{context.device().kind == DeviceKind::cpu ? 1 : 16} << 30;
  if (quick) {
    sampling.samples = 3;
    sampling.max_calls = 5;
    sampling.sample_us = 5e3;
  }
  return sampling;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

double time_calls(Context& context, const Sampling& sampling, const std::function<void()>& body) {
  body();  // allocates, loads and tunes
  const int calls = calls_for(sampling, elapsed(context, body));
  const auto sample = [&] {
    return elapsed(context,
                   [&] {
                     for (int i = 0; i < calls; ++i) body();
                   }) /
           calls;
  };
  if (calls > 1) sample();
  std::vector<double> times;
  for (int i = 0; i < sampling.samples; ++i) times.push_back(sample());
  return median(std::move(times));
}

double time_forward(Context& context, const Sampling& sampling, const std::function<void()>& body) {
  const NoGrad no_grad(context);
  return time_calls(context, sampling, body);
}

BackwardTiming time_backward(Context& context, const Sampling& sampling,
                             const std::function<std::vector<Tensor>()>& record,
                             const std::vector<Tensor>& upstream) {
  Graphs graphs(context, record, upstream);
  graphs.record(1);
  graphs.walk();
  const int64_t before = context.backend().memory_stats().allocated_bytes;
  graphs.record(1);
  const int64_t bytes = context.backend().memory_stats().allocated_bytes - before;
  BackwardTiming timing;
  timing.graphs = calls_for(sampling, graphs.walk());
  if (bytes > 0)
    timing.graphs =
        static_cast<int>(std::clamp<int64_t>(sampling.graph_bytes / bytes, 1, timing.graphs));
  std::vector<double> times;
  for (int i = 0; i <= sampling.samples; ++i) {
    graphs.record(timing.graphs);
    const double us = graphs.walk() / timing.graphs;
    if (i > 0) times.push_back(us);
  }
  timing.us = median(std::move(times));
  return timing;
}

Tensor make_leaf(const Tensor& value, const Tensor& gradient) {
  Tensor leaf = value.detach();
  set_requires_grad(leaf, true);
  bind_grad(leaf, gradient);
  return leaf;
}

}  // namespace trafo::bench
