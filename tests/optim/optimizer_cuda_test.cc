// Optimizers on CUDA against the CPU, moments in 8 bits included. For TRAFO_TEST_DEVICE=cuda.
#include <algorithm>
#include <cmath>

#include "engine/core/numeric/philox.h"
#include "engine/decode/packing.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clip.h"
#include "engine/optim/clipped_update.h"
#include "engine/optim/muon/muon.h"
#include "engine/optim/pruned_weights.h"
#include "engine/optim/sgd/sgd.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/optimizer_kinds.h"

namespace trafo::testing {
namespace {

class CudaOptimizer : public CudaTest {
 protected:
  static std::vector<float> numbers(int64_t count, double scale, uint64_t stream) {
    PhiloxStream random(29, stream);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(scale * random.normal());
    return values;
  }
  static std::vector<std::byte> bytes(Context& context, const Tensor& tensor) {
    std::vector<std::byte> copy(tensor.bytes());
    context.to_host(tensor.detach(), copy.data(), copy.size());
    return copy;
  }

  // Parameters, their gradient and optimizer, `shift` elements into their memory.
  struct Weights {
    Weights(Context& where, int64_t count, int64_t shift, OptimizerStates states, bool with_copy)
        : context(where),
          parameters(part(where, numbers(count, 1, 1), shift)),
          gradients(part(where, numbers(count, 0, 1), shift)),
          rounded(with_copy ? where.zeros({count}, DType::bf16) : Tensor{}),
          optimizer(where, {parameters, gradients, rounded, {}, {}, 0.2},
                    {.beta2 = 0.99, .weight_decay = 0.01, .states = states}) {}

    static Tensor part(Context& where, std::vector<float> values, int64_t shift) {
      values.insert(values.begin(), static_cast<size_t>(shift), 0.0f);
      const auto all = static_cast<int64_t>(values.size());
      return where.from_values<float>(values, {all}).as_strided({all - shift}, {1}, shift);
    }
    void set_gradients(const std::vector<float>& values) {
      context.backend().copy_from_host(gradients.raw(), values.data(),
                                       values.size() * sizeof(float));
    }

    Context& context;
    Tensor parameters, gradients, rounded;
    AdamW optimizer;
  };

  std::unique_ptr<Context> cpu_ = make_context({DeviceKind::cpu, 0}, 1);
};

// The moments depend on additions and products alone, which are fused alike on processors with
// FMA: codes and scales are the same bits. Roots and quotients of the update round alike too; its
// constants may differ in the last bit, because the device and the host have their own logarithm.
TEST_F(CudaOptimizer, EightBitStatesAreThoseOfTheCpu) {
  for (const int64_t count : {1, 3, 255, 256, 257, 5000, 1 << 20})
    for (const int64_t shift : {0, 1})
      for (const bool with_copy : {false, true}) {
        Weights there(*context_, count, shift, OptimizerStates::eight_bit, with_copy);
        Weights here(*cpu_, count, shift, OptimizerStates::eight_bit, with_copy);
        for (uint64_t step = 1; step <= 5; ++step) {
          // Sizes that differ by octaves, and blocks of zeros.
          auto gradient = numbers(count, 0.1, step);
          for (size_t i = 0; i < gradient.size(); ++i)
            gradient[i] *= i / 256 % 5 == 4 ? 0.0f : std::exp2(-static_cast<float>(i % 16));
          there.set_gradients(gradient);
          here.set_gradients(gradient);
          there.optimizer.step(0.01, 0.5);
          here.optimizer.step(0.01, 0.5);
        }
        const auto same = [&](const Tensor& a, const Tensor& b, const char* what) {
          EXPECT_EQ(bytes(*context_, a), bytes(*cpu_, b))
              << what << ", " << count << " elements, shift " << shift;
        };
        same(there.optimizer.first_scale(), here.optimizer.first_scale(), "first scale");
        same(there.optimizer.second_scale(), here.optimizer.second_scale(), "second scale");
        same(there.optimizer.first_moment(), here.optimizer.first_moment(), "first codes");
        same(there.optimizer.second_moment(), here.optimizer.second_moment(), "second codes");
        const auto p = download(there.parameters), mean = download(there.optimizer.ema());
        for (int64_t i = 0; i < count; ++i) {
          const auto expected = static_cast<double>(here.parameters.data<float>()[i]);
          ASSERT_NEAR(p[static_cast<size_t>(i)], expected, 1e-6 * std::abs(expected) + 1e-7) << i;
          const auto smooth = static_cast<double>(here.optimizer.ema().data<float>()[i]);
          ASSERT_NEAR(mean[static_cast<size_t>(i)], smooth, 1e-6 * std::abs(smooth) + 1e-7) << i;
        }
        if (!with_copy) continue;
        const auto rounded = download(there.rounded);
        for (size_t i = 0; i < p.size(); ++i)
          ASSERT_EQ(rounded[i],
                    static_cast<double>(BFloat16::from_float(static_cast<float>(p[i])).to_float()));
      }
}

TEST_F(CudaOptimizer, Float32StatesAreThoseOfTheCpu) {
  for (const int64_t count : {1, 257, 70001})
    for (const int64_t shift : {0, 1}) {
      Weights there(*context_, count, shift, OptimizerStates::float32, true);
      Weights here(*cpu_, count, shift, OptimizerStates::float32, true);
      for (uint64_t step = 1; step <= 5; ++step)
        for (Weights* weights : {&there, &here}) {
          weights->set_gradients(numbers(count, 0.1, step));
          weights->optimizer.step(0.01, 0.5);
        }
      const auto p = download(there.parameters);
      for (int64_t i = 0; i < count; ++i) {
        const auto expected = static_cast<double>(here.parameters.data<float>()[i]);
        ASSERT_NEAR(p[static_cast<size_t>(i)], expected, 1e-6 * std::abs(expected) + 1e-7)
            << count << " elements, shift " << shift << ", element " << i;
      }
    }
}

// The parameters after each of `steps` updates, with a scale of the gradients, the EMA and the
// rounded copy.
struct Updated {
  std::vector<std::vector<double>> parameters;
  std::vector<double> ema, rounded;
};
template <class Make, class Numbers>
Updated updated(Context& where, int64_t count, int64_t shift, int steps, Make&& make,
                Numbers&& numbers) {
  const auto placed = [&](std::vector<float> values) {
    values.insert(values.begin(), static_cast<size_t>(shift), 0.0f);
    const auto all = static_cast<int64_t>(values.size());
    return where.from_values<float>(values, {all}).as_strided({all - shift}, {1}, shift);
  };
  const UpdateTarget target{placed(numbers(count, 1, 1)),
                            placed(numbers(count, 0, 1)),
                            where.zeros({count}, DType::bf16),
                            {},
                            {},
                            0.2};
  const std::unique_ptr<Optimizer> optimizer = make(where, target);
  const auto read = [&](const Tensor& tensor) { return to_doubles(where, tensor.detach()); };
  Updated result;
  for (int step = 1; step <= steps; ++step) {
    const auto gradient = numbers(count, 0.1, static_cast<uint64_t>(step));
    where.backend().copy_from_host(target.gradients.raw(), gradient.data(),
                                   gradient.size() * sizeof(float));
    optimizer->step(0.01, 0.5);
    result.parameters.push_back(read(target.parameters));
  }
  result.ema = read(optimizer->ema());
  result.rounded = read(target.rounded);
  return result;
}

TEST_F(CudaOptimizer, SgdIsThatOfTheCpu) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true})
      for (const int64_t count : {1, 257, 70001})
        for (const int64_t shift : {0, 1}) {
          const auto make = [&](Context& where, const UpdateTarget& target) {
            return std::make_unique<Sgd>(where, target, SgdOptions{momentum, nesterov, 0.01});
          };
          const Updated there = updated(*context_, count, shift, 4, make, numbers);
          const Updated here = updated(*cpu_, count, shift, 4, make, numbers);
          for (size_t i = 0; i < here.ema.size(); ++i) {
            const double expected = here.parameters.back()[i];
            ASSERT_NEAR(there.parameters.back()[i], expected, 1e-6 * std::abs(expected) + 1e-7)
                << "momentum " << momentum << ", element " << i << " of " << count;
            ASSERT_NEAR(there.ema[i], here.ema[i], 1e-6 * std::abs(here.ema[i]) + 1e-7) << i;
            ASSERT_EQ(there.rounded[i],
                      static_cast<double>(
                          BFloat16::from_float(static_cast<float>(there.parameters.back()[i]))
                              .to_float()));
          }
        }
}

// Every optimizer that works element by element, with and without groups of parameters.
TEST_F(CudaOptimizer, EachRuleIsThatOfTheCpu) {
  for (const OptimizerKind kind : kOptimizerKinds)
    for (const bool grouped : {false, true})
      for (const int64_t count : {1, 257, 70001})
        for (const int64_t shift : {0, 1}) {
          if (needs_whole_matrices(kind)) continue;
          const auto make = [&](Context& where, UpdateTarget target) {
            if (grouped) target.groups.factors = {{}, {0.5, 2}, {0.25, 0}};
            for (int64_t cell = 0; grouped && cell * kGroupElements < count; ++cell)
              target.groups.group_of.push_back(static_cast<uint8_t>(cell % 3));
            return make_optimizer(where, target, {.weight_decay = 0.01, .optimizer = kind});
          };
          const Updated there = updated(*context_, count, shift, 4, make, numbers);
          const Updated here = updated(*cpu_, count, shift, 4, make, numbers);
          for (size_t i = 0; i < here.ema.size(); ++i) {
            const double expected = here.parameters.back()[i];
            ASSERT_NEAR(there.parameters.back()[i], expected, 1e-6 * std::abs(expected) + 1e-7)
                << enum_name(kind) << ", element " << i << " of " << count;
            ASSERT_NEAR(there.ema[i], here.ema[i], 1e-6 * std::abs(here.ema[i]) + 1e-7) << i;
          }
        }
}

// A wide and a tall matrix, and elements that follow AdamW. X is bfloat16 on the GPU, so whole
// updates of matrices are compared, not elements.
TEST_F(CudaOptimizer, MuonIsNearTheCpu) {
  constexpr int64_t kWide = 48 * 112, kTall = 160 * 64, kRest = 1000;
  const std::vector<MatrixPart> matrices{{0, 48, 112}, {kWide, 160, 64}};
  const int64_t count = kWide + kTall + kRest;
  const auto make = [&](Context& where, UpdateTarget target) {
    target.groups.factors = {{}, {}};
    target.groups.factors[1].whole_matrix = 1;
    target.groups.group_of.assign(
        static_cast<size_t>((count + kGroupElements - 1) / kGroupElements), 0);
    std::fill_n(target.groups.group_of.begin(), (kWide + kTall) / kGroupElements, uint8_t{1});
    return std::make_unique<Muon>(where, target, matrices,
                                  MuonOptions{.adamw = {.weight_decay = 0.01}});
  };
  const Updated there = updated(*context_, count, 0, 3, make, numbers);
  const Updated here = updated(*cpu_, count, 0, 3, make, numbers);
  const auto start = numbers(count, 1, 1);
  const auto distance = [&](int64_t begin, int64_t end) {
    double change = 0, difference = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const double expected = here.parameters.back()[i];
      change += std::pow(expected - static_cast<double>(start[i]), 2);
      difference += std::pow(there.parameters.back()[i] - expected, 2);
    }
    return std::sqrt(difference / change);
  };
  // Fifteen products of values that are rounded to 8 bits; 0.025 on an H200.
  EXPECT_LT(distance(0, kWide), 0.05);
  EXPECT_LT(distance(kWide, kWide + kTall), 0.05);
  EXPECT_LT(distance(kWide + kTall, count), 1e-4);
}

// With and without scaled rates: matrices of several blocks of rows, and a vector.
TEST_F(CudaOptimizer, AdafactorIsThatOfTheCpu) {
  constexpr int64_t kVector = 300 * 257 + 4, kLast = kVector + 208, kAll = kLast + 70 * 3 + 14;
  const std::vector<MatrixPart> matrices{{0, 300, 257}, {kVector, 1, 200}, {kLast, 70, 3}};
  for (const bool scaled : {false, true}) {
    const auto make = [&](Context& where, UpdateTarget target) {
      target.groups.factors = {{}, {0.5, 2}};
      target.groups.group_of.assign(kAll / kGroupElements, 0);
      std::fill_n(target.groups.group_of.begin() + kVector / kGroupElements, 13, uint8_t{1});
      return make_optimizer(where, target,
                            {.weight_decay = 0.01,
                             .optimizer = OptimizerKind::adafactor,
                             .clip_threshold = scaled ? 0.5 : 1,
                             .scale_parameter = scaled},
                            matrices);
    };
    const Updated there = updated(*context_, kAll, 0, 4, make, numbers);
    const Updated here = updated(*cpu_, kAll, 0, 4, make, numbers);
    for (size_t i = 0; i < here.ema.size(); ++i) {
      const double expected = here.parameters.back()[i];
      ASSERT_NEAR(there.parameters.back()[i], expected, 2e-6 * std::abs(expected) + 1e-6)
          << "element " << i << ", scaled " << scaled;
      ASSERT_NEAR(there.ema[i], here.ema[i], 2e-6 * std::abs(here.ema[i]) + 1e-6) << i;
    }
  }
}

// Zeros where a weight is zero, and no other bit changes.
TEST_F(CudaOptimizer, GradientsAndStatesOfPrunedWeightsAreZeroed) {
  for (const auto states : {OptimizerStates::float32, OptimizerStates::eight_bit})
    for (const int64_t count : {1, 3, 255, 257, 70001})
      for (const int64_t shift : {0, 1}) {
        Weights weights(*context_, count, shift, states, false);
        weights.set_gradients(numbers(count, 0.1, 2));
        weights.optimizer.step(0.01);
        std::vector<float> sparse = numbers(count, 1, 7);
        for (size_t i = 0; i < sparse.size(); i += 3) sparse[i] = i % 2 == 0 ? 0.0f : -0.0f;
        context_->backend().copy_from_host(weights.parameters.raw(), sparse.data(),
                                           sparse.size() * sizeof(float));
        const int64_t end = std::min<int64_t>(count, 1600);  // of the matrix: whole cells
        const PrunedWeights pruned(*context_, weights.optimizer, {{0, end}});
        const bool codes = states == OptimizerStates::eight_bit;
        const std::vector<std::pair<Tensor, size_t>> masked{
            {weights.gradients, 4},
            {weights.optimizer.first_moment(), codes ? 1 : 4},
            {weights.optimizer.second_moment(), codes ? 1 : 4},
            {weights.optimizer.ema(), 4}};
        std::vector<std::vector<std::byte>> expected;
        for (const auto& [tensor, size] : masked) {
          expected.push_back(bytes(*context_, tensor));
          for (int64_t i = 0; i < end; i += 3)
            std::fill_n(expected.back().begin() + i * static_cast<int64_t>(size), size,
                        std::byte{0});
        }
        pruned.mask_gradient();
        pruned.mask_states();
        for (size_t t = 0; t < masked.size(); ++t)
          EXPECT_EQ(bytes(*context_, masked[t].first), expected[t])
              << "tensor " << t << ", " << count << " elements, shift " << shift;
      }
}

TEST_F(CudaOptimizer, NormsOfGradients) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t count : {1, 31, 4096, 1000003})
      for (const int64_t shift : {0, 1}) {
        const auto values = numbers(count, 1, 3);
        std::vector<double> memory(static_cast<size_t>(shift), 1e9);
        memory.insert(memory.end(), values.begin(), values.end());
        const Tensor x =
            context_->from_doubles(memory, {count + shift}, dtype).as_strided({count}, {1}, shift);
        double squares = 0;
        for (const double value : download(x)) squares += value * value;
        const double expected = std::sqrt(squares);
        EXPECT_NEAR(clip_global_norm(*context_, x, 0).norm, expected, 1e-6 * expected)
            << dtype_name(dtype) << ", " << count << " elements, shift " << shift;
      }
}

// Decided on the device: an update that is skipped changes nothing, the next is as if it had not
// been, and both kinds of moments give the same bits when they are run again.
TEST_F(CudaOptimizer, SkippedUpdatesChangeNothing) {
  constexpr int64_t kCount = 70001;
  for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    Weights ours(*context_, kCount, 0, states, true), theirs(*context_, kCount, 0, states, true);
    ScheduleOptions options;
    options.kind = ScheduleKind::constant;
    options.learning_rate = 0.01;
    ClippedUpdate a(*context_, ours.optimizer, Schedule(options), 1);
    ClippedUpdate b(*context_, theirs.optimizer, Schedule(options), 1);
    a.prepare(1, 8);
    b.prepare(1, 8);
    const Tensor good = context_->scalar(1, {1}, DType::f32);
    const Tensor bad = context_->scalar(NAN, {1}, DType::f32);
    for (uint64_t step = 1; step <= 3; ++step) {
      auto gradient = numbers(kCount, 0.1, step);
      ours.set_gradients(gradient);
      theirs.set_gradients(gradient);
      a.run(bad, bad);
      a.run(good, good);
      b.run(good, good);
      gradient[kCount / 2] = INFINITY;
      ours.set_gradients(gradient);
      a.run(good, good);
    }
    UpdateRecord record{};
    context_->backend().copy_to_host(&record, a.record(), sizeof record);
    EXPECT_EQ(record.updates, 3);
    EXPECT_EQ(record.applied, 0);
    for (const auto& [x, y] :
         {std::pair{ours.parameters, theirs.parameters}, std::pair{ours.rounded, theirs.rounded},
          std::pair{ours.optimizer.ema(), theirs.optimizer.ema()},
          std::pair{ours.optimizer.first_moment(), theirs.optimizer.first_moment()},
          std::pair{ours.optimizer.second_moment(), theirs.optimizer.second_moment()}})
      EXPECT_EQ(bytes(*context_, x), bytes(*context_, y)) << enum_name(states);
    if (states == OptimizerStates::eight_bit) {
      EXPECT_EQ(bytes(*context_, ours.optimizer.first_scale()),
                bytes(*context_, theirs.optimizer.first_scale()));
      EXPECT_EQ(bytes(*context_, ours.optimizer.second_scale()),
                bytes(*context_, theirs.optimizer.second_scale()));
    }
  }
}

}  // namespace
}  // namespace trafo::testing
