// Gradients of parameters beside central differences of the loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/core/generated/option_enums.h"
#include "engine/nn/parameter_store.h"
#include "engine/runtime/context.h"

namespace trafo::testing {

// loss(recompute) computes the loss and the gradients of a float64 model. Compares the gradients of
// every policy of recomputation bit by bit, and one element of each trainable parameter with a
// central difference, to 1e-6, or with `relative` to 1e-6 of a difference above 1. Returns the
// largest magnitude of a difference.
template <class Loss>
double expect_gradients(Context& context, ParameterStore& parameters, const Loss& loss,
                        bool relative = false) {
  loss(Recompute::none);
  const auto gradients = context.values<double>(parameters.flat_grad());
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    loss(recompute);
    EXPECT_EQ(context.values<double>(parameters.flat_grad()), gradients);
  }
  double largest = 0;
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (!parameters.trainable(id)) continue;
    std::vector<double> values(static_cast<size_t>(element_count(parameters.shape(id))));
    const size_t bytes = values.size() * sizeof(double);
    parameters.get_value(context, id, values.data(), bytes);
    constexpr double kStep = 1e-5;
    const size_t i = values.size() / 2;
    const double value = values[i];
    const auto loss_at = [&](double moved) {
      values[i] = moved;
      parameters.set_value(context, id, values.data(), bytes);
      return loss(Recompute::none);
    };
    const double difference = (loss_at(value + kStep) - loss_at(value - kStep)) / (2 * kStep);
    loss_at(value);
    EXPECT_NEAR(gradients[static_cast<size_t>(parameters.offset(id)) + i], difference,
                relative ? 1e-6 * std::max(1.0, std::abs(difference)) : 1e-6)
        << parameters.name(id);
    largest = std::max(largest, std::abs(difference));
  }
  return largest;
}

}  // namespace trafo::testing
