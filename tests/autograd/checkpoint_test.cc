// Recomputed regions give the gradients of the plain run, bit by bit.
#include "engine/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

class CheckpointTest : public ::testing::Test {
 protected:
  Tensor leaf(const Shape& shape, uint64_t seed) {
    PhiloxStream random(seed, 1);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& v : values) v = static_cast<float>(random.normal());
    Tensor tensor = context_->from_values<float>(values, shape);
    set_requires_grad(tensor, true);
    return tensor;
  }
  Context& c() { return *context_; }

  struct Leaves {
    Tensor x, memory, w1, w2;
  };
  Leaves make_leaves() {
    return {leaf({6, 5}, 1), leaf({6, 5}, 2), leaf({5, 5}, 3), leaf({5, 5}, 4)};
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// A residual layer with dropout that reads the memory twice; both weights are used by every layer.
Tensor layer(Context& c, const Tensor& x, const Tensor& memory, const Tensor& w1, const Tensor& w2,
             uint32_t dropout_id) {
  Tensor h = ops::tanh(c, ops::linear(c, x, w1));
  h = ops::add(c, h, ops::multiply(c, ops::linear(c, memory, w2), ops::sigmoid(c, memory)));
  return ops::add(c, x, ops::dropout(c, h, {0.3f, 11, 5, dropout_id}));
}

enum class Mode { plain, checked, nested };

TEST_F(CheckpointTest, GradientsAreBitwiseThoseOfThePlainRun) {
  const auto run = [&](Mode mode) {
    const Leaves leaves = make_leaves();
    // Neither is a leaf, and both are used again after the layers.
    Tensor x = ops::scale(c(), leaves.x, 0.5);
    const Tensor memory = ops::scale(c(), leaves.memory, 0.7), first = x;
    for (uint32_t dropout_id = 0; dropout_id < 3; ++dropout_id) {
      const RegionFn region = [&leaves, dropout_id, mode](Context& context,
                                                          const std::vector<Tensor>& in) {
        if (mode != Mode::nested)
          return std::vector<Tensor>{
              layer(context, in[0], in[1], leaves.w1, leaves.w2, dropout_id)};
        return checkpoint(context, in,
                          [&leaves, dropout_id](Context& inner, const std::vector<Tensor>& on) {
                            return std::vector<Tensor>{
                                layer(inner, on[0], on[1], leaves.w1, leaves.w2, dropout_id)};
                          });
      };
      const std::vector<Tensor> inputs{x, memory};
      x = mode == Mode::plain ? region(c(), inputs)[0] : checkpoint(c(), inputs, region)[0];
    }
    const Tensor loss =
        ops::sum(c(), ops::add(c(), ops::multiply(c(), x, memory), ops::multiply(c(), x, first)));
    c().backward(loss);
    return std::pair{loss, leaves};
  };
  const auto [loss, plain] = run(Mode::plain);
  for (const Mode mode : {Mode::checked, Mode::nested}) {
    const auto [again, checked] = run(mode);
    EXPECT_TRUE(same_bits(again, loss));
    EXPECT_TRUE(same_bits(grad_of(checked.x), grad_of(plain.x)));
    EXPECT_TRUE(same_bits(grad_of(checked.memory), grad_of(plain.memory)));
    EXPECT_TRUE(same_bits(grad_of(checked.w1), grad_of(plain.w1)));
    EXPECT_TRUE(same_bits(grad_of(checked.w2), grad_of(plain.w2)));
  }
  EXPECT_EQ(c().tape().size(), 0u);
}

TEST_F(CheckpointTest, KeepsInputsAndRecomputesTheRest) {
  const Leaves leaves = make_leaves();
  int runs = 0;
  const auto outputs =
      checkpoint(c(), {leaves.x}, [&](Context& context, const std::vector<Tensor>& in) {
        ++runs;
        return std::vector<Tensor>{ops::exp(context, ops::linear(context, in[0], leaves.w1))};
      });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(c().tape().size(), 1u);  // one node, whatever the region holds
  c().backward(ops::sum(c(), outputs[0]));
  EXPECT_EQ(runs, 2);
}

TEST_F(CheckpointTest, ParametersAloneGetGradients) {
  const Leaves leaves = make_leaves();
  const Tensor constant = leaves.x.detach();
  const auto outputs =
      checkpoint(c(), {constant}, [&](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>{ops::linear(context, in[0], leaves.w1)};
      });
  c().backward(ops::sum(c(), outputs[0]));
  EXPECT_TRUE(grad_of(leaves.w1).defined());
  EXPECT_FALSE(grad_of(leaves.w2).defined());
}

TEST_F(CheckpointTest, SeveralOutputsOneUnusedOneHandedThrough) {
  const Leaves leaves = make_leaves();
  const auto outputs =
      checkpoint(c(), {leaves.x, Tensor{}}, [](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>{
            in[0], ops::exp(context, in[0]), ops::scale(context, in[0], 3), {}};
      });
  ASSERT_EQ(outputs.size(), 4u);
  c().backward(ops::sum(c(), ops::add(c(), outputs[0], outputs[2])));
  for (const float g : c().values<float>(grad_of(leaves.x))) EXPECT_EQ(g, 4);
  EXPECT_TRUE(grad_of(leaves.x).defined());
}

TEST_F(CheckpointTest, WithoutRecordingItIsACall) {
  const Leaves leaves = make_leaves();
  NoGrad no_grad(c());
  const auto outputs =
      checkpoint(c(), {leaves.x}, [](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>{ops::exp(context, in[0])};
      });
  EXPECT_FALSE(requires_grad(outputs[0]));
  EXPECT_EQ(c().tape().size(), 0u);
}

TEST_F(CheckpointTest, ARegionThatChangesIsAnError) {
  const Leaves leaves = make_leaves();
  int runs = 0;
  const auto outputs =
      checkpoint(c(), {leaves.x}, [&](Context& context, const std::vector<Tensor>& in) {
        return std::vector<Tensor>(static_cast<size_t>(++runs), ops::exp(context, in[0]));
      });
  try {
    c().backward(ops::sum(c(), outputs[0]));
    FAIL() << "a region that returned another number of outputs went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.origin(), "checkpoint");
  }
  EXPECT_TRUE(c().recording());
}

}  // namespace
}  // namespace trafo
