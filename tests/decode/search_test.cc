// Limits, special sentences, errors and cancellation of translate_tokens() and score(); the rules
// of BeamSearch.
#include "engine/decode/search.h"
#include "tests/support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/decode/decode_models.h"

namespace trafo::testing {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;

class TranslateTokens : public ::testing::TestWithParam<Architecture> {
 protected:
  void SetUp() override { model_ = random_model(*context_, decode_config(GetParam()), 5); }

  std::string error_for(const Sentences& sources, const DecodeOptions& options = {}) {
    return error_text([&] { translate_tokens(*context_, *model_, sources, options); });
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Models, TranslateTokens,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

TEST_P(TranslateTokens, EmptySentencesAndEmptyInput) {
  EXPECT_TRUE(translate_tokens(*context_, *model_, {}).empty());
  const Sentences sources = {{}, {5, 6, kEos}, {kEos}};
  const auto found = translate_tokens(*context_, *model_, sources);
  ASSERT_EQ(found.size(), 3u);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    ASSERT_EQ(found[i].size(), 1u);
    EXPECT_TRUE(found[i][0].tokens.empty());
    EXPECT_EQ(found[i][0].log_probability, 0);
  }
  EXPECT_LT(found[1][0].log_probability, 0);
  EXPECT_EQ(found[1][0].tokens,
            translate_tokens(*context_, *model_, {&sources[1], 1})[0][0].tokens);
}

TEST_P(TranslateTokens, StopsAtTheMaximumLength) {
  set_output_bias(*context_, *model_, kEos, -1e9);
  const Sentences sources = {{5, 6, 7, kEos}, {5, kEos}};
  DecodeOptions options;
  options.max_length_extra = 3;
  auto found = translate_tokens(*context_, *model_, sources, options);
  EXPECT_EQ(found[0][0].tokens.size(), 2u * 4 + 3);
  EXPECT_EQ(found[1][0].tokens.size(), 2u * 2 + 3);
  EXPECT_FALSE(found[0][0].finished);
  EXPECT_EQ(finish_reason(found[0][0]), FinishReason::length);
  EXPECT_NEAR(found[1][0].score, found[1][0].log_probability / 7, 1e-12);

  options.max_length = 6;
  found = translate_tokens(*context_, *model_, sources, options);
  EXPECT_EQ(found[0][0].tokens.size(), 6u);

  // As far as there are positions: the last token is never fed.
  options.max_length = 1000;
  options.max_length_factor = 1e300;
  found = translate_tokens(*context_, *model_, sources, options);
  const bool stream = GetParam() == Architecture::decoder_lm;
  EXPECT_EQ(found[0][0].tokens.size(), stream ? 48u - 4 + 1 : 48u);
  EXPECT_EQ(found[1][0].tokens.size(), stream ? 48u - 2 + 1 : 48u);
}

TEST_P(TranslateTokens, SpecialTokensAreNotGenerated) {
  const Sentences sources = {{5, 6, 7, kEos}};
  for (const int32_t token : {0, 1, 3}) {
    set_output_bias(*context_, *model_, token, 30);
    const auto found = translate_tokens(*context_, *model_, sources);
    for (const int32_t id : found[0][0].tokens) EXPECT_NE(id, token);
    EXPECT_LT(found[0][0].log_probability, -20);  // they keep their share
  }
  set_output_bias(*context_, *model_, 0, 30);
  DecodeOptions options;
  options.allow_unk = true;
  options.beam = 1;
  const auto found = translate_tokens(*context_, *model_, sources, options);
  EXPECT_NE(std::count(found[0][0].tokens.begin(), found[0][0].tokens.end(), 0), 0);
}

TEST_P(TranslateTokens, LongSourcesAreErrors) {
  const int64_t limit = longest_source(model_->spec());
  EXPECT_EQ(limit, GetParam() == Architecture::decoder_lm ? 24 : 48);
  std::vector<int32_t> longest(static_cast<size_t>(limit - 1), 5);
  longest.push_back(kEos);
  std::vector<int32_t> too_long = longest;
  too_long.insert(too_long.end() - 1, {6, 7});
  EXPECT_EQ(error_for({longest}), "");
  const std::string error = error_for({{5, kEos}, too_long});
  EXPECT_TRUE(contains(error, "INVALID_ARGUMENT: sentence 2 has ")) << error;
  EXPECT_TRUE(contains(error, std::to_string(limit))) << error;
}

TEST_P(TranslateTokens, NamesWhatIsWrong) {
  EXPECT_TRUE(contains(error_for({{5, kEos}, {}, {5, 6}}), "sentence 3 must end with eos"));
  EXPECT_TRUE(contains(error_for({{5, 13, kEos}}), "sentence 1 has token 13"));
  EXPECT_TRUE(contains(error_for({{5, -1, kEos}}), "sentence 1 has token -1"));
  EXPECT_EQ(error_for({{0, 12, kEos}}), "");
  const auto with = [&](auto change) {
    DecodeOptions options;
    change(options);
    return error_for({{5, kEos}}, options);
  };
  EXPECT_TRUE(contains(with([](auto& o) { o.beam = 0; }), "beam must be 1 to 4096, got 0"));
  EXPECT_TRUE(contains(with([](auto& o) { o.n_best = 6; }), "n_best must be 1 to the beam"));
  EXPECT_TRUE(contains(with([](auto& o) { o.max_length = 0; }), "max_length"));
  EXPECT_TRUE(contains(with([](auto& o) { o.length_penalty = std::nan(""); }), "length_penalty"));
  EXPECT_TRUE(contains(with([](auto& o) { o.batch_tokens = 0; }), "batch_tokens"));
  EXPECT_TRUE(contains(with([](auto& o) { o.max_length_extra = 0; }), "max_length_extra"));
  EXPECT_EQ(with([](auto& o) { o.max_length_extra = 1; }), "");
  EXPECT_TRUE(contains(with([](auto& o) { o.tokens.eos = 13; }), "eos"));
  // A decoder-only model reads no bos.
  const std::string bos = with([](auto& o) { o.tokens.bos = 13; });
  EXPECT_EQ(contains(bos, "bos must be a token"), GetParam() == Architecture::encoder_decoder);
}

TEST_P(TranslateTokens, ModelsThatAnswerNaNAreNamed) {
  set_output_bias(*context_, *model_, 4, std::nan(""));
  const std::string error = error_for({{}, {5, kEos}});
  EXPECT_TRUE(contains(error, "NON_FINITE: ")) << error;
  EXPECT_TRUE(contains(error, "sentence 2")) << error;
}

TEST_P(TranslateTokens, CanBeCancelledAndUsedAgain) {
  const Sentences sources = random_sentences(5, 6, 13, 2);
  const auto expected = translate_tokens(*context_, *model_, sources);
  DecodeOptions options;
  CancelToken cancel;
  options.cancel = &cancel;
  // Within a batch, whose first step the decoder then still makes.
  options.shortlist = [&](std::span<const int32_t> tokens) {
    EXPECT_FALSE(cancel.is_cancelled());
    cancel.cancel();
    return std::vector<int32_t>(tokens.begin(), tokens.end());
  };
  EXPECT_TRUE(contains(error_for(sources, options), "CANCELLED"));
  EXPECT_TRUE(cancel.is_cancelled());
  EXPECT_TRUE(context_->recording());
  const auto again = translate_tokens(*context_, *model_, sources);
  for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(again[i][0].tokens, expected[i][0].tokens);

  ScoreOptions score_options;
  score_options.cancel = &cancel;
  const std::vector<SentencePair> pairs = {{{5, kEos}, {6, kEos}}};
  EXPECT_TRUE(
      contains(error_text([&] { score(*context_, *model_, pairs, score_options); }), "CANCELLED"));
}

TEST_P(TranslateTokens, RecordsNothing) {
  const Sentences sources = {{5, 6, kEos}};
  translate_tokens(*context_, *model_, sources);
  const std::vector<SentencePair> pairs = {{{5, kEos}, {6, kEos}}};
  score(*context_, *model_, pairs);
  EXPECT_EQ(context_->tape().size(), 0u);
}

TEST_P(TranslateTokens, ScoreSumsTheTokensOfEachPair) {
  std::vector<SentencePair> pairs;
  const Sentences sources = random_sentences(9, 7, 13, 41),
                  targets = random_sentences(9, 9, 13, 42);
  for (size_t i = 0; i < sources.size(); ++i) pairs.push_back({sources[i], targets[i]});
  pairs.push_back({{kEos}, {kEos}});
  ScoreOptions options;
  options.batch_tokens = 25;
  const auto scores = score(*context_, *model_, pairs, options);
  for (size_t i = 0; i < pairs.size(); ++i) {
    double expected = 0;
    std::vector<int32_t> before;
    for (const int32_t token : pairs[i].target) {
      expected += next_log_probabilities(*context_, *model_, pairs[i].source,
                                         before)[static_cast<size_t>(token)];
      before.push_back(token);
    }
    EXPECT_NEAR(scores[i].log_probability, expected, 1e-10) << "pair " << i;
    EXPECT_EQ(scores[i].tokens, static_cast<int64_t>(pairs[i].target.size()));
  }
}

TEST_P(TranslateTokens, ScoreNamesBadPairs) {
  const auto error_for_pairs = [&](const std::vector<SentencePair>& pairs) {
    return error_text([&] { score(*context_, *model_, pairs); });
  };
  const SentencePair good = {{5, kEos}, {6, kEos}};
  EXPECT_TRUE(contains(error_for_pairs({good, {{}, {kEos}}}), "the source of pair 2 must end"));
  EXPECT_TRUE(contains(error_for_pairs({{{kEos}, {5}}}), "the target of pair 1 must end"));
  EXPECT_TRUE(contains(error_for_pairs({{{kEos}, {99, kEos}}}), "token 99"));
  std::vector<int32_t> half(30, 5);
  half.back() = kEos;
  const std::string error = error_for_pairs({{half, half}});
  EXPECT_EQ(contains(error, "59 tokens in one stream"), GetParam() == Architecture::decoder_lm)
      << error;
}

std::vector<BeamSearch::Candidate> candidates(std::initializer_list<BeamSearch::Candidate> list) {
  return list;
}

TEST(BeamSearch, OnlyTheFirstBeamCandidatesCanFinish) {
  DecodeOptions options;
  options.beam = 2;
  options.n_best = 2;
  BeamSearch search(options, 10);
  auto first = candidates({{-3, 0, kEos}, {-1, 0, 7}, {-2, 0, 8}});
  search.advance(first);  // eos is third: not finished
  ASSERT_EQ(search.live().size(), 2u);
  EXPECT_EQ(search.live()[0].tokens, (std::vector<int32_t>{7}));
  EXPECT_EQ(search.live()[1].tokens, (std::vector<int32_t>{8}));
  EXPECT_FALSE(search.done());

  auto second = candidates({{-1.5, 0, kEos}, {-4, 0, 5}, {-2.5, 1, kEos}, {-6, 1, 5}});
  search.advance(second);
  EXPECT_TRUE(search.done());
  const auto results = search.results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].tokens, (std::vector<int32_t>{7}));
  EXPECT_EQ(results[0].score, -0.75);
  EXPECT_EQ(results[0].log_probability, -1.5);
  EXPECT_EQ(results[1].tokens, (std::vector<int32_t>{8}));
}

TEST(BeamSearch, EqualCandidatesGoByHypothesisThenToken) {
  DecodeOptions options;
  options.beam = 3;
  BeamSearch search(options, 10);
  auto first = candidates({{-1, 0, 9}, {-1, 0, 5}, {-1, 0, 7}, {-1, 0, 6}});
  search.advance(first);
  ASSERT_EQ(search.live().size(), 3u);
  EXPECT_EQ(search.live()[0].tokens[0], 5);
  EXPECT_EQ(search.live()[1].tokens[0], 6);
  EXPECT_EQ(search.live()[2].tokens[0], 7);
  auto second = candidates({{-2, 2, 4}, {-2, 0, 8}, {-2, 1, 4}});
  search.advance(second);
  EXPECT_EQ(search.live()[0].parent, 0);
  EXPECT_EQ(search.live()[1].parent, 1);
  EXPECT_EQ(search.live()[2].parent, 2);
}

TEST(BeamSearch, UnfinishedHypothesesCompeteAtTheMaximumLength) {
  DecodeOptions options;
  options.beam = options.n_best = 3;
  options.word_scores = true;
  BeamSearch search(options, 2);
  auto first = candidates({{-1, 0, 5}, {-3, 0, kEos}, {-2, 0, 6}, {-4, 0, 7}});
  search.advance(first);  // eos, which is poor, is finished
  EXPECT_FALSE(search.done());
  auto second = candidates({{-1.5, 0, 8}, {-5, 0, kEos}, {-4.5, 1, 8}, {-2.5, 1, kEos}});
  search.advance(second);
  EXPECT_TRUE(search.done());
  const auto results = search.results();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].tokens, (std::vector<int32_t>{5, 8}));
  EXPECT_FALSE(results[0].finished);
  EXPECT_EQ(results[0].score, -0.75);
  EXPECT_EQ(results[0].word_scores, (std::vector<double>{-1, -0.5}));
  EXPECT_EQ(results[1].tokens, (std::vector<int32_t>{6}));
  EXPECT_TRUE(results[1].finished);
  EXPECT_EQ(results[1].score, -1.25);
  EXPECT_EQ(results[2].tokens, (std::vector<int32_t>{6, 8}));
  EXPECT_FALSE(results[2].finished);
}

TEST(BeamSearch, UnfinishedHypothesesDoNotCompeteBeforeTheMaximumLength) {
  DecodeOptions options;
  options.beam = options.n_best = 2;
  BeamSearch search(options, 10);
  auto first = candidates({{-1, 0, kEos}, {-2, 0, 5}, {-3, 0, 6}});
  search.advance(first);
  auto second = candidates({{-2.5, 0, kEos}, {-2.6, 0, 7}, {-4, 1, 7}});
  search.advance(second);
  ASSERT_TRUE(search.done());
  const auto results = search.results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_EQ(results[1].tokens, (std::vector<int32_t>{5}));
  EXPECT_TRUE(results[1].finished);
}

TEST(BeamSearch, EqualScoresAtTheMaximumLengthGoToTheFinishedHypothesis) {
  DecodeOptions options;
  options.beam = 2;
  BeamSearch search(options, 1);
  auto only = candidates({{-1, 0, kEos}, {-1, 0, 5}, {-3, 0, 6}});
  search.advance(only);
  EXPECT_TRUE(search.results()[0].finished);
}

// A beam of 1 follows the most probable token, so at the limit the best of the last step counts.
TEST(BeamSearch, ABeamOfOneIsGreedyAtTheMaximumLength) {
  DecodeOptions options;
  options.beam = 1;
  BeamSearch search(options, 1);
  auto only = candidates({{-2, 0, kEos}, {-1, 0, 5}});
  search.advance(only);
  ASSERT_TRUE(search.done());
  EXPECT_EQ(search.results()[0].tokens, (std::vector<int32_t>{5}));
}

TEST(BeamSearch, HypothesesThatNoTokenMayFollowEndUnfinished) {
  DecodeOptions options;
  options.beam = options.n_best = 2;
  options.min_length = 5;
  BeamSearch search(options, 10);
  auto first = candidates({{-1, 0, 5}, {-2, 0, 6}});
  search.advance(first);
  auto second = candidates({{-3, 0, kEos}});  // too early
  search.advance(second);
  ASSERT_TRUE(search.done());
  const auto results = search.results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].tokens, (std::vector<int32_t>{5}));
  EXPECT_EQ(results[0].score, -1);
  EXPECT_FALSE(results[0].finished);
  EXPECT_EQ(finish_reason(results[0]), FinishReason::blocked);

  BeamSearch nothing(options, 10);
  auto none = candidates({});
  nothing.advance(none);
  ASSERT_TRUE(nothing.done());
  EXPECT_EQ(nothing.results().size(), 1u);
  EXPECT_EQ(nothing.results()[0].score, 0);
}

TEST(BeamSearch, EndsWhenNothingIsLeft) {
  DecodeOptions options;
  options.beam = 3;
  BeamSearch search(options, 10);
  auto only = candidates({{-1, 0, kEos}});
  search.advance(only);
  EXPECT_TRUE(search.done());
  EXPECT_EQ(search.results().size(), 1u);
}

}  // namespace
}  // namespace trafo::testing
