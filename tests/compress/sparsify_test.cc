// Unstructured pruning of a trained model: which weights become zero.
#include "engine/compress/sparsify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/compress/quantize.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"
#include "tests/support/model_forms.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

const char* const kSparseForms[] = {"encdec", "shared", "lm", "lm untied", "llama", "qwen3"};

std::vector<double> sparse_weights_of(Context& context, const Model& model, ParamId id) {
  const ParameterStore& parameters = model.parameters();
  const auto elements = static_cast<size_t>(element_count(parameters.shape(id)));
  if (parameters.master().dtype() == DType::f64) {
    std::vector<double> values(elements);
    parameters.get_value(context, id, values.data(), elements * sizeof(double));
    return values;
  }
  std::vector<float> values(elements);
  parameters.get_value(context, id, values.data(), elements * sizeof(float));
  return {values.begin(), values.end()};
}

// `group` weights are compared with each other; the `count` with the lowest scores become zero.
std::vector<double> expected_zeros(std::vector<double> values, const std::vector<double>& scores,
                                   size_t group, int64_t count) {
  for (size_t at = 0; at < values.size(); at += group) {
    std::vector<size_t> order(group);
    for (size_t i = 0; i < group; ++i) order[i] = at + i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] < scores[b]; });
    for (int64_t i = 0; i < count; ++i) values[order[static_cast<size_t>(i)]] = 0;
  }
  return values;
}

// The columns' norms of what each layer multiplies, from copies of all of it.
class AllInputs : public LinearObserver {
 public:
  void observe(Context& context, int32_t parameter, const Tensor& x) override {
    const auto values = context.values<double>(x.detach());
    std::vector<double>& all = inputs_[parameter];
    all.insert(all.end(), values.begin(), values.end());
  }
  std::vector<double> norms(ParamId id, size_t columns) const {
    std::vector<double> result(columns);
    const std::vector<double>& all = inputs_.at(id);
    for (size_t i = 0; i < all.size(); ++i) result[i % columns] += all[i] * all[i];
    for (double& value : result) value = std::sqrt(value);
    return result;
  }

 private:
  std::map<int32_t, std::vector<double>> inputs_;
};

TEST(Sparsify, TheWeightsWithTheLowestScoresBecomeZero) {
  for (const char* form : kSparseForms)
    for (const PruneScore score : {PruneScore::magnitude, PruneScore::wanda})
      for (const SparsityPattern pattern :
           {SparsityPattern::unstructured, SparsityPattern::two_of_four}) {
        SCOPED_TRACE(concat(form, " ", static_cast<int>(score), static_cast<int>(pattern)));
        const auto context = make_context({DeviceKind::cpu, 0}, 2);
        const ModelConfig config = form_of(form);
        const auto model = make_model(*context, config, 5, DType::f64);
        const auto before = weight_bytes(*context, *model);
        const auto corpus = copy_corpus(config.architecture, 40, 4);
        SparsifyOptions options;
        options.score = score;
        options.pattern = pattern;
        options.calibration = score == PruneScore::wanda ? corpus.get() : nullptr;
        options.start_id = kTokens.bos;
        const bool free = pattern == SparsityPattern::unstructured;
        options.sparsity = free ? 0.7 : 0.5;
        const auto sparse = sparsify(*context, *model, options);
        EXPECT_EQ(weight_bytes(*context, *model), before);
        EXPECT_EQ(sparse->config(), model->config());
        AllInputs inputs;
        observe_calibration(*context, *model, *corpus, kTokens.bos, inputs);
        int64_t pruned = 0;
        const ParameterStore& parameters = model->parameters();
        for (size_t i = 0; i < parameters.count(); ++i) {
          const auto id = static_cast<ParamId>(i);
          std::vector<double> expected = sparse_weights_of(*context, *model, id);
          if (parameters.prunable(id)) {
            const auto columns = static_cast<size_t>(parameters.shape(id)[1]);
            const auto norms = inputs.norms(id, columns);
            std::vector<double> scores(expected.size());
            for (size_t k = 0; k < scores.size(); ++k)
              scores[k] =
                  std::abs(expected[k]) * (score == PruneScore::wanda ? norms[k % columns] : 1);
            const size_t group = !free ? 4 : score == PruneScore::wanda ? columns : scores.size();
            const int64_t count =
                free ? std::llround(0.7 * static_cast<double>(group)) : int64_t{2};
            expected = expected_zeros(std::move(expected), scores, group, count);
            EXPECT_EQ(count_zeros(*context, sparse->parameters(), id),
                      count * std::ssize(scores) / static_cast<int64_t>(group));
            ++pruned;
          }
          EXPECT_EQ(sparse_weights_of(*context, *sparse, id), expected) << parameters.name(id);
        }
        EXPECT_GE(pruned, 4);
      }
}

TEST(Sparsify, TheFileHasTheZerosAndTheModelTrains) {
  const TemporaryDirectory folder;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, form_of("encdec"), 5);
  SparsifyOptions options;
  options.sparsity = 0.75;
  const auto sparse = sparsify(*context, *model, options);
  save_model(folder / "model.safetensors", *context, *sparse);
  const auto loaded = load_model(*context, folder / "model.safetensors");
  EXPECT_EQ(weight_bytes(*context, *loaded), weight_bytes(*context, *sparse));
  TrainOptions training = quick_options();
  training.keep_zeros = true;
  training.after_updates = 8;
  const ParamId id = loaded->parameters().find("decoder.1.ffn.down.weight");
  const int64_t zeros = count_zeros(*context, loaded->parameters(), id);
  EXPECT_EQ(zeros, 16 * 32 * 3 / 4);
  TrainingRun(*context, *loaded, copy_data(), training, std::nullopt).run();
  EXPECT_EQ(count_zeros(*context, loaded->parameters(), id), zeros);
  EXPECT_NE(weight_bytes(*context, *loaded), weight_bytes(*context, *sparse));
  // Codes of zeros are zeros.
  const auto int8 = quantize_model(*context, *loaded, {});
  EXPECT_GE(count_zeros(*context, int8->parameters(), id), zeros);
}

TEST(Sparsify, TheNumberOfThreadsDoesNotMatter) {
  std::vector<std::byte> bits;
  for (const int threads : {1, 4}) {
    const auto context = make_context({DeviceKind::cpu, 0}, threads);
    const auto model = make_model(*context, form_of("lm"), 5);
    const auto corpus = copy_corpus(Architecture::decoder_lm, 40, 4);
    SparsifyOptions options;
    options.score = PruneScore::wanda;
    options.calibration = corpus.get();
    const auto bytes = weight_bytes(*context, *sparsify(*context, *model, options));
    if (bits.empty()) bits = bytes;
    EXPECT_EQ(bytes, bits);
  }
}

TEST(Sparsify, WhatCannotBeIsNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, form_of("encdec"), 5);
  const auto corpus = copy_corpus(Architecture::encoder_decoder, 10, 4);
  const auto other = copy_corpus(Architecture::decoder_lm, 10, 4);
  const auto refused = [&](SparsifyOptions options, const char* text) {
    expect_error(ErrorCode::invalid_argument, text, [&] { sparsify(*context, *model, options); });
  };
  const auto with = [](double sparsity, PruneScore score, SparsityPattern pattern,
                       const TokenizedCorpus* calibration) {
    SparsifyOptions options;
    options.sparsity = sparsity;
    options.score = score;
    options.pattern = pattern;
    options.calibration = calibration;
    return options;
  };
  constexpr auto magnitude = PruneScore::magnitude, wanda = PruneScore::wanda;
  constexpr auto free = SparsityPattern::unstructured, two = SparsityPattern::two_of_four;
  for (const double sparsity : {1.0, -0.5, 80.0, std::numeric_limits<double>::quiet_NaN()})
    refused(with(sparsity, magnitude, free, nullptr), "sparsity must be at least 0 and below 1");
  refused(with(0.8, magnitude, two, nullptr), "sparsity must be 0.5 with the pattern 2:4, got 0.8");
  refused(with(0.5, wanda, free, nullptr), "wanda needs calibration data");
  refused(with(0.5, wanda, free, other.get()), "another architecture");
  refused(with(0.5, static_cast<PruneScore>(7), free, nullptr), "score is unknown: 7");
  refused(with(0.5, magnitude, static_cast<SparsityPattern>(3), nullptr), "pattern is unknown: 3");

  ModelConfig odd = form_of("lm");
  odd.ffn_width = 30;
  const auto narrow = make_model(*context, odd, 5);
  expect_error(ErrorCode::invalid_argument, "decoder.0.ffn.down.weight has 30",
               [&] { sparsify(*context, *narrow, with(0.5, magnitude, two, nullptr)); });
  CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(
      code_of([&] { sparsify(*context, *model, with(0.5, wanda, free, corpus.get()), &cancel); }),
      ErrorCode::cancelled);
  const auto int8 = quantize_model(*context, *model, {});
  EXPECT_EQ(code_of([&] { sparsify(*context, *int8, {}); }), ErrorCode::unsupported);
  const ParamId id = model->parameters().find("encoder.0.ffn.up.weight");
  std::vector<float> values(static_cast<size_t>(element_count(model->parameters().shape(id))), 1);
  values[7] = NAN;
  model->parameters().set_value(*context, id, values.data(), values.size() * sizeof(float));
  expect_error(ErrorCode::non_finite, "encoder.0.ffn.up.weight",
               [&] { sparsify(*context, *model, with(0.5, magnitude, free, nullptr)); });
  const auto blind = make_model(*context, form_of("encdec"), 5);
  const ParamId embedding = blind->parameters().find("embedding.weight");
  values.assign(static_cast<size_t>(element_count(blind->parameters().shape(embedding))), NAN);
  blind->parameters().set_value(*context, embedding, values.data(), values.size() * sizeof(float));
  expect_error(ErrorCode::non_finite, "are not finite on the calibration data",
               [&] { sparsify(*context, *blind, with(0.5, wanda, free, corpus.get())); });
  add_adapter(*context, *model, {2, 4, {}}, 1);
  refused({}, "has an adapter");
}

}  // namespace
}  // namespace trafo
