// A network of the caller's own: tensors, backward, its optimizer.
#pragma once

#include <vector>

#include "tests/reliability/workload.h"

namespace trafo::testing {

class OwnNetwork {
 public:
  explicit OwnNetwork(int32_t device) {
    trafo_context_options options;
    must(trafo_context_options_init(&options, sizeof options));
    options.device = device;
    options.threads = device == TRAFO_DEVICE_CPU ? 2 : 0;
    must(trafo_context_new(&options, &context_));
    std::vector<float> values(24 * 24);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) / 17 - 0.4f;
    const int64_t shape[] = {24, 24};
    must(trafo_tensor_new(context_, TRAFO_FLOAT32, shape, 2, values.data(),
                          values.size() * sizeof(float), &weight_));
    must(trafo_tensor_new(context_, TRAFO_FLOAT32, shape, 2, values.data(),
                          values.size() * sizeof(float), &input_));
    must(trafo_tensor_set_requires_grad(weight_, 1));
    trafo_tensor* const parameters[] = {weight_};
    must(trafo_adamw_new(context_, parameters, 1, nullptr, &optimizer_));
  }
  ~OwnNetwork() {
    trafo_adamw_free(optimizer_);
    trafo_tensor_free(weight_);
    trafo_tensor_free(input_);
    trafo_context_free(context_);
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  // sum(tanh(input W^T)); what was computed until an error goes with it.
  trafo_error* gradient() {
    trafo_tensor *product = nullptr, *bent = nullptr, *sum = nullptr;
    trafo_error* error = trafo_op_linear(context_, input_, weight_, nullptr, &product);
    if (!error) error = trafo_op_tanh(context_, product, &bent);
    if (!error) error = trafo_op_sum(context_, bent, &sum);
    if (!error) error = trafo_backward(context_, sum, nullptr);
    for (trafo_tensor* each : {product, bent, sum}) trafo_tensor_free(each);
    return error;
  }
  trafo_error* update() { return trafo_adamw_step(optimizer_, 1e-2, &norm_); }
  void forget() { must(trafo_tensor_zero_grad(weight_)); }
  double norm() const { return norm_; }
  std::vector<float> weight() const {
    std::vector<float> values(24 * 24);
    must(trafo_tensor_read(weight_, values.data(), values.size() * sizeof(float)));
    return values;
  }

 private:
  trafo_context* context_ = nullptr;
  trafo_tensor *weight_ = nullptr, *input_ = nullptr;
  trafo_adamw* optimizer_ = nullptr;
  double norm_ = 0;
};

}  // namespace trafo::testing
