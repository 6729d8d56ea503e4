// Training with a teacher: what the student learns, that a run resumes with the same bits, and what
// is refused. On a GPU with TRAFO_TEST_DEVICE=cuda as well.
#include <cmath>
#include <tuple>

#include "engine/compress/quantize.h"
#include "engine/io/byte_sink.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/distillation/distillation.h"
#include "engine/train/checkpoint/run_models.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/run/validation.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/gradient_check.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// Wider and deeper than its student.
ModelConfig teacher_config(Architecture architecture = Architecture::encoder_decoder) {
  ModelConfig config = tiny_config(architecture, 0.3);
  config.width = 24;
  config.heads = 3;
  config.decoder_layers = 2;
  return config;
}

TrainOptions taught(double weight = 0.5, double temperature = 2) {
  TrainOptions options = quick_options();
  options.teacher_weight = weight;
  options.teacher_temperature = temperature;
  return options;
}

// A file with a teacher, of an origin with this vocabulary.
std::filesystem::path write_teacher(const std::filesystem::path& path, const ModelConfig& config,
                                    uint64_t seed = 77, const std::string& vocabulary = "") {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config, seed);
  model->set_origin({"", vocabulary});
  save_model(path, *context, *model);
  return path;
}

// A student with its teacher, made anew.
struct TaughtProcess {
  std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model;
  std::shared_ptr<const FrozenModel> teacher;
  std::unique_ptr<TrainingRun> run;

  TaughtProcess(TrainingData data, const TrainOptions& options,
                const std::filesystem::path& teacher_file,
                const std::optional<std::filesystem::path>& directory = std::nullopt,
                const ModelConfig& config = tiny_config(), uint64_t model_seed = 5)
      : model(make_model(*context, config, model_seed)) {
    if (!teacher_file.empty()) teacher = load_frozen_model(*context, *model, teacher_file);
    data.frozen = teacher;
    run = std::make_unique<TrainingRun>(*context, *model, data, options, directory);
  }
  std::vector<std::byte> weights() const { return weight_bytes(*context, *model); }
};

std::vector<double> as_doubles(Context& context, const Tensor& tensor) {
  std::vector<double> all;
  for (const float value : context.values<float>(tensor)) all.push_back(static_cast<double>(value));
  return all;
}

// Mean over the labels of a batch that count: a decoder-lm is not taught its source.
double divergence(Context& context, const Model& student, const Model& teacher,
                  const Batch& batch) {
  const NoGrad no_grad(context);
  const auto x = as_doubles(context, student.logits(context, batch));
  const auto y = as_doubles(context, teacher.logits(context, batch));
  const std::vector<float> weights = batch.target_weights.defined()
                                         ? context.values<float>(batch.target_weights)
                                         : std::vector<float>(x.size() / kVocabulary, 1.0f);
  const size_t classes = kVocabulary;
  double total = 0, rows = 0;
  for (size_t t = 0; t < weights.size(); ++t) {
    if (weights[t] == 0) continue;
    rows += 1;
    double sum_x = 0, sum_y = 0;
    for (size_t v = 0; v < classes; ++v) {
      sum_x += std::exp(x[t * classes + v]);
      sum_y += std::exp(y[t * classes + v]);
    }
    for (size_t v = 0; v < classes; ++v) {
      const double log_p = x[t * classes + v] - std::log(sum_x);
      const double log_q = y[t * classes + v] - std::log(sum_y);
      total += std::exp(log_q) * (log_q - log_p);
    }
  }
  return total / rows;
}

class WordDistillation : public ::testing::TestWithParam<Architecture> {
 protected:
  ModelConfig config_ = tiny_config(GetParam());
  TrainingData data_ = copy_data(GetParam());
  TemporaryDirectory folder_;
  std::filesystem::path teacher_ =
      write_teacher(folder_ / "teacher.safetensors", teacher_config(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Architectures, WordDistillation,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

// From the teacher alone: no label says what to copy.
TEST_P(WordDistillation, AStudentLearnsTheDistributionOfItsTeacher) {
  TrainOptions options = quick_options();
  options.learning_rate = 1e-2;
  {
    Process trained(data_, options, std::nullopt, 1, teacher_config(GetParam()));
    trained.run->run({}, nullptr, 800);  // it must know more than that all tokens are as likely
    save_model(teacher_, *trained.context, *trained.model);
  }
  options.teacher_weight = 1;
  options.teacher_temperature = 2;
  config_.dropout = config_.attention_dropout = config_.ffn_dropout = 0;
  TaughtProcess student(data_, options, teacher_, std::nullopt, config_);
  Context& context = *student.context;
  const Model& teacher = *student.teacher->model;
  const auto before = weight_bytes(context, teacher);
  const Batch batch = upload(context, copy_batches(GetParam(), 1)[0], spec_of(config_),
                             student.model->parameters().dtype());
  const double apart = divergence(context, *student.model, teacher, batch);
  student.run->run({}, nullptr, 800);
  EXPECT_LT(divergence(context, *student.model, teacher, batch), 0.1 * apart);
  EXPECT_GT(apart, 0.5);
  EXPECT_EQ(weight_bytes(context, teacher), before);
}

TEST_P(WordDistillation, WithoutWeightTheBitsAreThoseWithoutATeacher) {
  const Reference reference = uncut(data_, quick_options(), 12, 1, config_);
  const auto bits = [&](const TrainOptions& options) {
    TaughtProcess process(data_, options, teacher_, std::nullopt, config_);
    process.run->run({}, nullptr, 12);
    return process.weights();
  };
  EXPECT_TRUE(bits(taught(0)) == reference.weights);
  const auto half = bits(taught(0.5));
  EXPECT_FALSE(half == reference.weights);
  EXPECT_FALSE(bits(taught(0.25)) == half);
  EXPECT_FALSE(bits(taught(0.5, 1)) == half);
  EXPECT_TRUE(bits(taught(0.5)) == half);
}

TEST_P(WordDistillation, AKilledRunEndsWithTheSameBits) {
  constexpr int64_t kUpdates = 17;
  TrainOptions options = taught();
  options.gradient_accumulation = 2;
  TaughtProcess uncut_run(data_, options, teacher_, std::nullopt, config_);
  uncut_run.run->run({}, nullptr, kUpdates);
  options.after_updates = kUpdates;
  for (const int64_t cut : {5, 9, 13}) {
    const TemporaryDirectory directory;
    {
      TaughtProcess process(data_, options, teacher_, directory.path(), config_);
      process.run->run({}, nullptr, cut);  // dropped without saving
    }
    TaughtProcess process(data_, options, teacher_, directory.path(), config_, 99);
    EXPECT_TRUE(process.run->resumed());
    process.run->run();
    EXPECT_TRUE(process.weights() == uncut_run.weights()) << "cut at " << cut;
  }
}

TEST_P(WordDistillation, ARunResumesWithItsTeacherOnly) {
  const TrainOptions options = taught();
  const TemporaryDirectory with, without;
  TaughtProcess(data_, options, teacher_, with.path(), config_).run->run({}, nullptr, 5);
  TaughtProcess(data_, options, {}, without.path(), config_).run->run({}, nullptr, 5);
  const auto other = write_teacher(folder_ / "other.safetensors", teacher_config(GetParam()), 78);
  const auto resume = [&](const TemporaryDirectory& directory, const std::filesystem::path& teacher,
                          const TrainOptions& given) {
    return [&, teacher, given] { TaughtProcess(data_, given, teacher, directory.path(), config_); };
  };
  using enum ErrorCode;
  expect_error(invalid_argument, "cannot be continued without the teacher of the run",
               resume(with, {}, options));
  expect_error(invalid_argument, "cannot be continued with another teacher: the checksum of its",
               resume(with, other, options));
  expect_error(invalid_argument, "cannot be continued with a teacher: the run has none",
               resume(without, teacher_, options));
  expect_error(invalid_argument, "teacher_weight was 0.5 and is 0.25 now",
               resume(with, teacher_, taught(0.25)));
  expect_error(invalid_argument, "teacher_temperature was 2.0 and is 3.0 now",
               resume(with, teacher_, taught(0.5, 3)));
  TaughtProcess resumed(data_, options, teacher_, with.path(), config_, 99);
  EXPECT_TRUE(resumed.run->resumed());
  // A teacher without weight counts as no teacher.
  const TemporaryDirectory weightless;
  TaughtProcess(data_, taught(0), teacher_, weightless.path(), config_).run->run({}, nullptr, 5);
  EXPECT_TRUE(TaughtProcess(data_, taught(0), {}, weightless.path(), config_).run->resumed());
}

TEST_P(WordDistillation, ACheckpointInMemoryKnowsTheTeacher) {
  TaughtProcess process(data_, taught(), teacher_, std::nullopt, config_);
  process.run->run({}, nullptr, 3);
  MemorySink sink;
  process.run->write_checkpoint(sink);
  const auto bytes = sink.take();
  TaughtProcess same(data_, taught(), teacher_, std::nullopt, config_, 99);
  same.run->read_checkpoint(bytes);
  EXPECT_TRUE(same.weights() == process.weights());
  TaughtProcess alone(data_, taught(), {}, std::nullopt, config_, 99);
  expect_error(ErrorCode::invalid_argument, "without the teacher",
               [&] { alone.run->read_checkpoint(bytes); });
}

TEST_P(WordDistillation, ValidationIsThePlainCrossEntropy) {
  TaughtProcess process(data_, taught(), teacher_, std::nullopt, config_);
  process.run->run({}, nullptr, 3);
  const auto result = process.run->validate();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->values[0],
            mean_cross_entropy(*process.context, *process.model, *data_.valid, kTokens));
}

// The gradient of the whole model by differences, and the same bits whatever is recomputed.
TEST_P(WordDistillation, GradientsInFloat64) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config_, 5, DType::f64);
  ParameterStore& parameters = model->parameters();
  const Distillation objective(
      0.1, {0.6, 2},
      frozen_model(*context, make_model(*context, teacher_config(GetParam()), 77, DType::f64)));
  const StepSums sums(*context, DType::f64);
  const Batch batch =
      upload(*context, copy_batches(GetParam(), 1)[0], spec_of(config_), DType::f64);
  const auto loss = [&](Recompute recompute = Recompute::none, bool fused = true) {
    context->set_fused_kernels(fused);
    accumulate_gradients(*context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
    return context->item(sums.loss());
  };
  const double at_rest = loss();
  EXPECT_NEAR(loss(Recompute::none, false), at_rest, 1e-10);
  expect_gradients(*context, parameters, loss);
}

TEST_P(WordDistillation, StepsAllocateNothingThatWasNotPlanned) {
  TaughtProcess process(data_, taught(), teacher_, std::nullopt, config_);
  process.run->run({}, nullptr, 8);
  Trainer trainer(*process.context, *process.model, taught(), {},
                  make_objective(taught(), process.teacher));
  for (const PackedBatchHost& batch : copy_batches(GetParam(), 8)) trainer.step({&batch, 1});
  EXPECT_EQ(trainer.unplanned_allocations(), 0);
}

TEST_P(WordDistillation, ThePlanCountsTheTeacher) {
  const ModelConfig wide = teacher_config(GetParam());
  const auto plan = [&](const ModelConfig* teacher, double weight) {
    const BatchSizes sizes{4, spec_of(config_).encoder ? 32 : 0, 32};
    return plan_training({DeviceKind::cpu, 0}, config_, DType::f32, taught(weight), sizes,
                         {.teacher = teacher});
  };
  const MemoryPlan without = plan(nullptr, 0.5), with = plan(&wide, 0.5), idle = plan(&wide, 0);
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto teacher = make_model(*context, wide, 1);
  const int64_t bytes = 4 * teacher->parameters().parameter_count();
  EXPECT_EQ(without.teacher, 0);
  EXPECT_GE(with.teacher, bytes);
  EXPECT_LT(with.teacher, 2 * bytes);  // no gradients and no moments
  EXPECT_EQ(idle.teacher, with.teacher);
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.gradients, without.gradients);
  EXPECT_EQ(with.optimizer, without.optimizer);
  EXPECT_GT(with.activations, without.activations);
  EXPECT_EQ(idle.activations, without.activations);
  EXPECT_GE(with.total, without.total + with.teacher);
  ModelConfig strange = wide;
  strange.vocabulary += 1;
  expect_error(ErrorCode::invalid_argument, "the teacher has the architecture",
               [&] { plan(&strange, 0.5); });
}

// The run's own plan refuses what does not fit, and names the teacher.
TEST_P(WordDistillation, ARunWithoutRoomForTheTeacherIsRefused) {
  TrainOptions options = taught();
  const int64_t alone =
      TaughtProcess(data_, options, {}, std::nullopt, config_).run->plan().memory.total;
  options.memory_limit = alone + 1000;
  EXPECT_TRUE(TaughtProcess(data_, options, {}, std::nullopt, config_).run);
  expect_error(ErrorCode::out_of_memory, ", teacher ",
               [&] { TaughtProcess(data_, options, teacher_, std::nullopt, config_); });
}

TEST_P(WordDistillation, TeachersThatDoNotFitAreNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config_, 5);
  using enum ErrorCode;
  const auto refused = [&](ErrorCode code, const std::string& text,
                           const std::filesystem::path& file) {
    expect_error(code, text, [&] { load_frozen_model(*context, *model, file); });
  };
  const bool lm = GetParam() == Architecture::decoder_lm;
  const auto path = folder_ / "strange.safetensors";
  refused(invalid_argument, "strange.safetensors has the architecture ",
          write_teacher(
              path, teacher_config(lm ? Architecture::encoder_decoder : Architecture::decoder_lm)));
  ModelConfig strange = teacher_config(GetParam());
  strange.vocabulary = 25;
  refused(invalid_argument, "has a vocabulary of 25 tokens, the student one of 24",
          write_teacher(path, strange));
  refused(not_found, "missing.safetensors", folder_ / "missing.safetensors");
  model->set_origin({"", "0badc0de"});
  refused(invalid_argument,
          "another vocabulary (checksum 12345678) than the student's (checksum 0badc0de)",
          write_teacher(path, teacher_config(GetParam()), 77, "12345678"));
  load_frozen_model(*context, *model,
                    write_teacher(path, teacher_config(GetParam()), 77, "0badc0de"));
  const auto coded = folder_ / "int8.safetensors";
  save_model(coded, *context, *load_model(*context, teacher_, DType::f32, true));
  expect_error(unsupported, "int8", [&] { load_frozen_model(*context, *model, coded); });
  // Sentences that the teacher has no positions for.
  ModelConfig narrow = teacher_config(GetParam());
  narrow.max_positions = 31;
  write_teacher(path, narrow);
  expect_error(invalid_argument, "has 31 positions",
               [&] { TaughtProcess(data_, taught(), path, std::nullopt, config_); });
  for (const TrainOptions& options : {taught(1.5), taught(-0.5), taught(0.5, 0), taught(0.5, -1)})
    EXPECT_EQ(code_of([&] { TaughtProcess(data_, options, teacher_, std::nullopt, config_); }),
              invalid_argument);
}

// An adapter of the teacher is part of what it teaches.
TEST_P(WordDistillation, ATeacherMayHaveAnAdapter) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  auto adapted = load_model(*context, teacher_);
  add_adapter(*context, *adapted, AdapterConfig{}, 1);
  for (ParamId id = 0; id < static_cast<ParamId>(adapted->parameters().count()); ++id) {
    if (!adapted->parameters().trainable(id)) continue;
    std::vector<float> values(static_cast<size_t>(element_count(adapted->parameters().shape(id))),
                              0.05f);
    adapted->parameters().set_value(*context, id, values.data(), values.size() * sizeof(float));
  }
  const auto path = folder_ / "adapted.safetensors";
  save_model(path, *context, *adapted);
  const auto student = make_model(*context, config_, 5);
  const auto taught_by = load_frozen_model(*context, *student, path);
  EXPECT_NE(taught_by->checksum, load_frozen_model(*context, *student, teacher_)->checksum);
  const Model& teacher = *taught_by->model;
  EXPECT_FALSE(teacher.parameters().any_trainable());
  const Batch batch =
      upload(*context, copy_batches(GetParam(), 1)[0], spec_of(config_), DType::f32);
  const NoGrad no_grad(*context);
  const auto expected = context->values<float>(adapted->logits(*context, batch));
  const auto got = context->values<float>(teacher.logits(*context, batch));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(WordDistillationFiles, APathMeansAFileAFolderOrARun) {
  const TemporaryDirectory folder;
  const auto file = write_teacher(folder / "model.safetensors", teacher_config());
  EXPECT_EQ(find_model_file(file), file);
  EXPECT_EQ(find_model_file(folder.path()), file);
  const TemporaryDirectory run;
  TaughtProcess process(copy_data(), taught(), file, run.path());
  process.run->run({}, nullptr, 7);
  process.run->save();
  EXPECT_EQ(find_model_file(run.path()), run_model_file(run.path(), RunModel::best));
  EXPECT_EQ(code_of([&] { find_model_file(folder / "missing"); }), ErrorCode::not_found);
}

TEST(WordDistillationQuantized, AStudentLearnsInQuantizationAwareTraining) {
  const TemporaryDirectory folder;
  const auto file = write_teacher(folder / "teacher.safetensors", teacher_config());
  TrainOptions options = taught();
  options.quantize_bits = 8;
  TaughtProcess process(copy_data(), options, file);
  const auto before = weight_bytes(*process.context, *process.teacher->model);
  process.run->run({}, nullptr, 5);
  EXPECT_EQ(weight_bytes(*process.context, *process.teacher->model), before);
  EXPECT_EQ(process.model->parameters().quantize_bits(), 8);
  EXPECT_EQ(process.teacher->model->parameters().quantize_bits(), 0);
}

// --- on a stand-in for an accelerator, and on a GPU, there with recorded graphs ---

struct TaughtDevice {
  const char* name;
  std::unique_ptr<Context> (*make)();
  DType dtype = DType::f32;
};

class WordDistillationOnDevice
    : public ::testing::TestWithParam<std::tuple<TaughtDevice, Architecture>> {
 protected:
  void SetUp() override {
    context_ = std::get<0>(GetParam()).make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  Architecture architecture() const { return std::get<1>(GetParam()); }
  DType dtype() const { return std::get<0>(GetParam()).dtype; }
  std::unique_ptr<Model> student(Context& context, DType dtype) const {
    return make_model(context, tiny_config(architecture()), 5, dtype);
  }
  std::unique_ptr<Objective> objective(Context& context, const Model& student) const {
    return make_objective(taught(), load_frozen_model(context, student, teacher_));
  }

  TemporaryDirectory folder_;
  std::filesystem::path teacher_;
  std::unique_ptr<Context> context_;

  WordDistillationOnDevice()
      : teacher_(write_teacher(folder_ / "teacher.safetensors",
                               teacher_config(std::get<1>(GetParam())))) {}
};

std::vector<std::tuple<TaughtDevice, Architecture>> taught_devices() {
  std::vector<std::tuple<TaughtDevice, Architecture>> all;
  for (const TaughtDevice& device :
       {TaughtDevice{"StandIn", &stand_in}, TaughtDevice{"Cuda", &cuda_context},
        TaughtDevice{"CudaBfloat16", &cuda_context, DType::bf16}})
    for (const Architecture each : {Architecture::encoder_decoder, Architecture::decoder_lm})
      all.emplace_back(device, each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Devices, WordDistillationOnDevice, ::testing::ValuesIn(taught_devices()),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) +
                                  (std::get<1>(instance.param) == Architecture::decoder_lm
                                       ? "DecoderLm"
                                       : "EncoderDecoder");
                         });

TEST_P(WordDistillationOnDevice, EqualsTheCpu) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  const auto here = student(*cpu, DType::f32), there = student(*context_, dtype());
  Trainer a(*context_, *there, taught(), {}, objective(*context_, *there));
  Trainer b(*cpu, *here, taught(), {}, objective(*cpu, *here));
  const double loss_error = dtype() == DType::bf16 ? 0.02 : 1e-5;
  const double norm_error = dtype() == DType::bf16 ? 0.1 : 1e-4;
  const auto batches = copy_batches(architecture(), 6);
  for (int round = 0; round < 3; ++round)  // the first is launched, the second recorded
    for (size_t i = 0; i + 2 <= batches.size(); i += 2) {
      const auto micro = std::span(batches).subspan(i, 2);
      const StepResult x = a.step(micro), y = b.step(micro);
      EXPECT_NEAR(x.loss, y.loss, loss_error * y.loss);
      EXPECT_NEAR(x.nll, y.nll, loss_error * y.nll);
      EXPECT_NEAR(x.grad_norm, y.grad_norm, norm_error * y.grad_norm);
    }
}

TEST_P(WordDistillationOnDevice, TwoRunsAreTheSameBits) {
  const auto bits = [&] {
    const auto model = student(*context_, dtype());
    Trainer trainer(*context_, *model, taught(), {}, objective(*context_, *model));
    const auto batches = copy_batches(architecture(), 4);
    for (int round = 0; round < 3; ++round)
      for (const PackedBatchHost& batch : batches) trainer.step({&batch, 1});
    return bytes_of(*context_, model->parameters().master());
  };
  EXPECT_TRUE(bits() == bits());
}

TEST_P(WordDistillationOnDevice, ThePlanIsWhatIsUsed) {
  const auto model = student(*context_, dtype());
  auto distillation = objective(*context_, *model);
  context_->backend().release_cached_memory();
  context_->backend().reset_peak_memory();
  TrainOptions options = taught();
  Trainer trainer(*context_, *model, options, {}, std::move(distillation));
  PackedBatchHost batch;  // three sentences of 5, 6 and 6 tokens a side
  batch.target_cu_seqlens = {0, 5, 11, 17};
  batch.target_positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  batch.target_in.assign(17, 4);
  batch.target_out = batch.target_in;
  const bool lm = architecture() == Architecture::decoder_lm;
  if (!lm) {
    batch.source_cu_seqlens = batch.target_cu_seqlens;
    batch.source_positions = batch.target_positions;
    batch.source_ids = batch.target_in;
  }
  trainer.step({&batch, 1});
  const ModelConfig teacher = teacher_config(architecture());
  const MemoryPlan plan = plan_training(context_->device(), tiny_config(architecture()), dtype(),
                                        options, {3, lm ? 0 : 17, 17}, {.teacher = &teacher});
  EXPECT_EQ(plan.activations, static_cast<int64_t>(context_->backend().arena_bytes()));
  // The stand-in's arena is rounded by the CPU's allocator.
  EXPECT_NEAR(static_cast<double>(plan.total),
              static_cast<double>(context_->backend().memory_stats().peak_bytes), 65536);
}

}  // namespace
}  // namespace trafo
