#include "engine/metrics/evaluation.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "engine/metrics/bootstrap.h"
#include "engine/metrics/unspaced.h"

namespace trafo {
namespace {

using Lines = std::vector<std::string>;

struct Length {
  int64_t value = 0;
  Length& operator+=(const Length& other) {
    value += other.value;
    return *this;
  }
};

TEST(Bootstrap, DrawsFollowFromTheSeedAlone) {
  std::vector<uint32_t> first, again, other;
  const Resamples resamples(1000, 5, 12345);
  resamples.draw(3, first);
  resamples.draw(3, again);
  EXPECT_EQ(first, again);
  resamples.draw(4, other);
  EXPECT_NE(first, other);
  Resamples(1000, 5, 12346).draw(3, other);
  EXPECT_NE(first, other);
  // With replacement, about 1 - 1/e of 1000 segments occur; 5 standard deviations are 49.
  ASSERT_EQ(first.size(), 1000u);
  const std::set<uint32_t> distinct(first.begin(), first.end());
  EXPECT_NEAR(static_cast<double>(distinct.size()), 1000 * (1 - std::exp(-1)), 49);
  EXPECT_LT(*distinct.rbegin(), 1000u);
}

TEST(Bootstrap, MeanAndIntervalOfASum) {
  // The sum of n draws from {0, 1} in equal parts: mean n/2, standard deviation sqrt(n)/2.
  std::vector<Length> segments(400);
  for (size_t i = 0; i < segments.size(); i += 2) segments[i].value = 1;
  const std::vector<double> sums =
      Resamples(400, 4000, 1).scores(std::span<const Length>(segments), [](const Length& sum) {
        return static_cast<double>(sum.value);
      });
  const Interval interval = interval_of(sums);
  EXPECT_NEAR(interval.mean, 200, 5 * 10 / std::sqrt(4000.0));
  EXPECT_NEAR(interval.half_width, 1.96 * 10, 1.5);
}

TEST(Bootstrap, IntervalLeavesOutAFortiethOnEachSide) {
  std::vector<double> scores;
  for (int i = 79; i >= 0; --i) scores.push_back(i * i);
  const Interval interval = interval_of(scores);
  EXPECT_EQ(interval.half_width, 0.5 * (77 * 77 - 2 * 2));
  EXPECT_EQ(interval_of({3.0}).half_width, 0);
  EXPECT_THROW(interval_of({}), Error);
}

TEST(Bootstrap, PValueByHand) {
  // Differences 1 2 3 6 less their mean 3: only 3 exceeds 2.
  const std::vector<double> system{2, 2, 7, 9}, baseline{1, 4, 4, 3};
  EXPECT_EQ(paired_p_value(system, baseline, -2), 2.0 / 5);
  EXPECT_EQ(paired_p_value(system, baseline, 3), 1.0 / 5);
  EXPECT_THROW(paired_p_value(system, std::vector<double>{1}, 0), Error);
}

TEST(Evaluation, ComparesWithABaseline) {
  Lines references, good, bad;
  for (int i = 0; i < 60; ++i) {
    const std::string n = std::to_string(i);
    references.push_back("the " + n + " small dogs run over a wet street of " + n);
    good.push_back(i % 3 == 0 ? "the " + n + " dogs run over the street" : references.back());
    bad.push_back("a " + n + " dog runs over a wet road of " + n);
  }
  const std::span<const std::string> set[] = {references};
  EvaluationOptions options;
  const Evaluation alone = evaluate(good, set, {}, options);
  EXPECT_EQ(alone.bleu.score, corpus_bleu(good, references).score);
  EXPECT_EQ(alone.chrf.score, corpus_chrf(good, references).score);
  EXPECT_FALSE(alone.bleu.mean || alone.bleu.p_value || alone.baseline_bleu.mean);
  EXPECT_EQ(alone.bleu_signature, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:0.1.0");

  const Evaluation compared = evaluate(good, set, bad, options);
  EXPECT_EQ(compared.bleu.score, alone.bleu.score);
  EXPECT_EQ(compared.baseline_bleu.score, corpus_bleu(bad, references).score);
  EXPECT_EQ(compared.baseline_chrf.score, corpus_chrf(bad, references).score);
  EXPECT_NEAR(*compared.bleu.mean, compared.bleu.score, *compared.bleu.half_width);
  EXPECT_EQ(*compared.bleu.p_value, 1.0 / 1001);
  EXPECT_FALSE(compared.baseline_bleu.p_value);
  EXPECT_EQ(compared.chrf_signature,
            "nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|trafo:0.1.0");
  // The same draws for both systems: equal ones have the difference 0 in every resample.
  const Evaluation same = evaluate(good, set, good, options);
  EXPECT_EQ(*same.bleu.mean, *same.baseline_bleu.mean);
  EXPECT_EQ(*same.bleu.p_value, 1);

  options.confidence = true;
  options.resamples = 50;
  options.seed = 7;
  const Evaluation interval = evaluate(good, set, {}, options);
  EXPECT_GT(*interval.chrf.half_width, 0);
  EXPECT_FALSE(interval.chrf.p_value);
  EXPECT_NE(interval.bleu_signature.find("nrefs:1|bs:50|seed:7|"), std::string::npos);
}

TEST(Evaluation, RefusesBadInput) {
  const Lines one{"a"}, two{"a", "b"};
  const std::span<const std::string> set[] = {one};
  EvaluationOptions options;
  EXPECT_THROW(evaluate(two, set, {}, options), Error);
  EXPECT_THROW(evaluate(one, {}, {}, options), Error);
  EXPECT_THROW(evaluate(one, set, two, options), Error);
  options.resamples = 0;
  EXPECT_THROW(evaluate(one, set, {}, options), Error);
  options = {};
  options.tokenize = BleuTokenizer::flores200;
  EXPECT_THROW(evaluate(one, set, {}, options), Error);
  options.tokenize = static_cast<BleuTokenizer>(77);
  EXPECT_THROW(evaluate(one, set, {}, options), Error);
}

TEST(Unspaced, ScriptsAndSegmentedText) {
  for (const char* line :
       {"今天天气很好，我们去公园散步。", "私は学生です。", "สวัสดีชาวโลกที่น่ารัก", "ກິນເຂົ້າແລ້ວບໍ",
        "ខ្ញុំស្រឡាញ់អ្នក", "ကျွန်တော်ကျောင်းသွားသည်", "使用GPT-4，准确率为97.5%。"})
    EXPECT_TRUE(is_unspaced(line)) << line;
  for (const char* line :
       {"", "The dog 狗 ran over the wet street.", "今天 天气 很 好 ， 我们 去 公园 散步 。",
        "Привет, мир!", "안녕하세요, 반갑습니다!", "राम घर गया।", "ذهب الولد إلى المدرسة"})
    EXPECT_FALSE(is_unspaced(line)) << line;
  const Lines lines{"今天天气很好。", "a dog", "私は学生です。"};
  EXPECT_EQ(count_unspaced(lines), 2u);
  const std::span<const std::string> set[] = {lines};
  EXPECT_EQ(evaluate(lines, set, {}, {}).unspaced_references, 2u);
}

TEST(SentenceScores, LeaveOutOrdersThatATranslationIsTooShortFor) {
  const Lines hypotheses{"the cat sat on the mat", "two words", "two words", ""};
  const Lines references{"the cat sat on a mat", "two words", "three words here", "a b"};
  const std::vector<double> bleu = sentence_bleu(hypotheses, references, {});
  ASSERT_EQ(bleu.size(), 4u);
  EXPECT_NEAR(bleu[0], 100 * std::pow(5.0 / 6 * 3 / 5 * 2 / 4 * 1 / 3, 0.25), 1e-9);
  // Orders 1 and 2 alone; the corpus score would have 0 of 0 quadruples.
  EXPECT_NEAR(bleu[1], 100, 1e-9);
  // 1 of 2 words, and no pair: half of one in one. One word is missing: exp(1 - 3/2).
  EXPECT_NEAR(bleu[2], 100 * std::sqrt(0.5 * 0.5) * std::exp(-0.5), 1e-9);
  EXPECT_EQ(bleu[3], 0);
  EvaluationOptions characters;
  characters.tokenize = BleuTokenizer::character;
  EXPECT_GT(sentence_bleu({Lines{"天气很好"}}, {Lines{"天气不好"}}, characters)[0], 20);
  characters.tokenize = BleuTokenizer::flores200;
  EXPECT_THROW(sentence_bleu(hypotheses, references, characters), Error);

  const std::vector<double> chrf = sentence_chrf(hypotheses, references);
  ASSERT_EQ(chrf.size(), 4u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(chrf[i], corpus_chrf(Lines{hypotheses[i]}, Lines{references[i]}).score) << i;
  EXPECT_NEAR(chrf[1], 100, 1e-9);
  EXPECT_EQ(chrf[3], 0);
}

// Sets TRAFO_MECAB_DICTIONARY and puts back what was there.
class MecabDictionary {
 public:
  explicit MecabDictionary(const char* folder) {
    if (const char* given = std::getenv(kName)) before_ = given;
    setenv(kName, folder, 1);
  }
  ~MecabDictionary() {
    if (before_)
      setenv(kName, before_->c_str(), 1);
    else
      unsetenv(kName);
  }

 private:
  static constexpr const char* kName = "TRAFO_MECAB_DICTIONARY";
  std::optional<std::string> before_;
};

bool has_mecab() {
  return dlopen("libmecab.so.2", RTLD_NOW | RTLD_NODELETE) != nullptr;
}

TEST(Mecab, FindsJapaneseWords) {
  if (!has_mecab()) GTEST_SKIP() << "libmecab2 and mecab-ipadic-utf8 are not installed";
  const auto [words, version] = load_japanese_words();
  EXPECT_EQ(words("東京都に住んでいます。"),
            (Lines{"東京", "都", "に", "住ん", "で", "い", "ます", "。"}));
  EXPECT_EQ(words(""), Lines{});
  EXPECT_EQ(words("NATO and EU"), (Lines{"NATO", "and", "EU"}));
  EXPECT_TRUE(version.starts_with("0.99") && version.find("-IPA") != std::string::npos) << version;
}

TEST(Mecab, BleuCountsItsWords) {
  if (!has_mecab()) GTEST_SKIP() << "libmecab2 and mecab-ipadic-utf8 are not installed";
  const Lines hypotheses{"東京都に住んでいます。 "}, references{" 東京に住んでいます。"};
  const std::span<const std::string> set[] = {references};
  EvaluationOptions options;
  options.tokenize = BleuTokenizer::ja_mecab;
  const Evaluation result = evaluate(hypotheses, set, {}, options);
  EXPECT_EQ(result.bleu_parts.hypothesis_length, 8);
  EXPECT_EQ(result.bleu_parts.reference_length, 7);
  EXPECT_EQ(result.bleu_parts.matches[0], 7);
  EXPECT_NE(result.bleu_signature.find("|tok:ja-mecab-0.99"), std::string::npos);
  EXPECT_NEAR(sentence_bleu(references, references, options).at(0), 100, 1e-9);
}

// Whether there is a MeCab or not: the error says what is missing and what serves instead.
TEST(Mecab, AMissingDictionaryIsNamed) {
  const MecabDictionary none("/no/such/folder");
  const Lines lines{"猫"};
  const std::span<const std::string> set[] = {lines};
  EvaluationOptions options;
  options.tokenize = BleuTokenizer::ja_mecab;
  try {
    evaluate(lines, set, {}, options);
    FAIL() << "a dictionary that there is not was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string said = error.what();
    EXPECT_NE(said.find(has_mecab() ? "/no/such/folder" : "libmecab2"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace trafo
