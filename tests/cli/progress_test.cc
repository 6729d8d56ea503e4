// Long work reports its progress.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

// Runs a program whose input `slow`, a pipe, gets its second part once the program has said on
// standard error that it waits.
Outcome run_until_it_says(const TemporaryFolder& folder, const std::vector<std::string>& arguments,
                          const std::string& first, const std::string& second,
                          const std::string& said) {
  Running program(folder.path(), arguments);
  const int pipe = open(folder.file("slow").c_str(), O_RDWR);  // does not wait for a reader
  const auto put = [pipe](const std::string& text) {
    EXPECT_EQ(write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  put(first);
  const bool waits = program.says(said);
  put(second);
  close(pipe);
  const Outcome outcome = program.wait();
  EXPECT_TRUE(waits) << outcome.err;
  return outcome;
}

TEST(Progress, WhatTakesLongSaysWhatItIsDoing) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.file("slow").c_str(), 0600), 0);
  const demo::Corpus corpus = demo::make_corpus(5, 200, 20);
  std::string pairs, german;
  for (const demo::Pair& pair : corpus.train) pairs += pair.german + "\t" + pair.english + "\n";
  for (const demo::Pair& pair : corpus.held_out) german += pair.german + "\n";
  const std::string half = pairs.substr(0, pairs.find('\n') + 1);
  const std::string rest = pairs.substr(half.size());

  const Outcome trained =
      run_until_it_says(folder,
                        with_tiny_model({"train", "--tsv", "slow", "--model", "run", "--after",
                                         "2u", "--cpu-threads", "1", "--log-format", "json"}),
                        half, rest, "\"reading the corpus ...\"");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const std::string& line : lines_of(trained.err))
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;

  const Outcome translated = run_until_it_says(
      folder,
      {"translate", "--model", "run", "-i", "slow", "--maxi-batch", "20", "--max-length", "4"},
      german, "Ja.\n", "waiting for lines, 20 lines done ...");
  ASSERT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(lines_of(translated.out).size(), 21u);

  const Outcome vocabulary =
      run_until_it_says(folder, {"vocab", "-t", "slow", "--dim-vocabs", "100", "-o", "v.spm"}, half,
                        rest, "reading ...");
  ASSERT_EQ(vocabulary.exit_code, 0) << vocabulary.err;
}

}  // namespace
}  // namespace translate_train::testing
