// Layers that share their parameters: the model is its untied copy with fewer parameters.
#include <cmath>
#include <map>

#include "engine/compress/prune.h"
#include "engine/compress/quantize.h"
#include "engine/decode/search.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/ops/view/view.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/step/micro_batch.h"
#include "tests/models/tied_models.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

class TiedLayers : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Model> model(DType dtype = DType::f32) {
    auto made = make_model(*context_, config_, 5, dtype);
    disturb(*context_, *made);
    return made;
  }
  bool is_lm() const { return !spec_of(config_).encoder; }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
  ModelConfig config_ = tied_form(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Forms, TiedLayers, ::testing::ValuesIn(kTiedForms),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(TiedLayers, OnlyDistinctLayersHaveParameters) {
  const auto tied = model();
  const auto untied = untied_copy<float>(*context_, *tied);
  std::vector<int> layers;
  for (ParamId id = 0; id < static_cast<ParamId>(tied->parameters().count()); ++id) {
    const std::string& name = tied->parameters().name(id);
    if (name.ends_with(".ffn.down.weight")) layers.push_back(layer_in(name));
    EXPECT_EQ(name, shared_name(config_, name));
  }
  const std::string form = GetParam();
  EXPECT_EQ(layers, form == "encdec"      ? (std::vector<int>{0, 0, 2})
                    : form == "post-norm" ? (std::vector<int>{0, 1, 2, 0, 1})
                                          : (std::vector<int>{0, 2}));
  const ParamId cross = tied->parameters().find("decoder.cross_kv.weight");
  ASSERT_EQ(cross == kNoParam, is_lm());
  if (!is_lm()) {
    EXPECT_EQ(tied->parameters().shape(cross), (Shape{2 * 2 * config_.width, config_.width}));
  }
  EXPECT_LT(tied->parameters().parameter_count(), untied->parameters().parameter_count());
}

// The gradient of a shared layer is the sum over its copies, with dropout and layer drop, which
// tell the layers apart, and under every recompute policy.
TEST_P(TiedLayers, GradientsAreTheSumsOfThoseOfTheCopies) {
  const auto tied = model(DType::f64);
  const auto untied = untied_copy<double>(*context_, *tied);
  const LabelSmoothedCrossEntropy objective(0.1);
  const StepSums sums(*context_, DType::f64);
  const Batch batch =
      upload(*context_, copy_batches(config_.architecture, 1)[0], spec_of(config_), DType::f64);
  const std::vector<size_t> parts = cross_parts(config_);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const std::vector<bool>& skipped :
         {std::vector<bool>{}, std::vector<bool>{false, false, true, false, true}}) {
      const auto loss = [&](Model& which) {
        accumulate_gradients(*context_, which, {batch, {7, 3, true, skipped}}, objective, recompute,
                             sums);
        return context_->item(sums.loss());
      };
      EXPECT_EQ(loss(*tied), loss(*untied));
      std::map<std::string, std::vector<double>> expected;
      for (ParamId id = 0; id < static_cast<ParamId>(untied->parameters().count()); ++id) {
        const std::string& name = untied->parameters().name(id);
        const auto gradient = context_->values<double>(untied->parameters().grad(id));
        std::vector<double>& sum = expected[shared_name(config_, name)];
        if (name.starts_with("decoder.cross_kv.")) {
          const size_t part = gradient.size() / parts.size();
          sum.resize(2 * part);
          for (size_t i = 0; i < gradient.size(); ++i)
            sum[parts[i / part] * part + i % part] += gradient[i];
          continue;
        }
        sum.resize(gradient.size());
        for (size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
      }
      for (const auto& [name, sum] : expected) {
        const ParamId id = tied->parameters().find(name);
        ASSERT_NE(id, kNoParam) << name;
        const auto gradient = context_->values<double>(tied->parameters().grad(id));
        ASSERT_EQ(gradient.size(), sum.size()) << name;
        for (size_t i = 0; i < sum.size(); ++i)
          ASSERT_NEAR(gradient[i], sum[i], 1e-10 * std::max(1.0, std::abs(sum[i]))) << name;
      }
      EXPECT_EQ(expected.size(), tied->parameters().count());
    }
}

TEST_P(TiedLayers, TranslatesAlignsAndScoresAsItsCopy) {
  const auto tied = model();
  const auto untied = untied_copy<float>(*context_, *tied);
  const NoGrad no_grad(*context_);
  const Batch batch =
      upload(*context_, copy_batches(config_.architecture, 1)[0], spec_of(config_), DType::f32);
  EXPECT_EQ(context_->values<float>(tied->logits(*context_, batch)),
            context_->values<float>(untied->logits(*context_, batch)));
  DecodeOptions options;
  options.tokens = kTokens;
  options.max_length = 6;
  options.beam = 3;
  const std::vector<std::vector<int32_t>> sources = {{5, 9, 2}, {7, 2}, {4, 4, 11, 12, 2}};
  const auto a = translate_tokens(*context_, *tied, sources, options);
  const auto b = translate_tokens(*context_, *untied, sources, options);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(a[i][0].tokens, b[i][0].tokens);
    EXPECT_EQ(a[i][0].score, b[i][0].score);
  }
  for (int64_t layer = 0; !is_lm() && layer < config_.decoder_layers; ++layer) {
    const CrossAttentionInputs x = tied->cross_attention(*context_, batch, layer);
    const CrossAttentionInputs y = untied->cross_attention(*context_, batch, layer);
    EXPECT_EQ(context_->values<float>(x.queries), context_->values<float>(y.queries)) << layer;
    EXPECT_EQ(context_->values<float>(ops::contiguous(*context_, x.keys)),
              context_->values<float>(ops::contiguous(*context_, y.keys)))
        << layer;
  }
}

TEST_P(TiedLayers, FilesHoldEachLayerOnce) {
  const auto tied = model();
  const auto untied = untied_copy<float>(*context_, *tied);
  const auto written = [&](const Model& which) {
    MemorySink sink;
    write_model(sink, *context_, which);
    return sink.take();
  };
  const auto bytes = written(*tied);
  EXPECT_LT(bytes.size(), written(*untied).size() * 9 / 10);
  const auto loaded = load_model(*context_, SafetensorsReader::from_memory(bytes, "m"));
  EXPECT_EQ(loaded->config(), config_);
  EXPECT_EQ(weight_bytes(*context_, *loaded), weight_bytes(*context_, *tied));
}

TEST_P(TiedLayers, QuantizesToTheCodesOfItsCopy) {
  const auto tied = model();
  const auto untied = untied_copy<float>(*context_, *tied);
  const Batch batch =
      upload(*context_, copy_batches(config_.architecture, 1)[0], spec_of(config_), DType::f32);
  const NoGrad no_grad(*context_);
  for (const int64_t bits : {8, 4}) {
    const auto a = quantize_model(*context_, *tied, {.bits = bits}),
               b = quantize_model(*context_, *untied, {.bits = bits});
    EXPECT_EQ(context_->values<float>(a->logits(*context_, batch)),
              context_->values<float>(b->logits(*context_, batch)));
    MemorySink sink;
    write_model(sink, *context_, *a);
    const auto bytes = sink.take();
    const auto loaded = load_model(
        *context_, SafetensorsReader::from_memory(bytes, "m", ElementTypes::ours_and_codes));
    EXPECT_EQ(context_->values<float>(loaded->logits(*context_, batch)),
              context_->values<float>(a->logits(*context_, batch)));
  }
}

TEST_P(TiedLayers, TrainingTakesThePlannedMemory) {
  TrainOptions options = quick_options();
  options.gradient_accumulation = 2;
  options.log_freq = options.save_freq = options.valid_freq = {0, PeriodUnit::updates};
  Process process(copy_data(config_.architecture, 200), options, std::nullopt, 1, config_);
  process.run->run({}, nullptr, 20);
  EXPECT_EQ(process.context->backend().memory_stats().peak_bytes, process.run->plan().memory.total);
}

TEST_P(TiedLayers, ARunResumesWithTheSameBits) {
  const TrainingData data = copy_data(config_.architecture);
  TrainOptions options = quick_options();
  options.ema_alpha = 0.05;
  options.gradient_accumulation = 2;
  const Reference reference = uncut(data, options, 14, 1, config_);
  EXPECT_EQ(uncut(data, options, 14, 3, config_).weights, reference.weights);
  options.after_updates = 14;
  const TemporaryDirectory directory;
  {
    Process cut(data, options, directory.path(), 1, config_);
    cut.run->run({}, nullptr, 11);
  }
  Process continued(data, options, directory.path(), 1, config_, 99);
  EXPECT_TRUE(continued.run->resumed());
  continued.run->run();
  EXPECT_EQ(continued.weights(), reference.weights);
  EXPECT_EQ(timeless(continued.run->state()), reference.state);
}

// A sum over two uses of one matrix.
TEST_P(TiedLayers, TrainsWithRoundedWeightsAndAdapters) {
  TrainOptions options = quick_options();
  options.quantize_bits = 8;
  const auto data = copy_batches(config_.architecture, 3);
  const auto aware = model();
  {
    Trainer trainer(*context_, *aware, options);
    for (const PackedBatchHost& batch : data) EXPECT_FALSE(trainer.step({&batch, 1}).skipped);
  }
  const auto tied = model();
  const auto untied = untied_copy<float>(*context_, *tied);
  AdapterConfig adapter;
  adapter.rank = 2;
  add_adapter(*context_, *tied, adapter, 1);
  add_adapter(*context_, *untied, adapter, 1);
  EXPECT_LT(tied->parameters().parameter_count(), untied->parameters().parameter_count());
  const auto before = weight_bytes(*context_, *tied);
  {
    Trainer trainer(*context_, *tied, quick_options());
    for (const PackedBatchHost& batch : data) trainer.step({&batch, 1});
  }
  EXPECT_NE(weight_bytes(*context_, *tied), before);
  const Batch batch = upload(*context_, data[0], spec_of(config_), DType::f32);
  const NoGrad no_grad(*context_);
  const auto logits = context_->values<float>(tied->logits(*context_, batch));
  merge_adapter(*context_, *tied);
  const auto merged = context_->values<float>(tied->logits(*context_, batch));
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], merged[i], 1e-4);
}

// Pruned of a share of its columns, the model is its pruned copy.
TEST_P(TiedLayers, PrunesColumnsAndHeadsOfSharedLayersTogether) {
  const auto tied = model();
  const auto corpus = copy_corpus(config_.architecture, 12, 4);
  PruneOptions options;
  options.encoder_ffn_share = options.decoder_ffn_share = 0.5;
  options.encoder_head_share = options.decoder_head_share = 0.5;
  const auto pruned = prune(*context_, *tied, *corpus, kTokens, options);
  EXPECT_EQ(pruned->config().ffn_width, 16);
  EXPECT_EQ(pruned->config().heads, std::string(GetParam()) == "llama" ? 2 : 1);
  EXPECT_EQ(pruned->config().decoder_layers, 4);
  EXPECT_EQ(pruned->config().decoder_tied_layers, config_.decoder_tied_layers);
  const auto copy = untied_copy<float>(*context_, *pruned);
  EXPECT_EQ(mean_cross_entropy(*context_, *pruned, *corpus, kTokens),
            mean_cross_entropy(*context_, *copy, *corpus, kTokens));
  // Nothing is lost where nothing is removed.
  PruneOptions nothing;
  nothing.decoder_layers = 4;
  EXPECT_EQ(weight_bytes(*context_, *prune(*context_, *tied, *corpus, kTokens, nothing)),
            weight_bytes(*context_, *tied));
  options.decoder_layers = 2;
  expect_error(ErrorCode::unsupported,
               "decoder_layers: no layer is removed from a stack whose layers share parameters",
               [&] { prune(*context_, *tied, *corpus, kTokens, options); });
}

TEST(TiedLayersConfig, NumbersNameSets) {
  ModelConfig config = tiny_config();
  config.decoder_layers = 4;
  const auto owners = [&](std::vector<int64_t> tied) {
    config.decoder_tied_layers = std::move(tied);
    validate(config);
    return spec_of(config).decoder.sharing.owners;
  };
  const std::vector<int64_t> pairs{0, 0, 2, 2};
  EXPECT_EQ(owners({1, 1, 3, 3}), pairs);
  EXPECT_EQ(owners({1, 1, 2, 2}), pairs);  // as in Marian: names of parameters
  EXPECT_EQ(owners({4, 4, 1, 1}), pairs);
  EXPECT_EQ(owners({1, 2, 1, 2}), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(spec_of(config).decoder.sharing.sets, (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(owners({3, 1, 3, 3}), (std::vector<int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(owners({}), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(spec_of(config).decoder.sharing.set_count, 4);
  EXPECT_EQ(spec_of(config).encoder->sharing.owners, std::vector<int64_t>{0});
  config.architecture = Architecture::decoder_lm;
  EXPECT_FALSE(spec_of(config).encoder);
}

TEST(TiedLayersConfig, WhatCannotBeIsNamed) {
  const auto refused = [](const char* message, auto change) {
    ModelConfig config = tied_form("encdec");
    change(config);
    expect_error(ErrorCode::invalid_argument, message, [&] { validate(config); });
  };
  refused("decoder_tied_layers has 3 numbers, it needs one for each of the 4 layers",
          [](ModelConfig& c) {
            c.decoder_tied_layers = {1, 1, 3};
          });
  refused("decoder_tied_layers has the layer 5, the layers are 1 to 4", [](ModelConfig& c) {
    c.decoder_tied_layers = {1, 1, 5, 3};
  });
  refused("encoder_tied_layers has the layer 0, the layers are 1 to 3", [](ModelConfig& c) {
    c.encoder_tied_layers = {1, 0, 1};
  });
  refused("encoder_tied_layers is of an encoder",
          [](ModelConfig& c) { c.architecture = Architecture::decoder_lm; });
  refused("decoder_tied_layers is for stacks of up to 32 layers, this one has 33",
          [](ModelConfig& c) {
            c.decoder_layers = 33;
            c.decoder_tied_layers.assign(33, 1);
          });
}

TEST(TiedLayersConfig, JsonHasTheLists) {
  const ModelConfig config = tied_form("encdec");
  const std::string json = to_json(config);
  EXPECT_EQ(model_config_from_json(json), config);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    return text.replace(at, from.size(), to);
  };
  const std::string key = "\"encoder_tied_layers\": ";
  for (const char* wrong : {"7, \"x\": ", "{}, \"x\": ", "[1.5], \"x\": ", "[\"1\"], \"x\": "})
    expect_error(ErrorCode::corrupt_file, "encoder_tied_layers",
                 [&] { model_config_from_json(replaced(key, key + wrong)); });
  ModelConfig plain = config;
  plain.encoder_tied_layers = plain.decoder_tied_layers = {};
  EXPECT_EQ(model_config_from_json(to_json(plain)), plain);
}

// The initial weights of block l of the distinct ones are divided by the root of l.
TEST(TiedLayersConfig, DepthScalingCountsDistinctLayers) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tied_form("encdec");
  config.encoder_tied_layers = {};
  config.width = config.ffn_width = 64;
  config.depth_scaled_init = true;
  const auto model = make_model(*context, config, 5);
  const auto largest = [&](const std::vector<float>& values, size_t begin, size_t end) {
    float most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
    return most;
  };
  const auto whole = [&](const char* name) {
    const auto values = value_of<float>(*context, *model, name);
    return largest(values, 0, values.size());
  };
  EXPECT_NEAR(whole("decoder.2.ffn.up.weight") * std::sqrt(2.0f), whole("decoder.0.ffn.up.weight"),
              0.01f);
  const auto cross = value_of<float>(*context, *model, "decoder.cross_kv.weight");
  EXPECT_NEAR(largest(cross, cross.size() / 2, cross.size()) * std::sqrt(2.0f),
              largest(cross, 0, cross.size() / 2), 0.01f);
}

}  // namespace
}  // namespace trafo
