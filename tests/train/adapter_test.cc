// LoRA adapters: what they compute, what they train, how they are stored and merged.
#include "engine/models/adapter.h"
#include "engine/objective/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>

#include "engine/decode/packing.h"
#include "engine/decode/scorer.h"
#include "engine/decode/search.h"
#include "engine/formats/interop.h"
#include "engine/formats/peft/peft.h"
#include "engine/models/meta_model.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/train/checkpoint/average.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/interop/interop_support.h"
#include "tests/support/errors.h"
#include "tests/support/model_forms.h"
#include "tests/train/gradient_check.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

using Values = std::vector<std::vector<std::byte>>;

// As MarianMT, GPT-2, Llama and Qwen3 have them.
const char* const kForms[] = {"encdec post-norm", "gpt2", "llama untied", "qwen3 untied"};

const AdapterConfig kAdapterOfRank3{.rank = 3, .alpha = 6};

// Adds an adapter with a B that is not zero.
void add_random_adapter(Context& context, Model& model, const AdapterConfig& adapter,
                        uint64_t seed = 4) {
  add_adapter(context, model, adapter, seed);
  ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (!parameters.name(id).ends_with(".lora_B")) continue;
    PhiloxStream random(seed, static_cast<uint64_t>(id));
    std::vector<double> values(static_cast<size_t>(element_count(parameters.shape(id))));
    for (double& value : values) value = random.uniform(-0.3, 0.3);
    const std::vector<float> narrow(values.begin(), values.end());
    if (parameters.dtype() == DType::f64)
      parameters.set_value(context, id, values.data(), values.size() * sizeof(double));
    else
      parameters.set_value(context, id, narrow.data(), narrow.size() * sizeof(float));
  }
}

// The parameters, or only the ones of the base.
Values values_of(Context& context, const Model& model, bool base_alone = false) {
  Values all;
  const ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
    if (!base_alone || parameters.group(id).name != kAdapter)
      all.push_back(bytes_of(context, parameters.value(id)));
  return all;
}

std::vector<double> logits_of(Context& context, const Model& model) {
  const NoGrad no_grad(context);
  const Batch batch = upload(context, copy_batches(model.spec().architecture, 1)[0], model.spec(),
                             model.parameters().dtype());
  return to_doubles(context, model.logits(context, batch));
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Adapter, OneThatIsNewChangesNothing) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, form_of(form), 5);
    const auto logits = logits_of(*context, *model);
    const Values base = values_of(*context, *model);
    add_adapter(*context, *model, kAdapterOfRank3, 4);
    EXPECT_EQ(logits_of(*context, *model), logits);
    EXPECT_EQ(values_of(*context, *model, true), base);
    EXPECT_EQ(model->adapter()->targets, adapter_targets(*model));
    ParameterStore& parameters = model->parameters();
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
      EXPECT_EQ(parameters.trainable(id), parameters.group(id).name == kAdapter);
    // The same seed gives the same A, another seed another.
    const Values first = values_of(*context, *model);
    for (const uint64_t seed : {4u, 5u}) {
      remove_adapter(*context, *model);
      EXPECT_EQ(values_of(*context, *model), base);
      add_adapter(*context, *model, kAdapterOfRank3, seed);
      EXPECT_EQ(values_of(*context, *model) == first, seed == 4);
    }
  }
}

// Nothing of the adapter is frozen while it is added, and some of it later: the layout of one model
// is that of another whose parameters are all trainable.
TEST(Adapter, APartOfItCanBeFrozen) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const ModelConfig config = form_of("llama untied");
  const auto model = make_model(*context, config, 5), other = make_model(*context, config, 5);
  add_adapter(*context, *model, kAdapterOfRank3, 4);
  model->parameters().set_trainable(*context, "decoder.0.*", false);
  const Values base = values_of(*context, *other);
  other->parameters().copy_groups(*context, model->parameters());
  EXPECT_EQ(values_of(*context, *other, true), base);
  for (ParamId id = 0; id < static_cast<ParamId>(model->parameters().count()); ++id)
    EXPECT_EQ(other->parameters().trainable(id), model->parameters().trainable(id));
}

// The definition: a model whose weights are W + scale B A.
TEST(Adapter, ComputesWhatMergedWeightsDoAndUnmergesToTheSameBits) {
  for (const char* form : kForms) {
    for (const auto& targets :
         {std::vector<std::string>{}, std::vector<std::string>{"output", "down"},
          adapter_targets(*make_meta_model(form_of(form)).model).front() == "qkv"
              ? std::vector<std::string>{"qkv"}
              : std::vector<std::string>{"value", "query"}}) {
      SCOPED_TRACE(form);
      const auto context = make_context({DeviceKind::cpu, 0}, 1);
      const auto model = make_model(*context, form_of(form), 5, DType::f64);
      const auto base_logits = logits_of(*context, *model);
      add_random_adapter(*context, *model, {3, 6, targets});
      const auto logits = logits_of(*context, *model);
      EXPECT_GT(largest_difference(logits, base_logits), 1e-3);
      context->set_fused_kernels(false);
      EXPECT_LT(largest_difference(logits_of(*context, *model), logits), 1e-12);
      context->set_fused_kernels(true);
      const Values before = values_of(*context, *model);
      merge_adapter(*context, *model);
      EXPECT_FALSE(model->adapter());
      EXPECT_EQ(model->parameters().count(), values_of(*context, *model, true).size());
      EXPECT_LT(largest_difference(logits_of(*context, *model), logits), 1e-12);
      unmerge_adapter(*context, *model);
      EXPECT_EQ(values_of(*context, *model), before);
      EXPECT_EQ(logits_of(*context, *model), logits);
    }
  }
}

TEST(Adapter, GradientsAreThoseOfCentralDifferences) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, form_of(form), 5, DType::f64);
    add_random_adapter(*context, *model, kAdapterOfRank3);
    ParameterStore& parameters = model->parameters();
    const LabelSmoothedCrossEntropy objective(0.1);
    const StepSums sums(*context, DType::f64);
    const Batch batch =
        upload(*context, copy_batches(model->spec().architecture, 1)[0], model->spec(), DType::f64);
    const auto loss = [&](Recompute recompute = Recompute::none) {
      accumulate_gradients(*context, *model, {batch, {7, 3, true}}, objective, recompute, sums);
      return context->item(sums.loss());
    };
    expect_gradients(*context, parameters, loss, true);
  }
}

// Prefill and decode steps read the adapter as the whole pass does.
TEST(Adapter, DecodesWithItsScores) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, form_of(form), 5, DType::f64);
    DecodeOptions options;
    options.tokens = kTokens;
    options.max_length = 6;
    const std::vector<std::vector<int32_t>> sources = {{5, 9, 2}, {7, 2}};
    const auto plain = translate_tokens(*context, *model, sources, options);
    add_random_adapter(*context, *model, {4, 40, {}});
    const auto adapted = translate_tokens(*context, *model, sources, options);
    EXPECT_GT(std::abs(plain[0][0].score - adapted[0][0].score), 1e-4);
    merge_adapter(*context, *model);
    const auto merged = translate_tokens(*context, *model, sources, options);
    for (size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(adapted[i][0].tokens, merged[i][0].tokens);
      EXPECT_NEAR(adapted[i][0].score, merged[i][0].score, 1e-9);
    }
  }
}

TEST(Adapter, TrainsItsMatricesAndNothingElse) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, form_of(form), 5);
    const Values base = values_of(*context, *model);
    add_adapter(*context, *model, kAdapterOfRank3, 4);
    const Values before = values_of(*context, *model);
    TrainOptions options = quick_options();
    options.weight_decay = 0.01;
    options.learning_rate = 0.02;
    Trainer trainer(*context, *model, options);
    const auto data = copy_batches(model->config().architecture, 1);
    const double first = trainer.step(std::span(data)).loss;
    double last = first;
    for (int i = 0; i < 40; ++i) last = trainer.step(std::span(data)).loss;
    EXPECT_LT(last, 0.98 * first);
    EXPECT_EQ(values_of(*context, *model, true), base);
    const Values after = values_of(*context, *model);
    for (size_t i = base.size(); i < after.size(); ++i) EXPECT_NE(after[i], before[i]);
    EXPECT_EQ(trainer.unplanned_allocations(), 0);
    // Optimizer states are of A and B alone, and the plan knows it.
    MemorySink states;
    trainer.optimizer_file().write(states);
    const auto bytes = states.take();
    EXPECT_EQ(SafetensorsReader::from_memory(bytes, "optimizer").tensors().size(),
              2 * (after.size() - base.size()));
    const BatchSizes sizes{static_cast<int64_t>(data[0].target_cu_seqlens.size()) - 1,
                           static_cast<int64_t>(data[0].source_ids.size()),
                           static_cast<int64_t>(data[0].target_in.size())};
    const MemoryPlan plan = plan_training(context->device(), model->config(), DType::f32, options,
                                          sizes, {.like = &model->parameters()});
    EXPECT_EQ(plan.optimizer, trainer.optimizer_bytes());
    EXPECT_EQ(plan.gradients, static_cast<int64_t>(model->parameters().flat_grad().bytes()));
    expect_error(ErrorCode::invalid_argument, "in use", [&] { merge_adapter(*context, *model); });
    EXPECT_EQ(values_of(*context, *model), after);
  }
}

struct AdapterProcess {
  std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  AdapterProcess(const TrainingData& data, const TrainOptions& options,
                 const std::optional<AdapterConfig>& adapter,
                 const std::optional<std::filesystem::path>& directory, uint64_t seed)
      : model(make_model(*context, form_of("encdec post-norm"), seed)) {
    if (adapter) add_adapter(*context, *model, *adapter, seed);
    run = std::make_unique<TrainingRun>(*context, *model, data, options, directory);
  }
};

TEST(Adapter, AResumedRunEndsWithTheSameBits) {
  const TrainingData data = copy_data();
  for (const double alpha : {0.0, 0.05}) {
    TrainOptions options = quick_options();
    options.ema_alpha = alpha;
    options.after_updates = 12;
    AdapterProcess uncut(data, options, kAdapterOfRank3, std::nullopt, 5);
    uncut.run->run();
    const TemporaryDirectory directory;
    {
      AdapterProcess first(data, options, kAdapterOfRank3, directory.path(), 5);
      first.run->run({}, nullptr, 6);
      first.run->save();
    }
    // From other initial weights: the base's come from the checkpoint as well.
    {
      AdapterProcess second(data, options, kAdapterOfRank3, directory.path(), 99);
      EXPECT_TRUE(second.run->resumed());
      second.run->run();
      EXPECT_EQ(values_of(*second.context, *second.model), values_of(*uncut.context, *uncut.model));
      EXPECT_EQ(timeless(second.run->state()), timeless(uncut.run->state()));
    }
    // With another adapter, or none, it does not resume.
    for (const auto& other :
         {std::optional<AdapterConfig>(), std::optional(AdapterConfig{.rank = 4, .alpha = 6}),
          std::optional(AdapterConfig{.rank = 3, .alpha = 5}),
          std::optional(AdapterConfig{.rank = 3, .alpha = 6, .targets = {"query"}})})
      expect_error(ErrorCode::invalid_argument, "an adapter of rank 3, alpha 6",
                   [&] { AdapterProcess(data, options, other, directory.path(), 5); });
  }
}

TEST(Adapter, AModelFileHasTheAdapter) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const TemporaryDirectory directory;
    const auto file = directory.path() / "model.safetensors",
               averaged = directory.path() / "averaged.safetensors";
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = make_model(*context, form_of(form), 5);
    add_random_adapter(*context, *model, {3, 7, {"output"}});
    save_model(file, *context, *model);
    const auto loaded = load_model(*context, file);
    EXPECT_EQ(loaded->adapter(), model->adapter());
    EXPECT_EQ(values_of(*context, *loaded), values_of(*context, *model));
    EXPECT_EQ(logits_of(*context, *loaded), logits_of(*context, *model));
    const std::filesystem::path twice[] = {file, file};
    average_models(twice, averaged);
    EXPECT_EQ(values_of(*context, *load_model(*context, averaged)), values_of(*context, *model));
    // As weights to begin with it is refused, because the adapter would be lost.
    const auto other = make_model(*context, form_of(form), 6);
    expect_error(ErrorCode::invalid_argument, "adapter",
                 [&] { load_pretrained(*context, open_model(file), *other); });
    // Merged it is a model like any other.
    merge_adapter(*context, *model);
    save_model(file, *context, *model);
    EXPECT_FALSE(load_model(*context, file)->adapter());
    load_pretrained(*context, open_model(file), *other);
    EXPECT_EQ(logits_of(*context, *other), logits_of(*context, *model));
  }
}

// The weights of the base stay where they are, and a checkpoint has them from there: the model is
// in memory once.
TEST(Adapter, TheBaseIsNeverCopied) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, form_of(kForms[0]), 5);
  const ParameterStore& parameters = model->parameters();
  const auto places = [&] {
    std::vector<const void*> found;
    for (size_t i = 0; i < parameters.count(); ++i)
      if (const auto id = static_cast<ParamId>(i); !parameters.trainable(id))
        found.push_back(parameters.value(id).raw());
    return found;
  };
  std::vector<const void*> before;
  for (size_t i = 0; i < parameters.count(); ++i)
    before.push_back(parameters.value(static_cast<ParamId>(i)).raw());
  const auto values = values_of(*context, *model);
  add_random_adapter(*context, *model, {3, 7, {"output"}});
  EXPECT_EQ(places(), before);
  {
    const TensorFile file = copy_model(*context, *model, parameters.master());
    for (const TensorEntry& entry : file.entries) {
      const ParamId id = parameters.find(entry.name);
      EXPECT_EQ(entry.data.data() == parameters.value(id).raw(), !parameters.trainable(id))
          << entry.name;
    }
    expect_error(ErrorCode::invalid_argument, "the parameters are in use",
                 [&] { remove_adapter(*context, *model); });
  }
  remove_adapter(*context, *model);
  EXPECT_EQ(values_of(*context, *model), values);
}

TEST(Adapter, AnInt8BaseComputesWithOne) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto floats = make_model(*context, form_of(form), 5);
    MemorySink sink;
    write_model(sink, *context, *floats);
    const auto bytes = sink.take();
    const auto model =
        load_model(*context, SafetensorsReader::from_memory(bytes, "m"), DType::f32, true);
    const auto base = logits_of(*context, *model);
    const TemporaryDirectory directory;
    add_random_adapter(*context, *floats, {3, 12, {}});
    save_adapter(*context, *floats, directory.path());
    load_adapter(*context, *model, directory.path());
    EXPECT_FALSE(model->parameters().any_trainable());
    const auto exact = logits_of(*context, *floats), adapted = logits_of(*context, *model);
    EXPECT_LT(4 * largest_difference(adapted, exact), largest_difference(adapted, base));
    expect_error(ErrorCode::unsupported, "int8", [&] { merge_adapter(*context, *model); });
    expect_error(ErrorCode::unsupported, "int8",
                 [&] { Trainer(*context, *model, quick_options()); });
    // int8 codes and the adapter in one file.
    MemorySink both;
    write_model(both, *context, *model);
    const auto stored = both.take();
    const auto again = load_model(
        *context, SafetensorsReader::from_memory(stored, "m", ElementTypes::ours_and_codes));
    EXPECT_EQ(logits_of(*context, *again), adapted);
  }
}

TEST(Adapter, RefusesWhatCannotBe) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, form_of("gpt2"), 5);
  const auto refused = [&](const AdapterConfig& adapter, const char* part) {
    expect_error(ErrorCode::invalid_argument, part,
                 [&] { add_adapter(*context, *model, adapter, 1); });
  };
  refused({0, 1, {}}, "rank must be 1 to 16");
  refused({17, 1, {}}, "rank must be 1 to 16");
  refused({4, 0, {}}, "alpha must be above 0");
  refused({4, NAN, {}}, "alpha must be above 0");
  refused({4, 8, {"query"}},
          "targets has 'query', which is not in this model; it has qkv output up down");
  EXPECT_FALSE(model->adapter());
  for (const auto& without : {remove_adapter, merge_adapter, unmerge_adapter})
    expect_error(ErrorCode::invalid_argument, "no adapter", [&] { without(*context, *model); });
  add_adapter(*context, *model, kAdapterOfRank3, 1);
  refused(kAdapterOfRank3, "has an adapter of rank 3");
  expect_error(ErrorCode::invalid_argument, "not merged",
               [&] { unmerge_adapter(*context, *model); });
  merge_adapter(*context, *model);
  refused(kAdapterOfRank3, "merged into its weights already");
  expect_error(ErrorCode::invalid_argument, "merged already",
               [&] { merge_adapter(*context, *model); });
  const TemporaryDirectory directory;
  expect_error(ErrorCode::invalid_argument, "unmerge it",
               [&] { save_adapter(*context, *model, directory.path()); });
  remove_adapter(*context, *model);
  expect_error(ErrorCode::invalid_argument, "no adapter",
               [&] { unmerge_adapter(*context, *model); });
  add_adapter(*context, *model, kAdapterOfRank3, 1);
  model->parameters().set_trainable(*context, "decoder.norm.*", true);
  expect_error(ErrorCode::invalid_argument, "decoder.norm.weight is trainable",
               [&] { save_adapter(*context, *model, directory.path()); });
}

// --- directories of PEFT ---

class AdapterFiles : public InteropTest {
 protected:
  // A directory that is right, then changed, then loaded into a model of this configuration.
  void refused(const ModelConfig& base, ErrorCode code, const char* part,
               const std::function<void(const fs::path&)>& change) {
    fs::remove_all(path("bad"));
    const auto model = make_model(*context_, form_of("encdec post-norm"), 5);
    add_random_adapter(*context_, *model, {3, 6, {"query", "value"}});
    save_adapter(*context_, *model, path("bad"));
    change(path("bad"));
    const auto other = make_model(*context_, base, 5);
    expect_error(code, part, [&] { load_adapter(*context_, *other, path("bad")); });
    EXPECT_FALSE(other->adapter());
  }
  static void edit_adapter(const fs::path& directory,
                           const std::function<void(std::vector<Stored>&)>& change) {
    fs::rename(directory / "adapter_model.safetensors", directory / "model.safetensors");
    edit_tensors(directory, change);
    fs::rename(directory / "model.safetensors", directory / "adapter_model.safetensors");
  }
};

TEST_F(AdapterFiles, ComeBackBitForBit) {
  for (const char* form : kForms) {
    SCOPED_TRACE(form);
    const auto model = make_model(*context_, form_of(form), 5);
    add_random_adapter(*context_, *model, {3, 7.5, {"output", "up"}});
    save_adapter(*context_, *model, path(form));
    const auto other = make_model(*context_, form_of(form), 5);
    load_adapter(*context_, *other, path(form));
    EXPECT_EQ(other->adapter(), model->adapter());
    EXPECT_EQ(values_of(*context_, *other), values_of(*context_, *model));
    // Over one that is there.
    remove_adapter(*context_, *model);
    add_random_adapter(*context_, *model, {2, 5, {}}, 9);
    save_adapter(*context_, *model, path(form));
    remove_adapter(*context_, *other);
    load_adapter(*context_, *other, path(form));
    EXPECT_EQ(values_of(*context_, *other), values_of(*context_, *model));
  }
}

TEST_F(AdapterFiles, HaveTheNamesThatPeftLooksFor) {
  struct Case {
    const char *form, *target, *module;
    int64_t rows;
  };
  for (const Case& c :
       {Case{"encdec post-norm", "query", "model.encoder.layers.1.self_attn.q_proj", 16},
        Case{"encdec post-norm", "key", "model.decoder.layers.1.encoder_attn.k_proj", 16},
        Case{"encdec post-norm", "output", "model.decoder.layers.0.encoder_attn.out_proj", 16},
        Case{"encdec post-norm", "down", "model.decoder.layers.0.fc2", 16},
        Case{"gpt2", "qkv", "transformer.h.1.attn.c_attn", 48},
        Case{"gpt2", "down", "transformer.h.0.mlp.c_proj", 16},
        Case{"llama", "value", "model.layers.1.self_attn.v_proj", 8},
        Case{"llama", "gate", "model.layers.0.mlp.gate_proj", 32},
        Case{"modernbert", "qkv", "model.layers.1.attn.Wqkv", 48},
        Case{"modernbert", "gate_up", "model.layers.0.mlp.Wi", 64},
        Case{"modernbert", "down", "model.layers.1.mlp.Wo", 16}}) {
    const auto model = make_model(*context_, form_of(c.form), 5);
    add_random_adapter(*context_, *model, {3, 6, {c.target}});
    save_adapter(*context_, *model, path("names"));
    const auto reader =
        SafetensorsReader::open_foreign(path("names") / "adapter_model.safetensors");
    const std::string name = concat("base_model.model.", c.module, ".lora_B.weight");
    ASSERT_NE(reader.find(name), nullptr) << name;
    EXPECT_EQ(reader.find(name)->shape, (std::vector<int64_t>{c.rows, 3}));
    const auto json =
        testing::FileJson::parse(read_text_file(path("names") / "adapter_config.json", 1 << 20));
    EXPECT_EQ(json["peft_type"], "LORA");
    EXPECT_EQ(json["r"], 3);
    EXPECT_EQ(json["lora_alpha"], 6);
    const testing::FileJson& targets = json["target_modules"];
    if (targets.is_string()) {  // PEFT wants the whole name to match
      EXPECT_TRUE(std::regex_match(c.module, std::regex(targets.get<std::string>()))) << targets;
      continue;
    }
    const std::string suffix = targets[0];
    EXPECT_TRUE(std::string(c.module).ends_with("." + suffix)) << suffix;
  }
}

TEST_F(AdapterFiles, OfAnotherBaseAreRefusedByName) {
  const auto as_it_is = [](const fs::path&) {};
  ModelConfig config = form_of("encdec post-norm");
  config.width = 32;
  refused(config, ErrorCode::invalid_argument, "width is 16 in the checkpoint, 32 here", as_it_is);
  refused(form_of("llama untied"), ErrorCode::invalid_argument, "architecture", as_it_is);
  config = form_of("encdec post-norm");
  config.decoder_layers = 3;
  refused(config, ErrorCode::invalid_argument, "decoder_layers is 2", as_it_is);
  // The same from a file that does not say what its base is, as PEFT writes it.
  const auto unsaid = [](const fs::path& directory) { edit_adapter(directory, [](auto&) {}); };
  refused(config, ErrorCode::invalid_argument, "lacks the tensor base_model.model.model.decoder",
          unsaid);
  config.decoder_layers = 1;
  refused(config, ErrorCode::invalid_argument, "which is of no linear layer of this model", unsaid);
  refused(form_of("llama untied"), ErrorCode::invalid_argument,
          "(decoder-lm); its first is base_model.", unsaid);
  config = form_of("encdec post-norm");
  config.width = 32;
  refused(config, ErrorCode::invalid_argument, "need [3, 32]", unsaid);
  // Another vocabulary of the same size.
  const auto model = make_model(*context_, form_of("encdec post-norm"), 5);
  model->set_origin({"", "0123abcd"});
  add_adapter(*context_, *model, kAdapterOfRank3, 1);
  save_adapter(*context_, *model, path("vocabulary"));
  remove_adapter(*context_, *model);
  model->set_origin({"", "89abcdef"});
  expect_error(ErrorCode::invalid_argument, "0123abcd and 89abcdef",
               [&] { load_adapter(*context_, *model, path("vocabulary")); });
}

// Other weights of the same shape; the base's rounded to bfloat16 are the same.
TEST_F(AdapterFiles, OfOtherWeightsAreRefusedByName) {
  const ModelConfig config = form_of("encdec post-norm");
  const auto model = make_model(*context_, config, 5);
  ParameterStore& parameters = model->parameters();
  const BaseChecksums base = base_checksums(*context_, *model);
  add_random_adapter(*context_, *model, kAdapterOfRank3);
  EXPECT_EQ(base_checksums(*context_, *model).all, base.all);  // A and B do not count
  save_adapter(*context_, *model, path("adapter"));
  remove_adapter(*context_, *model);

  const auto other = make_model(*context_, config, 6);
  other->set_origin({"other.safetensors", ""});
  expect_error(ErrorCode::invalid_argument,
               "is an adapter of another base: the weights of other.safetensors have the checksum ",
               [&] { load_adapter(*context_, *other, path("adapter")); });
  EXPECT_FALSE(other->adapter());

  const auto change = [&](ParamId id, auto&& to) {
    std::vector<float> values(static_cast<size_t>(element_count(parameters.shape(id))));
    parameters.get_value(*context_, id, values.data(), values.size() * sizeof(float));
    for (float& value : values) value = to(value);
    parameters.set_value(*context_, id, values.data(), values.size() * sizeof(float));
  };
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
    change(id, [](float value) { return BFloat16::from_float(value).to_float(); });
  load_adapter(*context_, *model, path("adapter"));
  remove_adapter(*context_, *model);
  change(parameters.find("decoder.0.ffn_norm.weight"), [](float value) { return value + 1; });
  EXPECT_NE(base_checksums(*context_, *model).vectors, base.vectors);
  expect_error(ErrorCode::invalid_argument, "the weights of this model have the checksum ",
               [&] { load_adapter(*context_, *model, path("adapter")); });

  // A model with int8 weights is compared by its norms and biases.
  MemorySink sink;
  write_model(sink, *context_, *model);
  const auto bytes = sink.take();
  const auto int8 =
      load_model(*context_, SafetensorsReader::from_memory(bytes, "m"), DType::f32, true);
  EXPECT_EQ(base_checksums(*context_, *int8).all, "");
  expect_error(ErrorCode::invalid_argument, "norms and biases of m have the checksum ",
               [&] { load_adapter(*context_, *int8, path("adapter")); });
}

TEST_F(AdapterFiles, ThatAreNoneOfOursAreRefusedByName) {
  const ModelConfig config = form_of("encdec post-norm");
  const auto with = [](const char* field, const testing::FileJson& value) {
    return [field, value](const fs::path& directory) {
      edit_json(directory / "adapter_config.json",
                [&](testing::FileJson& json) { json[field] = value; });
    };
  };
  refused(config, ErrorCode::unsupported, "'IA3'", with("peft_type", "IA3"));
  refused(config, ErrorCode::unsupported, "use_dora", with("use_dora", true));
  refused(config, ErrorCode::unsupported, "bias is 'all'", with("bias", "all"));
  refused(config, ErrorCode::unsupported, "modules_to_save", with("modules_to_save", {"lm_head"}));
  refused(config, ErrorCode::unsupported, "q_proj", with("rank_pattern", {{"q_proj", 4}}));
  refused(config, ErrorCode::corrupt_file, "says an adapter of rank 3, alpha 5",
          with("lora_alpha", 5));
  refused(config, ErrorCode::corrupt_file, "r ", with("r", -1));
  const auto tensors = [](const std::function<void(std::vector<Stored>&)>& change) {
    return [change](const fs::path& directory) { edit_adapter(directory, change); };
  };
  refused(config, ErrorCode::invalid_argument, "q_proj.lora_B.weight", tensors([](auto& all) {
            std::erase_if(all, [](const Stored& t) { return t.name.ends_with("B.weight"); });
          }));
  refused(config, ErrorCode::invalid_argument, "lora_embedding_A", tensors([](auto& all) {
            all.push_back(all.back());
            all.back().name = "base_model.model.model.shared.lora_embedding_A";
          }));
  refused(config, ErrorCode::non_finite, "not finite", tensors([](auto& all) {
            const float nan = NAN;
            std::memcpy(all.front().bytes.data(), &nan, sizeof nan);
          }));
  refused(config, ErrorCode::not_found, "adapter_config.json",
          [](const fs::path& directory) { fs::remove(directory / "adapter_config.json"); });
  refused(config, ErrorCode::not_found, "adapter_model.safetensors",
          [](const fs::path& directory) { fs::remove(directory / "adapter_model.safetensors"); });
}

// rsLoRA divides alpha by the square root of the rank.
TEST_F(AdapterFiles, ScaleWithTheRootOfTheRank) {
  const auto model = make_model(*context_, form_of("gpt2"), 5);
  add_random_adapter(*context_, *model, {4, 8, {}});
  save_adapter(*context_, *model, path("rs"));
  edit_adapter(path("rs"), [](auto&) {});
  edit_json(path("rs") / "adapter_config.json", [](testing::FileJson& json) {
    json["use_rslora"] = true;
    json["lora_alpha"] = 4;
  });
  const auto other = make_model(*context_, form_of("gpt2"), 5);
  load_adapter(*context_, *other, path("rs"));
  EXPECT_EQ(other->adapter()->alpha, 8);
  EXPECT_EQ(logits_of(*context_, *other), logits_of(*context_, *model));
}

TEST_F(AdapterFiles, AnExportHasTheAdapterMerged) {
  for (const auto& [config, format] :
       {std::pair{config_of(Architecture::encoder_decoder, false), ExportFormat::hf_marian},
        std::pair{config_of(Architecture::decoder_lm, true), ExportFormat::hf_gpt2},
        std::pair{llama_config(1, false), ExportFormat::hf_llama}}) {
    const std::string name = enum_name(format);
    SCOPED_TRACE(name);
    const auto model = model_of(config);
    const auto base = logits_of(*context_, *model);
    add_random_adapter(*context_, *model, {4, 8, {}});
    exported(*model, format, name);
    const ImportedModel back = import_model(*context_, path(name));
    const auto logits = logits_of(*context_, *model);
    EXPECT_GT(largest_difference(logits, base), 1e-2);
    EXPECT_LT(largest_difference(logits_of(*context_, *back.model), logits), 1e-4);
  }
}

}  // namespace
}  // namespace trafo
