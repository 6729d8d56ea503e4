// score: pairs that are too long, n-best lists, columns of TSV files, plain text.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

using Arguments = std::vector<std::string>;

class Score : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const demo::Corpus corpus = demo::make_corpus(5, 200, 20);
    std::string pairs, german, english;
    for (const demo::Pair& pair : corpus.train) pairs += pair.german + "\t" + pair.english + "\n";
    for (const demo::Pair& pair : corpus.held_out) {
      german += pair.german + "\n";
      english += pair.english + "\n";
    }
    write_file(folder_->file("pairs"), pairs);
    write_file(folder_->file("de"), german);
    write_file(folder_->file("en"), english);
    train("run", false);
    train("lm", true);
  }
  static void TearDownTestSuite() { delete folder_; }
  static void train(const std::string& name, bool decoder_only) {
    TinyModel model;
    model.decoder_only = decoder_only;
    const Outcome trained = run_program(
        folder_->path(), with_tiny_model({"train", "--tsv", "pairs", "--arch",
                                          decoder_only ? "decoder-lm" : "encoder-decoder",
                                          "--model", name, "--after", "10u", "--cpu-threads", "1"},
                                         model));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static Outcome run(const Arguments& more, const std::string& input = "") {
    return run_program(folder_->path(), Arguments{"score", "--device", "cpu"} + more, input);
  }
  static Arguments scored(const Arguments& more, const std::string& input = "") {
    const Outcome outcome = run(more, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return lines_of(outcome.out);
  }
  static void expect_refused(const Arguments& more, const std::string& why) {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Score::folder_ = nullptr;

TEST_F(Score, EveryPairHasALine) {
  std::string longer, huge(size_t{1} << 21, 'a');
  for (int i = 0; i < 3000; ++i) longer += "Häuser ";
  write_file(folder_->file("long.de"), "Ja.\n" + longer + "\nNein.\n\nJa.\n" + huge + "\n");
  write_file(folder_->file("long.en"), "Yes.\nHouses.\n" + longer + "\n\nYes.\nA.\n");
  for (const char* model : {"run", "lm"}) {
    const Arguments flags = {"-m", model, "-t", "long.de", "long.en"};
    const Outcome skipped = run(flags + Arguments{"--word-scores"});
    ASSERT_EQ(skipped.exit_code, 0) << skipped.err;
    const Arguments lines = lines_of(skipped.out);
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[0], lines[4]);
    for (const size_t i : {1, 2, 5}) {
      EXPECT_EQ(lines[i], "nan ||| WordScores=");
      EXPECT_NE(skipped.err.find("line " + std::to_string(i + 1) + " has "), std::string::npos)
          << skipped.err;
    }
    EXPECT_NE(skipped.err.find("6 pairs (3 not scored)"), std::string::npos) << skipped.err;

    const auto json = nlohmann::json::parse(scored(flags + Arguments{"--json"}).at(0));
    EXPECT_EQ(json["skipped"], 3);
    EXPECT_TRUE(json["scores"][1]["log_probability"].is_null());
    double total = 0;
    for (const size_t i : {0, 3, 4}) total += json["scores"][i]["log_probability"].get<double>();
    EXPECT_NEAR(json["log_probability"].get<double>(), total, 1e-9);

    const Outcome cut = run(flags + Arguments{"--max-length-crop"});
    ASSERT_EQ(cut.exit_code, 0) << cut.err;
    for (const std::string& line : lines_of(cut.out)) EXPECT_LT(std::stod(line), 0) << line;
    EXPECT_EQ(lines_of(cut.out).size(), 6u);
    EXPECT_NE(cut.err.find("it is cut"), std::string::npos) << cut.err;
  }
}

TEST_F(Score, AnNBestListGetsOneMoreFeature) {
  const Outcome list =
      run_program(folder_->path(), {"translate", "--model", "run", "--device", "cpu", "-i", "de",
                                    "--n-best", "3", "--max-length", "9", "-o", "list"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  const Arguments before = lines_of(read_file(folder_->file("list")));
  ASSERT_EQ(before.size(), 60u);
  const Arguments after = scored({"-m", "run", "-t", "de", "list", "--n-best"});
  ASSERT_EQ(after.size(), 60u);
  const Arguments german = lines_of(read_file(folder_->file("de")));
  std::string sources, targets;
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t score = before[i].find(" ||| Score= ");
    const size_t text = before[i].find(" ||| ") + 5;
    sources += german[i / 3] + "\n";
    targets += before[i].substr(text, score - text) + "\n";
    // LINE ||| TEXT ||| Score= OLD Score= NEW ||| OLD
    const size_t end = before[i].rfind(" ||| ");
    EXPECT_TRUE(after[i].starts_with(before[i].substr(0, end) + " Score= -")) << after[i];
    EXPECT_TRUE(after[i].ends_with(before[i].substr(end))) << after[i];
  }
  write_file(folder_->file("s"), sources);
  write_file(folder_->file("t"), targets);
  const Arguments plain = scored({"-m", "run", "-t", "s", "t"});
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NE(after[i].find(" Score= " + plain[i] + " ||| "), std::string::npos) << after[i];

  write_file(folder_->file("bare"), "0 ||| yes\n19 ||| no ||| \n0 |||  ||| F= 1 2 ||| 3 ||| 4\n");
  const Arguments named = scored(
      {"-m", "run", "-t", "de", "bare", "--n-best", "--n-best-feature", "Trafo", "--word-scores"});
  ASSERT_EQ(named.size(), 3u);
  EXPECT_TRUE(named[0].starts_with("0 ||| yes ||| WordScores= -")) << named[0];
  EXPECT_NE(named[0].find(" ||| Trafo= -"), std::string::npos) << named[0];
  EXPECT_TRUE(named[2].starts_with("0 |||  ||| WordScores= -")) << named[2];
  EXPECT_NE(named[2].find(" ||| F= 1 2 Trafo= -"), std::string::npos) << named[2];
  EXPECT_TRUE(named[2].ends_with(" ||| 3 ||| 4")) << named[2];

  write_file(folder_->file("wrong"), "0 ||| yes\n20 ||| no\n");
  expect_refused({"-m", "run", "-t", "de", "wrong", "--n-best"}, "wrong:2 is of line 20");
  write_file(folder_->file("wrong"), "0 ||| yes\nno\n");
  expect_refused({"-m", "run", "-t", "de", "wrong", "--n-best"}, "wrong:2 wants 'LINE ||| TEXT'");
  expect_refused({"-m", "run", "--tsv", "pairs", "--n-best"}, "--n-best wants --train-sets");
}

TEST_F(Score, ColumnsOfTsvAreChosen) {
  const Arguments german = lines_of(read_file(folder_->file("de"))),
                  english = lines_of(read_file(folder_->file("en")));
  std::string four;
  for (size_t i = 0; i < german.size(); ++i)
    four += "0.5\t" + english[i] + "\tname " + std::to_string(i) + "\t" + german[i] + "\n";
  write_file(folder_->file("four"), four);
  const Arguments expected = scored({"-m", "run", "-t", "de", "en"});
  EXPECT_EQ(scored({"-m", "run", "--tsv", "four", "--tsv-columns", "4", "2"}), expected);
  EXPECT_EQ(scored({"-m", "run", "--tsv", "-", "--tsv-columns", "4", "2"}, four), expected);
  expect_refused({"-m", "run", "--tsv", "four"}, "four:1 wants SOURCE<tab>TARGET, has 4 columns");
  expect_refused({"-m", "run", "--tsv", "four", "--tsv-columns", "4", "5"},
                 "four:1 has 4 columns, --tsv-columns wants column 5");
  expect_refused({"-m", "run", "--tsv", "four", "--tsv-columns", "0", "1"}, "--tsv-columns");
}

TEST_F(Score, PlainTextHasAPerplexity) {
  const auto json =
      nlohmann::json::parse(scored({"-m", "lm", "--text", "en", "--json", "--word-scores"}).at(0));
  EXPECT_EQ(json["lines"], 20);
  double total = 0;
  size_t tokens = 0;
  for (const auto& each : json["scores"]) {
    total += each["log_probability"].get<double>();
    tokens += each["tokens"].get<size_t>();
    EXPECT_EQ(each["word_scores"].size(), each["tokens"].get<size_t>());
  }
  EXPECT_EQ(json["target_tokens"], tokens);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(-total / static_cast<double>(tokens)),
              1e-6);
  const Outcome plain = run({"-m", "lm", "--text", "-", "--end-source", "off"},
                            read_file(folder_->file("en")) + "\n");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(lines_of(plain.out).size(), 21u);
  EXPECT_EQ(lines_of(plain.out).back(), "0.000000");  // no token to score
  EXPECT_NE(plain.err.find("21 lines | " + std::to_string(tokens - 20) + " target tokens"),
            std::string::npos)
      << plain.err;
  const Outcome encoder = run({"-m", "run", "--text", "en"});
  EXPECT_NE(encoder.exit_code, 0);
  EXPECT_NE(encoder.err.find("scores pairs, not plain text"), std::string::npos) << encoder.err;
  // A line that the model cannot take is not scored, or in windows.
  std::string text;
  for (const std::string& line : lines_of(read_file(folder_->file("en")))) text += line + " ";
  text += text;
  const auto summary = [&](const Arguments& more) {
    return nlohmann::json::parse(
        scored(Arguments{"-m", "lm", "--text", "-", "--json"} + more, text + "\n").at(0));
  };
  EXPECT_EQ(summary({})["skipped"], 1);
  const auto near = summary({"--window-stride", "100"}), far = summary({"--window-stride", "202"});
  EXPECT_EQ(near["skipped"], 0);
  EXPECT_GT(near["target_tokens"], 2 * (tokens - 20) - 10);
  EXPECT_EQ(near["target_tokens"], far["target_tokens"]);
  EXPECT_NE(near["perplexity"], far["perplexity"]) << "the context differs";
  expect_refused({"-m", "lm", "-t", "de", "en", "--window-stride", "3"}, "--text");
  expect_refused({"-m", "lm", "--text", "en", "--window-stride", "0"}, "--window-stride");
  expect_refused({"-m", "lm", "--text", "en", "-t", "de", "en"}, "score wants");
  expect_refused({"-m", "lm", "-t", "de", "en", "--begin-source", "on"}, "--begin-source");
}

}  // namespace
}  // namespace translate_train::testing
