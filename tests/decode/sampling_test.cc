// Sampling: what is drawn is what its definition says, whatever else is in the batch.
#include <algorithm>
#include <limits>
#include <map>

#include "engine/backend/cpu/packed_weights.h"
#include "tests/decode/decode_models.h"

namespace trafo::testing {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;

double uniform_at(uint64_t seed, uint64_t line, uint32_t sample, uint32_t position) {
  const PhiloxBlock block = philox4x32(
      {static_cast<uint32_t>(line), static_cast<uint32_t>(line >> 32), position, sample}, seed);
  return static_cast<double>((uint64_t{block[0]} << 32 | block[1]) >> 11) / 9007199254740992.0;
}

struct Choice {
  double probability;
  int32_t id;
};

// Cuts what is improbable beside the most probable one.
std::vector<Choice> likely(std::vector<Choice> choices, double min_p) {
  double most = 0;
  for (const Choice& choice : choices) most = std::max(most, choice.probability);
  std::erase_if(choices, [&](const Choice& choice) { return choice.probability < min_p * most; });
  return choices;
}

// The tokens that may be drawn: after top_k and top_p in falling order, else in the order of the
// vocabulary.
std::vector<Choice> choices_of(const DecodeOptions& options, const std::vector<double>& log_p,
                               bool may_end) {
  const DrawOptions& draw = options.sampling;
  double total = 0;
  for (const double v : log_p) total += std::exp(v / draw.temperature);
  std::vector<Choice> choices;
  for (size_t id = 0; id < log_p.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (token == options.tokens.pad || token == options.tokens.bos || token == options.tokens.unk ||
        (token == options.tokens.eos && !may_end))
      continue;
    choices.push_back({std::exp(log_p[id] / draw.temperature) / total, token});
  }
  if (draw.top_k == 0 && draw.top_p == 1) return likely(std::move(choices), draw.min_p);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.probability > b.probability; });
  if (draw.top_k > 0 && draw.top_k < static_cast<int64_t>(choices.size()))
    choices.resize(static_cast<size_t>(draw.top_k));
  double all = 0, sum = 0;
  for (const Choice& choice : choices) all += choice.probability;
  for (size_t i = 0; i < choices.size(); ++i) {
    sum += choices[i].probability;
    if (sum >= draw.top_p * all) {
      choices.resize(i + 1);
      break;
    }
  }
  return likely(std::move(choices), draw.min_p);
}

Hypothesis drawn_by_definition(Context& context, const Model& model,
                               const std::vector<int32_t>& source, const DecodeOptions& options,
                               uint64_t line, uint32_t sample) {
  Hypothesis result;
  for (int64_t step = 0; step < options.max_length; ++step) {
    const auto choices =
        choices_of(options, next_log_probabilities(context, model, source, result.tokens),
                   step >= options.min_length);
    double all = 0, sum = 0;
    for (const Choice& choice : choices) all += choice.probability;
    const double target =
        all * uniform_at(options.sampling.seed, line, sample, static_cast<uint32_t>(step));
    const Choice* chosen = &choices[0];
    for (const Choice& choice : choices) {
      chosen = &choice;
      sum += choice.probability;
      if (sum > target) break;
    }
    result.log_probability += std::log(chosen->probability);
    if (chosen->id == options.tokens.eos) return result;
    result.tokens.push_back(chosen->id);
  }
  result.finished = false;
  return result;
}

DecodeOptions sampling(double temperature, int64_t top_k, double top_p, double min_p = 0) {
  DecodeOptions options;
  options.sampling = {.on = true,
                      .temperature = temperature,
                      .top_k = top_k,
                      .top_p = top_p,
                      .min_p = min_p,
                      .seed = 7};
  options.max_length = 9;
  options.n_best = 3;
  return options;
}

// Options without an upper bound are below 2^62, so that what is added to them does not overflow.
constexpr int64_t kLargestTopK = (int64_t{1} << 62) - 512;

class Sampling : public ::testing::TestWithParam<Architecture> {};

TEST_P(Sampling, DrawsWhatTheDefinitionSaysInAnyBatch) {
  const auto context = cpu_context(2);
  const auto model = random_model(*context, decode_config(GetParam()), 3);
  const Sentences sources = random_sentences(5, 9, 13, 4);
  for (DecodeOptions options :
       {sampling(1, 0, 1), sampling(0.7, 0, 1), sampling(1, 4, 1), sampling(1.5, 0, 0.6),
        sampling(0.9, 5, 0.8), sampling(1, kLargestTopK, 1), sampling(1.5, 0, 1, 0.2),
        sampling(1.5, 7, 0.95, 0.3)}) {
    options.min_length = 2;
    for (const int64_t batch : {1, 20, 4096}) {
      options.batch_tokens = batch;
      const auto results = translate_tokens(*context, *model, sources, options);
      for (size_t i = 0; i < sources.size(); ++i) {
        ASSERT_EQ(results[i].size(), 3u);
        for (uint32_t sample = 0; sample < 3; ++sample) {
          const Hypothesis expected =
              drawn_by_definition(*context, *model, sources[i], options, i, sample);
          EXPECT_EQ(results[i][sample].tokens, expected.tokens) << i << " sample " << sample;
          EXPECT_EQ(results[i][sample].finished, expected.finished);
          EXPECT_NEAR(results[i][sample].log_probability, expected.log_probability, 1e-9);
        }
      }
    }
  }
}

TEST_P(Sampling, ATextInPiecesIsDrawnAsInOne) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(GetParam()), 3, DType::f32);
  const Sentences sources = random_sentences(6, 9, 13, 4);
  DecodeOptions options = sampling(1, 0, 1);
  options.weights = pack_for_decoding(*context, *model);
  const auto whole = translate_tokens(*context, *model, sources, options);
  for (size_t i = 0; i < sources.size(); ++i) {
    options.sampling.first_line = static_cast<int64_t>(i);
    const auto one = translate_tokens(*context, *model, {&sources[i], 1}, options);
    for (size_t sample = 0; sample < 3; ++sample) {
      EXPECT_EQ(one[0][sample].tokens, whole[i][sample].tokens);
      EXPECT_EQ(one[0][sample].log_probability, whole[i][sample].log_probability);
    }
  }
  options.sampling.first_line = 0;
  options.sampling.seed = 8;
  const auto other = translate_tokens(*context, *model, sources, options);
  size_t different = 0;
  for (size_t i = 0; i < sources.size(); ++i) different += other[i][0].tokens != whole[i][0].tokens;
  EXPECT_GE(different, 4u);
}

TEST_P(Sampling, TokensComeAsOftenAsTheirProbability) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(GetParam()), 3, DType::f32);
  const Sentences sources = random_sentences(1, 6, 13, 4);
  DecodeOptions options = sampling(1, 0, 1);
  options.n_best = 4000;
  options.max_length = 1;
  std::map<int32_t, double> seen;
  const auto samples = translate_tokens(*context, *model, sources, options);
  for (const Hypothesis& each : samples[0]) seen[each.tokens.empty() ? kEos : each.tokens[0]] += 1;
  const auto choices =
      choices_of(options, next_log_probabilities(*context, *model, sources[0], {}), true);
  double all = 0, chi_square = 0;
  for (const Choice& choice : choices) all += choice.probability;
  for (const Choice& choice : choices) {
    const double expected = 4000 * choice.probability / all;
    chi_square += (seen[choice.id] - expected) * (seen[choice.id] - expected) / expected;
  }
  EXPECT_LT(chi_square, 29.6);  // 9 degrees of freedom, p = 0.0005
}

// At a low temperature a token that may not be drawn has all of the probability that a float holds.
TEST_P(Sampling, NearlyGreedyWhereTheBestTokensMayNotCome) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto context = cpu_context();
    const auto model = random_model(*context, decode_config(GetParam()), 3, dtype);
    const Sentences sources = random_sentences(8, 9, 13, 4);
    DecodeOptions greedy;
    greedy.beam = 1;
    greedy.length_penalty = 0;
    greedy.max_length = greedy.min_length = 9;  // eos, too, may not come where it is the best
    const auto expected = translate_tokens(*context, *model, sources, greedy);
    for (DecodeOptions options : {sampling(1e-5, 0, 1), sampling(1e-5, 0, 0.9),
                                  sampling(1e-5, 3, 1), sampling(1e-5, 3, 0.9)}) {
      options.min_length = 9;
      const auto results = translate_tokens(*context, *model, sources, options);
      for (size_t i = 0; i < sources.size(); ++i) {
        EXPECT_EQ(results[i][0].tokens, expected[i][0].tokens);
        EXPECT_LE(results[i][0].log_probability, 0);
        EXPECT_TRUE(std::isfinite(results[i][0].log_probability));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Sampling,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

class PackedDecoding : public ::testing::TestWithParam<Architecture> {};

TEST_P(PackedDecoding, ABatchDoesNotChangeABitOfASentence) {
  const auto context = cpu_context(2);
  ModelConfig config = decode_config(GetParam(), 70);
  config.width = 48;
  config.ffn_width = 400;  // a product in two passes along K
  const auto model = random_model(*context, config, 3, DType::f32);
  const Sentences sources = random_sentences(40, 9, 70, 4);
  DecodeOptions options;
  options.max_length = 12;
  const auto plain = translate_tokens(*context, *model, {sources.data(), 1}, options);
  options.weights = pack_for_decoding(*context, *model);
  ASSERT_FALSE(options.weights->empty());
  const auto together = translate_tokens(*context, *model, sources, options);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto alone = translate_tokens(*context, *model, {&sources[i], 1}, options);
    EXPECT_EQ(alone[0][0].tokens, together[i][0].tokens);
    EXPECT_EQ(alone[0][0].log_probability, together[i][0].log_probability);
  }
  EXPECT_EQ(plain[0][0].tokens, together[0][0].tokens);
  EXPECT_NEAR(plain[0][0].log_probability, together[0][0].log_probability, 1e-3);
}

TEST_P(PackedDecoding, DoublesAreNotPacked) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(GetParam()), 3);
  EXPECT_EQ(pack_for_decoding(*context, *model), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Models, PackedDecoding,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

TEST(SamplingOptions, OutOfRangeAreNamed) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(Architecture::encoder_decoder), 3);
  const Sentences sources = random_sentences(1, 3, 13, 4);
  const auto error = [&](const DecodeOptions& options) {
    return error_text([&] { translate_tokens(*context, *model, sources, options); });
  };
  EXPECT_EQ(error(sampling(0, 0, 1)), "INVALID_ARGUMENT: temperature must be above 0, got 0");
  EXPECT_EQ(error(sampling(1, -1, 1)), "INVALID_ARGUMENT: top_k must be 0 (all) or above, got -1");
  EXPECT_EQ(error(sampling(1, std::numeric_limits<int64_t>::max(), 1)),
            "INVALID_ARGUMENT: top_k must be 0 (all) or above, got 9223372036854775807");
  EXPECT_EQ(error(sampling(1, 0, 1.5)),
            "INVALID_ARGUMENT: top_p must be above 0 and at most 1, got 1.5");
  DecodeOptions options;
  options.min_length = -1;
  EXPECT_EQ(error(options), "INVALID_ARGUMENT: min_length must be at least 0, got -1");
}

class ShortlistedDecoding : public ::testing::TestWithParam<Architecture> {};

TEST_P(ShortlistedDecoding, AllTokensGiveTheSameAndFewGiveThemAlone) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(GetParam(), 40), 3);
  const Sentences sources = random_sentences(6, 9, 40, 4);
  DecodeOptions options;
  options.max_length = 10;
  const auto whole = translate_tokens(*context, *model, sources, options);
  std::vector<int32_t> all;
  for (int32_t id = 0; id < 40; ++id) all.push_back(id);
  options.shortlist = [&](std::span<const int32_t>) { return all; };
  const auto same = translate_tokens(*context, *model, sources, options);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(same[i][0].tokens, whole[i][0].tokens);
    EXPECT_TRUE(std::none_of(same[i][0].tokens.begin(), same[i][0].tokens.end(),
                             [](int32_t id) { return id < 4; }));
  }
  options.shortlist = [](std::span<const int32_t> source) {
    std::vector<int32_t> tokens(source.begin(), source.end());
    tokens.push_back(1000);  // of another vocabulary
    return tokens;
  };
  options.batch_tokens = 1;  // every sentence has a separate list
  for (const bool draw : {false, true}) {
    options.sampling.on = draw;
    const auto few = translate_tokens(*context, *model, sources, options);
    for (size_t i = 0; i < sources.size(); ++i)
      for (const int32_t id : few[i][0].tokens)
        EXPECT_NE(std::find(sources[i].begin(), sources[i].end(), id), sources[i].end());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ShortlistedDecoding,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

TEST(MinLength, EosWaits) {
  const auto context = cpu_context();
  const auto model = random_model(*context, decode_config(Architecture::encoder_decoder), 3);
  set_output_bias(*context, *model, kEos, 50);  // would end at once
  const Sentences sources = random_sentences(4, 6, 13, 4);
  DecodeOptions options;
  options.max_length = 12;
  for (const int64_t beam : {1, 4}) {
    options.beam = beam;
    options.min_length = 0;
    for (const auto& result : translate_tokens(*context, *model, sources, options))
      EXPECT_EQ(result[0].tokens.size(), 0u);
    options.min_length = 5;
    for (const auto& result : translate_tokens(*context, *model, sources, options)) {
      EXPECT_EQ(result[0].tokens.size(), 5u);
      EXPECT_TRUE(result[0].finished);
    }
  }
}

}  // namespace
}  // namespace trafo::testing
