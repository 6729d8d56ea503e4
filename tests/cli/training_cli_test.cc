// Training options as users give them: what a run makes of them, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/translate-train/demo_corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class TrainingCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const DemoCorpus corpus = make_demo_corpus(12, 200, 30);
    std::string text[4];
    for (const DemoPair& pair : corpus.train) {
      text[0] += pair.german + "\n";
      text[1] += pair.english + "\n";
    }
    for (const DemoPair& pair : corpus.held_out) {
      text[2] += pair.german + "\n";
      text[3] += pair.english + "\n";
    }
    write_file(file("t.de"), text[0]);
    write_file(file("t.en"), text[1]);
    write_file(file("v.de"), text[2]);
    write_file(file("v.en"), text[3]);
  }
  static void TearDownTestSuite() { delete folder_; }

  static Arguments train(const std::string& run, const std::string& after) {
    return with_tiny_model({"train", "--train-sets", "t.de", "t.en", "--valid-sets", "v.de", "v.en",
                            "--model", run, "--after", after, "--save-freq", "5u", "--valid-freq",
                            "5u", "--lr-warmup", "4", "--cpu-threads", "1"});
  }
  static Outcome run(const Arguments& arguments, const std::string& input = "") {
    return run_program(folder_->path(), arguments, input);
  }
  static std::string file(const std::string& name) { return folder_->file(name); }
  // A run that must succeed.
  static Outcome trained(const Arguments& arguments) {
    Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  static void refused(const Arguments& arguments, const std::string& text, int code = 2) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* TrainingCli::folder_ = nullptr;

TEST_F(TrainingCli, SmoothingIsKeptBesideTheWeights) {
  trained(train("ema", "10u") + Arguments{"--exponential-smoothing"});
  const std::string config = read_file(file("ema/config.yml"));
  EXPECT_NE(config.find("exponential-smoothing: "), std::string::npos) << config;
  EXPECT_NE(read_file(file("ema/ckpt/10/model.safetensors")),
            read_file(file("ema/ckpt/10/unsmoothed.safetensors")));
  // It goes on with what it has begun with, without being told again.
  trained(train("ema", "15u"));
  EXPECT_TRUE(fs::exists(file("ema/ckpt/15/unsmoothed.safetensors")));
  trained(train("ema-uncut", "15u") + Arguments{"--exponential-smoothing", "1e-4"});
  for (const char* name : {"model", "unsmoothed", "optimizer"})
    EXPECT_EQ(read_file(file(std::string("ema/ckpt/15/") + name + ".safetensors")),
              read_file(file(std::string("ema-uncut/ckpt/15/") + name + ".safetensors")))
        << name;
  const Outcome translated = run({"translate", "--model", "ema"}, "der Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;

  trained(train("ema-fairseq", "5u") + Arguments{"--ema-decay", "0.9"});
  EXPECT_NE(read_file(file("ema-fairseq/config.yml")).find("exponential-smoothing: 0.1\n"),
            std::string::npos);
  trained(train("plain", "5u"));
  EXPECT_FALSE(fs::exists(file("plain/ckpt/5/unsmoothed.safetensors")));
  for (const char* wrong : {"1", "-0.1", "much"})
    refused(train("wrong", "5u") + Arguments{"--exponential-smoothing=" + std::string(wrong)},
            "exponential-smoothing");
  refused(train("ema", "20u") + Arguments{"--exponential-smoothing", "off"},
          "exponential_smoothing was 0.0001 and is 0.0 now");
}

}  // namespace
}  // namespace translate_train::testing
