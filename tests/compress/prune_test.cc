// Structured pruning: which heads, columns and layers stay, and that what is left is the part of
// the model that it should be.
#include "engine/compress/prune.h"
#include "engine/objective/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/compress/model_slice.h"
#include "engine/data/batch_packer.h"
#include "engine/decode/search.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/train/run/validation.h"
#include "tests/support/errors.h"
#include "tests/support/model_forms.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// Forms of models whose parameters are laid out in different ways.
ModelConfig pruned_form(const std::string& name) {
  ModelConfig config = form_of(name);
  config.encoder_layers = 3;
  config.heads = 4;
  if (config.kv_heads > 0) config.kv_heads = 2;
  if (config.head_width > 0) config.head_width = config.width / config.heads + 4;
  return config;
}
const char* const kPrunedForms[] = {"encdec", "post-norm", "lm", "llama", "qwen3"};

std::vector<std::string> layers_of(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int64_t i = 0; spec_of(config).encoder && i < config.encoder_layers; ++i)
    names.push_back(concat("encoder.", i));
  for (int64_t i = 0; i < config.decoder_layers; ++i) names.push_back(concat("decoder.", i));
  return names;
}

// Changes a matrix: f(row, column, value).
template <class F>
void change(Model& model, const std::string& name, F f) {
  const ParamId id = model.parameters().find(name);
  if (id == kNoParam) return;
  Tensor value = model.parameters().value(id);
  const int64_t columns = value.rank() > 1 ? value.dim(1) : 1;
  for (int64_t i = 0; i < value.numel(); ++i) {
    auto set = [&](auto* data) { data[i] = f(i / columns, i % columns, data[i]); };
    if (value.dtype() == DType::f64)
      set(value.data<double>());
    else
      set(value.data<float>());
  }
}

// Random biases and norms too: a mistake in one of them must be seen.
std::unique_ptr<Model> random_model(Context& context, const ModelConfig& config,
                                    DType dtype = DType::f32) {
  auto model = make_model(context, config, 5, dtype);
  PhiloxStream random(3, 1);
  for (size_t i = 0; i < model->parameters().count(); ++i)
    change(*model, model->parameters().name(static_cast<ParamId>(i)),
           [&](int64_t, int64_t, double value) {
             return value + 0.1 * (static_cast<double>(random.next_u32()) / 4294967296.0 - 0.5);
           });
  return model;
}

double loss_of(Context& context, const Model& model, const TokenizedCorpus& corpus) {
  return mean_cross_entropy(context, model, corpus, kTokens);
}

std::vector<std::vector<Hypothesis>> translated(Context& context, const Model& model) {
  const std::vector<std::vector<int32_t>> sources{{5, 6, 7, 2}, {9, 2}, {4, 4, 11, 12, 13, 2}};
  DecodeOptions options;
  options.max_length = 8;
  options.alignment = model.spec().has_encoder();
  return translate_tokens(context, model, sources, options);
}

std::unique_ptr<Model> pruned(Context& context, const Model& model, const PruneOptions& options) {
  const auto corpus = copy_corpus(model.config().architecture, 20, 4);
  return prune(context, model, *corpus, kTokens, options);
}

// Heads and columns that add nothing are removed, and the rest computes the same.
TEST(Prune, WhatAddsNothingGoesAndNothingElseChanges) {
  for (const char* form : kPrunedForms) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const ModelConfig config = pruned_form(form);
    const auto model = random_model(*context, config);
    const AttentionSpec attention = spec_of(config).decoder.attention;
    const int64_t group = attention.heads / attention.key_heads * attention.head_dim;
    int64_t layer = 0;
    for (const std::string& name : layers_of(config)) {
      // Another half in each layer.
      const auto half = [&](int64_t number) { return number % 2 == layer % 2; };
      for (const char* sublayer : {".attention", ".cross"})
        change(*model, name + sublayer + ".output.weight",
               [&](int64_t, int64_t c, double value) { return half(c / group) ? 0 : value; });
      change(*model, name + ".ffn.down.weight",
             [&](int64_t, int64_t c, double value) { return half(c) ? 0 : value; });
      ++layer;
    }
    const auto corpus = copy_corpus(config.architecture, 20, 4);
    PruneOptions options;
    options.encoder_ffn_share = options.decoder_ffn_share = 0.5;
    options.encoder_head_share = options.decoder_head_share = 0.5;
    const auto smaller = prune(*context, *model, *corpus, kTokens, options);
    EXPECT_EQ(smaller->config().ffn_width, 16);
    EXPECT_EQ(smaller->config().heads, 2);
    EXPECT_EQ(smaller->config().kv_heads, config.kv_heads / 2);
    EXPECT_EQ(smaller->spec().decoder.attention.head_dim, attention.head_dim);
    EXPECT_LT(smaller->parameters().parameter_count(), model->parameters().parameter_count());
    EXPECT_NEAR(loss_of(*context, *smaller, *corpus), loss_of(*context, *model, *corpus), 1e-5);
    const auto before = translated(*context, *model), after = translated(*context, *smaller);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i][0].tokens, before[i][0].tokens);
      EXPECT_NEAR(after[i][0].score, before[i][0].score, 1e-5);
      const auto &a = after[i][0].alignment.weights, &b = before[i][0].alignment.weights;
      EXPECT_EQ(a.size(), b.size());
    }
  }
}

// The score of a column agrees with its definition: the derivative of the loss of each pair by a
// factor on the column, here from central differences.
TEST(Prune, ScoresAreDerivativesByAFactorOnTheColumn) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  config.heads = 4;
  const auto model = random_model(*context, config, DType::f64);
  const auto corpus = copy_corpus(config.architecture, 5, 4);
  const auto loss_of_pair = [&](int64_t i) {
    PackedBatchHost pair;
    BatchPacker(pair, SequenceForm::encoder_decoder, kTokens.bos)
        .add(corpus->source(i), corpus->target(i), i);
    const NoGrad no_grad(*context);
    return context->item(
        LabelSmoothedCrossEntropy(0)
            .loss(*context, *model, upload(*context, pair, spec_of(config), DType::f64), {})
            .loss);
  };
  const auto scores = [&](const std::string& name, int64_t blocks) {
    const int64_t size = model->parameters().shape(model->parameters().find(name))[1] / blocks;
    std::vector<double> result;
    for (int64_t block = 0; block < blocks; ++block) {
      const double step = 1e-5;
      const auto scale = [&](double factor) {
        change(*model, name, [&](int64_t, int64_t c, double value) {
          return c / size == block ? value * factor : value;
        });
      };
      double score = 0;
      for (int64_t i = 0; i < corpus->size(); ++i) {
        scale(1 + step);
        const double above = loss_of_pair(i);
        scale((1 - step) / (1 + step));
        const double below = loss_of_pair(i);
        scale(1 / (1 - step));
        score += std::abs(above - below) / (2 * step);
      }
      result.push_back(score);
    }
    return result;
  };
  const auto best = [](const std::vector<double>& values, size_t count) {
    std::vector<int64_t> order(values.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    order.resize(count);
    std::sort(order.begin(), order.end());
    return order;
  };
  ModelSlice slice = whole_model(spec_of(config));
  for (auto [name, layer] :
       {std::pair{"encoder.0", &slice.encoder[0]}, std::pair{"decoder.0", &slice.decoder[0]}}) {
    const std::string prefix = name;
    layer->heads = best(scores(prefix + ".attention.output.weight", 4), 2);
    if (!layer->cross_heads.empty())
      layer->cross_heads = best(scores(prefix + ".cross.output.weight", 4), 2);
    layer->ffn_columns = best(scores(prefix + ".ffn.down.weight", 32), 8);
  }
  const auto expected = sliced_model(*context, *model, slice);
  const auto smaller = prune(*context, *model, *corpus, kTokens,
                             {.encoder_ffn_share = 0.25,
                              .decoder_ffn_share = 0.25,
                              .encoder_head_share = 0.5,
                              .decoder_head_share = 0.5});
  EXPECT_EQ(smaller->config(), expected->config());
  EXPECT_EQ(weight_bytes(*context, *smaller), weight_bytes(*context, *expected));
}

// The slice of the model without layer `i` of one of its stacks.
ModelSlice without(ModelSlice slice, std::vector<LayerSlice> ModelSlice::*stack, size_t i) {
  (slice.*stack).erase((slice.*stack).begin() + static_cast<std::ptrdiff_t>(i));
  return slice;
}

// Of each stack, the layer without which the loss is lowest.
TEST(Prune, TheLayerThatIsNeededLeastGoesFirst) {
  for (const char* form : {"encdec", "post-norm", "lm", "llama"}) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    ModelConfig config = pruned_form(form);
    config.decoder_layers = 3;
    const auto model = random_model(*context, config);
    const auto corpus = copy_corpus(config.architecture, 20, 4);
    ModelSlice expected = whole_model(spec_of(config));
    for (auto stack : {&ModelSlice::encoder, &ModelSlice::decoder}) {
      std::vector<double> losses;
      for (size_t i = 0; i < (expected.*stack).size(); ++i)
        losses.push_back(loss_of(
            *context, *sliced_model(*context, *model, without(expected, stack, i)), *corpus));
      if (losses.empty()) continue;
      const auto lowest = std::min_element(losses.begin(), losses.end());
      expected = without(expected, stack, static_cast<size_t>(lowest - losses.begin()));
    }
    const auto smaller =
        prune(*context, *model, *corpus, kTokens, {.encoder_layers = 2, .decoder_layers = 2});
    EXPECT_EQ(smaller->config().decoder_layers, 2);
    EXPECT_EQ(smaller->config().encoder_layers,
              spec_of(config).encoder ? 2 : config.encoder_layers);
    EXPECT_EQ(smaller->config().head_width, 0);
    EXPECT_EQ(weight_bytes(*context, *smaller),
              weight_bytes(*context, *sliced_model(*context, *model, expected)));
  }
}

// Without a layer that adds nothing to the residual stream, the others compute the same.
TEST(Prune, ALayerIsTakenOutWhole) {
  for (const char* form : {"encdec", "lm", "llama"}) {
    SCOPED_TRACE(form);
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    ModelConfig config = pruned_form(form);
    config.decoder_layers = 3;
    const auto model = random_model(*context, config);
    for (const std::string name : {"encoder.1", "decoder.1"})
      for (const char* part : {".attention.output", ".cross.output", ".ffn.down"})
        for (const char* kind : {".weight", ".bias"})
          change(*model, name + part + kind, [](int64_t, int64_t, double) { return 0; });
    ModelSlice slice = without(whole_model(spec_of(config)), &ModelSlice::decoder, 1);
    if (spec_of(config).encoder) slice = without(slice, &ModelSlice::encoder, 1);
    const auto smaller = sliced_model(*context, *model, slice);
    const auto corpus = copy_corpus(config.architecture, 20, 4);
    EXPECT_NEAR(loss_of(*context, *smaller, *corpus), loss_of(*context, *model, *corpus), 1e-5);
    EXPECT_EQ(translated(*context, *smaller)[2][0].tokens,
              translated(*context, *model)[2][0].tokens);
  }
}

TEST(Prune, WhenAllStaysTheBitsStay) {
  for (const char* form : kPrunedForms) {
    const auto context = make_context({DeviceKind::cpu, 0}, 1);
    const auto model = random_model(*context, pruned_form(form));
    const auto same = pruned(*context, *model, {});
    EXPECT_EQ(same->config(), model->config()) << form;
    EXPECT_EQ(weight_bytes(*context, *same), weight_bytes(*context, *model)) << form;
  }
}

// The stacks may differ; the file keeps it, the model trains, takes an adapter and is pruned again.
TEST(Prune, StacksOfDifferentSizesAreSavedTrainedAndPrunedAgain) {
  const TemporaryDirectory folder;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = random_model(*context, pruned_form("encdec"));
  auto smaller = pruned(*context, *model,
                        {.encoder_ffn_share = 0.25,
                         .decoder_ffn_share = 0.5,
                         .encoder_head_share = 0.75,
                         .decoder_head_share = 0.5,
                         .encoder_layers = 2});
  const ModelConfig config = smaller->config();
  EXPECT_EQ(smaller->spec().encoder->feed_forward.width, 8);
  EXPECT_EQ(config.ffn_width, 16);
  EXPECT_EQ(smaller->spec().encoder->attention.heads, 3);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.head_width, 4);
  EXPECT_EQ(model_config_from_json(to_json(config)), config);
  save_model(folder.path() / "model.safetensors", *context, *smaller);
  const auto loaded = load_model(*context, folder.path() / "model.safetensors");
  EXPECT_EQ(weight_bytes(*context, *loaded), weight_bytes(*context, *smaller));
  const auto int8 = load_model(*context, folder.path() / "model.safetensors", {}, true);
  EXPECT_EQ(translated(*context, *int8).size(), 3u);

  TrainOptions options = quick_options();
  options.after_updates = 12;
  const auto corpus = copy_corpus(config.architecture, 20, 2);
  const double before = loss_of(*context, *loaded, *corpus);
  EXPECT_EQ(TrainingRun(*context, *loaded, copy_data(), options, std::nullopt).run().reason,
            StopReason::limit);
  EXPECT_LT(loss_of(*context, *loaded, *corpus), before);

  const auto again =
      pruned(*context, *loaded, {.encoder_ffn_share = 1, .encoder_layers = 1, .decoder_layers = 1});
  EXPECT_EQ(again->spec().encoder->feed_forward.width, 8);
  EXPECT_EQ(again->config().encoder_layers, 1);
  EXPECT_EQ(again->config().decoder_layers, 1);
  // The modules of an adapter are the rows of its matrices, all of them.
  for (const AdapterSite& site : adapter_sites(*smaller, validated(*smaller, {2, 4, {}}))) {
    const Shape& shape = smaller->parameters().shape(site.matrix);
    const ColumnRange& last = site.modules.back().range;
    EXPECT_EQ(last.first + last.count, shape[0]) << smaller->parameters().name(site.matrix);
    EXPECT_EQ(site.columns, shape[1]) << smaller->parameters().name(site.matrix);
  }
  add_adapter(*context, *smaller, {2, 4, {}}, 1);
  EXPECT_TRUE(std::isfinite(loss_of(*context, *smaller, *corpus)));
}

TEST(Prune, RefusalsNameTheOption) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = random_model(*context, pruned_form("encdec"));
  const auto refused = [&](const PruneOptions& options, const char* text) {
    const Error error = error_of([&] { pruned(*context, *model, options); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.message();
    EXPECT_TRUE(mentions(error, text)) << error.message();
  };
  refused({.encoder_ffn_share = 0}, "encoder_ffn_share");
  refused({.decoder_ffn_share = 1.5}, "decoder_ffn_share");
  refused({.encoder_head_share = NAN}, "encoder_head_share");
  refused({.decoder_head_share = -1}, "decoder_head_share");
  refused({.encoder_layers = 4}, "encoder_layers");
  refused({.decoder_layers = -1}, "decoder_layers");
  CancelToken cancelled;
  cancelled.cancel();
  const auto corpus = copy_corpus(Architecture::encoder_decoder, 5, 4);
  EXPECT_EQ(code_of([&] {
              prune(*context, *model, *corpus, kTokens, {.decoder_ffn_share = 0.5}, &cancelled);
            }),
            ErrorCode::cancelled);
  const auto lm = copy_corpus(Architecture::decoder_lm, 5, 4);
  EXPECT_EQ(code_of([&] { prune(*context, *model, *lm, kTokens, {}); }),
            ErrorCode::invalid_argument);
  change(*model, "output.bias", [](int64_t, int64_t, double) { return NAN; });
  EXPECT_EQ(code_of([&] { pruned(*context, *model, {.decoder_ffn_share = 0.5}); }),
            ErrorCode::non_finite);
  EXPECT_EQ(code_of([&] { pruned(*context, *model, {.decoder_layers = 1}); }),
            ErrorCode::non_finite);
  add_adapter(*context, *model, {2, 4, {}}, 1);
  refused({}, "has an adapter");
}

TEST(Prune, LayersAndHeadsThatDependOnTheOthersStay) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto refused = [&](const ModelConfig& config, const PruneOptions& options,
                           const char* text) {
    const auto model = random_model(*context, config);
    const Error error = error_of([&] { pruned(*context, *model, options); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.message();
    EXPECT_TRUE(mentions(error, text)) << error.message();
  };
  ModelConfig smollm3 = llama_of(pruned_form("lm")), olmo2 = smollm3;
  smollm3.no_rope_interval = 2;
  refused(smollm3, {.decoder_layers = 1}, "decoder_layers: no layer is removed from a model with");
  smollm3.no_rope_interval = 0;
  smollm3.sliding_window = 4;
  smollm3.full_attention_interval = 2;
  refused(smollm3, {.decoder_layers = 1}, "decoder_layers: no layer is removed from a model with");
  olmo2.qk_norm = QkNorm::whole;
  refused(olmo2, {.decoder_head_share = 0.5}, "decoder_head_share: no head is removed");
}

}  // namespace
}  // namespace trafo
