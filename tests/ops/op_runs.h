// One run of an op's case, forward and backward, with its results on the host.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ops/op_cases.h"

namespace trafo::testing {

// A tensor's contents, wherever it was computed.
struct HostCopy {
  bool defined = false;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;

  HostCopy() = default;
  HostCopy(const Context& context, const Tensor& tensor);

  std::vector<double> doubles() const;
  void scale(double by);  // of float64 only

 private:
  template <class T>
  T at(size_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
};

struct CaseRun {
  std::vector<HostCopy> outputs;
  std::vector<HostCopy> grads;  // undefined for inputs without one
};

struct HowToRun {
  DType dtype = DType::f32;
  bool fused = true;
  bool strided = false;  // floating-point inputs are windows of larger tensors
  bool shifted = false;  // floating-point inputs begin one element into their memory
  DType values = dtype;  // the dtype that inputs and upstream gradients are rounded to
  int passes = 1;        // forward and backward so often: the gradients add up
};

// Forward and backward of one case, with the same random upstream gradients whatever the dtype.
CaseRun run_case(Context& context, const OpCase& test, const HowToRun& how);
// On the CPU.
CaseRun run_case(const OpCase& test, const HowToRun& how, int threads = 1);
// On CUDA device 0, in a separate context.
CaseRun run_on_cuda(const OpCase& test, const HowToRun& how);

// Overwrites each input and output between forward and backward, one after the other. Backward is
// refused, or its gradients have the bits that they have without the write.
void expect_writes_noticed(Context& context, const OpCase& test, const HowToRun& how);

// Every difference is at most `tolerance` of the tensor's largest element (of 1, if that is more).
void expect_close(const CaseRun& actual, const CaseRun& expected, double tolerance,
                  const std::string& what);
void expect_bitwise(const CaseRun& actual, const CaseRun& expected, const std::string& what);

}  // namespace trafo::testing
