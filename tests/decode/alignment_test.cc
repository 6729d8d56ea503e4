// Word scores and alignments of hypotheses, searched, sampled or given.
#include "engine/decode/alignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "engine/decode/translator.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo::testing {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;
using Results = std::vector<std::vector<Hypothesis>>;

// The row sums have the rounding of float32 weights.
constexpr double kRounding = 1e-5;

std::vector<int32_t> with_end(const Hypothesis& hypothesis) {
  std::vector<int32_t> target = hypothesis.tokens;
  if (hypothesis.finished) target.push_back(kEos);
  return target;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], kRounding) << i;
}

class WordScores : public ::testing::TestWithParam<Architecture> {
 protected:
  void SetUp() override {
    model_ = random_model(*context_, decode_config(GetParam()), 3);
    set_output_bias(*context_, *model_, kEos, 5);
    options_.beam = options_.n_best = 3;
    options_.word_scores = true;
    options_.length_penalty = 0.7;
    options_.max_length = 9;
  }
  Results translate(const DecodeOptions& options) {
    return translate_tokens(*context_, *model_, sources_, options);
  }
  void expect_sums(const Results& results) const {
    for (const auto& line : results)
      for (const Hypothesis& hypothesis : line) {
        const std::vector<double>& scores = hypothesis.word_scores;
        ASSERT_EQ(scores.size(), with_end(hypothesis).size());
        const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
        EXPECT_NEAR(sum, hypothesis.log_probability, 1e-12);
        EXPECT_NEAR(sum / std::pow(static_cast<double>(scores.size()), options_.length_penalty),
                    hypothesis.score, 1e-12);
      }
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  DecodeOptions options_;
  Sentences sources_ = random_sentences(7, 6, 13, 21);
};

INSTANTIATE_TEST_SUITE_P(Models, WordScores,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

TEST_P(WordScores, SumToTheScoreAndAreThoseOfScoring) {
  const Results results = translate(options_);
  expect_sums(results);
  size_t finished = 0;
  for (size_t i = 0; i < results.size(); ++i)
    for (const Hypothesis& hypothesis : results[i]) {
      if (!hypothesis.finished) continue;
      ++finished;
      const SentencePair pair{sources_[i], with_end(hypothesis)};
      const PairScore scored = score(*context_, *model_, {&pair, 1})[0];
      ASSERT_EQ(scored.word_scores.size(), hypothesis.word_scores.size());
      for (size_t t = 0; t < scored.word_scores.size(); ++t)
        EXPECT_NEAR(scored.word_scores[t], hypothesis.word_scores[t], 1e-10) << i << " " << t;
    }
  EXPECT_GT(finished, 7u);
}

TEST_P(WordScores, DoNotDependOnTheBatchAndChangeNothingElse) {
  const Results together = translate(options_);
  DecodeOptions other = options_;
  other.batch_tokens = 1;
  const Results alone = translate(other);
  other = options_;
  other.word_scores = false;
  const Results plain = translate(other);
  for (size_t i = 0; i < together.size(); ++i) {
    ASSERT_EQ(together[i].size(), alone[i].size());
    for (size_t rank = 0; rank < together[i].size(); ++rank) {
      const Hypothesis& here = together[i][rank];
      ASSERT_EQ(here.tokens, alone[i][rank].tokens);
      for (size_t t = 0; t < here.word_scores.size(); ++t)
        EXPECT_NEAR(here.word_scores[t], alone[i][rank].word_scores[t], 1e-10);
      EXPECT_EQ(here.tokens, plain[i][rank].tokens);
      EXPECT_EQ(here.score, plain[i][rank].score);
      EXPECT_TRUE(plain[i][rank].word_scores.empty());
    }
  }
}

TEST_P(WordScores, OfSamplesAndOfTranslationsThatAreCutOff) {
  DecodeOptions sampled = options_;
  sampled.sampling.on = true;
  expect_sums(translate(sampled));
  DecodeOptions cut = options_;
  cut.min_length = cut.max_length = 4;
  const Results results = translate(cut);
  expect_sums(results);
  EXPECT_FALSE(results[0][0].finished);
  EXPECT_EQ(results[0][0].word_scores.size(), 4u);
}

class Alignments : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = random_model(*context_, decode_config(Architecture::encoder_decoder), 3);
    set_output_bias(*context_, *model_, kEos, 5);
    options_.beam = options_.n_best = 3;
    options_.alignment = true;
    options_.max_length = 9;
  }
  Results translate(const DecodeOptions& options, const Sentences& sources) {
    return translate_tokens(*context_, *model_, sources, options);
  }
  // Every head of the layer attends to all source tokens alike.
  void flatten(const std::string& layer) {
    const ParamId id = model_->parameters().find("decoder." + layer + ".cross.query.weight");
    ASSERT_NE(id, kNoParam);
    const int64_t count = element_count(model_->parameters().shape(id));
    set_values(*context_, *model_, id, std::vector<double>(static_cast<size_t>(count), 0.0));
  }
  static bool flat(const Alignment& alignment) {
    return std::all_of(alignment.weights.begin(), alignment.weights.end(), [&](float weight) {
      return std::abs(weight * static_cast<float>(alignment.source_tokens) - 1) < 1e-4f;
    });
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  DecodeOptions options_;
  Sentences sources_ = random_sentences(7, 6, 13, 22);
};

TEST_F(Alignments, EveryTokenHasADistributionOverTheSource) {
  for (const int64_t max_length : {9, 2}) {  // with 2, some are cut off
    options_.max_length = max_length;
    const Results results = translate(options_, sources_);
    for (size_t i = 0; i < results.size(); ++i)
      for (const Hypothesis& hypothesis : results[i]) {
        const Alignment& a = hypothesis.alignment;
        ASSERT_EQ(a.target_tokens, static_cast<int64_t>(with_end(hypothesis).size()));
        ASSERT_EQ(a.source_tokens, static_cast<int64_t>(sources_[i].size()));
        ASSERT_EQ(a.weights.size(), with_end(hypothesis).size() * sources_[i].size());
        for (int64_t t = 0; t < a.target_tokens; ++t) {
          const auto row = a.weights.begin() + t * a.source_tokens;
          EXPECT_NEAR(std::accumulate(row, row + a.source_tokens, 0.0), 1, kRounding);
          EXPECT_TRUE(std::all_of(row, row + a.source_tokens, [](float w) { return w >= 0; }));
        }
      }
  }
}

TEST_F(Alignments, DoNotDependOnTheBatch) {
  const Results together = translate(options_, sources_);
  DecodeOptions small = options_;
  small.batch_tokens = 1;
  const Results apart = translate(small, sources_);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Results alone = translate(options_, {sources_[i]});
    for (size_t rank = 0; rank < together[i].size(); ++rank) {
      expect_near(together[i][rank].alignment.weights, alone[0][rank].alignment.weights);
      expect_near(together[i][rank].alignment.weights, apart[i][rank].alignment.weights);
    }
  }
}

TEST_F(Alignments, WithPackedWeightsABatchDoesNotChangeABit) {
  model_ = random_model(*context_, decode_config(Architecture::encoder_decoder), 3, DType::f32);
  options_.weights = pack_for_decoding(*context_, *model_);
  const Results together = translate(options_, sources_);
  for (size_t i = 0; i < sources_.size(); ++i)
    EXPECT_EQ(together[i][0].alignment.weights,
              translate(options_, {sources_[i]})[0][0].alignment.weights);
}

TEST_F(Alignments, TheLayerCanBeChosen) {
  flatten("0");
  const auto first_of = [&](int64_t layer) {
    options_.alignment_layer = layer;
    return translate(options_, sources_)[0][0].alignment;
  };
  EXPECT_TRUE(flat(first_of(1)));
  EXPECT_FALSE(flat(first_of(2)));
  EXPECT_EQ(first_of(0).weights, first_of(1).weights);  // of two layers, the last but one
  flatten("1");
  EXPECT_TRUE(flat(first_of(2)));
}

TEST_F(Alignments, EmptySourcesHaveNone) {
  const Results results = translate(options_, {{}, {5, 6, kEos}, {kEos}});
  EXPECT_TRUE(results[0][0].alignment.weights.empty());
  EXPECT_FALSE(results[1][0].alignment.weights.empty());
  EXPECT_TRUE(results[2][0].alignment.weights.empty());
}

TEST_F(Alignments, NamesWhatIsWrong) {
  const auto error = [&](const Model& model) {
    return error_text([&] { translate_tokens(*context_, model, sources_, options_); });
  };
  const auto lm = random_model(*context_, decode_config(Architecture::decoder_lm), 3);
  EXPECT_TRUE(contains(error(*lm), "UNSUPPORTED: an alignment is made of cross-attention"));
  options_.alignment_layer = 3;
  EXPECT_TRUE(
      contains(error(*model_), "alignment_layer is 3, the model has decoder layers 1 to 2"));
  options_.alignment_layer = -1;
  EXPECT_TRUE(contains(error(*model_), "alignment_layer"));
}

// A model that has learnt to copy attends to the token that it copies.
TEST(TrainedAlignment, ACopyIsAlignedWithItself) {
  ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  config.width = 32;
  config.ffn_width = 64;
  TrainOptions options = quick_options();
  options.learning_rate = 5e-3;
  options.warmup = 100;
  options.batch_tokens = 400;
  options.after_updates = 1500;
  options.valid_freq = options.save_freq = {0, PeriodUnit::updates};
  const TrainingData data = copy_data(Architecture::encoder_decoder, 2000);
  const Process process(data, options, std::nullopt, 1, config);
  process.run->run();

  const Sentences sources = random_sentences(30, 7, kVocabulary, 5);
  DecodeOptions decode;
  decode.tokens = kTokens;
  decode.alignment = true;
  const Results results = translate_tokens(*process.context, *process.model, sources, decode);
  size_t tokens = 0, copied = 0, diagonal = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Alignment& a = results[i][0].alignment;
    const std::vector<int32_t> target = with_end(results[i][0]);
    for (size_t t = 0; t < target.size(); ++t) {
      const auto row = a.weights.begin() + static_cast<int64_t>(t) * a.source_tokens;
      const auto best = static_cast<size_t>(std::max_element(row, row + a.source_tokens) - row);
      ++tokens;
      copied += t < sources[i].size() && target[t] == sources[i][t] ? 1 : 0;
      diagonal += best == t ? 1 : 0;
    }
  }
  EXPECT_GE(copied, tokens * 98 / 100) << tokens;
  EXPECT_GE(diagonal, tokens * 95 / 100) << tokens;
}

}  // namespace
}  // namespace trafo::testing
