// The surface for users: commands, files, exit codes and the text of errors.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "apps/translate-train/settings/foreign_flags.h"
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

TEST_F(Cli, HelpAndVersion) {
  EXPECT_EQ(run({"--version"}).exit_code, 0);
  const Outcome help = run({"train", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"--train-sets", "--lr-decay", "--max-tokens", "Validation", "Machine"})
    EXPECT_NE(help.out.find(text), std::string::npos) << text;
}

TEST_F(Cli, UsageErrors) {
  expect_refused(run({}), "subcommand");
  expect_refused(run({"trian"}), "did you mean train?");
  expect_refused(run({"train", "--learn-rat", "1"}), "did you mean --learn-rate?");
  expect_refused(run({"train", "--model", "never"}), "--train-sets");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--learn-rate", "fast"}),
                 "fast");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--task", "huge"}),
                 "huge");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--after", "5x"}), "5x");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--lr-decay", "cosine"}),
                 "--after");
  expect_refused(
      run({"train", "--model", "never", "-t", "t.de", "t.en", "--valid-metrics", "meteor"}),
      "meteor");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--device", "gpu"}),
                 "gpu");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--dim-emb", "30",
                      "--transformer-heads", "4"}),
                 "30");
  const Arguments files = {"train", "--model", "never", "-t", "t.de", "t.en"};
  expect_refused(run(files + Arguments{"--precision", "fp4"}), "fp4");
  expect_refused(run(files + Arguments{"--device", "cpu", "--precision", "fp8"}),
                 "--precision: fp8 needs a CUDA device of compute capability 8.9 or newer");
  expect_refused(run(files + Arguments{"--device", "cpu", "--precision", "tf32"}),
                 "--precision: tf32 is for CUDA");
  expect_refused(run({"translate", "--model", "nowhere"}), "nowhere");
  expect_refused(run({"translate", "--model", "run", "--precision", "fp8"}), "fp8 is for training");
  expect_refused(run({"translate", "--model", "run", "--precision", "tf32"}),
                 "tf32 is for training");
  expect_refused(run({"score", "--model", "run", "-t", "v.de", "v.en", "--device", "cpu",
                      "--precision", "bf16"}),
                 "bf16 is for CUDA and for training");
  expect_refused(run({"translate", "--beam-size", "0"}), "beam-size");
  expect_refused(run({"info", "nothing"}), "nothing");
  expect_refused(run({"train", "a.de", "a.en", "--seed", "2"}),
                 "unexpected a.de a.en, did you mean -t a.de a.en?");
  expect_refused(run({"translate", "a.de"}), "did you mean -i a.de?");
}

TEST_F(Cli, EveryCommandSaysItsVersion) {
  const std::string version = run({"--version"}).out;
  EXPECT_TRUE(version.starts_with("translate-train 0.")) << version;
  for (const Arguments& arguments :
       {Arguments{"-V"}, Arguments{"train", "--version"}, Arguments{"eval", "-V"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, version);
  }
}

TEST_F(Cli, ManualPagesNameEveryFlag) {
  ASSERT_EQ(run({"man", "--all", "pages"}).exit_code, 0);
  const std::string program = read_file(file("pages/translate-train.1"));
  EXPECT_EQ(run({"man"}).out, program);
  EXPECT_TRUE(program.starts_with(".TH translate-train 1 "));
  int commands = 0;
  for (const std::string& line : lines_of(run({"--help"}).out)) {
    if (!line.starts_with("  ") || line[2] == ' ' || line[2] == '-') continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    std::string escaped = name;
    for (size_t at = 0; (at = escaped.find('-', at)) != std::string::npos; at += 2)
      escaped.insert(at, "\\");
    EXPECT_NE(program.find("translate\\-train\\-" + escaped), std::string::npos) << name;
    const std::string page = read_file(file("pages/translate-train-" + name + ".1"));
    EXPECT_EQ(run({"man", name}).out, page);
    for (const std::string& word : words_of(run({name, "--help"}).out)) {
      if (!word.starts_with("--")) continue;
      std::string flag = word.substr(0, word.find_first_of(",:{ "));
      for (size_t at = 0; (at = flag.find('-', at)) != std::string::npos; at += 2)
        flag.insert(at, "\\");
      EXPECT_NE(page.find(flag), std::string::npos) << name << " " << flag;
    }
    ++commands;
  }
  EXPECT_GT(commands, 10);
  expect_refused(run({"man", "trian"}), "unknown command trian");
}

// Flags of Marian and fairseq are answered with flags that the command has.
TEST_F(Cli, ForeignFlagsAreAnswered) {
  for (const ForeignFlag& row : foreign_flags()) {
    const std::string help = run({row.command, "--help"}).out;
    std::string flags = row.flags;
    std::replace(flags.begin(), flags.end(), ',', ' ');
    for (const std::string& flag : words_of(flags))
      expect_refused(run({row.command, flag, "1"}),
                     fmt::format("no flag {}: {}", flag, row.instead));
    for (std::string word : words_of(row.instead)) {
      if (!word.starts_with("--")) continue;
      while (!std::isalnum(static_cast<unsigned char>(word.back()))) word.pop_back();
      EXPECT_NE(help.find(word), std::string::npos) << word << " is no flag of " << row.command;
    }
  }
  for (const ForeignFlag& row : foreign_flags())
    EXPECT_EQ(std::string(row.instead).find("not there"), std::string::npos) << row.flags;
  expect_refused(run({"train", "--dim-rnn", "512"}),
                 "no flag --dim-rnn: there are no recurrent layers: --dim-emb is the width");
  expect_refused(run({"train", "--mini-batch=64"}), "no flag --mini-batch: batches are counted");
  expect_refused(run({"score", "--devices", "0"}), "unknown flag --devices");
}

// Text in another form than UTF-8 is named, and what to do about it.
TEST_F(Cli, OtherFormsOfTextAreNamed) {
  write_file(file("utf16.de"), std::string("\xff\xfeG\0u\0\n\0", 8));
  expect_refused(run({"train", "--model", "never", "-t", "utf16.de", "t.en"}),
                 "utf16.de:1: invalid UTF-8 at byte 1 (0xff); it is UTF-16: iconv");
  expect_refused(run({"eval", "--ref", "t.en", "--hyp", "utf16.de"}), "it is UTF-16: iconv");
  write_file(file("latin1.de"),
             "Stra\xdf"
             "e\n");
  const std::string hint =
      "invalid UTF-8 at byte 5 (0xdf); the file is not UTF-8: if it is Latin-1, iconv";
  expect_refused(run({"train", "--model", "never", "-t", "latin1.de", "t.en"}), hint);
  expect_refused(run({"eval", "--ref", "t.en", "--hyp", "latin1.de"}), hint);
  // A text that is named .gz is one that was not fetched, or not packed.
  write_file(file("text.gz"), "a\n");
  const std::string no_gzip = "text.gz: is named .gz but holds no gzip data";
  expect_refused(run({"train", "--model", "never", "-t", "text.gz", "t.en"}), no_gzip);
  expect_refused(run({"eval", "--ref", "t.en", "--hyp", "text.gz"}), no_gzip);
  EXPECT_FALSE(std::filesystem::exists(file("never")));
}

TEST_F(Cli, ConfigFileErrorsNameFileLineAndKey) {
  write_file(file("bad.yml"), "task: tiny\n\nlearn-rates: 0.1\n");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "bad.yml"}),
                 "bad.yml:3 unknown key 'learn-rates', did you mean learn-rate?");
  write_file(file("bad.yml"), "seed: 1\nseed: 2\n");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "bad.yml"}),
                 "bad.yml:2");
  write_file(file("bad.yml"), "\nlearn-rate: soon\n");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "bad.yml"}),
                 "bad.yml:2");
  write_file(file("bad.yml"), "a: [1\n");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "bad.yml"}),
                 "bad.yml:");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "no.yml"}),
                 "no.yml");
  // A file that goes on for ever is given up after the limit, and so is a larger one.
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "/dev/zero"}),
                 "/dev/zero:1 the file has more than 131072 bytes");
  const std::string start = "seed: soon\n#";
  write_file(file("long.yml"), start + std::string((128 << 10) - start.size(), 'x'));
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "long.yml"}),
                 "long.yml:1");
  write_file(file("long.yml"), start + std::string((128 << 10) + 1 - start.size(), 'x'));
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "long.yml"}),
                 "long.yml:1 the file has more than 131072 bytes");
}

// A key that Marian has gets the answer that its flag gets.
TEST_F(Cli, ForeignKeysOfAConfigAreAnswered) {
  size_t keys = 0;
  for (const ForeignFlag& row : foreign_flags()) {
    if (std::string_view(row.command) != "train") continue;
    const std::string flags = row.flags;
    const std::string first = flags.substr(0, flags.find(','));
    if (!first.starts_with("--")) continue;
    write_file(file("marian.yml"), first.substr(2) + ": 1\n");
    expect_refused(run({"train", "--model", "never", "--config", "marian.yml"}),
                   fmt::format("marian.yml:1 no key '{}': {}", first.substr(2), row.instead));
    ++keys;
  }
  EXPECT_GT(keys, 60u);
  write_file(file("marian.yml"), "quite-another-thing: 1\n");
  const Outcome far = run({"train", "--model", "never", "--config", "marian.yml"});
  expect_refused(far, "marian.yml:1 unknown key 'quite-another-thing'");
  EXPECT_EQ(far.err.find("did you mean"), std::string::npos) << far.err;
  expect_refused(run({"train", "--valid-script-path", "bleu.sh"}),
                 "no script runs: --valid-metrics");
  expect_refused(run({"train", "--no-restore-corpus"}), "continues in its corpus where it stopped");
}

// The library names its arguments; the program names the flags that set them.
TEST_F(Cli, ErrorsOfTheLibraryNameFlags) {
  const Arguments vocab{"vocab", "-t", "t.de", "-o", "never.spm"};
  expect_refused(run(vocab + Arguments{"--character-coverage", "0.5"}),
                 "error: --character-coverage is 0.5, it must lie between 0.98 and 1");
  expect_refused(run(vocab + Arguments{"--dim-vocabs", "2"}), "error: --dim-vocabs is 2");
  const Arguments train{"train", "--model", "never", "-t", "t.de", "t.en", "--device", "cpu"};
  expect_refused(run(train + Arguments{"--lr-decay", "inv-sqrt", "--lr-warmup", "0"}),
                 "error: --lr-warmup must be at least 1 update for inv-sqrt");
  expect_refused(
      run(train + Arguments{"--prune-sparsity", "0.5", "--prune-start", "9", "--prune-end", "8"}),
      "error: --prune-end must be 0 (where pruning starts) or at least that, got 8");
  expect_refused(run(train + Arguments{"--dim-emb", "30", "--transformer-heads", "4"}),
                 "error: --dim-emb 30 is not a multiple of the 4 heads");
  EXPECT_FALSE(std::filesystem::exists(file("never")));
}

TEST_F(Cli, BadCorporaAreNamedByFileLineAndReason) {
  const std::string good = "eins\nzwei\ndrei\n";
  write_file(file("three"), good);
  write_file(file("two"), "one\ntwo\n");
  write_file(file("utf8"), "one\ntw\xFFo\nthree\n");
  write_file(file("nul"), std::string("one\ntwo\nth\0ree\n", 15));
  write_file(file("empty"), "");
  write_file(file("long"), "one\n" + std::string((1 << 20) + 1, 'x') + "\nthree\n");
  const auto train_on = [&](const std::string& target) {
    return run({"train", "-t", "three", target, "--model", "never"});
  };
  expect_refused(train_on("two"), "two has 2");
  expect_refused(train_on("utf8"), "utf8:2");
  expect_refused(train_on("nul"), "nul:3");
  expect_refused(train_on("empty"), "empty");
  expect_refused(train_on("long"), "long:2");
  expect_refused(train_on("missing"), "missing");
  expect_refused(run({"train", "--tsv", "three", "--model", "never"}), "three:1");
  EXPECT_FALSE(fs::exists(file("never")));

  expect_refused(run({"translate", "--model", "run"}, "gut\nsch\xFFlecht\n"), "standard input:2");
  expect_refused(run({"translate", "--model", "run"}, std::string("gu\0t\n", 5)),
                 "standard input:1");
  expect_refused(run({"eval", "--hyp", "two", "--ref", "three"}), "2");
  expect_refused(run({"score", "--model", "run", "-t", "three", "two"}), "two");
}

TEST_F(Cli, TranslatesLineByLineInOrder) {
  std::string input;
  for (const std::string& line : lines_of(read_file(file("v.de")))) input += line + "\n\n";
  const Outcome all = run({"translate", "--model", "run", "--beam-size", "2"}, input);
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const auto lines = lines_of(all.out);
  ASSERT_EQ(lines.size(), 80u);
  for (size_t i = 1; i < lines.size(); i += 2) EXPECT_EQ(lines[i], "");
  // However many lines are read at a time, and from files.
  const Outcome few =
      run({"translate", "--model", "run", "--beam-size", "2", "--maxi-batch", "7"}, input);
  EXPECT_EQ(few.out, all.out);
  write_file(file("source"), input);
  const Outcome files = run({"translate", "--model", "run/ckpt/20/model.safetensors", "--vocab",
                             "run/vocab.spm", "--beam-size", "2", "-i", "source", "-o", "target"});
  const Outcome latest =
      run({"translate", "--model", "run", "--checkpoint", "latest", "--beam-size", "2"}, input);
  EXPECT_EQ(files.exit_code, 0) << files.err;
  EXPECT_EQ(files.out, "");
  EXPECT_EQ(read_file(file("target")), latest.out);
  const Outcome packed = run({"translate", "--model", "run", "--checkpoint", "latest",
                              "--beam-size", "2", "-i", "source", "-o", "target.gz"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(std::system(("gzip -dc " + file("target.gz") + " > " + file("unpacked")).c_str()), 0);
  EXPECT_EQ(read_file(file("unpacked")), latest.out);
  expect_refused(run({"translate", "--model", "run", "--checkpoint", "best-ter"}), "best-ter");
}

TEST_F(Cli, NBest) {
  const Outcome outcome =
      run({"translate", "--model", "run", "--beam-size", "3", "--n-best", "2"}, "Ja.\nNein.\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  // The beam may have finished fewer than were asked for, but never none.
  ASSERT_GE(lines.size(), 2u) << outcome.out;
  ASSERT_LE(lines.size(), 4u) << outcome.out;
  EXPECT_TRUE(lines.front().starts_with("0 ||| ")) << lines.front();
  EXPECT_TRUE(lines.back().starts_with("1 ||| ")) << lines.back();
  const auto score = [](const std::string& line) {
    return std::stod(line.substr(line.rfind("||| ") + 4));
  };
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool same_line = lines[i][0] == lines[i - 1][0];
    EXPECT_TRUE(!same_line || score(lines[i - 1]) >= score(lines[i])) << outcome.out;
  }
  expect_refused(run({"translate", "--model", "run", "--beam-size", "2", "--n-best", "3"}, "Ja.\n"),
                 "--n-best must be 1 to the beam size, got 3");
}

TEST_F(Cli, ScoreWritesALogProbabilityAPair) {
  const Outcome outcome = run({"score", "--model", "run", "-t", "v.de", "v.en"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  double total = 0;
  const auto lines = lines_of(outcome.out);
  EXPECT_EQ(lines.size(), 40u);
  for (const std::string& line : lines) {
    EXPECT_LT(std::stod(line), 0);
    total += std::stod(line);
  }
  const size_t at = outcome.err.find("log-probability ");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_NEAR(std::stod(outcome.err.substr(at + 16)), total, 1e-3);
  EXPECT_NE(outcome.err.find("perplexity"), std::string::npos);
}

TEST_F(Cli, EvalKnowsPerfectAndPartial) {
  write_file(file("hyp"), "the cat sat on the mat\nThere is a dog.\n");
  write_file(file("ref"), "the cat sat on the mat\nThere is a cat.\n");
  const Outcome same = run({"eval", "--hyp", "ref", "--ref", "ref"});
  EXPECT_NE(same.out.find("tok:13a"), std::string::npos) << same.out;
  const auto lines = lines_of(same.out);
  ASSERT_EQ(lines.size(), 2u) << same.out;
  EXPECT_TRUE(
      lines[0].ends_with(" = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 "
                         "hyp_len = 11 ref_len = 11)"))
      << lines[0];
  EXPECT_TRUE(lines[1].ends_with(" = 100.00")) << lines[1];
  // 10 of 11 words, 7 of 9 pairs, 5 of 7 triples, 3 of 5 quadruples: (10/11 7/9 5/7 3/5)^(1/4).
  const Outcome partial = run({"eval", "--hyp", "hyp", "--ref", "ref"});
  EXPECT_NE(partial.out.find("= 74.19"), std::string::npos) << partial.out;
}

TEST_F(Cli, InfoTellsWhatAFileIs) {
  for (const char* path : {"run", "run/ckpt/20", "run/ckpt/20/model.safetensors"}) {
    const Outcome outcome = run({"info", path});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("encoder-decoder"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("1 + 1"), std::string::npos) << outcome.out;
  }
  EXPECT_NE(run({"info", "run/vocab.spm"}).out.find("300"), std::string::npos);
  expect_refused(run({"info", "t.de"}), "t.de");
}

TEST_F(Cli, VocabularyOfFiles) {
  const Outcome outcome =
      run({"vocab", "-t", "t.de", "t.en", "--dim-vocabs", "250", "-o", "v.spm"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(run({"info", "v.spm"}).out.find("250"), std::string::npos);
  expect_refused(run({"vocab", "-t", "t.de", "--dim-vocabs", "100000", "-o", "w.spm"}), "at most");
  EXPECT_FALSE(fs::exists(file("w.spm")));
  // It does not belong to the model of another size.
  expect_refused(run({"translate", "--model", "run", "--vocab", "v.spm"}, "Ja.\n"), "250");
}

TEST_F(Cli, DamagedFilesAreRefused) {
  const std::string folder = copy_of_run("damaged");
  const std::string model = folder + "/ckpt/20/model.safetensors";
  const std::string good = read_file(model);
  write_file(model, good.substr(0, good.size() / 2));
  expect_refused(run({"info", "damaged/ckpt/20/model.safetensors"}), "model.safetensors");
  expect_refused(run({"translate", "--model", "damaged", "--checkpoint", "20"}, "Ja.\n"),
                 "model.safetensors");
  // Training resumes from the checkpoint before it, and says so.
  const Outcome more = run({"train", "--model", "damaged", "--after", "20u"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("passed over"), std::string::npos) << more.err;
  EXPECT_EQ(read_file(model), good);
  const std::string vocabulary = read_file(folder + "/vocab.spm");
  write_file(folder + "/vocab.spm", vocabulary.substr(0, vocabulary.size() / 2));
  expect_refused(run({"translate", "--model", "damaged"}, "Ja.\n"), "vocab.spm");
}

TEST_F(Cli, WhatCannotBeWrittenIsSaid) {
  expect_refused(run(small("/proc/run", "2u")), "/proc/run", 1);
  for (const Arguments& command :
       {Arguments{"translate", "--model", "run"}, Arguments{"completion", "bash"},
        Arguments{"train", "--model", "run", "--dump-config"}}) {
    Running full(folder_->path(), command, "Ja.\n", "/dev/full");
    expect_refused(full.wait(), "standard output", 1);
  }
  expect_refused(run({"translate", "--model", "run", "-o", "/proc/out"}, "Ja.\n"), "/proc/out", 1);
  expect_refused(run({"translate", "--model", "run", "-o", "out.xz"}, "Ja.\n"),
                 "out.xz: gzip is what can be written: name it .gz");
  EXPECT_FALSE(fs::exists(file("out.xz")));
}

}  // namespace
}  // namespace translate_train::testing
