// Training of a part of a model: the frozen part costs no gradient work and does not change, and
// the others are trained as if it were not frozen.
#include <algorithm>
#include <map>

#include "engine/io/byte_sink.h"
#include "engine/memory/cached_blocks.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/support/errors.h"
#include "tests/support/model_forms.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// They differ in the names and connections of their parameters.
const char* const kFreezingForms[] = {"encdec", "encdec untied", "post-norm",
                                      "lm",     "lm untied",     "llama"};

std::vector<PackedBatchHost> batches_of(const ModelConfig& config, size_t count) {
  return copy_batches(config.architecture, count);
}

std::vector<std::byte> value_bytes(Context& context, const Model& model, ParamId id) {
  return bytes_of(context, model.parameters().value(id));
}

// Loss and gradients of one micro-batch.
struct Pass {
  double loss = 0;
  std::map<std::string, std::vector<std::byte>> gradients;  // of trainable parameters
};
Pass pass_of(Context& context, const ModelConfig& config, const std::vector<std::string>& frozen,
             Recompute recompute) {
  const auto model = make_model(context, config, 5);
  ParameterStore& parameters = model->parameters();
  for (const std::string& pattern : frozen) parameters.set_trainable(context, pattern, false);
  const LabelSmoothedCrossEntropy objective(0.1);
  const StepSums sums(context, parameters.dtype());
  const Batch batch = upload(context, batches_of(config, 1)[0], spec_of(config), DType::f32);
  accumulate_gradients(context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
  Pass pass{context.item(sums.loss()), {}};
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.trainable(id))
      pass.gradients[parameters.name(id)] = bytes_of(context, parameters.grad(id));
  }
  return pass;
}

// Each parameter alone: its op must leave out exactly its gradient. Tied embeddings are used in
// three places, and the output layer has its gradients made in the forward pass.
TEST(Freezing, GradientsOfTheOthersAreTheSameBits) {
  for (const char* form : kFreezingForms) {
    const ModelConfig config = form_of(form);
    for (const bool fused : {true, false}) {
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      context->set_fused_kernels(fused);
      const Pass whole = pass_of(*context, config, {}, Recompute::none);
      std::vector<std::vector<std::string>> cases;
      for (const auto& [name, gradient] : whole.gradients) cases.push_back({name});
      for (const char* pattern : {"decoder.*", "*embedding*", "*.weight", "*.1.*", "output*"}) {
        const auto matched =
            std::count_if(whole.gradients.begin(), whole.gradients.end(),
                          [&](const auto& each) { return matches_pattern(each.first, pattern); });
        if (matched > 0 && matched < std::ssize(whole.gradients)) cases.push_back({pattern});
      }
      if (config.architecture == Architecture::encoder_decoder)
        cases.push_back({"encoder.*", "*embedding.weight"});
      for (const auto& frozen : cases) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          if (!fused && recompute != Recompute::none) continue;
          const Pass part = pass_of(*context, config, frozen, recompute);
          ASSERT_EQ(part.loss, whole.loss) << form << " " << frozen[0];
          ASSERT_LT(part.gradients.size(), whole.gradients.size());
          for (const auto& [name, gradient] : part.gradients)
            ASSERT_TRUE(gradient == whole.gradients.at(name))
                << form << ": " << name << ", frozen " << frozen[0] << ", recompute "
                << static_cast<int>(recompute) << ", fused " << fused;
        }
      }
    }
  }
}

// Cost of a pass: kernels, GEMMs and the peak of memory.
struct Cost {
  int64_t launches = 0, gemms = 0, peak = 0;
};
class CountingAccelerator final : public Accelerator {
 public:
  void gemm(const GemmParams& params) override {
    ++gemms;
    Accelerator::gemm(params);
  }
  int64_t gemms = 0;
};
Cost cost_of(const ModelConfig& config, const std::vector<std::string>& frozen,
             Recompute recompute) {
  const auto device = std::make_shared<CountingAccelerator>();
  Context context(device);
  const auto model = make_model(context, config, 5);
  for (const std::string& pattern : frozen)
    model->parameters().set_trainable(context, pattern, false);
  const LabelSmoothedCrossEntropy objective(0.1);
  const StepSums sums(context, DType::f32);
  const Batch batch = upload(context, batches_of(config, 1)[0], spec_of(config), DType::f32);
  context.one(DType::f32);
  device->launches = device->gemms = 0;
  device->reset_peak_memory();
  const int64_t before = device->memory_stats().allocated_bytes;
  accumulate_gradients(context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
  return {device->launches, device->gemms, device->memory_stats().peak_bytes - before};
}

TEST(Freezing, AFrozenPrefixCostsItsForwardPassAlone) {
  ModelConfig config = form_of("encdec");
  config.encoder_layers = 6;
  config.decoder_layers = 1;
  const std::vector<std::string> encoder{"encoder.*", "embedding.weight"};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const Cost all = cost_of(config, {}, recompute), part = cost_of(config, encoder, recompute);
    // Four GEMMs a layer of the encoder forward; backward has eight, and recomputation repeats
    // up to four.
    const int64_t layers = config.encoder_layers;
    EXPECT_LE(part.gemms, all.gemms - (recompute == Recompute::full ? 12 : 8) * layers);
    EXPECT_LT(part.launches, all.launches - 5 * layers) << static_cast<int>(recompute);
    EXPECT_LT(part.peak, all.peak / (recompute == Recompute::none ? 2 : 1));
  }
  // A frozen suffix passes gradients on, without the gradients of its weights.
  const Cost all = cost_of(config, {}, Recompute::none);
  const Cost suffix = cost_of(config, {"decoder.*"}, Recompute::none);
  EXPECT_LE(suffix.gemms, all.gemms - 6);
  EXPECT_LT(suffix.peak, all.peak);
}

// A model with a part that is frozen, or that has factors of zero and is trained in vain.
struct Trained {
  std::map<std::string, std::vector<std::byte>> values, averages;
  std::vector<double> losses, norms;
};
enum class Rest { frozen, factors_of_zero };
Trained trained(Context& context, const ModelConfig& config, TrainOptions options,
                const std::vector<std::string>& patterns, Rest rest) {
  const auto model = make_model(context, config, 5);
  ParameterStore& parameters = model->parameters();
  for (const std::string& pattern : patterns) {
    if (rest == Rest::frozen)
      parameters.set_trainable(context, pattern, false);
    else
      parameters.set_factors(pattern, 0, 0);
  }
  Trainer trainer(context, *model, options);
  Trained result;
  const auto data = batches_of(config, 8);
  const auto micro = static_cast<size_t>(options.gradient_accumulation);
  for (size_t i = 0; i + micro <= data.size(); i += micro) {
    const StepResult step = trainer.step(std::span(data).subspan(i, micro));
    result.losses.push_back(step.loss);
    result.norms.push_back(step.grad_norm);
  }
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    result.values[parameters.name(id)] = value_bytes(context, *model, id);
  }
  MemorySink file;
  write_model(file, context, *model, trainer.ema_weights(), {});
  const auto bytes = file.take();
  const auto reader = SafetensorsReader::from_memory(bytes, "average");
  for (const TensorInfo& info : reader.tensors()) {
    auto& average = result.averages[info.name];
    average.resize(info.bytes);
    reader.read(info, average);
  }
  return result;
}

const std::vector<std::string> kEncoder{"encoder.*", "source_embedding.weight"};

TEST(Freezing, TrainsTheOthersBitForBitAndNothingElse) {
  const ModelConfig config = form_of("encdec untied");
  for (const bool accelerator : {false, true}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      for (const int64_t accumulation : {1, 2}) {
        TrainOptions options = quick_options();
        options.recompute = recompute;
        options.gradient_accumulation = accumulation;
        options.clip_norm = 0;  // a norm over fewer parameters clips otherwise
        options.weight_decay = 0.01;
        options.ema_alpha = 0.05;
        const auto run = [&](Rest rest) {
          std::unique_ptr<Context> context;
          if (accelerator) {
            context = std::make_unique<Context>(std::make_shared<StreamAccelerator>());
            context->set_graphs(false);
          } else {
            context = make_context({DeviceKind::cpu, 0}, 2);
          }
          return trained(*context, config, options, kEncoder, rest);
        };
        const Trained frozen = run(Rest::frozen), in_vain = run(Rest::factors_of_zero);
        EXPECT_EQ(frozen.losses, in_vain.losses);
        EXPECT_TRUE(frozen.values == in_vain.values);
        EXPECT_TRUE(frozen.averages == in_vain.averages);
        // The norm is of what is trained.
        for (size_t i = 0; i < frozen.norms.size(); ++i)
          EXPECT_LT(frozen.norms[i], in_vain.norms[i]);

        const auto context = make_context({DeviceKind::cpu, 0}, 1);
        const auto untrained = make_model(*context, config, 5);
        int changed = 0, kept = 0;
        for (const auto& [name, value] : frozen.values) {
          const ParamId id = untrained->parameters().find(name);
          const bool same = value == value_bytes(*context, *untrained, id);
          const bool is_frozen = std::any_of(
              kEncoder.begin(), kEncoder.end(),
              [&, &name = name](const auto& pattern) { return matches_pattern(name, pattern); });
          EXPECT_EQ(same, is_frozen) << name;
          ++(same ? kept : changed);
        }
        EXPECT_GT(kept, 10);
        EXPECT_GT(changed, 10);
      }
    }
  }
}

TEST(Freezing, EightBitStatesAreOfTheTrainableParametersAlone) {
  const ModelConfig config = form_of("encdec untied");
  TrainOptions options = quick_options();
  options.optimizer_states = OptimizerStates::eight_bit;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto whole = make_model(*context, config, 5);
  const int64_t all = Trainer(*context, *whole, options).optimizer_bytes();
  const auto model = make_model(*context, config, 5);
  for (const std::string& pattern : kEncoder)
    model->parameters().set_trainable(*context, pattern, false);
  std::map<std::string, std::vector<std::byte>> before;
  const ParameterStore& parameters = model->parameters();
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.trainable(id)) before[parameters.name(id)] = value_bytes(*context, *model, id);
  }
  Trainer trainer(*context, *model, options);
  EXPECT_LT(trainer.optimizer_bytes(), all / 4 * 3);
  const auto data = batches_of(config, 6);
  const double first = trainer.step(std::span(data).first(1)).loss;
  double last = first;
  for (int round = 0; round < 20; ++round) last = trainer.step(std::span(data).first(1)).loss;
  EXPECT_LT(last, 0.9 * first);
  for (const auto& [name, value] : before)
    EXPECT_TRUE(value == value_bytes(*context, *model, parameters.find(name))) << name;
}

// A process as in resume_test, with a frozen part.
struct FrozenProcess {
  std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  FrozenProcess(const TrainingData& data, const TrainOptions& options, const ModelConfig& config,
                const std::vector<std::string>& frozen,
                const std::optional<std::filesystem::path>& directory, uint64_t seed)
      : model(make_model(*context, config, seed)) {
    for (const std::string& pattern : frozen)
      model->parameters().set_trainable(*context, pattern, false);
    run = std::make_unique<TrainingRun>(*context, *model, data, options, directory);
  }
  // All parameters, in the order of the model.
  std::vector<std::vector<std::byte>> values() const {
    std::vector<std::vector<std::byte>> all;
    for (size_t i = 0; i < model->parameters().count(); ++i)
      all.push_back(value_bytes(*context, *model, static_cast<ParamId>(i)));
    return all;
  }
};

TEST(Freezing, AResumedRunEndsWithTheSameBits) {
  const ModelConfig config = form_of("encdec untied");
  const TrainingData data = copy_data();
  for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
    for (const double alpha : {0.0, 0.05}) {
      TrainOptions options = quick_options();
      options.optimizer_states = states;
      options.ema_alpha = alpha;
      options.weight_decay = 0.01;
      options.decay_norms_and_biases = alpha > 0;
      options.gradient_accumulation = 2;
      options.after_updates = 12;
      FrozenProcess uncut(data, options, config, kEncoder, std::nullopt, 5);
      uncut.run->run();
      const TemporaryDirectory directory;
      {
        FrozenProcess first(data, options, config, kEncoder, directory.path(), 5);
        first.run->run({}, nullptr, 6);
        first.run->save();
      }
      // From other initial weights: the frozen part's come from the checkpoint as well.
      FrozenProcess second(data, options, config, kEncoder, directory.path(), 99);
      EXPECT_TRUE(second.run->resumed());
      second.run->run();
      EXPECT_TRUE(second.values() == uncut.values());
      EXPECT_EQ(timeless(second.run->state()), timeless(uncut.run->state()));
    }
  }
}

TEST(Freezing, ARunContinuesWithWhatItHasFrozen) {
  const ModelConfig config = form_of("encdec untied");
  const TrainingData data = copy_data();
  const TrainOptions options = quick_options();
  for (const auto& [before, after, word] :
       {std::tuple{kEncoder, std::vector<std::string>{}, "was {\"frozen\":true}"},
        std::tuple{std::vector<std::string>{}, kEncoder, "is {\"frozen\":true} now"},
        std::tuple{kEncoder, std::vector<std::string>{"encoder.*"}, "source_embedding.weight"}}) {
    const TemporaryDirectory directory;
    {
      FrozenProcess first(data, options, config, before, directory.path(), 5);
      first.run->run({}, nullptr, 3);
      first.run->save();
    }
    expect_error(ErrorCode::invalid_argument, word, [&, &after = after] {
      FrozenProcess(data, options, config, after, directory.path(), 5);
    });
  }
  // Factors belong to a run as well.
  const TemporaryDirectory directory;
  {
    FrozenProcess first(data, options, config, {}, directory.path(), 5);
    first.run->save();
    first.run->run({}, nullptr, 1);
    first.run->save();
  }
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config, 5);
  model->parameters().set_factors("encoder.0.*", 0.5, 1);
  expect_error(ErrorCode::invalid_argument, "lr_factor",
               [&] { TrainingRun(*context, *model, data, options, directory.path()); });
}

TEST(Freezing, FilesHoldTheWholeModelAndTheStatesOfItsTrainablePart) {
  const ModelConfig config = form_of("encdec untied");
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config, 5);
  ParameterStore& parameters = model->parameters();
  for (const std::string& pattern : kEncoder) parameters.set_trainable(*context, pattern, false);
  Trainer trainer(*context, *model, quick_options());
  trainer.step(batches_of(config, 1));
  MemorySink weights, states;
  write_model(weights, *context, *model);
  trainer.optimizer_file().write(states);
  const auto weight_file = weights.take(), state_file = states.take();

  const auto reader = SafetensorsReader::from_memory(weight_file, "model");
  EXPECT_EQ(reader.tensors().size(), parameters.count());
  const auto loaded = load_model(*context, reader);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    EXPECT_TRUE(loaded->parameters().trainable(id));
    EXPECT_TRUE(value_bytes(*context, *loaded, id) == value_bytes(*context, *model, id));
  }
  // Into a frozen part as well.
  const auto other = make_model(*context, config, 99);
  other->parameters().set_trainable(*context, "decoder.*", false);
  load_weights(*context, reader, *other);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    EXPECT_TRUE(value_bytes(*context, *other, id) == value_bytes(*context, *model, id));
  }

  const auto moments = SafetensorsReader::from_memory(state_file, "optimizer");
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    for (const char* prefix : {"exp_avg.", "exp_avg_sq."})
      EXPECT_EQ(moments.find(prefix + parameters.name(id)) != nullptr, parameters.trainable(id));
  }
  // A trainer of the whole model does not take them for its own.
  const auto whole = make_model(*context, config, 5);
  Trainer all(*context, *whole, quick_options());
  expect_error(ErrorCode::corrupt_file, "lacks the tensor",
               [&] { all.restore(moments, trainer.state()); });
}

TEST(Freezing, ThePlanIsWhatTrainingTakes) {
  for (const char* form : {"encdec untied", "lm"}) {
    for (const OptimizerStates states : {OptimizerStates::float32, OptimizerStates::eight_bit}) {
      auto context = std::make_unique<Context>(std::make_shared<StreamAccelerator>());
      context->set_graphs(false);
      const ModelConfig config = form_of(form);
      TrainOptions options = quick_options();
      options.optimizer_states = states;
      options.ema_alpha = 0.1;
      options.weight_decay = 0.01;
      options.decay_norms_and_biases = false;  // the table of groups is counted too
      options.gradient_accumulation = 2;
      const auto model = make_model(*context, config, 5);
      model->parameters().set_trainable(*context, "*coder.0.*", false);
      context->backend().reset_peak_memory();
      Trainer trainer(*context, *model, options);
      const std::vector<PackedBatchHost> data = batches_of(config, 1);
      const std::vector<PackedBatchHost> micro{data[0], data[0]};
      trainer.step(micro);
      const BatchSizes sizes{static_cast<int64_t>(data[0].target_cu_seqlens.size()) - 1,
                             static_cast<int64_t>(data[0].source_ids.size()),
                             static_cast<int64_t>(data[0].target_in.size())};
      const MemoryPlan plan = plan_training(context->device(), config, DType::f32, options, sizes,
                                            {.like = &model->parameters()});
      const std::vector<std::string> pattern{"*coder.0.*"};
      const MemoryPlan named =
          plan_training(context->device(), config, DType::f32, options, sizes, {.frozen = pattern});
      EXPECT_EQ(named.total, plan.total);
      EXPECT_EQ(named.gradients, plan.gradients);
      EXPECT_EQ(named.activations, plan.activations);
      const MemoryPlan whole = plan_training(context->device(), config, DType::f32, options, sizes);
      EXPECT_EQ(plan.optimizer, trainer.optimizer_bytes());
      EXPECT_EQ(plan.gradients, static_cast<int64_t>(model->parameters().flat_grad().bytes()));
      EXPECT_LT(plan.gradients, whole.gradients);
      EXPECT_LT(plan.optimizer, whole.optimizer);
      EXPECT_LT(plan.activations, whole.activations);
      const auto held = static_cast<int64_t>(
          CachedBlocks::rounded(static_cast<int64_t>(context->backend().arena_bytes())));
      EXPECT_GE(plan.activations, static_cast<int64_t>(context->backend().arena_bytes()));
      EXPECT_NEAR(static_cast<double>(plan.total - plan.activations),
                  static_cast<double>(context->backend().memory_stats().peak_bytes - held), 2048);
    }
  }
}

TEST(Freezing, WeightDecayOfNormsAndBiasesCanBeLeftOut) {
  const ModelConfig config = form_of("encdec untied");
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto after_a_step = [&](double decay, bool norms_and_biases) {
    const auto model = make_model(*context, config, 5);
    TrainOptions options = quick_options();
    options.weight_decay = decay;
    options.decay_norms_and_biases = norms_and_biases;
    Trainer trainer(*context, *model, options);
    trainer.step(batches_of(config, 1));
    std::map<std::string, std::vector<std::byte>> values;
    for (size_t i = 0; i < model->parameters().count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      values[model->parameters().name(id)] = value_bytes(*context, *model, id);
    }
    return values;
  };
  const auto none = after_a_step(0, true), all = after_a_step(0.5, true),
             matrices = after_a_step(0.5, false);
  const auto model = make_model(*context, config, 5);
  int vectors = 0;
  for (const auto& [name, value] : matrices) {
    const bool matrix = model->parameters().shape(model->parameters().find(name)).rank() > 1;
    EXPECT_TRUE(value == (matrix ? all : none).at(name)) << name;
    vectors += !matrix && none.at(name) != all.at(name);
  }
  EXPECT_GT(vectors, 10);
}

TEST(Freezing, WhatATrainerUsesIsNotFrozen) {
  const ModelConfig config = form_of("lm");
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config, 5);
  ParameterStore& parameters = model->parameters();
  {
    Trainer trainer(*context, *model, quick_options());
    expect_error(ErrorCode::invalid_argument, "in use",
                 [&] { parameters.set_trainable(*context, "decoder.*", false); });
    expect_error(ErrorCode::invalid_argument, "in use",
                 [&] { parameters.set_factors("decoder.*", 0.5, 1); });
    trainer.step(batches_of(config, 1));
  }
  EXPECT_GT(parameters.set_trainable(*context, "decoder.*", false), 0);
  parameters.set_trainable(*context, "*", false);
  expect_error(ErrorCode::invalid_argument, "nothing to train",
               [&] { Trainer(*context, *model, quick_options()); });
}

}  // namespace
}  // namespace trafo
