// SGD and Muon against their formulas in float64, through both kernels that update.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/optim/muon/muon.h"
#include "engine/optim/sgd/sgd.h"
#include "tests/optim/update_test.h"
#include "tests/support/errors.h"
#include "tests/support/optimizer_kinds.h"

namespace trafo {
namespace {

using namespace testing;

// torch.optim.SGD with dampening 0; `velocity` starts empty, as there.
void torch_sgd(Column& p, Column& velocity, const Column& grad, double rate, double decay,
               double momentum, bool nesterov) {
  const bool first = velocity.empty();
  if (first) velocity.resize(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    double g = grad[i] + decay * p[i];
    if (momentum != 0) {
      velocity[i] = first ? g : momentum * velocity[i] + g;
      g = nesterov ? g + momentum * velocity[i] : velocity[i];
    }
    p[i] -= rate * g;
  }
}

struct Dense {
  int64_t rows, columns;
  Column values;
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

Dense product(const Dense& a, const Dense& b) {
  Dense out{a.rows, b.columns, Column(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) out.at(i, j) += a.at(i, k) * b.at(k, j);
  return out;
}

Dense transposed(const Dense& a) {
  Dense out{a.columns, a.rows, Column(a.values.size())};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out.at(j, i) = a.at(i, j);
  return out;
}

// _zeropower_via_newtonschulz of torch.optim.Muon, in double: a tall matrix is transposed first.
Dense zeropower(Dense x) {
  const bool tall = x.rows > x.columns;
  if (tall) x = transposed(x);
  double squares = 0;
  for (const double v : x.values) squares += v * v;
  for (double& v : x.values) v /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Dense a = product(x, transposed(x)), a2 = product(a, a);
    Dense b = a;
    for (size_t i = 0; i < b.values.size(); ++i)
      b.values[i] = -4.7750 * a.values[i] + 2.0315 * a2.values[i];
    const Dense bx = product(b, x);
    for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = 3.4445 * x.values[i] + bx.values[i];
  }
  return tall ? transposed(x) : x;
}

// torch.optim.Muon with adjust_lr_fn "match_rms_adamw".
void torch_muon(Dense& p, Column& momentum_buffer, const Column& grad, double rate, double decay,
                double momentum, bool nesterov) {
  momentum_buffer.resize(p.values.size());
  Dense update = p;
  for (size_t i = 0; i < grad.size(); ++i) {
    double& m = momentum_buffer[i];
    m += (1 - momentum) * (grad[i] - m);
    update.values[i] = nesterov ? grad[i] + momentum * (m - grad[i]) : m;
  }
  const Dense direction = zeropower(update);
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(p.rows, p.columns)));
  for (size_t i = 0; i < p.values.size(); ++i)
    p.values[i] = p.values[i] * (1 - rate * decay) - rate * scale * direction.values[i];
}

template <class T>
class SgdMuonTest : public UpdateTest<T> {};

TYPED_TEST_SUITE(SgdMuonTest, UpdateTypes);

TYPED_TEST(SgdMuonTest, SgdIsThatOfTorch) {
  constexpr int64_t kCount = 40003;  // no vector width divides it; several blocks of work
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true})
      for (const bool clipped : {false, true}) {
        const Tensor parameters = this->tensor(normal_column(kCount, 1));
        const Tensor gradients = this->tensor(Column(kCount));
        Sgd optimizer(*this->context_, {parameters, gradients, {}, {}, {}, kUpdateEma},
                      {momentum, nesterov, kUpdateDecay});
        Column p = this->read(parameters), ema(p.size()), velocity;
        for (int64_t step = 1; step <= kUpdateSteps; ++step) {
          this->write(gradients, normal_column(kCount, 10 + static_cast<uint32_t>(step)));
          torch_sgd(p, velocity, this->read(gradients), kUpdateRate, kUpdateDecay, momentum,
                    nesterov && momentum > 0);
          for (size_t i = 0; i < p.size(); ++i)
            ema[i] += ema_weight(kUpdateEma, step) * (p[i] - ema[i]);
          this->update(optimizer, clipped, step);
        }
        this->expect_near(parameters, p, "parameter");
        this->expect_near(optimizer.ema(), ema, "EMA");
        EXPECT_EQ(optimizer.states().size(), momentum > 0 ? 1u : 0u);
      }
}

// Factors of groups multiply the rate and the decay, with a velocity and without.
TYPED_TEST(SgdMuonTest, GroupsOfSgdHaveTheirRateAndDecay) {
  constexpr int64_t kCells = 3, kCount = kCells * kGroupElements;
  const UpdateGroups groups{{{1, 1}, {0.5, 2}, {2, 0}}, {0, 1, 2}};
  for (const double momentum : {0.0, 0.9}) {
    const Tensor parameters = this->tensor(normal_column(kCount, 1));
    const Tensor gradients = this->tensor(Column(kCount));
    Sgd optimizer(*this->context_, {parameters, gradients, {}, groups},
                  {momentum, false, kUpdateDecay});
    std::vector<Column> p(kCells), velocity(kCells);
    const auto cell = [](const Column& all, int64_t number) {
      const auto begin = all.begin() + number * kGroupElements;
      return Column(begin, begin + kGroupElements);
    };
    for (int64_t i = 0; i < kCells; ++i) p[size_t(i)] = cell(this->read(parameters), i);
    for (int64_t step = 1; step <= kUpdateSteps; ++step) {
      this->write(gradients, normal_column(kCount, 10 + static_cast<uint32_t>(step)));
      for (int64_t i = 0; i < kCells; ++i) {
        const UpdateFactors& factors = groups.factors[size_t(i)];
        torch_sgd(p[size_t(i)], velocity[size_t(i)], cell(this->read(gradients), i),
                  kUpdateRate * factors.learning_rate, kUpdateDecay * factors.weight_decay,
                  momentum, false);
      }
      this->update(optimizer, false, step);
    }
    Column expected;
    for (const Column& each : p) expected.insert(expected.end(), each.begin(), each.end());
    this->expect_near(parameters, expected, "parameter");
  }
}

TYPED_TEST(SgdMuonTest, SgdWithAStateOfTheCallerIsTheSame) {
  const Column start = normal_column(100, 1), gradient = normal_column(100, 2);
  const Tensor p = this->tensor(start), q = this->tensor(start), g = this->tensor(gradient);
  const Tensor velocity = this->tensor(Column(100));
  const SgdOptions options{.momentum = 0.8, .nesterov = true, .weight_decay = 0.1};
  Sgd optimizer(*this->context_, {p, g}, options);
  for (int step = 0; step < 3; ++step) {
    optimizer.step(0.1);
    sgd_step(*this->context_, q, g, velocity, options, 0.1);
  }
  EXPECT_EQ(this->read(p), this->read(q));
  EXPECT_EQ(this->read(optimizer.velocity()), this->read(velocity));
}

// A wide, a tall and two square matrices between parameters that follow AdamW, with factors.
struct MuonCase {
  static constexpr int64_t kCell = kGroupElements;
  std::vector<MatrixPart> matrices{
      {kCell, 6, 16}, {7 * kCell, 24, 4}, {14 * kCell, 4, 4}, {15 * kCell, 8, 8}};
  int64_t count = 19 * kCell;
  UpdateGroups groups{{{1, 1}, {0.5, 2, 1}, {1, 1, 1}}, std::vector<uint8_t>(19)};

  MuonCase() {
    for (size_t m = 0; m < matrices.size(); ++m)
      for (int64_t i = matrices[m].elements().begin; i < matrices[m].elements().end; i += kCell)
        groups.group_of[static_cast<size_t>(i / kCell)] = is_slow(m) ? 1 : 2;
  }
  static bool is_slow(size_t matrix) { return matrix == 1 || matrix == 2; }
};

TYPED_TEST(SgdMuonTest, MuonIsThatOfTorchAndTheRestIsAdamW) {
  const MuonCase form;
  for (const bool nesterov : {false, true})
    for (const bool clipped : {false, true}) {
      const Tensor parameters = this->tensor(normal_column(form.count, 1));
      const Tensor plain = this->tensor(normal_column(form.count, 1));
      const Tensor gradients = this->tensor(Column(static_cast<size_t>(form.count)));
      const AdamWOptions adamw_options{.weight_decay = kUpdateDecay};
      Muon optimizer(*this->context_, {parameters, gradients, {}, form.groups, {}, kUpdateEma},
                     form.matrices, {0.9, nesterov, adamw_options});
      AdamW adamw(*this->context_, {plain, gradients}, adamw_options);
      const Column start = this->read(parameters);
      Column ema(start.size());
      std::vector<Dense> matrices;
      std::vector<Column> buffers(form.matrices.size());
      for (const MatrixPart& m : form.matrices)
        matrices.push_back(
            {m.rows, m.columns, {start.begin() + m.begin, start.begin() + m.elements().end}});
      for (int64_t step = 1; step <= kUpdateSteps; ++step) {
        this->write(gradients, normal_column(form.count, 10 + static_cast<uint32_t>(step)));
        const Column g = this->read(gradients);
        adamw.step(kUpdateRate);
        this->update(optimizer, clipped, step);
        Column expected = this->read(plain);
        for (size_t m = 0; m < matrices.size(); ++m) {
          const MatrixPart& part = form.matrices[m];
          torch_muon(matrices[m], buffers[m],
                     {g.begin() + part.begin, g.begin() + part.elements().end},
                     kUpdateRate * (form.is_slow(m) ? 0.5 : 1),
                     kUpdateDecay * (form.is_slow(m) ? 2 : 1), 0.9, nesterov);
          std::copy(matrices[m].values.begin(), matrices[m].values.end(),
                    expected.begin() + part.begin);
        }
        this->expect_near(parameters, expected, "parameter");
        for (size_t i = 0; i < ema.size(); ++i)
          ema[i] += ema_weight(kUpdateEma, step) * (expected[i] - ema[i]);
        this->expect_near(optimizer.ema(), ema, "EMA");
      }
    }
}

// Singular values of the direction are near 1 for every gradient.
TYPED_TEST(SgdMuonTest, DirectionsAreNearlyOrthogonal) {
  const MatrixPart matrix{0, 8, 16};
  Column values = normal_column(128, 3);
  for (size_t i = 0; i < 64; ++i) values[i] *= 0.05;
  const Tensor parameters = this->tensor(Column(128)), gradients = this->tensor(values);
  const UpdateGroups groups{{{1, 1, 1}}, std::vector<uint8_t>(8)};
  Muon optimizer(*this->context_, {parameters, gradients, {}, groups}, std::span(&matrix, 1));
  optimizer.step(1);
  Dense x{8, 16, this->read(parameters)};
  for (double& v : x.values) v /= -0.2 * 4;
  const Dense gram = product(x, transposed(x));
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_GT(gram.at(i, i), 0.2) << i;
    EXPECT_LT(gram.at(i, i), 1.6) << i;
  }
}

// Memory for finish(), which must not run out of it, is held between updates.
TYPED_TEST(SgdMuonTest, AnUpdateTakesTheMemoryThatIsReserved) {
  for (const auto& [rows, columns] : {std::pair{64, 64}, {16, 256}, {256, 16}}) {
    const MatrixPart matrix{0, rows, columns};
    const Tensor parameters = this->tensor(Column(4096)),
                 gradients = this->tensor(normal_column(4096, 3));
    const UpdateGroups groups{{{1, 1, 1}}, std::vector<uint8_t>(4096 / kGroupElements)};
    Muon optimizer(*this->context_, {parameters, gradients, {}, groups}, std::span(&matrix, 1));
    Backend& backend = this->context_->backend();
    const int64_t before = backend.memory_stats().allocated_bytes;
    backend.reset_peak_memory();
    optimizer.step(0.1);
    EXPECT_LE(backend.memory_stats().peak_bytes, before) << rows;
    EXPECT_EQ(backend.memory_stats().allocated_bytes, before) << rows;
  }
}

TYPED_TEST(SgdMuonTest, AnUpdateThatIsNotFiniteChangesNothing) {
  const MuonCase form;
  const Tensor gradients = this->tensor(normal_column(form.count, 2));
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::muon}) {
    const Tensor parameters = this->tensor(normal_column(form.count, 1));
    const auto optimizer =
        make_optimizer(*this->context_, {parameters, gradients, {}, form.groups, {}, kUpdateEma},
                       {.optimizer = kind, .momentum = 0.9, .nesterov = true}, form.matrices);
    this->update(*optimizer, true, 1);
    const Column before = this->read(parameters), ema = this->read(optimizer->ema());
    const Column state = this->read(optimizer->states()[0].tensor);
    this->write(gradients, normal_column(form.count, 3));
    gradients.template data<TypeParam>()[5] = std::numeric_limits<TypeParam>::quiet_NaN();
    this->update(*optimizer, true, 2);
    EXPECT_EQ(this->read(parameters), before);
    EXPECT_EQ(this->read(optimizer->ema()), ema);
    EXPECT_EQ(this->read(optimizer->states()[0].tensor), state);
    this->write(gradients, normal_column(form.count, 4));
    this->update(*optimizer, true, 2);
    EXPECT_NE(this->read(parameters), before);
  }
}

TEST(Optimizers, BadOptionsAreNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({16}, DType::f32), g = context->zeros({16}, DType::f32);
  const auto make = [&](const OptimizerOptions& options) {
    return make_optimizer(*context, {p, g}, options);
  };
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::muon}) {
    for (const double momentum : {-0.1, 1.0, std::nan("")})
      expect_error(ErrorCode::invalid_argument, "momentum must be at least 0 and below 1",
                   [&] { make({.optimizer = kind, .momentum = momentum}); });
    expect_error(ErrorCode::invalid_argument, "optimizer_states is for the optimizer adamw", [&] {
      make({.optimizer = kind, .optimizer_states = OptimizerStates::eight_bit});
    });
    expect_error(ErrorCode::invalid_argument, "weight_decay must be at least 0",
                 [&] { make({.weight_decay = -1, .optimizer = kind}); });
  }
  expect_error(ErrorCode::invalid_argument, "unknown optimizer 7",
               [&] { make({.optimizer = static_cast<OptimizerKind>(7)}); });
}

// Every option that an optimizer does not have is refused, unless it is the default.
TEST(Optimizers, OptionsOfOthersAreRefused) {
  using enum OptimizerKind;
  const auto refused = [](const OptimizerOptions& options, const char* message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { validate(options); });
  };
  refused({.optimizer = adamw, .momentum = 0.9},
          "momentum is for the optimizer sgd, muon: adamw does not have it");
  refused({.optimizer = adamw, .nesterov = false},
          "nesterov is for the optimizer sgd, muon: adamw");
  refused({.optimizer = sgd, .beta1 = 0.8}, "beta1 is for the optimizer adamw, muon");
  refused({.optimizer = sgd, .beta2 = 0.9}, "beta2 is for the optimizer adamw, muon");
  refused({.optimizer = sgd, .epsilon = 1e-8}, "epsilon is for the optimizer adamw, muon");
  for (const OptimizerKind kind : {sgd, muon})
    refused({.optimizer = kind, .optimizer_states = OptimizerStates::eight_bit},
            "optimizer_states is for the optimizer adamw: ");
  for (const OptimizerKind kind : kOptimizerKinds)
    EXPECT_NO_THROW(validate(OptimizerOptions{.weight_decay = 0.1, .optimizer = kind}));
}

}  // namespace
}  // namespace trafo
