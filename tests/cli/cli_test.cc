// What users meet: commands, files, exit codes and the text of errors.
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "apps/translate-train/demo_corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// One line that says what is wrong, nothing else, and exit code 2.
void expect_refused(const Outcome& outcome, const std::string& text, int code = 2) {
  EXPECT_EQ(outcome.exit_code, code) << outcome.err;
  const auto lines = lines_of(outcome.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back().starts_with("translate-train: error: ")) << outcome.err;
  EXPECT_NE(lines.back().find(text), std::string::npos) << outcome.err;
}

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A folder with a corpus, and once a small trained run in it.
class Cli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const DemoCorpus corpus = make_demo_corpus(11, 400, 40);
    std::string de, en, tsv, valid_de, valid_en;
    for (const DemoPair& pair : corpus.train) {
      de += pair.german + "\n";
      en += pair.english + "\n";
      tsv += pair.german + "\t" + pair.english + "\n";
    }
    for (const DemoPair& pair : corpus.held_out) {
      valid_de += pair.german + "\n";
      valid_en += pair.english + "\n";
    }
    write_file(folder_->file("t.de"), de);
    write_file(folder_->file("t.en"), en);
    write_file(folder_->file("t.tsv"), tsv);
    write_file(folder_->file("v.de"), valid_de);
    write_file(folder_->file("v.en"), valid_en);
    trained_ = new Outcome(run_program(folder_->path(), small("run", "20u")));
  }
  static void TearDownTestSuite() {
    delete trained_;
    delete folder_;
  }

  static Arguments small_model() {
    return {"--task",        "tiny", "--enc-depth",           "1",   "--dec-depth",         "1",
            "--dim-emb",     "32",   "--transformer-dim-ffn", "64",  "--transformer-heads", "2",
            "--dim-vocabs",  "300",  "--mini-batch-words",    "300", "--lr-warmup",         "10",
            "--cpu-threads", "1"};
  }
  static Arguments small(const std::string& run, const std::string& after) {
    return Arguments{"train",
                     "--train-sets",
                     "t.de",
                     "t.en",
                     "--valid-sets",
                     "v.de",
                     "v.en",
                     "--model",
                     run,
                     "--after",
                     after,
                     "--save-freq",
                     "10u",
                     "--valid-freq",
                     "10u",
                     "--disp-freq",
                     "5u"} +
           small_model();
  }
  static Outcome run(const Arguments& arguments, const std::string& input = "") {
    return run_program(folder_->path(), arguments, input);
  }
  static std::string file(const std::string& name) { return folder_->file(name); }
  static std::string copy_of_run(const std::string& name) {
    fs::remove_all(file(name));
    fs::copy(file("run"), file(name), fs::copy_options::recursive);
    return file(name);
  }

  static TemporaryFolder* folder_;
  static Outcome* trained_;
};
TemporaryFolder* Cli::folder_ = nullptr;
Outcome* Cli::trained_ = nullptr;

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
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--valid-metrics", "ter"}),
                 "ter");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--device", "gpu"}),
                 "gpu");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--dim-emb", "30",
                      "--transformer-heads", "4"}),
                 "30");
  const Arguments files = {"train", "--model", "never", "-t", "t.de", "t.en"};
  expect_refused(run(files + Arguments{"--precision", "fp8"}), "fp8");
  expect_refused(run(files + Arguments{"--device", "cpu", "--precision", "bf16"}), "bf16");
  expect_refused(run({"translate", "--model", "nowhere"}), "nowhere");
  expect_refused(run({"translate", "--model", "run", "--precision", "fp8"}), "fp8");
  expect_refused(run({"score", "--model", "run", "-t", "v.de", "v.en", "--device", "cpu",
                      "--precision", "bf16"}),
                 "bf16");
  expect_refused(run({"translate", "--beam-size", "0"}), "beam-size");
  expect_refused(run({"info", "nothing"}), "nothing");
}

TEST_F(Cli, ConfigFileErrorsNameFileLineAndKey) {
  write_file(file("bad.yml"), "task: tiny\n\nlearn-rates: 0.1\n");
  expect_refused(run({"train", "--model", "never", "-t", "t.de", "t.en", "--config", "bad.yml"}),
                 "bad.yml:3 unknown key 'learn-rates', the nearest known one is 'learn-rate'");
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

TEST_F(Cli, TrainingFillsTheRunDirectory) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  for (const char* name : {"config.yml", "vocab.spm", "train.log", "metrics.jsonl", "latest",
                           "best-bleu", "valid/10.hyp", "valid/20.hyp", "ckpt/20/model.safetensors",
                           "ckpt/20/optimizer.safetensors", "ckpt/20/state.json"})
    EXPECT_TRUE(fs::exists(file(std::string("run/") + name))) << name;
  std::map<std::string, int> kinds;
  for (const std::string& line : lines_of(read_file(file("run/metrics.jsonl")))) {
    const auto record = nlohmann::json::parse(line);
    const std::string type = record.at("type");
    ++kinds[type];
    EXPECT_GT(record.at("time"), 1.7e9);
    if (type == "train") {
      EXPECT_TRUE(record.at("loss").is_number());
    } else if (type == "valid") {
      EXPECT_TRUE(record.at("bleu").is_number());
      EXPECT_TRUE(record.at("chrf").is_number());
      EXPECT_TRUE(record.at("ce-mean-words").is_number());
      // Of six of the forty pairs.
      const auto hypotheses = lines_of(read_file(file(record.at("hypotheses"))));
      ASSERT_EQ(record.at("samples").size(), 6u);
      EXPECT_EQ(record.at("samples")[1], hypotheses.at(10));
    } else if (type == "samples") {
      EXPECT_EQ(record.at("lines")[1], 10);
    } else if (type == "end") {
      EXPECT_EQ(record.at("stop"), "limit");
    }
  }
  EXPECT_EQ(kinds["valid"], 2);
  EXPECT_EQ(kinds["train"], 5 + 3);  // each of the first five, then 10, 15, 20
  for (const char* once : {"run", "samples", "end"}) EXPECT_EQ(kinds[once], 1) << once;
  const std::string config = read_file(file("run/config.yml"));
  for (const char* text : {"learn-rate: 0.005", "dim-emb: 32", "label-smoothing: 0.1",
                           "keep-last: 3", "transformer-norm: pre"})
    EXPECT_NE(config.find(text), std::string::npos) << text;
  // Piped, every display is a line.
  EXPECT_NE(trained_->err.find("| Up 20 | loss"), std::string::npos) << trained_->err;
  EXPECT_NE(trained_->err.find("[valid] "), std::string::npos);
  // Where it was computed; auto takes CUDA where there is one.
  EXPECT_TRUE(trained_->err.find("| cpu, 1 thread |") != std::string::npos ||
              trained_->err.find("| cuda:0 ") != std::string::npos)
      << trained_->err;
  EXPECT_EQ(trained_->err.find('\r'), std::string::npos);
}

TEST_F(Cli, ProfileWritesATraceAndChangesNoByte) {
  const Outcome outcome = run(small("profiled", "20u") +
                              Arguments{"--profile", "trace.json", "--profile-updates", "3:4"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(file("profiled/ckpt/20/model.safetensors")),
            read_file(file("run/ckpt/20/model.safetensors")));
  EXPECT_EQ(read_file(file("profiled/ckpt/20/optimizer.safetensors")),
            read_file(file("run/ckpt/20/optimizer.safetensors")));
  EXPECT_NE(outcome.err.find("profile of updates 3 to 4: trace.json"), std::string::npos)
      << outcome.err;
  for (const char* text : {"linear ", "attention ", "backward", "clipped_update", "share"})
    EXPECT_NE(outcome.err.find(text), std::string::npos) << text;
  // The pauses around the window are nobody's business.
  EXPECT_EQ(outcome.err.find("stopped"), std::string::npos) << outcome.err;
  const auto trace = nlohmann::json::parse(read_file(file("trace.json")));
  int steps = 0, backward = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    steps += event.at("name") == "step";
    backward += event.at("cat") == "backward";
    EXPECT_GE(event.at("dur").get<double>(), 0);
  }
  EXPECT_EQ(steps, 2);
  EXPECT_GT(backward, 20);
}

TEST_F(Cli, AProfileThatCannotBeWrittenCostsNothing) {
  const Arguments files = {"train", "--model", "never", "-t", "t.de", "t.en"};
  expect_refused(run(files + Arguments{"--profile", "no/such/folder/trace.json"}),
                 "no/such/folder");
  expect_refused(run(files + Arguments{"--profile", "."}), "directory");
  expect_refused(run(files + Arguments{"--profile", "x.json", "--profile-updates", "5"}),
                 "FROM:TO");
  expect_refused(run(files + Arguments{"--profile", "x.json", "--profile-updates", "5:4"}), "5:4");
  expect_refused(run(files + Arguments{"--profile-updates", "1:4"}), "--profile FILE");
  EXPECT_FALSE(fs::exists(file("never")));
  // Found out when the window ends: the run goes on, keeps its checkpoints and shows the table.
  const std::string long_name(250, 'x');  // a temporary beside it has no room for its name
  const Outcome late = run(small("unlucky", "20u") +
                           Arguments{"--profile", long_name, "--profile-updates", "18:19"});
  EXPECT_EQ(late.exit_code, 1) << late.err;
  EXPECT_NE(late.err.find("the profile could not be written"), std::string::npos) << late.err;
  EXPECT_NE(late.err.find("profile of updates 18 to 19"), std::string::npos) << late.err;
  EXPECT_EQ(read_file(file("unlucky/ckpt/20/model.safetensors")),
            read_file(file("run/ckpt/20/model.safetensors")));
  const Outcome short_run = run(small("short", "5u") +
                                Arguments{"--profile", "trace5.json", "--profile-updates", "9:10"});
  EXPECT_EQ(short_run.exit_code, 1);
  EXPECT_NE(short_run.err.find("the run ended before update 9"), std::string::npos)
      << short_run.err;
  EXPECT_TRUE(fs::exists(file("short/ckpt/5/model.safetensors")));
}

TEST_F(Cli, ContinuingGivesTheSameBytesAsNotStopping) {
  ASSERT_EQ(run(small("half", "10u")).exit_code, 0);
  // No other flag is needed: the run directory knows.
  const Outcome more = run({"train", "--model", "half", "--after", "20u"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("continuing after update 10"), std::string::npos) << more.err;
  EXPECT_EQ(read_file(file("half/ckpt/20/model.safetensors")),
            read_file(file("run/ckpt/20/model.safetensors")));
  EXPECT_EQ(read_file(file("half/ckpt/20/optimizer.safetensors")),
            read_file(file("run/ckpt/20/optimizer.safetensors")));
  // A finished run has nothing to do.
  EXPECT_EQ(run({"train", "--model", "half"}).exit_code, 0);
}

TEST_F(Cli, ContinuingRefusesAnotherRunsSettings) {
  copy_of_run("same");
  const Arguments more = {"train", "--model", "same", "--after", "30u"};
  expect_refused(run(more + Arguments{"--dim-emb", "64"}), "");
  expect_refused(run(more + Arguments{"--task", "base"}), "tiny");
  expect_refused(run(more + Arguments{"--seed", "5"}), "seed");
  expect_refused(run(more + Arguments{"--train-sets", "v.de", "v.en"}), "");
  write_file(file("broken.spm"), "no model");
  expect_refused(run(more + Arguments{"--vocabs", "broken.spm"}), "vocabs");
  EXPECT_EQ(read_file(file("same/latest")), read_file(file("run/latest")));
  EXPECT_EQ(run(more).exit_code, 0);
}

TEST_F(Cli, ConfigFileAndCommandLine) {
  write_file(file("good.yml"),
             "train-sets: [t.de, t.en]\nvalid-sets: [v.de, v.en]\ntask: tiny\nenc-depth: 1\n"
             "dec-depth: 1\ndim-emb: 32\ntransformer-dim-ffn: 64\ntransformer-heads: 2\n"
             "dim-vocabs: 300\nmini-batch-words: 300\nafter: 50u\nlearn-rate: 0.001\n");
  const Outcome outcome = run({"train", "--config", "good.yml", "--model", "configured", "--after",
                               "2u", "--quiet", "--lr", "0.002"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::string config = read_file(file("configured/config.yml"));
  EXPECT_NE(config.find("after: [2u]"), std::string::npos) << config;
  EXPECT_NE(config.find("learn-rate: 0.002"), std::string::npos) << config;
}

TEST_F(Cli, StandardInputGzipHoldOutAndJson) {
  const Outcome piped = run(Arguments{"train", "--tsv", "-", "--model", "piped", "--after", "2u",
                                      "--log-format", "json"} +
                                small_model(),
                            read_file(file("t.tsv")));
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_NE(piped.err.find("396 pairs to train on, 4 others held out"), std::string::npos)
      << piped.err;
  for (const std::string& line : lines_of(piped.err))
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;

  for (const char* name : {"t.de", "t.en"}) {
    const std::string text = read_file(file(name));
    gzFile out = gzopen((file(name) + ".gz").c_str(), "wb");
    ASSERT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(out);
  }
  Arguments zipped = small("zipped", "20u");
  zipped[2] = "t.de.gz";
  zipped[3] = "t.en.gz";
  ASSERT_EQ(run(zipped).exit_code, 0);
  EXPECT_EQ(read_file(file("zipped/ckpt/20/model.safetensors")),
            read_file(file("run/ckpt/20/model.safetensors")));
  fs::resize_file(file("t.en.gz"), fs::file_size(file("t.en.gz")) / 2);
  expect_refused(run({"train", "-t", "t.de.gz", "t.en.gz", "--model", "never"}), "t.en.gz");
}

TEST_F(Cli, DecoderOnly) {
  const Outcome outcome = run({"train",
                               "--task",
                               "lm",
                               "--train-sets",
                               "t.de",
                               "t.en",
                               "--valid-sets",
                               "v.de",
                               "v.en",
                               "--model",
                               "lm",
                               "--after",
                               "3u",
                               "--dec-depth",
                               "1",
                               "--dim-emb",
                               "32",
                               "--transformer-dim-ffn",
                               "64",
                               "--transformer-heads",
                               "2",
                               "--dim-vocabs",
                               "300",
                               "--mini-batch-words",
                               "300"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Outcome info = run({"info", "lm"});
  EXPECT_NE(info.out.find("decoder-lm"), std::string::npos) << info.out;
  EXPECT_EQ(lines_of(run({"translate", "--model", "lm", "--max-length", "5"}, "a\nb\n").out).size(),
            2u);
}

TEST_F(Cli, TerminationSavesAndEndsWith143) {
  for (const auto& [number, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string name = "signalled" + std::to_string(number);
    Arguments arguments = small(name, "1000000u");
    Running running(folder_->path(), arguments);
    // Until it trains; a loaded machine may need long.
    bool training = false;
    for (int i = 0; i < 3000 && !training; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      training = fs::exists(file(name + "/metrics.jsonl"));
    }
    ASSERT_TRUE(training);
    running.signal(number);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_TRUE(fs::exists(file(name + "/latest")));
    const int64_t saved = std::stoll(read_file(file(name + "/latest")));
    const Outcome more =
        run({"train", "--model", name, "--after", std::to_string(saved + 1) + "u"});
    EXPECT_EQ(more.exit_code, 0) << more.err;
    EXPECT_EQ(std::stoll(read_file(file(name + "/latest"))), saved + 1);
  }
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
                 "");
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
  EXPECT_EQ(lines_of(same.out).size(), 2u);
  for (const std::string& line : lines_of(same.out))
    EXPECT_TRUE(line.ends_with(" = 100.00")) << line;
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
  expect_refused(run({"vocab", "-t", "t.de", "--dim-vocabs", "100000", "-o", "w.spm"}), "");
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
  // Training goes on from the checkpoint before it, and says so.
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
  Running full(folder_->path(), {"translate", "--model", "run"}, "Ja.\n", "/dev/full");
  expect_refused(full.wait(), "standard output", 1);
  expect_refused(run({"translate", "--model", "run", "-o", "/proc/out"}, "Ja.\n"), "/proc/out", 1);
}

TEST_F(Cli, OptimizerStatesInEightBitsAreAQuarter) {
  const auto optimizer = [&](const std::string& states, const std::string& smoothing = "0") {
    const Outcome outcome = run({"plan", "--task", "base", "--optimizer-states", states,
                                 "--exponential-smoothing", smoothing});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const size_t at = outcome.out.find("optimizer");
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 9));
  };
  EXPECT_NEAR(optimizer("8bit") / optimizer("fp32"), 2.03125 / 8, 1e-3);
  // The running mean takes as much as one moment in fp32.
  EXPECT_NEAR(optimizer("fp32", "1e-4") / optimizer("fp32"), 1.5, 1e-3);
  const Outcome wrong = run({"plan", "--optimizer-states", "4bit"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("optimizer-states"), std::string::npos) << wrong.err;
}

TEST_F(Cli, PlanSaysWhatTrainingTakesWithoutAGpu) {
  const auto total = [&](const std::string& recompute) {
    const Outcome outcome =
        run({"plan", "--task", "tiny", "--mini-batch-words", "2048", "--recompute", recompute});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const size_t at = outcome.out.find("in all");
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 6));
  };
  const double none = total("none"), selective = total("selective"), full = total("full");
  EXPECT_GT(full, 30);  // the weights alone, their masters, gradients and moments
  EXPECT_LT(full, selective);
  EXPECT_LT(selective, none);
  const Outcome wrong = run({"plan", "--recompute", "some"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("recompute"), std::string::npos) << wrong.err;
  EXPECT_EQ(run({"plan", "--sentence-length", "0"}).exit_code, 2);
  const Outcome fit =
      run({"plan", "--task", "tiny", "--mini-batch-fit", "--memory-limit", "300MiB"});
  EXPECT_NE(fit.out.find("fits the limit"), std::string::npos) << fit.out << fit.err;
  EXPECT_EQ(run({"plan", "--mini-batch-fit"}).exit_code, 2);
  EXPECT_EQ(run({"plan", "--memory-limit", "3 apples"}).exit_code, 2);
}

TEST_F(Cli, TuningProductsIsKeptAndDoesNothingOnTheCpu) {
  const Outcome tuned = run(small("tuned", "6u") + Arguments{"--tune-products"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find("tune-products: the CPU"), std::string::npos) << tuned.err;
  const std::string config = read_file(file("tuned/config.yml"));
  EXPECT_NE(config.find("tune-products: on\n"), std::string::npos) << config;
  EXPECT_FALSE(fs::exists(file("tuned/product-plans")));
  const Outcome plain = run(small("plain", "6u"));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.err.find("tune-products"), std::string::npos) << plain.err;
  EXPECT_EQ(read_file(file("tuned/ckpt/6/model.safetensors")),
            read_file(file("plain/ckpt/6/model.safetensors")));
  const Outcome wrong = run(small("wrong", "6u") + Arguments{"--tune-products", "maybe"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("tune-products: wants on or off"), std::string::npos) << wrong.err;
}

// The plan that is printed before the first update is the memory that the first ones have taken.
TEST_F(Cli, TrainPrintsThePlanAndTakesWhatItSays) {
  const Outcome outcome = run(small("planned", "20u"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const size_t at = outcome.err.find("planned peak ");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_LT(at, outcome.err.find("Up 1 |")) << outcome.err;
  const double planned = std::stod(outcome.err.substr(at + 13));
  std::istringstream metrics(read_file(folder_->path() + "/planned/metrics.jsonl"));
  std::string line;
  nlohmann::json first;  // update; the run and its samples stand before it
  do {
    ASSERT_TRUE(std::getline(metrics, line));
    first = nlohmann::json::parse(line);
  } while (first.at("type") != "train");
  EXPECT_NEAR(first.at("peak_memory_bytes").get<double>() / 1048576, planned, 0.051);
  EXPECT_EQ(first.at("peak_memory_bytes"), first.at("memory_bytes"));
  const size_t end = outcome.err.find(", memory ");
  ASSERT_NE(end, std::string::npos) << outcome.err;
  EXPECT_DOUBLE_EQ(std::stod(outcome.err.substr(end + 9)), planned) << outcome.err;
}

TEST_F(Cli, WhatDoesNotFitTheMemoryIsRefusedAndFitted) {
  auto arguments = small("fitted", "4u");
  arguments.insert(arguments.end(), {"--memory-limit", "1MiB"});
  const Outcome refused = run(arguments);
  EXPECT_EQ(refused.exit_code, 4) << refused.err;
  EXPECT_NE(refused.err.find("1.0 MiB are allowed"), std::string::npos) << refused.err;
  arguments.back() = "64MiB";
  arguments.push_back("--mini-batch-fit");
  const Outcome fitted = run(arguments);
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_NE(fitted.err.find("words a batch"), std::string::npos) << fitted.err;
  const std::string config = read_file(folder_->path() + "/fitted/config.yml");
  const size_t words = config.find("mini-batch-words: ");
  ASSERT_NE(words, std::string::npos) << config;
  const std::string chosen = config.substr(words, config.find('\n', words) - words);
  const Outcome again = run(small("fitted", "8u"));  // keeps its choice
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(read_file(folder_->path() + "/fitted/config.yml").find(chosen), std::string::npos);
}

}  // namespace
}  // namespace translate_train::testing
