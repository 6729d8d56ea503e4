// Translator: text in, text out, against the functions on tokens.
#include "engine/decode/translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using Lines = std::vector<std::string_view>;

Tokenizer small_tokenizer() {
  const std::vector<std::string> text = {"der hund sieht die katze", "die katze sieht den hund",
                                         "ein hund und eine katze", "das haus ist alt und rot",
                                         "ein altes haus sieht gut aus"};
  TokenizerTrainOptions options;
  options.vocab_size = 300;
  options.byte_fallback = true;
  options.hard_vocab_limit = false;
  return Tokenizer::train(text, options);
}

class TranslatorTest : public ::testing::TestWithParam<Architecture> {
 protected:
  static void SetUpTestSuite() { tokenizer_ = new Tokenizer(small_tokenizer()); }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  void SetUp() override {
    model_ = random_model(*context_, decode_config(GetParam(), tokenizer_->vocab_size()), 5);
    // Translations end early.
    set_output_bias(*context_, *model_, tokenizer_->eos_id(), 3);
  }

  Translator translator() const { return {*context_, *model_, *tokenizer_}; }
  std::vector<int32_t> encoded(std::string_view line) const {
    std::vector<int32_t> ids = tokenizer_->encode(line);
    ids.push_back(tokenizer_->eos_id());
    return ids;
  }
  // More tokens than the model takes: every word has two of them at least.
  std::string long_line() const {
    std::string line;
    for (int i = 0; i < 48; ++i) line += "xq ";
    return line;
  }
  std::string error_for(const Lines& lines, const TranslateOptions& options = {}) const {
    return error_text([&] { translator().translate(lines, options); });
  }

  static Tokenizer* tokenizer_;
  std::unique_ptr<Context> context_ = cpu_context();
  std::unique_ptr<Model> model_;
};
Tokenizer* TranslatorTest::tokenizer_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Models, TranslatorTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         architecture_name);

// Without a tokenizer, the tokens of the model are enough; long rows keep what a text keeps.
TEST_P(TranslatorTest, IdsGiveWhatTheirTextGives) {
  const std::string longest = long_line();
  const Lines lines = {"der hund sieht", "", longest}, targets = {"das", "haus", longest};
  const Translator text = translator(), ids(*context_, *model_, std::nullopt);
  std::vector<std::vector<int32_t>> rows;
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < lines.size(); ++i) {
    rows.push_back(encoded(lines[i]));
    pairs.push_back({rows[i], encoded(targets[i])});
  }
  EXPECT_TRUE(contains(error_text([&] { ids.translate_ids(rows); }), "special tokens"));
  model_->set_tokens(tokenizer_->tokens());
  EXPECT_TRUE(contains(error_text([&] { ids.translate(lines); }), "text needs a tokenizer"));
  TranslateOptions options;
  options.truncate = true;
  options.decode.max_length = 10;
  const auto same = [&](std::vector<Translation> expected, const std::vector<Translation>& found) {
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(expected[i].source_tokens, found[i].source_tokens) << i;
      EXPECT_EQ(expected[i].used_tokens, found[i].used_tokens) << i;
      ASSERT_EQ(expected[i].hypotheses.size(), found[i].hypotheses.size()) << i;
      for (size_t rank = 0; rank < found[i].hypotheses.size(); ++rank) {
        const TextHypothesis &a = expected[i].hypotheses[rank], &b = found[i].hypotheses[rank];
        EXPECT_EQ(a.tokens, b.tokens) << i;
        EXPECT_EQ(a.score, b.score) << i;
        EXPECT_EQ(a.finished, b.finished) << i;
        EXPECT_EQ(b.text, "") << i;
      }
    }
  };
  same(text.translate(lines, options), ids.translate_ids(rows, options));
  same(text.force_decode(lines, targets, options), ids.force_decode_ids(pairs, options));
  if (GetParam() != Architecture::decoder_lm) return;
  // A row without an end continues a text. It keeps its first token and its last ones.
  options.end_source = FrameToken::off;
  options.begin_source = FrameToken::on;
  for (std::vector<int32_t>& row : rows) {
    row.pop_back();
    if (!row.empty()) row.insert(row.begin(), tokenizer_->bos_id());
  }
  same(text.translate(lines, options), ids.translate_ids(rows, options));
  // A source without an end loses its first tokens, a target without an end its last.
  std::vector<int32_t> longer(200, 5);
  longer.front() = 6;
  longer.back() = 7;
  const Translation cut = ids.force_decode_ids({{longer, longer}}, options)[0];
  EXPECT_EQ(cut.hypotheses[0].tokens.front(), 6);
  EXPECT_EQ(cut.hypotheses[0].tokens.back(), 5);
  EXPECT_FALSE(cut.hypotheses[0].finished);
  EXPECT_EQ(cut.source_tokens, 400);
  EXPECT_EQ(cut.used_tokens, model_->spec().max_positions + 1);
}

// The tokens around the texts of a model are the same in training and in every call, unless an
// option says otherwise.
TEST_P(TranslatorTest, TheFrameOfTheModelIsTheDefault) {
  VocabularyTokens tokens = tokenizer_->tokens();
  tokens.frame = {.begin = true, .end = false};
  if (GetParam() == Architecture::encoder_decoder) {
    EXPECT_TRUE(contains(error_text([&] { model_->set_tokens(tokens); }), "frame"));
    return;
  }
  model_->set_tokens(tokens);
  const Lines lines = {"der hund sieht", "die katze"}, targets = {"das haus", "rot"};
  const Translator text = translator(), ids(*context_, *model_, std::nullopt);
  std::vector<std::vector<int32_t>> rows;
  std::vector<SentencePair> pairs, plain;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> row = tokenizer_->encode(lines[i]);
    plain.push_back({{}, row});
    row.insert(row.begin(), tokenizer_->bos_id());
    rows.push_back(row);
    pairs.push_back({row, encoded(targets[i])});
  }
  const auto same = [&](const std::vector<Translation>& a, const std::vector<Translation>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].hypotheses[0].tokens, b[i].hypotheses[0].tokens) << i;
      EXPECT_EQ(a[i].hypotheses[0].log_probability, b[i].hypotheses[0].log_probability) << i;
    }
  };
  TranslateOptions options;
  options.decode.max_length = 6;
  same(text.translate(lines, options), ids.translate_ids(rows, options));
  same(text.force_decode(lines, targets), ids.force_decode_ids(pairs));
  // The empty source of plain text is bos.
  same(text.score_text(lines), ids.force_decode_ids(plain));
  EXPECT_EQ(text.score(lines, targets)[1].log_probability,
            ids.force_decode_ids(pairs)[1].hypotheses[0].log_probability);
  const auto values = [&](const Tensor& tensor) { return to_doubles(*context_, tensor); };
  EXPECT_EQ(values(text.states(lines).states), values(ids.states_ids(rows).states));
  EXPECT_EQ(values(text.logits(lines, targets).logits), values(ids.logits_ids(pairs).logits));
  // An option counts more.
  options.begin_source = FrameToken::off;
  options.end_source = FrameToken::on;
  const auto chosen = text.translate(lines, options);
  const auto chosen_pairs = text.force_decode(lines, targets, options);
  const auto chosen_text = text.score_text(lines, options);
  model_->set_tokens(tokenizer_->tokens());
  TranslateOptions usual;
  usual.decode = options.decode;
  same(chosen, text.translate(lines, usual));
  same(chosen_pairs, text.force_decode(lines, targets));
  same(chosen_text, text.score_text(lines));
  // A pair that is cut keeps bos.
  model_->set_tokens(tokens);
  const std::string line = long_line();
  const Translation cut = text.force_decode(Lines{line}, Lines{"rot"})[0];
  std::vector<int32_t> kept = tokenizer_->encode(line);
  const auto room = static_cast<size_t>(model_->spec().max_positions + 1) - encoded("rot").size();
  kept.erase(kept.begin(), kept.end() - static_cast<ptrdiff_t>(room - 1));
  kept.insert(kept.begin(), tokenizer_->bos_id());
  EXPECT_EQ(cut.hypotheses[0].log_probability,
            ids.force_decode_ids({{kept, encoded("rot")}})[0].hypotheses[0].log_probability);
}

TEST_P(TranslatorTest, TranslatesAsTheTokensOfEachLine) {
  const Lines lines = {"der hund sieht", "", "die katze und das rote haus"};
  TranslateOptions options;
  options.decode.beam = 3;
  options.decode.n_best = 2;
  const auto found = translator().translate(lines, options);
  std::vector<std::vector<int32_t>> sources;
  for (const std::string_view line : lines) sources.push_back(encoded(line));
  DecodeOptions decode = options.decode;
  decode.tokens = tokenizer_->special_tokens();
  const auto expected = translate_tokens(*context_, *model_, sources, decode);
  ASSERT_EQ(found.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(found[i].hypotheses.size(), expected[i].size());
    for (size_t rank = 0; rank < expected[i].size(); ++rank) {
      const TextHypothesis& hypothesis = found[i].hypotheses[rank];
      EXPECT_EQ(hypothesis.tokens, expected[i][rank].tokens);
      EXPECT_EQ(hypothesis.text, tokenizer_->decode(expected[i][rank].tokens));
      EXPECT_EQ(hypothesis.score, expected[i][rank].score);
      EXPECT_EQ(hypothesis.log_probability, expected[i][rank].log_probability);
      EXPECT_EQ(hypothesis.finished, expected[i][rank].finished);
    }
    EXPECT_EQ(found[i].source_tokens, static_cast<int64_t>(sources[i].size()));
    EXPECT_FALSE(found[i].truncated());
  }
  EXPECT_EQ(found[1].hypotheses[0].text, "");
  EXPECT_TRUE(translator().translate({}).empty());
}

TEST_P(TranslatorTest, SamplesAreTranslationsOfTheirLine) {
  TranslateOptions options;
  options.decode.sampling.on = true;
  options.decode.n_best = 4;
  const auto found = translator().translate(Lines{"der hund", "die katze"}, options);
  for (const Translation& line : found) ASSERT_EQ(line.hypotheses.size(), 4u);
  options.decode.sampling.first_line = 1;
  const auto second = translator().translate(Lines{"die katze"}, options);
  for (size_t sample = 0; sample < 4; ++sample)
    EXPECT_EQ(second[0].hypotheses[sample].text, found[1].hypotheses[sample].text);
}

TEST_P(TranslatorTest, LongLinesAreErrorsOrCut) {
  const std::string line = long_line();
  const std::vector<int32_t> ids = encoded(line);
  const int64_t limit = longest_source(model_->spec());
  ASSERT_GT(static_cast<int64_t>(ids.size()), limit);
  TranslateOptions options;
  options.truncate = false;
  const std::string error = error_for({"der hund", line}, options);
  EXPECT_TRUE(contains(error, "INVALID_ARGUMENT: sentence 2 has ")) << error;

  options.truncate = true;
  const auto found = translator().translate(Lines{"der hund", line}, options);
  EXPECT_FALSE(found[0].truncated());
  EXPECT_TRUE(found[1].truncated());
  EXPECT_EQ(found[1].source_tokens, static_cast<int64_t>(ids.size()));
  const auto used = static_cast<size_t>(found[1].used_tokens);
  EXPECT_LE(found[1].used_tokens, limit);
  std::vector<int32_t> kept(ids.begin(), ids.begin() + static_cast<int64_t>(used) - 1);
  kept.push_back(tokenizer_->eos_id());
  DecodeOptions decode;
  decode.tokens = tokenizer_->special_tokens();
  EXPECT_EQ(found[1].hypotheses[0].tokens,
            translate_tokens(*context_, *model_, {&kept, 1}, decode)[0][0].tokens);
}

// The vocabulary spells the character in three byte tokens.
TEST_P(TranslatorTest, ACharacterIsCutWholeOrNotAtAll) {
  const int64_t limit = longest_source(model_->spec());
  TranslateOptions options;
  options.truncate = true;
  options.decode.beam = 1;
  for (const std::string start : {"", "a", "aa", "a a"}) {
    std::string line = start;
    for (int i = 0; i < 30; ++i) line += "\u4e2d";
    const auto found = translator().translate(Lines{line}, options);
    ASSERT_TRUE(found[0].truncated());
    EXPECT_GT(found[0].used_tokens, limit - 3);
    const std::vector<int32_t> ids = encoded(line);
    const auto first_lost = static_cast<size_t>(found[0].used_tokens - 1);
    EXPECT_EQ(tokenizer_->token(ids[first_lost]), "<0xE4>") << start;
  }
}

TEST_P(TranslatorTest, AShortlistRestrictsTheTokens) {
  const std::vector<std::vector<int32_t>> sources = {tokenizer_->encode("der hund")},
                                          targets = {tokenizer_->encode("die katze")};
  const LexicalTable table = LexicalTable::learn(sources, targets, tokenizer_->vocab_size(), 4);
  TranslateOptions options;
  options.shortlist = {&table, 8, 4};
  std::vector<int32_t> source = encoded("der hund");
  const std::vector<int32_t> allowed = table.candidates(source, 8, 4);
  const auto found = translator().translate(Lines{"der hund"}, options);
  for (const int32_t id : found[0].hypotheses[0].tokens)
    EXPECT_TRUE(std::binary_search(allowed.begin(), allowed.end(), id)) << id;

  options.shortlist = {&table, 0, 0};
  EXPECT_TRUE(contains(error_for({"der hund"}, options), "both 0"));
  options.shortlist = {nullptr, -1, 0};
  EXPECT_TRUE(contains(error_for({"der hund"}, options), "at least 0"));
}

TEST_P(TranslatorTest, ScoresAsTheTokensOfEachPair) {
  const Lines sources = {"der hund", "die katze sieht"}, targets = {"das haus", "ein hund und"};
  const auto found = translator().score(sources, targets);
  ScoreOptions options;
  options.tokens = tokenizer_->special_tokens();
  const std::vector<SentencePair> pairs = {{encoded(sources[0]), encoded(targets[0])},
                                           {encoded(sources[1]), encoded(targets[1])}};
  const auto expected = score(*context_, *model_, pairs, options);
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].log_probability, expected[i].log_probability);
    EXPECT_EQ(found[i].tokens, expected[i].tokens);
  }
}

TEST_P(TranslatorTest, TranslationsBeginAsGiven) {
  const Lines lines = {"der hund sieht", "die katze", "das haus"},
              prefixes = {"ein altes", "", "die  katze und"};
  TranslateOptions options;
  options.decode.beam = options.decode.n_best = 3;
  const auto found = translator().translate(lines, options, prefixes);
  for (const TextHypothesis& hypothesis : found[0].hypotheses)
    EXPECT_TRUE(hypothesis.text.starts_with("ein altes")) << hypothesis.text;
  for (const TextHypothesis& hypothesis : found[2].hypotheses)  // white space is normalised
    EXPECT_TRUE(hypothesis.text.starts_with("die katze und")) << hypothesis.text;
  EXPECT_EQ(found[1].hypotheses[0].text,
            translator().translate(lines, options)[1].hypotheses[0].text);
  EXPECT_TRUE(contains(error_text([&] { translator().translate(lines, options, Lines{""}); }),
                       "1 prefixes for 3 lines"));
  EXPECT_TRUE(
      contains(error_text([&] { translator().translate(Lines{"gut"}, options, Lines{"\xc3("}); }),
               "prefix, line 1: "));
}

TEST_P(TranslatorTest, DistinctTextsAreTheBestOfEach) {
  set_output_bias(*context_, *model_, tokenizer_->eos_id(), 0);
  const Lines lines = {"der hund", "die katze sieht", ""};
  TranslateOptions options;
  options.decode.beam = 24;
  options.decode.n_best = 24;
  options.decode.max_length_extra = 3;
  options.decode.max_length_factor = 0;
  size_t repeated = 0;
  for (const bool sampling : {false, true}) {
    options.decode.sampling.on = sampling;
    options.decode.sampling.temperature = 0.5;
    options.distinct = false;
    const auto all = translator().translate(lines, options);
    options.distinct = true;
    const auto found = translator().translate(lines, options);
    for (size_t i = 0; i < lines.size(); ++i) {
      std::vector<std::string> expected, texts;
      for (const TextHypothesis& hypothesis : all[i].hypotheses)
        if (std::find(expected.begin(), expected.end(), hypothesis.text) == expected.end())
          expected.push_back(hypothesis.text);
      for (const TextHypothesis& hypothesis : found[i].hypotheses) texts.push_back(hypothesis.text);
      repeated += all[i].hypotheses.size() - expected.size();
      ASSERT_GE(texts.size(), expected.size());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), texts.begin()));
      std::sort(texts.begin(), texts.end());
      EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
    }
  }
  EXPECT_GT(repeated, 0u);  // else the test would show nothing
}

TEST_P(TranslatorTest, ForcedPairsThatAreTooLongAreCutOrErrors) {
  const std::string line = long_line();
  const Lines sources = {"der hund", line, "der hund"}, targets = {line, "die katze", "das haus"};
  TranslateOptions options;
  options.decode.word_scores = true;
  options.truncate = false;
  EXPECT_TRUE(
      contains(error_text([&] { translator().force_decode(sources, targets, options); }), "pair "));
  options.truncate = true;
  const auto found = translator().force_decode(sources, targets, options);
  EXPECT_TRUE(found[0].truncated());
  EXPECT_TRUE(found[1].truncated());
  EXPECT_FALSE(found[2].truncated());
  const int64_t positions = model_->config().max_positions;
  const bool stream = GetParam() == Architecture::decoder_lm;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const auto whole = encoded(i == 0 ? sources[0] : targets[1]);
    EXPECT_EQ(found[i].used_tokens,
              stream ? positions + 1 : positions + static_cast<int64_t>(whole.size()));
    EXPECT_EQ(found[i].source_tokens,
              static_cast<int64_t>(encoded(sources[i]).size() + encoded(targets[i]).size()));
    EXPECT_EQ(found[i].hypotheses[0].text, targets[i]);
    EXPECT_TRUE(std::isfinite(found[i].hypotheses[0].score));
  }
  std::vector<int32_t> kept(encoded(line));
  kept.resize(found[0].hypotheses[0].tokens.size());
  EXPECT_EQ(found[0].hypotheses[0].tokens, kept);
  EXPECT_EQ(found[0].hypotheses[0].word_scores.size(), kept.size() + 1);
  // Both sides: a decoder-lm shares its positions among them.
  const auto both = translator().force_decode(Lines{line}, Lines{line}, options);
  EXPECT_EQ(both[0].used_tokens, stream ? positions + 1 : 2 * positions);
}

TEST_P(TranslatorTest, PlainTextIsScoredTokenByToken) {
  const std::string line = long_line();
  const Lines lines = {"der hund sieht die katze", "", line};
  TranslateOptions options;
  options.decode.word_scores = true;
  if (GetParam() == Architecture::encoder_decoder) {
    EXPECT_TRUE(
        contains(error_text([&] { translator().score_text(lines, options); }), "UNSUPPORTED"));
    return;
  }
  const auto log_probability = [&](const std::vector<int32_t>& ids) {
    double sum = 0;
    for (size_t i = 1; i < ids.size(); ++i) {
      const std::vector<int32_t> first(ids.begin(), ids.begin() + 1),
          before(ids.begin() + 1, ids.begin() + static_cast<int64_t>(i));
      sum += next_log_probabilities(*context_, *model_, first, before)[static_cast<size_t>(ids[i])];
    }
    return sum;
  };
  for (const bool begin : {false, true})
    for (const bool end : {false, true}) {
      options.begin_source = begin ? FrameToken::on : FrameToken::off;
      options.end_source = end ? FrameToken::on : FrameToken::off;
      const auto found = translator().score_text(lines, options);
      for (const size_t i : {size_t{0}, size_t{1}}) {
        std::vector<int32_t> ids = tokenizer_->encode(lines[i]);
        ids.insert(ids.begin(), begin ? tokenizer_->bos_id() : tokenizer_->eos_id());
        if (end) ids.push_back(tokenizer_->eos_id());
        const TextHypothesis& hypothesis = found[i].hypotheses[0];
        EXPECT_NEAR(hypothesis.log_probability, log_probability(ids), 1e-9) << i << begin << end;
        EXPECT_EQ(hypothesis.tokens.size(), ids.size() - 1);
        EXPECT_EQ(hypothesis.word_scores.size(), hypothesis.tokens.size());
        EXPECT_EQ(hypothesis.text, lines[i]);
        EXPECT_FALSE(found[i].truncated());
      }
      EXPECT_TRUE(found[2].truncated());
      EXPECT_EQ(found[2].used_tokens, model_->config().max_positions);
    }
  // A pair without a source is the same text.
  options.begin_source = FrameToken::off;
  options.end_source = FrameToken::on;
  EXPECT_NEAR(translator().score_text(Lines{lines[0]}, options)[0].hypotheses[0].log_probability,
              translator().score(Lines{""}, Lines{lines[0]})[0].log_probability, 1e-9);
  options.truncate = false;
  EXPECT_TRUE(
      contains(error_text([&] { translator().score_text(lines, options); }), "INVALID_ARGUMENT"));
}

// Each token once, in the first window that predicts it.
TEST_P(TranslatorTest, LongTextIsScoredInWindows) {
  if (GetParam() == Architecture::encoder_decoder) return;  // it scores pairs only
  const int64_t positions = model_->config().max_positions;
  std::string line = long_line();
  line += " " + line + " " + line;
  const Lines lines = {"der hund", line};
  TranslateOptions options;
  options.decode.word_scores = true;
  const auto whole = translator().score_text(Lines{lines[0]}, options);
  std::vector<int32_t> x = tokenizer_->encode(line);
  x.insert(x.begin(), tokenizer_->eos_id());
  x.push_back(tokenizer_->eos_id());
  ASSERT_GT(std::ssize(x), 2 * positions);
  for (const auto& [length, stride] :
       {std::pair(positions, int64_t{3}), std::pair(positions, positions),
        std::pair(positions - 5, int64_t{7})}) {
    options.window_length = length == positions ? 0 : length;
    options.window_stride = stride;
    const auto found = translator().score_text(lines, options);
    EXPECT_EQ(found[0].hypotheses[0].log_probability, whole[0].hypotheses[0].log_probability);
    const TextHypothesis& hypothesis = found[1].hypotheses[0];
    EXPECT_FALSE(found[1].truncated());
    EXPECT_EQ(hypothesis.text, line);
    EXPECT_TRUE(std::ranges::equal(hypothesis.tokens, std::span(x).subspan(1)));
    ASSERT_EQ(hypothesis.word_scores.size(), x.size() - 1);
    double sum = 0;
    for (int64_t token = 1; token < std::ssize(x); ++token) {
      int64_t begin = 0;
      while (token - begin > length) begin += stride;
      const std::vector<int32_t> first{x[static_cast<size_t>(begin)]},
          before(x.begin() + begin + 1, x.begin() + token);
      const double expected = next_log_probabilities(
          *context_, *model_, first, before)[static_cast<size_t>(x[static_cast<size_t>(token)])];
      EXPECT_NEAR(hypothesis.word_scores[static_cast<size_t>(token - 1)], expected, 1e-9) << token;
      sum += expected;
    }
    EXPECT_NEAR(hypothesis.log_probability, sum, 1e-8);
    EXPECT_NEAR(hypothesis.score, sum / static_cast<double>(x.size() - 1), 1e-8);
  }
  const auto refused = [&](int64_t length, int64_t stride) {
    options.window_length = length;
    options.window_stride = stride;
    return error_text([&] { translator().score_text(lines, options); });
  };
  EXPECT_TRUE(contains(refused(0, positions + 1), "window_stride"));
  EXPECT_TRUE(contains(refused(positions - 5, positions), "window_stride"));
  EXPECT_TRUE(contains(refused(positions + 1, 3), "window_length"));
  EXPECT_TRUE(contains(refused(1, 1), "window_length"));
  EXPECT_TRUE(contains(refused(positions, 0), "window_length"));
}

TEST_P(TranslatorTest, NamesWhatIsWrong) {
  const std::string bad = "\xc3(";
  EXPECT_TRUE(contains(error_for({"gut", bad}), "line 2: "));
  const auto score_error = [&](const Lines& sources, const Lines& targets) {
    return error_text([&] { translator().score(sources, targets); });
  };
  EXPECT_TRUE(contains(score_error({"gut"}, {bad}), "target, line 1: "));
  EXPECT_TRUE(contains(score_error({bad}, {"gut"}), "source, line 1: "));
  EXPECT_TRUE(contains(score_error({"gut"}, {}), "1 source lines and 0 target lines"));
  const auto other =
      random_model(*context_, decode_config(GetParam(), tokenizer_->vocab_size() + 1), 5);
  EXPECT_TRUE(contains(error_text([&] { Translator(*context_, *other, *tokenizer_); }),
                       "they do not belong together"));
  TranslateOptions options;
  CancelToken cancel;
  cancel.cancel();
  options.decode.cancel = &cancel;
  EXPECT_TRUE(contains(error_for({"gut"}, options), "CANCELLED"));
}

}  // namespace
}  // namespace trafo::testing
