// Adafactor against its formula in float64, in shards, and when updates are skipped.
#include <cmath>
#include <limits>

#include "tests/optim/update_test.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

template <class T>
class AdafactorTest : public UpdateTest<T> {};
TYPED_TEST_SUITE(AdafactorTest, UpdateTypes);

// Parameters of a workspace: two blocks of rows, a vector, fewer columns than lanes, one column.
constexpr int64_t kLarge = 300 * 257 + 4;  // with padding
const std::vector<MatrixPart> kMatrixParts{
    {0, 300, 257}, {kLarge, 1, 200}, {kLarge + 208, 70, 3}, {kLarge + 432, 21, 1}};
constexpr int64_t kAllElements = kLarge + 464;

struct Moments {
  Column rows, columns;
};

// Shazeer & Stern, arXiv 1804.04235, algorithms 4 and 5, in transformers' form: the weight of the
// newest squares is t^decay_rate, and decay is times the scaled rate.
void adafactor_reference(Column& p, const Column& grad, const MatrixPart& matrix, Moments& moments,
                         const OptimizerOptions& o, double rate, double decay, int64_t step) {
  const auto at = [&](int64_t i, int64_t j) {
    return static_cast<size_t>(matrix.begin + i * matrix.columns + j);
  };
  const double fresh = std::pow(static_cast<double>(step), o.decay_rate);
  const double count = static_cast<double>(matrix.rows * matrix.columns);
  Column rows(static_cast<size_t>(matrix.rows)), columns(static_cast<size_t>(matrix.columns));
  double parameter_squares = 0;
  for (int64_t i = 0; i < matrix.rows; ++i)
    for (int64_t j = 0; j < matrix.columns; ++j) {
      const double square = grad[at(i, j)] * grad[at(i, j)] + o.square_epsilon;
      rows[static_cast<size_t>(i)] += square / static_cast<double>(matrix.columns);
      columns[static_cast<size_t>(j)] += square / static_cast<double>(matrix.rows);
      parameter_squares += p[at(i, j)] * p[at(i, j)];
    }
  const auto mix = [&](Column& old, const Column& fresh_means) {
    old.resize(fresh_means.size());
    for (size_t i = 0; i < old.size(); ++i) old[i] += fresh * (fresh_means[i] - old[i]);
  };
  mix(moments.rows, rows);
  mix(moments.columns, columns);
  double row_mean = 0;
  for (const double row : moments.rows) row_mean += row / static_cast<double>(matrix.rows);
  Column update;
  double squares = 0;
  for (int64_t i = 0; i < matrix.rows; ++i)
    for (int64_t j = 0; j < matrix.columns; ++j) {
      update.push_back(grad[at(i, j)] /
                       std::sqrt(moments.rows[static_cast<size_t>(i)] *
                                 moments.columns[static_cast<size_t>(j)] / row_mean));
      squares += update.back() * update.back();
    }
  const double scaled =
      rate *
      (o.scale_parameter ? std::max(o.scale_epsilon, std::sqrt(parameter_squares / count)) : 1);
  const double clip = std::max(1.0, std::sqrt(squares / count) / o.clip_threshold);
  for (size_t i = 0; i < update.size(); ++i) {
    double& value = p[static_cast<size_t>(matrix.begin) + i];
    value -= scaled * (decay * value + update[i] / clip);
  }
}

Column gradient_of(int64_t step) {
  Column gradient = normal_column(kAllElements, 10 + static_cast<uint32_t>(step));
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] *= i % 3 == 0 ? 1e-3 : 1;
  for (size_t i = 257; i < 2 * 257; ++i) gradient[i] = 0;  // a row that is not used
  return gradient;
}

UpdateGroups groups_of_parameters(const std::vector<UpdateFactors>& factors) {
  UpdateGroups groups{factors, {}};
  groups.group_of.resize(kAllElements / kGroupElements);
  for (size_t number = 0; number < kMatrixParts.size(); ++number)
    for (int64_t i = kMatrixParts[number].begin; i < kMatrixParts[number].elements().end;
         i += kGroupElements)
      groups.group_of[static_cast<size_t>(i / kGroupElements)] =
          static_cast<uint8_t>(number % factors.size());
  return groups;
}

OptimizerOptions adafactor_options(bool scaled) {
  OptimizerOptions options{.weight_decay = kUpdateDecay, .optimizer = OptimizerKind::adafactor};
  if (!scaled) return options;
  options.decay_rate = -0.6;
  options.clip_threshold = 0.7;
  options.scale_parameter = true;
  options.square_epsilon = 1e-12;
  options.scale_epsilon = 0.9;  // some parameters are above it, some below
  return options;
}

TYPED_TEST(AdafactorTest, UpdatesAreThoseOfTheFormula) {
  const std::vector<UpdateFactors> factors{{}, {0.5, 2}, {0.25, 0}};
  for (const bool scaled : {false, true})
    for (const bool clipped : {false, true}) {
      const OptimizerOptions options = adafactor_options(scaled);
      Column start = normal_column(kAllElements, 1);
      for (size_t i = kLarge; i < kLarge + 200; ++i) start[i] *= 0.1;
      const Tensor parameters = this->tensor(start);
      const Tensor gradients = this->tensor(Column(kAllElements));
      const auto optimizer =
          make_optimizer(*this->context_,
                         {parameters, gradients, {}, groups_of_parameters(factors), {}, kUpdateEma},
                         options, kMatrixParts);
      Column p = this->read(parameters), ema(p.size());
      std::vector<Moments> moments(kMatrixParts.size());
      for (int64_t step = 1; step <= kUpdateSteps; ++step) {
        this->write(gradients, gradient_of(step));
        const Column before = this->read(gradients), old = p;
        for (size_t i = 0; i < kMatrixParts.size(); ++i) {
          const UpdateFactors& f = factors[i % factors.size()];
          adafactor_reference(p, before, kMatrixParts[i], moments[i], options,
                              kUpdateRate * f.learning_rate, kUpdateDecay * f.weight_decay, step);
        }
        for (const MatrixPart& matrix : kMatrixParts)
          for (auto i = static_cast<size_t>(matrix.begin);
               i < static_cast<size_t>(matrix.elements().end); ++i)
            ema[i] += ema_weight(kUpdateEma, step) * (p[i] - ema[i]);
        this->update(*optimizer, clipped, step);
      }
      this->expect_near(parameters, p, "parameter");
      this->expect_near(optimizer->ema(), ema, "EMA");
      ASSERT_EQ(optimizer->states().size(), 2u);
      Column rows, columns;
      for (const Moments& of : moments) {
        rows.insert(rows.end(), of.rows.begin(), of.rows.end());
        columns.insert(columns.end(), of.columns.begin(), of.columns.end());
      }
      EXPECT_EQ(optimizer->states()[0].name, "exp_avg_sq_row");
      EXPECT_EQ(optimizer->states()[1].name, "exp_avg_sq_col");
      this->expect_near(optimizer->states()[0].tensor, rows, "row moment");
      this->expect_near(optimizer->states()[1].tensor, columns, "column moment");
    }
}

// Half a gradient with twice the scale is the same gradient.
TYPED_TEST(AdafactorTest, ScalesTheGradient) {
  const auto updated = [&](double factor) {
    const Tensor parameters = this->tensor(normal_column(kAllElements, 1));
    Column gradient = gradient_of(1);
    for (double& g : gradient) g *= factor;
    const auto optimizer = make_optimizer(*this->context_, {parameters, this->tensor(gradient)},
                                          adafactor_options(true), kMatrixParts);
    optimizer->step(kUpdateRate, 1 / factor);
    return this->read(parameters);
  };
  EXPECT_EQ(updated(0.5), updated(1));
}

// Each rank updates its shard with the whole gradient: the first matrix is in three shards.
TYPED_TEST(AdafactorTest, ShardsHaveTheBitsOfTheWhole) {
  const Tensor whole = this->tensor(normal_column(kAllElements, 1));
  const Tensor gradients = this->tensor(gradient_of(1));
  const auto options = adafactor_options(true);
  const auto one = make_optimizer(*this->context_, {whole, gradients}, options, kMatrixParts);
  one->step(kUpdateRate);
  Column parts;
  for (int64_t begin = 0; begin < kAllElements; begin += kSquaresElements) {
    const ElementRange shard{begin, std::min(kAllElements, begin + kSquaresElements)};
    const Tensor parameters = this->tensor(normal_column(kAllElements, 1));
    const auto optimizer =
        make_optimizer(*this->context_, {parameters, this->tensor(gradient_of(1)), {}, {}, shard},
                       options, kMatrixParts);
    optimizer->step(kUpdateRate);
    const Column values = this->read(parameters);
    parts.insert(parts.end(), values.begin() + shard.begin, values.begin() + shard.end);
  }
  EXPECT_EQ(parts, this->read(whole));
}

TYPED_TEST(AdafactorTest, ASkippedUpdateChangesNothing) {
  const Tensor parameters = this->tensor(normal_column(kAllElements, 1));
  const Tensor gradients = this->tensor(gradient_of(1));
  const auto optimizer = make_optimizer(*this->context_, {parameters, gradients},
                                        adafactor_options(false), kMatrixParts);
  ScheduleOptions schedule;
  schedule.kind = ScheduleKind::constant;
  ClippedUpdate update(*this->context_, *optimizer, Schedule(schedule), 0);
  update.prepare(1, 1);
  const Column before = this->read(parameters);
  const Tensor bad =
      this->context_->scalar(std::numeric_limits<double>::quiet_NaN(), {1}, dtype_of<TypeParam>);
  update.run(bad, bad);
  EXPECT_EQ(this->read(parameters), before);
  for (const StateTensor& state : optimizer->states())
    EXPECT_EQ(this->read(state.tensor), Column(static_cast<size_t>(state.tensor.numel())));
  update.run(this->loss_, this->loss_);
  EXPECT_NE(this->read(parameters), before);
}

TEST(Adafactor, MomentsTakeARowAndAColumnOfEachMatrix) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({1024 * 512}, DType::f32),
               g = context->zeros(p.shape(), DType::f32);
  const std::vector<MatrixPart> matrix{{0, 1024, 512}};
  const auto optimizer =
      make_optimizer(*context, {p, g}, {.optimizer = OptimizerKind::adafactor}, matrix);
  EXPECT_EQ(optimizer->state_bytes(), (1024 + 512) * 4 + factored_buffer(1024, 512) * 8);
}

TEST(Adafactor, BadOptionsAreNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({16}, DType::f32), g = context->zeros({16}, DType::f32);
  const auto refused = [&](OptimizerOptions options, const char* message) {
    options.optimizer = OptimizerKind::adafactor;
    expect_error(ErrorCode::invalid_argument, message, [&] {
      make_optimizer(*context, {p, g}, options);
    });
  };
  for (const double rate : {-1.1, 0.1}) refused({.decay_rate = rate}, "decay_rate must be -1 to 0");
  for (const double threshold : {0.0, -1.0})
    refused({.clip_threshold = threshold}, "clip_threshold must be positive");
  for (const double epsilon : {1e-38, 0.0, 1.0})
    refused({.square_epsilon = epsilon}, "square_epsilon must be at least 1e-37 and below 1");
  for (const double epsilon : {0.0, 1.0})
    refused({.scale_epsilon = epsilon}, "scale_epsilon must be positive and below 1");
  refused({.beta1 = 0.5},
          "beta1 is for the optimizer adamw, muon, lion: adafactor does not have it");
}

}  // namespace
}  // namespace trafo
