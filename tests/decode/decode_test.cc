// Decoding against its definition: incremental against full forward passes, search against a naive
// search and against all translations there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "tests/decode/decode_models.h"
#include "tests/models/llama_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;
using Translations = std::vector<std::vector<Hypothesis>>;

class Decode : public ::testing::TestWithParam<Architecture> {
 protected:
  ModelConfig config(int64_t vocabulary = 13) const {
    return decode_config(GetParam(), vocabulary);
  }

  std::unique_ptr<Context> context_ = cpu_context();
};

INSTANTIATE_TEST_SUITE_P(Models, Decode,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

std::vector<double> as_doubles(Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
  const auto narrow = context.values<float>(tensor);
  return {narrow.begin(), narrow.end()};
}

void expect_same(const Translations& a, const Translations& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size()) << "sentence " << i;
    for (size_t j = 0; j < a[i].size(); ++j) {
      EXPECT_EQ(a[i][j].tokens, b[i][j].tokens) << "sentence " << i << ", hypothesis " << j;
      EXPECT_NEAR(a[i][j].score, b[i][j].score, tolerance);
      EXPECT_NEAR(a[i][j].log_probability, b[i][j].log_probability, tolerance);
      EXPECT_EQ(a[i][j].finished, b[i][j].finished);
    }
  }
}

// The search as its definition reads, one sentence, every token of every hypothesis ranked.
std::vector<Hypothesis> naive_search(Context& context, const Model& model,
                                     const std::vector<int32_t>& source,
                                     const DecodeOptions& options, int64_t max_steps) {
  struct Item {
    double log_probability;
    std::vector<int32_t> tokens;
  };
  std::vector<Item> live = {{0, {}}};
  std::vector<Hypothesis> finished;
  const size_t beam = static_cast<size_t>(options.beam);
  const auto best_finished = [&] {
    double best = finished[0].score;
    for (const Hypothesis& each : finished) best = std::max(best, each.score);
    return best;
  };
  bool settled = false;
  for (int64_t step = 1; step <= max_steps && !settled && !live.empty(); ++step) {
    std::vector<Item> all;
    for (const Item& item : live) {
      const auto next = next_log_probabilities(context, model, source, item.tokens);
      for (int32_t token = 0; token < model.config().vocabulary; ++token) {
        if (token != kEos && token < 4) continue;
        all.push_back({item.log_probability + next[static_cast<size_t>(token)], item.tokens});
        all.back().tokens.push_back(token);
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Item& a, const Item& b) {
      return a.log_probability > b.log_probability;
    });
    live.clear();
    const double length = std::pow(static_cast<double>(step), options.length_penalty);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      Item& item = all[rank];
      if (item.tokens.back() != kEos) {
        if (live.size() < beam) live.push_back(item);
      } else if (rank < beam) {
        item.tokens.pop_back();
        finished.push_back(
            {item.tokens, item.log_probability / length, item.log_probability, true});
      }
    }
    settled = finished.size() >= beam &&
              (live.empty() || best_finished() >= live[0].log_probability / length);
    if (step == max_steps)
      for (const Item& item : live)
        finished.push_back(
            {item.tokens, item.log_probability / length, item.log_probability, false});
  }
  std::stable_sort(finished.begin(), finished.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  finished.resize(std::min(finished.size(), static_cast<size_t>(options.n_best)));
  return finished;
}

// Feeds the decoder side of `batch` token by token with `beam` rows a sentence, shuffling the rows
// on the way.
void expect_incremental_equals_full(Context& context, const Model& model, const Batch& batch,
                                    double tolerance) {
  const NoGrad no_grad(context);
  const int64_t beam = 2;
  const size_t classes = static_cast<size_t>(model.config().vocabulary);
  const std::vector<double> full = as_doubles(context, model.logits(context, batch));
  const auto ends = context.values<int32_t>(batch.target_cu_seqlens);
  const auto input = context.values<int32_t>(batch.target_in);
  DecodeState state = model.start_decoding(context, batch, 2);
  std::vector<size_t> sentence_of;  // of each row
  std::vector<int32_t> copies;
  for (int64_t r = 0; r < batch.sentences * beam; ++r) {
    sentence_of.push_back(static_cast<size_t>(r / beam));
    copies.push_back(static_cast<int32_t>(r / beam));
  }
  reorder(context, state, copies);
  size_t compared = 0;
  for (int32_t t = 0; !sentence_of.empty(); ++t) {
    if (state.cache.longest() == state.cache.capacity())
      state.cache.grow(context, state.cache.capacity() + 3);
    std::vector<int32_t> ids, parents;
    for (const size_t s : sentence_of) ids.push_back(input[static_cast<size_t>(ends[s] + t)]);
    const std::vector<double> logits = as_doubles(
        context,
        model.decode_step(context, state, context.from_values<int32_t>(ids, {state.rows()})));
    for (size_t r = 0; r < sentence_of.size(); ++r) {
      const size_t row = static_cast<size_t>(ends[sentence_of[r]] + t);
      for (size_t c = 0; c < classes; ++c)
        ASSERT_NEAR(logits[r * classes + c], full[row * classes + c], tolerance)
            << "position " << t << " of sentence " << sentence_of[r];
      ++compared;
      if (ends[sentence_of[r]] + t + 1 < ends[sentence_of[r] + 1])
        parents.insert(parents.begin(), static_cast<int32_t>(r));  // turned round; ended rows leave
    }
    std::vector<size_t> next;
    for (const int32_t parent : parents) next.push_back(sentence_of[static_cast<size_t>(parent)]);
    sentence_of = next;
    if (!parents.empty()) reorder(context, state, parents);
  }
  EXPECT_EQ(compared, static_cast<size_t>(beam) * input.size());
}

TEST_P(Decode, IncrementalLogitsEqualTheFullForward) {
  for (const bool pre_norm : {true, false}) {
    ModelConfig shape = config();
    shape.pre_norm = pre_norm;
    for (const DType dtype : {DType::f64, DType::f32}) {
      const auto model = random_model(*context_, shape, 3, dtype);
      const Sentences sources = random_sentences(5, 9, 13, 1),
                      targets = random_sentences(5, 12, 13, 2);
      std::vector<SentencePair> pairs;
      for (size_t i = 0; i < sources.size(); ++i) pairs.push_back({sources[i], targets[i]});
      std::vector<const SentencePair*> members;
      for (const SentencePair& pair : pairs) members.push_back(&pair);
      const Batch batch = pack_pairs(*context_, spec_of(shape), {}, members);
      expect_incremental_equals_full(*context_, *model, batch, dtype == DType::f64 ? 1e-11 : 1e-4);
    }
  }
}

TEST(DecodeLlama, IncrementalLogitsEqualTheFullForward) {
  const ModelConfig lm = decode_config(Architecture::decoder_lm),
                    two = decode_config(Architecture::encoder_decoder);
  for (const ModelConfig& shape :
       {t5_of(two), gated_t5_of(two), llama_of(lm), llama_of(lm, 1), qwen3_of(lm), qwen3_of(lm, 1),
        qwen3_of(lm, 1, true, QkNorm::head_after_rotary), mistral_of(lm, 1), mistral_of(lm, 5, 1),
        gemma3_of(lm, 4, 1), gemma2_of(lm, 4, 1)}) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      const auto context = cpu_context();
      const auto model = random_model(*context, shape, 3, dtype);
      const Sentences sources = random_sentences(5, 9, 13, 1),
                      targets = random_sentences(5, 12, 13, 2);
      std::vector<SentencePair> pairs;
      for (size_t i = 0; i < sources.size(); ++i) pairs.push_back({sources[i], targets[i]});
      std::vector<const SentencePair*> members;
      for (const SentencePair& pair : pairs) members.push_back(&pair);
      const Batch batch = pack_pairs(*context, spec_of(shape), {}, members);
      expect_incremental_equals_full(*context, *model, batch, dtype == DType::f64 ? 1e-11 : 1e-4);
    }
  }
}

TEST_P(Decode, EqualsANaiveSearch) {
  const auto model = random_model(*context_, config(), 11);
  const Sentences sources = random_sentences(6, 7, 13, 5);
  std::set<size_t> lengths;
  for (const int64_t beam : {1, 2, 5}) {
    for (const double penalty : {0.0, 0.6, 1.0}) {
      DecodeOptions options;
      options.beam = options.n_best = beam;
      options.length_penalty = penalty;
      options.max_length_factor = 1.5;
      options.max_length_extra = 4;
      const Translations found = translate_tokens(*context_, *model, sources, options);
      Translations expected;
      for (const auto& source : sources) {
        const auto steps = static_cast<int64_t>(1.5 * static_cast<double>(source.size())) + 4;
        expected.push_back(naive_search(*context_, *model, source, options, steps));
      }
      expect_same(found, expected, 1e-10);
      for (const auto& hypotheses : found) lengths.insert(hypotheses[0].tokens.size());
    }
  }
  EXPECT_GT(lengths.size(), 2u);  // else the test would show little
}

// Every hypothesis of at most `max_steps` tokens, best first: those that end, and those that are
// cut off at `max_steps`. Log-probabilities by score().
std::vector<Hypothesis> all_translations(Context& context, const Model& model,
                                         const std::vector<int32_t>& source, int64_t max_steps,
                                         double penalty) {
  std::vector<SentencePair> pairs = {{source, {kEos}}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<int32_t> target = pairs[i].target;
    if (static_cast<int64_t>(target.size()) > max_steps) continue;
    for (int32_t token = 4; token < model.config().vocabulary; ++token) {
      pairs.push_back({source, target});
      pairs.back().target.insert(pairs.back().target.end() - 1, token);
    }
  }
  const std::vector<PairScore> scores = score(context, model, pairs);
  std::vector<Hypothesis> all;
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(scores[i].tokens, static_cast<int64_t>(pairs[i].target.size()));
    std::vector<int32_t> tokens(pairs[i].target.begin(), pairs[i].target.end() - 1);
    const bool finished = static_cast<int64_t>(pairs[i].target.size()) <= max_steps;
    const double log_probability =
        scores[i].log_probability - (finished ? 0 : scores[i].word_scores.back());
    const double length = static_cast<double>(pairs[i].target.size() - (finished ? 0 : 1));
    all.push_back({tokens, log_probability / std::pow(length, penalty), log_probability, finished});
  }
  std::sort(all.begin(), all.end(),
            [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return all;
}

TEST_P(Decode, ScoresThatAreNotFiniteAreErrors) {
  const auto model = random_model(*context_, config(7), 21);
  const Tensor weights = model->parameters().flat();
  const std::vector<unsigned char> nan(weights.bytes(), 0xff);
  context_->backend().copy_from_host(weights.raw(), nan.data(), nan.size());
  expect_error(ErrorCode::non_finite, "pair 1", [&] {
    score(*context_, *model, std::vector<SentencePair>{{{4, kEos}, {5, kEos}}});
  });
}

TEST_P(Decode, AHugeBeamIsExhaustiveSearch) {
  const auto model = random_model(*context_, config(7), 21);
  const Sentences sources = random_sentences(3, 4, 7, 8);
  DecodeOptions options;
  options.beam = 200;  // more than there are hypotheses
  options.max_length_factor = 0;
  options.max_length_extra = 4;
  options.n_best = 1 + 3 + 9 + 27 + 81;
  const Translations found = translate_tokens(*context_, *model, sources, options);
  Translations expected;
  for (const auto& source : sources)
    expected.push_back(all_translations(*context_, *model, source, 4, options.length_penalty));
  ASSERT_EQ(expected[0].size(), static_cast<size_t>(options.n_best));
  expect_same(found, expected, 1e-10);
}

TEST_P(Decode, ScoresOfTranslationsAreTheirForwardProbabilities) {
  const auto model = random_model(*context_, config(), 31, DType::f32);
  set_output_bias(*context_, *model, kEos, 2);  // most hypotheses end
  const Sentences sources = random_sentences(12, 9, 13, 6);
  const Translations found = translate_tokens(*context_, *model, sources);
  std::vector<SentencePair> pairs;
  std::vector<double> expected;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!found[i][0].finished) continue;
    pairs.push_back({sources[i], found[i][0].tokens});
    pairs.back().target.push_back(kEos);
    expected.push_back(found[i][0].log_probability);
  }
  ASSERT_GT(pairs.size(), 5u);
  ScoreOptions options;
  options.batch_tokens = 20;
  const std::vector<PairScore> scores = score(*context_, *model, pairs, options);
  for (size_t i = 0; i < pairs.size(); ++i)
    EXPECT_NEAR(scores[i].log_probability, expected[i], 1e-4);
}

TEST_P(Decode, CompanyInTheBatchChangesNothing) {
  const auto model = random_model(*context_, config(), 17);
  const Sentences sources = random_sentences(40, 12, 13, 9);
  DecodeOptions options;
  options.beam = 3;
  options.n_best = 3;
  const Translations together = translate_tokens(*context_, *model, sources, options);
  options.batch_tokens = 60;
  expect_same(translate_tokens(*context_, *model, sources, options), together, 1e-10);
  Translations alone;
  for (const auto& source : sources)
    alone.push_back(translate_tokens(*context_, *model, {&source, 1}, options)[0]);
  expect_same(alone, together, 1e-10);
  const Sentences reversed(sources.rbegin(), sources.rend());
  Translations turned = translate_tokens(*context_, *model, reversed, options);
  std::reverse(turned.begin(), turned.end());
  expect_same(turned, together, 1e-10);
}

TEST_P(Decode, UnusedRowsChangeNothing) {
  const auto model = random_model(*context_, config(), 17);
  set_output_bias(*context_, *model, kEos, 2);  // sentences finish one after the other
  const Sentences sources = random_sentences(45, 12, 13, 9);
  DecodeOptions options;
  for (const int64_t beam : {1, 3}) {
    options.beam = beam;
    options.pad_rows = false;
    const Translations expected = translate_tokens(*context_, *model, sources, options);
    options.pad_rows = true;
    expect_same(translate_tokens(*context_, *model, sources, options), expected, 1e-10);
  }
  options.sampling.on = true;
  options.n_best = 2;
  const Translations padded = translate_tokens(*context_, *model, sources, options);
  options.pad_rows = false;
  expect_same(translate_tokens(*context_, *model, sources, options), padded, 1e-10);
}

TEST_P(Decode, NBestIsSortedAndDistinct) {
  const auto model = random_model(*context_, config(), 23);
  set_output_bias(*context_, *model, kEos, 4);  // many finish
  const Sentences sources = random_sentences(10, 8, 13, 10);
  DecodeOptions options;
  options.beam = options.n_best = 6;
  const Translations many = translate_tokens(*context_, *model, sources, options);
  options.n_best = 1;
  const Translations best = translate_tokens(*context_, *model, sources, options);
  size_t total = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_LE(many[i].size(), 6u);
    std::set<std::vector<int32_t>> distinct;
    for (size_t j = 0; j < many[i].size(); ++j) {
      distinct.insert(many[i][j].tokens);
      if (j > 0) {
        EXPECT_LE(many[i][j].score, many[i][j - 1].score);
      }
    }
    EXPECT_EQ(distinct.size(), many[i].size());
    ASSERT_EQ(best[i].size(), 1u);
    EXPECT_EQ(best[i][0].tokens, many[i][0].tokens);
    total += many[i].size();
  }
  EXPECT_GT(total, 2 * sources.size());
}

TEST_P(Decode, AWiderBeamFindsBetterTranslations) {
  const auto model = random_model(*context_, config(), 29);
  const Sentences sources = random_sentences(60, 8, 13, 12);
  DecodeOptions options;
  options.length_penalty = 0;
  std::vector<double> means;
  for (const int64_t beam : {1, 4, 12}) {
    options.beam = beam;
    double sum = 0;
    for (const auto& hypotheses : translate_tokens(*context_, *model, sources, options))
      sum += hypotheses[0].score;
    means.push_back(sum / static_cast<double>(sources.size()));
  }
  EXPECT_GT(means[1], means[0]);
  EXPECT_GT(means[2], means[1]);
}

TEST_P(Decode, ThreadsShareOneModel) {
  const std::unique_ptr<const Model> model = random_model(*context_, config(), 37);
  const Sentences sources = random_sentences(12, 8, 13, 14);
  const Translations expected = translate_tokens(*context_, *model, sources);
  std::vector<Translations> found(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] {
      const auto own = cpu_context(1 + static_cast<int>(i) % 2);
      found[i] = translate_tokens(*own, *model, sources);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Translations& one : found) expect_same(one, expected, 0);
}

}  // namespace
}  // namespace trafo::testing
