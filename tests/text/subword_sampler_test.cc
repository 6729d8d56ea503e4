#include "engine/text/tokenizer/sentencepiece/subword_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "engine/core/status.h"

namespace trafo {
namespace {

Tokenizer trained(TokenizerModel model, bool byte_fallback = false) {
  std::vector<std::string> lines;
  ShuffleRng rng(1, 0);
  for (int i = 0; i < 400; ++i) {
    std::string line;
    for (int w = 0; w < 6; ++w) {
      for (uint64_t letters = 2 + rng.below(6); letters > 0; --letters)
        line += static_cast<char>('a' + rng.below(6));
      line += ' ';
    }
    lines.push_back(line);
  }
  TokenizerTrainOptions options;
  options.vocab_size = byte_fallback ? 400 : 120;
  options.model = model;
  options.byte_fallback = byte_fallback;
  options.hard_vocab_limit = false;
  return Tokenizer::train(lines, options);
}

std::vector<int32_t> sampled(const SubwordSampler& sampler, const std::string& text, double alpha,
                             uint64_t stream) {
  ShuffleRng rng(stream, 0);
  std::vector<int32_t> ids;
  sampler.sample(text, alpha, rng, ids);
  return ids;
}

TEST(SubwordSampler, SegmentationsSayTheSameText) {
  for (const TokenizerModel model : {TokenizerModel::unigram, TokenizerModel::bpe}) {
    const Tokenizer tokenizer = trained(model);
    const auto drawn = tokenizer.sampler();
    const SubwordSampler& sampler = *drawn;
    const std::string text = "abcdef fade  cab";  // two spaces: normalised to one
    std::map<std::vector<int32_t>, int> seen;
    for (uint64_t i = 0; i < 300; ++i) {
      const auto ids = sampled(sampler, text, 0.3, i);
      EXPECT_EQ(tokenizer.decode(ids), "abcdef fade cab");
      EXPECT_EQ(ids, sampled(sampler, text, 0.3, i)) << "the stream decides alone";
      ++seen[ids];
    }
    EXPECT_GT(seen.size(), 20u);
  }
}

TEST(SubwordSampler, UnigramSegmentationsComeAsOftenAsTheirProbability) {
  const Tokenizer tokenizer = trained(TokenizerModel::unigram);
  const auto drawn = tokenizer.sampler();
  const SubwordSampler& sampler = *drawn;
  constexpr double kAlpha = 0.7;
  constexpr int kDraws = 40000;
  std::map<std::vector<int32_t>, int> seen;
  for (int i = 0; i < kDraws; ++i)
    ++seen[sampled(sampler, "abc", kAlpha, static_cast<uint64_t>(i))];
  // By all segmentations of the normalised text, whose subwords are looked up one by one.
  const std::string text =
      "\xe2\x96\x81"
      "abc";
  std::map<std::vector<int32_t>, double> weights;
  double sum = 0;
  const size_t ends[] = {3, 4, 5, 6};
  for (int cuts = 0; cuts < 8; ++cuts) {
    std::vector<int32_t> ids;
    double score = 0;
    size_t begin = 0;
    bool known = true;
    for (int place = 0; place < 4; ++place) {
      if (place < 3 && (cuts >> place & 1) == 0) continue;
      const std::string subword = text.substr(begin, ends[place] - begin);
      const int32_t id = tokenizer.id(subword);
      known = known && id != tokenizer.unk_id();
      ids.push_back(id);
      score += static_cast<double>(tokenizer.as_sentencepiece()->score(id));
      begin = ends[place];
    }
    if (!known) continue;
    weights[ids] = std::exp(kAlpha * score);
    sum += weights[ids];
  }
  ASSERT_GT(weights.size(), 1u);
  for (const auto& [ids, count] : seen) {
    ASSERT_TRUE(weights.contains(ids));
    const double p = weights[ids] / sum;
    EXPECT_NEAR(count, kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1);
  }
}

TEST(SubwordSampler, NoDroppedMergesAreTheTokenizersOwn) {
  const Tokenizer tokenizer = trained(TokenizerModel::bpe);
  const auto drawn = tokenizer.sampler();
  const SubwordSampler& sampler = *drawn;
  for (const char* text : {"abcdef fade cab", "fa", "deadbeef bead face cafe", ""})
    EXPECT_EQ(sampled(sampler, text, 1e-300, 1), tokenizer.encode(text)) << text;
  // And all merges dropped: single characters.
  EXPECT_EQ(sampled(sampler, "abc", 1, 1).size(), 4u);
}

TEST(SubwordSampler, UnknownCharactersAreAsTheTokenizerHasThem) {
  const Tokenizer plain = trained(TokenizerModel::unigram);
  const auto unknown = sampled(*plain.sampler(), "ж日", 0.5, 1);
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), plain.unk_id()), 1);
  const Tokenizer bytes = trained(TokenizerModel::bpe, true);
  const auto ids = sampled(*bytes.sampler(), "ж日 ab", 0.5, 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), bytes.unk_id()), 0);
  EXPECT_EQ(bytes.decode(ids), "ж日 ab");
}

// Without its third field, the normalizer: control characters stay in the text.
std::string without_normalizer(std::string_view model) {
  std::string rest;
  for (size_t at = 0; at < model.size();) {
    size_t end = at + 1, length = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(model[end++]);
      length |= static_cast<size_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    end += length;
    if (model[at] >> 3 != 3) rest += model.substr(at, end - at);
    at = end;
  }
  return rest;
}

TEST(SubwordSampler, AControlCharacterIsUnknown) {
  const Tokenizer trained_one = trained(TokenizerModel::unigram);
  const Tokenizer raw =
      Tokenizer::from_bytes(without_normalizer(trained_one.serialized()), "raw.spm");
  const auto drawn = raw.sampler();
  const SubwordSampler& sampler = *drawn;
  for (uint64_t stream = 0; stream < 20; ++stream)
    for (const char* text : {"abc\x01"
                             "abc",
                             "\x01",
                             "a\x01\x02"
                             "b"}) {
      const auto ids = sampled(sampler, text, 0.5, stream);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), raw.unk_id()), 1) << stream;
    }
}

}  // namespace
}  // namespace trafo
