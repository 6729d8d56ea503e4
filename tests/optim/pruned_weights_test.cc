// Pruned weights stay zero in AdamW, and everything else is updated as without pruning.
#include "engine/optim/pruned_weights.h"
#include "engine/optim/adamw/adamw.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

// Two shards, the second one not full; the matrices do not end with a cell.
constexpr int64_t kPrunedTestElements = kSquaresElements + 1000;
const std::vector<ElementRange> kPrunable{{32, 500}, {1024, kSquaresElements + 100}};

// The rest of a matrix's last cell is padding, which is masked like the matrix.
bool in_matrix(int64_t i) {
  for (const ElementRange& matrix : kPrunable)
    if (i >= matrix.begin && i / kGroupElements <= (matrix.end - 1) / kGroupElements) return true;
  return false;
}

template <class T>
std::vector<T> pruned_test_values(uint64_t stream) {
  PhiloxStream random(31, stream);
  std::vector<T> values(kPrunedTestElements);
  for (T& value : values) value = static_cast<T>(random.normal());
  return values;
}

// Every third weight is zero, inside and outside of the matrices, one of them a negative zero.
template <class T>
std::vector<T> with_zeros() {
  std::vector<T> values = pruned_test_values<T>(1);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = i % 2 == 0 ? T{0} : -T{0};
  return values;
}

template <class T>
void expect_only_pruned_weights_masked(OptimizerStates states, const ElementRange& shard) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  const Tensor parameters = context->from_values<T>(with_zeros<T>(), {kPrunedTestElements});
  const Tensor gradients = context->from_values<T>(pruned_test_values<T>(2), {kPrunedTestElements});
  const AdamWOptions options{.weight_decay = 0.1, .states = states};
  AdamW optimizer(*context, {parameters, gradients, {}, {}, shard, 0.1}, options);
  optimizer.step(0.01);  // moments, and no zero is left in the shard
  const auto pruned = with_zeros<T>();
  context->backend().copy_from_host(parameters.raw(), pruned.data(), parameters.bytes());
  const PrunedWeights weights(*context, optimizer, kPrunable);
  const auto bytes = [&](const Tensor& tensor) {
    std::vector<uint8_t> copy(tensor.bytes());
    context->to_host(tensor.detach(), copy.data(), copy.size());
    return copy;
  };
  const bool codes = states == OptimizerStates::eight_bit;
  struct Case {
    Tensor tensor;
    int64_t first;  // the element of the workspace that it begins with
    size_t size;    // of an element
  };
  const std::vector<Case> masked{{gradients, 0, sizeof(T)},
                                 {optimizer.first_moment(), shard.begin, codes ? 1 : sizeof(T)},
                                 {optimizer.second_moment(), shard.begin, codes ? 1 : sizeof(T)},
                                 {optimizer.ema(), 0, sizeof(T)}};
  std::vector<std::vector<uint8_t>> before;
  for (const Case& c : masked) before.push_back(bytes(c.tensor));
  const uint64_t version = gradients.storage()->version();
  weights.mask_gradient();
  EXPECT_NE(gradients.storage()->version(), version);
  weights.mask_states();
  int64_t zeroed = 0;
  for (size_t c = 0; c < masked.size(); ++c) {
    const auto after = bytes(masked[c].tensor);
    for (int64_t i = shard.begin; i < shard.end; ++i) {
      const size_t at = static_cast<size_t>(i - masked[c].first) * masked[c].size;
      const std::vector<uint8_t> zero(masked[c].size, 0);
      const bool is_pruned = in_matrix(i) && i % 3 == 0;
      const uint8_t* expected = is_pruned ? zero.data() : before[c].data() + at;
      ASSERT_EQ(std::memcmp(after.data() + at, expected, masked[c].size), 0)
          << "tensor " << c << ", element " << i;
      zeroed += is_pruned ? 1 : 0;
    }
    // The parts of other ranks.
    const bool whole = masked[c].tensor.numel() == kPrunedTestElements;
    for (int64_t i = 0; whole && i < kPrunedTestElements; ++i) {
      const size_t at = static_cast<size_t>(i) * masked[c].size;
      if (shard.contains(i)) continue;
      ASSERT_EQ(std::memcmp(after.data() + at, before[c].data() + at, masked[c].size), 0);
    }
  }
  EXPECT_GT(zeroed, 100);
}

TEST(PrunedWeights, OnlyGradientsAndStatesOfPrunedWeightsAreZeroed) {
  for (const ElementRange shard :
       {ElementRange{0, kPrunedTestElements}, ElementRange{0, kSquaresElements},
        ElementRange{kSquaresElements, kPrunedTestElements}}) {
    expect_only_pruned_weights_masked<float>(OptimizerStates::float32, shard);
    expect_only_pruned_weights_masked<double>(OptimizerStates::float32, shard);
    expect_only_pruned_weights_masked<float>(OptimizerStates::eight_bit, shard);
  }
}

// Through updates with weight decay and an EMA; the bfloat16 copies too.
TEST(PrunedWeights, TheyStayZeroThroughUpdates) {
  for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 2);
    const Tensor parameters =
        context->from_values<float>(pruned_test_values<float>(1), {kPrunedTestElements});
    const Tensor gradients = context->zeros({kPrunedTestElements}, DType::f32);
    const Tensor rounded = context->zeros({kPrunedTestElements}, DType::bf16);
    const AdamWOptions options{.weight_decay = 0.1, .states = states};
    AdamW optimizer(*context, {parameters, gradients, rounded, {}, {}, 0.1}, options);
    const PrunedWeights weights(*context, optimizer, kPrunable);
    for (uint64_t step = 1; step <= 12; ++step) {
      const auto gradient = pruned_test_values<float>(10 + step);
      context->backend().copy_from_host(gradients.raw(), gradient.data(), gradients.bytes());
      if (step == 4) {  // with the moments of three updates
        const auto pruned = with_zeros<float>();
        context->backend().copy_from_host(parameters.raw(), pruned.data(), parameters.bytes());
        weights.mask_states();
      }
      weights.mask_gradient();
      optimizer.step(0.01, 0.5);
    }
    const auto values = context->values<float>(parameters),
               ema = context->values<float>(optimizer.ema());
    const auto copies = context->values<BFloat16>(rounded);
    for (int64_t i = 0; i < kPrunedTestElements; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool pruned = in_matrix(i) && i % 3 == 0;
      EXPECT_EQ(values[at] == 0, pruned) << i;
      EXPECT_EQ(ema[at] == 0, pruned) << i;
      EXPECT_EQ(copies[at].to_float() == 0, pruned) << i;
    }
  }
}

}  // namespace
}  // namespace trafo
