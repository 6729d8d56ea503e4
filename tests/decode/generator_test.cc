// Generation: the tokens of translate_tokens(), whatever else is in flight, whatever is cached.
#include "engine/decode/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/core/strings/utf8.h"
#include "engine/decode/logits_processor.h"
#include "tests/decode/decode_models.h"
#include "tests/support/chat_tokenizer.h"

namespace trafo::testing {
namespace {

using Ids = std::vector<int32_t>;
using Prompts = std::vector<Ids>;

struct Generated {
  Ids tokens;  // an end included
  std::string text;
  std::vector<double> log_probabilities;
  FinishReason finish = FinishReason::end;
  int64_t cached = 0;
};
using All = std::map<int64_t, Generated>;

void add(All& all, const GenerationPiece& piece) {
  Generated& one = all[piece.sequence];
  if (piece.token >= 0) one.tokens.push_back(piece.token);
  EXPECT_EQ(piece.generated_tokens, std::ssize(one.tokens));
  one.text += piece.text;
  one.log_probabilities.push_back(piece.log_probability);
  one.finish = piece.finish;
  one.cached = piece.cached_tokens;
}

All finish(Generator& generator, All all = {}) {
  for (GenerationPiece piece; (piece = generator.next()).sequence >= 0;) add(all, piece);
  return all;
}

class GeneratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    make(DType::f64);
    options_.translate.decode.max_length = 12;
  }
  void make(DType dtype) {
    model_ = random_model(*context_, decode_config(Architecture::decoder_lm), 7, dtype);
    set_output_bias(*context_, *model_, kEos, -1);
    model_->set_tokens(VocabularyTokens{});
  }
  Generator generator(int64_t kept = 0,
                      std::shared_ptr<const PackedWeights> weights = nullptr) const {
    return {*context_, *model_, std::nullopt, std::move(weights), kept};
  }
  Generated alone(const Ids& prompt, int64_t line = 0) const {
    GenerationOptions options = options_;
    options.translate.decode.sampling.first_line = line;
    Generator one = generator();
    one.start_ids({prompt}, options);
    return finish(one)[0];
  }
  // Of translate_tokens(): hypotheses by prompt.
  std::vector<std::vector<Hypothesis>> translated(const Prompts& prompts) const {
    DecodeOptions decode = options_.translate.decode;
    decode.beam = 1;
    decode.end_source = false;
    decode.max_length_factor = 0;
    decode.max_length_extra = decode.max_length;
    return translate_tokens(*context_, *model_, prompts, decode);
  }
  std::string error_for(const Prompts& prompts, const GenerationOptions& options) const {
    Generator one = generator();
    std::string error = error_text([&] { one.start_ids(prompts, options); });
    EXPECT_EQ(one.next().sequence, -1);
    return error;
  }
  DrawOptions& sampling() {
    options_.translate.decode.sampling.on = true;
    return options_.translate.decode.sampling;
  }

  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  GenerationOptions options_;
  const Prompts prompts_ = {{4, 5, 6, 7, 8, 9, 10}, {11}, {5, 5, 5}, {12, 4, 9, 9, 4}};
};

TEST_F(GeneratorTest, GivesTheTokensOfTranslations) {
  for (const bool draws : {false, true}) {
    if (draws) sampling().top_k = 5;
    const int64_t samples = options_.translate.decode.n_best = draws ? 3 : 1;
    const auto expected = translated(prompts_);
    Generator together = generator();
    EXPECT_EQ(together.start_ids(prompts_, options_), 0);
    const All all = finish(together);
    ASSERT_EQ(std::ssize(all), std::ssize(prompts_) * samples);
    for (const auto& [number, one] : all) {
      const Hypothesis& same =
          expected[static_cast<size_t>(number / samples)][static_cast<size_t>(number % samples)];
      Ids tokens = same.tokens;
      if (same.finished) tokens.push_back(kEos);
      EXPECT_EQ(one.tokens, tokens) << number;
      EXPECT_EQ(one.finish, finish_reason(same));
    }
    EXPECT_EQ(together.start_ids(prompts_, options_), std::ssize(all));
  }
}

// float32 with packed weights, as programs run it.
TEST_F(GeneratorTest, DoesNotDependOnTheBatch) {
  make(DType::f32);
  const auto packed = pack_for_decoding(*context_, *model_);
  for (const bool draws : {false, true}) {
    if (draws) sampling().temperature = 0.8;
    Generator together = generator(0, packed);
    together.start_ids(prompts_, options_);
    All all = finish(together);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      GenerationOptions options = options_;
      options.translate.decode.sampling.first_line = static_cast<int64_t>(i);
      Generator one = generator(0, packed);
      one.start_ids({prompts_[i]}, options);
      EXPECT_EQ(finish(one)[0].tokens, all[static_cast<int64_t>(i)].tokens);
    }
  }
}

TEST_F(GeneratorTest, TakesSequencesIn) {
  Generator one = generator(2);
  All all;
  EXPECT_EQ(one.start_ids({prompts_[0]}, options_), 0);
  for (int i = 0; i < 3; ++i) add(all, one.next());
  GenerationOptions other = options_;
  other.translate.decode.sampling.on = true;
  other.translate.decode.n_best = 2;
  EXPECT_EQ(one.start_ids({prompts_[1], prompts_[3]}, other), 1);
  for (int i = 0; i < 4; ++i) add(all, one.next());
  EXPECT_EQ(one.start_ids({prompts_[2]}, options_), 5);
  all = finish(one, all);
  EXPECT_EQ(all[0].tokens, alone(prompts_[0]).tokens);
  EXPECT_EQ(all[5].tokens, alone(prompts_[2]).tokens);
  Generator apart = generator();
  apart.start_ids({prompts_[1], prompts_[3]}, other);
  const All drawn = finish(apart);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(all[i + 1].tokens, drawn.at(i).tokens) << i;
}

// A conversation: each prompt is the last one, its answer and something more.
TEST_F(GeneratorTest, ContinuesFromTheCache) {
  for (const bool draws : {false, true}) {
    if (draws) sampling().top_p = 0.9;
    options_.translate.decode.max_length = 5;
    Generator session = generator(1);
    Ids text = {4, 5, 6};
    int64_t read = 0;
    for (int turn = 0; turn < 4; ++turn) {
      session.start_ids({text}, options_);
      const Generated answer = finish(session).begin()->second;
      EXPECT_EQ(answer.tokens, alone(text).tokens);
      EXPECT_EQ(answer.cached, read);
      text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
      read = std::ssize(text) - 1;  // the last token was not read
      text.insert(text.end(), {7, 8});
    }
  }
}

TEST_F(GeneratorTest, FindsTheLongestBeginning) {
  options_.translate.decode.max_length = 3;
  Generator session = generator(2);
  const auto cached = [&](const Prompts& prompts) {
    session.start_ids(prompts, options_);
    std::vector<int64_t> counts;
    for (const auto& [number, one] : finish(session)) {
      EXPECT_EQ(one.tokens, alone(prompts[counts.size()]).tokens);
      counts.push_back(one.cached);
    }
    return counts;
  };
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(cached({{4, 5, 6, 7}, {8, 9}}), (Counts{0, 0}));
  EXPECT_EQ(cached({{4, 5, 6, 12}}), (Counts{3}));
  // The last token of a prompt is read in any case, for what follows it.
  EXPECT_EQ(cached({{4, 5, 6, 12}}), (Counts{3}));
  EXPECT_EQ(cached({{12, 5}}), (Counts{0}));
  // Two prompts share a row, and a row of a sequence in flight is copied.
  EXPECT_EQ(cached({{4, 5, 6, 11}, {4, 5, 10, 10}}), (Counts{3, 2}));
  Generator flight = generator();
  flight.start_ids({{4, 5, 6, 7}}, options_);
  All all;
  add(all, flight.next());
  EXPECT_EQ(flight.start_ids({{4, 5, 6, 9, 9}}, options_), 1);
  all = finish(flight, all);
  EXPECT_EQ(all[1].cached, 3);
  EXPECT_EQ(all[1].tokens, alone({4, 5, 6, 9, 9}).tokens);
}

TEST_F(GeneratorTest, LogProbabilitiesAreTheModels) {
  DecodeOptions& decode = options_.translate.decode;
  decode.word_scores = true;
  decode.n_best = 3;
  decode.frequency_penalty = 0.5;
  decode.logit_bias = {{5, 1.5}};
  sampling().temperature = 1.5;
  options_.alternatives = 4;
  Generator one = generator();
  one.start_ids({prompts_[0], prompts_[3]}, options_);
  std::map<int64_t, Ids> texts;
  for (GenerationPiece piece; (piece = one.next()).sequence >= 0;) {
    Ids& text = texts[piece.sequence];
    const Ids& prompt = prompts_[piece.sequence < 3 ? 0 : 3];
    const std::vector<double> expected = next_log_probabilities(*context_, *model_, prompt, text);
    EXPECT_NEAR(piece.log_probability, expected[static_cast<size_t>(piece.token)], 1e-9);
    ASSERT_EQ(piece.alternatives.size(), 4u);
    double last = 0;
    for (size_t i = 0; i < 4; ++i) {
      const double value = piece.alternative_log_probabilities[i];
      EXPECT_NEAR(value, expected[static_cast<size_t>(piece.alternatives[i])], 1e-9);
      EXPECT_LE(value, last);
      last = value;
    }
    EXPECT_EQ(std::ranges::count_if(expected, [&](double v) { return v > last + 1e-9; }), 3);
    text.push_back(piece.token);
  }
  EXPECT_EQ(texts.size(), 6u);
}

// Values computed by hand.
TEST(LogitRules, FollowTheirFormulas) {
  const auto context = cpu_context();
  const std::vector<double> logits = {2, -1, 0.5, 3, -2, 1, 0, 4};
  const Tensor row = context->from_doubles(logits, {1, 8}, DType::f64);
  const auto changed = [&](const DecodeOptions& options) {
    const LogitsProcessor processor(options);
    EXPECT_TRUE(processor.active());
    // The prompt is 3 4, then 0 1 0 were generated.
    const std::vector<LogitsProcessor::Row> rows = {{0, {3, 4, 0, 1, 0}, 2}};
    return context->values<double>(processor.process(*context, row, rows, {}));
  };
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  EXPECT_FALSE(LogitsProcessor(DecodeOptions{}).active());
  DecodeOptions presence;
  presence.presence_penalty = 0.5;
  EXPECT_EQ(changed(presence), (std::vector<double>{1.5, -1.5, 0.5, 3, -2, 1, 0, 4}));
  DecodeOptions frequency;
  frequency.frequency_penalty = -0.25;
  EXPECT_EQ(changed(frequency), (std::vector<double>{2.5, -0.75, 0.5, 3, -2, 1, 0, 4}));
  DecodeOptions bias;
  bias.logit_bias = {{7, -100}, {2, 1.5}};
  bias.banned_tokens = {5};
  EXPECT_EQ(changed(bias), (std::vector<double>{2, -1, 2, 3, -2, kNone, 0, -96}));
  DecodeOptions all;
  all.repetition_penalty = 2;  // of the prompt, too
  all.presence_penalty = 1;
  all.frequency_penalty = 0.5;
  all.logit_bias = {{0, 10}, {4, 1}};
  all.no_repeat_ngram_size = 2;  // 0 1 may not come again
  EXPECT_EQ(changed(all), (std::vector<double>{1 - 2 + 10, kNone, 0.5, 1.5, -4 + 1, 1, 0, 4}));
}

TEST_F(GeneratorTest, PenaltiesAreOfGeneratedTokens) {
  DecodeOptions& decode = options_.translate.decode;
  decode.presence_penalty = 2;
  decode.frequency_penalty = 1;
  decode.banned_tokens = {6};
  decode.logit_bias = {{kEos, -100}};
  const Generated found = alone(prompts_[0]);
  EXPECT_EQ(found.finish, FinishReason::length);
  Ids tokens;
  for (int step = 0; step < 12; ++step) {
    std::vector<double> next = next_log_probabilities(*context_, *model_, prompts_[0], tokens);
    for (const int32_t token : tokens) next[static_cast<size_t>(token)] -= 1;
    for (int32_t token = 0; token < 13; ++token)
      if (std::ranges::find(tokens, token) != tokens.end()) next[static_cast<size_t>(token)] -= 2;
    for (const size_t banned : {0u, 1u, 2u, 3u, 6u}) next[banned] = -1e9;
    tokens.push_back(static_cast<int32_t>(std::ranges::max_element(next) - next.begin()));
  }
  EXPECT_EQ(found.tokens, tokens);
}

TEST_F(GeneratorTest, DrawsOnlyLikelyTokens) {
  sampling().min_p = 0.3;
  options_.translate.decode.n_best = 40;
  options_.translate.decode.max_length = 1;
  for (const double temperature : {1.0, 2.0}) {
    for (const int64_t top_k : {0, 6}) {
      sampling().temperature = temperature;
      sampling().top_k = top_k;
      Generator one = generator();
      one.start_ids({prompts_[0]}, options_);
      const std::vector<double> log_p = next_log_probabilities(*context_, *model_, prompts_[0], {});
      std::map<int32_t, double> share;
      for (size_t i = 4; i < log_p.size(); ++i)
        share[static_cast<int32_t>(i)] = std::exp(log_p[i] / temperature);
      share[kEos] = std::exp(log_p[kEos] / temperature);
      const double most =
          std::ranges::max_element(share, {}, [](auto& each) { return each.second; })->second;
      std::erase_if(share, [&](const auto& each) { return each.second < 0.3 * most; });
      std::map<int32_t, double> drawn;
      for (const auto& [number, each] : finish(one)) drawn[each.tokens[0]] += 1;
      for (const auto& [token, count] : drawn) EXPECT_TRUE(share.contains(token)) << token;
      EXPECT_GT(share.size(), 1u);
      EXPECT_EQ(drawn.size(), share.size());
    }
  }
}

TEST_F(GeneratorTest, SaysWhyItEnds) {
  DecodeOptions& decode = options_.translate.decode;
  decode.max_length = 40;
  decode.logit_bias = {{kEos, 100}};
  EXPECT_EQ(alone(prompts_[0]).finish, FinishReason::end);
  EXPECT_EQ(alone(prompts_[0]).tokens, Ids{kEos});
  decode.min_length = 3;
  EXPECT_EQ(alone(prompts_[0]).tokens.size(), 4u);
  decode.min_length = 0;
  decode.logit_bias = {{kEos, -100}};
  decode.max_length = model_->spec().max_positions;
  const Generated longest = alone(prompts_[0]);
  EXPECT_EQ(longest.finish, FinishReason::length);
  EXPECT_EQ(std::ssize(longest.tokens), model_->spec().max_positions - std::ssize(prompts_[0]) + 1);
  options_.stop_tokens = {longest.tokens[2], 3};
  const Generated stopped = alone(prompts_[0]);
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  EXPECT_EQ(stopped.tokens.back(), longest.tokens[2]);
  // Nothing may follow.
  options_.stop_tokens = {};
  decode.min_length = 1;
  for (int32_t token = 0; token < 13; ++token)
    if (token != kEos) decode.banned_tokens.push_back(token);
  const Generated blocked = alone(prompts_[0]);
  EXPECT_EQ(blocked.finish, FinishReason::blocked);
  EXPECT_EQ(blocked.tokens, Ids());
}

TEST_F(GeneratorTest, EndsSequencesEarly) {
  options_.translate.decode.logit_bias = {{kEos, -100}};
  Generator one = generator(8);
  one.start_ids(prompts_, options_);
  std::map<int64_t, int> counts;
  for (int i = 0; i < 6; ++i) ++counts[one.next().sequence];
  one.end(2);
  one.end(2);
  one.start_ids({{4, 5, 6, 7, 7}}, options_);
  one.end(4);  // before its first step
  for (GenerationPiece piece; (piece = one.next()).sequence >= 0;) ++counts[piece.sequence];
  EXPECT_EQ(counts, (std::map<int64_t, int>{{0, 12}, {1, 12}, {2, 1}, {3, 12}}));
  EXPECT_EQ(error_text([&] { one.end(5); }), "INVALID_ARGUMENT: sequence is 5, there are 5");
  one.start_ids({{5, 5, 5, 5}}, options_);
  EXPECT_EQ(one.next().cached_tokens, 3);  // of sequence 2
}

TEST_F(GeneratorTest, IsCancelledBetweenSteps) {
  CancelToken cancel;
  Generator one = generator();
  one.start_ids({prompts_[0]}, options_);
  All all;
  add(all, one.next(&cancel));
  cancel.cancel();
  EXPECT_EQ(error_text([&] { one.next(&cancel); }), "CANCELLED: cancelled by the caller");
  cancel.reset();
  EXPECT_EQ(finish(one, all)[0].tokens, alone(prompts_[0]).tokens);
}

TEST_F(GeneratorTest, EndsAtNumbersThatAreNone) {
  Generator one = generator(1);
  one.start_ids({prompts_[0]}, options_);
  one.next();
  set_output_bias(*context_, *model_, 5, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(error_text([&] { one.next(); }).starts_with("NON_FINITE"));
  EXPECT_EQ(one.next().sequence, -1);
  set_output_bias(*context_, *model_, kEos, -1);
  one.start_ids({prompts_[0]}, options_);
  EXPECT_EQ(finish(one)[1].tokens, alone(prompts_[0]).tokens);
}

TEST_F(GeneratorTest, RefusesWhatItCannotDo) {
  const auto error_of = [&](auto&& change) {
    GenerationOptions options = options_;
    change(options, options.translate.decode);
    return error_for({{4}}, options);
  };
  EXPECT_EQ(error_for({{4}, {}}, options_), "INVALID_ARGUMENT: prompt 2 has no tokens");
  EXPECT_EQ(error_for({{13}}, options_),
            "INVALID_ARGUMENT: prompt 1 has token 13, the vocabulary has 0 to 12");
  EXPECT_EQ(error_for({Ids(49, 4)}, options_),
            "INVALID_ARGUMENT: prompt 1 has 49 tokens, the model takes at most 48");
  EXPECT_EQ(error_of([](auto&, auto& decode) { decode.n_best = 2; }),
            "INVALID_ARGUMENT: n_best is 2, which needs sampling");
  EXPECT_EQ(error_of([](auto&, auto& decode) { decode.banned_tokens = {-1}; }),
            "INVALID_ARGUMENT: banned_tokens has token -1, the vocabulary has 0 to 12");
  EXPECT_EQ(error_of([](auto& o, auto& decode) { o.stop_tokens = decode.banned_tokens = {4}; }),
            "INVALID_ARGUMENT: banned_tokens has token 4, which is a stop token");
  EXPECT_EQ(error_of([](auto&, auto& decode) {
              decode.logit_bias = {{4, 1}, {4, 1}};
            }),
            "INVALID_ARGUMENT: logit_bias has token 4 twice");
  EXPECT_EQ(error_of([](auto& options, auto&) { options.alternatives = 2000; }),
            "INVALID_ARGUMENT: alternatives must be 0 to 1024, got 2000");
  EXPECT_EQ(error_of([](auto& options, auto&) { options.stop = {"a"}; }),
            "INVALID_ARGUMENT: stop needs a tokenizer");
  EXPECT_EQ(error_of([](auto&, auto& decode) { decode.presence_penalty = 3; }),
            "INVALID_ARGUMENT: presence_penalty must be at least -2 and at most 2, got 3");
  const auto encoder = random_model(*context_, decode_config(Architecture::encoder_decoder), 7);
  EXPECT_EQ(error_text([&] { Generator(*context_, *encoder, std::nullopt, nullptr, 0); }),
            "UNSUPPORTED: a model with an encoder translates; generation is for a decoder-lm");
}

// Text: whole characters, and stop strings wherever tokens end.
class GeneratedText : public ::testing::Test {
 protected:
  void SetUp() override {
    ModelConfig config = decode_config(Architecture::decoder_lm, tokenizer_.vocab_size());
    model_ = random_model(*context_, config, 5, DType::f32);
    options_.translate.decode.max_length = 40;
    options_.translate.decode.sampling.on = true;
    options_.translate.decode.n_best = 20;
  }
  All generated(const GenerationOptions& options) const {
    Generator one(*context_, *model_, tokenizer_, nullptr, 0);
    const std::vector<std::string_view> prompts = {"hi", ""};
    one.start(prompts, options);
    All all;
    for (GenerationPiece piece; (piece = one.next()).sequence >= 0;) {
      EXPECT_TRUE(is_valid_utf8(piece.text));
      add(all, piece);
    }
    return all;
  }

  const Tokenizer tokenizer_ = chat_tokenizer();
  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
  GenerationOptions options_;
};

TEST_F(GeneratedText, StopsWhereverTokensEnd) {
  // A random model writes arbitrary bytes; letters are made likely.
  for (int32_t byte = 'a'; byte <= 'd'; ++byte)
    options_.translate.decode.logit_bias.emplace_back(byte, 8);
  const All whole = generated(options_);
  EXPECT_EQ(whole.size(), 40u);
  GenerationOptions stopping = options_;
  stopping.stop = {"ab", "cdd"};
  int stopped = 0;
  for (const auto& [number, one] : generated(stopping)) {
    const std::string& text = whole.at(number).text;
    const size_t end = std::min(text.find("ab"), text.find("cdd"));
    EXPECT_EQ(one.text, text.substr(0, end));
    if (end == std::string::npos) continue;
    EXPECT_EQ(one.finish, FinishReason::stop);
    ++stopped;
  }
  EXPECT_GT(stopped, 10);
}

TEST_F(GeneratedText, IsTheTextOfItsTokens) {
  for (const auto& [number, one] : generated(options_)) {
    Ids tokens = one.tokens;
    if (one.finish != FinishReason::length) tokens.pop_back();
    EXPECT_EQ(one.text, tokenizer_.decode(tokens)) << number;
  }
}

}  // namespace
}  // namespace trafo::testing
