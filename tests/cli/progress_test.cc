// Long work reports its progress.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

// Gives a program its input through a pipe, the second line only after three seconds.
class SlowInput {
 public:
  explicit SlowInput(const std::string& path, const std::string& first, const std::string& second)
      : writer_([path, first, second] {
          const int pipe = open(path.c_str(), O_WRONLY);
          const auto put = [pipe](const std::string& text) {
            EXPECT_EQ(write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
          };
          put(first);
          std::this_thread::sleep_for(std::chrono::seconds(3));
          put(second);
          close(pipe);
        }) {}
  ~SlowInput() { writer_.join(); }
  SlowInput(const SlowInput&) = delete;
  SlowInput& operator=(const SlowInput&) = delete;

 private:
  std::thread writer_;
};

TEST(Progress, WhatTakesLongSaysWhatItIsDoing) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.file("slow").c_str(), 0600), 0);
  const demo::Corpus corpus = demo::make_corpus(5, 200, 20);
  std::string pairs, german;
  for (const demo::Pair& pair : corpus.train) pairs += pair.german + "\t" + pair.english + "\n";
  for (const demo::Pair& pair : corpus.held_out) german += pair.german + "\n";
  const std::string half = pairs.substr(0, pairs.find('\n') + 1);
  const std::string rest = pairs.substr(half.size());
  {
    const SlowInput input(folder.file("slow"), half, rest);
    const Outcome trained = run_program(
        folder.path(), with_tiny_model({"train", "--tsv", "slow", "--model", "run", "--after", "2u",
                                        "--cpu-threads", "1", "--log-format", "json"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_NE(trained.err.find("\"reading the corpus ...\""), std::string::npos) << trained.err;
    for (const std::string& line : lines_of(trained.err))
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
  {
    const SlowInput input(folder.file("slow"), german, "Ja.\n");
    const Outcome translated = run_program(
        folder.path(),
        {"translate", "--model", "run", "-i", "slow", "--maxi-batch", "20", "--max-length", "4"});
    ASSERT_EQ(translated.exit_code, 0) << translated.err;
    EXPECT_EQ(lines_of(translated.out).size(), 21u);
    EXPECT_NE(translated.err.find("waiting for lines, 20 lines done ..."), std::string::npos)
        << translated.err;
  }
  {
    const SlowInput input(folder.file("slow"), half, rest);
    const Outcome vocabulary =
        run_program(folder.path(), {"vocab", "-t", "slow", "--dim-vocabs", "100", "-o", "v.spm"});
    ASSERT_EQ(vocabulary.exit_code, 0) << vocabulary.err;
    EXPECT_NE(vocabulary.err.find("reading ..."), std::string::npos) << vocabulary.err;
  }
}

}  // namespace
}  // namespace translate_train::testing
