// Prefill against its definition: a prompt that is read in one pass leaves the decoder where the
// same prompt leaves it token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/decode/decode_models.h"
#include "tests/models/llama_models.h"

namespace trafo::testing {
namespace {

using Sentences = std::vector<std::vector<int32_t>>;

struct NamedConfig {
  const char* name;
  ModelConfig config;
};

std::vector<NamedConfig> prefill_forms() {
  const ModelConfig lm = decode_config(Architecture::decoder_lm);
  ModelConfig post_norm = lm;
  post_norm.pre_norm = false;
  return {{"EncoderDecoder", decode_config(Architecture::encoder_decoder)},
          {"DecoderLm", lm},
          {"PostNorm", post_norm},
          {"Llama", llama_of(lm)},
          {"GroupedQuery", llama_of(lm, 1)},
          {"NormedQueries", qwen3_of(lm, 1)},
          {"NormedAfterRotary", qwen3_of(lm, 1, true, QkNorm::head_after_rotary)},
          {"Window", mistral_of(lm, 4, 1)},
          {"WindowsInTurn", gemma3_of(lm, 3)},
          {"SoftCaps", gemma2_of(lm, 3, 1)}};
}

class Prefill : public ::testing::TestWithParam<NamedConfig> {
 protected:
  std::unique_ptr<Context> context_ = cpu_context(2);
};

std::string form_name(const ::testing::TestParamInfo<NamedConfig>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Models, Prefill, ::testing::ValuesIn(prefill_forms()), form_name);

// Sources and prompts of one batch; the prompts have different lengths, one of them a single token.
const Sentences kSources = random_sentences(4, 7, 13, 5);
const Sentences kPrompts = {{4, 9, 5, 8, 12, 7, 6}, {5}, {11, 4, 2}, {6, 6, 10, 9, 5, 4, 8, 7, 11}};

Batch batch_of(Context& context, const ModelConfig& config, const Sentences& sources) {
  std::vector<const std::vector<int32_t>*> members;
  for (const auto& source : sources) members.push_back(&source);
  return pack_sources(context, spec_of(config), members);
}

std::vector<double> step(Context& context, const Model& model, DecodeState& state,
                         const std::vector<int32_t>& ids) {
  return to_doubles(context, model.decode_step(context, state,
                                               context.from_values<int32_t>(
                                                   ids, {static_cast<int64_t>(ids.size())})));
}

// The logits of the token after each prompt and after two further tokens, sentence by sentence and
// token by token.
std::vector<std::vector<double>> stepped(Context& context, const Model& model,
                                         const std::vector<std::vector<int32_t>>& further) {
  std::vector<std::vector<double>> all(3);
  for (size_t s = 0; s < kPrompts.size(); ++s) {
    DecodeState state =
        model.start_decoding(context, batch_of(context, model.config(), {kSources[s]}), 16);
    std::vector<double> logits;
    for (const int32_t id : kPrompts[s]) logits = step(context, model, state, {id});
    all[0].insert(all[0].end(), logits.begin(), logits.end());
    for (size_t i = 0; i < 2; ++i) {
      logits = step(context, model, state, {further[i][s]});
      all[i + 1].insert(all[i + 1].end(), logits.begin(), logits.end());
    }
  }
  return all;
}

double difference_of(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Attention of a decode step reads its past in blocks: each length around the ends of blocks.
TEST_P(Prefill, StepsBehindALongPastReadAllOfIt) {
  ModelConfig config = GetParam().config;
  config.max_positions = 600;
  const auto model = random_model(*context_, config, 3, DType::f64);
  const Sentences source = random_sentences(1, 7, 13, 5);
  std::vector<int32_t> text = random_sentences(1, 540, 13, 8)[0];
  text.resize(530, 5);
  const auto at = [&](size_t length) {
    DecodeState state = model->start_decoding(*context_, batch_of(*context_, config, source), 560);
    const std::vector<std::vector<int32_t>> prompt{
        {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)}};
    std::vector<double> logits = to_doubles(*context_, model->prefill(*context_, state, prompt));
    return std::pair(std::move(state), std::move(logits));
  };
  for (const size_t begin : {126u, 254u, 510u}) {
    DecodeState state = at(begin).first;
    for (size_t length = begin + 1; length <= begin + 5; ++length) {
      const std::vector<double> logits = step(*context_, *model, state, {text[length - 1]});
      EXPECT_LT(difference_of(logits, at(length).second), 1e-9) << length << " tokens";
    }
  }
}

TEST_P(Prefill, EqualsTheSamePromptsTokenByToken) {
  const std::vector<std::vector<int32_t>> further = {{7, 8, 9, 10}, {12, 4, 4, 5}};
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto model = random_model(*context_, GetParam().config, 3, dtype);
    const auto expected = stepped(*context_, *model, further);
    DecodeState state =
        model->start_decoding(*context_, batch_of(*context_, model->config(), kSources), 10);
    const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-4;
    const auto first = to_doubles(*context_, model->prefill(*context_, state, kPrompts));
    EXPECT_LE(difference_of(first, expected[0]), tolerance);
    EXPECT_EQ(state.cache.lengths(), (std::vector<int32_t>{7, 1, 3, 9}));
    // Rows of different lengths go on side by side, also when the cache grows.
    EXPECT_LE(difference_of(step(*context_, *model, state, further[0]), expected[1]), tolerance);
    state.cache.grow(*context_, 11);
    EXPECT_LE(difference_of(step(*context_, *model, state, further[1]), expected[2]), tolerance);
  }
}

// Further tokens of rows that have a past, and rows that get none.
TEST_P(Prefill, ContinuesRows) {
  const std::vector<int32_t> more[2] = {{7, 8, 9, 10, 11}, {12, 4}};
  for (const bool fused : {true, false})
    for (const DType dtype : {DType::f64, DType::f32}) {
      const auto model = random_model(*context_, GetParam().config, 3, dtype);
      if (model->spec().has_encoder()) return;
      context_->set_fused_kernels(fused);
      const auto start = [&](const Sentences& sources, int64_t capacity) {
        return model->start_decoding(*context_, batch_of(*context_, model->config(), sources),
                                     capacity);
      };
      DecodeState state = start(kSources, 20);
      model->prefill(*context_, state, kPrompts);
      const auto found = to_doubles(
          *context_, model->prefill(*context_, state, Sentences{more[0], {}, more[1], {5}}));
      EXPECT_EQ(state.cache.lengths(), (std::vector<int32_t>{12, 1, 5, 10}));
      std::vector<double> expected;
      for (const auto& [row, tokens] : std::initializer_list<std::pair<size_t, Sentences>>{
               {0, {more[0]}}, {2, {more[1]}}, {3, {{5}}}}) {
        Sentences whole = {kPrompts[row]};
        whole[0].insert(whole[0].end(), tokens[0].begin(), tokens[0].end());
        DecodeState own = start({kSources[row]}, 20);
        const auto logits = to_doubles(*context_, model->prefill(*context_, own, whole));
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
      EXPECT_LE(difference_of(found, expected), dtype == DType::f64 ? 1e-12 : 1e-4);
      context_->set_fused_kernels(true);
    }
}

TEST_P(Prefill, RowsOfOnePromptShareIt) {
  const auto model = random_model(*context_, GetParam().config, 3);
  const Batch batch = batch_of(*context_, model->config(), kSources);
  DecodeState shared = model->start_decoding(*context_, batch, 10);
  model->prefill(*context_, shared, kPrompts);
  const std::vector<int32_t> rows = {3, 0, 0, 2, 3};
  reorder(*context_, shared, rows);
  EXPECT_EQ(shared.cache.lengths(), (std::vector<int32_t>{9, 7, 7, 3, 9}));

  Sentences sources, prompts;
  for (const int32_t row : rows) {
    sources.push_back(kSources[static_cast<size_t>(row)]);
    prompts.push_back(kPrompts[static_cast<size_t>(row)]);
  }
  DecodeState own =
      model->start_decoding(*context_, batch_of(*context_, model->config(), sources), 12);
  model->prefill(*context_, own, prompts);
  const std::vector<int32_t> ids = {4, 5, 6, 7, 8};
  EXPECT_LE(difference_of(step(*context_, *model, shared, ids), step(*context_, *model, own, ids)),
            1e-12);
}

TEST_P(Prefill, RefusesWhatDoesNotFit) {
  const auto model = random_model(*context_, GetParam().config, 3);
  const Batch batch = batch_of(*context_, model->config(), kSources);
  const auto start = [&](int64_t capacity) {
    return model->start_decoding(*context_, batch, capacity);
  };
  DecodeState small = start(8);
  EXPECT_EQ(error_text([&] { model->prefill(*context_, small, kPrompts); }),
            "INVALID_ARGUMENT: the cache has room for 8 tokens a row; row 3 holds 0 and cannot "
            "take 9 more");
  EXPECT_EQ(small.cache.longest(), 0);
  DecodeState state = start(32);
  EXPECT_EQ(error_text([&] {
              model->prefill(*context_, state, Sentences(3, {4, 5}));
            }),
            "SHAPE_MISMATCH: 3 prompts for 4 rows");
  if (!model->spec().has_encoder()) return;
  constexpr const char* kWholeRows =
      "INVALID_ARGUMENT: with an encoder, every row is empty and gets a token at least";
  EXPECT_EQ(error_text([&] {
              model->prefill(*context_, state, Sentences{{4}, {}, {4}, {4}});
            }),
            kWholeRows);
  model->prefill(*context_, state, kPrompts);
  EXPECT_EQ(error_text([&] { model->prefill(*context_, state, kPrompts); }), kWholeRows);
}

TEST_P(Prefill, TranslationsDoNotDependOnTheBatch) {
  const auto model = random_model(*context_, GetParam().config, 3);
  const Sentences sources = random_sentences(9, 12, 13, 8);
  DecodeOptions options;
  options.max_length = 12;
  options.beam = 3;
  options.n_best = 3;
  const auto together = translate_tokens(*context_, *model, sources, options);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto alone = translate_tokens(*context_, *model, {&sources[i], 1}, options);
    ASSERT_EQ(alone[0].size(), together[i].size());
    for (size_t j = 0; j < alone[0].size(); ++j)
      EXPECT_EQ(alone[0][j].tokens, together[i][j].tokens) << "sentence " << i;
  }
}

}  // namespace
}  // namespace trafo::testing
