// A corpus and a small trained run, for the tests of the commands.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training_fixture.h"

namespace translate_train::testing {

namespace fs = std::filesystem;

// One line that says what is wrong, nothing else, and the exit code.
inline void expect_refused(const Outcome& outcome, const std::string& text, int code = 2) {
  EXPECT_EQ(outcome.exit_code, code) << outcome.err;
  ASSERT_FALSE(text.empty()) << "any error would do";
  const auto lines = lines_of(outcome.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back().starts_with("translate-train: error: ")) << outcome.err;
  EXPECT_NE(lines.back().find(text), std::string::npos) << outcome.err;
}

// A folder with a corpus, and once a small trained run in it.
class Cli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::string tsv;
    for (const demo::Pair& pair : write_demo_corpus(*folder_, 11, 400, 40).train)
      tsv += pair.german + "\t" + pair.english + "\n";
    write_file(folder_->file("t.tsv"), tsv);
    trained_ = new Outcome(run_program(folder_->path(), small("run", "20u")));
  }
  static void TearDownTestSuite() {
    delete trained_;
    delete folder_;
  }

  // Where there is a GPU, two runs that time GEMM kernels may choose different ones.
  static Arguments small_model() {
    return with_tiny_model(
        {"--task", "tiny", "--lr-warmup", "10", "--cpu-threads", "1", "--autotune-gemm", "off"},
        {.width = 32, .vocabulary = 300, .batch_tokens = 300});
  }
  static Arguments small(const std::string& run, const std::string& after) {
    const std::string words =
        "train --train-sets t.de t.en --valid-sets v.de v.en "
        "--save-freq 10u --valid-freq 10u --disp-freq 5u --model ";
    return words_of(words + run + " --after " + after) + small_model();
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

  inline static TemporaryFolder* folder_ = nullptr;
  inline static Outcome* trained_ = nullptr;
};

}  // namespace translate_train::testing
