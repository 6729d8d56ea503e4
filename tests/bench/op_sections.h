// The sections of bench_ops, and what one measurement of an op is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/bench/bench.h"

namespace trafo::bench {

struct OpBench {
  Context& context;
  Report& report;
  Sampling sampling;
  std::vector<DType> dtypes;  // empty: what the section is about on this device
  bool quick = false;         // small shapes, few samples: does it run at all
  bool reference = true;      // measure the reference form as well

  bool on_cpu() const { return context.device().kind == DeviceKind::cpu; }
  std::vector<DType> dtypes_or(const std::vector<DType>& defaults) const {
    return dtypes.empty() ? defaults : dtypes;
  }
  // Whether tensors of this many elements, or this many operations, are worth starting here; says
  // so if not.
  bool takes(const char* section, const Shape& shape, double elements, double operations = 0) const;
};

// One op at one shape. Forward and backward are timed apart, and so is the reference made of
// elementwise, reduction and matrix ops, each a separate kernel.
struct OpRun {
  std::string section, op;
  DType dtype = DType::f32;
  Shape shape;
  Json extra;                                   // more keys of the row
  bool full = false;                            // the shape fills the device
  std::function<void()> forward;                // null: not measured, as the three below
  std::function<std::vector<Tensor>()> record;  // one forward on separate leaves, its roots
  std::function<void()> reference_forward;
  std::function<std::vector<Tensor>()> reference_record;
  std::vector<Tensor> upstream;  // gradients of the roots
  // Bytes that each direction must at least move, or operations that it must do; 0: not given.
  double forward_bytes = 0, backward_bytes = 0;
  double forward_operations = 0, backward_operations = 0;
  // Compares outputs and gradients with float64; runs after a backward of the fused form.
  std::function<void(ErrorMeter& forward, ErrorMeter& backward)> check;
};
void measure(OpBench& bench, const OpRun& run);

// A failure of one measurement is a row with the key `err`, not the end of the program.
void guarded(OpBench& bench, const Json& identity, const std::function<void()>& body);

void bench_softmax(OpBench& bench);
void bench_layer_norm(OpBench& bench);
void bench_llama(OpBench& bench);
void bench_seed(OpBench& bench);
void bench_dropout(OpBench& bench);
void bench_cross_entropy(OpBench& bench);
void bench_attention(OpBench& bench);
void bench_linear_cross_entropy(OpBench& bench);
void bench_fp8(OpBench& bench);
void bench_coded_rows(OpBench& bench);
void bench_adamw(OpBench& bench);
void bench_gemms(OpBench& bench);
void bench_weight_gradients(OpBench& bench);

}  // namespace trafo::bench
