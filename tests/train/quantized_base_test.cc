// QLoRA: a frozen base in few bits beside an adapter that is trained. On the CPU, and where it
// says so on a GPU with TRAFO_TEST_DEVICE=cuda.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "engine/decode/packing.h"
#include "engine/decode/search.h"
#include "engine/formats/host_model.h"
#include "engine/formats/peft/peft.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/train/checkpoint/average.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/gradient_check.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr BasePrecision kBases[] = {BasePrecision::nf4, BasePrecision::int8, BasePrecision::int4};
const char* const kBaseForms[] = {"encdec post-norm", "gpt2", "llama untied"};
const AdapterConfig kBaseAdapter{.rank = 3, .alpha = 6};

ModelConfig base_form(std::string_view form, BasePrecision precision, double dropout = 0.1) {
  ModelConfig config = form_of(form, 2, dropout);
  config.base_precision = precision;
  return config;
}

// The stored bytes of every parameter.
std::vector<std::vector<std::byte>> stored_bytes(Context& context, const Model& model) {
  std::vector<std::vector<std::byte>> all;
  const ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
    all.push_back(bytes_of(context, parameters.stored(id)));
  return all;
}

std::vector<std::byte> value_bytes(Context& context, const ParameterStore& parameters, ParamId id) {
  std::vector<std::byte> bytes(static_cast<size_t>(element_count(parameters.shape(id))) *
                               dtype_size(parameters.master().dtype()));
  parameters.get_value(context, id, bytes.data(), bytes.size());
  return bytes;
}

std::vector<double> base_logits(Context& context, const Model& model) {
  const NoGrad no_grad(context);
  const Batch batch = upload(context, copy_batches(model.spec().architecture, 1)[0], model.spec(),
                             model.parameters().dtype());
  return to_doubles(context, model.logits(context, batch));
}

double difference_of(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// A model in floating point whose matrices have the dequantized values of a model in few bits.
std::unique_ptr<Model> dequantized_model(Context& context, const Model& coded) {
  ModelConfig config = coded.config();
  config.base_precision = BasePrecision::none;
  auto model = make_model(context, config, 1, coded.parameters().dtype());
  for (ParamId id = 0; id < static_cast<ParamId>(model->parameters().count()); ++id) {
    const auto values = value_bytes(context, coded.parameters(), id);
    model->parameters().set_value(context, id, values.data(), values.size());
  }
  return model;
}

TEST(QuantizedBase, HasCodesInLinearLayersAndFreezesTheRest) {
  for (const BasePrecision precision : kBases) {
    for (const char* form : kBaseForms) {
      SCOPED_TRACE(concat(enum_name(precision), " ", form));
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      const auto exact = make_model(*context, form_of(form), 5);
      const auto model = make_model(*context, base_form(form, precision), 5);
      ParameterStore& parameters = model->parameters();
      EXPECT_FALSE(parameters.any_trainable());
      for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
        SCOPED_TRACE(parameters.name(id));
        EXPECT_EQ(parameters.is_coded(id), parameters.prunable(id));
        const auto values = value_bytes(*context, exact->parameters(), id);
        if (!parameters.is_coded(id)) {
          EXPECT_EQ(value_bytes(*context, parameters, id), values);
          continue;
        }
        EXPECT_EQ(parameters.codes(*context, id), parameters.encoded(id, values.data()));
        EXPECT_LT(parameters.stored(id).bytes(), values.size() / 3);
        expect_error(ErrorCode::unsupported, "has no float values", [&] { parameters.value(id); });
        expect_error(ErrorCode::unsupported, "is frozen in",
                     [&] { parameters.set_trainable(*context, parameters.name(id), true); });
      }
      // It computes as the model with the dequantized values.
      EXPECT_LT(difference_of(base_logits(*context, *model),
                              base_logits(*context, *dequantized_model(*context, *model))),
                1e-5);
      expect_error(ErrorCode::invalid_argument, "every parameter of the model is frozen",
                   [&] { Trainer(*context, *model, quick_options()); });
    }
  }
}

TEST(QuantizedBase, GradientsAreThoseOfCentralDifferences) {
  for (const BasePrecision precision : kBases) {
    for (const char* form : kBaseForms) {
      SCOPED_TRACE(concat(enum_name(precision), " ", form));
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      const auto model = make_model(*context, base_form(form, precision), 5, DType::f64);
      add_adapter(*context, *model, kBaseAdapter, 4);
      ParameterStore& parameters = model->parameters();
      // Norms and biases may be trained beside the adapter.
      for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
        if (parameters.shape(id).rank() == 1)
          parameters.set_trainable(*context, parameters.name(id), true);
        if (!parameters.name(id).ends_with(".lora_B")) continue;
        std::vector<double> values(static_cast<size_t>(element_count(parameters.shape(id))));
        PhiloxStream random(4, static_cast<uint64_t>(id));
        for (double& value : values) value = random.uniform(-0.3, 0.3);
        parameters.set_value(*context, id, values.data(), values.size() * sizeof(double));
      }
      const LabelSmoothedCrossEntropy objective(0.1);
      const StepSums sums(*context, DType::f64);
      const Batch batch = upload(*context, copy_batches(model->spec().architecture, 1)[0],
                                 model->spec(), DType::f64);
      const auto loss = [&](Recompute recompute = Recompute::none) {
        accumulate_gradients(*context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
        return context->item(sums.loss());
      };
      EXPECT_GT(expect_gradients(*context, parameters, loss, true), 1e-3);
    }
  }
}

struct BasePlace {
  const char* name;
  std::unique_ptr<Context> (*make)();
  DType dtype;
  double bound;  // of the difference of the losses
};

class QuantizedBaseOn : public ::testing::TestWithParam<BasePlace> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, QuantizedBaseOn,
                         ::testing::Values(BasePlace{"Cpu",
                                                     [] {
                                                       return make_context({DeviceKind::cpu, 0}, 1);
                                                     },
                                                     DType::f32, 1e-5},
                                           BasePlace{"Cuda", &cuda_context, DType::f32, 1e-4},
                                           BasePlace{"CudaBfloat16", &cuda_context, DType::bf16,
                                                     2e-2}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(QuantizedBaseOn, TrainsAsOverTheDequantizedWeights) {
  for (const BasePrecision precision : kBases) {
    for (const char* form : kBaseForms) {
      SCOPED_TRACE(concat(enum_name(precision), " ", form));
      TrainOptions options = quick_options();
      options.learning_rate = 0.02;
      const auto model = make_model(*context_, base_form(form, precision), 5, GetParam().dtype);
      const auto floats = dequantized_model(*context_, *model);
      for (Model* const each : {model.get(), floats.get()})
        add_adapter(*context_, *each, kBaseAdapter, 4);
      const size_t of_base = stored_bytes(*context_, *floats).size() -
                             2 * adapter_sites(*model, *model->adapter()).size();
      const auto before = stored_bytes(*context_, *model);
      Trainer coded_trainer(*context_, *model, options), float_trainer(*context_, *floats, options);
      const auto data = copy_batches(model->config().architecture, 1);
      double first = 0, last = 0;
      for (int i = 0; i < 40; ++i) {
        last = coded_trainer.step(std::span(data)).loss;
        const double other = float_trainer.step(std::span(data)).loss;
        ASSERT_NEAR(last, other, GetParam().bound * other) << i;
        if (i == 0) first = last;
      }
      EXPECT_LT(last, 0.98 * first);
      const auto after = stored_bytes(*context_, *model);
      for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i] == before[i], i < of_base) << i;
      EXPECT_EQ(coded_trainer.unplanned_allocations(), 0);
      // Frozen values of fewer bytes, and a plan that has them.
      const BatchSizes sizes{static_cast<int64_t>(data[0].target_cu_seqlens.size()) - 1,
                             static_cast<int64_t>(data[0].source_ids.size()),
                             static_cast<int64_t>(data[0].target_in.size())};
      const MemoryPlan like = plan_training(context_->device(), model->config(), GetParam().dtype,
                                            options, sizes, {.like = &model->parameters()});
      const MemoryPlan plan = plan_training(context_->device(), model->config(), GetParam().dtype,
                                            options, sizes, {.adapter = &kBaseAdapter});
      EXPECT_EQ(plan.total, like.total);
      EXPECT_EQ(plan.optimizer, coded_trainer.optimizer_bytes());
      const MemoryPlan whole = plan_training(context_->device(), floats->config(), GetParam().dtype,
                                             options, sizes, {.adapter = &kBaseAdapter});
      EXPECT_LT(plan.weights, whole.weights);
    }
  }
}

struct BaseProcess {
  std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  BaseProcess(const TrainingData& data, const TrainOptions& options, BasePrecision precision,
              const std::optional<std::filesystem::path>& directory, uint64_t seed)
      : model(make_model(*context, base_form("encdec post-norm", precision), seed)) {
    add_adapter(*context, *model, kBaseAdapter, seed);
    run = std::make_unique<TrainingRun>(*context, *model, data, options, directory);
  }
};

TEST(QuantizedBase, AResumedRunEndsWithTheSameBits) {
  const TrainingData data = copy_data();
  for (const BasePrecision precision : kBases) {
    for (const double alpha : {0.0, 0.05}) {
      SCOPED_TRACE(concat(enum_name(precision), " ", alpha));
      TrainOptions options = quick_options();
      options.ema_alpha = alpha;
      options.after_updates = 12;
      BaseProcess uncut(data, options, precision, std::nullopt, 5);
      uncut.run->run();
      const TemporaryDirectory directory;
      {
        BaseProcess first(data, options, precision, directory.path(), 5);
        first.run->run({}, nullptr, 6);
        first.run->save();
      }
      // From other initial weights: the codes come from the checkpoint as well.
      {
        BaseProcess second(data, options, precision, directory.path(), 99);
        EXPECT_TRUE(second.run->resumed());
        second.run->run();
        EXPECT_EQ(stored_bytes(*second.context, *second.model),
                  stored_bytes(*uncut.context, *uncut.model));
        EXPECT_EQ(timeless(second.run->state()), timeless(uncut.run->state()));
      }
      const BasePrecision other =
          precision == BasePrecision::nf4 ? BasePrecision::none : BasePrecision::nf4;
      expect_error(ErrorCode::invalid_argument, "base_precision",
                   [&] { BaseProcess(data, options, other, directory.path(), 5); });
    }
  }
}

TEST(QuantizedBase, FilesHaveTheCodes) {
  for (const BasePrecision precision : kBases) {
    for (const char* form : kBaseForms) {
      SCOPED_TRACE(concat(enum_name(precision), " ", form));
      const TemporaryDirectory directory;
      const auto file = directory.path() / "model.safetensors",
                 averaged = directory.path() / "averaged.safetensors",
                 floats = directory.path() / "floats.safetensors";
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      const auto exact = make_model(*context, form_of(form), 7);
      save_model(floats, *context, *exact);
      // Weights to begin with are encoded while they are read.
      const auto model = make_model(*context, base_form(form, precision), 5);
      load_pretrained(*context, open_model(floats), *model);
      EXPECT_EQ(stored_bytes(*context, *model),
                stored_bytes(*context, *make_model(*context, base_form(form, precision), 7)));
      add_adapter(*context, *model, kBaseAdapter, 4);
      save_model(file, *context, *model);
      EXPECT_LT(std::filesystem::file_size(file), std::filesystem::file_size(floats));
      const auto loaded = load_model(*context, file);
      EXPECT_EQ(loaded->config(), model->config());
      EXPECT_EQ(stored_bytes(*context, *loaded), stored_bytes(*context, *model));
      const std::filesystem::path twice[] = {file, file};
      average_models(twice, averaged);
      EXPECT_EQ(stored_bytes(*context, *load_model(*context, averaged)),
                stored_bytes(*context, *model));
      expect_error(ErrorCode::unsupported, "merge its adapter into the float model",
                   [&] { load_model(*context, file, DType::f32, true); });
      // A section of another length, and one that is not there.
      const auto read = [](const std::vector<std::byte>& bytes) {
        return SafetensorsReader::from_memory(bytes, "m", ElementTypes::ours_and_codes);
      };
      for (const bool missing : {false, true}) {
        TensorFile wrong = copy_model(*context, *model, model->parameters().master());
        const auto coded = std::ranges::find_if(
            wrong.entries, [](const TensorEntry& entry) { return entry.foreign != ""; });
        ASSERT_NE(coded, wrong.entries.end());
        const std::string name = coded->name;
        if (missing) {
          wrong.entries.erase(coded);
        } else {
          coded->shape = {1};
          coded->data = coded->data.first(coded->foreign == "F16" ? 2 : 1);
        }
        const auto bytes = safetensors_to_memory(wrong.entries, wrong.metadata);
        expect_error(ErrorCode::corrupt_file, name.c_str(),
                     [&] { load_model(*context, read(bytes)); });
      }
    }
  }
}

TEST(QuantizedBase, ItsAdapterIsForTheFloatBaseToo) {
  for (const char* form : kBaseForms) {
    SCOPED_TRACE(form);
    const TemporaryDirectory directory;
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, base_form(form, BasePrecision::nf4), 5);
    add_adapter(*context, *model, kBaseAdapter, 4);
    const auto data = copy_batches(model->config().architecture, 1);
    Trainer(*context, *model, quick_options()).step(std::span(data));
    save_adapter(*context, *model, directory.path());
    const auto floats = make_model(*context, form_of(form), 5);
    load_adapter(*context, *floats, directory.path());
    merge_adapter(*context, *floats);
    remove_adapter(*context, *floats);
    // The adapter of a float base is for one in few bits as well.
    load_adapter(*context, *floats, directory.path());
    save_adapter(*context, *floats, directory.path());
    const auto other = make_model(*context, base_form(form, BasePrecision::int8), 5);
    load_adapter(*context, *other, directory.path());
    // An export has the dequantized weights with the adapter added.
    const auto dequantized = dequantized_model(*context, *model);
    const interop::HostModel exported = interop::copy_to_host(*context, *model);
    EXPECT_EQ(exported.config().base_precision, BasePrecision::none);
    EXPECT_LT(difference_of(base_logits(*context, *exported.model), base_logits(*context, *model)),
              1e-4);
    EXPECT_GT(difference_of(base_logits(*context, *dequantized), base_logits(*context, *model)),
              1e-6);
    expect_error(ErrorCode::unsupported, "not merged into weights in nf4",
                 [&] { merge_adapter(*context, *model); });
    remove_adapter(*context, *model);
    EXPECT_FALSE(model->parameters().any_trainable());
  }
}

TEST(QuantizedBase, DecodesAsTheDequantizedModel) {
  for (const char* form : kBaseForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, base_form(form, BasePrecision::nf4), 5, DType::f64);
    DecodeOptions options;
    options.tokens = kTokens;
    options.max_length = 6;
    const std::vector<std::vector<int32_t>> sources = {{5, 9, 2}, {7, 2}};
    const auto coded = translate_tokens(*context, *model, sources, options);
    const auto floats =
        translate_tokens(*context, *dequantized_model(*context, *model), sources, options);
    for (size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(coded[i][0].tokens, floats[i][0].tokens);
      EXPECT_NEAR(coded[i][0].score, floats[i][0].score, 1e-9);
    }
  }
}

}  // namespace
}  // namespace trafo
