// Small training runs on a demo corpus, for the tests of train.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {

using Arguments = std::vector<std::string>;

// Writes t.de and t.en (training), v.de and v.en (validation) of a demo corpus, and returns it.
inline demo::Corpus write_demo_corpus(const TemporaryFolder& folder, uint64_t seed, size_t training,
                                      size_t validation) {
  demo::Corpus corpus = demo::make_corpus(seed, training, validation);
  const auto write = [&](const std::string& name, const std::vector<demo::Pair>& pairs) {
    std::string german, english;
    for (const demo::Pair& pair : pairs) {
      german += pair.german + "\n";
      english += pair.english + "\n";
    }
    write_file(folder.file(name + ".de"), german);
    write_file(folder.file(name + ".en"), english);
  };
  write("t", corpus.train);
  write("v", corpus.held_out);
  return corpus;
}

// A folder with that corpus, and commands that train in it.
class TrainingRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_demo_corpus(*folder_, 12, 200, 30);
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

  inline static TemporaryFolder* folder_ = nullptr;
};

}  // namespace translate_train::testing
