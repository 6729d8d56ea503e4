// translate: lines that trickle in, lines that are too long, sampling, lengths and scores.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

using Arguments = std::vector<std::string>;

class Translate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const demo::Corpus corpus = demo::make_corpus(5, 200, 20);
    std::string pairs;
    german_ = new std::string;
    for (const demo::Pair& pair : corpus.train) pairs += pair.german + "\t" + pair.english + "\n";
    for (const demo::Pair& pair : corpus.held_out) *german_ += pair.german + "\n";
    write_file(folder_->file("pairs"), pairs);
    const Outcome trained =
        run_program(folder_->path(), with_tiny_model({"train", "--tsv", "pairs", "--model", "run",
                                                      "--after", "20u", "--cpu-threads", "1"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete german_;
  }
  static Outcome run(Arguments arguments, const std::string& input) {
    arguments.insert(arguments.begin(), {"translate", "--model", "run", "--device", "cpu"});
    return run_program(folder_->path(), arguments, input);
  }
  // Its output; it must end well.
  static std::string translated(const Arguments& arguments, const std::string& input = *german_) {
    const Outcome outcome = run(arguments, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }

  static TemporaryFolder* folder_;
  static std::string* german_;
};
TemporaryFolder* Translate::folder_ = nullptr;
std::string* Translate::german_ = nullptr;

TEST_F(Translate, ErrorsOfTheLibraryNameFlags) {
  const Outcome many = run({"--n-best", "7", "--beam-size", "2"}, *german_);
  EXPECT_NE(many.exit_code, 0);
  EXPECT_NE(many.err.find("error: --n-best must be 1 to the beam size, got 7"), std::string::npos)
      << many.err;
  const Outcome layer = run({"--alignment", "hard", "--alignment-layer", "9"}, *german_);
  EXPECT_NE(layer.exit_code, 0);
  EXPECT_NE(layer.err.find("error: --alignment-layer is 9, the model has"), std::string::npos)
      << layer.err;
}

TEST_F(Translate, ALineComesOutBeforeTheNextIsWritten) {
  ASSERT_EQ(mkfifo(folder_->file("pipe").c_str(), 0600), 0);
  Running program(folder_->path(), {"translate", "--model", "run", "-i", "pipe", "-o", "out"});
  const int pipe = open(folder_->file("pipe").c_str(), O_WRONLY);
  const auto lines_out = [] {
    return std::filesystem::exists(folder_->file("out"))
               ? lines_of(read_file(folder_->file("out"))).size()
               : 0;
  };
  for (size_t line = 1; line <= 3; ++line) {
    // The second comes in two pieces.
    const std::string text = line == 2 ? "e Katze.\n" : "Der Hund.\n";
    if (line == 2) {
      ASSERT_EQ(write(pipe, "Di", 2), 2);
    }
    ASSERT_EQ(write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    for (int waited = 0; waited < 600 && lines_out() < line; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(lines_out(), line);
  }
  close(pipe);
  EXPECT_EQ(program.wait().exit_code, 0);
  const auto lines = lines_of(read_file(folder_->file("out")));
  EXPECT_EQ(lines, lines_of(translated({}, "Der Hund.\nDie Katze.\nDer Hund.\n")));
}

TEST_F(Translate, LinesThatAreTooLongAreCutAndNamed) {
  std::string longer;
  for (int i = 0; i < 3000; ++i) longer += "Häuser ";
  const std::string input = "Ja.\n" + longer + "\nNein.\n";
  const Outcome cut = run({"--max-length", "3", "--beam-size", "1"}, input);
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(lines_of(cut.out).size(), 3u);
  EXPECT_NE(cut.err.find("line 2 has "), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("tokens, the model takes "), std::string::npos) << cut.err;
  EXPECT_EQ(cut.err.find("line 1 has"), std::string::npos) << cut.err;
  const Outcome error = run({"--no-max-length-crop"}, input);
  EXPECT_EQ(error.exit_code, 2) << error.err;
  EXPECT_NE(error.err.find("sentence 2 has "), std::string::npos) << error.err;
  // Over 1 MiB: cut between two characters, of which each takes two bytes.
  std::string huge = "a";
  for (int i = 0; i < (1 << 19) + 100; ++i) huge += "ä";
  const Outcome bytes = run({"--max-length", "3", "--beam-size", "1"}, huge + "\nJa.\n");
  ASSERT_EQ(bytes.exit_code, 0) << bytes.err;
  EXPECT_EQ(lines_of(bytes.out).size(), 2u);
  EXPECT_NE(bytes.err.find("line 1 has 1,048,777 bytes"), std::string::npos) << bytes.err;
  EXPECT_EQ(run({"--no-max-length-crop"}, huge + "\n").exit_code, 2);
}

TEST_F(Translate, SamplingFollowsTheSeedAndTheLine) {
  const Arguments drawn = {"--output-sampling", "--seed", "7", "--max-length", "12"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), drawn.begin(), drawn.end());
    return translated(more);
  };
  const std::string first = with({});
  EXPECT_EQ(lines_of(first).size(), 20u);
  EXPECT_EQ(with({"--maxi-batch", "3"}), first);
  EXPECT_EQ(with({"--mini-batch-words", "1"}), first);
  EXPECT_EQ(with({"--cpu-threads", "2"}), first);
  EXPECT_NE(translated({"--output-sampling", "--seed", "8", "--max-length", "12"}), first);
  // Nothing but the most probable token: greedy search.
  const std::string greedy = translated({"--beam-size", "1", "--max-length", "12"});
  EXPECT_EQ(translated({"--output-sampling", "topk", "1", "--max-length", "12"}), greedy);
  EXPECT_EQ(translated({"--sampling", "--sampling-topp", "1e-9", "--max-length", "12"}), greedy);
  EXPECT_EQ(
      translated({"--output-sampling", "full", "--temperature", "1e-3", "--max-length", "12"}),
      greedy);
  // Samples are not ranked, and the first is the same however many are asked for.
  std::string firsts;
  for (const std::string& line : lines_of(with({"--n-best", "3"}))) {
    const size_t begin = line.find(" ||| ") + 5;
    static size_t number = 0;
    if (number++ % 3 == 0) firsts += line.substr(begin, line.find(" ||| ", begin) - begin) + "\n";
  }
  EXPECT_EQ(firsts, first);
  for (const Arguments& wrong :
       {Arguments{"--output-sampling", "best"}, Arguments{"--output-sampling", "topk", "many"},
        Arguments{"--temperature", "2"}})
    EXPECT_EQ(run(wrong, "Ja.\n").exit_code, 2);
}

// A model that has learnt next to nothing draws all tokens alike, the byte of a line's end too.
TEST_F(Translate, BytesThatSpellTheEndOfALineShiftNoLine) {
  const auto succeeds = [&](const Arguments& arguments) {
    const Outcome outcome = run_program(folder_->path(), arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  succeeds({"vocab", "-t", "pairs", "--byte-fallback", "--soft-limit", "--dim-vocabs", "400",
            "--output", "bytes.spm"});
  succeeds(with_tiny_model({"train", "--tsv", "pairs", "--model", "bytes", "--vocabs", "bytes.spm",
                            "--after", "1u", "--cpu-threads", "1"}));
  const Outcome drawn = run_program(folder_->path(),
                                    {"translate", "--model", "bytes", "--device", "cpu",
                                     "--output-sampling", "--seed", "3", "--max-length", "60"},
                                    *german_);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(lines_of(drawn.out).size(), 20u);
}

TEST_F(Translate, LengthsAndNormalisation) {
  const auto scores = [](const std::string& out) {
    std::vector<double> result;
    for (const std::string& line : lines_of(out))
      result.push_back(std::stod(line.substr(line.rfind("||| ") + 4)));
    return result;
  };
  const auto best = [&](const char* normalize) {
    return scores(translated({"--beam-size", "1", "--n-best", "1", "--max-length", "9",
                              "--min-length", "4", "--normalize", normalize}));
  };
  const auto sums = best("0"), means = best("1"), between = best("0.5");
  ASSERT_EQ(sums.size(), 20u);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double length = sums[i] / means[i];
    EXPECT_NEAR(length, std::round(length), 1e-3);
    EXPECT_NEAR(sums[i] / std::sqrt(length), between[i], 1e-3);
    EXPECT_GE(std::round(length), 5);  // </s> counted
    EXPECT_LE(std::round(length), 9);
  }
  // score divides by the same length.
  write_file(folder_->file("s"), *german_);
  write_file(folder_->file("t"), *german_);
  const Arguments score = {"score", "--model", "run", "-t", "s", "t", "--device", "cpu"};
  Arguments divided = score;
  divided.push_back("--normalize");
  const auto whole = lines_of(run_program(folder_->path(), score).out);
  const auto by_length = lines_of(run_program(folder_->path(), divided).out);
  ASSERT_EQ(whole.size(), 20u);
  ASSERT_EQ(by_length.size(), 20u);
  for (size_t i = 0; i < whole.size(); ++i) {
    const double length = std::stod(whole[i]) / std::stod(by_length[i]);
    EXPECT_NEAR(length, std::round(length), 1e-3);
    EXPECT_GE(length, 2);
  }
}

// The text between `before` and the next " |||", or the end.
std::string field(const std::string& line, const std::string& before) {
  const size_t at = line.find(before);
  if (at == std::string::npos) return {};
  const size_t begin = at + before.size();
  return line.substr(begin, line.find(" |||", begin) - begin);
}

std::vector<double> numbers(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream in(text);
  return {std::istream_iterator<double>(in), {}};
}

TEST_F(Translate, WordScoresAndAlignmentsAreWrittenAsMarianDoes) {
  const Arguments search = {"--max-length", "9", "--normalize", "0"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), search.begin(), search.end());
    return lines_of(translated(more));
  };
  const auto plain = with({});
  const auto scored = with({"--n-best", "1", "--word-scores", "--alignment"});
  const auto soft = with({"--alignment", "soft", "--mini-batch-words", "1"});
  const auto all = with({"--alignment", "1e-9"});
  ASSERT_EQ(plain.size(), 20u);
  ASSERT_EQ(scored.size(), 20u);
  ASSERT_EQ(soft.size(), 20u);
  for (size_t i = 0; i < plain.size(); ++i) {
    const std::string text = std::to_string(i) + " ||| " + plain[i] + " ||| ";
    ASSERT_EQ(scored[i].rfind(text, 0), 0u) << scored[i];
    const std::vector<double> words = numbers(field(scored[i], "WordScores= "));
    EXPECT_NEAR(std::accumulate(words.begin(), words.end(), 0.0),
                std::stod(field(scored[i], "Score= ")), 1e-5 * 10)
        << scored[i];
    ASSERT_EQ(soft[i].rfind(plain[i] + " ||| ", 0), 0u) << soft[i];
    // Rows of the soft alignment: they sum to 1, and their largest weights are the hard one.
    std::istringstream rows(soft[i].substr(plain[i].size() + 5));
    std::vector<std::pair<size_t, size_t>> links;
    size_t columns = 0;
    for (std::string row; rows >> row;) {
      const std::vector<double> weights = numbers(row);
      columns = weights.size();
      EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-4) << row;
      links.emplace_back(std::max_element(weights.begin(), weights.end()) - weights.begin(),
                         links.size());
    }
    EXPECT_EQ(links.size(), words.size());
    const size_t pairs = links.size();
    std::sort(links.begin(), links.end());
    std::string hard;
    for (const auto& [source, target] : links)
      hard += (hard.empty() ? "" : " ") + std::to_string(source) + "-" + std::to_string(target);
    EXPECT_EQ(field(scored[i], text), hard) << scored[i];
    const std::string every = all[i].substr(plain[i].size() + 5);
    EXPECT_EQ(std::count(every.begin(), every.end(), '-'), static_cast<long>(pairs * columns));
  }
  for (const char* mode : {"most", "0", "1.5", "nan"}) {
    const Outcome wrong = run({"--alignment", mode}, *german_);
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_NE(wrong.err.find("--alignment: wants soft, hard or a number"), std::string::npos);
  }
  const Outcome wrong = run({"--alignment", "--alignment-layer", "7"}, *german_);
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(wrong.err.find("--alignment-layer is 7"), std::string::npos) << wrong.err;
}

// A reader that splits at " ||| " finds the same columns in every line.
TEST_F(Translate, EmptyFieldsKeepTheirColumns) {
  EXPECT_EQ(translated({"--n-best", "1", "--alignment"}, "\n"),
            "0 |||  |||  ||| Score= 0.000000 ||| 0.000000\n");
  EXPECT_EQ(translated({"--n-best", "1", "--alignment", "soft", "--word-scores"}, "\n"),
            "0 |||  |||  ||| WordScores= ||| Score= 0.000000 ||| 0.000000\n");
  EXPECT_EQ(translated({"--alignment"}, "\n"), " ||| \n");
}

TEST_F(Translate, ANBestListIsFullAtTheLengthLimit) {
  for (const char* limit : {"1", "3", "6"})
    EXPECT_EQ(lines_of(translated({"--n-best", "5", "--max-length", limit})).size(), 100u);
}

TEST_F(Translate, BeginningsAndRulesOfTranslations) {
  std::string prefixes;
  for (size_t i = 0; i < lines_of(*german_).size(); ++i) prefixes += i % 2 ? "The dog\n" : "\n";
  write_file(folder_->file("prefixes"), prefixes);
  const Arguments search = {"--max-length", "9", "--beam-size", "2"};
  const auto begun = lines_of(translated(search + Arguments{"--prefixes", "prefixes"}));
  const auto free = lines_of(translated(search));
  ASSERT_EQ(begun.size(), 20u);
  for (size_t i = 0; i < begun.size(); ++i) {
    EXPECT_TRUE(i % 2 == 0 || begun[i].starts_with("The dog")) << begun[i];
    if (i % 2 == 0) {
      EXPECT_EQ(begun[i], free[i]);
    }
  }
  EXPECT_EQ(lines_of(translated(search + Arguments{"--prefixes", "prefixes", "--maxi-batch", "3"})),
            begun);
  for (const auto& [text, why] : {std::pair("The\n", "prefixes: ends before line 2"),
                                  std::pair("", "prefixes: ends before line 1")}) {
    write_file(folder_->file("prefixes"), text);
    const Outcome outcome = run(search + Arguments{"--prefixes", "prefixes"}, *german_);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  }
  write_file(folder_->file("prefixes"), "\n\n");
  const Outcome more = run(search + Arguments{"--prefixes", "prefixes"}, "Ja.\n");
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_EQ(lines_of(more.out).size(), 1u);
  EXPECT_NE(more.err.find("prefixes: has more lines than the input"), std::string::npos)
      << more.err;

  // A model that has hardly learnt repeats itself.
  const Arguments longer = {"--max-length", "40", "--min-length", "30", "--beam-size", "1"};
  const auto repeats = [&](const Arguments& flags) {
    size_t count = 0;
    for (const std::string& line : lines_of(translated(longer + flags))) {
      const std::vector<std::string> words = words_of(line);
      for (size_t i = 3; i < words.size(); ++i)
        count += words[i] == words[i - 1] && words[i] == words[i - 2] && words[i] == words[i - 3];
    }
    return count;
  };
  EXPECT_GT(repeats({}), 0u);
  EXPECT_EQ(repeats({"--no-repeat-ngram-size", "2"}), 0u);
  EXPECT_EQ(repeats({"--repetition-penalty", "50"}), 0u);
  const Outcome wrong = run({"--repetition-penalty", "0"}, "Ja.\n");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("--repetition-penalty"), std::string::npos) << wrong.err;
}

TEST_F(Translate, DistinctNBestTextsDiffer) {
  const Arguments draw = {"--output-sampling", "topk", "3", "--max-length", "3", "--n-best", "20"};
  const auto texts = [&](const Arguments& more) {
    std::vector<std::string> all;
    for (const std::string& line : lines_of(translated(draw + more)))
      all.push_back(line.substr(0, line.find(" ||| Score=")));
    std::sort(all.begin(), all.end());
    const size_t count = all.size();
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return std::pair(count, all.size());
  };
  const auto [all, different] = texts({});
  EXPECT_EQ(all, 400u);
  EXPECT_LT(different, all);
  EXPECT_EQ(texts({"--distinct"}), std::pair(different, different));
}

TEST_F(Translate, ScoreWritesTheWordScoresOfGivenTranslations) {
  write_file(folder_->file("s"), *german_);
  write_file(folder_->file("t"), *german_);
  const auto score = [](const Arguments& more) {
    Arguments arguments = {"score", "--model", "run", "-t", "s", "t", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_program(folder_->path(), arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return lines_of(outcome.out);
  };
  const auto plain = score({}), words = score({"--word-scores", "--alignment", "hard"});
  ASSERT_EQ(plain.size(), 20u);
  ASSERT_EQ(words.size(), 20u);
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(words[i].rfind(plain[i] + " ||| ", 0), 0u) << words[i];
    const std::vector<double> scores = numbers(field(words[i], "WordScores= "));
    EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), std::stod(plain[i]),
                1e-5 * static_cast<double>(scores.size()));
    const std::string links = field(words[i], plain[i] + " ||| ");
    EXPECT_EQ(std::count(links.begin(), links.end(), '-'), static_cast<long>(scores.size()));
  }
  const auto json = nlohmann::json::parse(score({"--json", "--word-scores", "--alignment"}).at(0));
  for (const auto& each : json["scores"]) {
    EXPECT_EQ(each["word_scores"].size(), each["tokens"].get<size_t>());
    EXPECT_EQ(each["alignment"].size(), each["tokens"].get<size_t>());
  }
}

TEST_F(Translate, AShortlistIsLearntAndUsed) {
  const demo::Corpus corpus = demo::make_corpus(5, 200, 20);
  std::string german, english;
  for (const demo::Pair& pair : corpus.train) {
    german += pair.german + "\n";
    english += pair.english + "\n";
  }
  write_file(folder_->file("train.de"), german);
  write_file(folder_->file("train.en"), english);
  const Outcome learnt =
      run_program(folder_->path(), {"shortlist", "-t", "train.de", "train.en", "-v",
                                    "run/vocab.spm", "-o", "lex.s2t", "--best", "20"});
  ASSERT_EQ(learnt.exit_code, 0) << learnt.err;
  EXPECT_GT(lines_of(read_file(folder_->file("lex.s2t"))).size(), 100u);
  const Arguments greedy = {"--beam-size", "1", "--max-length", "9"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), greedy.begin(), greedy.end());
    return translated(more);
  };
  // The whole vocabulary is what there is without a list.
  EXPECT_EQ(with({"--shortlist", "lex.s2t", "100000"}), with({}));
  EXPECT_EQ(lines_of(with({"--shortlist", "lex.s2t", "0", "1"})).size(), 20u);
  for (const Arguments& wrong :
       {Arguments{"--shortlist", "none"}, Arguments{"--shortlist", "lex.s2t", "few"},
        Arguments{"--shortlist", "train.de"}})
    EXPECT_NE(run(wrong, "Ja.\n").exit_code, 0);
}

TEST_F(Translate, HelpIsGrouped) {
  const Outcome help = run_program(folder_->path(), {"translate", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* each : {"Search", "Sampling, instead of the search", "--output-sampling",
                           "--max-length-crop", "--min-length", "Batches"})
    EXPECT_NE(help.out.find(each), std::string::npos) << each;
}

}  // namespace
}  // namespace translate_train::testing
