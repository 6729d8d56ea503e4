// The step level: loss, accumulation, bad updates, errors.
#include "engine/train/step/trainer.h"

#include <cmath>
#include <limits>

#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/train/run/validation.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

class TrainerTest : public ::testing::TestWithParam<Architecture> {
 protected:
  std::vector<PackedBatchHost> batches(size_t count) const {
    return copy_batches(GetParam(), count);
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
};

INSTANTIATE_TEST_SUITE_P(Architectures, TrainerTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

TEST_P(TrainerTest, LossFallsAndTheTaskIsLearned) {
  ModelConfig config = tiny_config(GetParam(), 0);
  const auto model = make_model(*context_, config, 5);
  TrainOptions options = quick_options();
  options.learning_rate = 1e-2;
  options.warmup = 20;
  options.label_smoothing = 0;
  Trainer trainer(*context_, *model, options);
  const auto data = batches(4);
  double first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    const StepResult result = trainer.step(std::span(data).subspan(static_cast<size_t>(i % 4), 1));
    EXPECT_FALSE(result.skipped);
    EXPECT_EQ(result.update, i + 1);
    EXPECT_DOUBLE_EQ(result.learning_rate, trainer.learning_rate(i + 1));
    EXPECT_NEAR(result.loss, result.nll, 1e-5);
    if (i == 0) first = result.loss;
    last = result.loss;
  }
  EXPECT_NEAR(first, std::log(kVocabulary), 1.5);
  EXPECT_LT(last, first / 4);
}

// The factors of a parameter hold to its last element, also where its size is no multiple of the
// elements that share a factor: norms and biases do not decay, matrices do.
TEST_P(TrainerTest, EveryElementHasTheFactorsOfItsGroup) {
  ModelConfig config = tiny_config(GetParam(), 0);
  config.width = 20;
  config.ffn_width = 35;
  const auto data = batches(1);
  const auto updated = [&](double weight_decay) {
    auto model = make_model(*context_, config, 5);
    TrainOptions options = quick_options();
    options.weight_decay = weight_decay;
    options.decay_norms_and_biases = false;
    Trainer trainer(*context_, *model, options);
    trainer.step(data);
    return model;
  };
  const auto start = make_model(*context_, config, 5), plain = updated(0), decayed = updated(0.5);
  const ParameterStore& parameters = plain->parameters();
  size_t odd = 0;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const auto values = [&](const Model& model) {
      return context_->values<float>(model.parameters().value(id));
    };
    const std::vector<float> first = values(*start), a = values(*plain), b = values(*decayed);
    const bool decays = parameters.shape(id).rank() == 2;
    odd += a.size() % 16 != 0 ? 1u : 0u;
    for (size_t k = 0; k < a.size(); ++k) {
      if (decays && std::abs(first[k]) < 1e-2f) continue;  // too small for a difference
      EXPECT_EQ(a[k] != b[k], decays) << parameters.name(id) << " " << k;
    }
  }
  EXPECT_GT(odd, 4u);
}

TEST_P(TrainerTest, AccumulatedMicroBatchesEqualOneBatch) {
  const ModelConfig config = tiny_config(GetParam(), 0);
  const auto whole = make_model(*context_, config, 5), parts = make_model(*context_, config, 5);
  const TrainOptions options = quick_options();
  const auto halves = batches(2);
  // The second half's tokens after the first half's.
  PackedBatchHost both = halves[0];
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const auto append_bounds = [](std::vector<int32_t>& to, const std::vector<int32_t>& from) {
    const int32_t shift = to.empty() ? 0 : to.back();
    for (size_t i = 1; i < from.size(); ++i) to.push_back(from[i] + shift);
  };
  append(both.source_ids, halves[1].source_ids);
  append(both.source_positions, halves[1].source_positions);
  append_bounds(both.source_cu_seqlens, halves[1].source_cu_seqlens);
  append(both.target_in, halves[1].target_in);
  append(both.target_out, halves[1].target_out);
  append(both.target_positions, halves[1].target_positions);
  append_bounds(both.target_cu_seqlens, halves[1].target_cu_seqlens);
  append(both.target_weights, halves[1].target_weights);

  Trainer one(*context_, *whole, options), two(*context_, *parts, options);
  const StepResult a = one.step(std::span<const PackedBatchHost>(&both, 1));
  const StepResult b = two.step(halves);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.target_tokens, b.target_tokens);
  EXPECT_EQ(a.source_tokens, b.source_tokens);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  EXPECT_NEAR(a.nll, b.nll, 1e-6);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5);
  EXPECT_EQ(two.state().forward_passes, 2u);
  EXPECT_EQ(two.state().update, 1);
}

TEST_P(TrainerTest, AccumulatedGradientsEqualOneBatchInDoublePrecision) {
  const ModelConfig config = tiny_config(GetParam(), 0);
  const auto once = make_model(*context_, config, 5, DType::f64);
  const auto twice = make_model(*context_, config, 5, DType::f64);
  TrainOptions options = quick_options();
  options.clip_norm = 0;
  const auto data = batches(1);
  // The same batch twice has the same mean gradient as once.
  const std::vector<PackedBatchHost> repeated{data[0], data[0]};
  Trainer one(*context_, *once, options), two(*context_, *twice, options);
  for (int i = 0; i < 5; ++i) {
    const StepResult a = one.step(data), b = two.step(repeated);
    EXPECT_NEAR(a.loss, b.loss, 1e-9);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6);
  }
  const auto a = context_->values<double>(once->parameters().flat().detach());
  const auto b = context_->values<double>(twice->parameters().flat().detach());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
}

TEST_P(TrainerTest, BadUpdatesAreSkippedCountedAndFinallyAnError) {
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  TrainOptions options = quick_options();
  options.max_non_finite_steps = 3;
  Trainer trainer(*context_, *model, options);
  const auto data = batches(1);
  trainer.step(data);

  const ParamId id = 0;
  const auto good = bytes_of(*context_, model->parameters().value(id));
  const auto poison = [&](float with) {
    const std::vector<float> bad(good.size() / sizeof(float), with);
    model->parameters().set_value(*context_, id, bad.data(), good.size());
  };
  int64_t skipped = 0;
  for (const float with :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    poison(with);
    const auto before = weight_bytes(*context_, *model);
    const StepResult result = trainer.step(data);
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.update, trainer.state().update);
    EXPECT_EQ(weight_bytes(*context_, *model), before);
    EXPECT_EQ(trainer.state().skipped, ++skipped);
    EXPECT_EQ(trainer.state().skipped_in_a_row, 1);
    // A good update ends the row of bad ones.
    model->parameters().set_value(*context_, id, good.data(), good.size());
    EXPECT_FALSE(trainer.step(data).skipped);
    EXPECT_EQ(trainer.state().skipped_in_a_row, 0);
  }

  poison(std::numeric_limits<float>::infinity());
  const auto before = weight_bytes(*context_, *model);
  EXPECT_TRUE(trainer.step(data).skipped);
  EXPECT_TRUE(trainer.step(data).skipped);
  const Error error = error_of([&] { trainer.step(data); });
  EXPECT_EQ(error.code(), ErrorCode::non_finite);
  EXPECT_TRUE(mentions(error, "3 times in a row")) << error.what();
  EXPECT_EQ(weight_bytes(*context_, *model), before);
  EXPECT_EQ(trainer.state().skipped, 5);
  EXPECT_EQ(trainer.state().update, 3);
}

TEST_P(TrainerTest, ASkippedUpdateLeavesNoTraceInTheMoments) {
  // Both trainers see the same good batches under the same dropout numbers; one has a bad update
  // in between.
  const ModelConfig config = tiny_config(GetParam(), 0);
  const auto calm = make_model(*context_, config, 5), shaken = make_model(*context_, config, 5);
  const TrainOptions options = quick_options();
  Trainer a(*context_, *calm, options), b(*context_, *shaken, options);
  const auto data = batches(3);
  for (size_t i = 0; i < 3; ++i) {
    a.step(std::span(data).subspan(i, 1));
    const Tensor& value = shaken->parameters().value(0);
    const auto good = bytes_of(*context_, value);
    const std::vector<float> bad(static_cast<size_t>(value.numel()),
                                 std::numeric_limits<float>::quiet_NaN());
    shaken->parameters().set_value(*context_, 0, bad.data(), bad.size() * sizeof(float));
    EXPECT_TRUE(b.step(std::span(data).subspan(i, 1)).skipped);
    shaken->parameters().set_value(*context_, 0, good.data(), good.size());
    EXPECT_FALSE(b.step(std::span(data).subspan(i, 1)).skipped);
  }
  EXPECT_EQ(weight_bytes(*context_, *calm), weight_bytes(*context_, *shaken));
}

TEST_P(TrainerTest, AFailedStepChangesNothing) {
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  const auto untouched = make_model(*context_, tiny_config(GetParam()), 5);
  const TrainOptions options = quick_options();
  Trainer trainer(*context_, *model, options), reference(*context_, *untouched, options);
  auto data = batches(2);
  // The first micro-batch is fine, the second has a label outside the vocabulary.
  auto broken = data;
  broken[1].target_out[0] = kVocabulary;
  for (int i = 0; i < 3; ++i) {
    const Error error = error_of([&] { trainer.step(broken); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(trainer.state(), reference.state());
    // Whoever computes gradients by hand next must not find the first micro-batch's.
    for (size_t id = 0; id < model->parameters().count(); ++id)
      EXPECT_FALSE(grad_of(model->parameters().value(static_cast<ParamId>(id))).defined()) << id;
    trainer.step(data);
    reference.step(data);
  }
  EXPECT_EQ(weight_bytes(*context_, *model), weight_bytes(*context_, *untouched));
}

TEST_P(TrainerTest, BatchesThatCannotBeAreRefused) {
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  Trainer trainer(*context_, *model, quick_options());
  EXPECT_EQ(error_of([&] { trainer.step(std::span<const PackedBatchHost>()); }).code(),
            ErrorCode::invalid_argument);
  auto data = batches(1);
  data[0].target_weights.assign(data[0].target_in.size(), 0.0f);
  const Error error = error_of([&] { trainer.step(data); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "at least one label")) << error.what();

  data = batches(1);
  data[0].target_positions.pop_back();
  EXPECT_EQ(error_of([&] { trainer.step(data); }).code(), ErrorCode::shape_mismatch);
  data = batches(1);
  data[0].target_cu_seqlens.back() += 1;
  EXPECT_EQ(error_of([&] { trainer.step(data); }).code(), ErrorCode::invalid_argument);
}

TEST_P(TrainerTest, DeviceBatchesGiveTheSameBits) {
  const auto a = make_model(*context_, tiny_config(GetParam()), 5);
  const auto b = make_model(*context_, tiny_config(GetParam()), 5);
  Trainer from_host(*context_, *a, quick_options()), from_device(*context_, *b, quick_options());
  const auto data = batches(2);
  from_host.step(data);
  const std::vector<Batch> uploaded{upload(*context_, data[0], a->spec(), DType::f32),
                                    upload(*context_, data[1], a->spec(), DType::f32)};
  from_device.step(uploaded);
  EXPECT_EQ(weight_bytes(*context_, *a), weight_bytes(*context_, *b));
}

TEST_P(TrainerTest, CrossEntropyIsMeasuredWithoutDropoutAndSmoothing) {
  const auto model = make_model(*context_, tiny_config(GetParam(), 0.5), 5);
  const auto corpus = copy_corpus(GetParam(), 20, 2);
  const double once = mean_cross_entropy(*context_, *model, *corpus, kTokens);
  EXPECT_EQ(once, mean_cross_entropy(*context_, *model, *corpus, kTokens));
  EXPECT_NEAR(once, std::log(kVocabulary), 1.0);
  // Another way to cut the corpus into batches measures the same.
  const auto other = copy_corpus(GetParam(), 20, 2, 25);
  EXPECT_NEAR(once, mean_cross_entropy(*context_, *model, *other, kTokens), 1e-5);
}

TEST_P(TrainerTest, AModelFileIsEnoughToLoadTheModel) {
  const TemporaryDirectory directory;
  const auto model = make_model(*context_, tiny_config(GetParam()), 5);
  save_model(directory / "m.safetensors", *context_, *model, {{"note", "hello"}});
  const auto loaded = load_model(*context_, directory / "m.safetensors");
  EXPECT_EQ(loaded->config(), model->config());
  EXPECT_EQ(weight_bytes(*context_, *loaded), weight_bytes(*context_, *model));
  save_model(directory / "again.safetensors", *context_, *loaded, {{"note", "hello"}});
  EXPECT_EQ(slurp(directory / "m.safetensors"), slurp(directory / "again.safetensors"));
}

TEST(TrainOptionsTest, ErrorsNameFieldAndRange) {
  const auto refused = [](auto change, const char* text) {
    TrainOptions options;
    change(options);
    const Error error = error_of([&] { validate(options); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  validate(TrainOptions{});
  refused([](TrainOptions& o) { o.learning_rate = 0; }, "learning_rate must be above 0");
  refused([](TrainOptions& o) { o.learning_rate = NAN; }, "learning_rate");
  refused([](TrainOptions& o) { o.label_smoothing = 1; }, "label_smoothing must be at least 0");
  refused([](TrainOptions& o) { o.clip_norm = -1; }, "clip_norm");
  refused([](TrainOptions& o) { o.beta2 = 1; }, "beta2");
  refused([](TrainOptions& o) { o.gradient_accumulation = 0; },
          "gradient_accumulation must be 1 to");
  refused([](TrainOptions& o) { o.optimizer_states = static_cast<OptimizerStates>(2); },
          "optimizer_states must be 0 (fp32) or 1 (8bit), got 2");
  refused([](TrainOptions& o) { o.keep_last = 0; }, "keep_last");
  refused([](TrainOptions& o) { o.valid_metrics = {"rouge"}; }, "rouge");
  refused([](TrainOptions& o) { o.valid_metrics = {}; }, "valid_metrics is empty");
  refused([](TrainOptions& o) { o.valid_metrics = {"bleu", "bleu"}; }, "twice");
  refused([](TrainOptions& o) { o.save_freq.value = -1; }, "save_freq");
  refused([](TrainOptions& o) { o.schedule = ScheduleKind::cosine; }, "total");
  refused([](TrainOptions& o) { o.warmup = 0; }, "warmup");
}

TEST(PeriodTest, ReadsCountsWithUnits) {
  EXPECT_EQ(parse_period("500u"), (Period{500, PeriodUnit::updates}));
  EXPECT_EQ(parse_period("500"), (Period{500, PeriodUnit::updates}));
  EXPECT_EQ(parse_period("2Mt"), (Period{2'000'000, PeriodUnit::tokens}));
  EXPECT_EQ(parse_period("10kt"), (Period{10'000, PeriodUnit::tokens}));
  EXPECT_EQ(parse_period("3e"), (Period{3, PeriodUnit::epochs}));
  EXPECT_EQ(parse_period("0"), (Period{0, PeriodUnit::updates}));
  EXPECT_EQ(to_string(parse_period("7Gt")), "7000000000t");
  for (const char* text : {"", "u", "-1u", "5x", "5ux", "5 u", "1.5e", "99999999999999999999u",
                           "9999999999999999Gt", "kt"})
    EXPECT_EQ(error_of([&] { parse_period(text); }).code(), ErrorCode::invalid_argument) << text;
}

TEST(PeriodTest, IsDueWhenAMultipleIsPassed) {
  const Period updates{5, PeriodUnit::updates}, tokens{100, PeriodUnit::tokens};
  EXPECT_FALSE(is_due(updates, {3, 0, 0}, {4, 0, 0}));
  EXPECT_TRUE(is_due(updates, {4, 0, 0}, {5, 0, 0}));
  EXPECT_FALSE(is_due(updates, {5, 0, 0}, {5, 40, 1}));
  EXPECT_TRUE(is_due(tokens, {0, 99, 0}, {1, 340, 0}));
  EXPECT_FALSE(is_due(tokens, {1, 340, 0}, {2, 399, 0}));
  EXPECT_TRUE(is_due({1, PeriodUnit::epochs}, {9, 0, 0}, {10, 0, 1}));
  EXPECT_FALSE(is_due({0, PeriodUnit::updates}, {0, 0, 0}, {1, 1, 1}));
}

}  // namespace
}  // namespace trafo
