// Ops on random inputs of given shapes, on the GPU in float32 and bfloat16 against float64 on the
// CPU.
#pragma once

#include <functional>

#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/op_runs.h"

namespace trafo::testing {

using Tensors = std::vector<Tensor>;

inline const Dropout kDropout{0.2f, 77, 3, 2};

class CudaFloat64Test : public CudaTest {
 protected:
  // Calls `compare` for each dtype with the case, its results in float64 and what differences are
  // allowed.
  void check(
      const std::string& label, const std::vector<Shape>& shapes,
      std::function<Tensors(Context&, const Tensors&)> run,
      const std::function<void(const OpCase&, DType, const CaseRun&, double)>& compare) const {
    OpCase test;
    test.label = label;
    test.inputs = [&](InputMaker& make) {
      Tensors inputs;
      for (const Shape& shape : shapes) inputs.push_back(make.uniform(shape, -1, 1.5));
      return inputs;
    };
    test.run = std::move(run);
    for (const DType dtype : {DType::f32, DType::bf16})
      compare(test, dtype, run_case(test, {.dtype = DType::f64, .values = dtype}, 2),
              dtype == DType::f32 ? 2e-5 : 0x1p-6);
  }
};

}  // namespace trafo::testing
