// The cases on which every op is tested. An op gives its cases in tests/ops/cases/<op>_cases.cc;
// op_suite_test.cc runs them all: gradcheck in float64, fused against the reference, strided views,
// two runs and several thread counts bitwise equal. op_suite_cuda_test.cc runs the same cases on a
// GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo::testing {

// Draws the same values whatever the dtype, so that runs in several dtypes can be compared.
class InputMaker {
 public:
  // `values`: the dtype that what is drawn is rounded to, float32 or bfloat16.
  InputMaker(Context& context, DType dtype, uint64_t seed, DType values = DType::f32)
      : context_(context), dtype_(dtype), values_(values), random_(seed, 77) {}

  DType dtype() const { return dtype_; }
  // Uniform in [low, high), of the dtype under test.
  Tensor uniform(const Shape& shape, double low = -1, double high = 1) {
    return context_.from_doubles(drawn(shape, low, high), shape, dtype_);
  }
  // The same, of the dtype that weights of a loss have: float32 beside bfloat16.
  Tensor weights(const Shape& shape, double low, double high) {
    return context_.from_doubles(drawn(shape, low, high), shape,
                                 dtype_ == DType::bf16 ? DType::f32 : dtype_);
  }
  // Uniform int32 in [low, high).
  Tensor integers(const Shape& shape, int32_t low, int32_t high) {
    std::vector<int32_t> values(static_cast<size_t>(element_count(shape)));
    for (int32_t& v : values)
      v = low + static_cast<int32_t>(random_.next_u32() % static_cast<uint32_t>(high - low));
    return context_.from_values<int32_t>(values, shape);
  }
  Tensor integers(std::vector<int32_t> values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    return context_.from_values<int32_t>(values, shape);
  }

 private:
  std::vector<double> drawn(const Shape& shape, double low, double high) {
    const bool narrow = dtype_ == DType::bf16 || values_ == DType::bf16;
    std::vector<double> values(static_cast<size_t>(element_count(shape)));
    for (double& value : values) {
      const auto single = static_cast<float>(random_.uniform(low, high));
      value = static_cast<double>(narrow ? BFloat16::from_float(single).to_float() : single);
    }
    return values;
  }

  Context& context_;
  DType dtype_, values_;
  PhiloxStream random_;
};

struct OpCase {
  std::string label;  // the shape class: "width 1", "odd", "all-masked row", "empty batch", ...
  std::function<std::vector<Tensor>(InputMaker&)> inputs;
  // Calls the public op function; Context::fused_kernels chooses the path. Floating-point inputs
  // get gradients. Outputs must be contiguous.
  std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)> run;
  // Largest error of fused against the reference, relative to the largest element (float32).
  double tolerance = 2e-6;
  // Largest error of float32 on an accelerator against float64 on the CPU, relative to the largest
  // element; never below `tolerance`.
  double device_tolerance = 1e-5;
  // The same of bfloat16 on the reference path, which rounds every intermediate tensor.
  double reference_bfloat16_tolerance = 0x1p-4;
};

using OpCases = std::vector<OpCase>;

struct OpUnderTest {
  const char* name;
  OpCases (*cases)();
};
// Every op of op_list.def; an op without <op>_cases.cc does not link.
const std::vector<OpUnderTest>& ops_under_test();

}  // namespace trafo::testing
