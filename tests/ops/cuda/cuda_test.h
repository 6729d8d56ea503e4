// Common parts of tests on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/op_kernel.h"

namespace trafo::testing {

// CUDA device 0 where TRAFO_TEST_DEVICE=cuda asks for it, and an error if it is not there then;
// else null.
inline std::unique_ptr<Context> cuda_context() {
  const char* wanted = std::getenv("TRAFO_TEST_DEVICE");
  if (!wanted || std::string(wanted) != "cuda") return nullptr;
  return make_context({DeviceKind::cuda, 0}, 1);
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = cuda_context();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }

  // The elements of a floating-point tensor.
  std::vector<double> download(const Tensor& tensor) const {
    if (tensor.dtype() == DType::f64) return context_->values<double>(tensor);
    if (tensor.dtype() == DType::f32) {
      const auto values = context_->values<float>(tensor);
      return {values.begin(), values.end()};
    }
    std::vector<double> out;
    for (const BFloat16 value : context_->values<BFloat16>(tensor))
      out.push_back(static_cast<double>(value.to_float()));
    return out;
  }

  std::unique_ptr<Context> context_;
};

}  // namespace trafo::testing
