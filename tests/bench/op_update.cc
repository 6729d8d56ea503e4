// The update of the parameters: AdamW over a flat workspace as large as GPT-2 124M's, with moments
// in float32 and in 8 bits. The "reference" form of the latter is the former: fw_ratio says how
// many times as fast 8 bits are.
#include <cmath>

#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clipped_update.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kParameters = 124475904;  // the vocabulary padded to 50304
constexpr double kRate = 1e-3;

AdamWOptions options_of(OptimizerStates states) {
  AdamWOptions options;
  options.weight_decay = 0.01;
  options.states = states;
  return options;
}

Schedule constant_rate() {
  ScheduleOptions options;
  options.kind = ScheduleKind::constant;
  options.learning_rate = kRate;
  return Schedule(options);
}

// Parameters after a few updates with one gradient, against the formulas in float64: the error is
// relative to the change. Gradients far below the others of their block count as more than they are
// in 8 bits, and change less; they are left out.
void check_change(Context& context, OptimizerStates states, ErrorMeter& error) {
  constexpr int64_t kCount = 1 << 16;
  constexpr int kUpdates = 10;
  const RandomTensor p = random_tensor(context, {kCount}, DType::f32);
  const RandomTensor g = random_tensor(context, {kCount}, DType::f32);
  const AdamWOptions options = options_of(states);
  AdamW optimizer(context, {p.tensor, g.tensor}, options);
  for (int i = 0; i < kUpdates; ++i) optimizer.step(kRate);
  const std::vector<double> values = read_values(context, p.tensor, 0, kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    // The averages of a gradient that stays are the gradient.
    const double start = p.at(i), gradient = g.at(i);
    if (std::abs(gradient) < 0.01) continue;
    const double step = kRate * gradient / (std::abs(gradient) + options.epsilon);
    double value = start;
    for (int u = 0; u < kUpdates; ++u) value += -step - kRate * options.weight_decay * value;
    error.add(values[static_cast<size_t>(i)] - start, value - start);
  }
}

void update_case(OpBench& bench, DType dtype, bool clipped) {
  Context& context = bench.context;
  const int64_t count = bench.quick ? 1 << 20 : kParameters;
  if (!bench.takes("adamw", {count}, static_cast<double>(count))) return;
  const Tensor parameters = random_tensor(context, {count}, DType::f32).tensor;
  const Tensor gradients = random_tensor(context, {count}, DType::f32).tensor;
  const Tensor rounded = dtype == DType::bf16 ? context.zeros({count}, dtype) : Tensor{};
  const Tensor loss = context.one(DType::f32);
  struct Updater {
    AdamW optimizer;
    ClippedUpdate update;
    Updater(Context& where, const Tensor& p, const Tensor& g, const Tensor& copy,
            OptimizerStates states)
        : optimizer(where, {p, g, copy}, options_of(states)),
          update(where, optimizer, constant_rate(), 1) {
      update.prepare(1, 1);
    }
  };
  Updater wide(context, parameters, gradients, rounded, OptimizerStates::float32);
  Updater narrow(context, parameters, gradients, rounded, OptimizerStates::eight_bit);
  const auto body = [&](Updater& updater) {
    return [&context, &updater, loss, clipped] {
      if (!clipped) {
        updater.optimizer.step(kRate);
        return;
      }
      updater.update.run(loss, loss);
    };
  };
  for (Updater* updater : {&wide, &narrow}) {
    const OptimizerStates states =
        updater == &wide ? OptimizerStates::float32 : OptimizerStates::eight_bit;
    OpRun run;
    run.section = "adamw";
    run.op = std::string(clipped ? "norm, clip, update " : "update ") + enum_name(states);
    run.dtype = dtype;
    run.shape = {count};
    run.full = !bench.quick;
    // One table of rates lasts for what is measured.
    static_assert(LearningRates::kCount > 1000);
    wide.update.set_updates(0);
    narrow.update.set_updates(0);
    run.forward = body(*updater);
    if (updater == &narrow) run.reference_forward = body(wide);
    // The parameter and the moments are read and written, the gradient is read, for its norm again.
    run.forward_bytes = static_cast<double>(count) * (8 + (clipped ? 8 : 4)) +
                        2 * static_cast<double>(updater->optimizer.state_bytes()) +
                        (rounded.defined() ? static_cast<double>(rounded.bytes()) : 0);
    run.check = [&, states](ErrorMeter& forward, ErrorMeter&) {
      check_change(context, states, forward);
    };
    measure(bench, run);
  }
}

}  // namespace

void bench_adamw(OpBench& bench) {
  for (const DType dtype : bench.dtypes_or(bench.on_cpu() ? std::vector{DType::f32}
                                                          : std::vector{DType::f32, DType::bf16})) {
    if (dtype != DType::f32 && dtype != DType::bf16) continue;
    update_case(bench, dtype, false);
    update_case(bench, dtype, true);
  }
}

}  // namespace trafo::bench
