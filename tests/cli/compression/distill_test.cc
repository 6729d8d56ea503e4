// distill as its users meet it, and the filters that it applies.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "apps/translate-train/commands/pair_filter.h"
#include "apps/translate-train/text/text_io.h"
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class Distill : public Cli {
 protected:
  // The run of the other tests translates every line into nothing.
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    const Outcome taught = run(with_tiny_model(
        words_of("train --train-sets t.de t.en --model teacher --task tiny --after 300u "
                 "--save-freq 300u --lr-warmup 10 --learn-rate 0.01 --transformer-dropout 0 "
                 "--device cpu --cpu-threads 1 --quiet"),
        {.width = 32, .vocabulary = 300, .batch_tokens = 300}));
    ASSERT_EQ(taught.exit_code, 0) << taught.err;
  }
  // No filter except for empty lines.
  static Arguments unfiltered(const std::string& flags, const std::string& output) {
    return words_of(
        "distill -m teacher --device cpu --cpu-threads 1 --max-length 30 --beam-size 3 "
        "--max-length-ratio 0 --max-repeats 0 --drop-identical off --drop-duplicates off -o " +
        output + " " + flags);
  }
  // By line and rank.
  static std::vector<std::vector<std::string>> n_best(const std::string& input) {
    const Outcome outcome = run(
        words_of("translate -m teacher --device cpu --cpu-threads 1 --max-length 30 --beam-size 3 "
                 "--n-best 3 --quiet -i " +
                 input));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<std::vector<std::string>> lines;
    for (const std::string& line : lines_of(outcome.out)) {
      const size_t text = line.find(" ||| ") + 5;
      lines.resize(std::stoul(line) + 1);
      lines.back().push_back(line.substr(text, line.rfind(" ||| Score= ") - text));
    }
    return lines;
  }
  static bool blank(const std::string& text) {
    return text.find_first_not_of(' ') == std::string::npos;
  }
  static void expect_done(const Outcome& outcome) {
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  // Starts distill and sends a signal once it has written this many lines.
  static Outcome stop(const Arguments& command, const std::string& target, int lines, int number) {
    Running running(folder_->path(), command);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    int written = 0;
    while (written < lines && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (!exists(target + ".journal")) continue;
      const std::string journal = read_file(file(target + ".journal"));
      const size_t at = journal.find("\"lines\": ");
      if (at != std::string::npos) written = std::stoi(journal.substr(at + 9));
    }
    running.signal(number);
    return running.wait();
  }
  static bool exists(const std::string& name) { return fs::exists(file(name)); }
};

TEST_F(Distill, TheBestTranslationsInTheOrderOfTheText) {
  const auto translations = n_best("v.de");
  const auto sources = lines_of(read_file(file("v.de")));
  ASSERT_EQ(translations.size(), sources.size());
  std::vector<std::string> source, target;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto first = std::find_if_not(translations[i].begin(), translations[i].end(), blank);
    if (first == translations[i].end()) continue;
    source.push_back(sources[i]);
    target.push_back(*first);
  }
  ASSERT_GT(target.size(), sources.size() / 2);
  const Outcome plain = run(unfiltered("-t v.de --maxi-batch 7", "s.src s.trg"));
  expect_done(plain);
  EXPECT_EQ(lines_of(read_file(file("s.src"))), source);
  EXPECT_EQ(lines_of(read_file(file("s.trg"))), target);
  std::ostringstream kept;
  kept << "s.trg: " << target.size() << " of " << sources.size() << " lines kept";
  EXPECT_NE(plain.err.find(kept.str()), std::string::npos) << plain.err;
  for (const char* rest : {"s.src.part", "s.trg.part", "s.trg.journal"})
    EXPECT_FALSE(exists(rest)) << rest;

  // Several gzip files in one, a step each.
  expect_done(run(unfiltered("-t v.de v.en --maxi-batch 7", "g.src.gz g.trg.gz")));
  EXPECT_EQ(static_cast<unsigned char>(read_file(file("g.trg.gz"))[0]), 0x1f);
  EXPECT_EQ(read_lines(file("g.src.gz")), source);
  EXPECT_EQ(read_lines(file("g.trg.gz")), target);
}

TEST_F(Distill, TheNearestToTheReference) {
  // If the last of three is the reference, it is chosen.
  const auto translations = n_best("v.de");
  std::string references;
  size_t several = 0;
  std::vector<std::string> expected;
  for (const std::vector<std::string>& ranks : translations) {
    ASSERT_GE(ranks.size(), 1u);
    several += ranks.size() > 1 ? 1 : 0;
    references += ranks.back() + "\n";
    const auto first = std::find_if_not(ranks.begin(), ranks.end(), blank);
    if (!blank(ranks.back()))
      expected.push_back(ranks.back());
    else if (first != ranks.end())
      expected.push_back(*first);
  }
  ASSERT_GT(several, translations.size() / 4);
  write_file(file("last"), references);
  for (const char* pick : {"bleu", "chrf"}) {
    const std::string target = std::string("r.trg.") + pick;
    expect_done(run(unfiltered(std::string("-t v.de last --pick ") + pick,
                               std::string("r.src.") + pick + " " + target)));
    EXPECT_EQ(lines_of(read_file(file(target))), expected) << pick;
  }
  expect_done(run(unfiltered("-t v.de last --pick bleu --n-best 1", "r1.src r1.trg")));
  EXPECT_NE(lines_of(read_file(file("r1.trg"))), expected);
}

TEST_F(Distill, EveryPairOnce) {
  std::string text = read_file(file("v.de"));
  write_file(file("twice.de"), text + "\n" + text);
  const auto distilled = [&](const std::string& input, const std::string& name) {
    Arguments arguments = unfiltered("-t " + input, name + ".src " + name + ".trg");
    *(std::find(arguments.begin(), arguments.end(), "--drop-duplicates") + 1) = "on";
    const Outcome outcome = run(arguments);
    expect_done(outcome);
    return outcome.err;
  };
  distilled("v.de", "once");
  const std::string said = distilled("twice.de", "twice");
  EXPECT_NE(said.find("1 empty"), std::string::npos) << said;
  EXPECT_NE(said.find(" duplicates"), std::string::npos) << said;
  EXPECT_GT(read_file(file("once.src")).size(), 100u);
  EXPECT_EQ(read_file(file("twice.src")), read_file(file("once.src")));
  EXPECT_EQ(read_file(file("twice.trg")), read_file(file("once.trg")));
}

TEST_F(Distill, AKillChangesNothing) {
  const std::string flags =
      "distill -m teacher --device cpu --max-length 12 --beam-size 3 --max-repeats 0 "
      "--pick chrf "
      "-t t.de t.en --maxi-batch 10 --quiet ";
  expect_done(run(words_of(flags + "-o whole.src.gz whole.trg --cpu-threads 1")));
  const auto stopped = [&](int lines, int number) {
    return stop(words_of(flags + "-o cut.src.gz cut.trg --cpu-threads 1"), "cut.trg", lines,
                number);
  };
  EXPECT_EQ(stopped(30, SIGKILL).exit_code, 128 + SIGKILL);
  EXPECT_FALSE(exists("cut.trg"));
  // The output of an incomplete step.
  write_file(file("cut.trg.part"), read_file(file("cut.trg.part")) + "half a li");
  write_file(file("cut.src.gz.part"), read_file(file("cut.src.gz.part")) + "\x1f\x8b");
  const Outcome term = stopped(100, SIGTERM);
  EXPECT_EQ(term.exit_code, 143) << term.err;
  EXPECT_NE(term.err.find("the same command continues there"), std::string::npos) << term.err;

  expect_refused(run(words_of(flags + "-o cut.src.gz cut.trg --normalize 0.5")),
                 "--normalize was 1.0 when this text was begun and is 0.5 now");
  expect_done(run(words_of(flags + "-o cut.src.gz cut.trg --cpu-threads 2")));
  EXPECT_GT(read_file(file("whole.trg")).size(), 1000u);
  EXPECT_TRUE(read_file(file("cut.trg")) == read_file(file("whole.trg")));
  EXPECT_TRUE(read_file(file("cut.src.gz")) == read_file(file("whole.src.gz")));
  for (const char* rest : {"cut.src.gz.part", "cut.trg.part", "cut.trg.journal"})
    EXPECT_FALSE(exists(rest)) << rest;
}

TEST_F(Distill, AKillWhileTheFilesGetTheirNames) {
  const Arguments command = unfiltered("-t t.de --maxi-batch 9", "other.src other.trg");
  ASSERT_EQ(stop(command, "other.trg", 9, SIGKILL).exit_code, 128 + SIGKILL);
  // As it is after the first name was given.
  std::string journal = read_file(file("other.trg.journal"));
  const size_t at = journal.find("\"finished\": false");
  ASSERT_NE(at, std::string::npos) << journal;
  journal.replace(at, 17, "\"finished\": true");
  write_file(file("other.trg.journal"), journal);
  fs::rename(file("other.src.part"), file("other.src"));
  const std::string source = read_file(file("other.src"));
  expect_done(run(command));
  EXPECT_EQ(read_file(file("other.src")), source);
  EXPECT_TRUE(exists("other.trg"));
  EXPECT_FALSE(exists("other.trg.part") || exists("other.trg.journal"));
}

TEST_F(Distill, NothingOfOthersIsOverwritten) {
  const auto refused = [&](const std::string& output, const std::string& text) {
    expect_refused(run(unfiltered("-t v.de", output)), text);
  };
  write_file(file("mine"), "text\n");
  refused("mine new.trg", "mine: exists already");
  refused("new.src mine", "mine: exists already");
  write_file(file("p.src.part"), "text\n");
  refused("p.src p.trg", "p.src.part: exists already, and there is no p.trg.journal");
  EXPECT_EQ(read_file(file("p.src.part")), "text\n");
  fs::create_symlink(file("mine"), file("l.trg.part"));
  refused("l.src l.trg", "l.trg.part: exists already");
  write_file(file("j.trg.journal"), "{\"format\": 1}");
  refused("j.src j.trg", "j.trg.journal: is no journal of distill, or it is damaged");
  refused("a a", "their names clash");
  refused("a.journal a", "their names clash");
  refused("nowhere/a nowhere/b", "nowhere/a.part: No such file or directory");
  EXPECT_EQ(read_file(file("mine")), "text\n");
  EXPECT_FALSE(exists("new.src.part") || exists("new.trg.part") || exists("a.part"));
}

TEST_F(Distill, BadInputIsNamed) {
  const auto refused = [&](const std::string& flags, const std::string& text) {
    expect_refused(run(words_of("distill -m teacher --device cpu -o x.src x.trg " + flags)), text);
  };
  write_file(file("nothing"), "");
  refused("-t v.de --pick bleu", "--pick bleu: wants the references");
  refused("-t v.de t.en", "the two sides differ in length");
  refused("-t nothing", "nothing: is empty");
  refused("-t v.de --n-best 6", "--n-best: 6 of a beam of 5");
  refused("-t v.de --pick ter", "--pick");
  refused("-t v.de --max-length-ratio 0.5", "--max-length-ratio: wants 0 or at least 1");
  refused("-t v.de --tokenize zh", "only --pick bleu");
  refused("-t v.de v.en --pick bleu --tokenize flores200", "flores200 is for eval");
  refused("", "--train-sets");
  EXPECT_FALSE(exists("x.src.part") || exists("x.trg.part") || exists("x.trg.journal"));
}

TEST_F(Distill, ADecoderOnlyTeacher) {
  const Outcome trained = run(
      with_tiny_model(words_of("train --train-sets t.de t.en --model lm --after 5u --save-freq 5u "
                               "--cpu-threads 1 --autotune-gemm off --task lm --quiet"),
                      {.width = 32, .vocabulary = 300, .batch_tokens = 300, .decoder_only = true}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  expect_done(
      run(words_of("distill -m lm --device cpu --min-length 3 --max-length 5 --beam-size 2 -t v.de "
                   "--max-length-ratio 0 --max-repeats 0 -o lm.src lm.trg")));
  EXPECT_EQ(lines_of(read_file(file("lm.src"))).size(), lines_of(read_file(file("lm.trg"))).size());
}

TEST(PairFilter, CountsWhatRepeatsItself) {
  const auto repetition = [](const std::vector<int32_t>& tokens) {
    return longest_repetition(tokens);
  };
  EXPECT_EQ(repetition({}), 0);
  EXPECT_EQ(repetition({5}), 1);
  EXPECT_EQ(repetition({1, 2, 3, 1, 4, 2}), 1);
  EXPECT_EQ(repetition({9, 7, 7, 7, 8}), 3);
  EXPECT_EQ(repetition({9, 1, 2, 1, 2, 1, 2, 8}), 3);
  EXPECT_EQ(repetition({1, 2, 1, 2, 1}), 2);  // the third is not whole
  EXPECT_EQ(repetition({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}), 2);
  EXPECT_EQ(repetition({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 1);
}

TEST(PairFilter, SaysWhatIsWrongWithAPair) {
  const std::vector<int32_t> two{1, 2}, six{1, 2, 3, 4, 5, 6}, seven{1, 2, 3, 4, 5, 6, 7};
  const std::vector<int32_t> loop{7, 7, 7, 7, 7};
  const Side source{"zwei Wörter", two};
  PairLimits limits;
  const auto loss = [&](const Side& from, const Side& to, double score = 0) {
    Loss why{};
    return passes(from, to, score, limits, why) ? -1 : static_cast<int>(why);
  };
  const auto number = [](Loss why) { return static_cast<int>(why); };
  EXPECT_EQ(loss(source, {"two words", two}), -1);
  EXPECT_EQ(loss(source, {" \t", {}}), number(Loss::empty));
  EXPECT_EQ(loss({"", {}}, {"two", two}), number(Loss::empty));
  EXPECT_EQ(loss(source, {"zwei Wörter", two}), number(Loss::identical));
  EXPECT_EQ(loss(source, {"two\nwords", two}), number(Loss::control));
  EXPECT_EQ(loss(source, {std::string_view("two\0", 4), two}), number(Loss::control));
  EXPECT_EQ(loss(source, {"six", six}), -1);
  EXPECT_EQ(loss(source, {"seven", seven}), number(Loss::ratio));
  EXPECT_EQ(loss({"sieben", seven}, {"two", two}), number(Loss::ratio));
  EXPECT_EQ(loss(source, {"loop", loop}), number(Loss::repetition));
  EXPECT_EQ(loss({"Schleife", loop}, {"loop", loop}), -1);
  limits.score = -1.5;
  EXPECT_EQ(loss(source, {"two words", two}, -1.5), -1);
  EXPECT_EQ(loss(source, {"two words", two}, -1.51), number(Loss::score));
  limits = {.length_ratio = 0, .drop_identical = false, .repeats = 0};
  EXPECT_EQ(loss(source, {"zwei Wörter", seven}), -1);
  EXPECT_EQ(loss(source, {"loop", loop}), -1);
}

TEST(PairFilter, RemembersEveryText) {
  const TemporaryFolder folder;
  SeenTexts seen(folder.file("text"), 2000);
  EXPECT_TRUE(fs::is_empty(folder.path())) << "the file has no name";
  for (int i = 0; i < 2000; ++i) {
    const std::string text = "line " + std::to_string(i);
    EXPECT_FALSE(seen.contains(text));
    EXPECT_TRUE(seen.insert(text));
    EXPECT_TRUE(seen.contains(text));
    EXPECT_FALSE(seen.insert(text));
  }
  EXPECT_TRUE(seen.contains("line 0"));
  EXPECT_FALSE(seen.contains("line 2000"));
}

}  // namespace
}  // namespace translate_train::testing
