// Training runs from the command line: what they leave, how they go on, what they take.
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

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

TEST_F(Cli, TranslationsOfAValidationHaveTheLinesOfItsFile) {
  std::vector<std::string> expected = lines_of(read_file(file("run/valid/10.hyp")));
  std::vector<std::string> de = lines_of(read_file(file("v.de"))),
                           en = lines_of(read_file(file("v.en")));
  // Pairs with an empty side, at the beginning, one after the other, and at the end.
  for (const auto& [line, german, english] : {std::tuple(0, "", "Yes."), std::tuple(7, "Ja.", ""),
                                              std::tuple(8, "", ""), std::tuple(43, "", "No.")}) {
    de.insert(de.begin() + line, german);
    en.insert(en.begin() + line, english);
    expected.insert(expected.begin() + line, "");
  }
  const auto text_of = [](const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  };
  write_file(file("gaps.de"), text_of(de));
  write_file(file("gaps.en"), text_of(en));
  for (const char* memory : {"256MiB", "0"}) {
    Arguments arguments = small(std::string("gaps") + memory, "10u");
    std::ranges::replace(arguments, "v.de", "gaps.de");
    std::ranges::replace(arguments, "v.en", "gaps.en");
    const Outcome outcome = run(arguments + Arguments{"--data-in-memory", memory});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string folder = std::string("gaps") + memory;
    const auto hypotheses = lines_of(read_file(file(folder + "/valid/10.hyp")));
    EXPECT_EQ(hypotheses, expected);
    std::vector<size_t> lines;
    for (const std::string& line : lines_of(read_file(file(folder + "/metrics.jsonl")))) {
      const auto record = nlohmann::json::parse(line);
      if (record.at("type") == "samples") {
        lines = record.at("lines").get<std::vector<size_t>>();
        for (size_t i = 0; i < lines.size(); ++i)
          EXPECT_EQ(record.at("sources")[i], de.at(lines[i])) << i;
      }
      if (record.at("type") != "valid") continue;
      ASSERT_EQ(lines.size(), 6u);
      for (size_t i = 0; i < lines.size(); ++i)
        EXPECT_EQ(record.at("samples")[i], hypotheses.at(lines[i])) << i;
    }
  }
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
  EXPECT_NE(more.err.find("resuming half at update 10"), std::string::npos) << more.err;
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
  expect_refused(run(more + Arguments{"--dim-emb", "64"}), "--dim-emb is 32");
  expect_refused(run(more + Arguments{"--task", "base"}), "tiny");
  expect_refused(run(more + Arguments{"--seed", "5"}), "seed");
  expect_refused(run(more + Arguments{"--train-sets", "v.de", "v.en"}), "corpus has changed");
  write_file(file("broken.spm"), "no model");
  expect_refused(run(more + Arguments{"--vocabs", "broken.spm"}), "vocabs");
  EXPECT_EQ(read_file(file("same/latest")), read_file(file("run/latest")));
  EXPECT_EQ(run(more).exit_code, 0);
}

TEST_F(Cli, ConfigFileAndCommandLine) {
  write_file(file("good.yml"),
             "train-sets: [t.de, t.en]\nvalid-sets: [v.de, v.en]\ntask: tiny\nenc-depth: 1\n"
             "dec-depth: 1\ndim-emb: 32\ntransformer-dim-ffn: 64\ntransformer-heads: 2\n"
             "dim-vocabs: 300\nmini-batch-words: 300\nafter: 50u\nlearn-rate: 0.001\n"
             "autotune-gemm: off\n");
  const Outcome outcome = run({"train", "--config", "good.yml", "--model", "configured", "--after",
                               "2u", "--quiet", "--lr", "0.002"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::string config = read_file(file("configured/config.yml"));
  EXPECT_NE(config.find("after: [2u]"), std::string::npos) << config;
  EXPECT_NE(config.find("learn-rate: 0.002"), std::string::npos) << config;
  EXPECT_NE(config.find("autotune-gemm: off"), std::string::npos) << config;
}

TEST_F(Cli, StandardInputGzipHoldOutAndJson) {
  const Outcome piped = run(Arguments{"train", "--tsv", "-", "--model", "piped", "--after", "2u",
                                      "--log-format", "json"} +
                                small_model(),
                            read_file(file("t.tsv")));
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_NE(piped.err.find("360 pairs to train on, 40 others held out"), std::string::npos)
      << piped.err;
  for (const std::string& line : lines_of(piped.err))
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_NE(piped.err.find("only 40 pairs decide which checkpoint is the best"), std::string::npos);

  for (const char* name : {"t.de", "t.en"}) {
    const std::string text = read_file(file(name));
    // The name does not matter.
    gzFile out = gzopen((file(name) + ".packed").c_str(), "wb");
    ASSERT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(out);
  }
  Arguments zipped = small("zipped", "20u");
  zipped[2] = "t.de.packed";
  zipped[3] = "t.en.packed";
  ASSERT_EQ(run(zipped).exit_code, 0);
  EXPECT_EQ(read_file(file("zipped/ckpt/20/model.safetensors")),
            read_file(file("run/ckpt/20/model.safetensors")));
  EXPECT_EQ(run({"eval", "--ref", "t.en", "--hyp", "t.en.packed"}).exit_code, 0);
  fs::resize_file(file("t.en.packed"), fs::file_size(file("t.en.packed")) / 2);
  expect_refused(run({"train", "-t", "t.de.packed", "t.en.packed", "--model", "never"}),
                 "t.en.packed");
}

// A run makes the files of its run directory last; whether it can be made is asked first.
TEST_F(Cli, ARunDirectoryThatCannotBeMadeIsRefusedFirst) {
  struct Case {
    const char *directory, *reason;
    int code;
  };
  for (const auto& [directory, reason, code] :
       {Case{"t.de", "t.de is no directory", 2}, Case{"t.de/run", "t.de is no directory", 2},
        Case{"/proc/run", "cannot be made in /proc", 1}}) {
    const Outcome outcome = run(small(directory, "2u"));
    expect_refused(outcome, reason, code);
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
  }
  EXPECT_EQ(run(small("deep/er/run", "1u")).exit_code, 0);
}

// --quiet is about one call: the run that goes on without it says what it does.
TEST_F(Cli, QuietIsNotRemembered) {
  const Outcome quiet = run(small("hushed", "2u") + Arguments{"-q"});
  ASSERT_EQ(quiet.exit_code, 0) << quiet.err;
  EXPECT_EQ(quiet.err, "");
  const Outcome loud = run({"train", "--model", "hushed", "--after", "4u"});
  ASSERT_EQ(loud.exit_code, 0) << loud.err;
  EXPECT_NE(loud.err.find("resuming hushed at update 2"), std::string::npos) << loud.err;
}

// Marian's short names of flags, and its vocabulary for each side.
TEST_F(Cli, MariansShortFlags) {
  const Outcome outcome = run(
      Arguments{"train",
                "-t",
                "t.de",
                "t.en",
                "-v",
                "run/vocab.spm",
                "run/vocab.spm",
                "-m",
                "marian",
                "-w",
                "3000",
                "-e",
                "1",
                "-b",
                "2",
                "-n",
                "0.6",
                "-T",
                ".",
                "--after",
                "2u",
                "--quiet"} +
      with_tiny_model({"--cpu-threads", "1"}, {.width = 32, .vocabulary = 0, .batch_tokens = 300}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string config = read_file(file("marian/config.yml"));
  for (const char* line : {"memory-limit: 3000MiB", "after: [2u, 1e]", "beam-size: 2",
                           "normalize: 0.6", "dim-vocabs: 300"})
    EXPECT_NE(config.find(line), std::string::npos) << line << "\n" << config;
  const Arguments translate = words_of("translate -m marian --device cpu -v");
  const Outcome twice = run(translate + Arguments{"run/vocab.spm", "marian/vocab.spm"}, "a\n");
  EXPECT_EQ(twice.exit_code, 0) << twice.err;
  for (const Arguments& command : {translate, words_of("train -t t.de t.en -m never -v")})
    expect_refused(run(command + Arguments{"run/vocab.spm", "t.de"}),
                   "--vocabs run/vocab.spm t.de: a model has one vocabulary for both sides");
}

TEST_F(Cli, MessagesNameTheFlagThatHelps) {
  const Arguments many = {"train", "-t", "v.de",  "v.en",         "--valid-sets", "v.de",
                          "v.en",  "-m", "never", "--dim-vocabs", "20000"};
  expect_refused(run(many), "(--dim-vocabs; without it the text decides how many there are)");
  expect_refused(
      run({"train", "-t", "t.de", "--enc-depth", "2", "-m", "never"}),
      "--enc-depth: a decoder-lm has no encoder; one file alone trains a language model");
  expect_refused(run({"train", "-t", "v.de", "v.en", "-m", "never"}),
                 "40 pairs are too few to hold some out: give --valid-sets");
}

TEST_F(Cli, DecoderOnly) {
  const Outcome outcome = run(
      with_tiny_model(words_of("train --task lm --train-sets t.de t.en --valid-sets v.de v.en "
                               "--model lm --after 3u"),
                      {.width = 32, .vocabulary = 300, .batch_tokens = 300, .decoder_only = true}));
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
    ASSERT_TRUE(waits_for_training(file(name)));
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

TEST_F(Cli, OptimizerStatesInEightBitsAreAQuarter) {
  const auto optimizer = [&](const std::string& states, const std::string& smoothing = "0") {
    const Outcome outcome = run({"plan", "--task", "base", "--optimizer-states", states,
                                 "--exponential-smoothing", smoothing});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const size_t at = outcome.out.find("optimizer");
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 9));
  };
  EXPECT_NEAR(optimizer("8bit") / optimizer("fp32"), 2.03125 / 8, 1e-3);
  // The EMA takes as much as one moment in fp32.
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
  const Outcome longer = run({"plan", "--task", "llama", "--sentence-length", "2048"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_NE(longer.err.find("--max-length"), std::string::npos) << longer.err;
  EXPECT_EQ(run({"plan", "--task", "llama", "--sentence-length", "2048", "--max-length", "2048",
                 "--mini-batch-words", "2048"})
                .exit_code,
            0);
  const Outcome fit =
      run({"plan", "--task", "tiny", "--mini-batch-fit", "--memory-limit", "300MiB"});
  EXPECT_NE(fit.out.find("fits the limit"), std::string::npos) << fit.out << fit.err;
  EXPECT_EQ(fit.exit_code, 0);
  const Outcome over = run({"plan", "--task", "tiny", "--memory-limit", "30MiB"});
  EXPECT_NE(over.out.find("is over the limit"), std::string::npos) << over.out << over.err;
  EXPECT_EQ(over.exit_code, 4);
  EXPECT_EQ(run({"plan", "--mini-batch-fit"}).exit_code, 2);
  const auto gradients = [&](const Arguments& frozen) {
    Arguments arguments = {"plan", "--task", "tiny"};
    arguments.insert(arguments.end(), frozen.begin(), frozen.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const size_t at = outcome.out.find("gradients");
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 9));
  };
  const double encoder = gradients({"--freeze", "encoder.*"});
  EXPECT_LT(encoder, gradients({}));
  EXPECT_LT(gradients({"--freeze", "encoder.*", "*embedding*"}), encoder);
  const Outcome unknown = run({"plan", "--task", "tiny", "--freeze", "no.such"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_NE(unknown.err.find("no.such"), std::string::npos) << unknown.err;
  EXPECT_EQ(run({"plan", "--memory-limit", "3 apples"}).exit_code, 2);
}

TEST_F(Cli, AutotuneGemmIsOnAndDoesNothingOnTheCpu) {
  const auto with = [](Arguments arguments, const char* choice) {
    *(std::find(arguments.begin(), arguments.end(), "--autotune-gemm") + 1) = choice;
    return arguments + Arguments{"--device", "cpu"};
  };
  const Outcome usual =
      run({"train", "--task", "tiny", "--model", "usual", "--tsv", "t.tsv", "--dump-config"});
  EXPECT_NE(usual.out.find("autotune-gemm: on\n"), std::string::npos) << usual.out << usual.err;
  const Outcome tuned = run(with(small("tuned", "6u"), "on"));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(tuned.err.find("GEMM autotuning"), std::string::npos) << tuned.err;
  const std::string config = read_file(file("tuned/config.yml"));
  EXPECT_NE(config.find("autotune-gemm: on\n"), std::string::npos) << config;
  EXPECT_FALSE(fs::exists(file("tuned/gemm-cache")));
  const Outcome plain = run(with(small("plain", "6u"), "off"));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(read_file(file("tuned/ckpt/6/model.safetensors")),
            read_file(file("plain/ckpt/6/model.safetensors")));
  const Outcome wrong = run(with(small("wrong", "6u"), "maybe"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("autotune-gemm: wants on or off"), std::string::npos) << wrong.err;
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
