#include "tests/ops/op_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/op_kernel.h"

namespace trafo::testing {
namespace {

constexpr uint64_t kSeed = 20240617;

// The same elements where no vector of them is aligned.
Tensor shifted_copy(const Context& context, const Tensor& source) {
  const HostCopy elements(context, source);
  std::vector<std::byte> memory(elements.bytes.size() + dtype_size(source.dtype()));
  std::copy(elements.bytes.begin(), elements.bytes.end(),
            memory.end() - static_cast<std::ptrdiff_t>(elements.bytes.size()));
  return context.from_host(memory.data(), memory.size(), {source.numel() + 1}, source.dtype())
      .as_strided(source.shape(), contiguous_strides(source.shape()), 1);
}

Tensor random_upstream(Context& context, const Tensor& output, DType values, uint64_t index) {
  InputMaker maker(context, output.dtype(), 99 + index, values);
  return maker.uniform(output.shape());
}

// The same elements as a window of a larger tensor. Element by element and on the host: the test
// must not lean on the copy kernel it is testing.
Tensor strided_copy(const Context& context, const Tensor& source) {
  Shape larger = source.shape();
  for (int i = 0; i < larger.rank(); ++i) larger[i] = larger[i] + 3;
  const Strides strides = contiguous_strides(larger);
  const size_t size = dtype_size(source.dtype());
  const HostCopy elements(context, source);
  std::vector<std::byte> window(static_cast<size_t>(element_count(larger)) * size);
  for (int64_t i = 0; i < source.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int d = source.rank() - 1; d >= 0; --d) {
      at += rest % source.dim(d) * strides[d];
      rest /= source.dim(d);
    }
    std::memcpy(window.data() + static_cast<size_t>(at) * size,
                elements.bytes.data() + static_cast<size_t>(i) * size, size);
  }
  return context.from_host(window.data(), window.size(), larger, source.dtype())
      .as_strided(source.shape(), strides, 0);
}

// Largest difference relative to the largest element of `expected` (at least 1).
double error_of_copy(const HostCopy& actual, const HostCopy& expected) {
  const auto a = actual.doubles(), b = expected.doubles();
  double worst = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (!(error <= worst)) worst = error;  // NaN stays
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

bool same_bytes(const HostCopy& a, const HostCopy& b) {
  if (a.defined != b.defined) return false;
  if (!a.defined || a.bytes.empty()) return true;
  return a.shape == b.shape && a.bytes == b.bytes;
}

}  // namespace

HostCopy::HostCopy(const Context& context, const Tensor& tensor) {
  if (!tensor.defined()) return;
  defined = true;
  dtype = tensor.dtype();
  shape = tensor.shape();
  bytes.resize(tensor.bytes());
  context.to_host(tensor, bytes.data(), bytes.size());
}

std::vector<double> HostCopy::doubles() const {
  std::vector<double> out(bytes.size() / dtype_size(dtype));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = dtype == DType::f64    ? at<double>(i)
             : dtype == DType::f32  ? static_cast<double>(at<float>(i))
             : dtype == DType::bf16 ? static_cast<double>(at<BFloat16>(i).to_float())
                                    : at<int32_t>(i);
  return out;
}

void HostCopy::scale(double by) {
  if (!defined) return;
  ASSERT_EQ(dtype, DType::f64);
  for (size_t i = 0; i < bytes.size() / sizeof(double); ++i) {
    const double scaled = at<double>(i) * by;
    std::memcpy(bytes.data() + i * sizeof(double), &scaled, sizeof scaled);
  }
}

namespace {

std::vector<Tensor> make_inputs(Context& context, const OpCase& test, const HowToRun& how) {
  context.set_fused_kernels(how.fused);
  InputMaker maker(context, how.dtype, kSeed, how.values);
  std::vector<Tensor> inputs = test.inputs(maker);
  for (Tensor& input : inputs) {
    if (!input.defined() || !is_floating(input.dtype())) continue;
    if (how.strided && input.rank() >= 1) input = strided_copy(context, input);
    if (how.shifted) input = shifted_copy(context, input);
    set_requires_grad(input, true);
  }
  return inputs;
}

void run_backward(Context& context, const std::vector<Tensor>& outputs, const HowToRun& how) {
  std::vector<Tensor> upstream;
  for (size_t i = 0; i < outputs.size(); ++i)
    upstream.push_back(
        requires_grad(outputs[i]) ? random_upstream(context, outputs[i], how.values, i) : Tensor{});
  context.tape().backward(context, outputs, upstream);
}

// Other elements, all of them valid where an op takes numbers of rows: the first one everywhere.
void overwrite(const Context& context, const Tensor& tensor) {
  HostCopy elements(context, tensor);
  const size_t size = dtype_size(tensor.dtype());
  for (size_t at = size; at < elements.bytes.size(); at += size)
    std::memcpy(elements.bytes.data() + at, elements.bytes.data(), size);
  if (is_floating(tensor.dtype()))
    elements.bytes.back() ^= std::byte{0x80};  // the last one changes its sign
  context.backend().copy_from_host(tensor.raw(), elements.bytes.data(), elements.bytes.size());
  tensor.mark_written();
}

}  // namespace

void expect_writes_noticed(Context& context, const OpCase& test, const HowToRun& how) {
  const CaseRun expected = run_case(context, test, how);
  const size_t count = expected.grads.size() + expected.outputs.size();
  for (size_t target = 0; target < count; ++target) {
    const std::vector<Tensor> inputs = make_inputs(context, test, how);
    const std::vector<Tensor> outputs = test.run(context, inputs);
    const bool is_input = target < inputs.size();
    const Tensor& written = is_input ? inputs[target] : outputs[target - inputs.size()];
    if (!written.defined() || written.numel() == 0) {
      context.tape().clear();
      continue;
    }
    overwrite(context, written);
    const std::string what =
        concat(is_input ? "input " : "output ", is_input ? target : target - inputs.size());
    try {
      run_backward(context, outputs, how);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << what;
      EXPECT_NE(std::string(error.what()).find("backward of "), std::string::npos)
          << what << ": " << error.what();
      continue;
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(same_bytes(HostCopy(context, inputs[i].defined() ? grad_of(inputs[i]) : Tensor{}),
                             expected.grads[i]))
          << what << " was overwritten and changed gradient " << i << " in silence";
  }
}

CaseRun run_case(Context& context, const OpCase& test, const HowToRun& how) {
  const std::vector<Tensor> inputs = make_inputs(context, test, how);
  std::vector<Tensor> outputs;
  for (int pass = 0; pass < how.passes; ++pass) {
    outputs = test.run(context, inputs);
    run_backward(context, outputs, how);
  }
  CaseRun result;
  for (const Tensor& output : outputs) result.outputs.emplace_back(context, output);
  for (const Tensor& input : inputs)
    result.grads.emplace_back(context, input.defined() ? grad_of(input) : Tensor{});
  return result;
}

CaseRun run_case(const OpCase& test, const HowToRun& how, int threads) {
  const auto context = make_context({DeviceKind::cpu, 0}, threads);
  return run_case(*context, test, how);
}

CaseRun run_on_cuda(const OpCase& test, const HowToRun& how) {
  const auto context = make_context({DeviceKind::cuda, 0}, 1);
  return run_case(*context, test, how);
}

void expect_close(const CaseRun& actual, const CaseRun& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    ASSERT_EQ(actual.outputs[i].shape, expected.outputs[i].shape) << what;
    EXPECT_LE(error_of_copy(actual.outputs[i], expected.outputs[i]), tolerance)
        << what << ", output " << i;
  }
  for (size_t i = 0; i < actual.grads.size(); ++i) {
    ASSERT_EQ(actual.grads[i].defined, expected.grads[i].defined)
        << what << ": gradient " << i << " is missing on one side";
    if (actual.grads[i].defined) {
      EXPECT_LE(error_of_copy(actual.grads[i], expected.grads[i]), tolerance)
          << what << ", gradient " << i;
    }
  }
}

void expect_bitwise(const CaseRun& actual, const CaseRun& expected, const std::string& what) {
  for (size_t i = 0; i < actual.outputs.size(); ++i)
    EXPECT_TRUE(same_bytes(actual.outputs[i], expected.outputs[i])) << what << ", output " << i;
  for (size_t i = 0; i < actual.grads.size(); ++i)
    EXPECT_TRUE(same_bytes(actual.grads[i], expected.grads[i])) << what << ", gradient " << i;
}

}  // namespace trafo::testing
