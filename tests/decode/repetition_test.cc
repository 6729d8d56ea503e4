// Repetition penalty, n-grams that may not repeat and given beginnings: against their definitions,
// for search and sampling, whatever else is in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/decode/logits_processor.h"
#include "tests/decode/decode_models.h"

namespace trafo::testing {
namespace {

using Tokens = std::vector<int32_t>;
using Sentences = std::vector<Tokens>;

// log p(token | source, tokens) of every token, after the rules.
std::vector<double> next_by_rules(Context& context, const Model& model, const Tokens& source,
                                  const Tokens& tokens, const Tokens& text,
                                  const DecodeOptions& options) {
  std::vector<double> logits = next_log_probabilities(context, model, source, tokens);
  // Log-probabilities are logits up to a constant, which the penalty is sensitive to.
  const NoGrad no_grad(context);
  SentencePair pair{source, tokens};
  pair.target.push_back(kEos);
  const SentencePair* only = &pair;
  const Batch batch = pack_pairs(context, model.spec(), {}, {&only, 1});
  const auto all = context.values<double>(model.logits(context, batch));
  logits.assign(all.end() - static_cast<int64_t>(logits.size()), all.end());
  for (const int32_t token : std::set<int32_t>(text.begin(), text.end())) {
    double& x = logits[static_cast<size_t>(token)];
    x = x > 0 ? x / options.repetition_penalty : x * options.repetition_penalty;
  }
  const auto n = static_cast<size_t>(options.no_repeat_ngram_size);
  for (int32_t token = 0; n > 0 && token < model.config().vocabulary; ++token) {
    Tokens longer = text;
    longer.push_back(token);
    for (size_t begin = 0; begin + n < longer.size(); ++begin)
      if (std::equal(longer.end() - static_cast<int64_t>(n), longer.end(),
                     longer.begin() + static_cast<int64_t>(begin)))
        logits[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
  }
  double total = 0;
  for (const double x : logits) total += std::exp(x);
  for (double& x : logits) x -= std::log(total);
  return logits;
}

Hypothesis greedy_by_rules(Context& context, const Model& model, const Tokens& source,
                           const DecodeOptions& options, int64_t max_steps, const Tokens& prefix) {
  Hypothesis result;
  result.finished = false;
  const int64_t limit = max_steps + static_cast<int64_t>(prefix.size());
  for (int64_t step = 0; step < limit && !result.finished; ++step) {
    Tokens text = options.end_source ? Tokens() : source;
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
    int32_t best = -1;
    std::vector<double> next;
    if (step < static_cast<int64_t>(prefix.size())) {
      next = next_log_probabilities(context, model, source, result.tokens);
      best = prefix[static_cast<size_t>(step)];
    } else {
      next = next_by_rules(context, model, source, result.tokens, text, options);
      for (int32_t token = 2; token < model.config().vocabulary; ++token)
        if (token != 3 &&
            (best < 0 || next[static_cast<size_t>(token)] > next[static_cast<size_t>(best)]))
          best = token;
    }
    result.log_probability += next[static_cast<size_t>(best)];
    result.word_scores.push_back(next[static_cast<size_t>(best)]);
    if (best == kEos)
      result.finished = true;
    else
      result.tokens.push_back(best);
  }
  return result;
}

class Repetition : public ::testing::TestWithParam<Architecture> {
 protected:
  void SetUp() override {
    model_ = random_model(*context_, decode_config(GetParam()), 11);
    set_output_bias(*context_, *model_, kEos, -1);  // long enough to repeat something
    options_.max_length_factor = 0;
    options_.max_length_extra = 12;
    options_.word_scores = true;
  }
  std::vector<std::vector<Hypothesis>> translated(const Sentences& sources) const {
    return translate_tokens(*context_, *model_, sources, options_);
  }
  std::string error_for(const Sentences& sources, const Sentences& prefixes) {
    options_.prefixes = prefixes;
    return error_text([&] { translated(sources); });
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  DecodeOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Models, Repetition,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

TEST(LogitsProcessor, FindsTheTokensThatWouldRepeatAnNgram) {
  const auto repeating = [](const Tokens& text, int64_t n) {
    return LogitsProcessor::repeating(text, n);
  };
  EXPECT_EQ(repeating({5, 6, 7, 5, 6}, 3), (Tokens{7}));
  EXPECT_EQ(repeating({5, 6, 7, 5, 6, 8, 5, 6}, 3), (Tokens{7, 8}));
  EXPECT_EQ(repeating({5, 6, 5, 6, 5}, 2), (Tokens{6}));
  EXPECT_EQ(repeating({6, 5, 6}, 1), (Tokens{5, 6}));
  EXPECT_EQ(repeating({5, 5}, 3), (Tokens{}));
  EXPECT_EQ(repeating({5, 5}, 2), (Tokens{5}));
  EXPECT_EQ(repeating({5}, 2), (Tokens{}));
  EXPECT_EQ(repeating({}, 1), (Tokens{}));
}

TEST(LogitsProcessor, ChangesTheNamedRowsAlone) {
  const auto context = cpu_context();
  DecodeOptions options;
  options.repetition_penalty = 2;
  options.no_repeat_ngram_size = 2;
  const LogitsProcessor processor(options);
  const std::vector<double> logits = {1, -1, 2, -2, 1, -1, 2, -2, 1, -1, 2, -2};
  const std::vector<LogitsProcessor::Row> rows = {{1, {0, 3, 0}}, {2, {3}}};
  const Tensor before = context->from_values<double>(logits, {3, 4});
  const double none = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(context->values<double>(processor.process(*context, before, rows, {})),
            (std::vector<double>{1, -1, 2, -2, 0.5, -1, 2, none, 1, -1, 2, -4}));
  // Columns of a shortlist: token 0 is not on it, token 3 is column 1.
  const Tokens classes = {1, 3, 5, 7};
  EXPECT_EQ(context->values<double>(processor.process(*context, before, rows, classes)),
            (std::vector<double>{1, -1, 2, -2, 1, none, 2, -2, 1, -2, 2, -2}));
}

TEST_P(Repetition, GreedySearchFollowsTheDefinition) {
  options_.beam = 1;
  const Sentences sources = random_sentences(6, 7, 13, 5);
  size_t changed = 0;
  const auto plain = translated(sources);
  for (const auto& [penalty, ngram] :
       {std::pair(1.5, 0), std::pair(1.0, 2), std::pair(0.7, 3), std::pair(1.2, 1)}) {
    options_.repetition_penalty = penalty;
    options_.no_repeat_ngram_size = ngram;
    const auto found = translated(sources);
    for (size_t i = 0; i < sources.size(); ++i) {
      const Hypothesis expected = greedy_by_rules(*context_, *model_, sources[i], options_, 12, {});
      EXPECT_EQ(found[i][0].tokens, expected.tokens) << i;
      EXPECT_NEAR(found[i][0].log_probability, expected.log_probability, 1e-10);
      changed += found[i][0].tokens != plain[i][0].tokens;
    }
  }
  EXPECT_GT(changed, 8u);
}

TEST_P(Repetition, ATextThatIsContinuedCounts) {
  if (GetParam() == Architecture::encoder_decoder) return;
  options_.beam = 1;
  options_.end_source = false;
  options_.repetition_penalty = 3;
  options_.no_repeat_ngram_size = 2;
  const Sentences sources = {{5, 6, 7, 5}, {8, 9}};
  const auto found = translated(sources);
  for (size_t i = 0; i < sources.size(); ++i)
    EXPECT_EQ(found[i][0].tokens,
              greedy_by_rules(*context_, *model_, sources[i], options_, 12, {}).tokens);
}

TEST_P(Repetition, NoHypothesisRepeatsAnNgram) {
  const Sentences sources = random_sentences(8, 9, 13, 7);
  options_.beam = options_.n_best = 4;
  options_.no_repeat_ngram_size = 2;
  for (const bool sampling : {false, true}) {
    options_.sampling.on = sampling;
    for (const auto& hypotheses : translated(sources)) {
      ASSERT_EQ(hypotheses.size(), 4u);
      for (const Hypothesis& hypothesis : hypotheses) {
        std::set<std::pair<int32_t, int32_t>> seen;
        for (size_t i = 1; i < hypothesis.tokens.size(); ++i)
          EXPECT_TRUE(seen.emplace(hypothesis.tokens[i - 1], hypothesis.tokens[i]).second);
      }
    }
  }
}

// Nine tokens may be generated, each once, and no translation may end before twelve.
TEST_P(Repetition, ATranslationWithoutAnyTokenLeftEndsUnfinished) {
  options_.no_repeat_ngram_size = 1;
  options_.min_length = 12;
  options_.beam = options_.n_best = 2;
  const auto expect_nine = [&](const std::vector<Hypothesis>& hypotheses) {
    ASSERT_EQ(hypotheses.size(), 2u);
    for (const Hypothesis& hypothesis : hypotheses) {
      EXPECT_EQ(hypothesis.tokens.size(), 9u);
      EXPECT_FALSE(hypothesis.finished);
      EXPECT_TRUE(std::isfinite(hypothesis.score));
    }
  };
  expect_nine(translated({{5, 6, kEos}})[0]);
  options_.sampling.on = true;
  expect_nine(translated({{5, 6, kEos}})[0]);
  options_.sampling.top_k = 5;
  expect_nine(translated({{5, 6, kEos}})[0]);
}

TEST_P(Repetition, CompanyInTheBatchChangesNothing) {
  const Sentences sources = random_sentences(20, 8, 13, 9);
  Sentences prefixes(sources.size());
  for (size_t i = 0; i < prefixes.size(); i += 3)
    prefixes[i] = {7, 8, static_cast<int32_t>(4 + i % 5)};
  options_.beam = options_.n_best = 3;
  options_.repetition_penalty = 1.3;
  options_.no_repeat_ngram_size = 3;
  for (const bool sampling : {false, true}) {
    options_.sampling.on = sampling;
    options_.sampling.first_line = 0;
    options_.prefixes = prefixes;
    const auto together = translated(sources);
    for (size_t i = 0; i < sources.size(); ++i) {
      options_.sampling.first_line = static_cast<int64_t>(i);
      options_.prefixes = std::span(&prefixes[i], 1);
      const auto alone = translated({sources[i]})[0];
      ASSERT_EQ(alone.size(), together[i].size());
      for (size_t rank = 0; rank < alone.size(); ++rank) {
        EXPECT_EQ(alone[rank].tokens, together[i][rank].tokens) << i;
        EXPECT_NEAR(alone[rank].score, together[i][rank].score, 1e-10);
      }
    }
  }
}

TEST_P(Repetition, AGivenBeginningIsPartOfTheHypothesis) {
  const Sentences sources = random_sentences(5, 7, 13, 15);
  const Sentences prefixes = {{4, 4, 4}, {}, {9}, {12, 5}, {10, 11, 4, 6}};
  options_.prefixes = prefixes;
  options_.no_repeat_ngram_size = 2;  // given tokens may repeat
  options_.beam = 1;
  for (const bool shortlist : {false, true}) {
    if (shortlist)  // does not have the tokens of the beginnings
      options_.shortlist = [](std::span<const int32_t>) { return Tokens{7, 8}; };
    const auto found = translated(sources);
    for (size_t i = 0; i < sources.size(); ++i) {
      const Hypothesis& hypothesis = found[i][0];
      ASSERT_GT(hypothesis.tokens.size() + 1, prefixes[i].size());
      EXPECT_TRUE(std::equal(prefixes[i].begin(), prefixes[i].end(), hypothesis.tokens.begin()));
      EXPECT_LE(hypothesis.tokens.size(), 12 + prefixes[i].size());
      if (shortlist) continue;
      const Hypothesis expected =
          greedy_by_rules(*context_, *model_, sources[i], options_, 12, prefixes[i]);
      EXPECT_EQ(hypothesis.tokens, expected.tokens) << i;
      ASSERT_EQ(hypothesis.word_scores.size(), expected.word_scores.size());
      for (size_t t = 0; t < expected.word_scores.size(); ++t)
        EXPECT_NEAR(hypothesis.word_scores[t], expected.word_scores[t], 1e-10);
      EXPECT_NEAR(hypothesis.score,
                  expected.log_probability / static_cast<double>(expected.word_scores.size()),
                  1e-10);
    }
  }
  options_.shortlist = nullptr;
  options_.beam = options_.n_best = 4;
  for (const bool sampling : {false, true}) {
    options_.sampling.on = sampling;
    const auto found = translated(sources);
    for (size_t i = 0; i < sources.size(); ++i) {
      ASSERT_EQ(found[i].size(), 4u);
      for (const Hypothesis& hypothesis : found[i])
        EXPECT_TRUE(std::equal(prefixes[i].begin(), prefixes[i].end(), hypothesis.tokens.begin()));
    }
  }
}

// The score of a translation does not depend on how much of it was given.
TEST_P(Repetition, TheBeginningOfATranslationLeadsToTheSame) {
  options_.beam = 1;
  const Sentences sources = random_sentences(6, 7, 13, 25);
  const auto expected = translated(sources);
  Sentences prefixes;
  for (const auto& hypotheses : expected)
    prefixes.emplace_back(
        hypotheses[0].tokens.begin(),
        hypotheses[0].tokens.begin() + static_cast<int64_t>(hypotheses[0].tokens.size() / 2));
  options_.prefixes = prefixes;
  const auto found = translated(sources);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!expected[i][0].finished) continue;
    EXPECT_EQ(found[i][0].tokens, expected[i][0].tokens);
    EXPECT_NEAR(found[i][0].score, expected[i][0].score, 1e-10);
  }
}

TEST_P(Repetition, LengthsCountFromTheEndOfAGivenBeginning) {
  const Sentences prefixes = {{5, 6, 7}};
  options_.prefixes = prefixes;
  options_.max_length_extra = 4;
  options_.min_length = 2;
  for (const double bias : {1e6, -1e6}) {
    set_output_bias(*context_, *model_, kEos, bias);
    options_.sampling.on = false;
    EXPECT_EQ(translated({{5, kEos}})[0][0].tokens.size(), bias > 0 ? 5u : 7u);
    options_.sampling.on = true;
    EXPECT_EQ(translated({{5, kEos}})[0][0].tokens.size(), bias > 0 ? 5u : 7u);
  }
}

TEST_P(Repetition, NamesPrefixesThatAreWrong) {
  const Sentences sources = {{5, kEos}, {6, kEos}};
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(error_for(sources, {{5}}), "1 prefixes for 2 sentences"));
  EXPECT_TRUE(contains(error_for(sources, {{}, {13}}), "the prefix of sentence 2 has token 13"));
  EXPECT_TRUE(contains(error_for(sources, {{5, kEos}, {}}), "which ends a translation"));
  EXPECT_TRUE(contains(error_for({{5, kEos}, {kEos}}, {{}, {5}}), "sentence 2 has a prefix"));
  const std::string error = error_for(sources, {{}, Tokens(48, 5)});
  EXPECT_TRUE(contains(error, "INVALID_ARGUMENT: the prefix of sentence 2 has 48 tokens")) << error;
  // As far as there are positions: the last token is never fed.
  const size_t room = GetParam() == Architecture::decoder_lm ? 46 : 47;
  const Sentences longest = {{}, Tokens(room, 5)};
  EXPECT_EQ(error_for(sources, longest), "");
  options_.prefixes = longest;
  const Hypothesis found = translated(sources)[1][0];
  EXPECT_EQ(found.tokens.size() + found.finished, room + 1);
}

}  // namespace
}  // namespace trafo::testing
